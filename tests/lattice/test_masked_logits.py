"""Outputs that are switched off, with -1e9, the least number of the type, -inf or anything between, are never heard."""

import functools
import math

import numpy as np
import pytest
import torch
from support.batches import FAMILIES, Batch, draw_batch
from support.enumeration import Answer, enumerate_paths

from wildctc import Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors

MASKS = {
    torch.float32: (-1e9, -1e12, -1e20, -1e38, torch.finfo(torch.float32).min, -math.inf),
    torch.float64: (-1e9, -1e12, -1e13, -1e38, -1e100, -1e300, torch.finfo(torch.float64).min, -math.inf),
}
CASES = [(dtype, mask) for dtype, masks in MASKS.items() for mask in masks]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
BLANKS = {"first": 0, "middle": 2, "last": 3}
OUTPUTS = 4


def in_a_frame(rng, logits: np.ndarray, blank: int, off: np.ndarray) -> None:
    """Blank is the only output of a frame or two."""
    frames = rng.choice(len(logits), rng.integers(1, 3), replace=False)
    logits[np.ix_(frames, np.delete(np.arange(OUTPUTS), blank))] = off[0]


def by_different_numbers(rng, logits: np.ndarray, blank: int, off: np.ndarray) -> None:
    """The same, but the outputs that are switched off differ among themselves."""
    frames = rng.choice(len(logits), rng.integers(1, 3), replace=False)
    logits[np.ix_(frames, np.delete(np.arange(OUTPUTS), blank))] = off


def without_blank(rng, logits: np.ndarray, blank: int, off: np.ndarray) -> None:
    """Blank is switched off in a frame."""
    logits[rng.integers(len(logits)), blank] = off[0]


def anywhere(rng, logits: np.ndarray, blank: int, off: np.ndarray) -> None:
    """Any outputs of any frame, but for one of each."""
    masked = rng.random(logits.shape) < 0.4
    masked[np.arange(len(logits)), rng.integers(OUTPUTS, size=len(logits))] = False
    logits[masked] = rng.choice(off, masked.sum())


PATTERNS = (in_a_frame, by_different_numbers, without_blank, anywhere)


def masked_batch(frames: int, tokens: int, blank: int, mask: float, dtype: torch.dtype) -> Batch:
    """Four utterances for each of the patterns."""
    rng = np.random.default_rng(frames)
    batch = draw_batch(
        rng, "TW", size=4 * len(PATTERNS), frames=frames, tokens=tokens, outputs=OUTPUTS, full_lengths=True
    )
    swap = {blank: batch.blank, batch.blank: blank}  # blank to its place
    batch.targets.apply_(lambda v: swap.get(v, v))
    batch.blank = blank
    batch = batch.with_logits(batch.logits.to(torch.float32).double())
    off = mask * np.array([1.0, 0.7, 0.4]) if math.isfinite(mask) else np.full(3, mask)
    for n in range(len(batch.targets)):
        PATTERNS[n % len(PATTERNS)](rng, batch.logits[:, n].numpy(), blank, off)
    return batch.with_logits(batch.logits.to(dtype))


def enumerated(batch: Batch, n: int) -> Answer:
    logits = batch.logits[:, n].double().numpy()
    return enumerate_paths(logits, batch.labels_of(n), batch.words_of(n), batch.weights_of(n), False, blank=batch.blank)


@pytest.mark.parametrize("place", BLANKS)
@pytest.mark.parametrize(("dtype", "mask"), CASES)
def test_they_equal_the_list_of_all_paths(dtype, mask, place, backend):
    """Utterances that no path explains without what is switched off have a loss of that size, or none."""
    batch = masked_batch(5, 2, BLANKS[place], mask, dtype)
    wanted = [enumerated(batch, n) for n in range(len(batch.targets))]
    logits = batch.logits.clone().requires_grad_()
    loss = wildcard_ctc_loss(**batch.with_logits(logits).arguments(), reduction="none", backend=backend)
    loss[loss.isfinite()].sum().backward()
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    possible = [n for n, answer in enumerate(wanted) if answer.log_likelihood > -1e6]
    assert len(possible) >= 8
    for n, answer in enumerate(wanted):
        if n not in possible:
            assert loss[n] > 1e8
            continue
        close = {"rtol": 0, "atol": TOLERANCE[dtype]}
        limit = max(1.0, abs(answer.log_likelihood))
        np.testing.assert_allclose(loss[n].item() / limit, -answer.log_likelihood / limit, **close)
        np.testing.assert_allclose(-post.log_likelihood[n].item() / limit, -answer.log_likelihood / limit, **close)
        np.testing.assert_allclose(logits.grad[:, n].double().numpy(), answer.gradient, **close)
        for family in FAMILIES:
            counts = answer.counts[family]
            np.testing.assert_allclose(getattr(post, family)[n, : len(counts)].double().numpy(), counts, **close)


