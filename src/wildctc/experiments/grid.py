"""A declared grid of runs: what is trained on, by which criterion, from which seed, with what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from wildctc.errors import WildCTCError

Value = float | str


@dataclass(frozen=True)
class Step:
    """A command that makes data. product: the file, in OUT/data, that is there when it is done; words: of the command,
    with {corpus} for the corpus as it was published and {data} for OUT/data."""

    product: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What a run is trained on, and how.

    data: its folder in OUT/data; tests: name of a test set → its manifest in OUT/data; hours: of training speech,
    about, for the estimate before the corpus is read; folder: of its runs in OUT/runs; train: settings of
    `wildctc train` in place of the recipe's.
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

    name: in the run's folder; shown: in tables; train: settings of `wildctc train`.
    """

    name: str = ""
    shown: Mapping[str, Value] = field(default_factory=dict)
    train: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)  # by identity: a run is a key
class Run:
    """One point of a grid."""

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
        name = self.setting.name if any(not key.startswith("schedule.") for key in self.setting.train) else ""
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
    """The runs of these tasks and criteria (none named: of all), from these seeds, declared or not.

    names: of those, the runs whose folders match one of these, such as "iban/otc-tw/seed1" or "iban/otc-tw*/seed0".
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
    """Every n-th run from the i-th, for "i/n". together: runs of which this is the same stay on one machine.

    >>> shard(["a1", "a2", "b1", "b2", "c1"], "1/2", lambda run: run[0])
    ['a1', 'a2', 'c1']
    """
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise WildCTCError(f"--shard {text}: expected i/n with i from 1 to n, such as 1/4")
    mine = list(dict.fromkeys(map(together, runs)))[int(first) - 1 :: int(count)]
    return [run for run in runs if together(run) in mine]
