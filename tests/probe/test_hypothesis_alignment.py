"""The model's transcript is aligned with the written one by characters, then by time."""

import pytest

from wildctc.probe.hypothesis_alignment import align_hypothesis


@pytest.mark.parametrize(
    ("written", "heard", "written_at", "heard_at", "partner"),
    [
        ("aa", "a", [0, 9], [8], [-1, 0]),  # of equally good alignments the nearest in time
        ("aa", "a", [0, 9], [1], [0, -1]),
        ("a b", "ab", [0, 1, 2], [0, 2], [0, -1, 1]),  # a space is never aligned with a letter
        ("a", " ", [0], [0], [-1]),
        ("", "ab", [], [0, 1], []),
        ("ab", "", [0, 1], [], [-1, -1]),
    ],
)
def test_heard_text_is_aligned_with_the_written_one(written, heard, written_at, heard_at, partner):
    assert align_hypothesis(written, heard, written_at, heard_at).partner == partner
