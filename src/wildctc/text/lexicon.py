"""Pronunciations of words, as Kaldi's lexicon.txt and CMUdict have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.json_lines import read_lines

Lexicon = dict[str, list[list[str]]]  # word → its pronunciations, each a list of phones
_VARIANT = re.compile(r"\(\d+\)$")  # CMUdict numbers the further pronunciations of a word


def read_lexicon(path: str | Path, normalize: Callable[[str], str]) -> Lexicon:
    """Read a lexicon.

    Args:
        path: A word and its phones on each line, with spaces or a tab between. A word may have several lines. Lines
            that begin with ;;; are comments.
        normalize: How transcripts are normalised; words are normalised likewise.

    Returns:
        The pronunciations of each word, in the order of the file.

    Raises:
        WildCTCError: The file cannot be read, a word has no phones, or nothing is in it.
    """
    found: Lexicon = {}
    for number, line in read_lines(path):
        if line.startswith(";;;"):
            continue
        written, *phones = line.split("#")[0].split() if " # " in line else line.split()
        word = normalize(_VARIANT.sub("", written))
        if not phones:
            raise WildCTCError(f"{path}:{number}: {written!r} has no phones; a line is a word and its phones")
        if bad := [p for p in phones if "▁" in p or p.startswith("<")]:
            raise WildCTCError(f"{path}:{number}: {bad[0]!r} cannot be the name of a phone")
        if re.fullmatch(r"[\d.]+", phones[0]):
            raise WildCTCError(f"{path}:{number}: {phones[0]} is a probability: give lexicon.txt, not lexiconp.txt")
        if word and " " not in word and phones not in found.setdefault(word, []):
            found[word].append(phones)
    if not found:
        raise WildCTCError(f"{path}: no pronunciations in it")
    return found
