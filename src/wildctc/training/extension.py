"""Runs that are made longer: `--training.epochs` larger than the run began with.

The epochs up to the earlier end stay what they are, to the bit, whether they were trained before the run was made
longer or after. From there on the learning rate is that of a run of the new length, so a cosine rises again from 0.
With a rate of 1/√step, which knows no end, the result is that of a run which had the new length from the start.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.training.config import Config

_log = logging.getLogger(__name__)


def earlier_lengths(run: Path) -> list[int]:
    """In epochs, before the run was made longer; none for most runs."""
    path = _record(run)
    if not path.exists():
        return []
    try:
        lengths = json.loads(path.read_text(encoding="utf-8"))
        return [int(epochs) for epochs in lengths]
    except (OSError, ValueError, TypeError) as error:
        raise WildCTCError(f"{path}: cannot be read ({error}); put it back, or choose another --out") from None


def lengthen(run: Path, old: Config, new: Config) -> None:
    """Note the earlier end of a run that is to be longer; done twice it is the same."""
    before, after = old.training.epochs, new.training.epochs
    make_folder(run / "data")
    write_text(_record(run), json.dumps(sorted({*earlier_lengths(run), before})))
    rate = "rises again from 0 to that" if new.optimizer.decay == "cosine" else "is that"
    _log.info(
        "made longer, from %d to %d epochs: from epoch %d on the learning rate %s of a run of %d epochs, and the "
        "wildcards' schedule goes on",
        before, after, before + 1, rate, after,
    )  # fmt: skip


def forget(run: Path) -> None:
    """For a run that begins anew in a folder."""
    _record(run).unlink(missing_ok=True)


def length_at(epoch: int, lengths: list[int]) -> int:
    """The length of the run, in epochs, by which the learning rate of an epoch goes.

    >>> [length_at(epoch, [10, 15]) for epoch in (1, 10, 11, 15)]
    [10, 10, 15, 15]
    """
    return next((length for length in lengths if epoch <= length), lengths[-1])


def _record(run: Path) -> Path:
    return run / "data" / "lengths.json"  # `data/` is what runs that branch off take over
