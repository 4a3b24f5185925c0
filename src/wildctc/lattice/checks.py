"""Shapes, types and lengths of what a caller gives.

They are checked outside the operators, where torch.compile can see them. Values of tensors are checked inside the
operators, by `native.check_values`, so that a compiled training step has no graph break.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Lengths: TypeAlias = Tensor | Sequence[int] | int


def shape_of(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)


def check_logits(logits: Tensor, blank: int) -> None:
    """Errors for what is no batch of logits, and for a blank that is not among their outputs."""
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, got {type(logits).__name__}")
    if logits.dim() not in (2, 3) or not logits.is_floating_point():
        raise ValueError(f"logits must be floating point, (T, N, C) or (T, C), got {logits.dtype} {shape_of(logits)}")
    if not isinstance(blank, int) and not hasattr(blank, "__index__"):
        raise TypeError(f"blank is {blank!r}, must be an integer")
    outputs = logits.shape[-1]
    if not 0 <= blank < outputs:
        raise ValueError(f"blank is {blank}, must be between 0 and C - 1 = {outputs - 1}")


def integers(x: Tensor, name: str, device: torch.device) -> Tensor:
    """A tensor of integers as int64, there."""
    if not isinstance(x, Tensor) or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise ValueError(f"{name} must be a tensor of integers, got {x.dtype if isinstance(x, Tensor) else type(x)}")
    return x if x.dtype == torch.int64 and x.device == device else on_device(x.to(torch.int64), device)


def lengths_of(lengths: Lengths, name: str, size: int | None, device: torch.device) -> Tensor:
    """(N,) int64; size: N, if it is known. Host-side lengths stay there, to be checked without a synchronisation."""
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.tensor(lengths)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{name} must be integers, one or a list or tensor of them, got {lengths!r:.60}") from None
        lengths = lengths if lengths.numel() else lengths.long()
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {lengths.dtype}")
    lengths = lengths.reshape(1) if lengths.dim() == 0 else lengths
    if lengths.dim() != 1 or (size is not None and lengths.shape[0] != size):
        every = "each utterance" if size is None else f"each of N = {size} utterances"
        raise ValueError(f"{name} must hold one length for {every}, got {shape_of(lengths)}")
    if lengths.dtype == torch.int64 and (lengths.device.type == "cpu" or device.type != "cpu"):
        return lengths
    return lengths.to(device="cpu" if device.type == "cpu" else lengths.device, dtype=torch.int64)


def check_lengths(lengths: Tensor, name: str, limit: int, limit_name: str) -> None:
    """ValueError for a length out of range, as native code has it; nothing is looked at that is not on the host."""
    if torch.compiler.is_compiling():
        return
    for n, length in enumerate(lengths.tolist() if lengths.device.type == "cpu" else []):
        if not 0 <= length <= limit:
            raise ValueError(f"utterance {n}: {name[:-1]} is {length}, must be between 0 and {limit_name} = {limit}")


def on_device(x: Tensor, device: torch.device) -> Tensor:
    """x there; on the way from the host to a GPU nobody waits."""
    return x if x.device == device else x.to(device, non_blocking=device.type != "cpu")
