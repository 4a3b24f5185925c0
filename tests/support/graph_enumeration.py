"""Every path of a small transcript graph, listed: sequences of arcs, each scored by plain CTC with ★ as a label."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from support.enumeration import STAR, emissions, labellings, log_sum
from wildctc import TranscriptGraph

FAMILIES = ("token", "bypass", "self_loop", "word_bypass")


@dataclass
class Answer:
    log_likelihood: float
    best: float
    counts: dict[str, np.ndarray]  # family → expected count of each arc or word
    fewest_frames: float


def draw_slots(rng: np.random.Generator, outputs: int) -> TranscriptGraph:
    """One to three slots of one to three alternatives of up to two labels, of which the first slot is not optional."""
    slots, weights = [], []
    for i in range(int(rng.integers(1, 4))):
        count = int(rng.integers(1, 4))
        lengths = [int(rng.integers(0 if i else 1, 3)) for _ in range(count)]
        slots.append([[int(v) for v in rng.integers(1, outputs, n)] for n in lengths])
        weights.append(rng.normal(0.0, 1.0, count).tolist())
    return TranscriptGraph.from_slots(slots, weights)


def draw_arcs(rng: np.random.Generator, outputs: int) -> tuple[list, dict[int, float], list[tuple[int, int]]]:
    """Arcs between any states, some without a label, several ends, and words that can overlap."""
    states = int(rng.integers(2, 5))
    arcs = []
    for _ in range(int(rng.integers(1, 7))):
        source = int(rng.integers(0, states - 1))
        label = None if rng.random() < 0.2 else int(rng.integers(1, outputs))
        arcs.append((source, int(rng.integers(source + 1, states)), label, float(rng.normal())))
    final = {q: float(rng.normal()) for q in range(1, states) if q == states - 1 or rng.random() < 0.3}
    words = [(s, e) for s in range(states) for e in range(s + 1, states) if rng.random() < 0.3]
    return arcs, final, words


def draw_graph(rng: np.random.Generator, outputs: int) -> TranscriptGraph:
    """A graph from slots or, as often, from arcs."""
    while rng.random() < 0.5:
        try:
            return TranscriptGraph.from_arcs(*draw_arcs(rng, outputs))
        except ValueError:  # an arc is on no path, or the like
            continue
    return draw_slots(rng, outputs)


def arcs_of(graph: TranscriptGraph, weights: dict[str, np.ndarray]) -> list[tuple]:
    """(source, target, label, weight, family, index) of every arc."""
    arcs = [(a.source, a.target, a.label, a.weight, "token", i) for i, a in enumerate(graph.arcs)]
    if "bypass" in weights:
        arcs += [
            (a.source, a.target, STAR, weights["bypass"][i] + a.skipped, "bypass", i) for i, a in enumerate(graph.arcs)
        ]
    if "self_loop" in weights:
        arcs += [(q, q, STAR, weights["self_loop"][q], "self_loop", q) for q in range(graph.num_states)]
    if "word_bypass" in weights:
        arcs += [
            (w.source, w.target, STAR, weights["word_bypass"][w.word] + w.weight, "word_bypass", w.word)
            for w in graph.words
        ]
    return [arc for arc in arcs if arc[3] > -math.inf]


def enumerate_graph(logits: np.ndarray, graph: TranscriptGraph, weights: dict[str, np.ndarray]) -> Answer:
    """logits (T, C), blank 0; weights: family → log-weight of each of its arcs, for the wildcards that are present."""
    arcs = arcs_of(graph, weights)
    frames, outputs = logits.shape
    table, starts, group_of = labellings(frames, outputs, 0)
    scored = emissions(logits, 0)[np.arange(frames), table].sum(1)
    total, best = np.logaddexp.reduceat(scored, starts), np.maximum.reduceat(scored, starts)
    found = []  # (weight, group, arcs) of each sequence of arcs
    needed = math.inf
    unfinished = [((), 0, 0.0, ())]
    for _ in range(max(frames, graph.num_states) + 1):
        for labels, state, weight, taken in unfinished:
            if graph.final[state] == -math.inf:
                continue
            pauses = sum(a == b for a, b in itertools.pairwise(labels))
            needed = min(needed, len(labels) + pauses)
            if labels in group_of:
                found.append((weight + graph.final[state], group_of[labels], taken))
        unfinished = [
            ((*labels, arc[2]), arc[1], weight + arc[3], (*taken, i))
            for labels, state, weight, taken in unfinished
            for i, arc in enumerate(arcs)
            if arc[0] == state and (len(labels) < frames or arc[0] != arc[1])
        ]
    sizes = (len(graph.arcs), len(graph.arcs), graph.num_states, graph.num_words)
    counts = {family: np.zeros(size) for family, size in zip(FAMILIES, sizes, strict=True)}
    scores = np.array([w + total[g] for w, g, _ in found])
    everything = log_sum(scores)
    if everything > -math.inf:
        for (_, _, taken), share in zip(found, np.exp(scores - everything), strict=True):
            for i in taken:
                counts[arcs[i][4]][arcs[i][5]] += share
    return Answer(everything, max((w + best[g] for w, g, _ in found), default=-math.inf), counts, needed)


def raw_log_likelihood(logits: np.ndarray, arcs: list, final: dict[int, float], words: list, weights: dict) -> float:
    """Of a graph as it was given, with arcs that emit nothing. No self-loops: those stand at the states that remain."""
    number, every = 0, []
    for source, target, label, weight in arcs:
        every.append((source, target, label, weight))
        if label is not None:
            every.append((source, target, STAR, weights["bypass"][number]))
            number += 1
    every += [(s, e, STAR, weights["word_bypass"][i]) for i, (s, e) in enumerate(words)]
    frames, outputs = logits.shape
    table, starts, group_of = labellings(frames, outputs, 0)
    total = np.logaddexp.reduceat(emissions(logits, 0)[np.arange(frames), table].sum(1), starts)
    terms, unfinished = [], [((), 0, 0.0)]
    while unfinished:
        terms += [w + final[q] + total[group_of[y]] for y, q, w in unfinished if q in final and y in group_of]
        unfinished = [
            (y if label is None else (*y, label), target, w + weight)
            for y, q, w in unfinished
            for source, target, label, weight in every
            if source == q
        ]
    return log_sum(np.array(terms))
