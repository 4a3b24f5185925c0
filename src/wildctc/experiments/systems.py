"""Group runs that differ only in their seed into systems, and find the plain CTC system that each is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wildctc.criteria import CRITERIA
from wildctc.errors import WildCTCError
from wildctc.experiments.results import RunResult, TestSet

CONTROL = "ctc"
PAPER_NAMES = {
    "ctc": "CTC",
    "otc-w": "W_e",
    "otc-w-tuned": "W_e'",
    "otc-t": "T_e",
    "otc-t-h": "T_H",
    "otc-tw": "TW_e",
    "otc-tw-h": "TW_H",
}  # the columns of its tables, in their order


@dataclass(frozen=True)
class System:
    """The runs of one task, criterion and setting.

    Attributes:
        task: What they were trained on.
        criterion: The criterion's name.
        setting: What else differs, by name.
        runs: Seed → result. Runs that diverged have no test sets.
    """

    task: str
    criterion: str
    setting: dict[str, float | str]
    runs: dict[int, RunResult]

    @property
    def name(self) -> str:
        """
        >>> System("iban", "otc-t", {"schedule": "published"}, {}).name
        'otc-t (schedule published)'
        """
        setting = describe(self.setting)
        return f"{self.criterion} ({setting})" if setting else self.criterion

    @property
    def finished(self) -> dict[int, RunResult]:
        return {seed: run for seed, run in self.runs.items() if run.tests}

    @property
    def tests(self) -> dict[int, TestSet]:
        """What each seed was tested on, all test sets together."""
        return {seed: pooled(run) for seed, run in self.finished.items()}

    @property
    def diverged(self) -> int:
        return sum(run.diverged is not None for run in self.runs.values())

    @property
    def daggers(self) -> list[float]:
        """The word bypass weights of runs that the † rule gave another."""
        return sorted({run.dagger for run in self.runs.values() if run.dagger is not None})


def describe(setting: Mapping[str, float | str]) -> str:
    """Format a setting for people.

    Args:
        setting: Name → value.

    Returns:
        Names and values, separated by commas.

    >>> describe({"word bypass τ": 0.9, "self-loop": -1.0})
    'word bypass τ 0.9, self-loop −1'
    """
    values = {name: x if isinstance(x, str) else f"{x:g}".replace("-", "−") for name, x in setting.items()}
    return ", ".join(f"{name} {value}" for name, value in values.items())


def group_runs(results: Sequence[RunResult]) -> list[System]:
    """Group results into systems.

    Args:
        results: The results of runs.

    Returns:
        The systems: by task in the given order, then by criterion in the order of the table of criteria, then by
        setting in the given order.

    Raises:
        WildCTCError: Two results are of the same run.
    """
    found: dict[tuple[str, str, frozenset[tuple[str, float | str]]], dict[int, RunResult]] = {}
    for result in results:
        runs = found.setdefault((result.task, result.criterion, frozenset(result.setting.items())), {})
        if result.seed in runs:
            raise WildCTCError(
                f"two results of {result.task}, {result.criterion}, {result.setting}, seed {result.seed}"
            )
        runs[result.seed] = result
    tasks, criteria = list(dict.fromkeys(result.task for result in results)), list(CRITERIA)
    systems = [
        System(task, criterion, next(iter(runs.values())).setting, dict(sorted(runs.items())))
        for (task, criterion, _), runs in found.items()
    ]
    return sorted(systems, key=lambda s: (tasks.index(s.task), criteria.index(s.criterion)))


def control_of(system: System, systems: Sequence[System]) -> System | None:
    """Find the plain CTC system that a system is compared with.

    Args:
        system: The system.
        systems: All systems.

    Returns:
        Plain CTC on the same task. Its setting must be part of the system's (plain CTC has no schedule); of several,
        the one with the most in common. None if there is none.
    """
    own = system.setting.items()
    choices = [s for s in systems if s.criterion == CONTROL and s.task == system.task and s.setting.items() <= own]
    return max(choices, key=lambda s: len(s.setting), default=None)


def pooled(run: RunResult) -> TestSet:
    """Join all test sets of a run.

    Args:
        run: The result of a run.

    Returns:
        One test set; of several, ids begin with the name of the set.
    """
    if len(run.tests) == 1:
        return next(iter(run.tests.values()))
    return TestSet(
        [f"{name}/{id}" for name, test in run.tests.items() for id in test.ids],
        [speaker for test in run.tests.values() for speaker in test.speakers],
        np.concatenate([test.words for test in run.tests.values()]),
        np.concatenate([test.characters for test in run.tests.values()]),
    )
