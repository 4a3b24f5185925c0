"""The folder of an experiment: where everything is, and how far each run has come.

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
from wildctc.training.config import apply_arguments, differences, flatten, load_recipe, to_dict, validate
from wildctc.training.run_folder import CONFIG, has_checkpoint, is_trained, read_metrics, read_settings
from wildctc.training.settings import Config

RESULT = "result.json"


@dataclass(frozen=True)
class Site:
    """An experiment and its folder.

    Attributes:
        experiment: The experiment.
        out: The folder.
        settings: Settings of `wildctc train`, as words, for all runs alike.
    """

    experiment: Experiment
    out: Path
    settings: tuple[str, ...] = ()
    _configs: dict[Run, Config] = field(default_factory=dict, repr=False)

    @property
    def data(self) -> Path:
        return self.out / "data"

    def folder(self, run: Run) -> Path:
        """Name the folder of a run.

        Args:
            run: The run.

        Returns:
            The folder.
        """
        return self.out / "runs" / run.folder

    def words(self, run: Run) -> list[str]:
        """Make the command that trains a run.

        Args:
            run: The run.

        Returns:
            The words after `wildctc train`, without the run's folder.
        """
        train = {**run.task.train, **run.setting.train}
        changed = [word for key, value in train.items() for word in (f"--{key}", str(value))]
        return [
            run.task.recipe, "--criterion", run.criterion, "--seed", str(run.seed),
            "--data.dir", str(self.data / run.task.data), "--data.cache", str(self.out / "features"),
            *changed, *self.settings,
        ]  # fmt: skip

    def config(self, run: Run) -> Config:
        """Compute the settings of a run.

        Args:
            run: The run.

        Returns:
            The settings that it has, or will have.

        Raises:
            WildCTCError: A setting for all runs changes what distinguishes the runs.
        """
        if run not in self._configs:
            recipe, *words = self.words(run)
            config = copy.deepcopy(_read_recipe(recipe))
            apply_arguments(config, words)
            validate(config)
            self._check_declared(run, config)
            self._configs[run] = config
        return self._configs[run]

    def _check_declared(self, run: Run, config: Config) -> None:
        """Refuse settings for all runs that change what distinguishes them: a row would have the wrong name."""
        given = flatten(to_dict(config))
        data = str(self.data / run.task.data)
        for key, value in {"criterion": run.criterion, "seed": run.seed, "data.dir": data, **run.setting.train}.items():
            if given[key] != value:
                instead = {"criterion": "; choose with --criteria", "seed": "; choose with --seeds"}.get(key, "")
                raise WildCTCError(f"--{key} {given[key]}: {key} of the run {run} is always {value}{instead}")

    def trunk(self, run: Run) -> Path | None:
        """Find the run whose first epochs another run shares.

        Args:
            run: The run.

        Returns:
            The folder of the plain CTC run; None if no epochs are shared.
        """
        if run.criterion == CONTROL or self.config(run).training.ctc_epochs == 0:
            return None
        return self.out / "runs" / run.trunk

    def check_settings(self, run: Run) -> None:
        """Check that an existing run was started with the settings of the grid.

        Args:
            run: The run.

        Raises:
            WildCTCError: Its settings differ.
        """
        folder = self.folder(run)
        begun = has_checkpoint(folder) or is_trained(folder) or (folder / RESULT).exists()
        changed = differences(read_settings(folder), self.config(run)) if begun and (folder / CONFIG).exists() else []
        if changed:
            raise WildCTCError(
                f"{folder} holds a run with other settings ({'; '.join(changed[:3])}): choose another --out"
            )

    def result(self, run: Run) -> RunResult | None:
        """Read the result of a run.

        Args:
            run: The run.

        Returns:
            The result; None if the run is not finished.

        Raises:
            WildCTCError: The folder holds a run with other settings, or another result.
        """
        self.check_settings(run)
        return load_result(self.folder(run) / RESULT, self.experiment, run)

    def state(self, run: Run) -> str:
        """Describe how far a run has come.

        Args:
            run: The run.

        Returns:
            A few words, such as "done" or "3 of 9 epochs, in work".
        """
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


_read_recipe = cache(load_recipe)  # a grid asks for the same recipe many times


def load_result(path: Path, experiment: Experiment, run: Run) -> RunResult | None:
    """Read a result, and name it as an experiment names the run. Experiments share runs.

    Args:
        path: The file.
        experiment: The experiment.
        run: The run.

    Returns:
        The result; None if there is no file.

    Raises:
        WildCTCError: The file is the result of another run.
    """
    if not path.exists():
        return None
    result = RunResult.load(path)
    _check_is(result, run, path)
    labels: dict[str, Any] = {"task": run.task.name, "setting": dict(run.setting.shown)}
    return replace(result, experiment=experiment.name, **labels)


def _check_is(result: RunResult, run: Run, path: Path) -> None:
    """Refuse a file that is the result of another run, or of a grid that has changed since."""
    found = {"criterion": result.criterion, "seed": result.seed} | flatten(result.config)
    for key, value in {"criterion": run.criterion, "seed": run.seed, **run.setting.train}.items():
        if result.config and found.get(key) != value:
            raise WildCTCError(f"{path} is not the result of {run}: {key} is {found.get(key)} in it, not {value}")


def portable_settings(folder: Path) -> dict[str, Any]:
    """Read the settings that a run was trained with, except places on a disk.

    Args:
        folder: The run's folder.

    Returns:
        The settings as a tree, without `data.dir` and `data.cache`. A front end that is a file has its name only.
    """
    config = to_dict(read_settings(folder))
    config["data"] = {key: value for key, value in config["data"].items() if key not in ("dir", "cache")}
    if Path(config["features"]["name"]).suffix in (".onnx", ".ort"):
        config["features"]["name"] = Path(config["features"]["name"]).name
    return config


def is_held(folder: Path) -> bool:
    """Check whether a process, here or on another machine, is working on a run.

    Args:
        folder: The run's folder.

    Returns:
        True if one of the run's locks is taken.
    """
    for lock in (folder / ".lock", folder / ".reproduce"):
        if lock.exists() and os.access(lock, os.W_OK):
            try:
                with only_one(lock):
                    pass
            except WildCTCError:
                return True
    return False
