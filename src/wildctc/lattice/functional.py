"""The public functions of the lattice: loss and posteriors, on any backend."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from wildctc.lattice import graph_native, graph_reference, ops, reference, triton_ops
from wildctc.lattice.arcs import Wildcards, as_lattice, compute_dtype
from wildctc.lattice.backends import Backend, choose_backend, choose_graph_backend
from wildctc.lattice.checks import Lengths, check_logits, lengths_of, on_device
from wildctc.lattice.graph_batch import (
    GraphBatch,
    are_graphs,
    as_chain,
    as_graph_batch,
    check_labels,
    check_no_lengths,
    list_of_graphs,
)
from wildctc.lattice.graph_noise import with_noise_rates
from wildctc.lattice.memory import Memory, memory_bytes
from wildctc.lattice.native import check_values
from wildctc.lattice.noise import NoiseRates, NormalisedArcs, normalised_arcs
from wildctc.lattice.posteriors import Posteriors, chain_posteriors, graph_posteriors
from wildctc.lattice.star import with_star
from wildctc.lattice.transcripts import TranscriptGraph

Reduction = Literal["none", "mean", "sum"]
Targets: TypeAlias = Tensor | Sequence[TranscriptGraph] | TranscriptGraph


def wildcard_ctc_loss(
    logits: Tensor,
    targets: Targets,
    input_lengths: Lengths,
    target_lengths: Lengths | None = None,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
    *,
    wildcards: Wildcards | NoiseRates | None = None,
    words: Tensor | None = None,
    arc_weights: Tensor | None = None,
    backend: Backend = "auto",
    memory: Memory = None,
) -> Tensor:
    """Compute the CTC loss, with or without wildcard arcs. The arguments are those of `torch.nn.functional.ctc_loss`.

    Args:
        logits: (T, N, C), or (T, C) for one utterance; of any floating-point type and any strides. Log-probabilities
            are possible too.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated; or a list of N `TranscriptGraph`s.
        input_lengths: (N,) frames of each utterance, a tensor or a list.
        target_lengths: (N,) labels of each transcript, a tensor or a list; None where targets are graphs.
        blank: The label of the blank.
        reduction: "none", "sum", or "mean", which divides each loss by the length of its target before averaging, as
            torch does. The length of a graph is that of its first writing.
        zero_infinity: Whether the loss of an utterance with too few frames is 0 instead of +inf. Its gradient is 0 in
            both cases.
        wildcards: The weights of the wildcard arcs, or noise rates; None for plain CTC. With noise rates the loss is
            that of a proper mixture, so that rates can be learned. With graphs, weights are per arc: `bypass` (N, A)
            for token arcs, `self_loop` (N, Q) for states, `word_bypass` (N, W).
        words: The word of each label, in the shape of the targets (see `word_ids`); needed by word arcs only. None
            where targets are graphs.
        arc_weights: (N, A) log-weights that are added to those of the token arcs of graphs. Gradients flow to them.
        backend: "native" (C++, for the CPU), "triton" (for GPUs), "reference" (plain PyTorch, slow), or "auto", which
            chooses by device.
        memory: A budget for the native backend beside inputs and results, in bytes or as "4GB": a longer computation
            takes less. None: the environment variable WILDCTC_MEMORY, or half of what is free. Without effect on
            other backends.

    Returns:
        The loss: (), or (N,) without a reduction. With wildcards it can be negative.

    >>> logits = torch.zeros(4, 1, 3)
    >>> loss = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], reduction="sum")
    >>> wild = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], reduction="sum",
    ...                          wildcards=Wildcards(bypass=-1.0, self_loop=-2.0))
    >>> f"{loss:.4f} {wild:.4f}"
    '1.6864 0.9765'
    """
    check_reduction(reduction)
    if isinstance(wildcards, Wildcards) and wildcards.star is not None:
        starred = with_star(logits, input_lengths, blank, wildcards)
        losses = wildcard_ctc_loss(
            starred.logits, targets, input_lengths, target_lengths, blank, "none", wildcards=starred.wildcards,
            words=words, arc_weights=arc_weights, backend=backend, memory=memory,
        )  # fmt: skip
        return _reduce(losses + starred.constant, _lengths_of(targets, target_lengths), reduction, zero_infinity)
    if are_graphs(targets):
        check_no_lengths(target_lengths, words)
        found = chain_or_batch(logits, targets, input_lengths, blank, wildcards, arc_weights, memory)
        if isinstance(found, GraphBatch):
            return _graph_loss(found, reduction, zero_infinity, backend, logits.dim() == 2)
        targets, target_lengths, words = found
    targets, target_lengths = checked_targets(targets, target_lengths, arc_weights)
    if isinstance(wildcards, NoiseRates):
        arcs = arcs_of(wildcards, logits, targets, target_lengths, words)
        arguments = (logits, targets, input_lengths, target_lengths, blank)
        losses = wildcard_ctc_loss(
            *arguments, "none", wildcards=arcs.wildcards, words=words, backend=backend, memory=memory
        )
        losses = losses + arcs.constant.reshape(losses.shape).to(losses.dtype)
        lengths = lengths_of(target_lengths, "target_lengths", arcs.constant.numel(), logits.device)
        return _reduce(losses, lengths, reduction, zero_infinity)
    lattice = as_lattice(logits, targets, input_lengths, target_lengths, blank, wildcards, words, memory)
    chosen = choose_backend(backend, lattice)
    if chosen == "native":
        loss = ops.loss(lattice, reduction, zero_infinity)
    elif chosen == "triton":
        loss = _reduce(triton_ops.loss(lattice), lattice.target_lengths, reduction, zero_infinity)
    else:
        lattice = ops.checked(lattice)
        loss = _reduce(-reference.log_likelihood(lattice), lattice.target_lengths, reduction, zero_infinity)
    return loss.squeeze(0) if logits.dim() == 2 and reduction == "none" else loss


def _lengths_of(targets: Targets, target_lengths: Lengths | None) -> Tensor:
    """(N,) labels of each transcript, which the loss has checked; of a graph those of its first writing."""
    if are_graphs(targets):
        return torch.tensor([graph.length for graph in list_of_graphs(targets, None)], dtype=torch.int64)
    return torch.as_tensor(target_lengths)


def arcs_of(
    rates: NoiseRates, logits: Tensor, targets: Tensor, target_lengths: Lengths, words: Tensor | None
) -> NormalisedArcs:
    """Turn noise rates into weights, for the arguments of a caller.

    Args:
        rates: The rates.
        logits: (T, N, C), or (T, C) for one utterance.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
        target_lengths: (N,) labels of each transcript.
        words: The word of each label, in the shape of the targets, or None.

    Returns:
        The weights of all arcs, and the constant of each utterance.
    """
    size = logits.shape[1] if logits.dim() == 3 else 1
    if logits.dim() == 2:
        targets, words = targets.reshape(1, -1), None if words is None else words.reshape(1, -1)
    lengths = lengths_of(target_lengths, "target_lengths", size, logits.device)
    return normalised_arcs(rates, targets, lengths, words, compute_dtype(logits))


def checked_targets(
    targets: object, target_lengths: Lengths | None, arc_weights: Tensor | None = None
) -> tuple[Tensor, Lengths]:
    """Check what belongs together where targets are not graphs.

    Args:
        targets: What the caller gave.
        target_lengths: Must be given.
        arc_weights: Must be None.

    Returns:
        Targets and target_lengths.

    Raises:
        TypeError: target_lengths are missing.
        ValueError: Only graphs have weights on token arcs.
    """
    if target_lengths is None:
        raise TypeError(
            "target_lengths are missing: give the labels of each transcript, or TranscriptGraphs as targets"
        )
    if arc_weights is not None:
        raise ValueError("arc_weights need TranscriptGraphs as targets")
    return targets, target_lengths  # type: ignore[return-value]


def chain_or_batch(
    logits: Tensor,
    graphs: Sequence[TranscriptGraph] | TranscriptGraph,
    input_lengths: Lengths,
    blank: int,
    wildcards: Wildcards | NoiseRates | None,
    arc_weights: Tensor | None = None,
    memory: Memory = None,
) -> GraphBatch | tuple[Tensor, Tensor, Tensor]:
    """Batch graphs, or turn them into tensors if all of them are chains, which every backend knows.

    Args:
        logits: (T, N, C) or (T, C).
        graphs: One for each utterance.
        input_lengths: (N,).
        blank: The label of the blank.
        wildcards: The weights of the wildcard arcs, or noise rates.
        arc_weights: (N, A), which chains do not have.
        memory: A budget for the native backend.

    Returns:
        The batch; or targets, target_lengths and words.
    """
    check_logits(logits, blank)
    alone = logits.dim() == 2
    every = list_of_graphs(graphs, 1 if alone else logits.shape[1])
    check_labels(every, logits.shape[-1], blank)
    chain = as_chain(every, alone) if arc_weights is None else None
    if chain is None:
        plain = None if isinstance(wildcards, NoiseRates) else wildcards
        batch = as_graph_batch(logits, every, input_lengths, blank, plain, arc_weights)
        batch = batch._replace(memory=memory_bytes(memory))
        return with_noise_rates(batch, wildcards) if isinstance(wildcards, NoiseRates) else batch
    targets, target_lengths, words = chain
    return targets.to(logits.device), target_lengths, words.to(logits.device)


def _graph_loss(batch: GraphBatch, reduction: Reduction, zero_infinity: bool, backend: Backend, alone: bool) -> Tensor:
    chosen = choose_graph_backend(backend, batch)
    if chosen == "native" and batch.constant is None:
        loss = graph_native.loss(batch, reduction, zero_infinity)
    else:
        native = chosen == "native"
        losses = graph_native.loss(batch, "none", False) if native else -graph_reference.log_likelihood(batch)
        if batch.constant is not None:
            losses = losses + batch.constant.to(losses.dtype)
        loss = _reduce(losses, batch.target_lengths, reduction, zero_infinity)
    return loss.squeeze(0) if alone and reduction == "none" else loss


def check_reduction(reduction: str) -> None:
    """Check the name of a reduction.

    Args:
        reduction: What the caller asked for.

    Raises:
        ValueError: It is none of "none", "mean" and "sum".
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction must be "none", "mean" or "sum", got {reduction!r}')


