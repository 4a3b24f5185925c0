"""The Triton backend, under Triton's interpreter: on this machine's CPU, kernel by kernel, without a GPU.

The interpreter must be chosen before Triton is imported, so these tests run in a process of their own, together with
the engine's other tests of edge cases, posteriors and bad input, whose `backend` is "triton" there.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.batches import FAMILIES, KINDS, Batch, draw_batch
from support.golden_k2 import CASES, GOLDEN

from wildctc import Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice import backends, triton_backend, triton_batch, triton_ops
from wildctc.lattice.arcs import Lattice, as_lattice

HERE = Path(__file__).parent
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process: test_in_the_interpreter")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
outside = pytest.mark.skipif(INTERPRETED, reason="not for the interpreter's process")


@outside
@needs_triton
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("files", "which"),
    [
        (["test_triton.py", "test_bad_input.py"], "not none_of_these"),
        (["test_edge_cases.py"], "not twenty_thousand and not rounded_to_nearest and (not spread_of_1000 or TW)"),
        (["test_posteriors.py"], "not shapes or TW"),
        (["test_alignment.py"], "tie or parallel or bypassed"),
        (["test_masked_logits.py"], "not longer"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_in_the_interpreter(files, which):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", which]
    done = subprocess.run(
        [*command, *(str(HERE / file) for file in files)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


# ------------------------------------------------------------------------------------------- which backend is chosen


def lattice_on(device: str) -> SimpleNamespace:
    return SimpleNamespace(logits=SimpleNamespace(device=torch.device(device)))


@outside
def test_gpus_get_triton_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(backends, "HAS_TRITON", True)
    assert backends.choose_backend("auto", lattice_on("cuda")) == "triton"
    assert backends.choose_backend("auto", lattice_on("cpu")) == "native"
    assert backends.choose_backend("reference", lattice_on("cuda")) == "reference"


@outside
def test_the_reference_backend_is_used_with_one_warning_where_there_is_no_kernel(monkeypatch, recwarn):
    monkeypatch.setattr(backends, "HAS_TRITON", False)
    monkeypatch.setattr(backends, "_warned", set())
    for _ in range(3):
        assert backends.choose_backend("auto", lattice_on("cuda")) == "reference"
    (warning,) = recwarn
    assert "on cuda the lattice uses the slow reference backend" in str(warning.message)
    assert "triton is not installed (extra gpu)" in str(warning.message)


@outside
@needs_triton
def test_on_the_cpu_it_is_refused():
    given = (torch.zeros(4, 1, 3), torch.tensor([[1, 2]]), [4], [2])
    for function in (wildcard_ctc_loss, wildcard_align):
        with pytest.raises(ValueError, match='backend="triton" needs tensors on a GPU, logits are on cpu'):
            function(*given, backend="triton")
    with pytest.raises(ValueError, match="needs tensors on a GPU"):
        wildcard_posteriors(*given, wildcards=Wildcards(bypass=0.0), backend="triton")


@outside
@needs_triton
def test_importing_the_package_does_not_import_triton():
    code = "import sys, wildctc; sys.exit('triton' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------- the same numbers as the others


def step(batch: Batch, backend: str) -> list[torch.Tensor]:
    """Losses, gradients to logits and weights."""
    logits = batch.logits.detach().clone().requires_grad_()
    weights = [getattr(batch.wildcards, family) for family in FAMILIES]
    weights = [w.detach().clone().requires_grad_() if isinstance(w, torch.Tensor) else w for w in weights]
    wildcards = Wildcards(*weights, self_loop_at=batch.wildcards.self_loop_at)
    given = {**batch.with_logits(logits).arguments(), "wildcards": wildcards}
    loss = wildcard_ctc_loss(**given, reduction="none", backend=backend)
    inputs = [logits, *(w for w in weights if isinstance(w, torch.Tensor))]
    return [loss.detach(), *torch.autograd.grad(loss[loss.isfinite()].sum(), inputs)]


@interpreted
@pytest.mark.parametrize("outputs", sorted({GOLDEN[f"logits_{i}"].shape[1] for i in range(len(CASES))}))
def test_golden_cases(outputs):
    """All that have this many outputs in one batch, with a weight for each arc; those of k2 to 1e-5."""
    which = [i for i in range(len(CASES)) if GOLDEN[f"logits_{i}"].shape[1] == outputs]
    cases = [CASES[i] for i in which]
    size, frames, tokens = len(cases), max(c["T"] for c in cases), max(c["U"] for c in cases)
    logits = torch.full((frames, size, outputs), torch.nan)
    targets, words = torch.full((size, tokens), -1), torch.full((size, tokens), -1)
    bypass, self_loop, word_bypass = (torch.full((size, tokens + extra), -torch.inf) for extra in (0, 1, 0))
    for n, (i, case) in enumerate(zip(which, cases, strict=True)):
        logits[: case["T"], n] = torch.from_numpy(GOLDEN[f"logits_{i}"])
        targets[n, : case["U"]] = torch.tensor(case["targets"])
        weights = {name: -torch.inf if w is None else w for name, w in case["weights"].items()}
        bypass[n] = weights["byp"]
        edges = {0, case["U"], *(edge for span in case["words"] for edge in span)}
        places = sorted(edges) if case["criterion"] == "W" else slice(None)
        self_loop[n, places] = weights["self"]
        for word, (start, end) in enumerate(case["words"]):
            words[n, start:end] = word
            word_bypass[n, word] = weights["word"]
    weights = [w.requires_grad_() for w in (bypass, self_loop, word_bypass)]
    logits.requires_grad_()
    lengths = [c["T"] for c in cases], [c["U"] for c in cases]
    loss = wildcard_ctc_loss(
        logits, targets, *lengths, reduction="none", wildcards=Wildcards(*weights), words=words, backend="triton"
    )
    gradient, *posteriors = torch.autograd.grad(loss[loss.isfinite()].sum(), [logits, *weights])
    for n, (i, case) in enumerate(zip(which, cases, strict=True)):
        assert loss[n].item() == pytest.approx(case["loss"], rel=1e-5, abs=1e-5)
        if not np.isfinite(case["loss"]):
            continue
        found = [gradient[: case["T"], n], *(-p[n] for p in posteriors)]
        wanted = case["arc_posteriors"]
        np.testing.assert_allclose(found[0].numpy(), GOLDEN[f"grad_{i}"], rtol=0, atol=1e-5)
        if case["weights"]["byp"] is not None:
            np.testing.assert_allclose(found[1][: case["U"]].numpy(), wanted["byp"][1:], rtol=0, atol=1e-5)
        if case["weights"]["self"] is not None:
            np.testing.assert_allclose(found[2][: case["U"] + 1].numpy(), wanted["self"], rtol=0, atol=1e-5)
        if case["weights"]["word"] is not None:
            ends = np.array(wanted["word"])[[end for _, end in case["words"]]]
            np.testing.assert_allclose(found[3][: len(ends)].numpy(), ends, rtol=0, atol=1e-5)


@interpreted
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("per_arc", [True, False])
def test_every_kind_equals_the_reference(kind, per_arc):
    rng = np.random.default_rng(1)
    batch = draw_batch(rng, kind, size=7, frames=14, tokens=5, outputs=6, per_arc=per_arc)
    for found, wanted in zip(step(batch, "triton"), step(batch, "reference"), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
    best = [wildcard_align(**batch.arguments(), backend=b) for b in ("triton", "reference")]
    for found, wanted in zip(*best, strict=True):
        assert found.score == pytest.approx(wanted.score, rel=1e-12)
        assert found.frames.tolist() == wanted.frames.tolist()
        assert (found.tokens, found.wildcards) == (wanted.tokens, wanted.wildcards)


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float32_and_half_types(dtype):
    batch = draw_batch(np.random.default_rng(2), "TW", size=8, frames=20, tokens=7, outputs=40)
    batch = batch.with_logits(batch.logits.to(dtype).permute(2, 1, 0).contiguous().permute(2, 1, 0))  # any strides
    found = step(batch, "triton")
    wanted = step(batch.with_logits(batch.logits.double()), "reference")
    assert found[0].dtype == torch.float32
    assert found[1].dtype == dtype
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=2e-6, atol=1e-5)
    torch.testing.assert_close(found[1].double(), wanted[1], rtol={torch.float16: 1e-3}.get(dtype, 8e-3), atol=3e-6)
    for one, other in zip(found[2:], wanted[2:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=3e-6)


def spread(monkeypatch, lanes: dict[str, int] | None, tiling: dict[str, int] | None = None) -> None:
    """Give the kernels another shape than they would choose; no lanes: states go through memory."""
    monkeypatch.setattr(triton_backend, "lanes", lambda *_: {"num_warps": 1, **lanes} if lanes else None)
    for module in (triton_backend, triton_batch):
        if tiling:
            monkeypatch.setattr(module, "tiling", lambda *_: {"num_warps": 1, **tiling})


SHAPES = {
    "four positions in a lane": ({"GROUP": 8, "LANES": 8, "EACH": 4}, None),
    "two positions in a lane, one utterance in a program": ({"GROUP": 1, "LANES": 16, "EACH": 2}, None),
    "tiles of eight positions": (None, {"GROUP": 8, "TILE": 8}),
    "one utterance in a program": (None, {"GROUP": 1, "TILE": 32}),
}


@interpreted
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["CTC", "T", "TW, loops at words"])
def test_however_positions_are_spread_over_a_program(kind, shape, monkeypatch):
    """Words from one tile, lane or register to another; more frames than lie between two kept rows."""
    batch = draw_batch(np.random.default_rng(3), kind, size=5, frames=38, tokens=25, outputs=9)
    batch.input_lengths, batch.target_lengths = [38, 33, 32, 16, 0], [25, 19, 15, 7, 3]
    batch.words[:2, :20] = torch.tensor([0] * 3 + [1] * 14 + [2] * 3)
    spread(monkeypatch, *SHAPES[shape])
    found, wanted = step(batch, "triton"), step(batch, "reference")
    assert found[0][:3].isfinite().all()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    best = [wildcard_align(**batch.arguments(), backend=b) for b in ("triton", "reference")]
    assert [a.frames.tolist() for a in best[0]] == [a.frames.tolist() for a in best[1]]


@interpreted
def test_utterances_may_share_a_program_or_not(monkeypatch):
    """A few short utterances share a warp on a GPU, and a long one has a program of its own: the same bits."""
    batch = draw_batch(np.random.default_rng(3), "TW", size=5, frames=9, tokens=4, outputs=5)
    together = step(batch, "triton")
    for group in (1, 2):
        shape = {"GROUP": group, "TILE": 8}
        for lanes in ({"GROUP": group, "LANES": 8, "EACH": 1}, None):
            spread(monkeypatch, lanes, shape)
            for found, wanted in zip(step(batch, "triton"), together, strict=True):
                assert torch.equal(found, wanted)


@interpreted
def test_one_reduction_of_three_sums_is_what_gpus_run(monkeypatch):
    """The interpreter adds three sums: it is slow at reductions of its own. Here it must do as GPUs do."""
    from wildctc.lattice import triton_posteriors

    batch = draw_batch(np.random.default_rng(4), "T", size=2, frames=4, tokens=3, outputs=5)
    wanted = step(batch, "triton")
    monkeypatch.setattr(triton_posteriors, "INTERPRETED", False)
    for found, same in zip(step(batch, "triton"), wanted, strict=True):
        torch.testing.assert_close(found, same, rtol=1e-13, atol=1e-14)


@interpreted
def test_a_thousand_frames_lose_no_digits():
    """Each mantissa is rounded on its own, however small the likelihood: e^-2000 here."""
    batch = draw_batch(np.random.default_rng(5), "T", size=1, frames=1000, tokens=15, outputs=12, full_lengths=True)
    batch = batch.with_logits(batch.logits.float())
    found = step(batch, "triton")
    wanted = step(batch.with_logits(batch.logits.double()), "native")
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=3e-7, atol=0)
    torch.testing.assert_close(found[1].double(), wanted[1], rtol=0, atol=5e-6)


@interpreted
def test_thousands_of_tokens():
    tokens = 3000
    targets = torch.arange(tokens).remainder(5).add(1).unsqueeze(0)
    words = torch.arange(tokens).div(1000, rounding_mode="floor").unsqueeze(0)
    logits = torch.randn(6, 1, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    batch = Batch(logits, targets, [6], [tokens], 0, Wildcards(-1.0, -2.0, torch.full((1, 3), -1.0)), words)
    found, wanted = step(batch, "triton"), step(batch, "reference")
    assert found[0].isfinite().all()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@interpreted
@pytest.mark.parametrize("where", [0, 1])
def test_lengths_of_concatenated_targets_that_nobody_has_checked(where, monkeypatch):
    """As on a GPU: NaN for what cannot be, and nobody else is touched."""
    monkeypatch.setattr(triton_ops, "check_values", lambda lattice: None)
    logits = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(2))
    targets, lengths = torch.tensor([1, 2, 3, 4, 4, 2]), [3, 2, 1]
    good = wildcard_ctc_loss(logits, targets, [6, 6, 6], lengths, reduction="none", backend="triton")
    lengths[2] = [-3, 2**60][where]
    found = wildcard_ctc_loss(logits, targets, [6, 6, 99], lengths, reduction="none", backend="triton")
    assert found.isnan().tolist() == [False, False, True]
    assert torch.equal(found[:2], good[:2])
    for label in (-1, 0, 5, 2**62):
        targets[4] = label
        found = wildcard_ctc_loss(logits, targets, [6, 6, 6], [3, 2, 1], reduction="none", backend="triton")
        assert found.isnan().tolist() == [False, True, False]
        assert torch.equal(found[::2], good[::2])


# --------------------------------------------------------------------------------------------- as part of PyTorch


@interpreted
@pytest.mark.parametrize("kind", ["CTC", "TW"])
def test_opcheck(kind):
    batch = draw_batch(np.random.default_rng(7), kind, size=2, frames=4, tokens=2, outputs=4, full_lengths=True)
    batch.logits.requires_grad_()
    for family in KINDS[kind][0]:
        getattr(batch.wildcards, family).requires_grad_()
    torch.library.opcheck(triton_ops.loss_op, (*as_lattice(**batch.arguments()), True))


@interpreted
def test_a_compiled_step_has_no_graph_break():
    batch = draw_batch(np.random.default_rng(8), "T", size=2, frames=5, tokens=2, outputs=4, full_lengths=True)
    targets, lengths = batch.targets, (torch.tensor(batch.input_lengths), torch.tensor(batch.target_lengths))

    def loss(logits, targets, input_lengths, target_lengths, bypass, self_loop):
        wildcards = Wildcards(bypass, self_loop)
        given = (logits.tanh() * 3, targets, input_lengths, target_lengths, batch.blank)
        return wildcard_ctc_loss(*given, wildcards=wildcards, backend="triton")

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for weight in (-2.0, -1.5, -1.0):  # numbers that change are symbolic from the second on
        inputs = [x.detach().clone().requires_grad_() for x in (batch.logits, batch.wildcards.bypass)]
        results = [f(inputs[0], targets, *lengths, inputs[1], weight) for f in (compiled, loss)]
        gradients = [torch.autograd.grad(r, inputs) for r in results]
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(gradients[0], gradients[1])


@interpreted
def test_gradients_twice_and_in_deterministic_mode():
    batch = draw_batch(np.random.default_rng(9), "TW", size=3, frames=8, tokens=3, outputs=5, full_lengths=True)
    batch.logits.requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        loss = wildcard_ctc_loss(**batch.arguments(), reduction="sum", zero_infinity=True, backend="triton")
        once, again = (torch.autograd.grad(loss, batch.logits, retain_graph=True)[0] for _ in range(2))
        assert torch.equal(once, again)
        (scaled,) = torch.autograd.grad(-2.5 * loss, batch.logits)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(scaled, -2.5 * once)


@interpreted
def test_states_are_kept_only_for_a_gradient():
    batch = draw_batch(np.random.default_rng(9), "TW", size=3, frames=8, tokens=3, outputs=5, full_lengths=True)
    lattice: Lattice = as_lattice(**batch.arguments())
    kept, not_kept = (triton_backend.forward(lattice, keep) for keep in (True, False))
    assert torch.equal(kept.losses, not_kept.losses)
    assert {x.numel() for x in kept.states} == {3 * 3 * 3 * 4}  # rows, states, utterances, positions
    assert not any(x.numel() for x in not_kept.states)
