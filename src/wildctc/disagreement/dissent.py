"""Find where annotators disagree with the reference and with each other, by the rules of specification §7.

Each transcript is aligned to the reference by character (`text_alignment.py`). A unit is a character, a word, or a
place between two characters, where something can be inserted. d of n annotators change it. With d = 0 it is agreed.
With d ≥ 1 it is disputed, unless all n write the same: that is a unanimous correction, a class of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wildctc.disagreement.text_alignment import align_texts, code_points
from wildctc.errors import WildCTCError

_WORD = re.compile("[^ ]+")
_DELETED = -1  # in the place of a code point
JOINED = "‿"  # in a word's alternative: written together with its neighbour


@dataclass(frozen=True)
class UnitDissent:
    """How many annotators change each unit of one kind, in the order of the text.

    Attributes:
        dissent: (units,) int, the annotators who change the unit.
        unanimous: (units,) bool, whether all annotators change it to the same.
    """

    dissent: np.ndarray
    unanimous: np.ndarray

    @cached_property
    def disputed(self) -> np.ndarray:
        return (self.dissent > 0) & ~self.unanimous


@dataclass(frozen=True)
class _WordChange:
    """What one annotator wrote for one word.

    Attributes:
        text: What was written instead; JOINED marks a side where the word is written together with its neighbour.
        edits: Characters changed, inserted or deleted, deleted spaces included.
        only_inserts: Whether all edits are insertions.
    """

    text: str
    edits: int
    only_inserts: bool


@dataclass(frozen=True)
class Disagreement:
    """What n annotators make of one reference.

    Attributes:
        reference: The reference.
        annotators: n.
        characters: Dissent about the characters.
        words: Dissent about the words.
        insertions: Dissent about the places before each character and after the last.
        spans: The characters (start, stop) of each word.
        one_character: (words,) bool, disputed words that every dissenter changes by a single edit.
        only_inserts: (words,) bool, disputed words that every dissenter changes by insertions only.
        inserted: Characters that all annotators together inserted.
        inserted_spaces: The spaces among them.
        inserted_words: Whole words that were inserted.
    """

    reference: str
    annotators: int
    characters: UnitDissent
    words: UnitDissent
    insertions: UnitDissent
    spans: list[tuple[int, int]]
    one_character: np.ndarray
    only_inserts: np.ndarray
    inserted: int
    inserted_spaces: int
    inserted_words: int


def disagreements(references: Sequence[str], transcripts: Sequence[Sequence[str]]) -> list[Disagreement]:
    """Find where annotators disagree. All texts must be normalised in the same way.

    Args:
        references: The reference of each utterance.
        transcripts: Two or more transcripts of each reference.

    Returns:
        The disagreement about each reference.

    Raises:
        WildCTCError: A reference has fewer than two transcripts.

    >>> [found] = disagreements(["the colour grey"], [["the color grey", "the colour gray", "the colour grey"]])
    >>> found.characters.dissent.tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    >>> found.words.dissent.tolist(), found.words.disputed.tolist(), found.one_character.tolist()
    ([0, 1, 1], [False, True, True], [False, True, True])
    """
    for reference, texts in zip(references, transcripts, strict=True):
        if len(texts) < 2:
            raise WildCTCError(f"{reference!r} has {len(texts)} transcripts: it takes two to disagree")
    pairs = [(ref, text) for ref, texts in zip(references, transcripts, strict=True) for text in texts]
    aligned = map(_Aligned, pairs, align_texts(pairs))
    return [
        _disagreement(ref, [next(aligned) for _ in texts]) for ref, texts in zip(references, transcripts, strict=True)
    ]


def differences(pairs: Sequence[tuple[str, str]]) -> list[Disagreement]:
    """Compare each reference with one other text, by the same rules.

    Args:
        pairs: References and other texts, all normalised alike.

    Returns:
        For each pair, what differs: `dissent` is 0 or 1.

    >>> [found] = differences([("happy valley bank", "harper valley bank")])
    >>> found.words.dissent.tolist()
    [1, 0, 0]
    """
    return [
        _disagreement(pair[0], [_Aligned(pair, places)]) for pair, places in zip(pairs, align_texts(pairs), strict=True)
    ]


class _Aligned:
    """One annotator's text, aligned to the reference."""

    def __init__(self, pair: tuple[str, str], places: np.ndarray) -> None:
        reference, self.text = pair
        self.places = places
        self.theirs = np.append(code_points(self.text), _DELETED)[places]  # place −1 is the last: deleted
        self.changed = self.theirs != code_points(reference)
        partners = np.full(len(self.text), -1)
        partners[places[places >= 0]] = np.flatnonzero(places >= 0)
        self.partners = partners.tolist()

    @cached_property
    def insertions(self) -> dict[int, str]:
        """What is inserted before each character of the reference, or after the last."""
        found: dict[int, str] = {}
        place = 0
        for j, partner in enumerate(self.partners):
            if partner >= 0:
                place = partner + 1
            else:
                found[place] = found.get(place, "") + self.text[j]
        return found

    @cached_property
    def inserted_words(self) -> int:
        """Words of which the reference has nothing."""
        spans = (word.span() for word in _WORD.finditer(self.text)) if self.insertions else ()
        return sum(max(self.partners[start:stop]) < 0 for start, stop in spans)

    def changes(self, starts: np.ndarray, stops: np.ndarray) -> dict[int, _WordChange]:
        """The words that are changed: those that do not stand whole and alone in the text."""
        if not self.insertions and not self.changed.any():
            return {}
        space = np.concatenate([[True], code_points(self.text) == ord(" "), [True]])  # entry j + 1 is character j
        first, last = self.places[starts], self.places[stops - 1]
        so_far = np.concatenate([[0], np.cumsum(self.changed)])
        whole = (so_far[stops] == so_far[starts]) & (last - first == stops - 1 - starts)
        suspects = np.flatnonzero(~(whole & space[first] & space[last + 2]))
        return {word: self._change(int(starts[word]), int(stops[word])) for word in suspects.tolist()}

    def _change(self, start: int, stop: int) -> _WordChange:
        kept = [place for place in self.places[start:stop].tolist() if place >= 0]
        if not kept:
            return _WordChange("", stop - start, only_inserts=False)
        text, partners, first, last = self.text, self.partners, kept[0], kept[-1] + 1
        while first and partners[first - 1] < 0 and text[first - 1] != " ":
            first -= 1
        while last < len(text) and partners[last] < 0 and text[last] != " ":
            last += 1
        before = JOINED * (first > 0 and text[first - 1] != " ")
        after = JOINED * (last < len(text) and text[last] != " ")
        other = int(self.changed[start:stop].sum()) + len(before) + len(after)
        edits = partners[first:last].count(-1) + other
        return _WordChange(before + text[first:last] + after, edits, only_inserts=other == 0)


