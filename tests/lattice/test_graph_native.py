"""Graphs on the native backend: what the reference gives in every type and sharpness, the same bits, bounded memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.graph_enumeration import draw_graph

from wildctc import TranscriptGraph, Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
relaxed = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def draw_long(rng: np.random.Generator, outputs: int, slots: int) -> TranscriptGraph:
    """Slots of which a third have alternatives, some of them empty."""
    found = []
    for i in range(slots):
        count = 1 if rng.random() < 0.6 else int(rng.integers(2, 5))
        least = 1 if i == 0 or count == 1 else 0
        found.append([rng.integers(1, outputs, int(rng.integers(least, 4))).tolist() for _ in range(count)])
    return TranscriptGraph.from_slots(found, [rng.normal(-0.5, 0.5, len(s)).tolist() for s in found])


def draw_weights(rng, graphs, size):
    """bypass, self_loop, word_bypass and arc_weights; most below 0."""
    widths = [max(len(g.arcs) for g in graphs), max(g.num_states for g in graphs), max(g.num_words for g in graphs)]
    weights = [torch.from_numpy(rng.normal(-2.0, 1.5, (size, width))) for width in (*widths, widths[0])]
    for weight in weights:
        weight[torch.from_numpy(rng.random(weight.shape) < 0.1)] = -torch.inf
    return weights


def run(logits, graphs, lengths, weights, backend, reduction="none"):
    """Loss, gradients to logits and weights, and posteriors."""
    inputs = [x.detach().clone().requires_grad_() for x in (logits, *weights)]
    loss = wildcard_ctc_loss(
        inputs[0], graphs, lengths, reduction=reduction, wildcards=Wildcards(*inputs[1:4]), arc_weights=inputs[4],
        backend=backend,
    )  # fmt: skip
    gradients = torch.autograd.grad(loss[loss.isfinite()].sum(), inputs, materialize_grads=True)
    found = wildcard_posteriors(
        logits, graphs, lengths, wildcards=Wildcards(*weights[:3]), arc_weights=weights[3], backend=backend
    )
    return [loss.detach(), *gradients, found.token, found.bypass, found.self_loop, found.word_bypass, found.skipped]


def check_equal(logits, graphs, lengths, weights, spread):
    found = run(logits, graphs, lengths, weights, "native")
    wanted = run(logits.double(), graphs, lengths, weights, "reference")
    rounding = 6e-8 * max(1.0, spread) * len(logits) ** 0.5
    ulp = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(logits.dtype, 0.0)
    single = logits.dtype != torch.float64
    tolerance = 2e-5 + rounding + ulp if single else 1e-9
    torch.testing.assert_close(
        found[0].double(), wanted[0], rtol=1e-6 if single else 1e-11, atol=1e-5 if single else 1e-10
    )
    for one, other in zip(found[1:], wanted[1:], strict=True):
        largest = max(1.0, other.abs().max().item()) if other.numel() else 1.0
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=tolerance * largest)


@relaxed
@given(st.data())
def test_drawn_graphs(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size, outputs = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([2, 3, 9, 40]))
    slots, frames = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 60))
    spread = data.draw(st.sampled_from([0.0, 1.0, 5.0, 30.0, 1000.0]))
    graphs = [draw_long(rng, outputs, slots) if rng.random() < 0.7 else draw_graph(rng, outputs) for _ in range(size)]
    logits = torch.from_numpy(rng.normal(0.0, 1.0, (frames, size, outputs)) * spread / 4)
    if data.draw(st.booleans()):  # some outputs are impossible
        logits[torch.from_numpy(rng.random(logits.shape) < 0.05)] = -torch.inf
        logits[:, :, 0] = logits[:, :, 0].nan_to_num(neginf=0.0)
    logits = logits.to(data.draw(st.sampled_from(DTYPES)))
    if data.draw(st.booleans()):
        logits = logits.transpose(0, 1).contiguous().transpose(0, 1)
    lengths = [int(rng.integers(frames // 2, frames + 1)) for _ in range(size)]
    check_equal(logits, graphs, lengths, draw_weights(rng, graphs, size), spread)


HEARD = {  # runs of (label, frames); 0 is blank
    "the second writing, late": [(3, 60), (1, 2), (4, 3), (2, 2)],
    "the first writing, early": [(1, 2), (2, 2), (0, 70)],
    "nothing of it": [(5, 80)],
    "half of it at either end": [(1, 1), (5, 80), (2, 1)],
}


@pytest.mark.parametrize("heard", HEARD)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_paths_that_recover_late(heard, dtype):
    frames = [label for label, count in HEARD[heard] for _ in range(count)]
    sharpness = torch.tensor([9.0, 30.0, 80.0, 200.0, 1000.0], dtype=torch.float64)
    logits = torch.zeros(len(frames), 5, 6, dtype=torch.float64)
    logits[torch.arange(len(frames)), :, torch.tensor(frames)] = sharpness
    graphs = [TranscriptGraph.from_slots([[[1]], [[3], [4, 4], []], [[2]], [[2, 1], []]])] * 5
    weights = [torch.full((5, n), w, dtype=torch.float64) for n, w in ((9, -25.0), (7, -5.0), (4, -19.0), (9, 0.0))]
    check_equal(logits.to(dtype), graphs, [len(frames)] * 5, weights, 10.0)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_gradcheck(reduction):
    rng = np.random.default_rng(5)
    graphs = [draw_long(rng, 5, 4), TranscriptGraph.from_labels([1, 1, 2], [0, 0, 1])]
    logits = torch.from_numpy(rng.normal(0, 1, (9, 2, 5))).requires_grad_()
    weights = [w.clamp(min=-9).requires_grad_() for w in draw_weights(rng, graphs, 2)]

    def loss(logits, bypass, loops, words, arcs):
        return wildcard_ctc_loss(
            logits, graphs, [9, 8], reduction=reduction, wildcards=Wildcards(bypass, loops, words), arc_weights=arcs
        )

    assert torch.autograd.gradcheck(loss, (logits, *weights))


def test_a_second_backward_pass_and_a_scaled_loss():
    rng = np.random.default_rng(5)
    graphs, logits = [draw_long(rng, 5, 4)], torch.randn(9, 1, 5).requires_grad_()
    loss = wildcard_ctc_loss(logits, graphs, [9], wildcards=Wildcards(bypass=-1.0))
    first = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(3 * loss, logits)[0], 3 * first)
    twice = torch.autograd.grad(wildcard_ctc_loss(logits, graphs, [9]), logits, create_graph=True)[0].sum()
    with pytest.raises(NotImplementedError, match="differentiated once"):
        twice.backward()


def big_batch():
    rng = np.random.default_rng(3)
    graphs = [draw_long(rng, 40, 40) for _ in range(6)] + [
        TranscriptGraph.from_labels([1, 2, 3] * 20, [0, 1, 2] * 0 or None)
    ]
    logits = torch.from_numpy(rng.normal(0, 2, (300, 7, 40)))
    return logits, graphs, [300 - 7 * n for n in range(7)], draw_weights(rng, graphs, 7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bit_identical_across_runs_and_thread_counts(dtype):
    logits, graphs, lengths, weights = big_batch()
    wanted = run(logits.to(dtype), graphs, lengths, weights, "native")
    for threads in (2, 3, 1):
        torch.set_num_threads(threads)
        for found, first in zip(run(logits.to(dtype), graphs, lengths, weights, "native"), wanted, strict=True):
            assert torch.equal(found, first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chains_among_graphs_have_the_bits_of_a_call_without_graphs(dtype):
    logits, graphs, lengths, _ = big_batch()
    wildcards = Wildcards(bypass=-3.0, self_loop=-2.0, word_bypass=-5.0)
    chain = TranscriptGraph.from_labels([1, 2, 2, 5] * 9, [0, 0, 1, 1] + [2] * 32)
    inputs = logits.to(dtype).requires_grad_()
    mixed = wildcard_ctc_loss(inputs, [*graphs[:6], chain], lengths, reduction="none", wildcards=wildcards)
    gradient = torch.autograd.grad(mixed[6], inputs)[0][:, 6]
    alone = logits[:, 6].to(dtype).requires_grad_()
    words = torch.tensor(chain.word_of_each_arc())
    today = wildcard_ctc_loss(
        alone, torch.tensor([1, 2, 2, 5] * 9), lengths[6], 36, reduction="none", wildcards=wildcards, words=words
    )
    assert torch.equal(mixed[6], today)
    assert torch.equal(gradient, torch.autograd.grad(today, alone)[0])


def test_best_paths_are_those_of_the_reference_ties_included():
    rng = np.random.default_rng(9)
    for seed in range(60):
        graphs = [draw_graph(rng, 4) for _ in range(3)]
        logits = torch.from_numpy(
            rng.normal(0, 2, (7, 3, 4)) if seed % 2 else rng.integers(0, 3, (7, 3, 4)).astype(float)
        )
        wildcards = Wildcards(bypass=-2.0, self_loop=-1.0, word_bypass=-2.0) if seed % 3 else None
        ours = wildcard_align(logits, graphs, [7, 5, 3], wildcards=wildcards, backend="native")
        theirs = wildcard_align(logits, graphs, [7, 5, 3], wildcards=wildcards, backend="reference")
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-9)
            assert (one.tokens, one.wildcards, one.alternatives) == (other.tokens, other.wildcards, other.alternatives)
            assert torch.equal(one.frames, other.frames)


def test_an_alignment_says_which_alternative_was_taken():
    heard = [1, 1, 0, 4, 2, 0]
    logits = torch.nn.functional.one_hot(torch.tensor(heard), 5) * 9.0
    graph = TranscriptGraph.from_slots([[[1]], [[3], [4, 2]], [[3], []]])
    for backend in ("native", "reference"):
        found = wildcard_align(logits, graph, [6], backend=backend, symbols="-abcd")[0]
        assert found.alternatives == [0, 1, 1]
        assert str(found).split(maxsplit=1)[1] == "a 0-2  d 3-4  b 4-5"
    bypassed = wildcard_align(
        logits, TranscriptGraph.from_slots([[[1]], [[3], [3, 3]]]), [6], wildcards=Wildcards(word_bypass=-1.0)
    )
    assert bypassed[0].alternatives == [0, None]
    assert bypassed[0].wildcards[0].kind == "word_bypass"


def test_an_utterance_without_a_likelihood_is_nan_alone():
    graphs = [TranscriptGraph.from_slots([[[1], [2, 2]], [[3], []]])] * 2
    logits = torch.randn(6, 2, 4)
    logits[2, 1, 0] = torch.nan
    weight = torch.full((2, graphs[0].num_states), -2.0, requires_grad=True)
    loss = wildcard_ctc_loss(
        logits.requires_grad_(), graphs, [6, 6], reduction="none", wildcards=Wildcards(self_loop=weight)
    )
    assert loss.isnan().tolist() == [False, True]
    loss.sum().backward()
    assert weight.grad.isnan().any(1).tolist() == [False, True]
    assert wildcard_align(logits.detach(), graphs, [6, 6])[1].score != 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"arc_weights": torch.full((1, 3), 1e9)},
            r"utterance 0: the weight of arc 0 \(0 → 2, label 1\)|must be a number",
        ),
        ({"arc_weights": torch.full((1, 3), torch.nan)}, "utterance 0: arc_weights weight 0"),
        ({"wildcards": Wildcards(bypass=1e9)}, "the weight of the bypass beside arc 0"),
        ({"wildcards": Wildcards(bypass=torch.zeros(1, 2))}, "bypass must be a number or a tensor"),
        ({"backend": "triton"}, "computes no graphs"),
        ({"backend": "fast"}, "backend must be"),
        ({"input_lengths": [4]}, "input_length"),
        ({"target_lengths": [2]}, "target_lengths must be None"),
    ],
)
def test_bad_arguments_are_named(change, message):
    graph = TranscriptGraph.from_slots([[[1], [2, 3]]])
    arguments = {"logits": torch.zeros(3, 1, 4), "targets": [graph], "input_lengths": [3], **change}
    with pytest.raises(ValueError, match=message):
        wildcard_ctc_loss(**arguments)


def test_a_graph_that_was_made_without_checks_is_refused():
    from wildctc.lattice.token_arcs import TokenArc, WordArc

    ends = (-float("inf"), -float("inf"), 0.0)
    for arcs, words in (
        ((TokenArc(0, 7, 1), TokenArc(0, 2, 1)), ()),
        ((TokenArc(1, 2, 1), TokenArc(0, 1, 1)), ()),
        ((TokenArc(1, 2, 1), TokenArc(0, 2, 1)), ()),
        ((TokenArc(0, 1, 1), TokenArc(1, 2, 1)), (WordArc(0, 2, 5),)),
        ((TokenArc(0, 2, 1), TokenArc(0, 2, 2)), (WordArc(1, 2, 0),)),
    ):
        graph = TranscriptGraph(arcs, ends, words, 1, 1)
        with pytest.raises(ValueError, match="utterance 0: "):
            wildcard_ctc_loss(
                torch.zeros(3, 1, 4), [graph], [3], wildcards=Wildcards(word_bypass=-1.0), backend="native"
            )


GROWTH = """
import resource, sys, torch
from wildctc import TranscriptGraph, Wildcards, wildcard_ctc_loss
torch.set_num_threads(1)
def step(frames, slots, dtype):
    graph = TranscriptGraph.from_slots([[[1, 2, 3], [4, 5]] if i % 5 == 0 else [[1, 2]] for i in range(slots)])
    logits = torch.randn(8, dtype=dtype).expand(frames, 1, 8)
    bypass = torch.full((1, len(graph.arcs)), -2.0, requires_grad=True)
    wildcard_ctc_loss(logits, [graph], [frames], wildcards=Wildcards(bypass, -1.0, -3.0)).backward()
    return len(graph.arcs)
dtype = getattr(torch, sys.argv[1])
step(10, 2, dtype)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
arcs = step(6000, 100, dtype)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (6000 * (arcs + 1)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_memory_is_at_most_24_bytes_for_each_frame_and_arc(dtype):
    command = [sys.executable, "-c", GROWTH, dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) <= 24
