"""The public functions of the lattice: loss and posteriors, on any backend."""

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from wildctc.lattice import graph_native, graph_reference, native, ops, reference, triton_backend, triton_ops
from wildctc.lattice.arcs import ABSENT, Lattice, Wildcards, as_lattice, compute_dtype, each_arc, padded_rows
from wildctc.lattice.checks import Lengths, check_logits, lengths_of, on_device
from wildctc.lattice.graph_batch import (
    GraphBatch,
    are_graphs,
    as_chain,
    as_graph_batch,
    check_no_lengths,
    list_of_graphs,
)
from wildctc.lattice.memory import Memory, memory_bytes
from wildctc.lattice.native import check_values
from wildctc.lattice.noise import NoiseRates, NormalisedArcs, normalised_arcs
from wildctc.lattice.transcripts import TranscriptGraph

Backend = Literal["auto", "reference", "native", "triton"]
Reduction = Literal["none", "mean", "sum"]
Targets: TypeAlias = Tensor | Sequence[TranscriptGraph] | TranscriptGraph

HAS_TRITON = importlib.util.find_spec("triton") is not None
_MANY_WORDS = 1_000_000  # in an utterance
_warned: set[str] = set()  # what a warning has been given for


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
        wildcards: The weights of the wildcard arcs.
        arc_weights: (N, A), which chains do not have.
        memory: A budget for the native backend.

    Returns:
        The batch; or targets, target_lengths and words.

    Raises:
        ValueError: Noise rates were given for a graph with alternatives.
    """
    check_logits(logits, blank)
    alone = logits.dim() == 2
    every = list_of_graphs(graphs, 1 if alone else logits.shape[1])
    chain = as_chain(every, alone) if arc_weights is None else None
    if chain is None:
        if isinstance(wildcards, NoiseRates):
            raise ValueError("noise rates are defined for single transcripts, not for graphs with alternatives")
        batch = as_graph_batch(logits, every, input_lengths, blank, wildcards, arc_weights)
        return batch._replace(memory=memory_bytes(memory))
    targets, target_lengths, words = chain
    return targets.to(logits.device), target_lengths, words.to(logits.device)


def _graph_loss(batch: GraphBatch, reduction: Reduction, zero_infinity: bool, backend: Backend, alone: bool) -> Tensor:
    if choose_graph_backend(backend, batch) == "native":
        loss = graph_native.loss(batch, reduction, zero_infinity)
    else:
        losses = -graph_reference.log_likelihood(batch)
        loss = _reduce(losses, batch.target_lengths, reduction, zero_infinity)
    return loss.squeeze(0) if alone and reduction == "none" else loss


def choose_graph_backend(backend: Backend, batch: GraphBatch) -> str:
    """Choose the backend for graphs that are not chains: native on the CPU, the reference elsewhere.

    Args:
        backend: What the caller asked for.
        batch: The batch.

    Returns:
        "native" or "reference".

    Raises:
        ValueError: The backend is unknown or computes no graphs, or does not work on the device of the logits.
    """
    device = batch.logits.device
    if backend == "triton":
        raise ValueError('backend="triton" computes no graphs with alternatives; use "reference" or "auto"')
    if backend not in ("auto", "reference", "native"):
        raise ValueError(f'backend must be "auto", "reference", "native" or "triton", got {backend!r}')
    if backend == "native" and device.type != "cpu":
        raise ValueError(f'backend="native" needs CPU tensors, logits are on {device}')
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "native"
    warn_of_reference(f"{device.type}, of graphs,", "there is no kernel for graphs with alternatives there")
    return "reference"


def warn_of_reference(what: str, reason: str) -> None:
    """Warn once that the slow backend was chosen.

    Args:
        what: Where it is used.
        reason: Why.
    """
    if not torch.compiler.is_compiling() and what not in _warned:
        _warned.add(what)
        warnings.warn(f"on {what} the lattice uses the slow reference backend, because {reason}", stacklevel=4)


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


def choose_backend(backend: Backend, lattice: Lattice) -> str:
    """Choose the backend for a batch.

    Args:
        backend: What the caller asked for. "auto" is native on the CPU, triton on a GPU if it is installed, and
            reference everywhere else, with a warning.
        lattice: The batch.

    Returns:
        "native", "triton" or "reference".

    Raises:
        ValueError: The backend is unknown, or does not work on the device of the logits.
    """
    if backend not in ("auto", "reference", "native", "triton"):
        raise ValueError(f'backend must be "auto", "reference", "native" or "triton", got {backend!r}')
    device = lattice.logits.device
    if backend == "native" and device.type != "cpu":
        raise ValueError(f'backend="native" needs CPU tensors, logits are on {device}')
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "native"
    if device.type == "cuda" and HAS_TRITON:  # ROCm's devices have this name too
        return "triton"
    reason = "triton is not installed (extra gpu)" if device.type == "cuda" else "there is no kernel for it"
    warn_of_reference(device.type, reason)
    return "reference"


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Posteriors of the wildcard arcs. An absent family is None; padding is 0.

    Attributes:
        bypass: (N, S) probability that each token was bypassed; of graphs (N, A), of each token arc.
        self_loop: (N, S+1) expected number of self-loops at each position; of graphs (N, Q), at each state.
        word_bypass: (N, W) probability that each word, or slot, was bypassed as a whole.
        skipped: (N, S) or (N, A) probability that a wildcard took the place of each token: it was bypassed, or its word
            was.
        log_likelihood: (N,).
        token: (N, A) probability that each token arc of a graph was emitted. None where targets are not graphs.
        alternatives: Of graphs made from slots, for each utterance and slot the probability of each alternative. None
            where targets are not graphs.
    """

    bypass: Tensor | None
    self_loop: Tensor | None
    word_bypass: Tensor | None
    skipped: Tensor
    log_likelihood: Tensor
    token: Tensor | None = None
    alternatives: list[list[list[float]]] | None = None


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
    graphs = None
    if are_graphs(targets):
        check_no_lengths(target_lengths, words)
        graphs = list_of_graphs(targets, None)
        batch = chain_or_batch(logits, graphs, input_lengths, blank, wildcards, arc_weights, memory)
        if isinstance(batch, GraphBatch):
            return _graph_posteriors(batch, backend, logits.dim() == 2)
        targets, target_lengths, words = batch
        arc_weights = None
    targets, target_lengths = checked_targets(targets, target_lengths, arc_weights)
    if isinstance(wildcards, NoiseRates):
        wildcards = arcs_of(wildcards, logits, targets, target_lengths, words).wildcards
    lattice = as_lattice(logits, targets, input_lengths, target_lengths, blank, wildcards, words, memory)
    check_values(lattice)
    lattice = _with_weight_tensors(lattice)
    counted = {"native": _native_counts, "triton": triton_backend.counts, "reference": _reference_counts}
    log_likelihood, counts = counted[choose_backend(backend, lattice)](lattice)
    dtype = compute_dtype(logits)
    bypass, self_loop, word_bypass = (c.to(dtype) if c is not None else None for c in counts)
    skipped = bypass if bypass is not None else _no_tokens(lattice, dtype)
    if word_bypass is not None and lattice.words is not None:
        rows = padded_rows(lattice.words, lattice.target_lengths, -1)
        share = word_bypass.gather(1, rows.clamp(min=0)) if word_bypass.shape[1] else torch.zeros_like(skipped)
        skipped = skipped + torch.where(rows >= 0, share, 0)
    token, alternatives = None, None
    if graphs is not None:
        token = _emitted(skipped, log_likelihood, lattice.target_lengths)
        alternatives = _alternatives(graphs, token, bypass, word_bypass)
    found = (bypass, self_loop, word_bypass, skipped, log_likelihood.to(dtype), token)
    one = logits.dim() == 2
    return Posteriors(*(x.squeeze(0) if x is not None and one else x for x in found), alternatives)  # type: ignore


