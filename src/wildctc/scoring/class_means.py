"""Means of classes of units (such as agreed and disputed characters), compared between systems.

Units are pooled over utterances. Intervals come from a paired bootstrap over utterances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wildctc.scoring.bootstrap import RESAMPLES, bootstrap_sums, percentile_interval, two_sided_p


@dataclass(frozen=True)
class ClassMeans:
    """Means of each class of units and of each system; the first system is the baseline.

    In the last dimension of size 3 are the value and the two ends of its 95% interval. Where there are no units, all
    three are NaN.

    Attributes:
        mean: (systems, classes, 3).
        ratio: (systems, 3) The mean of one class divided by that of another.
        difference: (systems, classes, 3) The mean minus the baseline's.
        relative: (systems, classes, 3) The difference divided by the baseline's mean.
        p: (systems, classes) Two-sided, of the difference.
    """

    mean: np.ndarray
    ratio: np.ndarray
    difference: np.ndarray
    relative: np.ndarray
    p: np.ndarray


def compare_means(
    counts: np.ndarray, sums: np.ndarray, *, ratio: tuple[int, int], resamples: int = RESAMPLES, seed: int = 0
) -> ClassMeans:
    """Compare the means of classes of units between systems.

    Args:
        counts: (utterances, classes) How many units of each class an utterance has.
        sums: (systems, utterances, classes) The sum of their values; the first system is the baseline.
        ratio: The two classes whose means are divided.
        resamples: How many times the utterances are drawn.
        seed: Of the draws.

    Returns:
        Means, ratios and differences with their intervals.

    >>> counts, ctc = np.array([[9, 1], [8, 2], [9, 1]]), np.array([[0.9, 0.2], [0.8, 0.4], [0.9, 0.2]])
    >>> found = compare_means(counts, np.stack([ctc, 2 * ctc]), ratio=(1, 0), resamples=999)
    >>> found.mean[1, 1].round(3).tolist(), found.ratio[0].round(3).tolist(), found.p[1].tolist()
    ([0.4, 0.4, 0.4], [2.0, 2.0, 2.0], [0.002, 0.002])
    """
    systems, utterances, classes = sums.shape
    # Differences are columns of their own: for equal systems they are exactly 0, in whatever order numbers are added.
    columns = np.concatenate([counts[None], sums, sums - sums[:1]]).transpose(1, 0, 2).reshape(utterances, -1)
    drawn = bootstrap_sums(columns, resamples, seed)
    # Row 0 is what was observed; the draws follow.
    totals = np.concatenate([columns.sum(axis=0, keepdims=True), drawn]).reshape(-1, 1 + 2 * systems, classes)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = totals[:, 1:] / totals[:, :1]
        means, differences = values[:, :systems], values[:, systems:]
        ratios = means[..., ratio[0]] / means[..., ratio[1]]
        relative = np.where(differences == 0, 0.0, differences / means[:, :1])
    return ClassMeans(
        mean=_with_interval(means),
        ratio=_with_interval(ratios),
        difference=_with_interval(differences),
        relative=_with_interval(relative),
        p=two_sided_p(differences[1:]),
    )


def _with_interval(values: np.ndarray) -> np.ndarray:
    """(1 + resamples, …), the first row being what was observed, to (…, 3)."""
    return np.stack([values[0], *percentile_interval(values[1:])], axis=-1)
