"""Means pooled over units, and how sure they are.

Utterances are drawn again with replacement, the same ones for all systems. Everything is sums by utterance, so that ten
thousand draws are one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
ROWS = 1 << 20  # draws at a time


@dataclass(frozen=True)
class Compared:
    """Means of each class of units: (systems, classes, 3), the value and its 95% interval; NaN without units.

    difference, relative: to the first system, (systems, classes, 3). ratio: of two classes' means, (systems, 3).
    p: two-sided, of the difference, (systems, classes).
    """

    mean: np.ndarray
    ratio: np.ndarray
    difference: np.ndarray
    relative: np.ndarray
    p: np.ndarray


def compare_means(
    counts: np.ndarray, sums: np.ndarray, *, ratio: tuple[int, int], resamples: int = RESAMPLES, seed: int = 0
) -> Compared:
    """Means of classes of units, pooled over utterances, with intervals; the first system is compared with.

    counts: (utterances, classes) units. sums: (systems, utterances, classes) sums of their values. ratio: of the means
    of which two classes. p = min(1, 2 (1 + min(#Δ ≤ 0, #Δ ≥ 0)) / (resamples + 1)); a draw without units of a class has
    no difference there: it counts on both sides.

    >>> counts, ctc = np.array([[9, 1], [8, 2], [9, 1]]), np.array([[0.9, 0.2], [0.8, 0.4], [0.9, 0.2]])
    >>> found = compare_means(counts, np.stack([ctc, 2 * ctc]), ratio=(1, 0), resamples=999)
    >>> found.mean[1, 1].round(3).tolist(), found.ratio[0].round(3).tolist(), found.p[1].tolist()
    ([0.4, 0.4, 0.4], [2.0, 2.0, 2.0], [0.002, 0.002])
    """
    systems, utterances, classes = sums.shape
    # Differences are drawn as columns of their own: of equal systems they are exactly 0, whatever the order of adding.
    columns = np.concatenate([counts[None], sums, sums - sums[:1]]).transpose(1, 0, 2).reshape(utterances, -1)
    drawn = resample(columns, resamples, seed)
    totals = np.concatenate([columns.sum(axis=0, keepdims=True), drawn]).reshape(-1, 1 + 2 * systems, classes)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = totals[:, 1:] / totals[:, :1]
        means, differences = values[:, :systems], values[:, systems:]
        ratios = means[..., ratio[0]] / means[..., ratio[1]]
        relative = np.where(differences == 0, 0.0, differences / means[:, :1])
    sides = (~(differences[1:] > 0)).sum(axis=0), (~(differences[1:] < 0)).sum(axis=0)
    p = np.minimum(1, 2 * (1 + np.minimum(*sides)) / (resamples + 1))
    return Compared(
        mean=_with_interval(means),
        ratio=_with_interval(ratios),
        difference=_with_interval(differences),
        relative=_with_interval(relative),
        p=p,
    )


def _with_interval(values: np.ndarray) -> np.ndarray:
    """(1 + resamples, …), the first being what was observed, to (…, 3)."""
    ordered = np.sort(values[1:], axis=0)  # NaN last
    known = (~np.isnan(ordered)).sum(axis=0)
    ends = [np.maximum(np.ceil(share * known).astype(int) - 1, 0) for share in (0.025, 0.975)]
    low, high = (np.take_along_axis(ordered, end[None], axis=0)[0] for end in ends)
    return np.stack([values[0], low, high], axis=-1)


def resample(columns: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Totals (resamples, columns) of (utterances, columns), over utterances drawn with replacement."""
    utterances = len(columns)
    rng = np.random.default_rng(seed)
    rows = max(1, ROWS // utterances)
    totals = np.empty((resamples, columns.shape[1]))
    for start in range(0, resamples, rows):
        n = min(rows, resamples - start)
        drawn = rng.integers(utterances, size=(n, utterances), dtype=np.int32) + np.arange(n)[:, None] * utterances
        times = np.bincount(drawn.ravel(), minlength=n * utterances).reshape(n, utterances)
        totals[start : start + n] = times.astype(np.float64) @ columns
    return totals
