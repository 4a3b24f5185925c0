"""Transcripts with alternatives: `the {colour|color} is {grey|gray} {uh|}`, and several transcripts of one utterance.

A transcript is a sequence of slots. Most have one word. Others have several alternatives, each of no, one or several
words. What is glued to a group belongs to each of its alternatives: `colo{u|}r,` is `colour,` or `color,`. A backslash
before `{`, `|` or `}` takes away its meaning; a `|` outside of braces has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

from wildctc.errors import WildCTCError
from wildctc.lattice.slots import aligned_slots
from wildctc.text.normalisation import Normalizer
from wildctc.text.variants import NOTHING, Variants, Words

_MOST = 1000  # writings of one slot
_Chunk: TypeAlias = list[list[str]]  # what stands between two spaces: parts, each with its alternatives


class Slot(NamedTuple):
    """A place of a transcript.

    Attributes:
        alternatives: What may be written there, each a sequence of words. () means that nothing need be written.
        weights: The log-weight of each alternative.
    """

    alternatives: tuple[Words, ...]
    weights: tuple[float, ...]

    @property
    def optional(self) -> bool:
        """Whether it can be left out."""
        return NOTHING in self.alternatives


@dataclass(frozen=True)
class Writings:
    """All acceptable writings of one utterance. The first writing has the first alternative of each slot.

    Attributes:
        slots: The places, from left to right.

    >>> found = parse_text("the {colour|color} is {going to|gonna} fade {uh|}")
    >>> found.first, found.choose([0, 1, 0, 1, 0, 1])
    ('the colour is going to fade uh', 'the color is gonna fade')
    """

    slots: tuple[Slot, ...]

    @property
    def plain(self) -> bool:
        """Whether there is only one writing."""
        return all(len(slot.alternatives) == 1 for slot in self.slots)

    @cached_property
    def first(self) -> str:
        """The first writing."""
        return self.choose([0] * len(self.slots))

    def choose(self, numbers: Sequence[int]) -> str:
        """Give one of the writings.

        Args:
            numbers: The number of an alternative for each slot.

        Returns:
            The text.
        """
        chosen = (slot.alternatives[n] for slot, n in zip(self.slots, numbers, strict=True))
        return " ".join(word for words in chosen for word in words)

    def __str__(self) -> str:
        """The writings as `parse_text` reads them, without weights."""
        return " ".join(_slot_text(slot) for slot in self.slots)


@dataclass(frozen=True)
class Reader:
    """Reads the transcript of an utterance, or several, into one form: a normalised text, or `Writings`.

    Attributes:
        normalizer: Applied to every alternative.
        variants: Words that are the same word, written differently; None: each is its own.
        shares: Whether alternatives of several transcripts have the logarithm of their share of the transcripts as
            weight. If not, it is 0.

    >>> read = Reader(Normalizer(lower=True), Variants.of(["colour", "color"]))
    >>> str(read("The colour {grey|GRAY}")), read("The sky")
    ('the {colour|color} {grey|gray}', 'the sky')
    >>> str(read("", ["The colour", "the collar", "color"]))
    '{the|} {colour|color|collar}'
    """

    normalizer: Normalizer
    variants: Variants | None = None
    shares: bool = False

    def __call__(self, text: str, texts: Sequence[str] = ()) -> str | Writings:
        """Read a transcript.

        Args:
            text: The transcript.
            texts: Several transcripts of the utterance, which are read in its place if there are any.

        Returns:
            The normalised text if there is only one writing; otherwise all writings.

        Raises:
            WildCTCError: A transcript does not follow the grammar. The message names the column.
        """
        given = list(texts) or [text]
        if len(given) == 1 and not has_grammar(given[0]):
            normal = self.normalizer(given[0])
            if self.variants is None or not self.variants.touch(normal):
                return normal
        parsed = [parse_text(one, self.normalizer) for one in given]
        found = self._aligned(parsed) if len(parsed) > 1 else parsed[0]
        if self.variants is not None and len(parsed) == 1:
            found = _with_variants(found, self.variants)
        return found.first if found.plain else found

    def _aligned(self, parsed: Sequence[Writings]) -> Writings:
        """Align several transcripts word by word; the words of a phrase that has variants count as one."""
        for number, writings in enumerate(parsed):
            if not writings.plain:
                raise WildCTCError(
                    f"transcript {number + 1} of {len(parsed)} has alternatives in braces; where an utterance has "
                    "several transcripts, list each writing as one of them, or use a file of variants"
                )
        variants = self.variants or Variants()
        units = [list(variants.units(writings.first.split())) for writings in parsed]
        own = iter(units[0])
        slots = []
        for slot in aligned_slots([[variants.representative(unit) for unit in row] for row in units]):
            found: dict[Words, float] = {}
            for n, (words, count) in enumerate(slot.items()):
                written = next(own) if n == 0 and words else words  # as the first transcript writes it
                weight = math.log(count / len(parsed)) if self.shares else 0.0
                for other in variants.of_phrase(written):
                    found.setdefault(other, weight)
            slots.append(Slot(tuple(found), tuple(found.values())))
        return Writings(tuple(slots))


def has_grammar(text: str) -> bool:
    """Tell whether a text has a character of the grammar.

    Args:
        text: The text.

    Returns:
        True if it has a brace.
    """
    return "{" in text or "}" in text


def escape(text: str) -> str:
    """Write a text so that its braces have no meaning.

    Args:
        text: Any text.

    Returns:
        The text with a backslash before each brace.

    >>> escape("a {b}")
    'a \\\\{b\\\\}'
    """
    return text.replace("{", "\\{").replace("}", "\\}")


def grammar_text(found: str | Writings) -> str:
    """Write what `Reader` has read, so that it can be read again.

    Args:
        found: A text or writings.

    Returns:
        The text in the grammar of this module, without weights.
    """
    return escape(found) if isinstance(found, str) else str(found)


def first_writing(found: str | Writings) -> str:
    """Give the first writing of what `Reader` has read.

    Args:
        found: A text or writings.

    Returns:
        A text.
    """
    return found if isinstance(found, str) else found.first


def every_word(found: str | Writings) -> str:
    """Give all words of what `Reader` has read: what units must be able to write.

    Args:
        found: A text or writings.

    Returns:
        The first writing, followed by all other alternatives.
    """
    if isinstance(found, str):
        return found
    others = (" ".join(words) for slot in found.slots for words in slot.alternatives[1:])
    return " ".join([found.first, *filter(None, others)])


def normalise_text(text: str, normalizer: Normalizer) -> str:
    """Normalise a transcript that may have alternatives, and keep these.

    Args:
        text: The transcript.
        normalizer: Applied to every alternative.

    Returns:
        The normalised transcript, in the grammar of this module.

    Raises:
        WildCTCError: The transcript does not follow the grammar.

    >>> normalise_text("Hello, {World|Earth}!", Normalizer(lower=True, strip_punctuation=True))
    'hello {world|earth}'
    """
    return str(parse_text(text, normalizer)) if has_grammar(text) else normalizer(text)


def parse_text(text: str, normalizer: Normalizer | None = None) -> Writings:
    """Parse a transcript with alternatives.

    Args:
        text: The transcript.
        normalizer: Applied to every alternative; None: only spaces are normalised.

    Returns:
        Its writings.

    Raises:
        WildCTCError: A brace has no partner, alternatives are nested, or a word has too many. The message names the
            column, from 1.
    """
    slots = []
    normalise = normalizer or Normalizer()
    if not has_grammar(text):
        return Writings(tuple(Slot(((word,),), (0.0,)) for word in normalise(text).split()))
    for column, chunk in _chunks(text):
        if math.prod(map(len, chunk)) > _MOST:
            raise WildCTCError(f"column {column}: more than {_MOST:,} writings of one word; write it in fewer ways")
        several = dict.fromkeys(tuple(normalise("".join(parts)).split()) for parts in product(*chunk))
        if len(several) == 1:
            slots += [Slot(((word,),), (0.0,)) for words in several for word in words]
        else:
            slots.append(Slot(tuple(several), (0.0,) * len(several)))
    return Writings(tuple(slots))


def _chunks(text: str) -> Iterator[tuple[int, _Chunk]]:
    """What stands between spaces that are not inside braces, each with its column."""
    chunk: _Chunk = []
    opened = begun = 0  # columns, from 1
    i = 0
    while i < len(text):
        char, column = text[i], i + 1
        i += 1
        begun = begun if chunk else column
        if char == "\\" and text[i : i + 1] in ("{", "|", "}"):
            char, i, special = text[i], i + 1, False
        else:
            special = char in "{}" or (char == "|" and opened > 0)
        if special:
            opened = _bracket(char, column, opened, chunk)
        elif char.isspace() and not opened:
            if chunk:
                yield begun, chunk
            chunk = []
            continue
        elif opened:
            chunk[-1][-1] += char
        else:
            chunk.append([char])
    if opened:
        raise WildCTCError(f"column {opened}: {{ is not closed; write \\{{ for the character itself")
    if chunk:
        yield begun, chunk


def _bracket(char: str, column: int, opened: int, chunk: _Chunk) -> int:
    """Take a brace or a bar; returns the column of the group that is open, 0 for none."""
    if char == "|":
        chunk[-1].append("")
        return opened
    if char == "{":
        if opened:
            raise WildCTCError(
                f"column {column}: {{ inside the group of column {opened}; groups cannot be nested, list all "
                "alternatives in one, or write \\{ for the character itself"
            )
        chunk.append([""])
        return column
    if not opened:
        raise WildCTCError(f"column {column}: }} without {{; write \\}} for the character itself")
    if chunk[-1] == [""]:
        raise WildCTCError(f"column {opened}: nothing in the braces; write {{word|}} for a word that may be left out")
    return 0


def _with_variants(found: Writings, variants: Variants) -> Writings:
    """Add the variants of every word and phrase."""
    slots: list[Slot] = []
    run: list[str] = []  # words of neighbouring slots that have no alternatives: a phrase may go over several

    def end_run() -> None:
        for unit in variants.units(run):
            several = variants.of_phrase(unit)
            slots.append(Slot(several, (0.0,) * len(several)))
        run.clear()

    for slot in found.slots:
        if len(slot.alternatives) == 1:
            run += slot.alternatives[0]
            continue
        end_run()
        several: dict[Words, float] = {}
        for words, weight in zip(slot.alternatives, slot.weights, strict=True):
            each = [variants.of_phrase(unit) for unit in variants.units(words)]
            if math.prod(map(len, each)) > _MOST:
                each = [(unit,) for unit in variants.units(words)]
            for parts in product(*each):
                several.setdefault(tuple(word for part in parts for word in part), weight)
        slots.append(Slot(tuple(several), tuple(several.values())))
    end_run()
    return Writings(tuple(slots))


def _slot_text(slot: Slot) -> str:
    texts = [escape(" ".join(words)).replace("|", "\\|") for words in slot.alternatives]
    if len(texts) > 1:
        return "{" + "|".join(texts) + "}"
    return texts[0].replace("\\|", "|")
