"""Prefix beam search against the sum over every alignment, and greedy against the definition."""

import itertools
import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.recognizer.decoding import beam_search, best_hypothesis, greedy


class Letters:
    def decode(self, ids):
        return "".join(chr(ord("a") + i) for i in ids)


def random_logits(seed, frames, labels, scale=1.0):
    return scale * torch.randn(frames, labels, generator=torch.Generator().manual_seed(seed))


def sharp_logits(seed, frames, labels):
    """Runs of one label that stand 12 nats above the rest, as a trained model gives."""
    generator = torch.Generator().manual_seed(seed)
    path = torch.randint(labels, (frames,), generator=generator).repeat_interleave(2)[:frames]
    return torch.randn(frames, labels, generator=generator) + 12 * torch.nn.functional.one_hot(path, labels)


def collapsed(path, blank):
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def prefix_sums(logits, blank):
    """log-probability of every label sequence: the sum over all C^T paths, in double precision."""
    log_probs = logits.double().log_softmax(-1).tolist()
    sums = {}
    for path in itertools.product(range(logits.shape[1]), repeat=len(log_probs)):
        probability = math.exp(sum(frame[label] for frame, label in zip(log_probs, path, strict=True)))
        key = collapsed(path, blank)
        sums[key] = sums.get(key, 0.0) + probability
    return {ids: math.log(probability) for ids, probability in sums.items()}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    frames=st.integers(1, 6),
    labels=st.integers(2, 4),
    scale=st.sampled_from([0.0, 0.5, 2.0]),
    data=st.data(),
)
def test_wide_beam_gives_every_sequence_its_sum_over_all_alignments(seed, frames, labels, scale, data):
    blank = data.draw(st.integers(0, labels - 1))
    logits = random_logits(seed, frames, labels, scale)
    sums = prefix_sums(logits, blank)
    found = beam_search(logits, Letters(), beam=5000, blank=blank)
    assert {tuple(h.ids) for h in found} == set(sums)
    assert all(abs(h.score - sums[tuple(h.ids)]) < 1e-5 for h in found)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


@pytest.mark.parametrize("seed", range(20))
def test_narrow_beam_never_claims_more_than_the_true_probability(seed):
    logits = random_logits(seed, 6, 4)
    sums = prefix_sums(logits, blank=0)
    found = beam_search(logits, Letters(), beam=3)
    assert 1 <= len(found) <= 3
    assert all(h.score <= sums[tuple(h.ids)] + 1e-5 for h in found)


def test_beam_finds_the_text_that_greedy_misses():
    # Two frames of P(blank) = 0.6, P(a) = 0.4: the best path is empty (0.36) but "a" has 0.64.
    logits = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
    assert greedy(logits)[0] == []
    best = beam_search(logits, Letters())[0]
    assert best.ids == [1]
    assert best.score == pytest.approx(math.log(0.64), abs=1e-6)


@pytest.mark.parametrize("labels", [5, 40, 200])
@pytest.mark.parametrize("blank", [0, 3])
def test_beam_agrees_with_greedy_on_sharp_outputs(labels, blank):
    logits = sharp_logits(labels + blank, 120, labels)
    ids, score = greedy(logits, blank)
    best = beam_search(logits, Letters(), beam=10, blank=blank)[0]
    assert best.ids == ids
    assert best.text == Letters().decode(ids)
    assert best.score >= score - 1e-4  # the best path is one of the alignments summed


@pytest.mark.parametrize("seed", range(10))
def test_greedy_is_the_best_of_all_paths(seed):
    logits = random_logits(seed, 5, 4)
    log_probs = logits.double().log_softmax(-1)
    best = max(
        itertools.product(range(4), repeat=5), key=lambda path: sum(log_probs[t, c] for t, c in enumerate(path)).item()
    )
    ids, score = greedy(logits, blank=2)
    assert tuple(ids) == collapsed(best, 2)
    assert score == pytest.approx(sum(log_probs[t, c].item() for t, c in enumerate(best)), abs=1e-5)


def test_best_hypothesis_of_beam_1_is_greedy_and_of_no_frames_is_empty():
    for frames in (30, 0):
        logits = sharp_logits(0, frames, 6)
        for beam in (1, 10):
            assert best_hypothesis(logits, Letters(), beam).ids == greedy(logits)[0]
    assert best_hypothesis(logits, Letters(), 1).score == best_hypothesis(logits, Letters(), 10).score == 0.0


def test_layout_and_precision_of_the_logits_do_not_matter():
    logits = sharp_logits(0, 40, 8)
    expected = beam_search(logits, Letters())
    assert beam_search(logits.t().contiguous().t(), Letters()) == expected
    assert beam_search(logits.double(), Letters())[0].ids == expected[0].ids
    assert beam_search(logits.bfloat16().requires_grad_(), Letters())[0].ids == expected[0].ids


def test_impossible_labels_are_never_written():
    logits = random_logits(1, 8, 5)
    logits[:, 3] = -math.inf
    found = beam_search(logits, Letters(), beam=50)
    assert all(3 not in h.ids and math.isfinite(h.score) for h in found)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_logits_are_named_by_frame(value):
    logits = random_logits(0, 6, 4)
    logits[4, 1] = value
    for search in (greedy, lambda x: beam_search(x, Letters())):
        with pytest.raises(WildCTCError, match="frame 4"):
            search(logits)


def test_a_beam_below_one_is_refused():
    with pytest.raises(WildCTCError, match="beam"):
        beam_search(random_logits(0, 3, 3), Letters(), beam=0)


def test_missing_flashlight_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashlight.lib.text", None)
    with pytest.raises(MissingExtra, match=r"flashlight-text.*extra train"):
        beam_search(random_logits(0, 3, 3), Letters())
