"""The numbers of the story: which words the models doubt, and how many errors they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wildctc.demo.simulated_annotators import Kind, Written
from wildctc.demo.spoken_corpus import spellings
from wildctc.probe.records import read_probe
from wildctc.scoring.comparison import Comparison, compare
from wildctc.scoring.hypotheses import read_hyps


@dataclass(frozen=True)
class Suspect:
    """A word of a training transcript. doubt: how many of its letters were not said, by the model's expectation."""

    utterance: str
    written: str
    heard: str
    spoken: str
    kind: Kind
    doubt: float


def suspects(probe: Path, truth: Mapping[str, Sequence[Written]]) -> list[Suspect]:
    """All words of the probed transcripts, the most doubtful first.

    By the sum of the letters' bypass probabilities: of what was tried it told wrong words best from slips, and from
    words where the model is merely lost (docs/demo.md).
    """
    found = []
    for utterance in read_probe(probe)[1]:
        for word, known in zip(utterance.words, truth[utterance.id], strict=True):
            doubt = sum(token.bypass for token in utterance.tokens[word.first : word.last + 1] if token.text != " ")
            found.append(Suspect(utterance.id, known.written, word.heard, known.spoken, known.kind, doubt))
    return sorted(found, key=lambda suspect: -suspect.doubt)


@dataclass(frozen=True)
class ErrorRates:
    """Both systems on the test set, against what was said, and with every accepted spelling of it allowed."""

    exact: Comparison
    variants: Comparison


def error_rates(hyps: Mapping[str, Path], truth: Mapping[str, Sequence[Written]]) -> ErrorRates:
    """hyps: each system's hypothesis file. The first is what the others are compared with."""
    decoded = {name: read_hyps(path) for name, path in hyps.items()}
    ids = [item.id for item in next(iter(decoded.values()))]
    said = {id: " ".join(word.spoken for word in truth[id]) for id in ids}
    return ErrorRates(
        compare(decoded, {id: [sentence] for id, sentence in said.items()}),
        compare(decoded, {id: spellings(sentence) for id, sentence in said.items()}),
    )
