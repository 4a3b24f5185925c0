"""Every path of a small lattice, listed from the definition of the graph: no recursion over frames in here.

A path is a sequence of arcs through the transcript's graph, and a labelling of the frames that collapses (equal
neighbours merge, then blanks go) to the labels of those arcs. Its score is the arcs' weights plus the frames'
log-probabilities.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np

STAR = -1


@dataclass(frozen=True)
class Arc:
    source: int
    target: int
    label: int
    family: str  # "token", "bypass", "self_loop", "word_bypass"
    index: int  # of its weight in the family


@dataclass
class Answer:
    log_likelihood: float
    best: float
    counts: dict[str, np.ndarray]  # family → expected count of each arc
    gradient: np.ndarray  # (T, C) of the negative log-likelihood
    fewest_frames: float


def word_spans(words: list[int]) -> dict[int, tuple[int, int]]:
    """word → the states (start, end) that its bypass joins"""
    found = {w for w in words if w >= 0}
    return {w: (words.index(w), len(words) - words[::-1].index(w)) for w in found}


def make_arcs(labels: list[int], words: list[int], families: set[str], loops_at_words: bool) -> list[Arc]:
    tokens = len(labels)
    spans = word_spans(words)
    arcs = [Arc(u, u + 1, labels[u], "token", u) for u in range(tokens)]
    if "bypass" in families:
        arcs += [Arc(u, u + 1, STAR, "bypass", u) for u in range(tokens)]
    if "self_loop" in families:
        edges = {0, tokens} | {state for span in spans.values() for state in span}
        arcs += [Arc(k, k, STAR, "self_loop", k) for k in range(tokens + 1) if not loops_at_words or k in edges]
    if "word_bypass" in families:
        arcs += [Arc(start, end, STAR, "word_bypass", w) for w, (start, end) in spans.items()]
    return arcs


def arc_sequences(arcs: list[Arc], tokens: int, longest: int) -> list[tuple[int, ...]]:
    """Sequences of at most `longest` arcs from state 0 to state U, as indices into arcs."""
    found, unfinished = [], [((), 0)]
    for _ in range(longest + 1):
        found += [path for path, state in unfinished if state == tokens]
        unfinished = [
            ((*path, i), arc.target) for path, state in unfinished for i, arc in enumerate(arcs) if arc.source == state
        ]
    return found


@cache
def labellings(frames: int, outputs: int, blank: int) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, ...], int]]:
    """All (outputs + 1)^frames labellings, sorted by what they collapse to; where each such group starts; its number.

    ★ stands in column `outputs` of the emissions.
    """
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for labelling in itertools.product(range(outputs + 1), repeat=frames):
        collapsed = tuple(STAR if v == outputs else v for v, _ in itertools.groupby(labelling) if v != blank)
        groups.setdefault(collapsed, []).append(labelling)
    starts = np.cumsum([0] + [len(group) for group in groups.values()])[:-1]
    table = np.array([labelling for group in groups.values() for labelling in group], dtype=np.int64)
    return table, starts, {labels: i for i, labels in enumerate(groups)}


def log_sum(x: np.ndarray) -> float:
    top = x.max(initial=-math.inf)
    return top + math.log(np.exp(x - top).sum()) if top > -math.inf else -math.inf


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Relative to each row's largest first: log-sum-exp of huge logits has no digits left for the logarithm."""
    logits = logits - logits.max(1, keepdims=True, initial=-math.inf)
    return logits - np.array([log_sum(row) for row in logits]).reshape(-1, 1)


def emissions(logits: np.ndarray, blank: int, share: float | None = None) -> np.ndarray:
    """(T, C + 1) log-probabilities, ★ last: the mean of the non-blank outputs, or a share of their sum."""
    log_p = log_softmax(logits)
    others = np.delete(log_p, blank, axis=1)
    star = np.array([log_sum(row) + math.log(share or 1 / max(len(row), 1)) for row in others])
    return np.concatenate([log_p, star.reshape(-1, 1)], axis=1)


