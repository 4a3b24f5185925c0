"""The lattice equals the list of all its paths, arc by arc and frame by frame."""

import functools
import math

import numpy as np
import pytest
import torch
from support.batches import KINDS, Batch, draw_batch
from support.enumeration import Answer, enumerate_paths

from wildctc import infeasible, wildcard_align, wildcard_ctc_loss, wildcard_posteriors

SIZE = 24
SHAPES = [(0, 2, 2), (3, 2, 2), (4, 3, 3), (5, 3, 3), (4, 3, 4), (5, 1, 4), (4, 0, 3)]  # T, U, V
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
CASES = [(kind, shape, per_arc) for kind in KINDS for shape in range(len(SHAPES)) for per_arc in (True, False)]


@functools.cache
def answers(kind: str, shape: int, per_arc: bool) -> tuple[Batch, list[Answer]]:
    """A batch with float32-representable logits, and what enumeration says about each of its utterances."""
    frames, tokens, outputs = SHAPES[shape]
    rng = np.random.default_rng([list(KINDS).index(kind), shape, per_arc])
    batch = draw_batch(rng, kind, size=SIZE, frames=frames, tokens=tokens, outputs=outputs, per_arc=per_arc)
    batch = batch.with_logits(batch.logits.float().double())
    return batch, [
        enumerate_paths(
            batch.logits[: batch.input_lengths[n], n].numpy(),
            batch.labels_of(n),
            batch.words_of(n),
            batch.weights_of(n),
            batch.wildcards.self_loop_at == "word",
            batch.blank,
        )
        for n in range(SIZE)
    ]


def close(value: np.ndarray, wanted: np.ndarray | float, tolerance: float) -> None:
    np.testing.assert_allclose(value, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("kind", "shape", "per_arc"), CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_loss_and_gradient(kind, shape, per_arc, dtype, backend):
    batch, wanted = answers(kind, shape, per_arc)
    logits = batch.logits.to(dtype, copy=True).requires_grad_()
    loss = wildcard_ctc_loss(**batch.with_logits(logits).arguments(), reduction="none", backend=backend)
    assert loss.dtype == dtype
    found, losses = loss.detach().double().numpy(), np.array([-a.log_likelihood for a in wanted])
    limit = np.where(np.isfinite(losses), np.abs(losses), 1).clip(1) if dtype == torch.float32 else 1
    close(found / limit, losses / limit, TOLERANCE[dtype])
    loss[~loss.isinf()].sum().backward()
    for n, answer in enumerate(wanted):
        length = batch.input_lengths[n]
        close(logits.grad[:length, n].double().numpy(), answer.gradient, TOLERANCE[dtype])
        assert not logits.grad[length:, n].any()


@pytest.mark.parametrize(("kind", "shape", "per_arc"), CASES)
def test_arc_posteriors(kind, shape, per_arc, backend):
    batch, wanted = answers(kind, shape, per_arc)
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    for n, answer in enumerate(wanted):
        close(post.log_likelihood[n].numpy(), answer.log_likelihood, 1e-10)
        for family in ("bypass", "self_loop", "word_bypass"):
            found = getattr(post, family)
            if family not in answer.counts:
                assert found is None
                continue
            counts = answer.counts[family]
            close(found[n, : len(counts)].numpy(), counts, 1e-10)
            assert not found[n, len(counts) :].any()


@pytest.mark.parametrize(("kind", "shape", "per_arc"), CASES)
def test_best_path_score_and_fewest_frames(kind, shape, per_arc, backend):
    batch, wanted = answers(kind, shape, per_arc)
    alignments = wildcard_align(**batch.arguments(), backend=backend)
    close(np.array([a.score for a in alignments]), np.array([a.best for a in wanted]), 1e-10)
    arguments = {k: v for k, v in batch.arguments().items() if k not in ("logits", "blank")}
    found = {item.index: item.needed for item in infeasible(**arguments)}
    short = [n for n, a in enumerate(wanted) if batch.input_lengths[n] < a.fewest_frames]
    assert found == {n: wanted[n].fewest_frames for n in short}
    # here every label has a probability, so that too few frames are the only reason for no path
    assert [n for n, a in enumerate(wanted) if a.log_likelihood == -math.inf] == short
