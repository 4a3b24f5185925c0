"""The bootstrap: exact distributions on tiny sets, and frozen numbers of everything that is computed with it."""

from collections import Counter

import numpy as np
import pytest
from support.made_up import outcome

from wildctc.corruption.detection import ScoredUnits, measure_detection
from wildctc.experiments.differences import paired_differences
from wildctc.scoring.bootstrap import (
    bootstrap_cluster_sums,
    bootstrap_sums,
    draw_weights,
    percentile_interval,
    two_sided_p,
)
from wildctc.scoring.class_means import compare_means
from wildctc.scoring.comparison import compare
from wildctc.scoring.hypotheses import Decoded

EXACT = 1e-12  # only the last bits depend on the number of threads


# ------------------------------------------------------------------------------------------------------- what is drawn


def test_every_draw_has_as_many_units_as_there_are():
    weights = draw_weights(7, 50, np.random.default_rng(0))
    assert weights.shape == (50, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert draw_weights(0, 5, np.random.default_rng(0)).shape == (5, 0)


@pytest.mark.parametrize("how", ["weights", "sums"])
def test_every_draw_of_two_units_is_as_frequent_as_it_should_be(how):
    draw = {
        "weights": lambda: draw_weights(2, 20_000, np.random.default_rng(0)),
        "sums": lambda: bootstrap_sums(np.eye(2), 20_000),
    }
    weights = draw[how]()
    frequency = Counter(map(tuple, weights.tolist()))
    shares = [frequency[pair] / 20_000 for pair in ((2, 0), (1, 1), (0, 2))]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_columns_share_the_draws_and_blocks_do_not_change_them(monkeypatch):
    values = np.random.default_rng(0).integers(0, 9, (11, 3)).astype(float)
    whole = bootstrap_sums(np.column_stack([values, values]), 500, seed=4)
    assert (whole[:, :3] == whole[:, 3:]).all()
    monkeypatch.setattr("wildctc.scoring.bootstrap._DRAWN_AT_ONCE", 77)  # 7 draws at a time
    assert (bootstrap_sums(values, 500, seed=4) == whole[:, :3]).all()


def test_the_limit_for_very_many_units_has_the_intervals_of_drawing_them(monkeypatch):
    rng = np.random.default_rng(0)
    errors = rng.poisson(1.3, 20_000).astype(float)
    values = np.column_stack([errors, rng.integers(5, 30, 20_000), errors + rng.poisson(0.2, 20_000)])
    drawn = bootstrap_sums(values, 4000)
    monkeypatch.setattr("wildctc.scoring.bootstrap._MANY", 20_000)
    limit = bootstrap_sums(values, 4000)
    assert (limit != drawn).all()
    for number in (lambda sums: sums[:, 0] / sums[:, 1], lambda sums: sums[:, 2] / sums[:, 0] - 1):
        ends, expected = (np.array(percentile_interval(number(sums))) for sums in (limit, drawn))
        assert np.abs(ends - expected).max() < 0.2 * number(drawn).std()  # of two sets of 4,000 draws, 0.06 apart


def test_units_of_which_one_decides_are_drawn_however_many_there_are(monkeypatch):
    values = np.ones((2000, 1))
    values[0] = 1e6
    drawn = bootstrap_sums(values, 200)
    monkeypatch.setattr("wildctc.scoring.bootstrap._MANY", 2000)
    assert (bootstrap_sums(values, 200) == drawn).all()
    assert (bootstrap_sums(np.ones((2000, 2)), 5) == 2000).all()


def test_a_cluster_that_was_drawn_twice_has_its_units_drawn_twice():
    # Columns: whether a unit is of cluster a, of cluster b. The two clusters have 2 units and 1.
    values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    sums = bootstrap_cluster_sums(values, ["a", "b", "a"], 20_000)
    frequency = Counter(map(tuple, sums.tolist()))
    shares = [frequency[pair] / 20_000 for pair in ((4, 0), (2, 1), (0, 2))]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_units_vary_within_a_cluster():
    sums = bootstrap_cluster_sums(np.array([[0.0], [1.0]]), ["a", "a"], 20_000)
    assert [float((sums == n).mean()) for n in (0, 1, 2)] == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


# --------------------------------------------------------------------------------------------------- intervals and p


def test_the_ends_of_an_interval_are_draws_that_leave_two_and_a_half_percent_outside():
    draws = np.random.default_rng(0).permutation(np.arange(1000.0))
    assert percentile_interval(draws) == (24, 974)
    assert percentile_interval(draws, interpolate=True) == pytest.approx((24.975, 974.025))


def test_draws_without_a_number_do_not_count_and_infinite_ones_do():
    draws = np.stack([np.arange(100.0), np.full(100, np.nan), np.r_[np.full(50, np.nan), np.full(50, np.inf)]], axis=1)
    low, high = percentile_interval(draws)
    np.testing.assert_equal(low, [2, np.nan, np.inf])
    np.testing.assert_equal(high, [97, np.nan, np.inf])
    np.testing.assert_equal(percentile_interval(np.zeros((0, 2))), np.full((2, 2), np.nan))
    np.testing.assert_equal(percentile_interval(np.zeros(0), interpolate=True), np.full(2, np.nan))


def test_p_counts_the_rarer_side_twice_and_ties_and_missing_numbers_on_both():
    draws = np.array([[1.0, 1.0, 0.0, np.nan], [1.0, -1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0]])
    assert two_sided_p(draws).tolist() == [0.5, 1.0, 1.0, 1.0]
    assert float(two_sided_p(np.ones(9_999))) == 2 / 10_000


# ----------------------------------------------------------------------------- frozen: published numbers depend on them


def test_comparison_of_error_rates_is_frozen():
    rng = np.random.default_rng(0)
    references = [" ".join(f"w{j}" for j in range(n)) for n in rng.integers(1, 12, 80)]
    systems = {}
    for name, rate in (("a", 0.3), ("b", 0.2)):
        texts = [" ".join(w if rng.random() > rate else "x" for w in r.split()) for r in references]
        pairs = zip(texts, references, strict=True)
        systems[name] = [Decoded(f"u{i}", text, (reference,)) for i, (text, reference) in enumerate(pairs)]
    found = compare(systems, resamples=1000, seed=3).systems[1]
    wer, cer = ((change.relative, change.low, change.high) for change in (found.wer_change, found.cer_change))
    assert wer == pytest.approx((-0.23664122137404586, -0.3925925925925926, -0.04761904761904767), rel=EXACT)
    assert cer == pytest.approx((-0.24242424242424243, -0.3992673992673993, -0.051724137931034586), rel=EXACT)


def test_comparison_of_class_means_is_frozen():
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 5, (60, 2))
    sums = np.stack([rng.random((60, 2)) * counts for _ in range(2)])
    found = compare_means(counts, sums, ratio=(1, 0), resamples=1000, seed=3)
    expected = {
        "mean": [0.4721045977439467, 0.37011277130144604, 0.5730487009426],
        "difference": [-0.0043021573018237605, -0.12947829544963724, 0.11484857044180927],
        "relative": [-0.009030428843122582, -0.24748980331906473, 0.27030154461471045],
        "p": 0.985014985014985,
    }
    for name, value in expected.items():
        assert getattr(found, name)[1, 1] == pytest.approx(value, rel=EXACT), name
    assert found.ratio[1] == pytest.approx([1.0612293605268732, 0.7798253809500288, 1.4177587359897683], rel=EXACT)


