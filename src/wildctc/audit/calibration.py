"""How good the scores of findings were, by the decisions of people, and what they say about the rest.

A decision on an utterance is a verdict on its findings: a finding is right if the fix changes its words. From the
verdicts a logistic regression learns how probable it is that a finding is right, from its score and its kind. The page
does the same (page/verdicts.js).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from wildctc.audit.agreement import settle, settle_rules
from wildctc.audit.decisions import Decision
from wildctc.errors import WildCTCError
from wildctc.probe.issues import LabelIssue, issues_of
from wildctc.probe.records import NotProbed, ProbedUtterance, stream_probe
from wildctc.terminal import table

_Numbers = Sequence[float] | np.ndarray

LEAST_SCORE = 0.25  # findings with a lower score are not shown to anybody
TOGETHER, BULK = "all: ", "bulk: "  # how the reason starts of a decision that was made on many utterances at once
_EDGES = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the table
_KINDS = ("changed", "extra", "missing")
_MEAN = np.array([0.0, 1.0, 0.0, 0.0])  # of the prior: the score is the probability, for all kinds
_PRECISION = np.array([0.25, 1.0, 1.0, 1.0])  # of the prior
_FOLDS = 5


@dataclass(frozen=True)
class Calibration:
    """The probability that a finding is right.

    Attributes:
        weights: (4,) of a constant, the log-odds of the score, and the kinds "extra" and "missing".
        covariance: (4, 4) of the weights.
    """

    weights: np.ndarray
    covariance: np.ndarray

    @classmethod
    def fit(cls, scores: _Numbers, kinds: Sequence[str], right: Sequence[bool]) -> Calibration:
        """Learn from verdicts. Without any, the probability is the score.

        Args:
            scores: Of each finding that was judged.
            kinds: "changed", "extra" or "missing".
            right: Whether it was an error of the transcript.

        Returns:
            The calibration.
        """
        x, y, w = _features(scores, kinds), np.asarray(right, float), _MEAN.copy()
        for _ in range(100):
            p = _sigmoid(x @ w)
            hessian = (x * (p * (1 - p))[:, None]).T @ x + np.diag(_PRECISION)
            step = np.linalg.solve(hessian, x.T @ (p - y) + _PRECISION * (w - _MEAN))
            w = w - step / max(1.0, float(np.abs(step).max()))
            if np.abs(step).max() < 1e-9:
                break
        return cls(w, np.linalg.inv(hessian))

    def __call__(self, scores: _Numbers, kinds: Sequence[str]) -> np.ndarray:
        """Compute probabilities.

        Args:
            scores: Of each finding.
            kinds: Of each finding.

        Returns:
            (n,) the probability that each finding is right.
        """
        return _sigmoid(_features(scores, kinds) @ self.weights)

    def expected(self, scores: _Numbers, kinds: Sequence[str]) -> tuple[float, float]:
        """Estimate how many of some findings are right.

        Args:
            scores: Of each finding.
            kinds: Of each finding.

        Returns:
            The expected number, and its standard deviation: by chance, and because the weights are not known exactly.
        """
        x = _features(scores, kinds)
        p = _sigmoid(x @ self.weights)
        spread = p * (1 - p)
        slope = spread @ x
        return float(p.sum()), float(np.sqrt(spread.sum() + slope @ self.covariance @ slope))


def _features(scores: _Numbers, kinds: Sequence[str]) -> np.ndarray:
    s = np.clip(np.asarray(scores, float), 0.01, 0.99)
    columns = [np.ones(len(s)), np.log(s / (1 - s)), *(np.array([k == kind for k in kinds]) for kind in _KINDS[1:])]
    return np.stack(columns, axis=1).astype(float).reshape(-1, 4)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def verdicts(text: str, issues: Sequence[LabelIssue], decision: Decision | None) -> list[bool | None]:
    """Find what a decision says about the findings of an utterance.

    Args:
        text: The transcript.
        issues: Its findings.
        decision: The decision on it.

    Returns:
        For each finding whether it is right; None if nobody has judged it.
    """
    if decision is None or decision.decision == "skip" or decision.reason.startswith(BULK):
        return [None] * len(issues)
    if decision.decision == "accept":
        return [False] * len(issues)
    if decision.reason.startswith(TOGETHER):  # only the findings that are named were judged
        named = decision.reason.removeprefix(TOGETHER).split("; ")
        return [True if f"{i.written or '∅'} → {i.heard or '∅'}" in named else None for i in issues]
    return _changed_places(text.split(" "), decision.fixed.split(), issues)


def _changed_places(written: list[str], fixed: list[str], issues: Sequence[LabelIssue]) -> list[bool | None]:
    """Which findings are about words that a fix has changed."""
    from rapidfuzz.distance import LCSseq

    place: dict[int, int] = {-1: -1, len(written): len(fixed)}  # word of the transcript → the same word of the fix
    for op in LCSseq.opcodes(written, fixed):
        if op.tag == "equal":
            place |= zip(range(op.src_start, op.src_end), range(op.dest_start, op.dest_end), strict=True)
    found: list[bool | None] = []
    for issue in issues:
        words = range(issue.word, issue.word + len(issue.written.split()))
        if issue.kind != "missing":
            found.append(any(word not in place for word in words))
            continue
        before = max(word for word in place if word < issue.word)
        after = min(word for word in place if word >= issue.word)
        found.append(place[after] - place[before] > after - before)
    return found


@dataclass
class Judged:
    """The findings of a probe and what people decided on them. `print` shows how good the scores were.

    Attributes:
        scores: Of each finding.
        kinds: Of each finding.
        right: Of each finding; None if nobody has judged it.
        utterance: The number of the utterance of each finding.
        open: Whether each finding is in an utterance without a decision.
        decided: How many utterances have a decision.
        other: Decisions about other utterances or other transcripts.
    """

    scores: list[float] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    right: list[bool | None] = field(default_factory=list)
    utterance: list[int] = field(default_factory=list)
    open: list[bool] = field(default_factory=list)
    decided: int = 0
    other: int = 0

    def add(self, number: int, utterance: ProbedUtterance, decision: Decision | None, rules: set[str]) -> None:
        """Add the findings of an utterance.

        Args:
            number: Its number.
            utterance: The utterance.
            decision: The decision on it, if there is one.
            rules: Ids of rules; findings that they settle are left out unless they were judged.
        """
        issues = issues_of(utterance, LEAST_SCORE)
        for issue, right in zip(issues, verdicts(utterance.text, issues, decision), strict=True):
            if right is None and "\t".join(("finding", issue.kind, issue.written, issue.heard)) in rules:
                continue
            self.scores.append(issue.score)
            self.kinds.append(issue.kind)
            self.right.append(right)
            self.utterance.append(number)
            self.open.append(decision is None)

    def __str__(self) -> str:
        scores, kinds = np.array(self.scores), np.array(self.kinds)
        known = np.array([right is not None for right in self.right], bool)
        right = np.array([bool(right) for right in self.right], bool)[known]
        fitted = Calibration.fit(scores[known], list(kinds[known]), list(right))
        after = fitted(scores, list(kinds))
        rows = []
        for low, high in pairwise(_EDGES):
            inside = (scores >= low) & ((scores < high) | (high == 1.0))
            judged = inside[known]
            counts = [int(inside.sum()), int(judged.sum()), int(right[judged].sum())]
            shares = [_mean(right[judged]), _mean(scores[inside]), _mean(after[inside])]
            rows.append([f"{low:.2f}–{high:.2f}", *(f"{n:,}" for n in counts), *shares])
        header = ["score", "findings", "judged", "right", "share right", "mean score", "calibrated"]
        lines = [table(header, rows), ""]
        if right.any() and not right.all():
            crossed = self._crossed(scores[known], list(kinds[known]), right, np.array(self.utterance)[known])
            brier = f"{((scores[known] - right) ** 2).mean():.3f}, calibrated {((crossed - right) ** 2).mean():.3f}"
            lines.append(f"AUC of the score: {_auc(scores[known], right):.3f}; Brier score: {brier} (cross-validated)")
        left = np.array(self.open, bool)
        count, spread = fitted.expected(scores[left], list(kinds[left]))
        lines.append(
            f"left: {int(left.sum()):,} findings without a decision, of which about {count:.0f} ± {2 * spread:.0f} are "
            "errors of the transcript (two standard deviations)"
        )
        lines.append(f"by the scores alone: {scores[left].sum():.0f}")
        return "\n".join(lines)

    @staticmethod
    def _crossed(scores: np.ndarray, kinds: list[str], right: np.ndarray, utterance: np.ndarray) -> np.ndarray:
        """The calibrated probability of each finding, learned from other utterances only."""
        found = np.zeros(len(scores))
        for fold in range(_FOLDS):
            inside = utterance % _FOLDS == fold
            others = [k for k, own in zip(kinds, inside, strict=True) if not own]
            fitted = Calibration.fit(scores[~inside], others, right[~inside])
            found[inside] = fitted(scores[inside], [k for k, own in zip(kinds, inside, strict=True) if own])
        return found


def calibrate(probe: str | Path, decisions: Iterable[Decision]) -> Judged:
    """Compare the scores of a probe's findings with what people decided.

    Args:
        probe: The probe that was audited.
        decisions: The decisions; of several on an utterance the newest counts.

    Returns:
        The findings, with what was decided.
    """
    decisions = list(decisions)
    settled, rules = settle(decisions).decisions, {rule.id for rule in settle_rules(decisions)}
    judged = Judged()
    for number, entry in enumerate(stream_probe(probe)[1]):
        if isinstance(entry, NotProbed):
            continue
        decision = settled.get(entry.id)
        if decision and decision.text != entry.text:
            decision = None
        judged.decided += decision is not None
        judged.add(number, entry, decision, rules)
    judged.other = len(settled) - judged.decided
    if not judged.decided:
        raise WildCTCError(f"no decision is about a transcript of {probe}")
    return judged


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.2f}" if len(values) else "–"


def _auc(scores: np.ndarray, right: np.ndarray) -> float:
    """The probability that a right finding has a higher score than a wrong one; a tie counts half."""
    good, bad = np.sort(scores[right]), np.sort(scores[~right])
    below = np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")
    return float(below.sum() / (2 * len(good) * len(bad)))
