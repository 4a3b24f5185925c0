"""How well does a score find known errors? Area under the ROC curve, precision among the flagged, bootstrap intervals.

Intervals come from resampling whole utterances: the characters of one are not independent. The same resamples serve
every score of a set, so that scores can be compared pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FLAGGED = 0.01  # share of all units that a person would look at


class Interval(NamedTuple):
    """An estimate and its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "–" if math.isnan(self.value) else f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Found(NamedTuple):
    """How well one score finds the wrong units."""

    auc: Interval
    precision: Interval  # among the FLAGGED share with the highest scores
    behind: Interval  # by how much its AUC is below that of the first score, in the same resamples


@dataclass(frozen=True)
class Units:
    """Characters or gaps of many utterances. wrong: (M,) bool. utterance: (M,) int, from 0. scores: name → (M,)."""

    wrong: np.ndarray
    utterance: np.ndarray
    scores: dict[str, np.ndarray]

    @classmethod
    def join(cls, parts: Sequence[tuple[Sequence[bool], dict[str, Sequence[float]]]]) -> Units:
        """From (wrong, scores) of each utterance."""
        sizes = [len(wrong) for wrong, _ in parts]
        names = parts[0][1] if parts else {}
        return cls(
            np.array([w for wrong, _ in parts for w in wrong], dtype=bool),
            np.repeat(np.arange(len(parts)), sizes),
            {name: np.array([x for _, s in parts for x in s[name]], dtype=np.float64) for name in names},
        )


def evaluate(units: Units, *, resamples: int = 1000, seed: int = 0) -> dict[str, Found]:
    """AUC and precision of each score, higher scores being more suspicious; ties are broken at random.

    >>> scores = {"a": np.array([0.1, 0.9, 0.2, 0.8])}
    >>> units = Units(np.array([False, True, False, True]), np.array([0, 0, 1, 1]), scores)
    >>> evaluate(units, resamples=10)["a"].auc
    Interval(value=1.0, low=1.0, high=1.0)
    """
    rng = np.random.default_rng([seed, 1])  # not the numbers that a score drawn with the same seed has
    ties = rng.random(len(units.wrong))
    utterances = int(units.utterance.max()) + 1 if len(units.utterance) else 0
    counts = rng.multinomial(utterances, [1 / utterances] * utterances, resamples if utterances else 0)
    measured = {}  # name → (1 + resamples, 2): AUC and precision, of all first
    for name, score in units.scores.items():
        order = np.lexsort((ties, score))
        wrong, utterance = units.wrong[order], units.utterance[order]
        whole = _measure(wrong, np.ones(len(order)))
        measured[name] = np.array([whole, *(_measure(wrong, count[utterance].astype(float)) for count in counts)])
    first = next(iter(measured.values()), np.zeros((1, 2)))
    return {
        name: Found(_interval(m[:, 0]), _interval(m[:, 1]), _interval(first[:, 0] - m[:, 0]))
        for name, m in measured.items()
    }


def _measure(wrong: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """AUC and precision of units in the order of their scores, each counted `weight` times."""
    positive = np.where(wrong, weight, 0.0)
    negative = weight - positive
    below = np.cumsum(negative)
    total_positive, total_negative = positive.sum(), below[-1] if len(below) else 0.0
    if not total_positive or not total_negative:
        return math.nan, math.nan
    # copies of one unit are all of a kind, so none of a unit's own negatives lie below its positives
    auc = float(positive @ below / (total_positive * total_negative))
    flagged = max(1.0, math.ceil(FLAGGED * (total_positive + total_negative)))
    from_top = np.cumsum(weight[::-1])
    inside = int(np.searchsorted(from_top, flagged))
    share = positive[::-1][:inside].sum() if inside else 0.0
    before = from_top[inside - 1] if inside else 0.0
    share += min(float(positive[::-1][inside]), flagged - before)
    return auc, float(share / flagged)


def _interval(measured: np.ndarray) -> Interval:
    """From the value of all, and the values of the resamples after it."""
    draws = measured[1:][~np.isnan(measured[1:])]
    low, high = np.quantile(draws, [0.025, 0.975]) if len(draws) else (math.nan, math.nan)
    return Interval(float(measured[0]), float(low), float(high))


def roc(wrong: np.ndarray, score: np.ndarray, seed: int = 0, points: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """False and true positive rates, from none flagged to all, at `points` places that are dense where few are."""
    order = np.lexsort((np.random.default_rng([seed, 1]).random(len(score)), score))[::-1]
    true = np.concatenate(([0], np.cumsum(wrong[order])))
    false = np.arange(len(true)) - true
    places = np.unique(np.geomspace(1, len(true), points).astype(int) - 1)
    return false[places] / max(false[-1], 1), true[places] / max(true[-1], 1)
