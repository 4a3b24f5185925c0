"""What is done about one probed utterance: drop it, edit its words, weigh its words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from wildctc.cleaning.findings import Finding, expected_errors, find_corrections, word_doubts
from wildctc.cleaning.text_edits import EditedWord, WordEdit, edit_words, match_words
from wildctc.probe.doubt import hardly_heard
from wildctc.probe.records import ProbedUtterance

_LARGEST = 5.0  # the largest weight of a word: odds of 148 to 1; no probe is surer than that
_GRAMMAR = frozenset("{|}\\")  # what has a meaning in a transcript with alternatives
Action = Literal["drop", "replace", "remove", "insert", "either"]


@dataclass(frozen=True)
class Thresholds:
    """From which score on something is done; None: never.

    Attributes:
        drop: The expected share of wrong words above which an utterance is dropped.
        replace: The lowest score at which words are replaced by what was heard.
        remove: The lowest score at which words of which nothing was heard are removed.
        insert: The lowest score at which words that were heard and are not written are inserted.
        known: How often each heard word must occur in the transcripts; 0 accepts any. Not for `either`.
        either: The lowest score at which words that are not replaced become alternatives: what is written, or what was
            heard.
        weights: The probability of being wrong at which a word has weight 0. None writes no weights.
        drop_unheard: Whether utterances of which the model heard next to nothing are dropped. Otherwise they are kept
            with weights of 0: the model knows nothing about them.
    """

    drop: float | None = 0.5
    replace: float | None = 0.5
    remove: float | None = None
    insert: float | None = None
    known: int = 3
    either: float | None = None
    weights: float | None = 0.5
    drop_unheard: bool = False

    @property
    def any(self) -> bool:
        """Whether anything can be done at all."""
        return self.drop_unheard or any(
            x is not None for x in (self.drop, self.replace, self.remove, self.insert, self.either, self.weights)
        )


class Change(NamedTuple):
    """One change of a manifest, a row of the list to review.

    Attributes:
        id: The utterance's id.
        action: "drop", "replace", "remove", "insert" or "either".
        before: The words as the manifest had them; of a dropped utterance, its transcript.
        after: The words that took their place, or stand beside them as an alternative.
        score: The probability that these words were wrong; of a dropped utterance, the expected share of wrong words.
        reason: Why, for people.
    """

    id: str
    action: Action
    before: str
    after: str
    score: float
    reason: str


@dataclass(frozen=True)
class Plan:
    """What is done about one utterance.

    Attributes:
        text: Its transcript afterwards; None if it stays as it is.
        weights: One number for each word of the transcript afterwards; None if none are written. A transcript with
            alternatives has none.
        changes: The changes, in order.
        dropped: Whether the utterance is dropped.
        unheard: Whether the model heard next to nothing of it.
        unknown: How many findings were not applied because what was heard is rare.
    """

    text: str | None = None
    weights: list[float] | None = None
    changes: list[Change] = field(default_factory=list)
    dropped: bool = False
    unheard: bool = False
    unknown: int = 0


def make_plan(
    utterance: ProbedUtterance,
    written: str,
    thresholds: Thresholds,
    vocabulary: Counter[str],
    case: Callable[[str], str] | None = None,
) -> Plan | None:
    """Decide what is done about an utterance.

    Args:
        utterance: The probed utterance.
        written: Its transcript in the manifest.
        thresholds: From which score on something is done.
        vocabulary: How often each word occurs in the probed transcripts.
        case: How new words get the case of the manifest; None leaves them as they are.

    Returns:
        The plan; None if the manifest's transcript is not the one that was probed.
    """
    probed = [word.text for word in utterance.words]
    matched = match_words(written, probed)
    if matched is None:
        return None
    if hardly_heard(utterance):
        return _unheard(utterance.id, written, thresholds)
    share = expected_errors(utterance) / max(1, len(probed))
    if thresholds.drop is not None and share > thresholds.drop:
        return _dropped(utterance.id, written, share, f"{share:.0%} of its words are expected to be wrong")
    steps, unknown = _worth_doing(utterance, written, thresholds, vocabulary)
    change = case or str
    changes = [_change(utterance.id, step, written, matched, probed, vocabulary, change) for step in steps]
    edits = [WordEdit(f.first, f.stop, _new_words(c)) for (f, _), c in zip(steps, changes, strict=True)]
    edited = edit_words(written, matched, [*map(change, probed)], edits)
    if steps and not any(word.sources is None or word.sources for word in edited):  # no words are left
        score = max(finding.score for finding, _ in steps)
        if thresholds.drop is not None:
            return _dropped(utterance.id, written, score, "no word of it was heard")
        changes, edited = [], edit_words(written, matched, probed, [])  # a transcript without words is of no use
    weighted = thresholds.weights if all(c.action != "either" for c in changes) else None
    weights = None if weighted is None else _weights(edited, word_doubts(utterance), weighted)
    text = " ".join(word.text for word in edited) if changes else None
    return Plan(text, weights, changes, unknown=unknown)


def _dropped(id: str, written: str, score: float, reason: str) -> Plan:
    return Plan(changes=[Change(id, "drop", " ".join(written.split()), "", score, reason)], dropped=True)


def _unheard(id: str, written: str, thresholds: Thresholds) -> Plan:
    if thresholds.drop_unheard:
        return replace(_dropped(id, written, 1.0, "the model heard next to nothing of it"), unheard=True)
    return Plan(weights=None if thresholds.weights is None else [0.0] * len(written.split()), unheard=True)


def _worth_doing(
    utterance: ProbedUtterance, written: str, thresholds: Thresholds, vocabulary: Counter[str]
) -> tuple[list[tuple[Finding, Action]], int]:
    """The findings with a high score and what is done about each, and how many are left alone for a rare word only."""
    steps: list[tuple[Finding, Action]] = []
    unknown = 0
    for finding in find_corrections(utterance):
        least: float | None = getattr(thresholds, finding.kind)
        sure = least is not None and finding.score >= least
        if sure and _rarest(finding, utterance, vocabulary) >= thresholds.known:
            steps.append((finding, finding.kind))
        elif _worth_offering(finding, written, thresholds):
            steps.append((finding, "either"))
        else:
            unknown += sure
    return steps, unknown


def _worth_offering(finding: Finding, written: str, thresholds: Thresholds) -> bool:
    """Whether what was heard becomes an alternative. Missing and unheard words do not: a model that is trained on words
    that may be left out learns to leave them out."""
    if thresholds.either is None or finding.score < thresholds.either or finding.kind != "replace":
        return False
    return not _GRAMMAR & {*written, *" ".join(finding.heard)}


def _rarest(finding: Finding, utterance: ProbedUtterance, vocabulary: Counter[str]) -> float:
    """How often the rarest new word of a finding occurs; infinity if no word is new."""
    old = {word.text for word in utterance.words[finding.first : finding.stop]}
    return min((vocabulary[word] for word in finding.heard if word not in old), default=math.inf)


def _change(
    id: str,
    step: tuple[Finding, Action],
    written: str,
    matched: Sequence[Sequence[int]],
    probed: Sequence[str],
    vocabulary: Counter[str],
    case: Callable[[str], str],
) -> Change:
    """The change that a finding makes, with the words as they are written where they are whole."""
    finding, action = step
    covered = range(finding.first, finding.stop)
    before = [
        word if all(n in covered for n in numbers) else " ".join(probed[n] for n in numbers if n in covered)
        for word, numbers in zip(written.split(), matched, strict=True)
        if any(n in covered for n in numbers)
    ]
    counts = ", ".join(f"{word!r} {vocabulary[word]:,}×" for word in finding.heard)
    reasons = {
        "replace": f"something else was heard; in the transcripts: {counts}",
        "either": f"something else may have been heard; in the transcripts: {counts}",
        "remove": "nothing was heard of it",
        "insert": f"heard and not written; in the transcripts: {counts}",
    }
    after = " ".join(map(case, finding.heard))
    return Change(id, action, " ".join(before), after, finding.score, reasons[action])


def _new_words(change: Change) -> tuple[str, ...]:
    """What a change writes: words, or one group with both writings."""
    return (f"{{{change.before}|{change.after}}}",) if change.action == "either" else tuple(change.after.split())


def _weights(edited: Sequence[EditedWord], doubts: Sequence[float], even: float) -> list[float]:
    """The weight of each word: its log-odds of being wrong, relative to those of a word with weight 0.

    A written word of several probed words has the weight of the most doubtful. New words, and words of which the probe
    knows nothing, have 0.
    """
    most = [max(doubts[n] for n in word.sources) if word.sources else even for word in edited]
    weights = (_log_odds(doubt) - _log_odds(even) for doubt in most)
    return [round(max(-_LARGEST, min(_LARGEST, weight)), 3) for weight in weights]


def _log_odds(probability: float) -> float:
    probability = max(1e-9, min(1 - 1e-9, probability))
    return math.log(probability) - math.log1p(-probability)
