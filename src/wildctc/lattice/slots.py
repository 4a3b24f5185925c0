"""Several writings of one utterance, aligned word by word into slots of alternatives."""

from collections.abc import Hashable, Sequence
from typing import TypeAlias, TypeVar

_T = TypeVar("_T", bound=Hashable)
_Slot: TypeAlias = dict[tuple[_T, ...], int]  # alternative → how many writings have it, in the order of their first use


def aligned_slots(sequences: Sequence[Sequence[tuple[_T, ...]]]) -> list[_Slot[_T]]:
    """Align writings one after the other to the slots of those before, with the fewest changes.

    A word costs nothing where its slot has it already, and 1 elsewhere; so does a word that is left out where no
    writing before left it out, and a new slot. Ties go to the slot with another word, then to leaving out.

    Args:
        sequences: The words of each writing, each a tuple of labels, or of anything else.

    Returns:
        The slots: alternative → number of writings, that of the first writing first. The alternative () means that
        writings have no word there.
    """
    slots: list[_Slot[_T]] = [{word: 1} for word in sequences[0]]
    for seen, sequence in enumerate(sequences[1:], start=1):
        merged: list[_Slot[_T]] = []
        for place, word in _alignment(slots, sequence):
            slot: _Slot[_T] = {(): seen} if place is None else slots[place]
            slot[word] = slot.get(word, 0) + 1
            merged.append(slot)
        slots = merged
    return slots


def _alignment(slots: list[_Slot[_T]], words: Sequence[tuple[_T, ...]]) -> list[tuple[int | None, tuple[_T, ...]]]:
    """The slot (None: a new one) and the word (empty: left out) of each step of the cheapest alignment."""
    rows = [list(range(len(words) + 1))]
    for slot in slots:
        above, left_out = rows[-1], () not in slot
        row = [above[0] + left_out]
        for j, word in enumerate(words):
            row.append(min(above[j] + (word not in slot), above[j + 1] + left_out, row[j] + 1))
        rows.append(row)
    found: list[tuple[int | None, tuple[_T, ...]]] = []
    i, j = len(slots), len(words)
    while i or j:
        if i and j and rows[i][j] == rows[i - 1][j - 1] + (words[j - 1] not in slots[i - 1]):
            i, j = i - 1, j - 1
            found.append((i, words[j]))
        elif i and rows[i][j] == rows[i - 1][j] + (() not in slots[i - 1]):
            i -= 1
            found.append((i, ()))
        else:
            j -= 1
            found.append((None, words[j]))
    return found[::-1]
