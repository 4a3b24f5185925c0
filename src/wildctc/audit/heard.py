"""What the model wrote, laid beside what is written: by characters, and by time where characters leave a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EDIT = 1 << 20  # an edit outweighs any difference in time
FAR = 255  # frames, beyond which a difference in time does not count


@dataclass(frozen=True)
class Laid:
    """heard: the model's text. partner: for each written character the index of the heard one in its place, or −1."""

    heard: str
    partner: list[int]

    def slots(self) -> tuple[list[str], list[str]]:
        """What was heard at each written character, and in each gap: before each character and after the last."""
        at, gaps, position = [], [], 0
        for j in self.partner:
            gaps.append(self.heard[position:j] if j >= 0 else "")
            at.append(self.heard[j] if j >= 0 else "")
            position = j + 1 if j >= 0 else position
        return at, [*gaps, self.heard[position:]]

    def words_over(self, begin: int, stop: int) -> str:
        """The heard words that have any of the written characters begin…stop."""
        found = [j for j in self.partner[begin:stop] if j >= 0]
        if not found:
            return ""
        first = self.heard.rfind(" ", 0, found[0]) + 1
        last = self.heard.find(" ", found[-1])
        return self.heard[first : last if last >= 0 else len(self.heard)]


def lay(
    written: str,
    heard: str,
    written_at: Sequence[float],
    heard_at: Sequence[float],
    anchors: Sequence[tuple[int, int]] = (),
) -> Laid:
    """The alignment with the fewest edits; of several, the one whose characters are nearest in time (frames).

    A space never stands for another character. anchors: characters that are known to be partners, in order; the rest is
    aligned between them.

    >>> lay("hello", "halo", range(5), range(4)).slots()
    (['h', 'a', 'l', '', 'o'], ['', '', '', '', '', ''])
    """
    partner = [-1] * len(written)
    i = j = 0
    for end_i, end_j in [*anchors, (len(written), len(heard))]:
        if i < end_i and j < end_j:
            a, b = slice(i, end_i), slice(j, end_j)
            for k, found in enumerate(_between(written[a], heard[b], written_at[a], heard_at[b])):
                partner[i + k] = j + found if found >= 0 else -1
        if end_i < len(written):
            partner[end_i] = end_j
        i, j = end_i + 1, end_j + 1
    return Laid(heard, partner)


def _between(written: str, heard: str, written_at: Sequence[float], heard_at: Sequence[float]) -> list[int]:
    """The partner of each written character."""
    if len(written) == len(heard) == 1 and (written == " ") == (heard == " "):
        return [0]
    a, b = (np.array([ord(c) for c in text], dtype=np.int64) for text in (written, heard))
    space = ord(" ")
    cost = np.where((a[:, None] == space) != (b[None] == space), 3 * EDIT, EDIT)
    cost[a[:, None] == b[None]] = 0
    distance = np.abs(np.asarray(written_at, float)[:, None] - np.asarray(heard_at, float)[None])
    cost += np.minimum(distance, FAR).astype(np.int64)
    return _backtrace(_edits(cost), cost)


def _edits(cost: np.ndarray) -> np.ndarray:
    """(I+1, J+1): the least cost of the first i written and j heard characters."""
    rows, columns = cost.shape
    table = np.empty((rows + 1, columns + 1), dtype=np.int64)
    steps = EDIT * np.arange(columns + 1)
    table[0] = steps
    for i in range(rows):
        best = table[i] + EDIT
        np.minimum(best[1:], table[i, :-1] + cost[i], out=best[1:])
        # insertions run along the row: a running minimum of what is left after paying for them
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
        elif rows[i][j] == rows[i - 1][j] + EDIT:
            i -= 1
        else:
            j -= 1
    return partner
