"""The writing of a reference with alternatives that is nearest to a hypothesis, word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wildctc.text.alternatives import Slot, Writings

# A cost is edits × _EDIT + characters that differ, so that characters only decide between equal numbers of edits. In a
# row, a cost carries the place in the hypothesis where its slot began, as cost × _PLACES + place.
_EDIT = 1 << 24
_PLACES = 1 << 20
_Distance = Callable[[str, str], int]


def nearest_writing(writings: Writings, hypothesis: Sequence[str], distance: _Distance) -> list[int]:
    """Choose the writing with the fewest word edits to a hypothesis: the shortest path through the graph of slots.

    Of several, it takes the one whose edits change the fewest characters, and then the first alternatives.

    Args:
        writings: All writings of the reference.
        hypothesis: The words of the hypothesis.
        distance: The edit distance of two words, in characters.

    Returns:
        The number of an alternative for each slot.
    """
    slots, words = writings.slots, list(hypothesis)
    # Where both begin, or end, with the same words, no shortest path needs an edit.
    begin = 0
    while begin < min(len(slots), len(words)) and _is_word(slots[begin], words[begin]):
        begin += 1
    end = 0
    while end < min(len(slots), len(words)) - begin and _is_word(slots[-1 - end], words[-1 - end]):
        end += 1
    inner = slots[begin : len(slots) - end]
    chosen = _path(inner, words[begin : len(words) - end], distance)
    return [0] * begin + chosen + [0] * end


def _is_word(slot: Slot, word: str) -> bool:
    return slot.alternatives == ((word,),)


def _path(slots: Sequence[Slot], words: Sequence[str], distance: _Distance) -> list[int]:
    extra = [_EDIT + len(word) + 1 for word in words]  # what it costs to insert each word
    costs = [0]
    for cost in extra:
        costs.append(costs[-1] + cost)
    history: list[tuple[list[int], list[int]]] = []  # of each slot: alternative, and place before it, by place after it
    for slot in slots:
        best: list[int] = []
        chosen = [0] * len(costs)
        start = [cost * _PLACES + place for place, cost in enumerate(costs)]
        for number, alternative in enumerate(slot.alternatives):
            row = start
            for word in alternative:
                row = _next_row(row, word, words, extra, distance)
            if not best:
                best = list(row)
                continue
            for place, cost in enumerate(row):
                if cost // _PLACES < best[place] // _PLACES:
                    best[place], chosen[place] = cost, number
        history.append((chosen, [cost % _PLACES for cost in best]))
        costs = [cost // _PLACES for cost in best]
    found, place = [], len(words)
    for chosen, before in reversed(history):
        found.append(chosen[place])
        place = before[place]
    return found[::-1]


def _next_row(
    row: Sequence[int], word: str, words: Sequence[str], extra: Sequence[int], distance: _Distance
) -> list[int]:
    """The costs after one more word of the reference, by the number of words of the hypothesis that are used."""
    left_out = (_EDIT + len(word) + 1) * _PLACES
    found = [row[0] + left_out]
    for j, heard in enumerate(words):
        other = row[j] if heard == word else row[j] + (_EDIT + distance(word, heard)) * _PLACES
        found.append(min(other, row[j + 1] + left_out, found[j] + extra[j] * _PLACES))
    return found
