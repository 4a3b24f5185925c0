"""The folder that an experiment is run in: where everything is, and how far each run has come.

OUT/data has the manifests, OUT/features the features, OUT/runs/<task>/<criterion>[-<setting>]/seed<k> the runs.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.experiments.catalogue import Experiment
from wildctc.experiments.grid import Run
from wildctc.experiments.results import RunResult
from wildctc.experiments.systems import CONTROL
from wildctc.files import only_one
from wildctc.training.config import Config, apply_arguments, differences, flatten, load_recipe, to_dict, validate
from wildctc.training.run_folder import CONFIG, has_checkpoint, is_trained, read_metrics, read_settings

RESULT = "result.json"


@dataclass(frozen=True)
class Site:
    """settings: of `wildctc train`, as words, for all runs alike."""

    experiment: Experiment
    out: Path
    settings: tuple[str, ...] = ()
    _configs: dict[Run, Config] = field(default_factory=dict, repr=False)

    @property
    def data(self) -> Path:
        return self.out / "data"

    def folder(self, run: Run) -> Path:
        return self.out / "runs" / run.folder

    def words(self, run: Run) -> list[str]:
        """What `wildctc train` is given, but for the run's folder."""
        train = {**run.task.train, **run.setting.train}
        changed = [word for key, value in train.items() for word in (f"--{key}", str(value))]
        return [
            run.task.recipe, "--criterion", run.criterion, "--seed", str(run.seed),
            "--data.dir", str(self.data / run.task.data), "--data.cache", str(self.out / "features"),
            *changed, *self.settings,
        ]  # fmt: skip

    def config(self, run: Run) -> Config:
        """The settings that the run has, or will have."""
        if run not in self._configs:
            recipe, *words = self.words(run)
            config = copy.deepcopy(_read_recipe(recipe))
            apply_arguments(config, words)
            validate(config)
            self._check_declared(run, config)
            self._configs[run] = config
        return self._configs[run]

    def _check_declared(self, run: Run, config: Config) -> None:
        """Settings for all runs must leave what tells them apart: a row would be called what it is not."""
        given = flatten(to_dict(config))
        data = str(self.data / run.task.data)
        for key, value in {"criterion": run.criterion, "seed": run.seed, "data.dir": data, **run.setting.train}.items():
            if given[key] != value:
                instead = {"criterion": "; choose with --criteria", "seed": "; choose with --seeds"}.get(key, "")
                raise WildCTCError(f"--{key} {given[key]}: {key} is {value} in the run {run}, and stays so{instead}")

    def trunk(self, run: Run) -> Path | None:
        """The run whose first epochs this one shares, if it has any to share."""
        if run.criterion == CONTROL or self.config(run).training.ctc_epochs == 0:
            return None
        return self.out / "runs" / run.trunk

    def check_settings(self, run: Run) -> None:
        """A run that is there must have been begun with the settings of the grid."""
        folder = self.folder(run)
        begun = has_checkpoint(folder) or is_trained(folder) or (folder / RESULT).exists()
        changed = differences(read_settings(folder), self.config(run)) if begun and (folder / CONFIG).exists() else []
        if changed:
            raise WildCTCError(
                f"{folder} holds a run with other settings ({'; '.join(changed[:3])}): choose another --out"
            )

    def result(self, run: Run) -> RunResult | None:
        """What is kept of a run that is finished."""
        self.check_settings(run)
        return load_result(self.folder(run) / RESULT, self.experiment, run)

    def state(self, run: Run) -> str:
        """How far a run has come, in a few words."""
        try:
            result = self.result(run)
        except WildCTCError as error:
            return str(error)
        if result is not None:
            return "diverged" if result.diverged else "done"
        folder = self.folder(run)
        if is_trained(folder):
            return "trained"
        epochs = len(read_metrics(folder))
        begun = f"{epochs} of {self.config(run).training.epochs} epochs" if (folder / CONFIG).exists() else ""
        return f"{begun}, in work" if begun and is_held(folder) else begun or "not begun"


_read_recipe = cache(load_recipe)  # a grid asks for the same one again and again


def load_result(path: Path, experiment: Experiment, run: Run) -> RunResult | None:
    """A result, named as this experiment names the run: experiments share runs."""
    if not path.exists():
        return None
    result = RunResult.load(path)
    _check_is(result, run, path)
    labels: dict[str, Any] = {"task": run.task.name, "setting": dict(run.setting.shown)}
    return replace(result, experiment=experiment.name, **labels)


def _check_is(result: RunResult, run: Run, path: Path) -> None:
    """A file may have been put where another belongs, or be of a grid that has changed since."""
    found = {"criterion": result.criterion, "seed": result.seed} | flatten(result.config)
    for key, value in {"criterion": run.criterion, "seed": run.seed, **run.setting.train}.items():
        if result.config and found.get(key) != value:
            raise WildCTCError(f"{path} is not the result of {run}: {key} is {found.get(key)} in it, not {value}")


def portable_settings(folder: Path) -> dict[str, Any]:
    """Read the settings that a run was trained with, except places on a disk.

    Args:
        folder: The run's folder.

    Returns:
        The settings as a tree, without `data.dir` and `data.cache`.
    """
    config = to_dict(read_settings(folder))
    config["data"] = {key: value for key, value in config["data"].items() if key not in ("dir", "cache")}
    return config


def is_held(folder: Path) -> bool:
    """Whether a process, here or on another machine, is training the run."""
    for lock in (folder / ".lock", folder / ".reproduce"):
        if lock.exists() and os.access(lock, os.W_OK):
            try:
                with only_one(lock):
                    pass
            except WildCTCError:
                return True
    return False
