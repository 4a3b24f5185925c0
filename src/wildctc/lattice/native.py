"""The C++ backend: addresses of tensors go in, results come out in tensors made here."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from wildctc.lattice import _native  # type: ignore[attr-defined]  # compiled
from wildctc.lattice.arcs import Lattice, compute_dtype, lose_counts

Gradients: TypeAlias = list[Tensor | None]

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


class Batch:
    """A lattice with its tensors in the form that C++ reads, kept alive for as long as their addresses are used."""

    def __init__(self, lattice: Lattice) -> None:
        logits = lattice.logits.resolve_neg()
        if logits.dtype not in _DTYPES:
            raise ValueError(f"logits are {logits.dtype}, must be float32, float64, float16 or bfloat16")
        targets = lattice.targets.contiguous()
        words = lattice.words.contiguous() if lattice.words is not None else None
        input_lengths = lattice.input_lengths.contiguous()
        target_lengths = lattice.target_lengths.contiguous()
        weights = [
            w.detach().to(torch.float64).resolve_neg().contiguous() if w is not None else None for w in lattice.weights
        ]
        self._alive = (logits, targets, words, input_lengths, target_lengths, weights)
        self.native = _native.Batch(
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
                (v, w.data_ptr(), w.shape[1]) if w is not None else (v, 0, 0)
                for w, v in zip(weights, lattice.values, strict=True)
            ),
            lattice.loops_at_words,
        )


def check(lattice: Lattice) -> None:
    args = Batch(lattice)
    args.native.check()


def loss(lattice: Lattice, reduction: str, zero_infinity: bool, want: Sequence[bool]) -> tuple[Tensor, Gradients]:
    """The loss, (N,) or () if it is reduced, and its gradients to logits, bypass, self_loop and word_bypass.

    All in one pass over an utterance: going back for the gradient later would mean to keep, or to compute again, what
    is in the cache now. Values are checked before anything is read.
    """
    gradient = gradient_like(lattice.logits) if want[0] else None
    counts = [
        torch.zeros(w.shape, dtype=torch.float64) if wanted and w is not None else None
        for w, wanted in zip(lattice.weights, want[1:], strict=True)
    ]
    result = run(lattice, reduction, zero_infinity, gradient, counts)
    weights = (
        -c.to(w.dtype) if c is not None and w is not None else None
        for c, w in zip(counts, lattice.weights, strict=True)
    )
    return result, [gradient, *weights]


def gradient_like(logits: Tensor) -> Tensor:
    """In the logits' own memory order if that has C innermost; float32 for the half types, until it has been scaled."""
    dtype = compute_dtype(logits)
    if logits.stride(2) == 1:
        gradient = torch.empty_like(logits) if logits.dtype == dtype else torch.empty_like(logits, dtype=dtype)
        if gradient.stride(2) == 1:  # of logits that overlap in memory the order is not kept
            return gradient
    return torch.empty_like(logits, dtype=dtype, memory_format=torch.contiguous_format)


def run(
    lattice: Lattice, reduction: str, zero_infinity: bool, gradient: Tensor | None, counts: Sequence[Tensor | None]
) -> Tensor:
    """The loss; fills the logits' gradient, which has C innermost, and adds the arcs' expected counts, each float64."""
    args = Batch(lattice)
    args.native.check()
    losses = torch.empty(lattice.logits.shape[1], dtype=compute_dtype(lattice.logits))
    reduced = losses if reduction == "none" else torch.empty((), dtype=losses.dtype)
    args.native.loss(
        losses.data_ptr(),
        reduced.data_ptr(),
        _REDUCTIONS[reduction],
        zero_infinity,
        gradient is not None or any(c is not None for c in counts),
        gradient.data_ptr() if gradient is not None else 0,
        *(gradient.stride()[:2] if gradient is not None else (0, 0)),
        *((c.data_ptr(), c.shape[1]) if c is not None else (0, 0) for c in counts),
        torch.get_num_threads(),
    )
    if any(c is not None for c in counts) and losses.isnan().any():
        lose_counts(counts, losses.isnan(), lattice.target_lengths)
    return reduced


def best_path(lattice: Lattice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Score (N,), and of each frame, (N, T): position, state (0 blank, 1 token, 2 ★, −1 none) and arc taken into ★
    (0 none, 1 bypass, 2 self-loop, 3 word bypass)."""
    frames, size, _ = lattice.logits.shape
    args = Batch(lattice)
    args.native.check()
    score = torch.empty(size, dtype=torch.float64)
    position = torch.zeros(size, frames, dtype=torch.int32)
    state = torch.full((size, frames), -1, dtype=torch.int8)
    arc = torch.zeros(size, frames, dtype=torch.int8)
    results = (score.data_ptr(), position.data_ptr(), state.data_ptr(), arc.data_ptr())
    args.native.best_path(*results, torch.get_num_threads())
    return score, position, state, arc