def test_detection_of_known_errors_is_frozen():
    rng = np.random.default_rng(2)
    wrong = rng.random(600) < 0.1
    scores = {"p": rng.random(600) + 0.02 * wrong, "q": rng.random(600).round(1)}
    found = measure_detection(ScoredUnits(wrong, np.sort(rng.integers(0, 30, 600)), scores), resamples=200, seed=3)
    auc, precision, behind = found["q"].auc, found["p"].precision, found["q"].behind
    assert auc == pytest.approx((0.4821266330398822, 0.4160992915918709, 0.5563738460696406), rel=EXACT)
    assert precision == pytest.approx((0.5, 0.0, 1.0), rel=EXACT)
    assert behind == pytest.approx((0.10658228641248163, 0.0032491564143776815, 0.20848218737057275), rel=EXACT)


def test_difference_over_seeds_and_speakers_is_frozen():
    control, system = ({k: outcome(rate, k + at) for k in range(3)} for rate, at in ((0.3, 0), (0.35, 9)))
    found = paired_differences({"it": system}, control, resamples=500, seed=3)["it"]
    wer, cer = ((difference.value, difference.low, difference.high) for difference in found)
    assert wer == pytest.approx((0.08333333333333336, 0.026560235507246392, 0.16122222222222213), rel=EXACT)
    assert cer == pytest.approx((0.016666666666666666, 0.005312047101449273, 0.03224444444444442), rel=EXACT)
