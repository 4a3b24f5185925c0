"""Specification §10 as a program: the lattice of transcript graphs in plain PyTorch, on any device.

A graph keeps one B (in blank) and one S (in ★) for each state q, and one N (in its token) for each arc a from s to d:

    B_q(t) = P_t(blank) · [B_q + S_q + Σ_{a into q} N_a](t−1)
    N_a(t) = P_t(y_a)   · [N_a + e^w_a (B_s + S_s + Σ_{b into s, y_b ≠ y_a} N_b)](t−1)
    S_q(t) = P_t(★)     · [S_q + e^self_q (B_q + Σ_{a into q} N_a)
                               + Σ_{★ arcs c into q} e^w_c (B_s + Σ_{b into s} N_b)](t−1)

All numbers here are logarithms.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT, compute_dtype
from wildctc.lattice.graph_batch import GraphBatch
from wildctc.lattice.reference import log_sum, log_sum_over, make_scores


class _Padded(NamedTuple):
    """Graphs as tensors. An index into lists of arcs that is one past the last means: no arc."""

    labels: Tensor  # (N, A)
    source: Tensor  # (N, A)
    weight: Tensor  # (N, A): −inf in padding
    into: Tensor  # (N, Q, D): the token arcs into each state
    same: Tensor  # (N, A, D): whether those into the source of an arc have its label
    stars: Tensor  # (N, C): weights of the bypasses and word bypasses
    star_source: Tensor  # (N, C)
    stars_into: Tensor  # (N, Q, D'): those into each state
    self_loop: Tensor  # (N, Q)
    final: Tensor  # (N, Q)


def _lists_into(targets: Sequence[Sequence[int]], states: int, nothing: int) -> Tensor:
    """(N, Q, D): the numbers of the arcs into each state, filled with `nothing`."""
    rows: list[list[list[int]]] = [[[] for _ in range(states)] for _ in targets]
    for row, ends in zip(rows, targets, strict=True):
        for i, q in enumerate(ends):
            row[q].append(i)
    most = max((len(found) for row in rows for found in row), default=0)
    full = [[found + [nothing] * (most - len(found)) for found in row] for row in rows]
    return torch.tensor(full, dtype=torch.int64).reshape(len(rows), states, most)


def _rows(values: Sequence[Sequence[float]], width: int, fill: float, dtype: torch.dtype) -> Tensor:
    full = [[*row, *[fill] * (width - len(row))] for row in values]
    return torch.tensor(full, dtype=dtype).reshape(len(full), width)


def _pad(batch: GraphBatch) -> _Padded:
    graphs, (arcs, states, _) = batch.graphs, batch.widths
    device, dtype = batch.logits.device, compute_dtype(batch.logits)
    labels = _rows([[a.label for a in g.arcs] for g in graphs], arcs, -1, torch.int64)
    source = _rows([[a.source for a in g.arcs] for g in graphs], arcs, 0, torch.int64)
    into = _lists_into([[a.target for a in g.arcs] for g in graphs], states, arcs)
    depth = into.shape[2]
    before = into.gather(1, source.unsqueeze(2).expand(-1, -1, depth))
    more = torch.cat([labels, torch.full_like(labels[:, :1], -2)], 1) if arcs else labels.new_full((len(graphs), 1), -2)
    label_before = more.gather(1, before.flatten(1)).view(before.shape)
    weight = _rows([[a.weight for a in g.arcs] for g in graphs], arcs, ABSENT, dtype).to(device)
    if batch.arc_weights is not None:
        weight = weight + torch.where(weight == ABSENT, 0, batch.arc_weights.to(dtype))
    stars, star_source, stars_into = _star_arcs(batch, dtype)
    loops = batch.self_loop
    absent = torch.full((len(graphs), states), ABSENT, dtype=dtype, device=device)
    return _Padded(
        labels.to(device),
        source.to(device),
        weight,
        into.to(device),
        (label_before == labels.unsqueeze(2)).to(device),
        stars,
        star_source.to(device),
        stars_into.to(device),
        absent if loops is None else loops.to(dtype),
        _rows([g.final for g in graphs], states, ABSENT, dtype).to(device),
    )


def _star_arcs(batch: GraphBatch, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, sources and lists by target of the bypasses, then of the word bypasses."""
    graphs, (arcs, states, _), device = batch.graphs, batch.widths, batch.logits.device
    size, most = len(graphs), max((len(g.words) for g in graphs), default=0)
    skipped = _rows([[a.skipped for a in g.arcs] for g in graphs], arcs, 0.0, dtype).to(device)
    added = _rows([[w.weight for w in g.words] for g in graphs], most, ABSENT, dtype).to(device)
    number = _rows([[w.word for w in g.words] for g in graphs], most, 0, torch.int64).to(device)
    bypass = torch.full((size, arcs), ABSENT, dtype=dtype, device=device)
    words = torch.full((size, most), ABSENT, dtype=dtype, device=device)
    if batch.bypass is not None:
        bypass = batch.bypass.to(dtype) + skipped
    if batch.word_bypass is not None and most:
        words = batch.word_bypass.to(dtype).gather(1, number) + added
    sources, targets = [], []
    for g in graphs:
        padding = [-1] * (arcs - len(g.arcs))
        sources.append([a.source for a in g.arcs] + [0] * len(padding) + [w.source for w in g.words])
        targets.append([a.target for a in g.arcs] + padding + [w.target for w in g.words])
    # a target of −1, in padding, must not be listed: its weight is −inf, so that the last state can hold it
    into = _lists_into([[q if q >= 0 else states - 1 for q in row] for row in targets], states, arcs + most)
    return torch.cat([bypass, words], 1), _rows(sources, arcs + most, 0, torch.int64), into


