"""Align the model's own transcript (what was heard) with the written one: by characters, then by time.

Of all alignments with the fewest edits, the one is taken whose characters are nearest in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_EDIT = 1 << 20  # the cost of an edit: more than all differences in time together
_FAR = 255  # a difference in time of more frames than this costs no more


@dataclass(frozen=True)
class HypothesisAlignment:
    """The heard text, aligned with the written one.

    Attributes:
        heard: The model's text.
        partner: For each written character the index of the heard character in its place, or −1 for none.
    """

    heard: str
    partner: list[int]

    def slots(self) -> tuple[list[str], list[str]]:
        """Divide the heard text among the written characters and the gaps between them.

        Returns:
            What was heard at each written character, and what was heard in each gap: before each character and after
            the last.
        """
        at, gaps, position = [], [], 0
        for j in self.partner:
            gaps.append(self.heard[position:j] if j >= 0 else "")
            at.append(self.heard[j] if j >= 0 else "")
            position = j + 1 if j >= 0 else position
        return at, [*gaps, self.heard[position:]]

    def words_over(self, begin: int, stop: int) -> str:
        """Find the heard words that contain a partner of some written characters.

        Args:
            begin: The first written character.
            stop: The written character after the last.

        Returns:
            These words, with the spaces between them; "" if none of the characters has a partner.
        """
        found = [j for j in self.partner[begin:stop] if j >= 0]
        if not found:
            return ""
        first = self.heard.rfind(" ", 0, found[0]) + 1
        last = self.heard.find(" ", found[-1])
        return self.heard[first : last if last >= 0 else len(self.heard)]


def align_hypothesis(
    written: str,
    heard: str,
    written_at: Sequence[float],
    heard_at: Sequence[float],
    anchors: Sequence[tuple[int, int]] = (),
) -> HypothesisAlignment:
    """Align two texts with the fewest edits; of several alignments, take the one that is nearest in time.

    A space is never aligned with another character.

    Args:
        written: The transcript.
        heard: The model's text.
        written_at: The time of each written character, in frames.
        heard_at: The time of each heard character, in frames.
        anchors: Pairs (written, heard) of characters that are known to be partners, in order. The characters between
            them are aligned.

    Returns:
        The alignment.

    >>> align_hypothesis("hello", "halo", range(5), range(4)).slots()
    (['h', 'a', 'l', '', 'o'], ['', '', '', '', '', ''])
    """
    partner = [-1] * len(written)
    i = j = 0
    for end_i, end_j in [*anchors, (len(written), len(heard))]:
        if i < end_i and j < end_j:
            a, b = slice(i, end_i), slice(j, end_j)
            for k, found in enumerate(_partners(written[a], heard[b], written_at[a], heard_at[b])):
                partner[i + k] = j + found if found >= 0 else -1
        if end_i < len(written):
            partner[end_i] = end_j
        i, j = end_i + 1, end_j + 1
    return HypothesisAlignment(heard, partner)


def _partners(written: str, heard: str, written_at: Sequence[float], heard_at: Sequence[float]) -> list[int]:
    """The partner of each written character, between two anchors."""
    if len(written) == len(heard) == 1 and (written == " ") == (heard == " "):
        return [0]
    a, b = (np.array([ord(c) for c in text], dtype=np.int64) for text in (written, heard))
    space = ord(" ")
    cost = np.where((a[:, None] == space) != (b[None] == space), 3 * _EDIT, _EDIT)
    cost[a[:, None] == b[None]] = 0
    distance = np.abs(np.asarray(written_at, float)[:, None] - np.asarray(heard_at, float)[None])
    cost += np.minimum(distance, _FAR).astype(np.int64)
    return _backtrace(_least_costs(cost), cost)


def _least_costs(cost: np.ndarray) -> np.ndarray:
    """(I+1, J+1): the least cost of aligning the first i written with the first j heard characters."""
    rows, columns = cost.shape
    table = np.empty((rows + 1, columns + 1), dtype=np.int64)
    steps = _EDIT * np.arange(columns + 1)
    table[0] = steps
    for i in range(rows):
        best = table[i] + _EDIT
        np.minimum(best[1:], table[i, :-1] + cost[i], out=best[1:])
        # Insertions move along the row: without their own cost, this is a running minimum.
        table[i + 1] = np.minimum.accumulate(best - steps) + steps
    return table


def _backtrace(table: np.ndarray, cost: np.ndarray) -> list[int]:
    partner = [-1] * len(cost)
    i, j = cost.shape
    costs, rows = cost.tolist(), table.tolist()
    while i and j:
        if rows[i][j] == rows[i - 1][j - 1] + costs[i - 1][j - 1]:
            i, j = i - 1, j - 1
            partner[i] = j
        elif rows[i][j] == rows[i - 1][j] + _EDIT:
            i -= 1
        else:
            j -= 1
    return partner
