"""Word error rates by task and criterion, as in the paper's tables: averages, relative reduction, which is lowest."""

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
    """wer, spread: (tasks, criteria) in percent, NaN where there is none. marks: † and ‡, by task and criterion."""

    corpora: list[str]
    tasks: list[str]
    wer: np.ndarray
    spread: np.ndarray
    seeds: np.ndarray
    marks: dict[tuple[str, str], str] = field(default_factory=dict)

    def of(self, corpora: Sequence[str]) -> Rates:
        """The tasks of some corpora."""
        rows = [i for i, corpus in enumerate(self.corpora) if corpus in corpora]
        names = [[x[i] for i in rows] for x in (self.corpora, self.tasks)]
        return replace(self, corpora=names[0], tasks=names[1], wer=self.wer[rows], spread=self.spread[rows],
                       seeds=self.seeds[rows])  # fmt: skip

    def where(self, other: Rates) -> Rates:
        """Only what the other has too."""
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
        """Name and the tasks that it is the average of: each corpus, and all of several."""
        corpora = list(dict.fromkeys(self.corpora))
        own = [(AVERAGES.get(corpus, "Avg"), self.of([corpus])) for corpus in corpora]
        return own + ([("Avg", self)] if len(corpora) > 1 else [])

    def mean(self) -> np.ndarray:
        """(criteria,) unweighted over the complete tasks."""
        rows = self.wer[self.complete]
        return rows.mean(axis=0) if len(rows) else np.full(len(PAPER_CRITERIA), math.nan)


def lowest(wer: np.ndarray) -> np.ndarray:
    """Which are the lowest of their row, if there are others to compare with. wer: (…, criteria).

    >>> lowest(np.array([[2.0, 1.0, math.nan], [math.nan, 1.0, math.nan]])).tolist()
    [[False, True, False], [False, False, False]]
    """
    known = np.where(np.isnan(wer), math.inf, wer)
    several = (~np.isnan(wer)).sum(axis=-1, keepdims=True) > 1
    return (wer == known.min(axis=-1, keepdims=True)) & several


def reduction(wer: np.ndarray) -> np.ndarray:
    """Relative to plain CTC, in percent. wer: (…, criteria).

    >>> reduction(np.array([5.96, 6.13, 5.68, 5.49, 5.51, 5.24, 5.38]))[BEST].round(2)
    np.float64(9.73)
    """
    return 100 * (1 - wer / wer[..., CTC : CTC + 1])


def measured(results: Sequence[RunResult], like: Rates) -> Rates:
    """The rates of runs, for the same tasks. A task is what was trained on or, of LibriSpeech, a test set."""
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
