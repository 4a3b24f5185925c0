"""The probability that a written word is wrong: all evidence of a probe in one calibrated score.

A logistic model combines what the lattice says about the word (its bypass, the bypass of its worst token, unwritten
sounds), how badly it fits its frames in a forced alignment, what was heard in its place, and how well it fits the words
beside it. Its coefficients were fitted on errors that were put in on purpose, by `benchmarks/word_doubt.py`;
docs/probe.md says how well it finds real ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from wildctc.errors import MissingExtra
from wildctc.files import as_bytes, writing
from wildctc.json_lines import row_line
from wildctc.probe.context import WordContext
from wildctc.probe.records import NotProbed, ProbedUtterance, ProbedWord, as_row, stream_probe

# Written by benchmarks/word_doubt.py. The names are those of `evidence`.
COEFFICIENTS = {
    "worst token": -0.016,
    "whole word": 0.213,
    "unwritten": 0.123,
    "differs": 2.280,
    "edits": -0.687,
    "not heard": 0.139,
    "misfit": 0.290,
    "context": -0.206,
    "better in context": 0.162,
    "worst token, differs": 0.014,
    "whole word, differs": -0.155,
    "context, differs": 0.227,
    "misfit, differs": -0.067,
}
INTERCEPT = -4.701
# For utterances without a forced alignment: those of files that an older version made, and too long transcripts.
WITHOUT_ALIGNMENT = {
    "worst token": 0.308,
    "whole word": 0.185,
    "unwritten": 0.138,
    "differs": 2.134,
    "edits": 0.246,
    "not heard": -0.322,
    "context": -0.327,
    "better in context": 0.211,
    "worst token, differs": -0.126,
    "whole word, differs": -0.087,
    "context, differs": 0.235,
}
INTERCEPT_WITHOUT_ALIGNMENT = -3.867
VERSION = 2  # of coefficients and evidence, written into probe files

_LEAST = 1e-6  # probabilities are kept away from 0 and 1, so that one of them cannot decide alone
_QUIET = 1e-3  # expected sounds in a gap that count as none
# a word that was heard as it is written: the medians on Harper Valley
_UNHEARD = {"worst token": -3.5, "whole word": -13.8, "unwritten": -2.1, "misfit": 0.09}
_HARDLY = 0.25  # heard characters for each written one


def score_words(probe: Path) -> None:
    """Add the doubt of every word to a finished probe file. A file that has it already stays as it is.

    Args:
        probe: The file. It is read twice, row by row, and replaced at once.
    """
    settings, entries = stream_probe(probe)
    if settings.get("doubt") == VERSION:
        return
    context = WordContext(_written(entry) for entry in entries if isinstance(entry, ProbedUtterance))
    temporary = probe.with_name(f".{probe.name}.part")
    with writing(probe), open(temporary, "wb") as out:
        out.write(as_bytes(row_line({"probe": settings | {"doubt": VERSION}})))
        for entry in stream_probe(probe)[1]:
            if isinstance(entry, NotProbed):
                out.write(as_bytes(row_line({"id": entry.id, "left_out": entry.reason})))
                continue
            add_doubts([entry], context)
            out.write(as_bytes(row_line(as_row(entry))))
        out.flush()
        os.fsync(out.fileno())
        os.replace(temporary, probe)


def add_doubts(utterances: Iterable[ProbedUtterance], context: WordContext) -> None:
    """Score every word of some utterances, in place.

    Args:
        utterances: Probed utterances; their words get a `doubt`.
        context: Counts of the transcripts that they belong to.
    """
    for utterance in utterances:
        for word, found in zip(utterance.words, evidence(utterance, context), strict=True):
            aligned = "misfit" in found
            weights, log_odds = (
                (COEFFICIENTS, INTERCEPT) if aligned else (WITHOUT_ALIGNMENT, INTERCEPT_WITHOUT_ALIGNMENT)
            )
            log_odds += sum(weights[name] * value for name, value in found.items())
            word.doubt = 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, log_odds))))


def evidence(utterance: ProbedUtterance, context: WordContext) -> list[dict[str, float]]:
    """Collect what speaks for and against each word of an utterance.

    Args:
        utterance: A probed utterance.
        context: Counts of the transcripts that it belongs to.

    Returns:
        For each word, the value of each kind of evidence by its name: those of `COEFFICIENTS`, or those of
        `WITHOUT_ALIGNMENT` if the utterance has no forced alignment.
    """
    if hardly_heard(utterance):
        # The model has no opinion, so the words count as heard, and only their context speaks against them.
        names = COEFFICIENTS if _aligned(utterance) else WITHOUT_ALIGNMENT
        usual = {name: _UNHEARD.get(name, 0.0) for name in names}
        return [usual | {"context": fit} for fit in context.log_probabilities(_written(utterance))]
    heard = [word.heard.split() if word.heard != word.text else [] for word in utterance.words]
    fits = context.compare(_written(utterance), heard)
    return [_evidence(utterance, word, scores) for word, scores in zip(utterance.words, fits, strict=True)]


def hardly_heard(utterance: ProbedUtterance) -> bool:
    """Find out whether the model heard so little that its silence says nothing about the transcript.

    Of the telephone speech of Harper Valley, about 2% of the utterances are next to silent.

    Args:
        utterance: The probed utterance.

    Returns:
        Whether there are less than a quarter as many characters in what was heard as in the transcript.
    """
    return len(utterance.heard) < _HARDLY * len(utterance.text)


def _aligned(utterance: ProbedUtterance) -> bool:
    return all(token.misfit is not None for token in utterance.tokens)


def _written(utterance: ProbedUtterance) -> str:
    return " ".join(word.text for word in utterance.words)


def _evidence(utterance: ProbedUtterance, word: ProbedWord, fits: list[float]) -> dict[str, float]:
    tokens = utterance.tokens[word.first : word.last + 1]
    letters = tokens[1:] if len(tokens) > 1 and tokens[0].text == " " else tokens
    worst, whole = _log_odds(max(token.bypass for token in letters)), _log_odds(word.bypass)
    gaps = utterance.gaps[word.first : word.last + 2]
    # A doubled letter lies before or after the written one, so two neighbouring gaps count together.
    unwritten = max(a + b for a, b in zip(gaps, [*gaps[1:], 0.0], strict=True))
    differs = float(word.heard != word.text)
    found = {
        "worst token": worst,
        "whole word": whole,
        "unwritten": math.log(_QUIET + unwritten),
        "differs": differs,
        "edits": min(1.5, _edits(word.heard, word.text) / len(word.text)),
        "not heard": float(not word.heard),
        "context": fits[0],
        "better in context": max(fits[1:]) - fits[0] if len(fits) > 1 else 0.0,
        "worst token, differs": worst * differs,
        "whole word, differs": whole * differs,
        "context, differs": fits[0] * differs,
    }
    if _aligned(utterance):
        misfit = max(token.misfit or 0.0 for token in letters)
        found |= {"misfit": misfit, "misfit, differs": misfit * differs}
    return found


def _log_odds(probability: float) -> float:
    bounded = min(1.0 - _LEAST, max(_LEAST, probability))
    return math.log(bounded / (1.0 - bounded))


def _edits(heard: str, written: str) -> int:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise MissingExtra("rapidfuzz", "train") from None
    return int(Levenshtein.distance(heard, written))
