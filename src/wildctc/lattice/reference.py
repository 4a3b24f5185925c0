"""Specification §1 to §4 as a program: plain PyTorch, any device, any dtype, differentiated by autograd.

A transcript of U tokens is a chain of positions 0…U. Each position has three states: B (in blank), N (in the token that
leads to the position) and S (in ★, after a wildcard arc to it). With P_t the softmax of frame t and
P_t(★) its mean over the non-blank outputs,

    B_k(t) = P_t(blank) · [B_k + N_k + S_k](t−1)
    N_k(t) = P_t(y_k)   · [N_k + B_{k−1} + S_{k−1} + (y_k ≠ y_{k−1}) N_{k−1}](t−1)
    S_k(t) = P_t(★)     · [S_k + e^self_k (B_k + N_k) + e^bypass_k (B_{k−1} + N_{k−1}) + e^word (B_s + N_s)](t−1)

where the last term belongs to a word that spans positions s → k. All numbers here are logarithms.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT, Lattice, compute_dtype, each_arc, padded_rows


class Scores(NamedTuple):
    """Log-probabilities of a batch: of labels, of the blank and of ★."""

    token: Tensor  # (T, N, S)
    blank: Tensor  # (T, N)
    star: Tensor  # (T, N)


class _Graph(NamedTuple):
    """Transcript graphs with one log-weight per arc, −inf if there is no arc."""

    labels: Tensor  # (N, S)
    repeat: Tensor  # (N, S) bool: token u has the label of token u − 1
    bypass: Tensor  # (N, S)
    self_loop: Tensor  # (N, S+1)
    word: Tensor  # (N, S+1): of the word that ends at position k
    word_start: Tensor  # (N, S+1): the position where that word starts


def log_sum_over(x: Tensor, dim: int) -> Tensor:
    """log-sum-exp along a dimension. Where all terms are −inf the gradient is 0; that of torch.logsumexp is NaN.

    Args:
        x: Logarithms.
        dim: The dimension that is summed over.

    Returns:
        The logarithms of the sums.
    """
    if x.shape[dim] == 0:
        return x.sum(dim) + ABSENT
    top = x.detach().amax(dim, keepdim=True)
    top = torch.where(top == -math.inf, 0, top)
    total = (x - top).exp().sum(dim)
    possible = total != 0
    return torch.where(possible, top.squeeze(dim) + torch.where(possible, total, 1).log(), ABSENT)


def log_sum(*terms: Tensor) -> Tensor:
    """Add numbers that are given as logarithms.

    Args:
        *terms: Of shapes that can be broadcast.

    Returns:
        The logarithm of the sum. Where all terms are −inf its gradient is 0.
    """
    return log_sum_over(torch.stack(torch.broadcast_tensors(*terms)), 0)


def _make_graph(lattice: Lattice) -> _Graph:
    # labels and repeats
    lengths = lattice.target_lengths.to(lattice.logits.device)
    labels = padded_rows(lattice.targets, lattice.target_lengths, 0)
    size, width = labels.shape
    dtype, device = compute_dtype(lattice.logits), labels.device
    index = torch.arange(width + 1, device=device)
    # weights of bypasses and self-loops
    full = [
        # padding is never read: it may be NaN
        torch.where(index[: width + extra] < lengths.unsqueeze(1) + extra, each_arc(w.to(dtype), width + extra), ABSENT)
        if w is not None
        else torch.full((size, width + extra), v, dtype=dtype, device=device)
        for w, v, extra in zip(lattice.weights[:2], lattice.values[:2], (0, 1), strict=True)
    ]
    bypass, self_loop = full
    repeat = torch.zeros_like(labels, dtype=torch.bool)
    repeat[:, 1:] = labels[:, 1:] == labels[:, :-1]
    # word bypasses, at the positions where words end
    word = torch.full((size, width + 1), ABSENT, dtype=dtype, device=device)
    word_start = torch.zeros((size, width + 1), dtype=torch.int64, device=device)
    if lattice.words is not None:
        words = padded_rows(lattice.words, lattice.target_lengths, -1)
        edge = words.new_full((size, 1), -2)
        starts = words != torch.cat([edge, words[:, :-1]], 1)
        ends = words != torch.cat([words[:, 1:], edge], 1)
        if lattice.loops_at_words:
            boundary = torch.cat([starts, starts.new_ones(size, 1)], 1) | (index == lengths.unsqueeze(1))
            self_loop = torch.where(boundary, self_loop, ABSENT)
        first = torch.where(starts, index[:width], 0).cummax(1).values if width else words
        word_start = torch.cat([word_start[:, :1], torch.where(words >= 0, first, 0)], 1)
        weight = lattice.word_bypass
        if weight is not None and weight.dim() == 1:
            each = each_arc(weight.to(dtype), width)
        elif weight is not None and weight.shape[1]:
            each = weight.to(dtype).gather(1, words.clamp(0, weight.shape[1] - 1))
        else:
            each = torch.full((size, width), lattice.values[2], dtype=dtype, device=device)
        into = torch.where(ends & (words >= 0), each, ABSENT)
        word = torch.cat([word[:, :1], into], 1)
    return _Graph(labels, repeat, bypass, self_loop, word, word_start)


def make_scores(logits: Tensor, input_lengths: Tensor, blank: int, labels: Tensor) -> Scores:
    """Compute the emissions (specification §2).

    Args:
        logits: (T, N, C).
        input_lengths: (N,). Frames beyond them are not read.
        blank: The label of the blank.
        labels: (N, S).

    Returns:
        The log-probabilities, NaN in a frame that has no softmax.
    """
    logits = logits.to(compute_dtype(logits))
    frames, _, outputs = logits.shape
    inside = torch.arange(frames, device=logits.device).unsqueeze(1) < input_lengths.to(logits.device)
    logits = torch.where(inside.unsqueeze(2), logits, 0)  # padding may be NaN
    # relative to the largest of each frame, so that an offset common to all outputs does not cost precision
    top = logits.detach().amax(2, keepdim=True)
    logits = logits - torch.where(top.isfinite(), top, 0)
    total = log_sum_over(logits, 2)
    # a frame with a +inf or NaN logit, or with nothing but −inf, has no softmax: the utterance becomes NaN
    total = torch.where(top.squeeze(2).isinf(), math.nan, total)
    others = torch.cat([logits[:, :, :blank], logits[:, :, blank + 1 :]], 2)
    star = log_sum_over(others, 2) - math.log(max(outputs - 1, 1)) - total
    index = labels.clamp(0, outputs - 1).expand(frames, *labels.shape)
    return Scores(logits.gather(2, index) - total.unsqueeze(2), logits[:, :, blank] - total, star)


def _shifted(x: Tensor) -> Tensor:
    """x_{k−1} at position k; −inf at position 0."""
    return torch.cat([torch.full_like(x[:, :1], ABSENT), x[:, :-1]], 1)


def log_likelihood(lattice: Lattice) -> Tensor:
    """Compute the log-likelihoods of a batch.

    Args:
        lattice: The batch.

    Returns:
        (N,): −inf if there are too few frames; NaN if a frame has no softmax, or a label or length is out of range.
    """
    graph = _make_graph(lattice)
    scores = make_scores(lattice.logits, lattice.input_lengths, lattice.blank, graph.labels)
    size, width = graph.labels.shape
    device = lattice.logits.device
    first = torch.full((size, 1), ABSENT, dtype=scores.blank.dtype, device=device)
    blank = torch.full((size, width + 1), ABSENT, dtype=scores.blank.dtype, device=device)
    blank[:, 0] = 0
    token, star = (torch.full_like(blank, ABSENT) for _ in range(2))
    bypass = torch.cat([first, graph.bypass], 1)
    repeat = torch.cat([torch.zeros_like(first, dtype=torch.bool), graph.repeat], 1)
    input_lengths = lattice.input_lengths.to(device)
    for t in range(lattice.logits.shape[0]):
        either = log_sum(blank, token)
        before = torch.where(repeat, ABSENT, _shifted(token))
        emission = torch.cat([first, scores.token[t]], 1)
        next_blank = scores.blank[t].unsqueeze(1) + log_sum(blank, token, star)
        next_token = emission + log_sum(token, _shifted(blank), _shifted(star), before)
        next_star = scores.star[t].unsqueeze(1) + log_sum(
            star,
            graph.self_loop + either,
            bypass + _shifted(either),
            graph.word + either.gather(1, graph.word_start),
        )
        running = (t < input_lengths).unsqueeze(1)
        blank = torch.where(running, next_blank, blank)
        token = torch.where(running, next_token, token)
        star = torch.where(running, next_star, star)
    last = lattice.target_lengths.to(device).clamp(0, width).unsqueeze(1)
    total = log_sum(*(x.gather(1, last) for x in (blank, token, star))).squeeze(1)
    if lattice.logits.numel() == 0:
        # without frames nothing depends on the logits, whose gradient, an empty tensor, must exist all the same
        total = total + lattice.logits.sum().to(total.dtype)
    return torch.where(_unreadable(lattice, graph, scores), math.nan, total)


def _unreadable(lattice: Lattice, graph: _Graph, scores: Scores) -> Tensor:
    """(N,) bool: utterances without a likelihood. Nothing is copied to the host."""
    device = lattice.logits.device
    lengths = lattice.target_lengths.to(device)
    used = torch.arange(graph.labels.shape[1], device=device) < lengths.unsqueeze(1)
    outputs = lattice.logits.shape[2]
    bad_label = (graph.labels < 0) | (graph.labels >= outputs) | (graph.labels == lattice.blank)
    bad_length = (lengths < 0) | (lengths > graph.labels.shape[1])
    return (used & bad_label).any(1) | bad_length | scores.blank.detach().isnan().any(0)


def best_path(lattice: Lattice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the best path of each utterance: the same lattice with max instead of sum, in float64.

    Of paths that tie, the one with the most token arcs is taken, then the one with the fewest wildcards, then the first
    in a fixed order: token, blank, ★.

    Args:
        lattice: The batch.

    Returns:
        The same as `native.best_path`.
    """
    lattice = lattice._replace(logits=lattice.logits.double()).to_host()
    graph = _make_graph(lattice)
    scores = make_scores(lattice.logits, lattice.input_lengths, lattice.blank, graph.labels)
    lost = _unreadable(lattice, graph, scores)
    frames, size, _ = lattice.logits.shape
    score = torch.full((size,), math.nan, dtype=torch.float64)
    position = torch.zeros(size, frames, dtype=torch.int32)
    state = torch.full((size, frames), -1, dtype=torch.int8)
    arc = torch.zeros(size, frames, dtype=torch.int8)
    for n in range(size):
        if lost[n]:
            continue
        length, tokens = int(lattice.input_lengths[n]), int(lattice.target_lengths[n])
        score[n], path = _best_path_of(graph, scores, n, length, tokens)
        for t, (k, s, a) in enumerate(path):
            position[n, t], state[n, t], arc[n, t] = k, s, a
    return score, position, state, arc


