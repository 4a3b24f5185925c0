"""Align the characters of transcripts to the characters of their reference.

All edits cost the same. A space is only ever paired with a space. Often several alignments are equally short, and the
choice among them decides which character counts as disputed. The choice is therefore fixed:

1. the fewest edits;
2. of these, the fewest aligned pairs in which only one of the two is the first character of its word, plus the fewest
   in which only one is the last: words stay whole where they can;
3. of these, read from the end of the text: a pair before a deletion before an insertion.

Many texts are aligned at once, one row of their tables at a time. Only the band around the diagonal is computed that
the best alignments cannot leave, because insertions and deletions are at most as many as edits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from wildctc.errors import MissingExtra
from wildctc.progress import progress

_CELLS = 1 << 15  # of one row of all tables together: some arrays of that fit into a core's cache
_PAIR, _DELETION = 0, 1  # steps back through a table; 2 is an insertion
_SPACE, _NOTHING = 8, 16  # kinds of characters, beside 1 (first of its word) + 2 (last of its word)


class _Texts(NamedTuple):
    """A reference and another text. Partners are low … low + width − 1 characters further on, never elsewhere."""

    reference: str
    other: str
    low: int
    width: int


def align_texts(pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
    """Align texts to their references.

    Args:
        pairs: Reference and other text.

    Returns:
        For each pair an int32 array with an entry for each code point of the reference: its place in the other text, −1
        if it was deleted. Characters of the other text that no entry names were inserted, directly after the aligned
        character before them.

    >>> align_texts([("can not", "cannot")])
    [array([ 0,  1,  2, -1,  3,  4,  5], dtype=int32)]
    >>> align_texts([("a cat", "a fat cat")])
    [array([0, 5, 6, 7, 8], dtype=int32)]
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    different = []
    for reference, other in dict.fromkeys(pairs):
        if reference == other:
            found[reference, other] = np.arange(len(reference), dtype=np.int32)
        else:
            different.append(_with_band(reference, other))
    with progress(total=len(different), desc="align", unit="text", leave=False, delay=2) as bar:
        for batch in _batches(different):
            found.update(
                ((texts.reference, texts.other), places) for texts, places in zip(batch, _align(batch), strict=True)
            )
            bar.update(len(batch))
    return [found[pair] for pair in pairs]


def _with_band(reference: str, other: str) -> _Texts:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise MissingExtra("rapidfuzz", "train") from None
    # Where the usual distance pairs a space with another character, ours has two edits: it is at most twice as long.
    edits, longer = 2 * Levenshtein.distance(reference, other), len(other) - len(reference)
    low, high = -((edits - longer) // 2), (edits + longer) // 2
    low, high = max(low, -len(reference)), min(high, len(other))
    return _Texts(reference, other, low, high - low + 1)


def _batches(texts: Iterable[_Texts]) -> Iterator[list[_Texts]]:
    """Texts with similar bands together, the longest references first."""
    for _, alike in groupby(sorted(texts, key=_size), key=_size):
        batch: list[_Texts] = []
        for one in sorted(alike, key=lambda texts: -len(texts.reference)):
            if batch and (len(batch) + 1) * one.width > _CELLS:
                yield batch
                batch = []
            batch.append(one)
        yield batch


def _size(texts: _Texts) -> int:
    """Give bands of similar width the same number."""
    return round(3 * math.log2(texts.width))


def _align(batch: Sequence[_Texts]) -> Iterator[np.ndarray]:
    """Step back through the tables from their ends, all at once."""
    steps = _steps(batch)
    i = np.array([len(texts.reference) for texts in batch])
    column = np.array([len(texts.other) - len(texts.reference) - texts.low for texts in batch])
    low = np.array([texts.low for texts in batch])
    places = np.full((len(batch), i.max()), -1, dtype=np.int32)
    rows = np.flatnonzero(i)
    while len(rows):
        step = steps[i[rows], rows, column[rows]]
        paired = rows[step == _PAIR]
        places[paired, i[paired] - 1] = i[paired] + low[paired] + column[paired] - 1
        i[rows] -= step <= _DELETION
        column[rows] += (step == _DELETION).astype(int) - (step > _DELETION)
        rows = rows[i[rows] > 0]  # what is left of the other when the reference is used up was inserted before it
    return (row[: len(texts.reference)] for row, texts in zip(places, batch, strict=True))


def _steps(batch: Sequence[_Texts]) -> np.ndarray:
    """Find the last step of the best alignment of i characters of each reference with i + low + column of the other.

    Returns (i, texts, column) of uint8. The table holds the cost of each alignment minus the cost of deleting and
    inserting everything. Only pairs then have a cost, and places before the start of the other text cost 0, as its
    start does.
    """
    height, width = max(len(texts.reference) for texts in batch), max(texts.width for texts in batch)
    left, left_kinds = _characters([(texts.reference, 0) for texts in batch], height)
    right, right_kinds = _characters([(texts.other, -texts.low) for texts in batch], height + width)
    best = np.zeros((len(batch), width), dtype=np.int32 if height + width < 2**13 else np.int64)
    edit = best.dtype.type(2 * (height + width) + 1)  # more than all mismatches at word boundaries can cost together
    deleted = np.ones_like(best)
    steps = np.full((height + 1, len(batch), width), 2, dtype=np.uint8)
    lengths = np.array([-len(texts.reference) for texts in batch])
    for i in range(height):
        live = np.searchsorted(lengths, -i)  # the references that are longer than i
        best, deleted = best[:live], deleted[:live]
        kinds = left_kinds[:live, i, None] ^ right_kinds[:live, i : i + width]
        differ = left[:live, i, None] != right[:live, i : i + width]
        pair = (differ + (kinds >> 3)) * edit  # a space and another character: as much as leaving them apart …
        pair += (kinds & 1) + (kinds >> 1)  # … and a little more
        pair += best - 2 * edit
        deleted[:, :-1] = best[:, 1:]
        best = np.minimum.accumulate(np.minimum(pair, deleted), axis=1)
        np.multiply(best != pair, (best != deleted).view(np.uint8) + np.uint8(1), out=steps[i + 1, :live])
    return steps


def _characters(texts: Sequence[tuple[str, int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Code points and kinds of characters, (texts, width); each text begins at a column of its own."""
    codes = np.full((len(texts), width), -1, dtype=np.int32)
    kinds = np.full((len(texts), width), _NOTHING, dtype=np.uint8)
    for row, (text, first) in enumerate(texts):
        points = code_points(text)
        space = np.concatenate([[True], points == ord(" "), [True]])
        codes[row, first : first + len(text)] = points[: width - first]
        kind = np.where(space[1:-1], _SPACE, space[:-2] + 2 * space[2:])
        kinds[row, first : first + len(text)] = kind[: width - first]
    return codes, kinds


def code_points(text: str) -> np.ndarray:
    """Convert a text to its code points.

    Args:
        text: Any text.

    Returns:
        (characters,) int32.
    """
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.int32)
