"""Check shapes, types and lengths of the arguments of a caller.

This is done outside the operators, where torch.compile can see them. Values of tensors are checked inside the
operators, by `native.check_values`, so that a compiled training step has no graph break.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Lengths: TypeAlias = Tensor | Sequence[int] | int


def shape_of(x: Tensor) -> tuple[int, ...]:
    """Write a shape as a plain tuple, for messages.

    Args:
        x: A tensor.

    Returns:
        Its sizes.
    """
    return tuple(x.shape)


def check_logits(logits: Tensor, blank: int) -> None:
    """Check that logits are a floating-point tensor of 2 or 3 dimensions, and that the blank is one of the outputs.

    Args:
        logits: (T, N, C) or (T, C).
        blank: The label of the blank.

    Raises:
        TypeError: The logits are not a tensor, or the blank is not an integer.
        ValueError: The shape or the type of the logits is wrong, or the blank is out of range.
    """
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
    """Convert a tensor of integers to int64 on a device.

    Args:
        x: A tensor of any integer type.
        name: The name of the argument, for the message.
        device: Where the result should be.

    Returns:
        The tensor itself if it fits, otherwise a copy.

    Raises:
        ValueError: It is not a tensor of integers.
    """
    if not isinstance(x, Tensor) or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise ValueError(f"{name} must be a tensor of integers, got {x.dtype if isinstance(x, Tensor) else type(x)}")
    return x if x.dtype == torch.int64 and x.device == device else on_device(x.to(torch.int64), device)


def lengths_of(lengths: Lengths, name: str, size: int | None, device: torch.device) -> Tensor:
    """Convert lengths to a tensor.

    Lengths on the host stay there, even if the logits are on a GPU, so that they can be checked without waiting.

    Args:
        lengths: One length, or N of them.
        name: The name of the argument, for messages.
        size: N, or None if it is not known.
        device: Where the logits are.

    Returns:
        (N,) int64.

    Raises:
        TypeError: They cannot be converted to a tensor.
        ValueError: They are not integers, or not N of them.
    """
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
    """Check lengths that are on the host, with the messages of the native code. Lengths on a GPU are not checked.

    Args:
        lengths: (N,).
        name: The name of the argument, in the plural.
        limit: The largest valid length.
        limit_name: What the limit is, for the message: T or S.

    Raises:
        ValueError: A length is negative or above the limit.
    """
    if torch.compiler.is_compiling():
        return
    for n, length in enumerate(lengths.tolist() if lengths.device.type == "cpu" else []):
        if not 0 <= length <= limit:
            raise ValueError(f"utterance {n}: {name[:-1]} is {length}, must be between 0 and {limit_name} = {limit}")


def on_device(x: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device, without waiting if that is a GPU.

    Args:
        x: Any tensor.
        device: Where it should be.

    Returns:
        The tensor itself if it is there already, otherwise a copy.
    """
    return x if x.device == device else x.to(device, non_blocking=device.type != "cpu")
