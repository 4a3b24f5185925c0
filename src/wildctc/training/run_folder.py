"""Read a run's folder: its settings, its metrics, and how far training has come.

`wildctc train` writes `config.yaml` first, `metrics.jsonl` and `checkpoints/` in each epoch, and `model/` at the end.
Everything that looks at a run afterwards uses this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.json_lines import read_rows
from wildctc.training.config import load_recipe
from wildctc.training.settings import Config

Metrics = dict[str, Any]  # one finished epoch, a line of metrics.jsonl
CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
LAST = "last.safetensors"
PREVIOUS = "previous.safetensors"
TRUNK = "trunk.safetensors"


def checkpoint_folder(run: Path) -> Path:
    """Name the folder of a run's checkpoints.

    Args:
        run: The run's folder.

    Returns:
        The folder, which may not exist.
    """
    return run / "checkpoints"


def has_checkpoint(run: Path) -> bool:
    """Check whether a run can be resumed.

    Args:
        run: The run's folder.

    Returns:
        True if there is a last checkpoint, or the one before it.
    """
    return any((checkpoint_folder(run) / name).exists() for name in (LAST, PREVIOUS))


def has_trunk(run: Path) -> bool:
    """Check whether other runs can branch off from a run.

    Args:
        run: The run's folder.

    Returns:
        True if the epochs of plain CTC (`training.ctc_epochs`) are finished and their checkpoint was kept.
    """
    return (checkpoint_folder(run) / TRUNK).exists()


def is_trained(run: Path) -> bool:
    """Check whether a run is finished.

    Args:
        run: The run's folder.

    Returns:
        True if the weights of its model, which are written last, exist.
    """
    return (run / "model" / "model.safetensors").is_file()


def is_unfinished(run: Path) -> bool:
    """Check whether a run has a checkpoint, but no model yet.

    Args:
        run: Any folder.

    Returns:
        True for a run that is training, or was stopped; False also for a folder that is no run.
    """
    return has_checkpoint(run) and not is_trained(run)


def read_settings(run: Path) -> Config:
    """Read the settings that a run was started with.

    Args:
        run: The run's folder.

    Returns:
        The settings, as in its config.yaml.

    Raises:
        WildCTCError: There is no config.yaml, or it is not valid.
    """
    if not (run / CONFIG).is_file():
        raise WildCTCError(f"{run}: no {CONFIG} in it, so its settings are not known: give a run's folder")
    return load_recipe(str(run / CONFIG))


def read_metrics(run: Path) -> list[Metrics]:
    """Read the metrics of a run's finished epochs.

    Args:
        run: The run's folder.

    Returns:
        One dictionary for each epoch, in order; an empty list if no epoch is finished.

    Raises:
        WildCTCError: A line is not a JSON object; file and line are named.
    """
    path = run / METRICS
    return [row for _, row in read_rows(path)] if path.is_file() else []
