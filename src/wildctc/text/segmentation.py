"""Writings in the units of a model: the transcript graph, whose alternatives are segmented in their context."""

from __future__ import annotations

import math
from itertools import product
from typing import Protocol

from wildctc.errors import WildCTCError
from wildctc.lattice.transcripts import TranscriptGraph
from wildctc.text.alternatives import MOST, Writings
from wildctc.text.units import PhoneUnits
from wildctc.text.variants import Words


class WritesLabels(Protocol):
    """Units: those of a model (`wildctc.text.units.Units`), or of another library's checkpoint.

    Attributes:
        tokens: label → string.
        space: The unit that stands between words; None if units that begin a word begin with ▁ instead.
    """

    tokens: list[str]
    space: str | None

    def encode(self, text: str, /) -> list[int]:
        """Convert a text to labels.

        Args:
            text: The text; all its characters are among the units.

        Returns:
            The labels.
        """
        ...


def spellings(words: Words, units: WritesLabels) -> list[list[int]]:
    """List the label sequences of an alternative: with phones all its pronunciations, otherwise one.

    Args:
        words: The words of the alternative.
        units: The units of the model.

    Returns:
        The labels of each; the first is what `units.encode` gives.

    Raises:
        WildCTCError: The units cannot write a character.
    """
    text = " ".join(words)
    first = units.encode(text)
    if not isinstance(units, PhoneUnits):
        return [first]
    several = units.alternatives(text)
    if math.prod(map(len, several)) > MOST:
        return [first]
    return [[label for labels in path for label in labels] for path in product(*several)]


def make_graph(writings: Writings, units: WritesLabels) -> TranscriptGraph:
    """Make the graph of a transcript. Each path has the labels that its text would have alone.

    Pieces never go over the end of a word, so a word has the same pieces in every sentence. With characters, the space
    before a word is the first token of the word. Of words at the beginning that can be left out it is the last, since
    what follows them may be the first word.

    Args:
        writings: All writings (see `Reader`).
        units: The units of the model.

    Returns:
        The graph, with a slot for each slot of the writings. Its alternatives are those of the writings, each as often
        as it has `spellings`.

    Raises:
        WildCTCError: The units cannot write a character, or all words can be left out.

    >>> from wildctc.text.alternatives import parse_text
    >>> from wildctc.text.normalisation import Normalizer
    >>> from wildctc.text.units import CharUnits
    >>> units = CharUnits.train(["abc"], Normalizer())  # space 1, a 2, b 3, c 4
    >>> print(make_graph(parse_text("{a|} b {c|a a}"), units))
    {2 1|} 3 {1 4|1 2 1 2}
    """
    space = [] if units.space is None else [units.tokens.index(units.space)]
    slots, weights, begun = [], [], False
    for slot in writings.slots:
        rows, each = [], []
        for words, weight in zip(slot.alternatives, slot.weights, strict=True):
            for labels in spellings(words, units):
                if words and begun:
                    labels = space + labels
                elif words and slot.optional:
                    labels = labels + space
                rows.append(labels)
                each.append(weight)
        begun = begun or not slot.optional
        slots.append(rows)
        weights.append(each)
    if not begun:
        raise WildCTCError("all words can be left out; at least one must have no empty alternative")
    return TranscriptGraph.from_slots(slots, weights)
