"""Extend runs: `--training.epochs` larger than when the run started.

The epochs up to the earlier end stay the same to the bit, whether they were trained before or after the run was
extended. From there on the learning rate is that of a run of the new length, so a cosine rises again from 0. With a
rate of 1/√step, which has no end, the result is that of a run which had the new length from the start.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.training.config import differences
from wildctc.training.run_folder import CONFIG, has_checkpoint, read_settings
from wildctc.training.settings import Config

_log = logging.getLogger(__name__)


def earlier_lengths(run: Path) -> list[int]:
    """Read the earlier lengths of a run.

    Args:
        run: The run's folder.

    Returns:
        Numbers of epochs; an empty list for a run that was not extended.

    Raises:
        WildCTCError: The record cannot be read.
    """
    path = _record(run)
    if not path.exists():
        return []
    try:
        lengths = json.loads(path.read_text(encoding="utf-8"))
        return [int(epochs) for epochs in lengths]
    except (OSError, ValueError, TypeError) as error:
        raise WildCTCError(f"{path}: cannot be read ({error}); put it back, or choose another --out") from None


def check_same_run(run: Path, config: Config) -> None:
    """Refuse a folder that holds a run with other settings. More epochs extend the run.

    Args:
        run: The run's folder.
        config: The settings that were given.

    Raises:
        WildCTCError: Other settings differ.
    """
    if not has_checkpoint(run):
        _record(run).unlink(missing_ok=True)  # of a run that was here before
        return
    if not (run / CONFIG).exists():
        return
    old = read_settings(run)
    longer = config.training.epochs > old.training.epochs
    changed = [c for c in differences(old, config) if not (longer and c.startswith("training.epochs:"))]
    if changed:
        raise WildCTCError(
            f"{run} holds a run with other settings ({'; '.join(changed[:3])}): "
            "repeat its settings, or choose another --out"
        )
    if longer:
        _lengthen(run, old, config)


def _lengthen(run: Path, old: Config, new: Config) -> None:
    """Record the earlier end of a run that is extended. Calling it twice changes nothing."""
    before, after = old.training.epochs, new.training.epochs
    make_folder(run / "data")
    write_text(_record(run), json.dumps(sorted({*earlier_lengths(run), before})))
    rate = "rises again from 0 to that" if new.optimizer.decay == "cosine" else "is that"
    _log.info(
        "extended from %d to %d epochs: from epoch %d on the learning rate %s of a run of %d epochs, and the "
        "wildcards' schedule continues",
        before, after, before + 1, rate, after,
    )  # fmt: skip


def length_at(epoch: int, lengths: list[int]) -> int:
    """Find the length of the run that decides the learning rate of an epoch.

    Args:
        epoch: The epoch, from 1.
        lengths: The lengths of the run, in epochs, ascending.

    Returns:
        The first length that contains the epoch.

    >>> [length_at(epoch, [10, 15]) for epoch in (1, 10, 11, 15)]
    [10, 10, 15, 15]
    """
    return next((length for length in lengths if epoch <= length), lengths[-1])


def _record(run: Path) -> Path:
    return run / "data" / "lengths.json"  # in `data/`, which runs that branch off copy
