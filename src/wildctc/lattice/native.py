"""The C++ backend: it gets the addresses of tensors, and writes its results into tensors that are made here."""

import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from wildctc.errors import NotEnoughMemory
from wildctc.lattice import _native  # type: ignore[attr-defined]  # compiled
from wildctc.lattice.arcs import Lattice, compute_dtype, lose_counts
from wildctc.lattice.checks import check_lengths
from wildctc.lattice.memory import VARIABLE, budget

Gradients: TypeAlias = list[Tensor | None]
Guide: TypeAlias = tuple[Tensor, Tensor]

_NO_COUNTS = (None, None, None)
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


class NativeBatch:
    """A lattice in the form that C++ reads. The only code that passes addresses of inputs to C++.

    C++ knows only addresses, so this object must outlive each call: all calls are methods of it, and the object that
    holds the addresses is not returned.
    """

    def __init__(self, lattice: Lattice) -> None:
        logits = lattice.logits.resolve_neg()
        if logits.dtype not in _DTYPES:
            raise ValueError(f"logits are {logits.dtype}, must be float32, float64, float16 or bfloat16")
        targets = lattice.targets.contiguous()
        words = lattice.words.contiguous() if lattice.words is not None else None
        input_lengths = lattice.input_lengths.contiguous()
        target_lengths = lattice.target_lengths.contiguous()
        weights = [
            None if w is None else w.detach().to(torch.float64).resolve_neg().contiguous() for w in lattice.weights
        ]
        self._alive = (logits, targets, words, input_lengths, target_lengths, weights)
        self._addresses = _native.Batch(
            logits.data_ptr(),
            _DTYPES[logits.dtype],
            tuple(logits.shape),
            logits.stride(),
            targets.data_ptr(),
            targets.shape[1] if targets.dim() == 2 else -1,
            targets.numel(),
            words.data_ptr() if words is not None else 0,
            input_lengths.data_ptr(),
            target_lengths.data_ptr(),
            lattice.blank,
            *(
                (v, w.data_ptr(), _width(w)) if w is not None else (v, 0, 0)
                for w, v in zip(weights, lattice.values, strict=True)
            ),
            lattice.loops_at_words,
        )

    def check(self) -> None:
        """Raise ValueError for a label, length, word or weight that is out of range."""
        self._addresses.check()

    def loss(
        self,
        losses: Tensor,
        reduced: Tensor,
        reduction: str,
        zero_infinity: bool,
        gradient: Tensor | None,
        counts: Sequence[Tensor | None],
        memory: int,
    ) -> None:
        """Fill losses (N,), gradient and, if there is a reduction, reduced (); add to counts. Call `check` first.

        Args:
            losses: (N,).
            reduced: ().
            reduction: "none", "mean" or "sum".
            zero_infinity: Whether a loss of +inf becomes 0.
            gradient: (T, N, C), contiguous in C; None: not needed.
            counts: Of bypass, self_loop and word_bypass, and of graphs of token arcs too; None: not needed.
            memory: The budget, in bytes.
        """
        arguments = (
            losses.data_ptr(),
            reduced.data_ptr(),
            _REDUCTIONS[reduction],
            zero_infinity,
            gradient is not None or any(c is not None for c in counts),
            gradient.data_ptr() if gradient is not None else 0,
            *(gradient.stride()[:2] if gradient is not None else (0, 0)),
            *((c.data_ptr(), _width(c)) if c is not None else (0, 0) for c in (*counts, None)[:4]),
        )
        self._within(memory, self._addresses.loss, arguments)

    def best_path(
        self, score: Tensor, position: Tensor, state: Tensor, arc: Tensor, guide: Guide | None, memory: int
    ) -> None:
        """Fill the results with the best paths. Call `check` first.

        Args:
            score: (N,), float64.
            position: (N, T), int32.
            state: (N, T), int8.
            arc: (N, T), int8.
            guide: The positions that are looked at; None for all.
            memory: The budget, in bytes.
        """
        results = (score.data_ptr(), position.data_ptr(), state.data_ptr(), arc.data_ptr())
        first, last = (x.data_ptr() for x in guide) if guide is not None else (0, 0)
        self._within(memory, self._addresses.best_path, (*results, first, last))

    def _within(self, memory: int, call: Callable[..., None], arguments: Sequence[object]) -> None:
        """Make a call within a budget. What does not fit is refused before anything large is allocated."""
        try:
            call(*arguments, memory, torch.get_num_threads())
        except _native.OverBudget as error:
            raise NotEnoughMemory(f"{error}; set memory= or {VARIABLE}, or shorten the recording") from None


def _width(weights: Tensor) -> int:
    """Arcs in a row of weights or counts, as C++ expects it: −1 where there is one number for all arcs."""
    return weights.shape[1] if weights.dim() == 2 else -1


def check_values(lattice: Lattice) -> None:
    """Check labels, lengths, words and weights.

    Tensors that are not on the CPU are checked only if the environment variable WILDCTC_CHECK is 1, because the host
    would have to wait for the device. Without it, only lengths on the host are checked.

    Args:
        lattice: The batch. The values of its logits are not checked.

    Raises:
        ValueError: A value is out of range. The message names the utterance, the value and the limit.
    """
    if lattice.logits.device.type == "cpu":
        NativeBatch(lattice).check()
    elif os.environ.get("WILDCTC_CHECK", "0") not in ("", "0"):
        # only the shape of the logits matters, so that they need not be copied
        shape = torch.empty((), dtype=lattice.logits.dtype).expand(lattice.logits.shape)
        NativeBatch(lattice._replace(logits=shape).to_host()).check()
    else:
        check_lengths(lattice.input_lengths, "input_lengths", lattice.logits.shape[0], "T")
        limit_name = "S" if lattice.targets.dim() == 2 else "the number of targets"
        check_lengths(lattice.target_lengths, "target_lengths", lattice.targets.shape[-1], limit_name)


