"""★ as a share of the non-blank probability, and self-loops at both ends only: `w-ctc` and `stc`."""

import functools
import math

import numpy as np
import pytest
import torch
from support.batches import Batch, draw_batch
from support.enumeration import Answer, enumerate_paths

from wildctc import (
    Criterion,
    TranscriptGraph,
    WildcardCTCLoss,
    Wildcards,
    infeasible,
    wildcard_align,
    wildcard_ctc_loss,
    wildcard_posteriors,
)

SHAPES = [(3, 2, 2), (4, 3, 3), (5, 2, 4), (4, 0, 3)]  # T, U, V
SHARES = [0.05, 1 / 3, 0.6, 1.0]  # the smallest needs many added outputs; 1/3 of three outputs needs none with weight
KINDS = ("T", "TW", "self-loop only")
CASES = [(KINDS[(i + j) % 3], i, share) for i in range(len(SHAPES)) for j, share in enumerate(SHARES)]
SIZE = 8


def at_ends(weight: np.ndarray) -> np.ndarray:
    return np.where([k in (0, len(weight) - 1) for k in range(len(weight))], weight, -math.inf)


@functools.cache
def answers(kind: str, shape: int, share: float, place: str) -> tuple[Batch, list[Answer]]:
    frames, tokens, outputs = SHAPES[shape]
    rng = np.random.default_rng([shape, round(100 * share), len(kind)])
    batch = draw_batch(rng, kind, size=SIZE, frames=frames, tokens=tokens, outputs=outputs)
    w = batch.wildcards
    batch.wildcards = Wildcards(w.bypass, w.self_loop, w.word_bypass, place, share)
    found = []
    for n in range(SIZE):
        weights = batch.weights_of(n)
        if place == "end":
            weights["self_loop"] = at_ends(weights["self_loop"])
        logits = batch.logits[: batch.input_lengths[n], n].numpy()
        words = batch.words_of(n)
        found.append(enumerate_paths(logits, batch.labels_of(n), words, weights, False, batch.blank, share))
    return batch, found


@pytest.mark.parametrize(("kind", "shape", "share"), CASES)
@pytest.mark.parametrize("place", ["token", "end"])
def test_loss_gradient_posteriors_and_best_path_are_those_of_all_paths(kind, shape, share, place, backend):
    batch, wanted = answers(kind, shape, share, place)
    logits = batch.logits.clone().requires_grad_()
    given = batch.with_logits(logits).arguments()
    losses = wildcard_ctc_loss(**given, reduction="none", backend=backend)
    torch.testing.assert_close(losses.detach(), torch.tensor([-a.log_likelihood for a in wanted], dtype=torch.double))
    losses[~losses.isinf()].sum().backward()
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    paths = wildcard_align(**batch.arguments(), backend=backend)
    for n, answer in enumerate(wanted):
        length = batch.input_lengths[n]
        np.testing.assert_allclose(logits.grad[:length, n].numpy(), answer.gradient, atol=1e-10)
        assert not logits.grad[length:, n].any()
        np.testing.assert_allclose(float(post.log_likelihood[n]), answer.log_likelihood, atol=1e-10)
        np.testing.assert_allclose(paths[n].score, answer.best, atol=1e-10)
        for family, counts in answer.counts.items():
            np.testing.assert_allclose(getattr(post, family)[n, : len(counts)].numpy(), counts, atol=1e-10)


def test_the_share_of_the_mean_changes_nothing(backend):
    batch, _ = answers("TW", 2, 0.6, "token")
    mean = Wildcards(batch.wildcards.bypass, batch.wildcards.self_loop, batch.wildcards.word_bypass)
    outputs = batch.logits.shape[2]
    share = Wildcards(mean.bypass, mean.self_loop, mean.word_bypass, star=1 / (outputs - 1))
    for reduction in ("none", "sum", "mean"):
        a, b = (
            wildcard_ctc_loss(
                **{**batch.arguments(), "wildcards": w}, reduction=reduction, zero_infinity=True, backend=backend
            )
            for w in (mean, share)
        )
        torch.testing.assert_close(a, b)


def ctc_likelihood(log_p: torch.Tensor, labels: list[int]) -> float:
    if len(log_p) < 1:
        return 0.0
    loss = torch.nn.functional.ctc_loss(
        log_p.unsqueeze(1), torch.tensor([labels]), [len(log_p)], [len(labels)], reduction="sum"
    )
    return math.exp(-float(loss))


@pytest.mark.parametrize("labels", [[1], [2, 1], [1, 1], [3, 2, 3]])
def test_w_ctc_is_the_sum_over_all_places_of_the_transcript(labels):
    """By PyTorch's CTC: the transcript in frames a … b − 1, with its first token in a and its last in b − 1."""
    log_p = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(len(labels))).log_softmax(1)
    blank, total = log_p[:, 0].exp().tolist(), 0.0
    for a in range(7):
        for b in range(a + 1, 8):
            total += ctc_likelihood(log_p[a:b], labels) - blank[a] * ctc_likelihood(log_p[a + 1 : b], labels)
            total -= blank[b - 1] * ctc_likelihood(log_p[a : b - 1], labels)
            if b - a > 1:
                total += blank[a] * blank[b - 1] * ctc_likelihood(log_p[a + 1 : b - 1], labels)
    wildcards = Criterion("w-ctc").wildcards
    loss = wildcard_ctc_loss(log_p, torch.tensor(labels), [7], [len(labels)], reduction="sum", wildcards=wildcards)
    assert math.exp(-float(loss)) == pytest.approx(total, rel=1e-10)


