"""Variants: words and phrases that are the same, written differently, from a file that a person wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from wildctc.errors import WildCTCError
from wildctc.json_lines import read_lines
from wildctc.text.normalisation import Normalizer

Words: TypeAlias = tuple[str, ...]
NOTHING: Words = ()


@dataclass(frozen=True)
class Variants:
    """Groups of phrases. Each phrase is in one group only.

    Attributes:
        groups: The groups, each with its phrases in the order of the file. NOTHING among them means that the others may
            be left out.
        names: What a group is called in messages: file and line.
    """

    groups: tuple[tuple[Words, ...], ...] = ()
    names: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, *groups: Sequence[str]) -> Variants:
        """Make variants from texts.

        Args:
            groups: Each a list of phrases.

        Returns:
            The variants.

        >>> Variants.of(["gonna", "going to"]).of_phrase(("gonna",))
        (('gonna',), ('going', 'to'))
        """
        return cls(tuple(tuple(tuple(phrase.split()) for phrase in group) for group in groups))

    @cached_property
    def _group(self) -> Mapping[Words, int]:
        return {phrase: n for n, group in enumerate(self.groups) for phrase in group if phrase}

    @cached_property
    def _lengths(self) -> Mapping[str, list[int]]:
        """The first word of a phrase → the numbers of words of such phrases, the largest first."""
        found: dict[str, set[int]] = {}
        for phrase in self._group:
            found.setdefault(phrase[0], set()).add(len(phrase))
        return {word: sorted(lengths, reverse=True) for word, lengths in found.items()}

    def touch(self, text: str) -> bool:
        """Tell quickly whether a text may have a phrase with variants.

        Args:
            text: A normalised text.

        Returns:
            False if no phrase begins with any of its words.
        """
        return not self._lengths.keys().isdisjoint(text.split())

    def units(self, words: Sequence[str]) -> Iterator[Words]:
        """Cut a text into phrases that have variants, the longest possible from left to right, and other words.

        Args:
            words: The words of the text.

        Yields:
            The phrases, and the words between them.

        >>> list(Variants.of(["going to", "gonna"]).units("i am going to go".split()))
        [('i',), ('am',), ('going', 'to'), ('go',)]
        """
        i = 0
        while i < len(words):
            lengths = (n for n in self._lengths.get(words[i], ()) if tuple(words[i : i + n]) in self._group)
            n = next(lengths, 1)
            yield tuple(words[i : i + n])
            i += n

    def of_phrase(self, phrase: Words) -> tuple[Words, ...]:
        """List the variants of a phrase.

        Args:
            phrase: Its words.

        Returns:
            The phrase itself, followed by its variants.
        """
        group = self._group.get(phrase)
        return (phrase,) if group is None else (phrase, *(other for other in self.groups[group] if other != phrase))

    def representative(self, phrase: Words) -> Words:
        """Give the phrase that stands for all variants of a phrase.

        Args:
            phrase: Its words.

        Returns:
            The first phrase of its group that is not empty; the phrase itself if it has no variants.
        """
        group = self._group.get(phrase)
        return phrase if group is None else next(filter(None, self.groups[group]))

    def normalised(self, normalizer: Normalizer) -> Variants:
        """Normalise the phrases as transcripts are normalised.

        Args:
            normalizer: The normaliser.

        Returns:
            The variants. Phrases that become equal are one; groups of which one phrase remains are left out.

        Raises:
            WildCTCError: A phrase is now in two groups.
        """
        groups, names = [], []
        for n, group in enumerate(self.groups):
            phrases = [tuple(normalizer(" ".join(phrase)).split()) for phrase in group]
            kept = dict.fromkeys(new for old, new in zip(group, phrases, strict=True) if new or not old)
            if len(kept) > 1:
                groups.append(tuple(kept))
                names.append(self.names[n] if self.names else f"group {n + 1}")
        _check_apart(groups, names)
        return Variants(tuple(groups), tuple(names))


def read_variants(path: str | Path) -> Variants:
    """Read a file of variants.

    Args:
        path: A text file. A line has words that are the same word, `colour color`, or phrases with = between them,
            `gonna = going to`; `uh =` says that uh may be left out. # begins a comment.

    Returns:
        The variants.

    Raises:
        WildCTCError: A line has fewer than two variants, or a phrase is in two lines. The message names file and line.
    """
    groups: list[tuple[Words, ...]] = []
    names: list[str] = []
    for number, phrases in variant_lines(path):
        where, line = f"{path}:{number}", " ".join(word for phrase in phrases for word in phrase)
        if bad := next((char for char in "{|}" if char in line), None):
            raise WildCTCError(f"{where}: {bad} has no meaning here; write variants with spaces or = between them")
        if len(set(phrases)) < len(phrases):
            twice = next(p for p in phrases if phrases.count(p) > 1)
            raise WildCTCError(f"{where}: {' '.join(twice) or 'nothing'!r} is there twice")
        if len(phrases) < 2 or not any(phrases):
            raise WildCTCError(
                f"{where}: a line needs at least two variants, `colour color` or `gonna = going to`, got {line!r}"
            )
        groups.append(tuple(phrases))
        names.append(where)
    if not groups:
        raise WildCTCError(f"{path}: no variants in it; a line is `colour color` or `gonna = going to`")
    _check_apart(groups, names)
    return Variants(tuple(groups), tuple(names))


def variant_lines(path: str | Path) -> Iterator[tuple[int, list[Words]]]:
    """Read the lines of a file of variants, without checking them.

    Args:
        path: The file, as in `read_variants`.

    Yields:
        The number of the line, and its phrases.
    """
    for number, line in read_lines(path):
        line = line.split("#", 1)[0].strip()
        if line:
            yield number, [tuple(part.split()) for part in (line.split("=") if "=" in line else line.split())]


def _check_apart(groups: Sequence[Sequence[Words]], names: Sequence[str]) -> None:
    seen: dict[Words, str] = {}
    for group, name in zip(groups, names, strict=True):
        for phrase in filter(None, group):
            if phrase in seen:
                raise WildCTCError(
                    f"{name}: {' '.join(phrase)!r} is in {seen[phrase]} too; put all its variants into one line"
                )
            seen[phrase] = name
