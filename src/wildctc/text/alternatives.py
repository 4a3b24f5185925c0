"""Transcripts with alternatives: `the {colour|color} is {grey|gray} {uh|}`.

A transcript is a sequence of slots. Most have one word. Others have several alternatives, each of no, one or several
words. What is glued to a group belongs to each of its alternatives: `colo{u|}r,` is `colour,` or `color,`. A backslash
before `{`, `|` or `}` takes away its meaning; a `|` outside of braces has none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

from wildctc.errors import WildCTCError
from wildctc.text.normalisation import Normalizer
from wildctc.text.variants import NOTHING, Words

MOST = 1000  # writings of one slot
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

    @classmethod
    def of(cls, found: str | Writings) -> Writings:
        """Make writings of what `Reader` has read.

        Args:
            found: A normalised text or writings.

        Returns:
            The writings; of a text, a slot for each word.
        """
        return found if isinstance(found, Writings) else cls(tuple(Slot(((w,),), (0.0,)) for w in found.split()))

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
        return escape(self.first) if self.plain else " ".join(_slot_text(slot) for slot in self.slots)


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
        The text with a backslash before each brace, and before each backslash that would take away a meaning. A text
        without braces needs none.

    >>> escape("a {b}")
    'a \\\\{b\\\\}'
    """
    return _escape_outside(text) if has_grammar(text) else text


def _escape_outside(text: str) -> str:
    """Escape a text that stands beside a group."""
    return re.sub(r"\\(?=\|)|[{}]", r"\\\g<0>", text)


def _escape_inside(text: str) -> str:
    """Escape an alternative. After a backslash at its end a space keeps the bar, or the brace, apart."""
    return re.sub(r"[{|}]", r"\\\g<0>", text) + " " * text.endswith("\\")


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
        return Writings.of(normalise(text))
    for column, chunk in _chunks(text):
        if math.prod(map(len, chunk)) > MOST:
            raise WildCTCError(f"column {column}: more than {MOST:,} writings of one word; write it in fewer ways")
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


def _slot_text(slot: Slot) -> str:
    texts = [" ".join(words) for words in slot.alternatives]
    return "{" + "|".join(map(_escape_inside, texts)) + "}" if len(texts) > 1 else _escape_outside(texts[0])