TOKEN_ARC = 2**32
ROUNDING = 2.0**-44  # paths whose scores differ by less tie: they may be the same sum in another order


def _best_of(scores: list[Tensor], arcs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best of several candidates: its score, its arcs, and its number."""
    best, most, choice = torch.full_like(scores[0], ABSENT), torch.zeros_like(arcs[0]), torch.zeros_like(arcs[0])
    for number, (score, many) in enumerate(zip(scores, arcs, strict=True)):
        slack = ROUNDING * (1 + score.abs())
        # both comparisons are false for −inf
        better = (score - slack > best) | ((score + slack >= best) & (many > most))
        best, most = torch.where(better, score, best), torch.where(better, many, most)
        choice = torch.where(better, number, choice)
    return best, most, choice


def _best_path_of(graph: _Graph, scores: Scores, n: int, length: int, tokens: int) -> tuple[float, list[tuple]]:
    """Score and (position, state, arc) of each frame of utterance n.

    `arcs` decides ties: TOKEN_ARC for each token arc of a path, minus 1 for each wildcard.
    """
    at = torch.arange(tokens + 1)
    start = graph.word_start[n, : tokens + 1]
    # where each candidate comes from: (position, state, arc); if all else is equal, the first is taken
    here, before = at, (at - 1).clamp(min=0)
    ways = {
        "blank": [(here, 1, 0), (here, 0, 0), (here, 2, 0)],
        "token": [(here, 1, 0), (before, 1, 0), (before, 0, 0), (before, 2, 0)],
        "star": [
            (here, 2, 0),
            (here, 1, 2),
            (here, 0, 2),
            (before, 1, 1),
            (before, 0, 1),
            (start, 1, 3),
            (start, 0, 3),
        ],
    }
    weight = {0: torch.zeros(tokens + 1, dtype=torch.float64), 2: graph.self_loop[n, : tokens + 1]}
    weight[1] = torch.cat([weight[0][:1] + ABSENT, graph.bypass[n, :tokens]])
    weight[3] = graph.word[n, : tokens + 1]
    not_before = torch.where(at == 0, ABSENT, 0.0)
    repeat = torch.cat([at[:1] < 0, graph.repeat[n, :tokens]])
    extra = {
        ("token", 1): not_before + torch.where(repeat, ABSENT, 0.0),
        ("token", 2): not_before,
        ("token", 3): not_before,
    }
    # forward: the best way into each state, frame by frame
    alpha = torch.full((3, tokens + 1), ABSENT, dtype=torch.float64)
    alpha[0, 0] = 0
    arcs = torch.zeros(3, tokens + 1, dtype=torch.int64)
    back = []
    for t in range(length):
        emission = {"blank": scores.blank[t, n], "star": scores.star[t, n]}
        emission["token"] = torch.cat([torch.full((1,), ABSENT, dtype=torch.float64), scores.token[t, n, :tokens]])
        found = {}
        for name, candidates in ways.items():
            scores_of, arcs_of = [], []
            for i, (place, s, a) in enumerate(candidates):
                scores_of.append(alpha[s, place] + weight[a] + extra.get((name, i), 0.0))
                arcs_of.append(arcs[s, place] + (TOKEN_ARC if name == "token" and i > 0 else -1 if a else 0))
            found[name] = _best_of(scores_of, arcs_of)
        alpha = torch.stack([found[name][0] + emission[name] for name in ("blank", "token", "star")])
        arcs = torch.stack([found[name][1] for name in ("blank", "token", "star")])
        back.append({name: choice for name, (_, _, choice) in found.items()})
    order = (1, 0, 2)
    total, _, last = _best_of([alpha[s, tokens] for s in order], [arcs[s, tokens] for s in order])
    if total == ABSENT:
        return ABSENT, []
    # back along the choices
    k, s = tokens, order[int(last)]
    path = []
    for t in reversed(range(length)):
        name = ("blank", "token", "star")[s]
        source, from_state, a = ways[name][int(back[t][name][k])]
        path.append((k, s, a))
        k, s = int(source[k]), from_state
    return float(total), path[::-1]
