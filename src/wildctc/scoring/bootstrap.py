"""The bootstrap: draw a test set again with replacement, many times, and see how much a number varies.

A draw is kept as weights: how often each unit is in it. A unit is whatever is drawn as a whole: an utterance, a
speaker, a seed. The sums over all draws are then one matrix product. Systems that share the weights are compared draw
by draw (a paired bootstrap), so what makes an utterance hard for all of them cancels out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

RESAMPLES = 10_000
_LEVELS = (0.025, 0.975)  # the ends of a 95% interval
# Units drawn at a time, so that the weights fit into memory. The second also decides the order of the random numbers.
_DRAWN_AT_ONCE = 1 << 20
_DRAWN_AT_ONCE_IN_CLUSTERS = 1 << 21
# From so many units on, the sums are drawn from their normal limit, if they are that near to it: a skewness of s moves
# the ends of a 95% interval by about s / 2 standard errors. 10,000 draws leave them uncertain by 0.03.
_MANY = 100_000
_LARGEST_SKEWNESS = 0.02


def draw_weights(units: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw as many units as there are, with replacement.

    Args:
        units: How many units there are.
        resamples: How many draws.
        rng: Where the random numbers come from.

    Returns:
        (resamples, units) How often each unit was drawn; every row adds up to `units`.
    """
    if not units:
        return np.zeros((resamples, 0), dtype=np.int64)
    return rng.multinomial(units, [1 / units] * units, resamples)


def bootstrap_sums(values: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Sum columns of values over units that are drawn with replacement; all columns share the draws.

    The sums of very many units follow a normal distribution, with the mean and covariance that the draws have. They
    are then drawn from it at once, which takes seconds where drawing the units takes minutes.

    Args:
        values: (units, columns) What is summed, for example an utterance's errors.
        resamples: How many draws.
        seed: Of the random numbers.

    Returns:
        (resamples, columns) The sums.

    >>> bootstrap_sums(np.array([[1.0, 10.0], [2.0, 20.0]]), resamples=3).tolist()
    [[4.0, 40.0], [3.0, 30.0], [2.0, 20.0]]
    """
    rng = np.random.default_rng(seed)
    if len(values) >= _MANY and (limit := _normal_limit(values)) is not None:
        return rng.multivariate_normal(*limit, resamples, check_valid="ignore", method="eigh")
    rows = max(1, _DRAWN_AT_ONCE // len(values))
    sums = np.empty((resamples, values.shape[1]))
    for start in range(0, resamples, rows):
        block = sums[start : start + rows]
        block[:] = _draw_weights_by_index(len(values), len(block), rng).astype(np.float64) @ values
    return sums


def _normal_limit(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and covariance of the sums of drawn units; None if the sums are too skewed, as by one very long unit."""
    units, mean = len(values), values.mean(axis=0)
    apart = values - mean
    variance, third = (apart**2).mean(axis=0), (apart**3).mean(axis=0)
    if (np.abs(third) > _LARGEST_SKEWNESS * np.sqrt(units) * variance**1.5).any():
        return None
    return units * mean, apart.T @ apart


def _draw_weights_by_index(units: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The distribution of `draw_weights` from other random numbers: six times as fast for many units.

    Published numbers were drawn in one way or the other, so both stay.
    """
    drawn = rng.integers(units, size=(resamples, units), dtype=np.int32) + np.arange(resamples)[:, None] * units
    return np.bincount(drawn.ravel(), minlength=resamples * units).reshape(resamples, units)


def bootstrap_cluster_sums(
    values: np.ndarray, clusters: Sequence[str], resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Sum columns of values over clusters that are drawn with replacement, and over units drawn within each.

    First as many clusters are drawn as there are. Then as many units are drawn from each as it has; from a cluster that
    was drawn twice, twice as many.

    Args:
        values: (units, columns) What is summed.
        clusters: (units,) The cluster of each unit, for example an utterance's speaker.
        resamples: How many draws.
        seed: Of the random numbers.

    Returns:
        (resamples, columns) The sums.
    """
    names, cluster, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    members = np.split(np.argsort(cluster, kind="stable"), np.cumsum(sizes)[:-1])
    rng = np.random.default_rng(seed)
    rows = max(1, _DRAWN_AT_ONCE_IN_CLUSTERS // len(values))
    sums = np.zeros((resamples, values.shape[1]))
    for start in range(0, resamples, rows):
        block = sums[start : start + rows]
        drawn = draw_weights(len(names), len(block), rng)
        for times, own in zip(drawn.T, members, strict=True):
            weights = rng.multinomial(times * len(own), [1 / len(own)] * len(own))
            block += weights.astype(np.float64) @ values[own]
    return sums


def percentile_interval(draws: np.ndarray, *, interpolate: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The 95% percentile interval of what was drawn.

    Args:
        draws: (resamples, …) A number for each draw; NaN where a draw has none, and these do not count.
        interpolate: Interpolate between two draws. By default an end is a draw itself: next to an infinite one an
            interpolation would be NaN.

    Returns:
        The lower and the upper end, (…) each; NaN where no draw has a number.

    >>> low, high = percentile_interval(np.arange(1, 101))
    >>> int(low), int(high)
    (3, 98)
    """
    if not len(draws):
        return np.full(draws.shape[1:], np.nan), np.full(draws.shape[1:], np.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        low, high = np.nanquantile(draws, _LEVELS, axis=0, method="linear" if interpolate else "inverted_cdf")
    return low, high


def two_sided_p(differences: np.ndarray) -> np.ndarray:
    """How probable it is that there is no difference: min(1, 2 (1 + min(#Δ ≤ 0, #Δ ≥ 0)) / (resamples + 1)).

    Args:
        differences: (resamples, …) The difference Δ of each draw; NaN, where a draw has none, counts on both sides.

    Returns:
        (…) The two-sided p.

    >>> float(two_sided_p(np.array([0.1, 0.2, 0.3, -0.1])))
    0.8
    """
    not_above, not_below = (~(differences > 0)).sum(axis=0), (~(differences < 0)).sum(axis=0)
    return np.minimum(1, 2 * (1 + np.minimum(not_above, not_below)) / (len(differences) + 1))
