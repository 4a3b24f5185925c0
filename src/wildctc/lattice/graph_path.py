"""The best path through a transcript graph in plain Python: the specification, §10, with max instead of sum."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT
from wildctc.lattice.graph_batch import GraphBatch
from wildctc.lattice.reference import ROUNDING, TOKEN_ARC, Scores, make_scores
from wildctc.lattice.transcripts import TranscriptGraph

_BLANK, _TOKEN, _STAR = 0, 1, 2
_BYPASS, _SELF_LOOP, _WORD_BYPASS = 1, 2, 3


class _Path(NamedTuple):
    """A path so far. `arcs` decides ties: TOKEN_ARC for each token arc, minus 1 for each wildcard."""

    score: float = ABSENT
    arcs: int = 0
    frames: tuple | None = None  # the last frame as (place, state, arc, via), and those before as such a pair

    def then(self, weight: float, arcs: int = 0) -> "_Path":
        return self._replace(score=self.score + weight, arcs=self.arcs + arcs)

    def emits(self, score: float, *frame: int) -> "_Path":
        return _Path(self.score + score, self.arcs, (frame, self.frames))


class _Weights(NamedTuple):
    """The log-weights of one utterance's arcs."""

    token: list[float]
    bypass: list[float]
    self_loop: list[float]
    word: list[float]


def best_path(batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Find the best path of each utterance, in float64. Ties are decided as in `reference.best_path`.

    Args:
        batch: The batch.

    Returns:
        The same as `graph_native.best_path`.
    """
    frames, size, _ = batch.logits.shape
    batch = batch.each_weight()
    batch = GraphBatch(*(x.detach().cpu() if isinstance(x, Tensor) else x for x in batch))  # type: ignore[arg-type]
    score = torch.full((size,), math.nan, dtype=torch.float64)
    place, via = (torch.full((size, frames), fill, dtype=torch.int32) for fill in (0, -1))
    state, arc = (torch.full((size, frames), fill, dtype=torch.int8) for fill in (-1, 0))
    for n, graph in enumerate(batch.graphs):
        length = int(batch.input_lengths[n])
        labels = torch.tensor([[a.label for a in graph.arcs]], dtype=torch.int64)
        scores = make_scores(batch.logits[:length, n : n + 1].double(), torch.tensor([length]), batch.blank, labels)
        if scores.blank.isnan().any():
            continue
        score[n], path = _best_path_of(graph, scores, _weights_of(batch, n))
        for t, (p, s, a, v) in enumerate(path):
            place[n, t], state[n, t], arc[n, t], via[n, t] = p, s, a, v
    return score, place, state, arc, via


def _weights_of(batch: GraphBatch, n: int) -> _Weights:
    graph = batch.graphs[n]
    bypass, loops, words, added = (None if w is None else w[n].double().tolist() for w in batch.weights)
    return _Weights(
        [a.weight + (added[i] if added else 0.0) for i, a in enumerate(graph.arcs)],
        [bypass[i] + a.skipped if bypass else ABSENT for i, a in enumerate(graph.arcs)],
        loops or [ABSENT] * graph.num_states,
        [words[w.word] + w.weight if words else ABSENT for w in graph.words],
    )


def _best(ways: Iterator[_Path]) -> _Path:
    best = _Path()
    for way in ways:
        slack = ROUNDING * (1 + abs(way.score))
        better = way.score - slack > best.score  # both comparisons are false for −inf
        if better or (way.score + slack >= best.score and way.arcs > best.arcs):
            best = way
    return best


def _best_path_of(graph: TranscriptGraph, scores: Scores, weights: _Weights) -> tuple[float, list[tuple]]:
    """Score, and (place, state, arc, via) of each frame."""
    states = range(graph.num_states)
    into = [[i for i, a in enumerate(graph.arcs) if a.target == q] for q in states]
    blank, star, token = [_Path()] * len(states), [_Path()] * len(states), [_Path()] * len(graph.arcs)
    blank[0] = _Path(0.0)
    for t in range(len(scores.blank)):
        either = [_best(iter([*(token[i] for i in into[q]), blank[q]])) for q in states]
        p_blank, p_star = scores.blank[t, 0].item(), scores.star[t, 0].item()
        p_token = scores.token[t, 0].tolist()
        next_blank = [_best(iter([either[q], star[q]])).emits(p_blank, q, _BLANK, 0, -1) for q in states]
        next_star = [_into_star(graph, weights, q, into[q], either, star[q], p_star) for q in states]
        next_token = []
        for i, a in enumerate(graph.arcs):
            before = [token[j] for j in into[a.source] if graph.arcs[j].label != a.label]
            entered = [p.then(weights.token[i], TOKEN_ARC) for p in (*before, blank[a.source], star[a.source])]
            next_token.append(_best(iter([token[i], *entered])).emits(p_token[i], i, _TOKEN, 0, -1))
        blank, star, token = next_blank, next_star, next_token
    last = _best(
        path.then(graph.final[q])
        for q in states
        if graph.final[q] > ABSENT
        for path in (*(token[i] for i in into[q]), blank[q], star[q])
    )
    path, rest = [], last.frames
    while rest is not None:
        frame, rest = rest
        path.append(frame)
    return last.score, path[::-1]


def _into_star(
    graph: TranscriptGraph, weights: _Weights, q: int, into: list[int], either: list[_Path], star: _Path, score: float
) -> _Path:
    """The best way to be in ★ at state q."""
    ways = [(star, 0, -1), (either[q].then(weights.self_loop[q], -1), _SELF_LOOP, -1)]
    ways += [(either[graph.arcs[i].source].then(weights.bypass[i], -1), _BYPASS, i) for i in into]
    ways += [
        (either[word.source].then(weights.word[i], -1), _WORD_BYPASS, i)
        for i, word in enumerate(graph.words)
        if word.target == q
    ]
    best = _best(path for path, _, _ in ways)
    arc, via = next(((arc, via) for path, arc, via in ways if path is best), (0, -1))
    return best.emits(score, q, _STAR, arc, via)
