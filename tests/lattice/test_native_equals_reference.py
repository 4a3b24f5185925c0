"""The native backend gives what the reference gives in float64, whatever the shape, the dtype and the sharpness."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.batches import KINDS, Batch, draw_batch

from wildctc import Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
relaxed = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def weights_of(batch: Batch) -> list[torch.Tensor]:
    w = batch.wildcards
    return [x for x in (w.bypass, w.self_loop, w.word_bypass) if isinstance(x, torch.Tensor)]


def run(batch: Batch, backend: str, reduction: str = "none") -> list[torch.Tensor]:
    """Loss, gradient to the logits, gradients to the weights."""
    inputs = [x.detach().requires_grad_() for x in (batch.logits, *weights_of(batch))]
    given = iter(inputs[1:])
    w = batch.wildcards
    same = (next(given) if isinstance(x, torch.Tensor) else x for x in (w.bypass, w.self_loop, w.word_bypass))
    batch = Batch(**{**vars(batch), "logits": inputs[0], "wildcards": Wildcards(*same, self_loop_at=w.self_loop_at)})
    loss = wildcard_ctc_loss(**batch.arguments(), reduction=reduction, backend=backend)
    finite = loss[loss.isfinite()] if reduction == "none" else loss
    return [loss.detach(), *torch.autograd.grad(finite.sum(), inputs, materialize_grads=True)]


def tolerances(batch: Batch, spread: float) -> tuple[float, float]:
    """Of the loss, relative, and of a gradient: a float32 logit is rounded to 6e-8 of the spread, once a frame."""
    if batch.logits.dtype == torch.float64:
        return 1e-11, 1e-9
    rounding = 6e-8 * max(1.0, spread) * batch.logits.shape[0] ** 0.5
    ulp = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(batch.logits.dtype, 0.0)
    return 1e-6, 2e-5 + rounding + ulp


def check_equal(batch: Batch, spread: float) -> None:
    exact = batch.with_logits(batch.logits.double())
    found, wanted = run(batch, "native"), run(exact, "reference")
    loss_tolerance, tolerance = tolerances(batch, spread)
    assert found[0].dtype == (torch.float64 if batch.logits.dtype == torch.float64 else torch.float32)
    assert found[1].dtype == batch.logits.dtype
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=loss_tolerance, atol=10 * loss_tolerance)
    for one, other in zip(found[1:], wanted[1:], strict=True):
        largest = max(1.0, other.abs().max().item()) if other.numel() else 1.0
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance * largest)


@st.composite
def batches(draw, largest_frames=120, largest_tokens=60):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1.0, 5.0, 30.0, 1000.0]))
    frames = draw(st.integers(1, largest_frames))
    batch = draw_batch(
        rng,
        draw(st.sampled_from(list(KINDS))),
        size=draw(st.integers(1, 4)),
        frames=frames,
        tokens=draw(st.integers(0, min(frames, largest_tokens))),
        outputs=draw(st.sampled_from([2, 3, 5, 33, 70])),
        per_arc=draw(st.booleans()),
        sharpness=spread / 4,
        full_lengths=draw(st.booleans()),
    )
    if draw(st.booleans()):  # some outputs are impossible
        batch.logits[torch.from_numpy(rng.random(batch.logits.shape) < 0.05)] = -torch.inf
        batch.logits[:, :, 0] = batch.logits[:, :, 0].nan_to_num(neginf=0.0)
    batch = batch.with_logits(strided(batch.logits.to(draw(st.sampled_from(DTYPES))), draw(st.integers(0, 4))))
    return batch, spread


def strided(x: torch.Tensor, how: int) -> torch.Tensor:
    """The same (T, N, C) numbers in another layout."""
    if how == 0:
        return x
    if how == 1:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if how == 2:
        return x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    if how == 3:
        return torch.stack([x, x], 3).flatten(2)[:, :, ::2]
    return torch.cat([x, x])[: len(x)]


@relaxed
@given(batches())
def test_loss_and_gradients(drawn):
    check_equal(*drawn)


@relaxed
@given(batches(largest_frames=40, largest_tokens=20))
def test_posteriors_and_best_path(drawn):
    batch, spread = drawn
    exact = batch.with_logits(batch.logits.double())
    found = wildcard_posteriors(**batch.arguments(), backend="native")
    wanted = wildcard_posteriors(**exact.arguments(), backend="reference")
    _, tolerance = tolerances(batch, spread)
    for name in ("bypass", "self_loop", "word_bypass", "skipped"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert (one is None) == (other is None)
        if one is not None:
            largest = max(1.0, other.abs().max().item()) if other.numel() else 1.0
            torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance * largest)
    best = wildcard_align(**batch.arguments(), backend="native")
    for ours, theirs in zip(best, wildcard_align(**batch.arguments(), backend="reference"), strict=True):
        assert ours.score == pytest.approx(theirs.score, rel=1e-12, abs=1e-9, nan_ok=True)
        assert len(ours.frames) == len(theirs.frames)


@pytest.mark.parametrize("kind", ["CTC", "TW"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reductions(kind, reduction):
    batch = draw_batch(np.random.default_rng(3), kind, size=4, frames=50, tokens=12, outputs=20, full_lengths=True)
    for one, other in zip(run(batch, "native", reduction), run(batch, "reference", reduction), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


# --------------------------------------------------------- paths that sink far below the others, and then recover

LABELS = {  # what the frames say, as runs of (label, frames); 0 is blank
    "a token comes back after silence": [(1, 2), (0, 70), (1, 3), (0, 20)],
    "the transcript comes last": [(3, 90), (1, 2), (2, 2)],
    "the transcript comes first": [(1, 2), (2, 2), (3, 90)],
    "half of it is at either end": [(1, 1), (3, 100), (2, 1)],
    "nothing of it is heard": [(3, 100)],
    "only silence": [(0, 100)],
    "it is said three times over": [(1, 5), (0, 5), (2, 5), (0, 30)] * 3,
    "order is reversed": [(2, 20), (0, 30), (1, 20)],
    "a repeated token without blank": [(1, 60), (2, 10)],
}
TRANSCRIPTS = {"1 2": [1, 2], "1 1": [1, 1], "1 2 1 2": [1, 2, 1, 2], "long": [1, 2, 3] * 9}


@pytest.mark.parametrize("heard", LABELS)
@pytest.mark.parametrize("transcript", TRANSCRIPTS)
@pytest.mark.parametrize("kind", ["CTC", "T", "TW"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_paths_that_recover_late(heard, transcript, kind, dtype):
    frames = [label for label, count in LABELS[heard] for _ in range(count)]
    targets = TRANSCRIPTS[transcript]
    sharpness = torch.tensor([9.0, 30.0, 80.0, 200.0, 1000.0], dtype=torch.float64)
    size, tokens = len(sharpness), len(targets)
    logits = torch.zeros(len(frames), size, 5, dtype=torch.float64)
    logits[torch.arange(len(frames)), :, torch.tensor(frames)] = sharpness
    weights = {"CTC": {}, "T": {"bypass": -25.0, "self_loop": -5.0}}.get(
        kind, {"bypass": -25.0, "self_loop": -5.0, "word_bypass": -19.0}
    )
    words = (torch.arange(tokens) // 2).expand(size, tokens)
    batch = Batch(
        logits.to(dtype),
        torch.tensor([targets] * size),
        [len(frames)] * size,
        [tokens] * size,
        0,
        Wildcards(**weights),
        words,
    )
    check_equal(batch, 10.0)  # these logits are whole numbers: their differences are exact