def results(batch: Batch, backend: str) -> list[torch.Tensor]:
    """Losses, gradients to logits and posteriors."""
    logits = batch.logits.clone().requires_grad_()
    loss = wildcard_ctc_loss(**batch.with_logits(logits).arguments(), reduction="none", backend=backend)
    loss[loss.isfinite()].sum().backward()
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    return [loss.detach(), logits.grad, *(getattr(post, family) for family in FAMILIES)]


def best_scores(batch: Batch, backend: str) -> list[float]:
    return [alignment.score for alignment in wildcard_align(**batch.arguments(), backend=backend)]


@functools.cache
def by_the_reference(blank: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Of 30 frames and 17 tokens, more than a vector holds: what is switched off is −inf, and all is float64."""
    batch = masked_batch(30, 17, blank, -math.inf, dtype)
    return results(batch.with_logits(batch.logits.double()), "reference")


@pytest.mark.parametrize("place", BLANKS)
@pytest.mark.parametrize(("dtype", "mask"), [(dtype, masks[i]) for dtype, masks in MASKS.items() for i in (0, 2, -2)])
def test_in_longer_utterances_they_work_like_minus_infinity(dtype, mask, place, backend):
    exact = by_the_reference(BLANKS[place], dtype)
    feasible = exact[0].isfinite()
    assert feasible.sum() >= 8
    batch = masked_batch(30, 17, BLANKS[place], mask, dtype)
    for found, wanted in zip(results(batch, backend), exact, strict=True):
        rows = (slice(None), feasible) if found.dim() == 3 else feasible
        torch.testing.assert_close(found.double()[rows], wanted[rows], rtol=1e-6, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize(("dtype", "mask"), [case for case in CASES if case[1] > -math.inf])
def test_a_frame_where_all_outputs_have_the_same_number_says_nothing(dtype, mask, backend):
    batch = masked_batch(5, 2, 1, -1.0, dtype)
    batch.logits[2] = batch.logits[3] = 0.0
    wanted, scores = results(batch, backend), best_scores(batch, backend)
    for number in (mask, -mask):
        batch.logits[2] = number
        for found, right in zip(results(batch, backend), wanted, strict=True):
            torch.testing.assert_close(found, right, rtol=0, atol=TOLERANCE[dtype])
        assert best_scores(batch, backend) == pytest.approx(scores, abs=1e-12)


@pytest.mark.parametrize("offset", [-(2.0**14), 2.0**13])
def test_an_offset_of_all_outputs_costs_no_digits(offset, backend):
    """Steps of 2^-9, so that float32 can hold the sum."""
    batch = masked_batch(5, 2, 1, -8.0, torch.float32)
    batch = batch.with_logits((batch.logits * 512).round() / 512)
    wanted = results(batch, backend)
    found = results(batch.with_logits(batch.logits + offset), backend)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [1.0, 1e6, 1e14, 1e30])
def test_where_blank_is_the_only_output_it_is_certain(dtype, size, backend):
    logits = torch.tensor([size, -size, 0.0], dtype=dtype).reshape(3, 1, 1).requires_grad_()
    arguments = logits, torch.zeros(1, 0, dtype=torch.int64), [3], [0]
    for wildcards in (None, Wildcards(self_loop=1.0)):
        loss = wildcard_ctc_loss(*arguments, reduction="sum", wildcards=wildcards, backend=backend)
        loss.backward()
        assert loss.item() == 0
        assert not logits.grad.any()
    post = wildcard_posteriors(*arguments, wildcards=Wildcards(self_loop=1.0), backend=backend)
    assert post.log_likelihood.item() == 0
    assert not post.self_loop.any()