def _emitted(skipped: Tensor, log_likelihood: Tensor, lengths: Tensor) -> Tensor:
    """The probability of each token arc of a chain: what its wildcards leave; 0 in padding and without a path."""
    there = torch.arange(skipped.shape[1], device=skipped.device) < on_device(lengths, skipped.device).unsqueeze(1)
    return torch.where(there & (log_likelihood > ABSENT).unsqueeze(1), 1 - skipped, 0 * skipped)


def _graph_posteriors(batch: GraphBatch, backend: Backend, alone: bool) -> Posteriors:
    counted = graph_native.counts if choose_graph_backend(backend, batch) == "native" else graph_reference.counts
    log_likelihood, counts = counted(batch)
    dtype = compute_dtype(batch.logits)
    token, bypass, self_loop, word_bypass = (None if c is None else c.to(dtype) for c in counts)
    skipped = torch.zeros_like(token) if bypass is None else bypass  # type: ignore[arg-type]
    if word_bypass is not None and word_bypass.shape[1]:
        width = batch.widths[0]
        words = [[a.word for a in g.arcs] + [-1] * (width - len(g.arcs)) for g in batch.graphs]
        rows = torch.tensor(words, dtype=torch.int64, device=skipped.device).reshape(len(words), width)
        skipped = skipped + torch.where(rows >= 0, word_bypass.gather(1, rows.clamp(min=0)), 0)
    alternatives = _alternatives(batch.graphs, token, bypass, word_bypass)
    found = (bypass, self_loop, word_bypass, skipped, log_likelihood.to(dtype), token)
    return Posteriors(*(x.squeeze(0) if x is not None and alone else x for x in found), alternatives)  # type: ignore


