"""Cut an aligned recording into pieces that are short enough to train on, or to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from wildctc.longform.alignment import AlignedWrittenWord, LongAlignment

LONGEST = 20.0  # seconds
_MARGIN = 0.2  # the most seconds of pause that a piece keeps: a CTC model marks a sound, not its extent
_SENTENCE = 1.0  # a sentence end is as good a place to cut as a pause that is longer by so many seconds
_BREATH = 0.25  # seconds between two sentences that are cut even if both together are short enough


class Piece(NamedTuple):
    """A piece of the recording and its words.

    Attributes:
        start: Seconds.
        end: Seconds.
        first: Its first word.
        stop: The word after its last.
    """

    start: float
    end: float
    first: int
    stop: int


def solid_pieces(found: LongAlignment, longest: float = LONGEST) -> list[Piece]:
    """Cut what matches into pieces: at sentence ends, at pauses, and where text and speech differ.

    Args:
        found: The alignment.
        longest: The most seconds of a piece.

    Returns:
        Pieces whose words were all read, with no other speech between them.
    """
    pieces = []
    for first, stop in _solid_runs(found):
        low, high = _room(found, first, stop)
        for begin, end in _split(found.words, first, stop, longest):
            before = found.words[begin - 1].end if begin > first else low
            after = found.words[end].start if end < stop else high
            pieces.append(_piece(found.words, begin, end, before, after))
    return pieces


def all_pieces(found: LongAlignment, longest: float = LONGEST) -> list[Piece]:
    """Cut the whole text into pieces, with what was not read, and the speech that is not in it.

    Args:
        found: The alignment.
        longest: The most seconds of a piece.

    Returns:
        A piece for each sentence, or several for a long one, and one for each stretch between two sentences that has
        speech; each word is in one piece. Ordered as the text.
    """
    pieces: list[Piece] = []
    for first, stop in _sentences(found.words):
        pieces += [
            Piece(*_span(found, begin, end), begin, end) for begin, end in _split(found.words, first, stop, longest)
        ]
    starts = {piece.first for piece in pieces}
    between = [d for d in found.differences if d.first == d.stop and (d.first in starts or d.first == len(found.words))]
    for gap in between:
        pieces += [Piece(start, end, gap.first, gap.first) for start, end in _chop(gap.start, gap.end, longest)]
    return sorted(pieces, key=lambda piece: (piece.first, piece.stop, piece.start))


def _solid_runs(found: LongAlignment) -> Iterator[tuple[int, int]]:
    broken = {place for d in found.differences for place in range(d.first, max(d.stop, d.first + 1))}
    speech = {d.first for d in found.differences if d.heard}
    first = None
    for number, word in enumerate([*found.words, None]):
        usable = word is not None and (word.read or (word.confidence is None and number not in broken))
        if first is not None and (not usable or number in speech):
            yield first, number
            first = None
        if usable and first is None and word is not None and word.read:
            first = number


def _room(found: LongAlignment, first: int, stop: int) -> tuple[float, float]:
    """How far the audio of a run may reach: to the next word or to the next speech that is not in the text."""
    words = found.words
    starts = [d.start for d in found.differences if d.heard and d.start >= words[stop - 1].end - 1e-6]
    ends = [d.end for d in found.differences if d.heard and d.end <= words[first].start + 1e-6]
    low = max([*ends[-1:], words[first - 1].end if first and words[first - 1].read else 0.0])
    next_word = words[stop].start if stop < len(words) and words[stop].read else found.duration
    return low, min([*starts[:1], next_word])


def _sentences(words: Sequence[AlignedWrittenWord]) -> Iterator[tuple[int, int]]:
    first = 0
    for number, word in enumerate(words, start=1):
        if word.ends_sentence or number == len(words) or words[number].block != word.block:
            yield first, number
            first = number


def _split(words: Sequence[AlignedWrittenWord], first: int, stop: int, longest: float) -> list[tuple[int, int]]:
    """Cut at sentence ends, then at the longest pauses until every part is short enough."""
    whole = [first, *(k for k in range(first + 1, stop) if _ends(words, k) and _gap(words, k) >= _BREATH), stop]
    parts, ready = list(reversed(list(pairwise(whole)))), []
    while parts:
        begin, end = parts.pop()
        if words[end - 1].end - words[begin].start + 2 * _MARGIN <= longest or end - begin < 2:
            ready.append((begin, end))
            continue
        middle = (words[begin].start + words[end - 1].end) / 2
        half = max(1e-3, words[end - 1].end - middle)
        at = max(
            range(begin + 1, end),
            key=lambda k: _gap(words, k) + _SENTENCE * _ends(words, k) - abs(words[k].start - middle) / half,
        )
        parts += [(at, end), (begin, at)]
    return ready


def _ends(words: Sequence[AlignedWrittenWord], k: int) -> bool:
    return words[k - 1].ends_sentence or words[k - 1].block != words[k].block


def _gap(words: Sequence[AlignedWrittenWord], k: int) -> float:
    return words[k].start - words[k - 1].end


def _span(found: LongAlignment, begin: int, end: int) -> tuple[float, float]:
    piece = _piece(found.words, begin, end, 0.0, found.duration)
    before = max((w.end for w in found.words[max(0, begin - 1) : begin]), default=0.0)
    after = min((w.start for w in found.words[end : end + 1]), default=found.duration)
    return max(piece.start, min(before, found.words[begin].start)), min(piece.end, max(after, found.words[end - 1].end))


def _piece(words: Sequence[AlignedWrittenWord], begin: int, end: int, before: float, after: float) -> Piece:
    """A piece with half the pause on each side, at most _MARGIN."""
    start, stop = words[begin].start, words[end - 1].end
    left, right = min(_MARGIN, max(0.0, (start - before) / 2)), min(_MARGIN, max(0.0, (after - stop) / 2))
    return Piece(round(start - left, 3), round(stop + right, 3), begin, end)


def _chop(start: float, end: float, longest: float) -> list[tuple[float, float]]:
    count = max(1, -int(-(end - start) // longest))
    edges = [start + (end - start) * k / count for k in range(count + 1)]
    return [(round(a, 3), round(b, 3)) for a, b in pairwise(edges)]
