"""Compute the demo's numbers: which words the models doubt, and how many errors they make."""

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
    """A word of a training transcript.

    Attributes:
        utterance: The utterance's id.
        written: The word in the transcript.
        heard: What the model recognises there.
        spoken: The word that was said.
        kind: How it was written: right, another spelling, a slip, or wrong on purpose.
        doubt: The expected number of its letters that were not said.
    """

    utterance: str
    written: str
    heard: str
    spoken: str
    kind: Kind
    doubt: float


def suspects(probe: Path, truth: Mapping[str, Sequence[Written]]) -> list[Suspect]:
    """Rank the words of the probed transcripts by doubt.

    The doubt is the sum of the bypass probabilities of a word's letters. Of the scores that were tried, this one
    separates wrong words best from slips, and from words that the model cannot recognise (docs/demo.md).

    Args:
        probe: The probe file of the training transcripts.
        truth: Utterance id → its words, as said and as written.

    Returns:
        All words, the most doubtful first.
    """
    found = []
    for utterance in read_probe(probe)[1]:
        for word, known in zip(utterance.words, truth[utterance.id], strict=True):
            doubt = sum(token.bypass for token in utterance.tokens[word.first : word.last + 1] if token.text != " ")
            found.append(Suspect(utterance.id, known.written, word.heard, known.spoken, known.kind, doubt))
    return sorted(found, key=lambda suspect: -suspect.doubt)


@dataclass(frozen=True)
class ErrorRates:
    """Both systems on the test set.

    Attributes:
        exact: Compared with what was said.
        variants: The same, with every accepted spelling allowed.
    """

    exact: Comparison
    variants: Comparison


def error_rates(hyps: Mapping[str, Path], truth: Mapping[str, Sequence[Written]]) -> ErrorRates:
    """Score the systems on the test set.

    Args:
        hyps: The name of each system → its hypothesis file. The first system is the baseline.
        truth: Utterance id → its words.

    Returns:
        The comparison against what was said, and with every accepted spelling allowed.
    """
    decoded = {name: read_hyps(path) for name, path in hyps.items()}
    ids = [item.id for item in next(iter(decoded.values()))]
    said = {id: " ".join(word.spoken for word in truth[id]) for id in ids}
    return ErrorRates(
        compare(decoded, {id: [sentence] for id, sentence in said.items()}),
        compare(decoded, {id: spellings(sentence) for id, sentence in said.items()}),
    )
