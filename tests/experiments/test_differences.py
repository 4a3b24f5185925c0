"""Paired differences over seeds, speakers and utterances: what they promise, and against a plain loop."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.made_up import outcome as make

from wildctc.errors import WildCTCError
from wildctc.experiments.differences import Spread, paired_differences
from wildctc.experiments.results import TestSet


def difference(system, control, **options):
    return paired_differences({"it": system}, control, **{"resamples": 500} | options)["it"].wer


def with_more_errors(test, more):
    """`more` words of each utterance were wrong besides."""
    add = np.array([more, 0, 0, 0])
    return TestSet(test.ids, test.speakers, test.words + add, test.characters + add)


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(1, 4), st.integers(0, 99))
def test_equal_systems_differ_by_exactly_0_whatever_is_drawn(speakers, seeds, number):
    runs = {k: make(0.3, number + k, speakers) for k in range(seeds)}
    found = difference(runs, runs, resamples=50)
    assert (found.value, found.low, found.high) == (0, 0, 0)
    assert not found.certain


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(1, 4), st.integers(-3, 3))
def test_a_known_shift_of_every_utterance_is_found_with_no_doubt(speakers, seeds, more):
    control = {k: make(0.5, k, speakers) for k in range(seeds)}
    system = {k: with_more_errors(test, more) for k, test in control.items()}
    found = difference(system, control, resamples=50)
    assert (found.value, found.low, found.high) == pytest.approx((more / 20,) * 3)
    assert found.by_seed == pytest.approx(dict.fromkeys(control, more / 20))
    assert found.certain == (more != 0)


def test_the_interval_is_that_of_a_plain_loop_over_seeds_speakers_and_utterances():
    speakers = (30, 10, 5, 4, 3)
    control, system = ({k: make(rate, k + at, speakers) for k in range(4)} for rate, at in ((0.3, 0), (0.33, 50)))
    rng = np.random.default_rng(1)
    members = np.split(np.arange(sum(speakers)), np.cumsum(speakers)[:-1])
    drawn = []
    for _ in range(3000):
        of = [members[i] for i in rng.integers(len(members), size=len(members))]
        chosen = np.concatenate([rng.choice(own, len(own)) for own in of])
        seeds = rng.integers(4, size=4)
        rates = [np.mean([runs[k].words[chosen, :3].sum() for k in seeds]) for runs in (system, control)]
        drawn.append((rates[0] - rates[1]) / (20 * len(chosen)))
    found = difference(system, control, resamples=3000)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.08 * (high - low))  # resampling noise


@pytest.mark.parametrize(("seeds", "speakers"), [(1, (9, 4)), (3, (13,)), (1, (1,)), (2, (1,) * 13)])
def test_one_seed_one_speaker_or_one_utterance_each_has_an_interval_too(seeds, speakers):
    control, system = ({k: make(rate, k + at, speakers) for k in range(seeds)} for rate, at in ((0.3, 0), (0.4, 50)))
    found = difference(system, control)
    assert found.low <= found.value <= found.high
    assert (len(found.by_seed), found.speakers) == (seeds, len(speakers))


def test_only_seeds_that_both_have_are_paired():
    control = {k: make(0.3, k) for k in (0, 1, 2)}
    found = paired_differences({"some": {1: make(0.4, 9), 7: make(0.9, 8)}, "none": {7: make(0.9, 8)}}, control)
    assert list(found) == ["some"]
    assert list(found["some"].wer.by_seed) == [1]


def test_utterances_are_paired_by_name_and_must_be_the_same():
    test = make(0.3)
    order = np.arange(len(test.ids))[::-1]
    turned = [[list(names)[i] for i in order] for names in (test.ids, test.speakers)]
    assert difference({0: TestSet(*turned, test.words[order], test.characters[order])}, {0: test}).high == 0
    with pytest.raises(WildCTCError, match="not all were tested on utterance u23"):
        difference({0: make(0.3, speakers=(12, 7, 3, 1))}, {0: test})


def test_the_same_seed_gives_the_same_interval():
    control, system = {k: make(0.3, k) for k in range(3)}, {k: make(0.35, k + 9) for k in range(3)}
    assert difference(system, control) == difference(system, control)
    assert difference(system, control) != difference(system, control, seed=1)


def test_seven_systems_of_five_seeds_take_seconds():
    speakers = (212, 71, 49, 41, 36, 25)
    runs = {name: {k: make(0.4, 9 * k + i, speakers) for k in range(5)} for i, name in enumerate("abcdefg")}
    start = time.process_time()
    paired_differences(runs, runs["a"], resamples=10_000)
    assert time.process_time() - start < 20  # 1 s on a free core


def test_the_interval_holds_the_truth_at_least_as_often_as_it_says():
    """Five seeds that vary, six unequal speakers: 95% of the intervals or more, since the chance in an utterance is
    part of all three levels."""
    speakers, held = (21, 7, 5, 4, 4, 3), 0
    rng = np.random.default_rng(0)
    for i in range(100):
        control = {k: make(0.3, 1000 * i + k, speakers) for k in range(5)}
        system = {k: make(0.32 + rng.normal(0, 0.01), 1000 * i + 500 + k, speakers) for k in range(5)}
        found = difference(system, control, resamples=200, seed=i)
        held += found.low <= 0.02 <= found.high
    assert held >= 95


def test_spread_of_one_seed_or_none_is_not_a_number():
    assert Spread.of([0.5])[0] == 0.5
    assert np.isnan(Spread.of([0.5]).deviation)
    assert np.isnan(Spread.of([]).mean)
