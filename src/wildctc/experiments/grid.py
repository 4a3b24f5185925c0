"""A declared grid of runs: what is trained on, by which criterion, from which seed, with which settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from wildctc.errors import WildCTCError

Value = float | str


@dataclass(frozen=True)
class Step:
    """A command that makes data.

    Attributes:
        product: A file in OUT/data that exists when the command is done.
        words: The command; {corpus} stands for the published corpus, and {data} for OUT/data.
    """

    product: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What a run is trained on, and how.

    Attributes:
        name: Its name in tables.
        recipe: The recipe.
        data: Its folder in OUT/data.
        steps: The commands that make its data.
        tests: The name of each test set → its manifest in OUT/data.
        hours: About how many hours of training speech, for estimates before the corpus is read.
        folder: The folder of its runs in OUT/runs, if that is not its name.
        train: Settings of `wildctc train` that replace the recipe's.
    """

    name: str
    recipe: str
    data: str
    steps: tuple[Step, ...]
    tests: Mapping[str, str]
    hours: float
    folder: str = ""
    train: Mapping[str, Value] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return self.folder or self.name


@dataclass(frozen=True)
class Setting:
    """What else differs between the runs of a criterion.

    Attributes:
        name: In the run's folder.
        shown: In tables.
        train: Settings of `wildctc train`.
    """

    name: str = ""
    shown: Mapping[str, Value] = field(default_factory=dict)
    train: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)  # by identity: a run is a key
class Run:
    """One point of a grid.

    Attributes:
        task: What it is trained on.
        criterion: The criterion's name.
        seed: The seed.
        setting: What else differs.
    """

    task: Task
    criterion: str
    seed: int
    setting: Setting

    @property
    def folder(self) -> Path:
        """<task>/<criterion>[-<setting>]/seed<k>."""
        system = f"{self.criterion}-{self.setting.name}" if self.setting.name else self.criterion
        return Path(self.task.place) / system / f"seed{self.seed}"

    @property
    def trunk(self) -> Path:
        """The folder of the plain CTC run with the same settings, whose first epochs this one may share."""
        others = [key for key in self.setting.train if not key.startswith(("schedule.", "rates."))]
        name = self.setting.name if others else ""
        return Run(self.task, "ctc", self.seed, Setting(name)).folder

    def __str__(self) -> str:
        return str(self.folder).replace("/", " ")


def select(
    runs: Sequence[Run],
    tasks: Sequence[str] = (),
    criteria: Sequence[str] = (),
    seeds: Sequence[int] = (),
    names: Sequence[str] = (),
) -> list[Run]:
    """Select runs of a grid.

    Args:
        runs: The declared runs.
        tasks: Names of tasks; none selects all.
        criteria: Names of criteria; none selects all.
        seeds: Seeds to use instead of the declared ones; they need not be declared.
        names: Folders of runs, such as "iban/otc-tw/seed1" or "iban/otc-tw*/seed0"; none selects all.

    Returns:
        The runs, in the order of the grid.

    Raises:
        WildCTCError: A name matches nothing.
    """
    _check("--tasks", tasks, [run.task.name for run in runs])
    _check("--criteria", criteria, [run.criterion for run in runs])
    chosen = [
        run for run in runs if (not tasks or run.task.name in tasks) and (not criteria or run.criterion in criteria)
    ]
    if seeds:
        reseeded = {replace(run, seed=seed).folder: replace(run, seed=seed) for run in chosen for seed in seeds}
        chosen = list(reseeded.values())
    for name in names:
        if not any(fnmatchcase(str(run.folder), name) for run in chosen):
            some = ", ".join(str(run.folder) for run in chosen[:3])
            raise WildCTCError(f"--runs: no run is called {name!r}; their names are as {some}")
    return [run for run in chosen if not names or any(fnmatchcase(str(run.folder), name) for name in names)]


def _check(name: str, chosen: Iterable[str], known: Sequence[str]) -> None:
    for value in chosen:
        if value not in known:
            raise WildCTCError(f"{name}: no {value!r} in this experiment; there are: {', '.join(dict.fromkeys(known))}")


def shard(runs: Sequence[Run], text: str, together: Callable[[Run], str] = lambda run: str(run.folder)) -> list[Run]:
    """Choose the runs of one of several machines.

    Args:
        runs: All runs.
        text: "i/n": every n-th run from the i-th.
        together: Runs for which this gives the same string stay on one machine.

    Returns:
        The runs of that machine.

    Raises:
        WildCTCError: The text is not of this form.

    >>> shard(["a1", "a2", "b1", "b2", "c1"], "1/2", lambda run: run[0])
    ['a1', 'a2', 'c1']
    """
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise WildCTCError(f"--shard {text}: expected i/n with i from 1 to n, such as 1/4")
    mine = list(dict.fromkeys(map(together, runs)))[int(first) - 1 :: int(count)]
    return [run for run in runs if together(run) in mine]
