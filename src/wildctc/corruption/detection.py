"""Measure how well a score finds known errors: area under the ROC curve, and precision among the flagged units.

The 95% intervals come from resampling whole utterances, because the characters of an utterance are not independent. All
scores use the same resamples, so that they can be compared in pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wildctc.scoring.bootstrap import draw_weights, percentile_interval

FLAGGED = 0.01  # share of all units that a person would look at


class Interval(NamedTuple):
    """An estimate and its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "–" if math.isnan(self.value) else f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Detection(NamedTuple):
    """How well one score finds the wrong units.

    Attributes:
        auc: The area under the ROC curve.
        precision: The share of wrong units among the FLAGGED share with the highest scores.
        behind: How much its AUC is below that of the first score, in the same resamples.
    """

    auc: Interval
    precision: Interval  # among the FLAGGED share with the highest scores
    behind: Interval  # by how much its AUC is below that of the first score, in the same resamples


@dataclass(frozen=True)
class ScoredUnits:
    """Characters or gaps of many utterances, M in all.

    Attributes:
        wrong: (M,) bool, whether the unit has an error.
        utterance: (M,) int, the number of its utterance, from 0.
        scores: The name of each score → (M,) values; a high value is suspicious.
    """

    wrong: np.ndarray
    utterance: np.ndarray
    scores: dict[str, np.ndarray]

    @classmethod
    def join(cls, parts: Sequence[tuple[Sequence[bool], dict[str, Sequence[float]]]]) -> ScoredUnits:
        """Join the units of several utterances.

        Args:
            parts: For each utterance which units are wrong, and the scores by name.

        Returns:
            All units, with the number of their utterance.
        """
        sizes = [len(wrong) for wrong, _ in parts]
        names = parts[0][1] if parts else {}
        return cls(
            np.array([w for wrong, _ in parts for w in wrong], dtype=bool),
            np.repeat(np.arange(len(parts)), sizes),
            {name: np.array([x for _, s in parts for x in s[name]], dtype=np.float64) for name in names},
        )


def measure_detection(units: ScoredUnits, *, resamples: int = 1000, seed: int = 0) -> dict[str, Detection]:
    """Measure how well each score finds the wrong units. Ties are broken at random.

    Args:
        units: The units and their scores.
        resamples: Bootstrap resamples of the utterances.
        seed: Decides ties and resamples.

    Returns:
        The name of each score → AUC and precision, with intervals. A number that does not exist is NaN.

    >>> scores = {"a": np.array([0.1, 0.9, 0.2, 0.8])}
    >>> units = ScoredUnits(np.array([False, True, False, True]), np.array([0, 0, 1, 1]), scores)
    >>> measure_detection(units, resamples=10)["a"].auc
    Interval(value=1.0, low=1.0, high=1.0)
    """
    rng = np.random.default_rng([seed, 1])  # not the numbers that a score drawn with the same seed has
    ties = rng.random(len(units.wrong))
    size = int(units.utterance.max()) + 1 if len(units.utterance) else 0
    # All utterances once, then the resamples.
    counts = np.concatenate([np.ones((1, size)), draw_weights(size, resamples, rng)])
    measured = {}  # name → (1 + resamples,) AUC, (1 + resamples,) precision
    for name, score in units.scores.items():
        order = np.lexsort((ties, score))
        wrong, utterance = units.wrong[order], units.utterance[order]
        measured[name] = _aucs(wrong, utterance, counts), _precisions(wrong[::-1], utterance[::-1], counts)
    first = next(iter(measured.values()), (np.zeros(1),))[0]
    return {
        name: Detection(_interval(auc), _interval(precision), _interval(first - auc))
        for name, (auc, precision) in measured.items()
    }


def _aucs(wrong: np.ndarray, utterance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The AUC of units in the order of their scores, for each row of counts: how often each utterance is taken.

    The number of right pairs is a sum over pairs of utterances, which is counted once for all resamples.
    """
    size = counts.shape[1]
    pairs = np.zeros((size, size))  # wrong units of one above correct ones of the other
    below = np.zeros(size)
    start = 0
    for place in np.flatnonzero(wrong).tolist():
        below += np.bincount(utterance[start:place], minlength=size)
        pairs[utterance[place]] += below
        start = place + 1
    positive, negative = (np.bincount(utterance[chosen], minlength=size) for chosen in (wrong, ~wrong))
    with np.errstate(invalid="ignore"):
        return ((counts @ pairs) * counts).sum(1) / ((counts @ positive) * (counts @ negative))


def _precisions(wrong: np.ndarray, utterance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The share of wrong units among the flagged, of units from the highest score down, for each row of counts."""
    sizes = counts @ np.bincount(utterance, minlength=counts.shape[1])
    flagged = np.maximum(1.0, np.ceil(FLAGGED * sizes))
    top = min(len(wrong), int(4 * FLAGGED * len(wrong)) + 1)
    while top < len(wrong) and (counts[:, utterance[:top]].sum(1) < flagged).any():
        top *= 2
    weights = counts[:, utterance[:top]]
    before = np.cumsum(weights, 1) - weights
    inside = np.clip(flagged[:, None] - before, 0.0, weights)  # how much of each unit is flagged
    found = (inside * wrong[:top]).sum(1) / flagged
    none_wrong = counts @ np.bincount(utterance[wrong], minlength=counts.shape[1]) == 0
    return np.where(none_wrong, math.nan, found)


def _interval(measured: np.ndarray) -> Interval:
    """From the value of all, and the values of the resamples after it."""
    low, high = percentile_interval(measured[1:], interpolate=True)
    return Interval(float(measured[0]), float(low), float(high))


def roc(wrong: np.ndarray, score: np.ndarray, seed: int = 0, points: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Compute a ROC curve for drawing.

    Args:
        wrong: (M,) bool, which units are wrong.
        score: (M,) values; a high value is suspicious.
        seed: Breaks ties.
        points: The largest number of points; they are dense where few units are flagged.

    Returns:
        False positive rates and true positive rates, from no unit flagged to all.
    """
    order = np.lexsort((np.random.default_rng([seed, 1]).random(len(score)), score))[::-1]
    true = np.concatenate(([0], np.cumsum(wrong[order])))
    false = np.arange(len(true)) - true
    places = np.unique(np.geomspace(1, len(true), points).astype(int) - 1)
    return false[places] / max(false[-1], 1), true[places] / max(true[-1], 1)
