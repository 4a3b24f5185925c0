"""Edits of the words of a probed transcript, applied to the transcript as its manifest has it.

The probe knows the normalised words. The manifest may have capitals and punctuation, and one written word may be
several normalised words ("well-known") or none ("—"). Words that no edit touches stay as they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from wildctc.text.matching import find_normalizer


@dataclass(frozen=True)
class WordEdit:
    """Words of the probed transcript, and the words that take their place.

    Attributes:
        first: The first word, from 0.
        stop: The word after the last. Equal to `first`: new words are inserted before it.
        words: The new words; none removes the old ones.
    """

    first: int
    stop: int
    words: tuple[str, ...] = ()


class EditedWord(NamedTuple):
    """A word of the transcript after the edits.

    Attributes:
        text: The word as it is written.
        sources: The numbers of the probed words that it comes from; None for a new word.
    """

    text: str
    sources: tuple[int, ...] | None


def match_words(written: str, probed: Sequence[str]) -> list[list[int]] | None:
    """Find the probed words of each written word.

    Args:
        written: The transcript of the manifest.
        probed: The words of the probed transcript, which is normalised.

    Returns:
        For each written word the numbers of its probed words; None if these are not the same transcript.

    >>> match_words("A well-known — place.", ["a", "well", "known", "place"])
    [[0], [1, 2], [], [3]]
    """
    normalizer = find_normalizer(written, " ".join(probed))
    if normalizer is None:
        return None
    parts = [normalizer(word).split() for word in written.split()]
    if [part for word in parts for part in word] != [normalizer(word) for word in probed]:
        return None
    return [[*range(*span)] for span in pairwise(accumulate(map(len, parts), initial=0))]


def edit_words(
    written: str, matched: Sequence[Sequence[int]], probed: Sequence[str], edits: Sequence[WordEdit]
) -> list[EditedWord]:
    """Apply edits to a transcript.

    Args:
        written: The transcript of the manifest.
        matched: As `match_words` gives it.
        probed: The words of the probed transcript. They take the place of a written word of which an edit changes a
            part.
        edits: Edits of the probed words, in order; no word is in two of them.

    Returns:
        The words of the new transcript.

    >>> edits = [WordEdit(0, 0, ("oh",)), WordEdit(2, 3, ("worn",))]
    >>> edited = edit_words("A well-known place.", [[0], [1, 2], [3]], ["a", "well", "known", "place"], edits)
    >>> [word.text for word in edited]
    ['oh', 'A', 'well', 'worn', 'place.']
    """
    covered = {word: edit for edit in edits for word in range(edit.first, edit.stop)}
    inserts = {edit.first: edit for edit in edits if edit.first == edit.stop}
    found: list[EditedWord] = []
    for word, numbers in zip(written.split(), matched, strict=True):
        whole = not any(n in covered for n in numbers) and not any(n in inserts for n in numbers[1:])
        if whole:
            found += _new(inserts.get(numbers[0]) if numbers else None)
            found.append(EditedWord(word, tuple(numbers)))
            continue
        for n in numbers:
            found += _new(inserts.get(n))
            edit = covered.get(n)
            if edit is None:
                found.append(EditedWord(probed[n], (n,)))
            elif edit.first == n:
                found += _new(edit)
    return found + _new(inserts.get(len(probed)))


def _new(edit: WordEdit | None) -> list[EditedWord]:
    return [EditedWord(word, None) for word in edit.words] if edit else []
