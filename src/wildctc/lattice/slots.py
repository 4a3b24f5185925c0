"""Several writings of one utterance, aligned word by word into slots of alternatives."""

from collections.abc import Sequence
from typing import TypeAlias

_Word: TypeAlias = tuple[int, ...]
_Slot: TypeAlias = dict[_Word, int]  # alternative → how many writings have it, in the order of their first use

_NOTHING: _Word = ()


def aligned_slots(sequences: Sequence[Sequence[_Word]]) -> list[_Slot]:
    """Align writings one after the other to the slots of those before, with the fewest changes.

    A word costs nothing where its slot has it already, and 1 elsewhere; so does a word that is left out where no
    writing before left it out, and a new slot. Ties go to the slot with another word, then to leaving out.

    Args:
        sequences: The words of each writing, each a tuple of labels.

    Returns:
        The slots: alternative → number of writings. The alternative () means that writings have no word there.
    """
    slots: list[_Slot] = [{word: 1} for word in sequences[0]]
    for seen, sequence in enumerate(sequences[1:], start=1):
        merged: list[_Slot] = []
        for slot, word in _alignment(slots, sequence):
            if slot is None:
                slot = {_NOTHING: seen}
            slot[word] = slot.get(word, 0) + 1
            merged.append(slot)
        slots = merged
    return [_with_empty_last(slot) for slot in slots]


def _with_empty_last(slot: _Slot) -> _Slot:
    if _NOTHING in slot:
        slot[_NOTHING] = slot.pop(_NOTHING)
    return slot


def _alignment(slots: list[_Slot], words: Sequence[_Word]) -> list[tuple[_Slot | None, _Word]]:
    """The slot (None: a new one) and the word (empty: left out) of each step of the cheapest alignment."""
    cost = [[0] * (len(words) + 1) for _ in range(len(slots) + 1)]
    for i in range(len(slots) + 1):
        for j in range(len(words) + 1):
            if i or j:
                cost[i][j] = min(price for price, *_ in _steps(cost, slots, words, i, j))
    found: list[tuple[_Slot | None, _Word]] = []
    i, j = len(slots), len(words)
    while i or j:
        _, i, j, slot, word = min(_steps(cost, slots, words, i, j), key=lambda step: step[0])
        found.append((slot, word))
    return found[::-1]


def _steps(
    cost: list[list[int]], slots: list[_Slot], words: Sequence[_Word], i: int, j: int
) -> list[tuple[int, int, int, _Slot | None, _Word]]:
    """The ways to reach i slots and j words: price, slots and words before, and what is aligned. The best is first."""
    found: list[tuple[int, int, int, _Slot | None, _Word]] = []
    if i and j:
        found.append(
            (cost[i - 1][j - 1] + (words[j - 1] not in slots[i - 1]), i - 1, j - 1, slots[i - 1], words[j - 1])
        )
    if i:
        found.append((cost[i - 1][j] + (_NOTHING not in slots[i - 1]), i - 1, j, slots[i - 1], _NOTHING))
    if j:
        found.append((cost[i][j - 1] + 1, i, j - 1, None, words[j - 1]))
    return found
