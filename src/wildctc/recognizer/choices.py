"""Which of the alternatives of a transcript was said, and how surely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_posteriors
from wildctc.lattice.transcripts import TranscriptGraph
from wildctc.text.alternatives import Writings
from wildctc.text.segmentation import WritesLabels, make_graph, spellings
from wildctc.text.units import PhoneUnits


@dataclass(frozen=True)
class Choice:
    """A place of a transcript that has alternatives.

    Attributes:
        word: The number of the first word of what was said, in the chosen writing.
        length: How many words were said there.
        alternatives: The text of each alternative; that of the first writing is first.
        probabilities: The probability that it was said, of each alternative, if one of the writings was said.
    """

    word: int
    length: int
    alternatives: list[str]
    probabilities: list[float]

    @property
    def said(self) -> str:
        """The most probable alternative."""
        return self.alternatives[_largest(self.probabilities)]

    def __str__(self) -> str:
        """All alternatives with their probabilities, the most probable first."""
        pairs = sorted(zip(self.probabilities, self.alternatives, strict=True), key=lambda pair: -pair[0])
        return ", ".join(f"{text or '(nothing)'} {probability:.2f}" for probability, text in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Convert the choice to JSON.

        Returns:
            Its fields; probabilities have six digits.
        """
        probabilities = [float(f"{p:.6g}") for p in self.probabilities]
        return vars(self) | {"probabilities": probabilities}


@dataclass(frozen=True)
class Chosen:
    """The most probable writing of an utterance, slot by slot.

    Attributes:
        text: The writing.
        choices: The places that have alternatives.
    """

    text: str
    choices: list[Choice]


def choose_writings(
    units: WritesLabels, writings: Sequence[Writings], logits: Sequence[torch.Tensor]
) -> list[Chosen | None]:
    """Find the most probable alternative of each slot, by the posterior of plain CTC over all writings.

    Args:
        units: The units of the model.
        writings: The writings of each utterance; each has alternatives.
        logits: (T, V) of each utterance.

    Returns:
        What was chosen; None for an utterance with too few frames for any of its writings.

    Raises:
        WildCTCError: All words of an utterance can be left out.
    """
    if not writings:
        return []
    found = _probabilities([make_graph(one, units) for one in writings], logits)
    pairs = zip(writings, found, strict=True)
    return [None if shares is None else _chosen(one, _by_alternative(one, units, shares)) for one, shares in pairs]


def choose_labels(units: WritesLabels, text: str, logits: torch.Tensor) -> list[int]:
    """Give the labels of a text; of words with several pronunciations those that were most probably said.

    Args:
        units: The units of the model.
        text: The text, which the units can write.
        logits: (T, V).

    Returns:
        The labels: those of `units.encode` if no word has several pronunciations, or none of them fits.
    """
    if not isinstance(units, PhoneUnits) or not units.is_ambiguous(text):
        return units.encode(text)
    graph = make_graph(Writings.of(units.normalizer(text)), units)
    [shares] = _probabilities([graph], [logits])
    if shares is None:
        return units.encode(text)
    chosen = (slot[_largest(of_slot)] for slot, of_slot in zip(graph.slots, shares, strict=True))
    return [label for labels in chosen for label in labels]


def _probabilities(graphs: Sequence[TranscriptGraph], logits: Sequence[torch.Tensor]) -> list[list[list[float]] | None]:
    """The probability of each alternative of each slot, by plain CTC; None for an utterance with too few frames."""
    padded = torch.nn.utils.rnn.pad_sequence([x.float() for x in logits])
    post = wildcard_posteriors(padded, graphs, [len(x) for x in logits], wildcards=Wildcards())
    assert post.alternatives is not None  # there are graphs
    possible = post.log_likelihood.isfinite().tolist()
    return [shares if there else None for shares, there in zip(post.alternatives, possible, strict=True)]


def _by_alternative(writings: Writings, units: WritesLabels, shares: Sequence[Sequence[float]]) -> list[list[float]]:
    """Add up the probabilities of the spellings of each alternative."""
    found = []
    for slot, of_slot in zip(writings.slots, shares, strict=True):
        each = iter(of_slot)
        found.append([sum(next(each) for _ in spellings(words, units)) for words in slot.alternatives])
    return found


def _chosen(writings: Writings, shares: Sequence[Sequence[float]]) -> Chosen:
    numbers = [_largest(of_slot) for of_slot in shares]
    choices, word = [], 0
    for slot, of_slot, number in zip(writings.slots, shares, numbers, strict=True):
        length = len(slot.alternatives[number])
        if len(slot.alternatives) > 1:
            texts = [" ".join(words) for words in slot.alternatives]
            choices.append(Choice(word, length, texts, [min(1.0, max(0.0, p)) for p in of_slot]))
        word += length
    return Chosen(writings.choose(numbers), choices)


def _largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)
