"""Checkpoints: `last.safetensors` (everything that a run needs to go on) and one weights file for each good epoch.

`last.safetensors` is the single point of commitment. It holds weights, optimiser moments, criterion state, position
in the data and the metrics of all finished epochs, so that every other file of a run can be written again from it. The
one before it stays as `previous.safetensors`: a run whose last checkpoint was damaged on the disk goes on from there.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wildctc.errors import WildCTCError
from wildctc.files import Damaged, load_tensors, make_folder, remove_parts, save_tensors
from wildctc.training.run_folder import LAST, PREVIOUS, TRUNK

_log = logging.getLogger(__name__)


class Checkpoints:
    """The `checkpoints/` folder of a run. writes: False for a process that reads it and leaves the rest to another."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = make_folder(folder), writes
        if writes:
            remove_parts(folder)

    @property
    def last(self) -> Path:
        """Everything that a run needs to resume."""
        return self.folder / LAST

    @property
    def previous(self) -> Path:
        """The checkpoint before `last`."""
        return self.folder / PREVIOUS

    @property
    def trunk(self) -> Path:
        """`last` as it was at the end of the epochs of plain CTC."""
        return self.folder / TRUNK

    def epoch(self, epoch: int) -> Path:
        """The weights at the end of an epoch."""
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Write weights, optimiser and `state` (JSON) as the point from which the run goes on."""
        if not self.writes:
            return
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        tensors |= _optimizer_tensors(optimizer)
        save_tensors(self.last, tensors, state, keep=self.previous)

    def find(self) -> Path | None:
        """The checkpoint to go on from, None for a new run. For the process that writes.

        If the last one is damaged, the one before it takes its place, which is said.
        """
        problems = []
        for path in (self.last, self.previous):
            try:
                load_tensors(path)
            except WildCTCError as error:
                if path.exists() and not isinstance(error, Damaged):
                    raise  # such as its permissions, which the user can mend
                problems.append(str(error))
                continue
            if path == self.previous:
                _log.warning("%s; resuming from the checkpoint before it", problems[0])
                if self.last.exists():
                    os.replace(self.last, self.folder / "last.damaged")
                os.replace(self.previous, self.last)
            return self.last
        if not (self.last.exists() or self.previous.exists()):
            return None
        raise WildCTCError(f"{'; '.join(problems)}; put a copy back, or train again with another --out")

    def restore(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, units: str) -> dict[str, Any]:
        """Load a checkpoint into model and optimiser and return its state.

        units: their fingerprint; another one in the checkpoint means that the training transcripts have changed.
        """
        tensors, state = load_tensors(path)
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        if "units" not in state or not weights or len(weights) == len(tensors):
            raise WildCTCError(f"{path}: not a checkpoint of a run: put the run's own back, or choose another --out")
        if state["units"] != units:
            raise WildCTCError(
                f"{path}: was trained with other units: the transcripts have changed; choose another --out"
            )
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise WildCTCError(f"{path}: does not fit this model: {_first_line(error)}") from None
        _restore_optimizer(optimizer, tensors)
        return state

    def save_epoch(self, epoch: int, model: nn.Module) -> None:
        """Write the weights at the end of an epoch."""
        if self.writes:
            save_tensors(self.epoch(epoch), model.state_dict(), {})

    def present(self, epochs: list[int]) -> list[int]:
        """Those of these epochs whose weights are there; the others are named."""
        missing = [epoch for epoch in epochs if not self.epoch(epoch).exists()]
        if len(missing) == len(epochs):
            raise WildCTCError(f"{self.folder}: no weights of epochs {_listed(epochs)}: choose another --out")
        if missing:
            _log.warning("no weights of epochs %s in %s: averaging without them", _listed(missing), self.folder)
        return [epoch for epoch in epochs if epoch not in missing]

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
    total = _weights(paths[0])
    sums = {k: v.double() for k, v in total.items() if v.is_floating_point()}
    for path in paths[1:]:
        for name, tensor in _weights(path).items():
            if name in sums:
                sums[name] += tensor.double()
    return {k: (sums[k] / len(paths)).to(v.dtype) if k in sums else v for k, v in total.items()}


def _weights(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_tensors(path)[0]
    except Damaged as error:
        raise WildCTCError(f"{error}; delete it, and the same command averages the other epochs") from None


def holds(path: Path, weights: dict[str, torch.Tensor]) -> bool:
    """Whether the file is there and holds exactly these weights."""
    try:
        found, _ = load_tensors(path)
    except WildCTCError:
        return False
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


def _listed(epochs: list[int]) -> str:
    return ", ".join(map(str, sorted(epochs)))


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
