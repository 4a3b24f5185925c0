"""The numbers of the story: which words the models doubt, and how many errors they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wildctc.audit.probed import read_probe
from wildctc.comparing import Comparison, compare
from wildctc.demo.annotators import Kind, Written
from wildctc.demo.corpus import spellings
from wildctc.scoring import read_hyps


@dataclass(frozen=True)
class Suspect:
    """A word of a training transcript. doubt: how probable it is, by the model, that it was not said."""

    utterance: str
    written: str
    heard: str
    spoken: str
    kind: Kind
    doubt: float


def suspects(probe: Path, truth: Mapping[str, Sequence[Written]]) -> list[Suspect]:
    """All words of the probed transcripts, the most doubtful first; of equals, that with the more doubtful letters."""
    ranked = []
    for utterance in read_probe(probe)[1]:
        for word, known in zip(utterance.words, truth[utterance.id], strict=True):
            letters = [token.bypass for token in utterance.tokens[word.first : word.last + 1] if token.text != " "]
            suspect = Suspect(utterance.id, known.written, word.heard, known.spoken, known.kind, word.bypass)
            ranked.append((word.bypass, sum(letters) / len(letters), suspect))
    return [suspect for *_, suspect in sorted(ranked, key=lambda entry: entry[:2], reverse=True)]


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