def loss(lattice: Lattice, reduction: str, zero_infinity: bool, want: Sequence[bool]) -> tuple[Tensor, Gradients]:
    """Compute the loss and its gradients in one pass over each utterance, after checking all values.

    To compute the gradients in a later call would be slower: the states would have to be kept, or computed again, and
    here they are still in the cache.

    Args:
        lattice: The batch, on the CPU.
        reduction: "none", "mean" or "sum".
        zero_infinity: Whether a loss of +inf becomes 0.
        want: Whether the gradients to logits, bypass, self_loop and word_bypass are needed.

    Returns:
        The loss, (N,) or, if it is reduced, (); and the four gradients, None where it is not needed or the weight is
        not a tensor. The gradient to half-precision logits is float32.
    """
    # float32 for half-precision logits: the gradient is rounded to their type after scaling
    gradient = gradient_like(lattice.logits, compute_dtype(lattice.logits)) if want[0] else None
    if not any(want[1:]):
        return loss_into(lattice, reduction, zero_infinity, gradient, _NO_COUNTS), [gradient, *_NO_COUNTS]
    counts = [
        torch.zeros(w.shape, dtype=torch.float64) if wanted and w is not None else None
        for w, wanted in zip(lattice.weights, want[1:], strict=True)
    ]
    result = loss_into(lattice, reduction, zero_infinity, gradient, counts)
    weights = (
        -c.to(w.dtype) if c is not None and w is not None else None
        for c, w in zip(counts, lattice.weights, strict=True)
    )
    return result, [gradient, *weights]


def gradient_like(logits: Tensor, dtype: torch.dtype) -> Tensor:
    """Make the tensor that a backend writes the gradient into: its last dimension, C, is contiguous.

    Args:
        logits: (T, N, C).
        dtype: The type of the gradient.

    Returns:
        An uninitialised tensor (T, N, C), in the memory order of the logits if C is contiguous there.
    """
    if logits.stride(2) == 1:
        gradient = torch.empty_like(logits, dtype=dtype)
        if gradient.stride(2) == 1:  # empty_like does not keep the order of logits that overlap in memory
            return gradient
    return torch.empty_like(logits, dtype=dtype, memory_format=torch.contiguous_format)


def loss_into(
    lattice: Lattice, reduction: str, zero_infinity: bool, gradient: Tensor | None, counts: Sequence[Tensor | None]
) -> Tensor:
    """Compute the loss, and write gradient and arc counts into given tensors, after checking all values.

    Args:
        lattice: The batch, on the CPU.
        reduction: "none", "mean" or "sum".
        zero_infinity: Whether a loss of +inf becomes 0.
        gradient: (T, N, C), made by `gradient_like`; is filled. None: not needed.
        counts: For bypass, self_loop and word_bypass a float64 tensor of the shape of the weights, to which the
            expected count of each arc is added, times d(loss) / d(loss of the utterance); None: not needed.

    Returns:
        The loss, (N,) or, if it is reduced, ().
    """
    batch = NativeBatch(lattice)
    batch.check()
    losses = torch.empty(lattice.logits.shape[1], dtype=compute_dtype(lattice.logits))
    reduced = losses if reduction == "none" else torch.empty((), dtype=losses.dtype)
    batch.loss(losses, reduced, reduction, zero_infinity, gradient, counts, _budget(lattice))
    if any(c is not None for c in counts) and losses.isnan().any():
        lose_counts(counts, losses.isnan(), lattice.target_lengths)
    return reduced


def _budget(lattice: Lattice) -> int:
    frames, size, _ = lattice.logits.shape
    at_once = min(size, torch.get_num_threads())
    return budget(lattice.memory, 24 * frames * (lattice.targets.shape[-1] + 1) * at_once)


def best_path(lattice: Lattice, guide: Guide | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the best path of each utterance, after checking all values.

    Args:
        lattice: The batch, on the CPU.
        guide: The first and the last position that a path may have after each frame, each (N, T), int32 and contiguous,
            and never falling in a row. About: up to 31 frames and 15 positions more are allowed. None: all positions.

    Returns:
        The score (N,), float64, −inf where there is no path and NaN where the logits have no softmax; and for each
        frame, (N, T): the position; the state (0 blank, 1 token, 2 ★, −1 none); and the arc that was taken into ★ in
        this frame (0 none, 1 bypass, 2 self-loop, 3 word bypass).
    """
    frames, size, _ = lattice.logits.shape
    batch = NativeBatch(lattice)
    batch.check()
    score = torch.empty(size, dtype=torch.float64)
    position = torch.zeros(size, frames, dtype=torch.int32)
    state = torch.full((size, frames), -1, dtype=torch.int8)
    arc = torch.zeros(size, frames, dtype=torch.int8)
    batch.best_path(score, position, state, arc, guide, _budget(lattice))
    return score, position, state, arc
