"""Put known errors into transcripts, to measure how well an audit finds them and how training copes with them.

Edits never touch: between two edits there is always unchanged text. Each edit is therefore exactly where it says, and
the original text follows from the corrupted text and its edits. A character is a grapheme cluster, so that vowel signs
and accents stay with their letter and conjuncts stay whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.text.normalisation import Normalizer
from wildctc.text.variants import variant_lines

CHARACTER_KINDS = ("substitution", "insertion", "deletion")
WORD_KINDS = (*CHARACTER_KINDS, "join", "split")
_log = logging.getLogger(__name__)
_TRIES = 30  # draws of a replacement before the rest of the corpus is searched one by one


@dataclass(frozen=True)
class Edit:
    """One change of a text.

    Attributes:
        kind: substitution, insertion, deletion, join, split or variant.
        begin: Where `written` begins in the corrupted text, in code points.
        stop: Where it stops.
        written: What is in the corrupted text.
        truth: What was there before.
    """

    kind: str  # substitution, insertion, deletion, join, split or variant
    begin: int
    stop: int
    written: str
    truth: str


@dataclass(frozen=True)
class Corrupted:
    """A corrupted text.

    Attributes:
        text: The text with errors.
        edits: The changes, from left to right.
    """

    text: str
    edits: list[Edit]


def corrupt(
    texts: Sequence[str],
    *,
    characters: float = 0.0,
    words: float = 0.0,
    variants: Mapping[str, Sequence[str]] | None = None,
    variant_rate: float = 0.0,
    character_kinds: Sequence[str] = CHARACTER_KINDS,
    word_kinds: Sequence[str] = WORD_KINDS,
    seed: int = 0,
) -> list[Corrupted]:
    """Put errors into texts, at exact rates and at random places.

    Each rate times the number of units in the whole corpus is rounded to a number of errors. Their places are drawn
    without replacement; the kind of each error is drawn from the kinds that are possible at its place. New characters
    and words are drawn from the corpus, as often as they occur there. They never equal the original, and an inserted
    one differs from both neighbours.

    Args:
        texts: Normalised texts: NFC, single spaces.
        characters: The share of all characters, without spaces, that get an error.
        words: The share of all words that get an error.
        variants: For each spelling, other spellings of the same word.
        variant_rate: The share of the words in `variants` that are replaced by another spelling.
        character_kinds: The kinds of errors in characters.
        word_kinds: The kinds of errors in words.
        seed: Decides places, kinds and replacements.

    Returns:
        One corrupted text for each text, in the same order.

    Raises:
        WildCTCError: A rate is too high for errors that do not touch, or a text is not normalised.

    >>> [one, two] = corrupt(["the cat sat", "on the mat"], words=0.33, word_kinds=["join"], seed=1)
    >>> one.text, one.edits
    ('the catsat', [Edit(kind='join', begin=7, stop=7, written='', truth=' ')])
    >>> restore(one.text, one.edits)
    'the cat sat'
    """
    rng = np.random.default_rng(seed)
    drafts = [_Draft(text) for text in texts]
    passes: list[tuple[str, float, list[_Unit], Sequence[str], _Pool]] = []
    if words:
        units = [(draft, span) for draft in drafts for span in draft.words]
        passes.append(("words", words, units, word_kinds, _Pool(_written(*unit) for unit in units)))
    if variants and variant_rate:
        units = [(draft, span) for draft in drafts for span in draft.words if _written(draft, span) in variants]
        passes.append(("variant_rate", variant_rate, units, ["variant"], _Pool([])))
    if characters:
        units = [(draft, span) for draft in drafts for span in draft.characters]
        passes.append(("characters", characters, units, character_kinds, _Pool(_written(*unit) for unit in units)))
    for name, rate, units, kinds, pool in passes:
        hits = round(_checked_rate(name, rate) * len(units))
        if not hits:
            _log.warning("%s %g of %s is less than half an edit: there will be none", name, rate, f"{len(units):,}")
        done = _hit(units, hits, kinds, _Draw(rng, pool, variants or {}, whole_words=name == "words"))
        if done < hits:
            raise WildCTCError(
                f"{name} {rate:g}: only {done:,} of {hits:,} hits found a place where they touch no other edit and "
                f"{', '.join(kinds)} is possible: lower the rate, or allow more kinds"
            )
    return [draft.finish() for draft in drafts]


def restore(text: str, edits: Sequence[Edit]) -> str:
    """Undo the edits of a corrupted text.

    Args:
        text: The corrupted text.
        edits: Its edits, from left to right. They are undone from right to left, so that places stay valid.

    Returns:
        The original text.
    """
    for edit in reversed(edits):
        text = text[: edit.begin] + edit.truth + text[edit.stop :]
    return text


def read_variants(path: str, normalizer: Normalizer) -> dict[str, list[str]]:
    """Read spelling variants, in the format of `wildctc.text.variants`.

    Args:
        path: The file.
        normalizer: Normalises each spelling.

    Returns:
        For each spelling the other ones, from all lines that contain it.

    Raises:
        WildCTCError: A line has fewer than two different spellings.
    """
    variants: dict[str, list[str]] = {}
    for number, phrases in variant_lines(path):
        if not all(phrases):
            continue  # what may be left out is no other spelling
        spellings = [normalizer(" ".join(phrase)) for phrase in phrases]
        if len(set(spellings)) < 2:
            told = " ".join(spellings)
            raise WildCTCError(f"{path}:{number}: expected two or more different spellings of a word, got {told!r}")
        for word in spellings:
            known = variants.setdefault(word, [])
            known += [other for other in spellings if other != word and other not in known]
    return variants


def clusters(text: str) -> list[str]:
    r"""Split a text into grapheme clusters. Indic conjuncts stay whole, as in Unicode 15.1 and later.

    Args:
        text: Any text.

    Returns:
        The clusters; joined, they are the text.

    >>> [len(cluster) for cluster in clusters("क्षि e\u0301")]
    [4, 1, 2]
    """
    return _cluster_pattern().findall(text)


@cache
def _cluster_pattern() -> Any:
    try:
        import regex
    except ImportError:
        raise MissingExtra("regex", "audit") from None
    # \X ends a cluster after a virama (of the scripts where it forms conjuncts); a consonant after it belongs to it
    return regex.compile(r"(?:\X(?<=[\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d]\u200d?)(?=\p{L}))*\X")


# ----------------------------------------------------------------------------------------------------- texts in pieces

_Span = tuple[int, int]  # of a draft's pieces


class _Draft:
    """A text in pieces (characters and spaces), and the edits chosen for it so far."""

    def __init__(self, text: str) -> None:
        self.pieces: list[str] = []
        self.words: list[_Span] = []
        for word in text.split():
            if self.words:
                self.pieces.append(" ")
            self.words.append((len(self.pieces), len(self.pieces) + len(parts := clusters(word))))
            self.pieces += parts
        if "".join(self.pieces) != text:
            raise WildCTCError(f"not normalised (NFC, single spaces): {text!r}")
        self.characters = [(i, i + 1) for begin, stop in self.words for i in range(begin, stop)]
        self.edits: list[tuple[int, int, str, str]] = []  # pieces begin:stop become written; its kind
        self._taken: set[int] = set()  # 2i + 1: piece i; 2i: the place before it

    def before(self, begin: int) -> str:
        return self.pieces[begin - 1] if begin else ""

    def after(self, stop: int) -> str:
        return self.pieces[stop] if stop < len(self.pieces) else ""

    def free(self, begin: int, stop: int) -> bool:
        return self._taken.isdisjoint(range(2 * begin, 2 * stop + 1))

    def add(self, begin: int, stop: int, written: str, kind: str) -> bool:
        """Note an edit, if it touches no other and leaves the characters beside it what they are."""
        neighbours = [self.before(begin), written, self.after(stop)]
        parts = [part for piece in neighbours for part in clusters(piece)]
        if not self.free(begin, stop) or clusters("".join(neighbours)) != parts:
            return False
        self._taken.update(range(2 * begin, 2 * stop + 1))
        self.edits.append((begin, stop, written, kind))
        return True

    def finish(self) -> Corrupted:
        text, edits, done = "", [], 0
        for begin, stop, written, kind in sorted(self.edits):
            text += "".join(self.pieces[done:begin])
            edits.append(Edit(kind, len(text), len(text) + len(written), written, "".join(self.pieces[begin:stop])))
            text, done = text + written, stop
        return Corrupted(text + "".join(self.pieces[done:]), edits)


_Unit = tuple[_Draft, _Span]


def _written(draft: _Draft, span: _Span) -> str:
    return "".join(draft.pieces[slice(*span)])


# ------------------------------------------------------------------------------------------------------- drawing edits


class _Pool:
    """What can be written: the corpus's own characters or words, drawn as often as they occur."""

    def __init__(self, running: Iterable[str]) -> None:
        self.running = list(running)
        self.distinct = sorted(set(self.running))

    def draw(self, rng: np.random.Generator, *forbidden: str) -> str | None:
        for _ in range(_TRIES):
            if (drawn := self.running[rng.integers(len(self.running))]) not in forbidden:
                return drawn
        left = [item for item in self.distinct if item not in forbidden]
        return left[rng.integers(len(left))] if left else None


