"""The lattice of a transcript graph equals the list of all its paths (specification of graphs: brute force)."""

import math

import numpy as np
import pytest
import torch
from support.enumeration import STAR, emissions, labellings, log_sum

from wildctc import TranscriptGraph, Wildcards, wildcard_ctc_loss, wildcard_posteriors

FRAMES, OUTPUTS = 4, 3


def draw_graph(rng: np.random.Generator) -> TranscriptGraph:
    """One to three slots of one to three alternatives of up to two labels, of which the first slot is not optional."""
    slots, weights = [], []
    for i in range(int(rng.integers(1, 4))):
        count = int(rng.integers(1, 4))
        lengths = [int(rng.integers(0 if i else 1, 3)) for _ in range(count)]
        slots.append([[int(v) for v in rng.integers(1, OUTPUTS, n)] for n in lengths])
        weights.append(rng.normal(0.0, 1.0, count).tolist())
    return TranscriptGraph.from_slots(slots, weights)


def by_enumeration(logits: np.ndarray, graph: TranscriptGraph, weights: dict[str, np.ndarray]) -> float:
    """The log-likelihood: a sum over all arc sequences, each scored by plain CTC with ★ as a label."""
    arcs = [(a.source, a.target, a.label, a.weight) for a in graph.arcs]
    arcs += [(a.source, a.target, STAR, weights["bypass"][i] + a.skipped) for i, a in enumerate(graph.arcs)]
    arcs += [(q, q, STAR, weights["self_loop"][q]) for q in range(graph.num_states)]
    arcs += [(w.source, w.target, STAR, weights["word_bypass"][w.word] + w.weight) for w in graph.words]
    table, starts, group_of = labellings(len(logits), OUTPUTS, 0)
    scored = emissions(logits, 0)[np.arange(len(logits)), table].sum(1)
    group = np.logaddexp.reduceat(scored, starts)
    terms, unfinished = [], [((), 0, 0.0)]
    for _ in range(len(logits) + 1):
        for labels, state, weight in unfinished:
            if labels in group_of and graph.final[state] > -math.inf:
                terms.append(weight + graph.final[state] + group[group_of[labels]])
        unfinished = [
            ((*labels, label), target, weight + w)
            for labels, state, weight in unfinished
            for source, target, label, w in arcs
            if source == state
        ]
    return log_sum(np.array(terms))


@pytest.mark.parametrize("seed", range(4))
def test_loss_is_the_sum_over_all_arc_sequences(seed):
    rng = np.random.default_rng(seed)
    for _ in range(15):
        graph = draw_graph(rng)
        logits = rng.normal(0.0, 2.0, (int(rng.integers(1, FRAMES + 1)), OUTPUTS))
        sizes = {"bypass": len(graph.arcs), "self_loop": graph.num_states, "word_bypass": graph.num_words}
        weights = {name: rng.normal(-1.0, 1.0, size) for name, size in sizes.items()}
        wildcards = Wildcards(**{name: torch.from_numpy(w) for name, w in weights.items()})
        loss = wildcard_ctc_loss(
            torch.from_numpy(logits), graph, [len(logits)], reduction="sum", wildcards=wildcards, backend="reference"
        )
        assert loss.item() == pytest.approx(-by_enumeration(logits, graph, weights), abs=1e-10)


def test_a_chain_gives_the_same_bits():
    torch.manual_seed(0)
    logits = torch.randn(20, 2, 6)
    targets, words = torch.tensor([[1, 2, 2, 5], [3, 4, 0, 0]]), torch.tensor([[0, 0, 1, 1], [0, 1, -1, -1]])
    graphs = [TranscriptGraph.from_labels([1, 2, 2, 5], [0, 0, 1, 1]), TranscriptGraph.from_labels([3, 4], [0, 1])]
    wildcards = Wildcards(bypass=-3.0, self_loop=-2.0, word_bypass=-4.0)
    wanted = wildcard_ctc_loss(logits, targets, [20, 9], [4, 2], reduction="none", wildcards=wildcards, words=words)
    found = wildcard_ctc_loss(logits, graphs, [20, 9], reduction="none", wildcards=wildcards)
    assert torch.equal(found, wanted)
    found = wildcard_posteriors(logits, graphs, [20, 9], wildcards=wildcards)
    assert torch.equal(
        found.bypass, wildcard_posteriors(logits, targets, [20, 9], [4, 2], wildcards=wildcards, words=words).bypass
    )


