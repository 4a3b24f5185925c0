"""A criterion's schedule as a callback of Lightning."""

from __future__ import annotations

import math
from typing import Any

import torch
from typing_extensions import override  # torch needs it too

from wildctc.criteria import Criterion, predictive_entropy
from wildctc.errors import MissingExtra

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback  # type: ignore[assignment]
    except ImportError:
        raise MissingExtra("lightning", "lightning") from None


class WildcardSchedule(Callback):
    """Steps a criterion at the end of each training epoch; its state is part of Lightning's checkpoints.

    For a criterion that follows the held-out entropy, `validation_step` must return a dictionary with "logits" (T, N,
    C) and "input_lengths" (N,). The entropy is summed over the last validation of an epoch and over all processes.

    Attributes:
        criterion: the criterion that is stepped.

    Args:
        criterion: the `criterion` of the module's `WildcardCTCLoss`.
        blank: the label of the blank, as in the loss.
    """

    def __init__(self, criterion: Criterion, blank: int = 0) -> None:
        self.criterion = criterion
        self._blank = blank
        self._steps = 0
        self._sums = torch.zeros(2, dtype=torch.float64)  # numerator and denominator of the entropy

    @override
    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64)

    @override
    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not self.criterion.needs_entropy:
            return
        if not isinstance(outputs, dict) or not {"logits", "input_lengths"} <= outputs.keys():
            raise ValueError(
                f"criterion {self.criterion.name} follows the held-out entropy: "
                "validation_step must return a dictionary with logits and input_lengths"
            )
        both = predictive_entropy(outputs["logits"], outputs["input_lengths"], self._blank)
        self._sums += torch.stack(both).cpu()

    @override
    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.criterion.needs_entropy:
            self._sums = trainer.strategy.reduce(self._sums.to(pl_module.device), reduce_op="sum").cpu()

    @override
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        # A checkpoint that was written after the validation of an epoch, before its end, resumes with the next epoch.
        while self._steps < trainer.current_epoch:
            self._step()

    @override
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        rates = self.criterion.rates
        if rates is not None:  # each process has counted its own batches
            for name in ("events", "chances"):
                total = trainer.strategy.reduce(getattr(rates, name).to(pl_module.device), reduce_op="sum")
                setattr(rates, name, total.cpu())
        entropy = self._step()
        weights = self.criterion.wildcards
        values = {"entropy": entropy, "bypass": weights.bypass}
        values |= {"self_loop": weights.self_loop, "word_bypass": weights.word_bypass}
        pl_module.log_dict({f"wildctc/{name}": float(x) for name, x in values.items() if x is not None})

    def _step(self) -> float | None:
        """Step the criterion. Without a validation the entropy is NaN, which keeps the weights."""
        top, bottom = self._sums.tolist()
        entropy = (top / bottom if bottom else math.nan) if self.criterion.needs_entropy else None
        self.criterion.step(entropy)
        self._steps += 1
        return entropy

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"criterion": self.criterion.state_dict(), "steps": self._steps, "sums": self._sums.tolist()}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.criterion.load_state_dict(state_dict["criterion"])
        self._steps = state_dict["steps"]
        self._sums = torch.tensor(state_dict["sums"], dtype=torch.float64)
