"""Checkpoints: `last.safetensors` (everything that a run needs to go on) and one weights file for each good epoch.

`last.safetensors` is the single point of commitment. It holds weights, optimiser moments, criterion state, position
in the data and the metrics of all finished epochs, so that every other file of a run can be written again from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from wildctc.errors import WildCTCError
from wildctc.files import load_tensors, make_folder, remove_parts, save_tensors


class Checkpoints:
    """The `checkpoints/` folder of a run. writes: False for a process that reads it and leaves the rest to another."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = make_folder(folder), writes
        if writes:
            remove_parts(folder)

    @property
    def last(self) -> Path:
        return self.folder / "last.safetensors"

    @property
    def trunk(self) -> Path:
        """`last` as it was when the epochs of plain CTC had ended."""
        return self.folder / "trunk.safetensors"

    def epoch(self, epoch: int) -> Path:
        """The weights at the end of an epoch."""
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Write weights, optimiser and `state` (JSON) as the point from which the run goes on."""
        if not self.writes:
            return
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        tensors |= _optimizer_tensors(optimizer)
        save_tensors(self.last, tensors, state)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, units: str) -> dict[str, Any] | None:
        """Load the last checkpoint into model and optimiser and return its state; None when there is none.

        units: their fingerprint; another one in the checkpoint means that the training transcripts have changed.
        """
        if not self.last.exists():
            return None
        tensors, state = load_tensors(self.last)
        if state["units"] != units:
            raise WildCTCError(
                f"{self.last}: was trained with other units: the transcripts have changed; choose another --out"
            )
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise WildCTCError(f"{self.last}: does not fit this model: {_first_line(error)}") from None
        _restore_optimizer(optimizer, tensors)
        return state

    def save_epoch(self, epoch: int, model: nn.Module) -> None:
        """Write the weights at the end of an epoch."""
        if self.writes:
            save_tensors(self.epoch(epoch), model.state_dict(), {})

    def keep(self, epochs: set[int]) -> None:
        """Delete the weights of all epochs but these."""
        if not self.writes:
            return
        wanted = {self.epoch(epoch) for epoch in epochs}
        for path in self.folder.glob("epoch-*.safetensors"):
            if path not in wanted:
                path.unlink(missing_ok=True)


def average(paths: list[Path]) -> dict[str, torch.Tensor]:
    """The mean of several weights files, summed in float64; whole-number tensors come from the first."""
    total, _ = load_tensors(paths[0])
    sums = {k: v.double() for k, v in total.items() if v.is_floating_point()}
    for path in paths[1:]:
        for name, tensor in load_tensors(path)[0].items():
            if name in sums:
                sums[name] += tensor.double()
    return {k: (sums[k] / len(paths)).to(v.dtype) if k in sums else v for k, v in total.items()}


def holds(path: Path, weights: dict[str, torch.Tensor]) -> bool:
    """Whether the file is there and holds exactly these weights."""
    if not path.exists():
        return False
    found, _ = load_tensors(path)
    return found.keys() == weights.keys() and all(torch.equal(found[k], weights[k]) for k in found)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{key}": value for i, moments in state.items() for key, value in moments.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    content = optimizer.state_dict()
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = tensor
    content["state"] = state
    optimizer.load_state_dict(content)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
