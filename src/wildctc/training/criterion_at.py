"""The wildcard weights that a criterion has in some epoch, of a run or by its published schedule."""

from __future__ import annotations

import math
from pathlib import Path

from wildctc.criteria import CRITERIA, Criterion
from wildctc.errors import WildCTCError
from wildctc.json_lines import read_rows
from wildctc.training.build import make_criterion
from wildctc.training.config import load_recipe


def criterion_at(name: str | None, epoch: int | None = None, run: str | Path | None = None) -> Criterion:
    """A criterion as it is in an epoch, counted from 1.

    name: None: that of the run, with the run's settings. epoch: None: the run's last, or without a run the first.
    run: the folder whose held-out entropies a schedule follows that needs them.

    >>> criterion_at("otc-t", epoch=10).wildcards.bypass
    -2.521...
    """
    history = _entropies(Path(run)) if run else []
    epoch = epoch if epoch is not None else max(1, len(history))
    criterion = _own(Path(run)) if name is None and run else _named(name or "")
    if epoch < 1:
        raise WildCTCError(f"there is no epoch {epoch}: they count from 1")
    if criterion.needs_entropy and len(history) < epoch - 1:
        known = f"{run} has {len(history)} epochs" if run else "name a run that has them, or take epoch 1"
        raise WildCTCError(
            f"the weights of {criterion.name} in epoch {epoch} follow the held-out entropies before it: {known}"
        )
    for done in range(epoch - 1):
        criterion.step(history[done] if criterion.needs_entropy else None)
    return criterion


def _named(name: str) -> Criterion:
    if name not in CRITERIA:
        raise WildCTCError(f"no criterion is called {name!r}; there are {', '.join(CRITERIA)}")
    return Criterion(name)


def _own(run: Path) -> Criterion:
    if not (run / "config.yaml").is_file():
        raise WildCTCError(f"{run}: no config.yaml in it, so its criterion is not known: give a run's folder")
    return make_criterion(load_recipe(str(run / "config.yaml")))


def _entropies(run: Path) -> list[float]:
    """After each epoch; NaN where there was none to measure."""
    path = run / "metrics.jsonl"
    rows = [row for _, row in read_rows(path)] if path.is_file() else []
    found = [math.nan if row.get("entropy") is None else row["entropy"] for row in rows]
    if not all(type(entropy) in (float, int) and not entropy < 0 for entropy in found):
        raise WildCTCError(f"{path}: an entropy that is no number: not the metrics of a run?")
    return found