def _look_up(values: Tensor, index: Tensor) -> Tensor:
    """values (N, X) at index (N, …), where X itself stands for −inf."""
    more = torch.cat([values, torch.full_like(values[:, :1], ABSENT)], 1) if values.shape[1] else None
    if more is None:
        more = torch.full((len(values), 1), ABSENT, dtype=values.dtype, device=values.device)
    return more.gather(1, index.flatten(1)).view(index.shape)


def log_likelihood(batch: GraphBatch) -> Tensor:
    """Compute the log-likelihoods of a batch of graphs, differentiable by autograd.

    Args:
        batch: The batch.

    Returns:
        (N,): −inf if there are too few frames; NaN if a frame has no softmax.
    """
    batch = batch.each_weight()
    g = _pad(batch)
    scores = make_scores(batch.logits, batch.input_lengths, batch.blank, g.labels)
    blank = torch.full_like(g.final, ABSENT)
    blank[:, 0] = 0
    star, token = torch.full_like(blank, ABSENT), torch.full_like(g.weight, ABSENT)
    lengths = batch.input_lengths.to(batch.logits.device)
    before = g.into.gather(1, g.source.unsqueeze(2).expand(-1, -1, g.into.shape[2]))
    for t in range(batch.logits.shape[0]):
        either = log_sum(blank, log_sum_over(_look_up(token, g.into), 2))
        different = torch.where(g.same, ABSENT, _look_up(token, before))
        enter = log_sum(log_sum(blank, star).gather(1, g.source), log_sum_over(different, 2))
        sent = _look_up(g.stars + either.gather(1, g.star_source), g.stars_into)
        running = (t < lengths).unsqueeze(1)
        next_blank = scores.blank[t].unsqueeze(1) + log_sum(either, star)
        next_token = scores.token[t] + log_sum(token, g.weight + enter)
        next_star = scores.star[t].unsqueeze(1) + log_sum(star, g.self_loop + either, log_sum_over(sent, 2))
        blank = torch.where(running, next_blank, blank)
        token = torch.where(running, next_token, token)
        star = torch.where(running, next_star, star)
    reached = log_sum(blank, star, log_sum_over(_look_up(token, g.into), 2))
    total = log_sum_over(g.final + reached, 1)
    if batch.logits.numel() == 0:  # the gradient to logits, an empty tensor, must exist all the same
        total = total + batch.logits.sum().to(total.dtype)
    return torch.where(scores.blank.detach().isnan().any(0), math.nan, total)


def counts(batch: GraphBatch) -> tuple[Tensor, list[Tensor | None]]:
    """Compute the expected count of each arc: the derivative of the log-likelihood with respect to its weight.

    Args:
        batch: The batch.

    Returns:
        The log-likelihoods (N,), and the counts of token arcs (N, A), bypasses (N, A), self-loops (N, Q) and word
        bypasses (N, W), None where a family is absent.
    """
    batch = batch.each_weight()
    with torch.inference_mode(False), torch.enable_grad():
        zeros = torch.zeros(len(batch.graphs), batch.widths[0], dtype=torch.float64, device=batch.logits.device)
        given = [zeros if batch.arc_weights is None else batch.arc_weights, *batch.weights[:3]]
        weights = [None if w is None else w.detach().clone().requires_grad_() for w in given]
        logits = batch.logits.detach().clone()
        result = log_likelihood(
            batch._replace(
                logits=logits, bypass=weights[1], self_loop=weights[2], word_bypass=weights[3], arc_weights=weights[0]
            )
        )
        inputs = [w for w in weights if w is not None]
        found = torch.autograd.grad(result.sum(), inputs, allow_unused=True) if result.requires_grad else [None] * 4
    each = iter(torch.zeros_like(w) if g is None else g for w, g in zip(inputs, found, strict=False))
    return result.detach(), [None if w is None else next(each) for w in weights]
