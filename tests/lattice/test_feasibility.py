"""Which utterances have too few frames, told from the transcript alone (brute force: test_brute_force.py)."""

import warnings

import pytest
import torch

from wildctc import Infeasible, Wildcards, infeasible, wildcard_ctc_loss


def needed(targets, words=None, **weights) -> int:
    rows = torch.tensor([targets], dtype=torch.int64)
    words = torch.tensor([words]) if words is not None else None
    found = infeasible(rows, [0], [len(targets)], wildcards=Wildcards(**weights), words=words)
    return found[0].needed if found else 0


@pytest.mark.parametrize(
    ("targets", "words", "weights", "frames"),
    [
        ([1, 2, 3], None, {}, 3),
        ([1, 1, 2, 2, 2], None, {}, 8),
        ([1, 1, 2, 2, 2], None, {"self_loop": 0.0}, 8),  # self-loops never save a frame
        ([1, 1, 2, 2, 2], None, {"bypass": -5.0}, 5),
        ([1, 1], None, {"bypass": -5.0}, 2),  # token then ★
        ([1, 1, 1], [0, 0, 0], {"word_bypass": -1.0}, 1),
        ([1, 1, 1], [0, 0, 1], {"word_bypass": -1.0}, 2),  # ★ for the first, the token of the second
        ([1, 2, 3, 4], [0, 0, 1, 1], {"word_bypass": -1.0}, 3),  # ★ blank ★
        ([1, 2, 3, 4], [0, 0, -1, 1], {"word_bypass": -1.0}, 3),  # ★ 3 ★
        ([], None, {"bypass": -5.0}, 0),
    ],
)
def test_fewest_frames(targets, words, weights, frames):
    assert needed(targets, words, **weights) == frames


def test_absent_arcs_save_no_frames():
    bypass = torch.tensor([[-1.0, float("-inf")]])
    assert infeasible(torch.tensor([[1, 1]]), [1], [2], wildcards=Wildcards(bypass=bypass)) == [Infeasible(0, 1, 2, 1)]
    bypass[0, 0] = float("-inf")
    assert infeasible(torch.tensor([[1, 1]]), [2], [2], wildcards=Wildcards(bypass=bypass)) == [Infeasible(0, 2, 3, 1)]


def test_those_and_only_those_have_an_infinite_loss(backend):
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(1, 3, (40, 6), generator=generator)
    words = torch.arange(6).div(2, rounding_mode="floor").expand(40, 6)
    frames = torch.randint(0, 10, (40,), generator=generator).tolist()
    tokens = torch.randint(0, 7, (40,), generator=generator).tolist()
    for wildcards in (None, Wildcards(bypass=-3.0), Wildcards(word_bypass=-3.0), Wildcards(self_loop=-1.0)):
        given = {"wildcards": wildcards, "words": words}
        loss = wildcard_ctc_loss(
            torch.zeros(10, 40, 3), targets, frames, tokens, reduction="none", backend=backend, **given
        )
        found = infeasible(targets, frames, tokens, **given)
        assert [item.index for item in found] == loss.isinf().nonzero().flatten().tolist()
        assert all(item.frames == frames[item.index] < item.needed for item in found)


def test_forms_of_targets():
    assert infeasible(torch.tensor([1, 1, 2, 2]), [1, 5], [2, 2]) == [Infeasible(0, 1, 3, 1)]
    assert infeasible(torch.tensor([1, 1]), 2, 2) == [Infeasible(0, 2, 3, 1)]
    assert infeasible(torch.tensor([[0, 0]]), torch.tensor([2]), torch.tensor([2])) == [Infeasible(0, 2, 3, 1)]
    assert infeasible(torch.zeros(0, 3, dtype=torch.int64), [], []) == []


@pytest.mark.parametrize("padding", [0, -1, -100, 2**62])
def test_padding_does_not_matter(padding):
    targets = torch.tensor([[1, 1, padding], [padding] * 3])
    assert infeasible(targets, [2, 0], [2, 0]) == [Infeasible(0, 2, 3, 1)]
    assert infeasible(targets[1:], [4], [0]) == []


def test_one_utterance_without_a_batch_dimension_is_taken_as_the_loss_takes_it():
    targets, words = torch.tensor([1, 1, 2]), torch.tensor([0, 0, 1])
    for wildcards in (
        Wildcards(word_bypass=0.0),
        Wildcards(bypass=torch.zeros(3)),
        Wildcards(bypass=torch.zeros(3, requires_grad=True), word_bypass=torch.zeros(2)),
    ):
        for frames in range(4):
            given = {"wildcards": wildcards, "words": words}
            loss = wildcard_ctc_loss(torch.zeros(frames, 3), targets, frames, 3, **given)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = infeasible(targets, frames, 3, **given)
            assert bool(found) == bool(loss.isinf())
    assert infeasible(targets, [2], [3], wildcards=Wildcards(bypass=torch.zeros(3))) == [Infeasible(0, 2, 3, 1)]


def test_concatenated_targets_that_are_left_over_are_refused_as_by_the_loss():
    with pytest.raises(ValueError, match="target_lengths add up to 2, but there are 3 concatenated targets"):
        infeasible(torch.tensor([1, 2, 3]), [1], [2])
