"""Find the reason for error rates near 100%: references that the model cannot write, or a model that learnt nothing.

A model that writes only small letters cannot write references with capitals, digits or another script. Before an option
such as `--lower` is advised, the references are scored with it, to see whether it helps.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from wildctc.scoring.error_rates import AS_WRITTEN, Errors, Score, score
from wildctc.scoring.hypotheses import Decoded
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import name_characters
from wildctc.text.variants import Variants

_HOPELESS_WER = 0.95  # from this word error rate on, a model has learnt next to nothing
_FEWEST_WORDS = 10  # with fewer words of references, a model is not judged
HEARS_NOTHING = (
    "the model recognises next to nothing of this speech, so what it doubts says nothing about the transcripts"
)
_NAMED = 5  # the most characters that a message names
# What can be advised, from the smallest change to the largest.
_OPTIONS = {
    "--lower": Normalizer(lower=True),
    "--strip-punctuation": Normalizer(strip_punctuation=True),
    "--lower --strip-punctuation": Normalizer(lower=True, strip_punctuation=True),
}


class Outside(NamedTuple):
    """Characters that cannot be written.

    Attributes:
        texts: How many texts have such characters.
        characters: The characters, most frequent first.
    """

    texts: int
    characters: list[str]

    def __str__(self) -> str:
        more = f" and {len(self.characters) - _NAMED} more" if len(self.characters) > _NAMED else ""
        return name_characters(self.characters[:_NAMED]) + more


def find_outside(texts: Iterable[str], missing: Callable[[str], list[str]]) -> Outside:
    """Count the texts with characters that cannot be written.

    Args:
        texts: The texts.
        missing: Gives the characters of a text that cannot be written.

    Returns:
        How many texts have such characters, and which.

    >>> outside = find_outside(["Hi", "ho", "A1"], lambda text: [c for c in text if not c.islower()])
    >>> outside.texts, str(outside)
    (2, 'H (U+0048), A (U+0041), 1 (U+0031)')
    """
    counts: dict[str, int] = {}
    found = 0
    for text in texts:
        characters = missing(text)
        found += bool(characters)
        for char in characters:
            counts[char] = counts.get(char, 0) + 1
    return Outside(found, sorted(counts, key=lambda char: -counts[char]))


def in_no_hypothesis(hypotheses: Iterable[str]) -> Callable[[str], list[str]]:
    """Guess from its hypotheses which characters a model cannot write.

    Args:
        hypotheses: What the model wrote.

    Returns:
        A function for `find_outside`: the characters of a text whose kind (capitals, digits, punctuation, a script)
        occurs in no hypothesis. If the model wrote nothing, no character is missing.
    """
    written = {_kind(char) for char in set().union(*hypotheses)}
    if not written:
        return lambda text: []
    known = functools.cache(lambda char: _kind(char) in written | {""})  # texts have few different characters
    return lambda text: [char for char in dict.fromkeys(text) if not known(char)]


def _kind(char: str) -> str:
    """Give the kind of a character: digits, punctuation, or a script with its case; "" for any other.

    >>> _kind("A"), _kind("é"), _kind("7"), _kind("?"), _kind("ж"), _kind(" ")
    ('LATIN Lu', 'LATIN Ll', 'N', 'P', 'CYRILLIC Ll', '')
    """
    category = unicodedata.category(char)
    if category[0] == "L":
        return f"{unicodedata.name(char, '').partition(' ')[0]} {category}"
    return category[0] if category[0] in "NP" else ""


def advise_scoring(
    decoded: Sequence[Decoded],
    references: Mapping[str, Sequence[str]] | None = None,
    given: Normalizer = AS_WRITTEN,
    variants: Variants | None = None,
) -> tuple[str, Score]:
    """Find the options of `wildctc score` that give the lowest word error rate.

    Args:
        decoded: The hypotheses.
        references: Texts by utterance id. None: the hypotheses' own references.
        given: The options that the user gave.
        variants: As in `score`.

    Returns:
        The options, or "" if none is better than `given`; and the score with them.
    """
    if references is not None:
        references = {item.id: references[item.id] for item in decoded}
    best, found = "", score(decoded, references, given, variants)
    for option, normalizer in _OPTIONS.items():
        lower, strip = (getattr(normalizer, name) or getattr(given, name) for name in ("lower", "strip_punctuation"))
        tried = score(decoded, references, replace(given, lower=lower, strip_punctuation=strip), variants)
        if tried.wer < found.wer:
            best, found = option, tried
    return best, found


def advise_reading(texts: Sequence[str], missing: Callable[[str], list[str]]) -> tuple[str, int]:
    """Find the options with which the fewest texts have characters that cannot be written.

    Args:
        texts: The texts.
        missing: Gives the characters of a text that cannot be written.

    Returns:
        The options, or "" if none helps; and how many texts still have such characters with them.
    """
    best, least = "", find_outside(texts, missing).texts
    for option, normalizer in _OPTIONS.items():
        if (left := find_outside(map(normalizer, texts), missing).texts) < least:
            best, least = option, left
    return best, least


def hopeless(words: Errors) -> bool:
    """Decide whether a model recognises next to nothing.

    Args:
        words: Its word errors.

    Returns:
        True if almost every word is wrong. False also if there are too few words to decide.
    """
    return words.reference >= _FEWEST_WORDS and words.rate >= _HOPELESS_WER
