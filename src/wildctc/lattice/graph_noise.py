"""Noise rates on transcript graphs (specification §9 and §10).

On a graph the writings have different tokens and words, so there is no "everything that is written was said" that all
arcs could be weighed against. Each arc pays for itself, and for leaving its state:

    token arc    log(1 − ε_a) + leave      leave = log(1 − δ), if the state has a self-loop,
    bypass       log ε_a      + leave              + log(1 − η_w), if the arc begins a word
    word bypass  log η_w      + log(1 − δ)
    self-loop    log δ
    the end      log(1 − δ)

On a chain this is `noise.py`. A word counts where one of its alternatives is entered: a slot that is left out by an
empty alternative is neither right nor wrong. Of words that overlap, the one that starts last counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT, compute_dtype
from wildctc.lattice.graph_batch import GraphBatch, word_states
from wildctc.lattice.noise import NoiseCounts, NoiseRates, per_arc
from wildctc.lattice.transcripts import TranscriptGraph


class NormalisedGraphArcs(NamedTuple):
    """The arcs of a batch of graphs with noise rates.

    Attributes:
        bypass: (N, A) weights; None if there are no such arcs.
        self_loop: (N, Q), or None.
        word_bypass: (N, W), or None.
        arc_weights: (N, A) what is added to the weights of token arcs.
        constant: (N,) what the loss of each utterance gains: the cost of the end.
    """

    bypass: Tensor | None
    self_loop: Tensor | None
    word_bypass: Tensor | None
    arc_weights: Tensor
    constant: Tensor


class _Places(NamedTuple):
    """What the weights of arcs depend on."""

    there: Tensor  # (N, A) bool: not padding
    leaves_loop: Tensor  # (N, A) bool: the state where the arc starts has a self-loop
    begins: Tensor  # (N, A) bool: the arc begins its word
    word: Tensor  # (N, A): the word, 0 for none
    loop: Tensor  # (N, Q) bool: the state has a self-loop


def normalised_graph_arcs(
    rates: NoiseRates, graphs: Sequence[TranscriptGraph], dtype: torch.dtype, device: torch.device | None = None
) -> NormalisedGraphArcs:
    """Turn noise rates into the weights of arcs.

    Args:
        rates: The rates. That of unwritten speech is one number for all, or (N,).
        graphs: N graphs.
        dtype: Of the weights.
        device: Of the weights; None for the CPU.

    Returns:
        The weights of all arcs, and the constant of each utterance. Gradients flow to the rates.

    Raises:
        ValueError: A tensor has the wrong shape, or a rate that is not between 0 and 1.
    """
    device = device or torch.device("cpu")
    places = _Places(*(x.to(device) for x in _places(graphs, rates.self_loop_at)))
    size, arcs = places.there.shape
    words = max((graph.num_words for graph in graphs), default=0)
    token = per_arc(rates.token, "token", (size, arcs), device, dtype)
    word = per_arc(rates.word, "word", (size, words), device, dtype)
    unwritten = per_arc(rates.unwritten, "unwritten", (size, 1), device, dtype)
    zero = torch.zeros((size, 1), dtype=dtype, device=device)
    quiet = zero if unwritten is None else torch.log1p(-unwritten)
    leave = torch.where(places.leaves_loop, quiet, 0)
    if word is not None and words:
        leave = leave + torch.where(places.begins, torch.log1p(-word).gather(1, places.word), 0)
    said = leave if token is None else leave + torch.log1p(-token)
    return NormalisedGraphArcs(
        None if token is None else torch.where(places.there, leave + token.log(), ABSENT),
        None if unwritten is None else torch.where(places.loop, unwritten.log(), ABSENT),
        None if word is None else word.log() + quiet,
        torch.where(places.there, said, ABSENT),
        -quiet.squeeze(1),
    )


def with_noise_rates(batch: GraphBatch, rates: NoiseRates) -> GraphBatch:
    """Give the arcs of a batch the weights of noise rates.

    Args:
        batch: The batch, without wildcards.
        rates: The rates.

    Returns:
        The same batch with weights, and with the constant of each utterance.
    """
    found = normalised_graph_arcs(rates, batch.graphs, compute_dtype(batch.logits), batch.logits.device)
    if batch.arc_weights is not None:
        found = found._replace(arc_weights=found.arc_weights + batch.arc_weights)
    return batch._replace(**found._asdict())


def graph_noise_counts(
    token: Tensor,
    bypass: Tensor | None,
    self_loop: Tensor | None,
    word_bypass: Tensor | None,
    graphs: Sequence[TranscriptGraph],
    self_loop_at: Literal["token", "word"] = "token",
) -> NoiseCounts:
    """Sum the posteriors of arcs to the counts of an EM step. The new rate is events ÷ opportunities.

    Args:
        token: (N, A) posteriors of token arcs.
        bypass: (N, A); None if there are no such arcs.
        self_loop: (N, Q), or None.
        word_bypass: (N, W), or None.
        graphs: N graphs.
        self_loop_at: As in `NoiseRates`.

    Returns:
        The counts of each utterance, in the type of the posteriors.
    """
    places = _Places(*(x.to(token.device) for x in _places(graphs, self_loop_at)))
    taken = token if bypass is None else token + bypass
    wrong = token.new_zeros(len(token)) if word_bypass is None else word_bypass.sum(1)
    entered = torch.where(places.begins, taken, 0).sum(1)
    left = torch.where(places.leaves_loop, taken, 0).sum(1) + wrong + 1  # each path leaves its last state once
    loops = None if self_loop is None else self_loop.sum(1)
    return NoiseCounts(
        None if bypass is None else (bypass.sum(1), torch.where(places.there, taken, 0).sum(1)),
        None if loops is None else (loops, loops + left),
        None if word_bypass is None else (wrong, wrong + entered),
    )


def _places(graphs: Sequence[TranscriptGraph], self_loop_at: str) -> _Places:
    arcs = max((len(graph.arcs) for graph in graphs), default=0)
    states = max((graph.num_states for graph in graphs), default=1)
    there, begins = (np.zeros((len(graphs), arcs), dtype=bool) for _ in range(2))
    source, word = (np.zeros((len(graphs), arcs), dtype=np.int64) for _ in range(2))
    for n, graph in enumerate(graphs):
        flat, count = graph.flat, len(graph.arcs)
        there[n, :count], source[n, :count] = True, flat.ends[:, 0]
        word[n, :count] = flat.arc_words.clip(0)
        # a word can begin in several states, where optional words before it are left out
        starts = flat.words[:, 0] * (graph.num_words + 1) + flat.words[:, 2]
        begins[n, :count] = np.isin(flat.ends[:, 0] * (graph.num_words + 1) + flat.arc_words, starts)
        begins[n, :count] &= flat.arc_words >= 0
    sizes = torch.tensor([graph.num_states for graph in graphs], dtype=torch.int64)
    loop = torch.arange(states) < sizes.unsqueeze(1) if self_loop_at == "token" else word_states(graphs, states)
    tensors = (torch.from_numpy(x) for x in (there, source, begins, word))
    exists, at, first, number = tensors
    return _Places(exists, exists & loop.gather(1, at), first, number, loop)
