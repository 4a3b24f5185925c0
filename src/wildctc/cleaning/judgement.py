"""How good a cleaning was, where the true transcripts are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import read_utterances
from wildctc.errors import WildCTCError
from wildctc.scoring.error_rates import AS_WRITTEN, Errors, levenshtein, wer
from wildctc.terminal import table
from wildctc.text.normalisation import Normalizer

_ACTIONS = {"replace": "replaced", "delete": "removed", "insert": "inserted"}  # by the tag of an edit


@dataclass
class Judgement:
    """The errors of transcripts before and after a cleaning. `print` shows a summary.

    Attributes:
        before: Word errors of all transcripts before.
        kept: Word errors before, of the utterances that were kept.
        after: Word errors after, of the same utterances.
        dropped: Word errors of the utterances that were dropped.
        kept_utterances: How many were kept.
        dropped_utterances: How many were dropped.
        right: How many changes made the transcript better, by what was done: "replaced", "removed", "inserted".
        wrong: How many made it worse.
        neither: How many did neither: a wrong word was replaced by another wrong word.
    """

    before: Errors
    kept: Errors
    after: Errors
    dropped: Errors
    kept_utterances: int
    dropped_utterances: int
    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    neither: Counter[str] = field(default_factory=Counter)

    @property
    def precision(self) -> float | None:
        """The share of changes that made a transcript better; None without changes."""
        changes = self.right.total() + self.wrong.total() + self.neither.total()
        return self.right.total() / changes if changes else None

    def to_dict(self) -> dict[str, Any]:
        """Give all numbers as an object for JSON.

        Returns:
            The error counts with their rates, the numbers of utterances and changes, and the precision.
        """
        rates = {name: getattr(self, name).to_dict() for name in ("before", "kept", "after", "dropped")}
        counts = {name: dict(getattr(self, name)) for name in ("right", "wrong", "neither")}
        utterances = {"kept_utterances": self.kept_utterances, "dropped_utterances": self.dropped_utterances}
        return rates | counts | utterances | {"precision": self.precision}

    def __str__(self) -> str:
        actions = [
            [action, *(f"{getattr(self, name)[action]:,}" for name in ("right", "wrong", "neither"))]
            for action in _ACTIONS.values()
        ]
        transcripts = [
            [title, f"{errors.reference:,}", f"{errors.total:,}", f"{errors.rate:.2%}"]
            for title, errors in (
                ("all, before", self.before),
                ("kept, before", self.kept),
                ("kept, after", self.after),
                ("dropped", self.dropped),
            )
        ]
        tables = [
            table(["transcripts", "words", "errors", "WER"], transcripts),
            table(["words", "right", "wrong", "neither"], actions),
        ]
        return "\n\n".join(tables)


def read_texts(manifest: str | Path, field: str = "text") -> dict[str, str]:
    """Read the transcripts of a manifest.

    Args:
        manifest: The manifest.
        field: The field of its rows that has the transcript. Lhotse cuts have "text" only.

    Returns:
        Id to transcript.
    """
    found: dict[str, str] = {}
    for row, utterances in read_utterances(manifest):
        for utterance in utterances:
            text = utterance.text if field == "text" else row.get(field)
            if not isinstance(text, str):
                raise WildCTCError(f"{manifest}: {utterance.id}: no text in field {field!r}")
            found[utterance.id] = text
    return found


def judge(
    before: Mapping[str, str],
    after: Mapping[str, str],
    truth: Mapping[str, str],
    normalizer: Normalizer = AS_WRITTEN,
) -> Judgement:
    """Compare transcripts before and after a cleaning with the true ones.

    Each change is judged alone: the transcript before with this change only is nearer to the truth, farther from it, or
    neither.

    Args:
        before: The transcripts that were cleaned, by id.
        after: The transcripts of the cleaned manifest. What is not there was dropped.
        truth: The true transcripts. They must have every utterance of `before`.
        normalizer: Applied to all of them.

    Returns:
        The errors and the number of right changes.

    >>> before = {"a": "the cat sad down", "b": "noise"}
    >>> found = judge(before, {"a": "the cat sat"}, {"a": "the cat sat down", "b": "good day"})
    >>> found.right["replaced"], found.wrong["removed"], found.dropped_utterances
    (1, 1, 1)
    """
    if missing := [id for id in before if id not in truth]:
        raise WildCTCError(f"no true transcript of {missing[0]!r}, and of {len(missing) - 1:,} others")
    if unknown := [id for id in after if id not in before]:
        raise WildCTCError(f"utterance {unknown[0]!r} was not there before the cleaning")
    gone, kept = [id for id in before if id not in after], [id for id in before if id in after]
    result = Judgement(
        _errors(before, before, truth, normalizer),
        _errors(before, kept, truth, normalizer),
        _errors(after, kept, truth, normalizer),
        _errors(before, gone, truth, normalizer),
        len(kept),
        len(gone),
    )
    for id in kept:
        words = [normalizer(texts[id]).split() for texts in (before, after, truth)]
        for action, gain in _gains(*words):
            counter = result.right if gain > 0 else result.wrong if gain < 0 else result.neither
            counter[action] += 1
    return result


def _errors(texts: Mapping[str, str], ids: Any, truth: Mapping[str, str], normalizer: Normalizer) -> Errors:
    return wer([truth[id] for id in ids], [texts[id] for id in ids], normalizer)


def _gains(before: Sequence[str], after: Sequence[str], truth: Sequence[str]) -> Iterator[tuple[str, int]]:
    """For each change: what was done, and by how many errors the transcript is better with this change alone."""
    distance, errors = levenshtein().distance, levenshtein().distance(before, truth)
    for edit in levenshtein().opcodes(before, after):
        if edit.tag != "equal":
            new = after[edit.dest_start : edit.dest_end]
            alone = [*before[: edit.src_start], *new, *before[edit.src_end :]]
            yield _ACTIONS[edit.tag], errors - distance(alone, truth)