def _alternatives(
    graphs: list[TranscriptGraph], token: Tensor | None, bypass: Tensor | None, word_bypass: Tensor | None
) -> list[list[list[float]]]:
    """The probability of each alternative: that its first arc, or the bypass beside it, was taken."""
    entered = [] if token is None else (token if bypass is None else token + bypass).tolist()
    whole = [[] for _ in graphs] if word_bypass is None else word_bypass.tolist()
    found = []
    for graph, row, words in zip(graphs, entered, whole, strict=True):
        shares = [[0.0] * len(slot) for slot in graph.slots]
        skipped = [0.0] * len(shares)
        for arc, probability in zip(graph.arcs, row, strict=False):
            if arc.slot >= 0 and arc.first:
                shares[arc.slot][arc.alternative] += probability
                skipped[arc.slot] = words[arc.word] if words and arc.word >= 0 else 0.0
        for slot, share, part in zip(graph.slots, shares, skipped, strict=True):
            if () in slot:  # what the others leave; the first, if the same alternative is there twice
                share[slot.index(())] = max(0.0, 1.0 - sum(share) - part)
        found.append(shares)
    return found


def _no_tokens(lattice: Lattice, dtype: torch.dtype) -> Tensor:
    return torch.zeros(
        padded_rows(lattice.targets, lattice.target_lengths, 0).shape, dtype=dtype, device=lattice.logits.device
    )


def _with_weight_tensors(lattice: Lattice) -> Lattice:
    """Expand all weights to one per arc, so that each arc has a place for its posterior."""
    size = lattice.logits.shape[1]
    tokens = padded_rows(lattice.targets, lattice.target_lengths, 0).shape[1]
    words = padded_rows(lattice.words, lattice.target_lengths, -1) if lattice.words is not None else None
    num_words = int(words.max()) + 1 if words is not None and words.numel() else 0
    if num_words > _MANY_WORDS:  # there would be a posterior for each number
        raise ValueError(f"words go up to {num_words - 1}; number them 0, 1, 2, … from left to right in each utterance")
    widths = (tokens, tokens + 1, num_words)
    spread = []
    for i, (weight, width) in enumerate(zip(lattice.weights, widths, strict=True)):
        if weight is None and lattice.present(i):
            weight = torch.full((size, width), lattice.values[i], dtype=torch.float64, device=lattice.logits.device)
        spread.append(each_arc(weight, width) if weight is not None and (i < 2 or weight.dim() == 1) else weight)
    return lattice._replace(bypass=spread[0], self_loop=spread[1], word_bypass=spread[2], values=[ABSENT] * 3)


def _native_counts(lattice: Lattice) -> tuple[Tensor, list[Tensor | None]]:
    counts = [torch.zeros(w.shape, dtype=torch.float64) if w is not None else None for w in lattice.weights]
    return -native.loss_into(lattice, "none", False, None, counts), counts


def _reference_counts(lattice: Lattice) -> tuple[Tensor, list[Tensor | None]]:
    # autograd records nothing in inference mode, which enable_grad does not end, nor for tensors that were made in it
    with torch.inference_mode(False), torch.enable_grad():
        fields = (x.clone() if isinstance(x, Tensor) and x.is_inference() else x for x in lattice)
        lattice = Lattice(*fields)  # type: ignore[arg-type]
        weights = [w.detach().clone().requires_grad_() if w is not None else None for w in lattice.weights]
        log_likelihood = reference.log_likelihood(
            lattice._replace(
                logits=lattice.logits.detach(), bypass=weights[0], self_loop=weights[1], word_bypass=weights[2]
            )
        )
        given = [w for w in weights if w is not None]
        # without frames, or without words for word bypasses, the likelihood does not depend on the weights
        connected = log_likelihood.requires_grad
        found = (
            torch.autograd.grad(log_likelihood.sum(), given, allow_unused=True) if connected else [None] * len(given)
        )
    grads = iter(torch.zeros_like(w) if g is None else g for w, g in zip(given, found, strict=True))
    counts = [next(grads) if w is not None else None for w in weights]
    return log_likelihood.detach(), counts