def test_posteriors_tell_the_probability_of_each_alternative():
    logits = torch.zeros(6, 4, dtype=torch.float64)
    logits[2, 3] = logits[0, 1] = 9.0
    graph = TranscriptGraph.from_slots([[[1]], [[2], [3], []]])
    found = wildcard_posteriors(logits, graph, [6], wildcards=Wildcards(word_bypass=-3.0, self_loop=-1.0))
    shares = found.alternatives[0][1]
    assert shares[1] == max(shares)
    assert sum(shares) + found.word_bypass[1].item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TranscriptGraph.from_arcs([(0, 1, 1), (1, 0, 2)]), r"arc 1 \(1 → 0, label 2\) does not lead forward"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, 1), (0, 2, 1)]), r"arc 0 .* leads to no end"),
        (lambda: TranscriptGraph.from_slots([[[1], []]]), "can be left out as a whole"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, -1)]), "arc 0 .* at least 0"),
        (
            lambda: wildcard_ctc_loss(torch.zeros(3, 2), TranscriptGraph.from_sequences([[1], [5]]), [3]),
            "utterance 0: arc 1 .* has label 5",
        ),
        (
            lambda: wildcard_ctc_loss(torch.zeros(3, 2), TranscriptGraph.from_labels([1, 5]), [3]),
            r"utterance 0: arc 1 \(1 → 2\) has label 5, must be at most C - 1 = 1",
        ),
        (
            lambda: wildcard_posteriors(
                torch.zeros(3, 2), TranscriptGraph.from_labels([0]), [3], wildcards=Wildcards()
            ),
            r"utterance 0: arc 0 \(0 → 1\) has label 0, which is the blank",
        ),
        (lambda: TranscriptGraph.from_arcs([(0, 10**12, 1)]), "states go up to 1000000000000; number them"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, 2**40)]), "arc 0 .* below 2"),
        (lambda: TranscriptGraph.from_arcs([(0, "1", 1)]), "arc 0 .* states must be integers"),
        (lambda: TranscriptGraph.from_arcs([(0, 1)]), r"arc 0 is \(0, 1\), must be"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, 1, None)]), "arc 0 .* its weight is None, must be finite"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, 1, math.nan)]), "arc 0 .* its weight is nan, must be finite"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, 1)], [1]), "final must be a mapping"),
        (lambda: TranscriptGraph.from_arcs([(0, 1, 1)], {1: math.inf}), "final state 1 has weight inf"),
        (lambda: TranscriptGraph.from_labels([1, None]), "the transcript has label None"),
        (lambda: TranscriptGraph.from_labels([1, 2, 3], [0, 1, 0]), "words are not contiguous: word 0 at label 2"),
        (lambda: TranscriptGraph.from_slots([[1, 2], [3]]), "alternative 0 of slot 0 must be a list of labels, got 1"),
        (lambda: TranscriptGraph.from_slots([[[1, 1.5]]]), "alternative 0 of slot 0 has label 1.5"),
        (lambda: TranscriptGraph.from_slots([[[1]], [[2]]], [[0.0]]), "each of the 2 slots, got 1"),
        (lambda: TranscriptGraph.from_slots([[[1]]], [[0.0], [0.0]]), "each of the 1 slots, got 2"),
        (lambda: TranscriptGraph.from_slots([[[1]], [[2]]], words=[True]), "words must hold .* 2 slots, got 1"),
        (lambda: TranscriptGraph.from_sequences([[1], [2]], [0.0]), "weights must hold .* 2 sequences, got 1"),
        (lambda: TranscriptGraph.from_sequences([[1], [2]], words=[[0]]), "words must hold .* 2 sequences, got 1"),
        (lambda: TranscriptGraph.from_sequences([[1], []]), "can be left out as a whole: its path of arc 1"),
        (lambda: TranscriptGraph.from_aligned([[1, 2]]), "word 0 of sequence 0 must be a list of labels, got 1"),
        (
            lambda: wildcard_ctc_loss(
                torch.zeros(3, 2), TranscriptGraph.from_slots([[[1], [1, 1]]]), [3], arc_weights=[0.0]
            ),
            "arc_weights is a list, must be a tensor",
        ),
    ],
)
def test_bad_graphs_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("slots", [[[[1]], [[2], []]], [[[1]], [[]]]])
def test_without_a_path_no_alternative_is_probable_not_even_the_empty_one(slots, backend):
    graph = TranscriptGraph.from_slots(slots)
    found = wildcard_posteriors(torch.zeros(0, 1, 4), [graph], [0], wildcards=Wildcards(), backend=backend)
    assert found.log_likelihood.item() == -math.inf
    assert not any(probability for slot in found.alternatives[0] for probability in slot)
