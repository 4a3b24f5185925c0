"""A criterion with its wildcard weights in a given epoch, of a run or by its published schedule."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from wildctc.criteria import CRITERIA, Criterion
from wildctc.errors import WildCTCError
from wildctc.rate_table import FAMILIES, RateTable
from wildctc.training.build import make_criterion
from wildctc.training.noise import PERCENT
from wildctc.training.run_folder import METRICS, read_metrics, read_settings


def criterion_at(name: str | None, epoch: int | None = None, run: str | Path | None = None) -> Criterion:
    """Make a criterion and step it to an epoch.

    Args:
        name: The criterion's name; None takes the criterion of the run, with the run's settings.
        epoch: The epoch, from 1; None takes the last epoch of the run, or the first epoch if there is no run.
        run: A run's folder. Its held-out entropies drive an entropy schedule; noise rates are those of its epoch.

    Returns:
        The criterion, with the weights of that epoch.

    Raises:
        WildCTCError: There is no such criterion or epoch, or the schedule needs entropies that the run does not have.

    >>> criterion_at("otc-t", epoch=10).wildcards.bypass
    -2.521...
    """
    history = _entropies(Path(run)) if run else []
    epoch = epoch if epoch is not None else max(1, len(history))
    criterion = make_criterion(read_settings(Path(run))) if name is None and run else _named(name or "")
    if epoch < 1:
        raise WildCTCError(f"there is no epoch {epoch}: they count from 1")
    if criterion.needs_entropy and len(history) < epoch - 1:
        known = f"{run} has {len(history)} epochs" if run else "name a run that has them, or take epoch 1"
        raise WildCTCError(
            f"the weights of {criterion.name} in epoch {epoch} follow the held-out entropies before it: {known}"
        )
    if criterion.rates is not None and run:
        _recall_rates(criterion.rates, Path(run), epoch)
        return criterion
    if criterion.rates is not None and epoch > 1:
        raise WildCTCError(
            f"the noise rates of {criterion.name} in epoch {epoch} depend on the data: name a run, or take epoch 1"
        )
    for done in range(epoch - 1):
        criterion.step(history[done] if criterion.needs_entropy else None)
    return criterion


def _recall_rates(table: RateTable, run: Path, epoch: int) -> None:
    """Set the rates of the corpus to those of an epoch of a run; in epochs of plain CTC they are those of the start."""
    rows = read_metrics(run)
    if epoch > len(rows):
        raise WildCTCError(f"there is no epoch {epoch} in {run}: it has {len(rows)}")
    found = [rows[epoch - 1].get(PERCENT[family]) for family in FAMILIES]
    if any(value is not None for value in found):
        table.corpus = torch.tensor(
            [math.nan if value is None else value / 100 for value in found], dtype=torch.float64
        )


def _named(name: str) -> Criterion:
    if name not in CRITERIA:
        raise WildCTCError(f"no criterion is called {name!r}; there are {', '.join(CRITERIA)}")
    return Criterion(name)


def _entropies(run: Path) -> list[float]:
    """The held-out entropy after each epoch; NaN if there was none, because the model gave only blanks."""
    found = [math.nan if row.get("entropy") is None else row["entropy"] for row in read_metrics(run)]
    if not all(type(entropy) in (float, int) and not entropy < 0 for entropy in found):
        raise WildCTCError(f"{run / METRICS}: an entropy is not a number: is it the metrics of a run?")
    return found
