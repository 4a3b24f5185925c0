"""Checkpoints: `last.safetensors` (everything that a run needs to resume) and a weights file for each good epoch.

`last.safetensors` alone decides how far a run has come. It holds weights, optimiser moments, criterion state, position
in the data and the metrics of all finished epochs, so that every other file of a run can be written again from it. The
checkpoint before it is kept as `previous.safetensors`: if the last one is damaged on the disk, the run resumes from it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wildctc.errors import WildCTCError
from wildctc.files import Damaged, make_folder, remove_parts
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.training.batches import parts_for, parts_to_resume
from wildctc.training.run_folder import LAST, PREVIOUS, TRUNK

_log = logging.getLogger(__name__)


class Checkpoints:
    """The `checkpoints/` folder of a run.

    Args:
        folder: The folder; it is created.
        writes: False for a process that only reads, while another one writes.
    """

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
        """Name the file with the weights at the end of an epoch.

        Args:
            epoch: The epoch, from 1.

        Returns:
            The path.
        """
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Write the checkpoint from which the run resumes.

        Args:
            model: Its weights are saved.
            optimizer: Its moments are saved.
            state: Everything else, for JSON.
        """
        if not self.writes:
            return
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        tensors |= _optimizer_tensors(optimizer)
        save_tensors(self.last, tensors, state, keep=self.previous)

    def find(self) -> Path | None:
        """Find the checkpoint to resume from. Only the process that writes may call this.

        If the last checkpoint is damaged, the one before it takes its place, and a warning is logged.

        Returns:
            The path; None for a new run.

        Raises:
            WildCTCError: No checkpoint can be read.
        """
        problems = []
        for path in (self.last, self.previous):
            try:
                load_tensors(path)
            except WildCTCError as error:
                if path.exists() and not isinstance(error, Damaged):
                    raise  # such as wrong permissions, which the user can correct
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
        """Load a checkpoint into model and optimiser.

        Args:
            path: The checkpoint.
            model: Gets the weights.
            optimizer: Gets the moments.
            units: The fingerprint of the units. A different one in the checkpoint means that training transcripts
                changed.

        Returns:
            The state that was saved with it.

        Raises:
            WildCTCError: The file is not a checkpoint of this run.
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
        """Write the weights at the end of an epoch.

        Args:
            epoch: The epoch, from 1.
            model: Its weights are saved.
        """
        if self.writes:
            save_tensors(self.epoch(epoch), model.state_dict(), {})

    def present(self, epochs: list[int]) -> list[int]:
        """Find which epochs have their weights. A warning names the others.

        Args:
            epochs: The epochs.

        Returns:
            Those whose weights exist.

        Raises:
            WildCTCError: None exist.
        """
        missing = [epoch for epoch in epochs if not self.epoch(epoch).exists()]
        if len(missing) == len(epochs):
            raise WildCTCError(f"{self.folder}: no weights of epochs {_listed(epochs)}: choose another --out")
        if missing:
            _log.warning("no weights of epochs %s in %s: averaging without them", _listed(missing), self.folder)
        return [epoch for epoch in epochs if epoch not in missing]

    def keep(self, epochs: set[int]) -> None:
        """Delete the weights of other epochs.

        Args:
            epochs: The epochs to keep.
        """
        if not self.writes:
            return
        wanted = {self.epoch(epoch) for epoch in epochs}
        for path in self.folder.glob("epoch-*.safetensors"):
            if path not in wanted:
                path.unlink(missing_ok=True)


def resumed_parts(state: dict[str, Any], accumulate: int, processes: int) -> int:
    """Keep the number of parts that batches are cut into, if the number of processes allows it, and report changes.

    Args:
        state: The state of the checkpoint.
        accumulate: Batches of an optimiser step.
        processes: Training processes now.

    Returns:
        The number of parts.
    """
    had = state.get("processes", 1)
    before = state.get("parts", parts_for(accumulate, had))
    parts = parts_to_resume(before, accumulate, processes)
    if parts != before:
        _log.warning(
            "the run had %d processes and resumes with %d: batches are cut into %d parts, not %d, so from here on "
            "dropout and batch normalisation differ from before", had, processes, parts, before,
        )  # fmt: skip
    elif had != processes:
        _log.info(
            "the run had %d processes and resumes with %d: the same batches, masks and dropout; sums are added in "
            "another order, so the last digits may differ", had, processes,
        )  # fmt: skip
    return parts


def average(paths: list[Path]) -> dict[str, torch.Tensor]:
    """Average weights files. Sums are in float64; tensors of whole numbers are those of the first file.

    Args:
        paths: The files.

    Returns:
        Name → mean.

    Raises:
        WildCTCError: A file is damaged.
    """
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
    """Check whether a file holds exactly these weights.

    Args:
        path: The file.
        weights: Name → tensor.

    Returns:
        True if the file exists and all tensors are equal.
    """
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
