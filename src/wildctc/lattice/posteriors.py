"""Posteriors of arcs: the derivatives of the log-likelihood with respect to their weights."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wildctc.lattice import graph_native, graph_reference, native, reference, triton_backend
from wildctc.lattice.arcs import ABSENT, Lattice, compute_dtype, each_arc, padded_rows
from wildctc.lattice.backends import Backend, choose_backend, choose_graph_backend
from wildctc.lattice.checks import on_device
from wildctc.lattice.graph_batch import GraphBatch
from wildctc.lattice.transcripts import TranscriptGraph

_MANY_WORDS = 1_000_000  # in an utterance


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Posteriors of the wildcard arcs. An absent family is None; padding is 0.

    Attributes:
        bypass: (N, S) probability that each token was bypassed; of graphs (N, A), of each token arc.
        self_loop: (N, S+1) expected number of self-loops at each position; of graphs (N, Q), at each state.
        word_bypass: (N, W) probability that each word, or slot, was bypassed as a whole.
        skipped: (N, S) or (N, A) probability that a wildcard took the place of each token: it was bypassed, or its word
            was.
        log_likelihood: (N,); the loss with its sign changed.
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


def chain_posteriors(
    lattice: Lattice, backend: Backend, alone: bool, constant: Tensor | None, graphs: list[TranscriptGraph] | None
) -> Posteriors:
    """Compute the posteriors of single transcripts.

    Args:
        lattice: The batch, checked.
        backend: What the caller asked for.
        alone: Whether the results have no batch dimension.
        constant: (N,) what noise rates add to the loss of each utterance; None: nothing.
        graphs: The transcripts, if the caller gave them as graphs.

    Returns:
        The posteriors.
    """
    dtype = compute_dtype(lattice.logits)
    lattice = _with_weight_tensors(lattice)
    counted = {"native": _native_counts, "triton": triton_backend.counts, "reference": _reference_counts}
    log_likelihood, counts = counted[choose_backend(backend, lattice)](lattice)
    if constant is not None:
        log_likelihood = log_likelihood - constant.to(log_likelihood.dtype)
    bypass, self_loop, word_bypass = (c.to(dtype) if c is not None else None for c in counts)
    skipped = bypass if bypass is not None else _no_tokens(lattice, dtype)
    if word_bypass is not None and lattice.words is not None:
        rows = padded_rows(lattice.words, lattice.target_lengths, -1)
        share = word_bypass.gather(1, rows.clamp(min=0)) if word_bypass.shape[1] else torch.zeros_like(skipped)
        skipped = skipped + torch.where(rows >= 0, share, 0)
    token, alternatives = None, None
    if graphs is not None:
        token = _emitted(skipped, log_likelihood, lattice.target_lengths)
        alternatives = _alternatives(graphs, log_likelihood, token, bypass, word_bypass)
    found = (bypass, self_loop, word_bypass, skipped, log_likelihood.to(dtype), token)
    return Posteriors(*(x.squeeze(0) if x is not None and alone else x for x in found), alternatives)  # type: ignore


def _emitted(skipped: Tensor, log_likelihood: Tensor, lengths: Tensor) -> Tensor:
    """The probability of each token arc of a chain: what its wildcards leave; 0 in padding and without a path."""
    there = torch.arange(skipped.shape[1], device=skipped.device) < on_device(lengths, skipped.device).unsqueeze(1)
    return torch.where(there & (log_likelihood > ABSENT).unsqueeze(1), 1 - skipped, 0 * skipped)


def graph_posteriors(batch: GraphBatch, backend: Backend, alone: bool) -> Posteriors:
    """Compute the posteriors of graphs.

    Args:
        batch: The batch.
        backend: What the caller asked for.
        alone: Whether the results have no batch dimension.

    Returns:
        The posteriors.
    """
    counted = graph_native.counts if choose_graph_backend(backend, batch) == "native" else graph_reference.counts
    log_likelihood, counts = counted(batch)
    if batch.constant is not None:
        log_likelihood = log_likelihood - batch.constant
    dtype = compute_dtype(batch.logits)
    token, bypass, self_loop, word_bypass = (None if c is None else c.to(dtype) for c in counts)
    skipped = torch.zeros_like(token) if bypass is None else bypass  # type: ignore[arg-type]
    if word_bypass is not None and word_bypass.shape[1]:
        width = batch.widths[0]
        words = [[a.word for a in g.arcs] + [-1] * (width - len(g.arcs)) for g in batch.graphs]
        rows = torch.tensor(words, dtype=torch.int64, device=skipped.device).reshape(len(words), width)
        skipped = skipped + torch.where(rows >= 0, word_bypass.gather(1, rows.clamp(min=0)), 0)
    alternatives = _alternatives(batch.graphs, log_likelihood, token, bypass, word_bypass)
    found = (bypass, self_loop, word_bypass, skipped, log_likelihood.to(dtype), token)
    return Posteriors(*(x.squeeze(0) if x is not None and alone else x for x in found), alternatives)  # type: ignore


def _alternatives(
    graphs: list[TranscriptGraph],
    log_likelihood: Tensor,
    token: Tensor | None,
    bypass: Tensor | None,
    word_bypass: Tensor | None,
) -> list[list[list[float]]]:
    """The probability of each alternative: that its first arc, or the bypass beside it, was taken. 0 without a path."""
    entered = [] if token is None else (token if bypass is None else token + bypass).tolist()
    whole = [[] for _ in graphs] if word_bypass is None else word_bypass.tolist()
    found = []
    possible = (log_likelihood > ABSENT).tolist()
    for graph, there, row, words in zip(graphs, possible, entered, whole, strict=True):
        shares = [[0.0] * len(slot) for slot in graph.slots]
        skipped = [0.0] * len(shares)
        for arc, probability in zip(graph.arcs, row, strict=False):
            if arc.slot >= 0 and arc.first:
                shares[arc.slot][arc.alternative] += probability
                skipped[arc.slot] = words[arc.word] if words and arc.word >= 0 else 0.0
        for slot, share, part in zip(graph.slots, shares, skipped, strict=True):
            if () in slot and there:  # what the others leave; the first, if the same alternative is there twice
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
