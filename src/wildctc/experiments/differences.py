"""Measure how far a system is from plain CTC, and how certain that is.

Everything that could have come out differently is resampled with replacement: the seeds, the speakers of the test set,
and the utterances of each speaker. Both systems get the same resamples, so that what makes a seed, a speaker or an
utterance hard for both cancels out. All seeds are tested on the same utterances, so they share the resamples of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from wildctc.errors import WildCTCError
from wildctc.experiments.results import TestSet
from wildctc.scoring.bootstrap import RESAMPLES, bootstrap_cluster_sums, draw_weights, percentile_interval

Name = TypeVar("Name")


class Spread(NamedTuple):
    """Mean and standard deviation over seeds.

    Attributes:
        mean: The mean; NaN without seeds.
        deviation: The standard deviation; NaN with fewer than two seeds.
        seeds: How many seeds there are.
    """

    mean: float
    deviation: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values.

        Args:
            values: A value for each seed; NaN is ignored.

        Returns:
            Their mean and deviation.

        >>> Spread.of([1.0, 3.0])
        Spread(mean=2.0, deviation=1.41..., seeds=2)
        """
        known = [value for value in values if value is not None and not math.isnan(value)]
        mean = float(np.mean(known)) if known else math.nan
        return cls(mean, float(np.std(known, ddof=1)) if len(known) > 1 else math.nan, len(known))


@dataclass(frozen=True)
class Difference:
    """An error rate minus that of the control, as a mean over the seeds that both have.

    With one seed or one speaker, the interval does not contain how the difference varies over seeds or speakers.

    Attributes:
        value: The mean difference.
        low: The lower end of its 95% interval.
        high: The upper end.
        control: The mean error rate of the control.
        by_seed: The difference of each seed.
        speakers: How many speakers the test set has.
    """

    value: float
    low: float
    high: float
    control: float
    by_seed: dict[int, float]
    speakers: int

    @property
    def relative(self) -> float:
        return self.value / self.control if self.control else math.nan

    @property
    def certain(self) -> bool:
        return self.low > 0 or self.high < 0


class Paired(NamedTuple):
    """The differences of a system to its control.

    Attributes:
        wer: In word error rate.
        cer: In character error rate.
    """

    wer: Difference
    cer: Difference


def paired_differences(
    systems: Mapping[Name, Mapping[int, TestSet]],
    control: Mapping[int, TestSet],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[Name, Paired]:
    """Compare systems with a control, seed by seed.

    The intervals are percentile intervals. They contain the chance of single utterances more than once, because it is
    part of how utterances, speakers and seeds vary; few seeds or speakers, however, vary less among themselves than all
    do. In simulated tests of Iban's size (6 speakers, 5 seeds) the interval contained the truth in 98% of cases if true
    differences vary by 0.6 points from seed to seed and 1 from speaker to speaker, in 92% for 2 and 0 points, and in
    87% for 0 and 4.

    Args:
        systems: The name of each system → its test set by seed.
        control: The test set of the control by seed.
        resamples: Bootstrap resamples.
        seed: Seed of the bootstrap.

    Returns:
        The name of each system → its differences. A system that shares no seed with the control is not among them.

    Raises:
        WildCTCError: Not all runs were tested on the same utterances.
    """
    pairs = {name: [k for k in tests if k in control] for name, tests in systems.items()}
    runs = [control[k] for k in control] + [systems[name][k] for name, seeds in pairs.items() for k in seeds]
    if len(runs) == len(control):
        return {}
    rates = _rates(_aligned(runs), resamples, seed)
    of_control = dict(zip(control, rates[: len(control)], strict=True))
    rest = iter(rates[len(control) :])
    found = {}
    for name, seeds in pairs.items():
        if seeds:
            own, theirs = np.stack([next(rest) for _ in seeds]), np.stack([of_control[k] for k in seeds])
            found[name] = _paired(own, theirs, seeds, len(set(runs[0].speakers)), seed)
    return found


def _paired(own: np.ndarray, theirs: np.ndarray, seeds: list[int], speakers: int, seed: int) -> Paired:
    """own, theirs: (seeds, 1 + resamples, 2), what was observed and what was drawn."""
    count, resamples = len(seeds), own.shape[1] - 1
    times = draw_weights(count, resamples, np.random.default_rng([seed, 1]))
    differences = own - theirs
    drawn = np.einsum("rk,krc->rc", times, differences[:, 1:]) / count
    low, high = percentile_interval(drawn, interpolate=True)
    parts = []
    for c in range(2):
        by_seed = dict(zip(seeds, differences[:, 0, c].tolist(), strict=True))
        value, control = float(np.mean(differences[:, 0, c])), float(np.mean(theirs[:, 0, c]))
        parts.append(Difference(value, float(low[c]), float(high[c]), control, by_seed, speakers))
    return Paired(*parts)


def _aligned(runs: Sequence[TestSet]) -> list[TestSet]:
    """All in the order of the first."""
    first = runs[0]
    aligned = []
    for run in runs:
        if sorted(run.ids) != sorted(first.ids):
            other = sorted(set(run.ids) ^ set(first.ids))[:1]
            raise WildCTCError(f"runs cannot be compared: not all were tested on utterance {', '.join(other)}")
        place = {id: i for i, id in enumerate(run.ids)}
        order = np.array([place[id] for id in first.ids], dtype=int)
        aligned.append(TestSet(first.ids, first.speakers, run.words[order], run.characters[order]))
    return aligned


def _rates(runs: Sequence[TestSet], resamples: int, seed: int) -> np.ndarray:
    """WER and CER: (runs, 1 + resamples, 2), the first being what was observed."""
    counts = np.stack([np.stack([run.words, run.characters], 1) for run in runs], 1)  # utterances, runs, 2, 4
    columns = np.stack([counts[..., :3].sum(-1), counts[..., 3]], -1).reshape(len(counts), -1).astype(np.float64)
    drawn = bootstrap_cluster_sums(columns, runs[0].speakers, resamples, seed)
    totals = np.concatenate([columns.sum(0, keepdims=True), drawn]).reshape(1 + resamples, len(runs), 2, 2)
    return (totals[..., 0] / np.maximum(totals[..., 1], 1)).transpose(1, 0, 2)
