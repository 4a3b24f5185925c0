"""The C++ backend for transcript graphs: loss and gradients in one pass, counts of arcs, and best paths."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wildctc.lattice import _native, ops  # type: ignore[attr-defined]  # compiled
from wildctc.lattice.arcs import ABSENT, Lattice, compute_dtype
from wildctc.lattice.graph_batch import GraphBatch
from wildctc.lattice.memory import budget
from wildctc.lattice.native import Gradients, NativeBatch, gradient_like
from wildctc.lattice.transcripts import TranscriptGraph

_TENSORS = ("logits", "bypass", "self_loop", "word_bypass", "arc_weights")  # what a loss can be differentiated by


class _NativeGraphs(NativeBatch):
    """A batch of graphs in the form that C++ reads. Chains among them are computed as chains."""

    def __init__(self, batch: GraphBatch, count_tokens: bool = False) -> None:
        # numpy, and not torch, because this is a good part of the time of a short batch
        flat = [graph.flat for graph in batch.graphs]
        joined = [np.concatenate(rows) for rows in zip(*(flat or [TranscriptGraph.from_labels([]).flat]), strict=True)]
        labels, ends, arc_weights, arc_words, words, word_weights, final = joined
        super().__init__(
            Lattice(
                batch.logits,
                torch.from_numpy(labels),
                batch.input_lengths,
                torch.tensor([len(f.labels) for f in flat], dtype=torch.int64),
                torch.from_numpy(arc_words),
                *batch.weights[:3],
                values=list(batch.numbers),
                blank=batch.blank,
                loops_at_words=False,
            )
        )
        # the recursion of a chain has no weights on token arcs, and does not count them
        plain = batch.arc_weights is None and not count_tokens
        added = None if batch.arc_weights is None else batch.arc_weights.detach().double().resolve_neg().contiguous()
        starts = np.array(
            [[0, *(len(f.final) for f in flat)], [0, *(len(f.words) for f in flat)]], dtype=np.int64
        ).cumsum(1)
        sizes = np.array([[g.num_words for g in batch.graphs], [g.length for g in batch.graphs]], dtype=np.int64)
        chains = np.array([plain and g.is_chain for g in batch.graphs], dtype=np.uint8)
        arrays = [ends, arc_weights, words, word_weights, final, starts, sizes, chains]
        self._graphs_alive = (arrays, added)
        weights = (ABSENT, 0, 0) if added is None else (ABSENT, added.data_ptr(), added.shape[1])
        *places, starts_at, sizes_at, chains_at = (x.__array_interface__["data"][0] for x in arrays)
        places += [starts_at, starts_at + starts.strides[0], sizes_at, sizes_at + sizes.strides[0], chains_at]
        self._addresses.set_graphs(_native.Transcripts(*places, weights))

    def graph_best_path(
        self, score: Tensor, place: Tensor, state: Tensor, arc: Tensor, via: Tensor, memory: int
    ) -> None:
        """Fill the results with the best paths. Call `check` first.

        Args:
            score: (N,), float64.
            place: (N, T), int32.
            state: (N, T), int8.
            arc: (N, T), int8.
            via: (N, T), int32.
            memory: The budget, in bytes.
        """
        results = [x.data_ptr() for x in (score, place, state, arc, via)]
        self._within(memory, self._addresses.graph_best_path, results)


def loss(batch: GraphBatch, reduction: str, zero_infinity: bool) -> Tensor:
    """Compute the loss, differentiable with respect to logits and weights.

    Args:
        batch: The batch, on the CPU.
        reduction: "none", "mean" or "sum".
        zero_infinity: Whether a loss of +inf becomes 0.

    Returns:
        Negative log-likelihoods (N,), or reduced to ().
    """
    ops.check_transforms(batch.logits, *batch.weights)
    return _Loss.apply(batch, reduction, zero_infinity, batch.logits, *batch.weights)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: GraphBatch, reduction: str, zero_infinity: bool, *inputs: Tensor | None) -> Tensor:
        want = ctx.needs_input_grad[3:]
        result, ctx.gradients = _loss(batch, reduction, zero_infinity, want)
        ctx.save_for_backward(*inputs)
        saved: dict[str, Any] = dict.fromkeys(_TENSORS)
        ctx.rest = (batch._replace(**saved), reduction, zero_infinity, want)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        rest, reduction, zero_infinity, want = ctx.rest
        with torch.no_grad():
            if gradients is None:  # a second backward pass
                batch = rest._replace(**dict(zip(_TENSORS, tensors, strict=True)))
                gradients = _loss(batch, reduction, zero_infinity, want)[1]
            gradients = ops.scaled_by(gradients, grad, tensors[0].dtype)
        if torch.is_grad_enabled():
            gradients = ops.differentiable_once(gradients, grad, *tensors)
        return None, None, None, *gradients


def _loss(batch: GraphBatch, reduction: str, zero_infinity: bool, want: Sequence[bool]) -> tuple[Tensor, Gradients]:
    """The loss, and the gradients to logits, bypass, self_loop, word_bypass and arc_weights."""
    gradient = gradient_like(batch.logits, compute_dtype(batch.logits)) if want[0] else None
    counts = [
        torch.zeros(w.shape, dtype=torch.float64) if wanted and w is not None else None
        for w, wanted in zip(batch.weights, want[1:], strict=True)
    ]
    result = _loss_into(_NativeGraphs(batch), batch, reduction, zero_infinity, gradient, counts)
    weights = (None if c is None or w is None else -c.to(w.dtype) for c, w in zip(counts, batch.weights, strict=True))
    return result, [gradient, *weights]


def _loss_into(
    native: _NativeGraphs,
    batch: GraphBatch,
    reduction: str,
    zero_infinity: bool,
    gradient: Tensor | None,
    counts: Sequence[Tensor | None],
) -> Tensor:
    native.check()
    losses = torch.empty(batch.logits.shape[1], dtype=compute_dtype(batch.logits))
    reduced = losses if reduction == "none" else torch.empty((), dtype=losses.dtype)
    native.loss(losses, reduced, reduction, zero_infinity, gradient, counts, _budget(batch))
    if any(c is not None for c in counts) and losses.isnan().any():
        columns = list(zip(*batch.sizes, strict=True))
        for count, size in zip(counts, [*columns, columns[0]], strict=True):
            if count is not None:
                there = torch.arange(count.shape[1]) < torch.tensor(size).unsqueeze(1)
                count.masked_fill_(losses.isnan().unsqueeze(1) & there, math.nan)
    return reduced


def _budget(batch: GraphBatch) -> int:
    at_once = min(len(batch.graphs), torch.get_num_threads())
    return budget(batch.memory, 24 * batch.logits.shape[0] * (batch.widths[0] + 1) * at_once)


def counts(batch: GraphBatch) -> tuple[Tensor, list[Tensor | None]]:
    """Compute the expected count of each arc, as `graph_reference.counts` does.

    Args:
        batch: The batch, on the CPU.

    Returns:
        The log-likelihoods (N,), and the counts of token arcs (N, A), bypasses (N, A), self-loops (N, Q) and word
        bypasses (N, W), None where a family is absent.
    """
    batch = batch.each_weight()
    shape = (len(batch.graphs), batch.widths[0])
    found = [None if w is None else torch.zeros(w.shape, dtype=torch.float64) for w in batch.weights[:3]]
    tokens = torch.zeros(shape, dtype=torch.float64)
    native = _NativeGraphs(batch, count_tokens=True)
    losses = _loss_into(native, batch, "none", False, None, [*found, tokens])
    return -losses, [tokens, *found]


def best_path(batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Find the best path of each utterance, after checking all values.

    Args:
        batch: The batch, on the CPU.

    Returns:
        The score (N,), float64, −inf where there is no path and NaN where the logits have no softmax. For each frame,
        (N, T): the place, in a token its arc, else the state of the graph; the state of the lattice (0 blank, 1 token,
        2 ★, −1 none); the arc that was taken into ★ in this frame (0 none, 1 bypass, 2 self-loop, 3 word bypass); and
        the token arc that was bypassed, or the word arc that was taken.
    """
    frames, size, _ = batch.logits.shape
    native = _NativeGraphs(batch)
    native.check()
    score = torch.empty(size, dtype=torch.float64)
    place, via = (torch.full((size, frames), fill, dtype=torch.int32) for fill in (0, -1))
    state, arc = (torch.full((size, frames), fill, dtype=torch.int8) for fill in (-1, 0))
    native.graph_best_path(score, place, state, arc, via, _budget(batch))
    return score, place, state, arc, via
