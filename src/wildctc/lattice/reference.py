"""Specification §1 to §4 as a program: plain PyTorch, any device, any dtype, differentiated by autograd itself.

A transcript of U tokens is a chain of positions 0…U. At each of them there are three states: B (in blank), N (in the
token that leads to the position) and S (in ★, having taken a wildcard arc to it). With P_t the softmax of frame t and
P_t(★) its mean over the non-blank outputs,

    B_k(t) = P_t(blank) · [B_k + N_k + S_k](t−1)
    N_k(t) = P_t(y_k)   · [N_k + B_{k−1} + S_{k−1} + (y_k ≠ y_{k−1}) N_{k−1}](t−1)
    S_k(t) = P_t(★)     · [S_k + e^self_k (B_k + N_k) + e^bypass_k (B_{k−1} + N_{k−1}) + e^word (B_s + N_s)](t−1)

where the last term belongs to a word that spans positions s → k. All of it in logarithms.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT, Lattice, compute_dtype, each_arc, padded_rows


class Scores(NamedTuple):
    """Log-probabilities of a batch."""

    token: Tensor  # (T, N, S)
    blank: Tensor  # (T, N)
    star: Tensor  # (T, N)


class Graph(NamedTuple):
    """Transcript graphs with one log-weight per arc, −inf where there is none."""

    labels: Tensor  # (N, S)
    repeat: Tensor  # (N, S) bool: token u has the label of token u − 1
    bypass: Tensor  # (N, S)
    self_loop: Tensor  # (N, S+1)
    word: Tensor  # (N, S+1): of the word that ends at position k
    word_start: Tensor  # (N, S+1): the position where that word starts


def log_sum_over(x: Tensor, dim: int) -> Tensor:
    """log-sum-exp along a dimension; −inf, with gradient 0, where all terms are −inf (torch's own gives NaN)."""
    if x.shape[dim] == 0:
        return x.sum(dim) + ABSENT
    top = x.detach().amax(dim, keepdim=True)
    top = torch.where(top == -math.inf, 0, top)
    total = (x - top).exp().sum(dim)
    possible = total != 0
    return torch.where(possible, top.squeeze(dim) + torch.where(possible, total, 1).log(), ABSENT)


def log_sum(*terms: Tensor) -> Tensor:
    return log_sum_over(torch.stack(torch.broadcast_tensors(*terms)), 0)


def make_graph(lattice: Lattice) -> Graph:
    lengths = lattice.target_lengths.to(lattice.logits.device)
    labels = padded_rows(lattice.targets, lattice.target_lengths, 0)
    size, width = labels.shape
    dtype, device = compute_dtype(lattice.logits), labels.device
    index = torch.arange(width + 1, device=device)
    full = [
        # what stands in padding, NaN too, is never read
        torch.where(index[: width + extra] < lengths.unsqueeze(1) + extra, each_arc(w.to(dtype), width + extra), ABSENT)
        if w is not None
        else torch.full((size, width + extra), v, dtype=dtype, device=device)
        for w, v, extra in zip(lattice.weights[:2], lattice.values[:2], (0, 1), strict=True)
    ]
    bypass, self_loop = full
    repeat = torch.zeros_like(labels, dtype=torch.bool)
    repeat[:, 1:] = labels[:, 1:] == labels[:, :-1]
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
    return Graph(labels, repeat, bypass, self_loop, word, word_start)


def make_scores(lattice: Lattice, labels: Tensor) -> Scores:
    logits, blank = lattice.logits.to(compute_dtype(lattice.logits)), lattice.blank
    frames, _, outputs = logits.shape
    inside = torch.arange(frames, device=logits.device).unsqueeze(1) < lattice.input_lengths.to(logits.device)
    logits = torch.where(inside.unsqueeze(2), logits, 0)  # what stands in padding, NaN too, is never read
    # relative to the largest of each frame, so that an offset common to all outputs costs no digits
    top = logits.detach().amax(2, keepdim=True)
    logits = logits - torch.where(top.isfinite(), top, 0)
    total = log_sum_over(logits, 2)
    # +inf and NaN logits, and frames where every logit is −inf, have no softmax: NaN for that utterance
    total = torch.where(top.squeeze(2).isinf(), math.nan, total)
    others = torch.cat([logits[:, :, :blank], logits[:, :, blank + 1 :]], 2)
    star = log_sum_over(others, 2) - math.log(max(outputs - 1, 1)) - total
    index = labels.clamp(0, outputs - 1).expand(frames, *labels.shape)
    return Scores(logits.gather(2, index) - total.unsqueeze(2), logits[:, :, blank] - total, star)


def shifted(x: Tensor) -> Tensor:
    """x_{k−1} at k; nothing comes before position 0."""
    return torch.cat([torch.full_like(x[:, :1], ABSENT), x[:, :-1]], 1)


def log_likelihood(lattice: Lattice) -> Tensor:
    """(N,) log-likelihoods; −inf: infeasible; NaN: NaN or +inf logits, or a label that is out of range."""
    graph = make_graph(lattice)
    scores = make_scores(lattice, graph.labels)
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
        before = torch.where(repeat, ABSENT, shifted(token))
        emission = torch.cat([first, scores.token[t]], 1)
        next_blank = scores.blank[t].unsqueeze(1) + log_sum(blank, token, star)
        next_token = emission + log_sum(token, shifted(blank), shifted(star), before)
        next_star = scores.star[t].unsqueeze(1) + log_sum(
            star,
            graph.self_loop + either,
            bypass + shifted(either),
            graph.word + either.gather(1, graph.word_start),
        )
        running = (t < input_lengths).unsqueeze(1)
        blank = torch.where(running, next_blank, blank)
        token = torch.where(running, next_token, token)
        star = torch.where(running, next_star, star)
    last = lattice.target_lengths.to(device).clamp(0, width).unsqueeze(1)
    total = log_sum(*(x.gather(1, last) for x in (blank, token, star))).squeeze(1)
    if lattice.logits.numel() == 0:
        total = total + lattice.logits.sum().to(total.dtype)  # no frame ties it to the logits: their gradient is empty
    return torch.where(_unreadable(lattice, graph, scores), math.nan, total)


def _unreadable(lattice: Lattice, graph: Graph, scores: Scores) -> Tensor:
    """(N,) bool: utterances that have no likelihood. Nothing is copied to the host."""
    device = lattice.logits.device
    lengths = lattice.target_lengths.to(device)
    used = torch.arange(graph.labels.shape[1], device=device) < lengths.unsqueeze(1)
    outputs = lattice.logits.shape[2]
    bad_label = (graph.labels < 0) | (graph.labels >= outputs) | (graph.labels == lattice.blank)
    bad_length = (lengths < 0) | (lengths > graph.labels.shape[1])
    return (used & bad_label).any(1) | bad_length | scores.blank.detach().isnan().any(0)


def best_path(lattice: Lattice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same lattice with max for sum, in float64; returns what native.best_path returns.

    Of paths that tie, the one with the most token arcs is taken, then the one with the fewest wildcards, then the first
    in a fixed order: token, blank, ★.
    """
    lattice = lattice._replace(logits=lattice.logits.double()).to_host()
    graph = make_graph(lattice)
    scores = make_scores(lattice, graph.labels)
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
ROUNDING = 2.0**-44  # paths whose scores differ by less tie: they may have added the same in another order


def best_of(scores: list[Tensor], arcs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Of several candidates the best score, its arcs, and its number."""
    best, most, choice = torch.full_like(scores[0], ABSENT), torch.zeros_like(arcs[0]), torch.zeros_like(arcs[0])
    for number, (score, many) in enumerate(zip(scores, arcs, strict=True)):
        slack = ROUNDING * (1 + score.abs())
        better = (score - slack > best) | (
            (score + slack >= best) & (many > most)
        )  # not for −inf, where both are false
        best, most = torch.where(better, score, best), torch.where(better, many, most)
        choice = torch.where(better, number, choice)
    return best, most, choice


def _best_path_of(graph: Graph, scores: Scores, n: int, length: int, tokens: int) -> tuple[float, list[tuple]]:
    """Score and (position, state, arc) of each frame of utterance n.

    `arcs` decides ties: TOKEN_ARC for each token arc of a path, minus 1 for each wildcard.
    """
    at = torch.arange(tokens + 1)
    start = graph.word_start[n, : tokens + 1]
    # where each candidate comes from: (position, state, arc); the order decides where all else is equal
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
            found[name] = best_of(scores_of, arcs_of)
        alpha = torch.stack([found[name][0] + emission[name] for name in ("blank", "token", "star")])
        arcs = torch.stack([found[name][1] for name in ("blank", "token", "star")])
        back.append({name: choice for name, (_, _, choice) in found.items()})
    order = (1, 0, 2)
    total, _, last = best_of([alpha[s, tokens] for s in order], [arcs[s, tokens] for s in order])
    if total == ABSENT:
        return ABSENT, []
    k, s = tokens, order[int(last)]
    path = []
    for t in reversed(range(length)):
        name = ("blank", "token", "star")[s]
        source, from_state, a = ways[name][int(back[t][name][k])]
        path.append((k, s, a))
        k, s = int(source[k]), from_state
    return float(total), path[::-1]