def enumerate_paths(
    logits: np.ndarray,
    labels: list[int],
    words: list[int],
    weights: dict[str, np.ndarray],
    loops_at_words: bool,
    blank: int,
    share: float | None = None,
) -> Answer:
    """logits (T, C); weights: family → log-weight of each of its arcs, for the families that are present.

    share: ★ as a share of the non-blank probability; None: their mean.
    """
    frames, outputs = logits.shape
    arcs = make_arcs(labels, words, set(weights), loops_at_words)
    weight_of = np.array([0.0 if a.family == "token" else weights[a.family][a.index] for a in arcs])
    arcs = [a for a, w in zip(arcs, weight_of, strict=True) if w > -math.inf]
    weight_of = weight_of[weight_of > -math.inf]
    table, starts, group_of = labellings(frames, outputs, blank)
    sequences = [s for s in arc_sequences(arcs, len(labels), frames) if tuple(arcs[i].label for i in s) in group_of]
    groups = np.array([group_of[tuple(arcs[i].label for i in s)] for s in sequences], dtype=np.int64)
    scores = np.array([weight_of[list(s)].sum() for s in sequences])

    scored = emissions(logits, blank, share)[np.arange(frames), table].sum(1)
    group_max = np.maximum.reduceat(scored, starts)
    shift = np.where(group_max > -math.inf, group_max, 0.0)
    size = np.diff([*starts, len(scored)])
    with np.errstate(divide="ignore"):
        group_total = shift + np.log(np.add.reduceat(np.exp(scored - np.repeat(shift, size)), starts))
    total = log_sum(scores + group_total[groups])
    answer = Answer(
        total,
        (scores + group_max[groups]).max(initial=-math.inf),
        {family: np.zeros_like(w) for family, w in weights.items()},
        np.zeros_like(logits),
        _fewest_frames(arcs, len(labels)),
    )
    if total == -math.inf:
        return answer
    for sequence, posterior in zip(sequences, np.exp(scores + group_total[groups] - total), strict=True):
        for i in sequence:
            if arcs[i].family != "token":
                answer.counts[arcs[i].family][arcs[i].index] += posterior
    group_score = np.full(len(starts), -math.inf)
    np.logaddexp.at(group_score, groups, scores)
    labelling_posterior = np.exp(scored + np.repeat(group_score, size) - total)
    answer.gradient = _gradient(logits, blank, table, labelling_posterior)
    return answer


def best_sequences(
    logits: np.ndarray,
    labels: list[int],
    words: list[int],
    weights: dict[str, np.ndarray],
    loops_at_words: bool,
    blank: int,
) -> list[tuple[int, int]]:
    """(token arcs, wildcards) of each sequence of arcs that has a best path; arguments as for `enumerate_paths`."""
    frames, outputs = logits.shape
    arcs = make_arcs(labels, words, set(weights), loops_at_words)
    weight_of = np.array([0.0 if a.family == "token" else weights[a.family][a.index] for a in arcs])
    table, starts, group_of = labellings(frames, outputs, blank)
    group_max = np.maximum.reduceat(emissions(logits, blank)[np.arange(frames), table].sum(1), starts)
    scored = []
    for sequence in arc_sequences(arcs, len(labels), frames):
        group = group_of.get(tuple(arcs[i].label for i in sequence))
        if group is not None:
            tokens = sum(arcs[i].family == "token" for i in sequence)
            score = group_max[group] + weight_of[list(sequence)].sum()
            scored.append((score, tokens, len(sequence) - tokens))
    best = max((score for score, _, _ in scored), default=-math.inf)
    return [(tokens, stars) for score, tokens, stars in scored if score > max(best - 1e-9, -math.inf)]


def _gradient(logits: np.ndarray, blank: int, table: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    """−Σ_v γ(v) ∂log P(v)/∂logits, ★ among the v."""
    frames, outputs = logits.shape
    occupancy = np.zeros((frames, outputs + 1))
    for t in range(frames):
        np.add.at(occupancy[t], table[:, t], posterior)
    no_blank = logits.copy()
    no_blank[:, blank] = -math.inf
    possible = no_blank.max(1, keepdims=True, initial=-math.inf) > -math.inf
    share = np.exp(log_softmax(np.where(possible, no_blank, 0.0))) * possible
    return np.exp(log_softmax(logits)) - occupancy[:, :outputs] - occupancy[:, outputs:] * share


def _fewest_frames(arcs: list[Arc], tokens: int) -> float:
    """A frame an arc, and a blank between two arcs of the same label."""
    longest = tokens  # a self-loop never saves a frame, every other arc moves on
    needed = [
        len(s) + sum(arcs[i].label == arcs[j].label for i, j in itertools.pairwise(s))
        for s in arc_sequences([a for a in arcs if a.family != "self_loop"], tokens, longest)
    ]
    return min(needed, default=math.inf)
