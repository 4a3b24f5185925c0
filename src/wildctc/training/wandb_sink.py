"""Metrics to Weights & Biases, beside metrics.jsonl and TensorBoard."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.training.run_folder import Metrics


class WeightsAndBiases:
    """Writes the metrics of each epoch to a project.

    A run that is resumed has the same id, so its curves go on. WANDB_MODE=offline writes to the run's folder only.

    Args:
        project: The name of the project.
        run: The run's folder, after which the run is named.
        settings: The settings of the run.
    """

    def __init__(self, project: str, run: Path, settings: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise MissingExtra("wandb", "wandb") from None
        id = hashlib.sha256(str(run.absolute()).encode()).hexdigest()[:16]
        try:
            self._run = wandb.init(
                project=project, name=run.name, id=id, dir=run, config=settings, resume="allow",
                settings=wandb.Settings(console="off", silent=True),
            )  # fmt: skip
            self._next = self._run.step  # that an earlier session has not written
        except Exception as error:  # its own classes: no key, no network, a wrong name
            reason = " ".join(str(error).split())[:200]
            raise WildCTCError(f"--wandb {project}: {reason}; WANDB_MODE=offline needs no network") from None

    def add(self, metrics: Metrics) -> None:
        """Write the metrics of an epoch, unless an earlier session did.

        Args:
            metrics: The metrics.
        """
        if metrics["epoch"] >= self._next:
            known = {name: value for name, value in metrics.items() if value is not None}
            self._run.log(known, step=metrics["epoch"])

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