def _reduce(losses: Tensor, target_lengths: Tensor, reduction: Reduction, zero_infinity: bool) -> Tensor:
    if zero_infinity:
        losses = torch.where(losses == torch.inf, 0, losses)
    if reduction == "mean":
        return (losses / on_device(target_lengths, losses.device).clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses


@ops.eagerly
@torch.no_grad()
def wildcard_posteriors(
    logits: Tensor,
    targets: Targets,
    input_lengths: Lengths,
    target_lengths: Lengths | None = None,
    blank: int = 0,
    *,
    wildcards: Wildcards | NoiseRates,
    words: Tensor | None = None,
    arc_weights: Tensor | None = None,
    backend: Backend = "auto",
    memory: Memory = None,
) -> Posteriors:
    """Compute the posterior of each wildcard arc: the derivative of the log-likelihood with respect to its weight.

    Args:
        logits: (T, N, C), or (T, C) for one utterance; the results then have no batch dimension.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated; or a list of N `TranscriptGraph`s.
        input_lengths: (N,) frames of each utterance.
        target_lengths: (N,) labels of each transcript; None where targets are graphs.
        blank: The label of the blank.
        wildcards: The weights of the wildcard arcs, or noise rates.
        words: The word of each label, in the shape of the targets (see `word_ids`); needed by word arcs only. None
            where targets are graphs.
        arc_weights: (N, A) log-weights that are added to those of the token arcs of graphs.
        backend: As for `wildcard_ctc_loss`.
        memory: As for `wildcard_ctc_loss`.

    Returns:
        The posteriors. An utterance with too few frames has posteriors 0 and log-likelihood −inf.

    >>> logits = torch.tensor([[0., 9, 0, 0], [9, 0, 0, 0], [0, 9, 0, 0]]).unsqueeze(1)  # sounds like 1 1
    >>> post = wildcard_posteriors(logits, torch.tensor([[1, 2]]), [3], [2], wildcards=Wildcards(bypass=-3.0))
    >>> [round(p, 2) for p in post.bypass[0].tolist()]
    [0.02, 0.99]
    """
    if isinstance(wildcards, Wildcards) and wildcards.star is not None:
        starred = with_star(logits, input_lengths, blank, wildcards)
        post = wildcard_posteriors(
            starred.logits, targets, input_lengths, target_lengths, blank, wildcards=starred.wildcards, words=words,
            arc_weights=arc_weights, backend=backend, memory=memory,
        )  # fmt: skip
        return replace(post, log_likelihood=post.log_likelihood - starred.constant)
    graphs = None
    if are_graphs(targets):
        check_no_lengths(target_lengths, words)
        graphs = list_of_graphs(targets, None)
        batch = chain_or_batch(logits, graphs, input_lengths, blank, wildcards, arc_weights, memory)
        if isinstance(batch, GraphBatch):
            return graph_posteriors(batch, backend, logits.dim() == 2)
        targets, target_lengths, words = batch
        arc_weights = None
    targets, target_lengths = checked_targets(targets, target_lengths, arc_weights)
    constant = None
    if isinstance(wildcards, NoiseRates):
        wildcards, constant = arcs_of(wildcards, logits, targets, target_lengths, words)
    lattice = as_lattice(logits, targets, input_lengths, target_lengths, blank, wildcards, words, memory)
    check_values(lattice)
    return chain_posteriors(lattice, backend, logits.dim() == 2, constant, graphs)
