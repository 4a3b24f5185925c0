"""Graphs drawn from slots and from arcs: loss, counts, best path and feasibility are those of the list of all paths."""

import math

import numpy as np
import pytest
import torch
from support.graph_enumeration import (
    Answer,
    draw_arcs,
    draw_graph,
    enumerate_graph,
    raw_log_likelihood,
)

from wildctc import (
    TranscriptGraph,
    Wildcards,
    infeasible,
    wildcard_align,
    wildcard_ctc_loss,
    wildcard_posteriors,
)

FRAMES, OUTPUTS, SIZE = 4, 3, 40
FAMILIES = ("bypass", "self_loop", "word_bypass")
KINDS = [(), ("bypass", "self_loop"), ("self_loop", "word_bypass"), FAMILIES]


def draw_batch(seed: int) -> tuple[torch.Tensor, list[TranscriptGraph], list[int], Wildcards, list[Answer]]:
    rng = np.random.default_rng([7, seed])
    graphs = [draw_graph(rng, OUTPUTS) for _ in range(SIZE)]
    logits = rng.normal(0.0, 2.0, (FRAMES, SIZE, OUTPUTS)).astype(np.float32).astype(np.float64)
    lengths = [int(rng.integers(0, FRAMES + 1)) for _ in range(SIZE)]
    sizes = {
        "bypass": max(len(g.arcs) for g in graphs),
        "self_loop": max(g.num_states for g in graphs),
        "word_bypass": max(g.num_words for g in graphs),
    }
    weights = {}
    for family in KINDS[seed % len(KINDS)]:
        weights[family] = rng.normal(-1.0, 1.5, (SIZE, sizes[family]))
        weights[family][rng.random(weights[family].shape) < 0.1] = -math.inf
    answers = [
        enumerate_graph(logits[: lengths[n], n], g, {name: w[n] for name, w in weights.items()})
        for n, g in enumerate(graphs)
    ]
    wildcards = Wildcards(**{name: torch.from_numpy(w) for name, w in weights.items()})
    return torch.from_numpy(logits), graphs, lengths, wildcards, answers


def check(seed: int, backend: str, dtype: torch.dtype, tolerance: float) -> None:
    logits, graphs, lengths, wildcards, answers = draw_batch(seed)
    given = {"wildcards": wildcards, "backend": backend}
    losses = wildcard_ctc_loss(logits.to(dtype), graphs, lengths, reduction="none", **given).double()
    found = wildcard_posteriors(logits.to(dtype), graphs, lengths, **given)
    paths = wildcard_align(logits.to(dtype), graphs, lengths, **given)
    short = {item.index: item.needed for item in infeasible(graphs, lengths, wildcards=wildcards)}
    for n, (graph, answer) in enumerate(zip(graphs, answers, strict=True)):
        limit = tolerance * max(1.0, abs(answer.best)) if answer.best > -math.inf else 0.0
        assert losses[n].item() == pytest.approx(-answer.log_likelihood, abs=limit)
        assert paths[n].score == pytest.approx(answer.best, abs=1e-6)  # of float32 logits in double
        for family in ("token", *FAMILIES):
            counts, wanted = getattr(found, family), answer.counts[family]
            if counts is not None:
                np.testing.assert_allclose(counts[n, : len(wanted)].double().numpy(), wanted, rtol=0, atol=tolerance)
                assert not counts[n, len(wanted) :].any(), graph
        assert (n in short) == (answer.log_likelihood == -math.inf)
        assert short.get(n, answer.fewest_frames) == answer.fewest_frames


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_graphs(seed, backend, dtype):
    check(seed, backend, dtype, 2e-5 if dtype == torch.float32 else 1e-10)


@pytest.mark.slow
def test_two_thousand_graphs():
    for seed in range(4, 54):
        check(seed, "native", torch.float64, 1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_arcs_without_a_label_stand_for_others(seed, backend):
    rng = np.random.default_rng([8, seed])
    for _ in range(60):
        arcs, final, words = draw_arcs(rng, OUTPUTS)
        try:
            graph = TranscriptGraph.from_arcs(arcs, final, words)
        except ValueError:
            continue
        logits = rng.normal(0.0, 2.0, (FRAMES, OUTPUTS))
        raw = {"bypass": rng.normal(-1.0, 1.0, len(arcs)), "word_bypass": rng.normal(-1.0, 1.0, len(words))}
        numbers = [i for i, a in enumerate(a for a in arcs if a[2] is not None)]
        weights = bypass_of_each_arc(graph, arcs, raw["bypass"], numbers)
        wildcards = Wildcards(bypass=torch.from_numpy(weights), word_bypass=torch.from_numpy(raw["word_bypass"]))
        loss = wildcard_ctc_loss(
            torch.from_numpy(logits), graph, [FRAMES], reduction="sum", wildcards=wildcards, backend=backend
        )
        assert loss.item() == pytest.approx(-raw_log_likelihood(logits, arcs, final, words, raw), abs=1e-10)


def bypass_of_each_arc(graph: TranscriptGraph, arcs: list, weights: np.ndarray, numbers: list[int]) -> np.ndarray:
    """The weight that the bypass of each given arc has, for the arcs that it became: they have its target and label.

    Two given arcs with the same target and label become arcs that cannot be told apart here, so they get one weight.
    """
    labelled = [a for a in arcs if a[2] is not None]
    first = {}
    for number in numbers:
        first.setdefault((labelled[number][1], labelled[number][2]), number)
    for number in numbers:
        weights[number] = weights[first[labelled[number][1], labelled[number][2]]]
    return np.array([weights[first[a.target, a.label]] for a in graph.arcs])
