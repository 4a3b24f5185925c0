"""Word error rates by task and criterion, as in the paper's tables: averages, reductions, the lowest of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wildctc.experiments.differences import Spread
from wildctc.experiments.results import RunResult
from wildctc.experiments.systems import PAPER_NAMES

PAPER_CRITERIA = tuple(PAPER_NAMES)
CTC, BEST = PAPER_CRITERIA.index("ctc"), PAPER_CRITERIA.index("otc-tw-h")  # whose reduction the paper reports
AVERAGES = {"LibriSpeech": "Lavg", "FLEURS": "Favg", "RESPIN": "Ravg"}


@dataclass(frozen=True)
class Rates:
    """Word error rates of tasks × criteria; the criteria are PAPER_CRITERIA.

    Attributes:
        corpora: The corpus of each task.
        tasks: The tasks.
        wer: (tasks, criteria) in percent; NaN for none.
        spread: (tasks, criteria) standard deviation over seeds; NaN for none.
        seeds: (tasks, criteria) number of seeds.
        marks: (task, criterion) → † and ‡.
    """

    corpora: list[str]
    tasks: list[str]
    wer: np.ndarray
    spread: np.ndarray
    seeds: np.ndarray
    marks: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, corpora: Sequence[str]) -> Rates:
        """Select the tasks of some corpora.

        Args:
            corpora: The corpora.

        Returns:
            Their rates.
        """
        rows = [i for i, corpus in enumerate(self.corpora) if corpus in corpora]
        names = [[x[i] for i in rows] for x in (self.corpora, self.tasks)]
        return replace(self, corpora=names[0], tasks=names[1], wer=self.wer[rows], spread=self.spread[rows],
                       seeds=self.seeds[rows])  # fmt: skip

    def where(self, other: Rates) -> Rates:
        """Remove the rates that another table does not have.

        Args:
            other: Rates of the same tasks.

        Returns:
            These rates, NaN where the other has NaN.
        """
        return replace(self, wer=np.where(np.isnan(other.wer), math.nan, self.wer))

    @property
    def begun(self) -> np.ndarray:
        """(criteria,) those that have a figure at all: others are missing altogether."""
        return ~np.isnan(self.wer).all(axis=0)

    @property
    def complete(self) -> np.ndarray:
        """(tasks,) those that have a figure of every criterion that has any: only there can criteria be compared."""
        return self.begun.any() & ~np.isnan(self.wer[:, self.begun]).any(axis=1)

    @property
    def best(self) -> np.ndarray:
        """(tasks, criteria) the lowest of each complete task."""
        return lowest(self.wer) & self.complete[:, None]

    def averages(self) -> list[tuple[str, Rates]]:
        """List what is averaged: each corpus and, if there are several, all.

        Returns:
            The name of each average, and the tasks that it is over.
        """
        corpora = list(dict.fromkeys(self.corpora))
        own = [(AVERAGES.get(corpus, "Avg"), self.of([corpus])) for corpus in corpora]
        return own + ([("Avg", self)] if len(corpora) > 1 else [])

    def mean(self) -> np.ndarray:
        """Average over the complete tasks, without weights.

        Returns:
            (criteria,) the means; NaN without complete tasks.
        """
        rows = self.wer[self.complete]
        return rows.mean(axis=0) if len(rows) else np.full(len(PAPER_CRITERIA), math.nan)


def lowest(wer: np.ndarray) -> np.ndarray:
    """Find the lowest rate of each row.

    Args:
        wer: (…, criteria); NaN for none.

    Returns:
        (…, criteria) bool; all False in a row with fewer than two rates.

    >>> lowest(np.array([[2.0, 1.0, math.nan], [math.nan, 1.0, math.nan]])).tolist()
    [[False, True, False], [False, False, False]]
    """
    known = np.where(np.isnan(wer), math.inf, wer)
    several = (~np.isnan(wer)).sum(axis=-1, keepdims=True) > 1
    return (wer == known.min(axis=-1, keepdims=True)) & several


def reduction(wer: np.ndarray) -> np.ndarray:
    """Compute the reduction relative to plain CTC.

    Args:
        wer: (…, criteria).

    Returns:
        (…, criteria) in percent.

    >>> reduction(np.array([5.96, 6.13, 5.68, 5.49, 5.51, 5.24, 5.38]))[BEST].round(2)
    np.float64(9.73)
    """
    return 100 * (1 - wer / wer[..., CTC : CTC + 1])


def measured(results: Sequence[RunResult], like: Rates) -> Rates:
    """Collect the rates of runs.

    Args:
        results: The results of runs; those with a setting are ignored.
        like: The tasks. A task is what was trained on or, for LibriSpeech, a test set.

    Returns:
        The rates of these tasks: means over seeds.
    """
    results = [run for run in results if not run.setting]
    shape = len(like.tasks), len(PAPER_CRITERIA)
    wer, spread, seeds = np.full(shape, math.nan), np.full(shape, math.nan), np.zeros(shape, dtype=int)
    marks = {}
    for i, task in enumerate(like.tasks):
        for j, criterion in enumerate(PAPER_CRITERIA):
            runs = [run for run in results if run.criterion == criterion and (run.task == task or task in run.tests)]
            found = Spread.of([100 * _rate(run, task) for run in runs if run.tests])
            wer[i, j], spread[i, j], seeds[i, j] = found
            dagger, diverged = (any(getattr(run, x) is not None for run in runs) for x in ("dagger", "diverged"))
            marks[task, criterion] = "†" * dagger + "‡" * diverged
    return Rates(like.corpora, like.tasks, wer, spread, seeds, marks)


def _rate(run: RunResult, task: str) -> float:
    return (run.tests[task].wer if task in run.tests else run.errors()).rate