def test_w_ctc_costs_nothing_where_nothing_was_written():
    logits = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    nothing, wildcards = torch.tensor([], dtype=torch.int64), Criterion("w-ctc").wildcards
    loss = wildcard_ctc_loss(logits, nothing, [9], [0], wildcards=wildcards)
    assert float(loss) == pytest.approx(0.0, abs=1e-5)


def stc_by_hand(log_p: torch.Tensor, labels: list[int], share: float) -> float:
    """Any non-blank outputs between two tokens and at the ends; each of their frames costs `share`."""
    B, N, S = ([0.0] * (len(labels) + 1) for _ in range(3))
    B[0] = 1.0
    for p in log_p.exp().tolist():
        b, n, s = list(B), list(N), list(S)
        for k in range(len(labels) + 1):
            B[k] = p[0] * (b[k] + n[k] + s[k])
            S[k] = share * (1 - p[0]) * (b[k] + n[k] + s[k])
            if k:
                same = k > 1 and labels[k - 1] == labels[k - 2]
                N[k] = p[labels[k - 1]] * (n[k] + b[k - 1] + s[k - 1] + (0 if same else n[k - 1]))
    return B[-1] + N[-1] + S[-1]


@pytest.mark.parametrize("labels", [[], [1], [2, 1], [1, 1], [3, 2, 3]])
@pytest.mark.parametrize("epoch", [1, 6, 40])
def test_stc_is_the_recursion_by_hand(labels, epoch):
    log_p = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(epoch)).log_softmax(1)
    criterion = Criterion("stc")
    for _ in range(epoch - 1):
        criterion.step()
    share = {1: 0.1, 6: 0.3, 40: 0.5 - 0.4 * 0.5**7.8}[epoch]
    assert criterion.wildcards.star == pytest.approx(share)
    target = torch.tensor(labels, dtype=torch.int64)
    loss = wildcard_ctc_loss(log_p, target, [6], [len(labels)], reduction="sum", wildcards=criterion.wildcards)
    assert math.exp(-float(loss)) == pytest.approx(stc_by_hand(log_p, labels, share), rel=1e-10)


def test_a_graph_of_one_writing_has_the_same_loss_and_several_add_up(backend):
    logits = torch.randn(6, 1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    one = TranscriptGraph.from_labels([1, 2], [0, 1])
    for name in ("w-ctc", "stc"):
        wildcards = Criterion(name).wildcards
        plain = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [6], [2], wildcards=wildcards, backend=backend)
        torch.testing.assert_close(wildcard_ctc_loss(logits, [one], [6], wildcards=wildcards, backend=backend), plain)
        either = TranscriptGraph.from_sequences([[1, 2], [1, 3]])
        both = wildcard_ctc_loss(logits, [either], [6], wildcards=wildcards, backend=backend, reduction="sum")
        each = [
            wildcard_ctc_loss(
                logits, torch.tensor([[1, v]]), [6], [2], wildcards=wildcards, backend=backend, reduction="sum"
            )
            for v in (2, 3)
        ]
        if name == "w-ctc":  # no ★ between the words, so no path is shared
            torch.testing.assert_close((-both).exp(), sum((-x).exp() for x in each))
        post = wildcard_posteriors(logits, [either], [6], wildcards=wildcards, backend=backend)
        torch.testing.assert_close(post.log_likelihood, -both.reshape(1))
        path = wildcard_align(logits, [either], [6], wildcards=wildcards, backend=backend)[0]
        assert path.score < -float(both)


def test_frames_after_the_end_and_impossible_outputs_do_no_harm():
    logits = torch.randn(6, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    wildcards, targets = Criterion("stc").wildcards, torch.tensor([[1, 2]] * 3)
    wanted = wildcard_ctc_loss(logits, targets, [6, 4, 4], [2, 2, 2], wildcards=wildcards, reduction="none")
    logits[4:, 1] = math.nan
    logits[3, 2, 1:] = -math.inf  # a frame where only the blank is possible
    logits.requires_grad_()
    found = wildcard_ctc_loss(logits, targets, [6, 4, 4], [2, 2, 2], wildcards=wildcards, reduction="none")
    torch.testing.assert_close(found[:2], wanted[:2])
    found.sum().backward()
    assert found.isfinite().all()
    assert logits.grad.isfinite().all()
    assert not logits.grad[4:, 1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_utterances_keep_their_digits(dtype):
    logits = (3 * torch.randn(800, 2, 40, generator=torch.Generator().manual_seed(1))).to(dtype)
    targets = torch.randint(1, 40, (2, 90), generator=torch.Generator().manual_seed(2))
    loss = WildcardCTCLoss(wildcards="w-ctc", reduction="sum")
    found, exact = loss(logits, targets, [800, 700], [90, 80]), loss(logits.double(), targets, [800, 700], [90, 80])
    assert float(found) == pytest.approx(float(exact), rel=1e-5)


def test_too_few_frames_are_told_as_without_a_share():
    targets, wildcards = torch.tensor([[1, 1, 2]]), Criterion("w-ctc").wildcards
    assert [x.needed for x in infeasible(targets, [3], [3], wildcards=wildcards)] == [4]
    logits = torch.zeros(3, 1, 4)
    assert wildcard_ctc_loss(logits, targets, [3], [3], wildcards=wildcards).isinf()
    assert wildcard_ctc_loss(logits, targets, [3], [3], wildcards=wildcards, zero_infinity=True) == 0


@pytest.mark.parametrize("star", [0, 1.5, math.nan, "much"])
def test_a_share_that_makes_no_sense_is_refused(star):
    with pytest.raises(ValueError, match=r"star is .*, must be greater than 0 and at most 1"):
        Wildcards(star=star)