def _disagreement(reference: str, aligned: Sequence[_Aligned]) -> Disagreement:
    spans = [word.span() for word in _WORD.finditer(reference)]
    starts, stops = np.array(spans, dtype=int).reshape(-1, 2).T
    changed, theirs = np.stack([a.changed for a in aligned]), np.stack([a.theirs for a in aligned])
    changes = [a.changes(starts, stops) for a in aligned]
    words = _units([{word: change.text for word, change in of_text.items()} for of_text in changes], len(spans))
    one_character, only_inserts = words.disputed.copy(), words.disputed.copy()
    for word, change in (item for of_text in changes for item in of_text.items()):
        one_character[word] &= change.edits == 1
        only_inserts[word] &= change.only_inserts
    inserted = "".join(text for a in aligned for text in a.insertions.values())
    return Disagreement(
        reference,
        len(aligned),
        UnitDissent(changed.sum(axis=0), changed.all(axis=0) & (theirs == theirs[0]).all(axis=0)),
        words,
        _units([a.insertions for a in aligned], len(reference) + 1),
        spans,
        one_character,
        only_inserts,
        len(inserted),
        inserted.count(" "),
        sum(a.inserted_words for a in aligned),
    )


def _units(alternatives: Sequence[Mapping[int, str]], count: int) -> UnitDissent:
    """Compare what each annotator wrote instead of the units that the annotator changed."""
    dissent, unanimous = np.zeros(count, dtype=int), np.zeros(count, dtype=bool)
    for unit in {unit for theirs in alternatives for unit in theirs}:
        texts = [theirs.get(unit) for theirs in alternatives]
        dissent[unit] = len(texts) - texts.count(None)
        unanimous[unit] = dissent[unit] == len(texts) and len(set(texts)) == 1
    return UnitDissent(dissent, unanimous)
