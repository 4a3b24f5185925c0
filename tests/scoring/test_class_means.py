"""Means of classes of units: the paired bootstrap against a plain loop, equal systems, classes without units."""

import numpy as np
import pytest

from wildctc.scoring.class_means import compare_means


def slow_bootstrap(counts, sums, resamples, seed):
    """As specification §7 says it, one draw after the other; counts (utterances,), sums (2, utterances)."""
    rng = np.random.default_rng(seed)
    at_most = at_least = 0
    differences = []
    for _ in range(resamples):
        drawn = rng.integers(len(counts), size=len(counts))
        units = counts[drawn].sum()
        a, b = (sums[s][drawn].sum() / units for s in (0, 1))
        at_most, at_least = at_most + (b - a <= 0), at_least + (b - a >= 0)
        differences.append(b - a)
    return differences, min(1, 2 * (1 + min(at_most, at_least)) / (resamples + 1))


def test_the_bootstrap_is_that_of_a_slow_direct_version():
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 9, (60, 2))
    base = rng.random((60, 2)) * counts
    sums = np.stack([base, base * rng.normal(1.03, 0.2, (60, 2))])
    found = compare_means(counts, sums, ratio=(1, 0), resamples=4000, seed=3)
    for c in (0, 1):
        differences, p = slow_bootstrap(counts[:, c], sums[:, :, c], 4000, 7)
        total = counts[:, c].sum()
        assert found.mean[:, c, 0] == pytest.approx(sums[:, :, c].sum(axis=1) / total)
        assert found.difference[1, c, 0] == pytest.approx((sums[1, :, c] - sums[0, :, c]).sum() / total)
        low, high = np.quantile(differences, [0.025, 0.975])
        assert found.difference[1, c, 1:] == pytest.approx([low, high], abs=0.1 * (high - low))
        assert found.p[1, c] == pytest.approx(p, abs=0.03)
    assert found.ratio[:, 0] == pytest.approx(found.mean[:, 1, 0] / found.mean[:, 0, 0])


def test_equal_systems_have_no_difference_and_p_1():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (300, 4))
    sums = np.stack([rng.random((300, 4)) * counts] * 3)
    found = compare_means(counts, sums, ratio=(1, 0), resamples=500)
    assert (found.difference == 0).all()
    assert (found.p == 1).all()


def test_a_clear_difference_has_the_smallest_p_there_is():
    counts = np.ones((50, 1), dtype=int)
    found = compare_means(counts, np.stack([counts * 0.1, counts * 0.2]), ratio=(0, 0), resamples=10_000)
    assert found.p[1, 0] == pytest.approx(2 / 10_001)


def test_a_class_without_units_has_no_mean_and_draws_without_units_count_on_both_sides():
    counts = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0]])
    found = compare_means(counts, np.stack([counts * 0.1, counts * 0.2]), ratio=(1, 0), resamples=2000)
    assert np.isnan(found.mean[:, 1]).all()
    assert np.isnan(found.ratio).all()
    assert found.p[1].tolist()[:2] == pytest.approx([2 / 2001, 1])
    assert found.p[1, 2] == pytest.approx(2 * (2 / 3) ** 3, abs=0.05)  # as often as the one utterance is not drawn