@dataclass(frozen=True)
class _Draw:
    """What random edits are made with; each kind is a method that tries one on a unit and says whether it could."""

    rng: np.random.Generator
    pool: _Pool
    variants: Mapping[str, Sequence[str]]
    whole_words: bool

    def substitution(self, draft: _Draft, begin: int, stop: int) -> bool:
        new = self.pool.draw(self.rng, _written(draft, (begin, stop)))
        return new is not None and draft.add(begin, stop, new, "substitution")

    def insertion(self, draft: _Draft, begin: int, stop: int) -> bool:
        before = bool(self.rng.integers(2))
        unit, beside = _written(draft, (begin, stop)), self._beside(draft, begin, stop)
        new = self.pool.draw(self.rng, unit, beside[0] if before else beside[1])
        if new is None:
            return False
        place = begin if before else stop
        if self.whole_words:  # with the space before it, or at the start of the text with the one after it
            new = " " + new if place else new + " "
            place -= before and place > 0
        return draft.add(place, place, new, "insertion")

    def deletion(self, draft: _Draft, begin: int, stop: int) -> bool:
        if (begin, stop) in (draft.words if not self.whole_words else [(0, len(draft.pieces))]):
            return False  # no word would be left, or no text
        if _written(draft, (begin, stop)) in self._beside(draft, begin, stop):
            return False  # nobody could tell which of the two went
        if self.whole_words:  # with the space before it, or after it where it is the first
            begin, stop = (begin - 1, stop) if begin else (begin, stop + 1)
        return draft.add(begin, stop, "", "deletion")

    def _beside(self, draft: _Draft, begin: int, stop: int) -> tuple[str, str]:
        """The units before and after one, "" where there is none."""
        if not self.whole_words:
            return draft.before(begin), draft.after(stop)
        last, first = ([w for w in draft.words if w[1] == begin - 1], [w for w in draft.words if w[0] == stop + 1])
        return "".join(_written(draft, word) for word in last), "".join(_written(draft, word) for word in first)

    def join(self, draft: _Draft, begin: int, stop: int) -> bool:
        space = (begin - 1, stop)[self.rng.integers(2)]
        return 0 <= space < len(draft.pieces) and draft.add(space, space + 1, "", "join")

    def split(self, draft: _Draft, begin: int, stop: int) -> bool:
        if stop - begin < 2:
            return False
        place = int(self.rng.integers(begin + 1, stop))
        return draft.add(place, place, " ", "split")

    def variant(self, draft: _Draft, begin: int, stop: int) -> bool:
        others = self.variants[_written(draft, (begin, stop))]
        return draft.add(begin, stop, others[int(self.rng.integers(len(others)))], "variant")


def _hit(units: Sequence[_Unit], hits: int, kinds: Sequence[str], draw: _Draw) -> int:
    """Edit units in random order until there are enough; returns how many there are."""
    done = 0
    for index in draw.rng.permutation(len(units)):
        if done == hits:
            break
        draft, (begin, stop) = units[index]
        done += any(getattr(draw, kinds[k])(draft, begin, stop) for k in draw.rng.permutation(len(kinds)))
    return done


def _checked_rate(name: str, rate: float) -> float:
    if not 0 <= rate <= 1:
        raise WildCTCError(f"{name} must be a share between 0 and 1, got {rate:g}")
    return rate
