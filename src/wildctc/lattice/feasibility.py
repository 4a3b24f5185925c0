"""Find the utterances that have too few frames for their transcripts."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import Lattice, Wildcards, as_lattice, padded_rows
from wildctc.lattice.checks import Lengths, integers, lengths_of
from wildctc.lattice.functional import Targets, checked_targets
from wildctc.lattice.graph_align import needed_frames
from wildctc.lattice.graph_batch import are_graphs, as_chain, as_graph_batch, check_no_lengths, list_of_graphs
from wildctc.lattice.native import check_values
from wildctc.lattice.noise import NoiseRates
from wildctc.lattice.transcripts import TranscriptGraph


class Infeasible(NamedTuple):
    """An utterance with too few frames.

    Attributes:
        index: Its number in the batch.
        frames: The frames that it has.
        needed: The fewest frames that its transcript needs.
        repeats: How many of its tokens have the label of the token before; of a graph, those of its first writing.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    frames: int
    needed: int
    repeats: int


def infeasible(
    targets: Targets,
    input_lengths: Lengths,
    target_lengths: Lengths | None = None,
    *,
    wildcards: Wildcards | NoiseRates | None = None,
    words: Tensor | None = None,
) -> list[Infeasible]:
    """Find the utterances that have no path, whose loss would be +inf.

    Without wildcards a transcript needs one frame for each token and one more between two equal labels. A token bypass
    needs no blank before it; a word bypass needs one frame for the whole word; self-loops change nothing.

    Args:
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated; (S,) for one utterance, whose lengths
            are then numbers. Or a list of N `TranscriptGraph`s.
        input_lengths: (N,) frames of each utterance, after the encoder's subsampling.
        target_lengths: (N,) labels of each transcript; None where targets are graphs.
        wildcards: The weights of the wildcard arcs, or noise rates; None for plain CTC.
        words: The word of each label, in the shape of the targets; needed by word arcs only.

    Returns:
        Those utterances, in the order of the batch.

    >>> infeasible(torch.tensor([[1, 1, 2]]), [3], [3])
    [Infeasible(index=0, frames=3, needed=4, repeats=1)]
    >>> infeasible(torch.tensor([[1, 1, 2]]), [3], [3], wildcards=Wildcards(bypass=-5.0))
    []
    """
    if isinstance(wildcards, NoiseRates):  # it only matters which arcs there are
        rates = (wildcards.token, wildcards.unwritten, wildcards.word)
        wildcards = Wildcards(*(None if rate is None else -1.0 for rate in rates), wildcards.self_loop_at)  # type: ignore
    if are_graphs(targets):
        check_no_lengths(target_lengths, words)
        graphs = list_of_graphs(targets, None)
        chain = as_chain(graphs)
        if chain is None:
            return _infeasible_graphs(graphs, input_lengths, wildcards)
        targets, target_lengths, words = chain
    targets, target_lengths = checked_targets(targets, target_lengths)
    lattice = _without_logits(targets, input_lengths, target_lengths, wildcards, words)
    check_values(lattice)
    labels = padded_rows(lattice.targets, lattice.target_lengths, 0)
    lengths = lattice.target_lengths
    inside = torch.arange(1, labels.shape[1]) < lengths.unsqueeze(1) if labels.shape[1] else labels.bool()
    repeats = ((labels[:, 1:] == labels[:, :-1]) & inside).sum(1)
    if lattice.present(0) or lattice.present(2):
        needed = torch.tensor([_needed(lattice, labels, n) for n in range(len(lengths))], dtype=torch.float64)
    else:
        needed = (lengths + repeats).double()
    short = (lattice.input_lengths < needed).nonzero().flatten().tolist()
    return [Infeasible(n, int(lattice.input_lengths[n]), int(needed[n]), int(repeats[n])) for n in short]


def _infeasible_graphs(
    graphs: list[TranscriptGraph], input_lengths: Lengths, wildcards: Wildcards | None
) -> list[Infeasible]:
    frames = lengths_of(input_lengths, "input_lengths", len(graphs), torch.device("cpu"))
    outputs = 2 + max((arc.label for graph in graphs for arc in graph.arcs), default=0)
    longest = max(int(frames.max()) if len(graphs) else 0, 0)
    logits = torch.empty(()).expand(longest, len(graphs), outputs)
    batch = as_graph_batch(logits, graphs, frames, outputs - 1, wildcards).each_weight()
    found = []
    for n, graph in enumerate(graphs):
        bypass, _, words = (None if w is None else w[n].tolist() for w in batch.weights[:3])
        needed = needed_frames(graph, bypass, words)
        if frames[n] < needed:
            found.append(Infeasible(n, int(frames[n]), int(needed), _repeats(graph)))
    return found


def _repeats(graph: TranscriptGraph) -> int:
    """The tokens of the first writing that have the label of the token before."""
    state, before, repeats = 0, -1, 0
    for arc in graph.arcs:  # each comes after all arcs that lead to its source
        if arc.source == state:
            repeats += arc.label == before
            state, before = arc.target, arc.label
    return repeats


def _without_logits(
    targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, wildcards: Wildcards | None, words: Tensor | None
) -> Lattice:
    """Make a lattice whose logits have no values, which do not matter here, and the smallest shape that fits."""
    cpu = torch.device("cpu")
    frames = lengths_of(input_lengths, "input_lengths", None, cpu)
    lengths = lengths_of(target_lengths, "target_lengths", None, cpu)
    targets = integers(targets, "targets", cpu)
    size = frames.numel()
    alone = size == 1 and targets.dim() == 1 and (torch.as_tensor(input_lengths).dim() == 0 or _has_rows(wildcards))
    targets = targets.reshape(1, -1) if alone else targets
    used = padded_rows(targets, lengths, 0) if targets.dim() == 2 and len(targets) == len(lengths) else targets
    # the blank is above every label, since only the equality of labels matters
    outputs = min(max(int(used.max()) if used.numel() else 0, 0), 2**30) + 2
    longest = max(int(frames.max()) if size else 0, 0)
    logits = torch.empty(()).expand((longest, outputs) if alone else (longest, size, outputs))
    return as_lattice(logits, targets, frames, lengths, outputs - 1, wildcards, words).to_host()


def _has_rows(wildcards: Wildcards | None) -> bool:
    """Whether there are weights of one utterance without a batch dimension."""
    weights = () if wildcards is None else (wildcards.bypass, wildcards.self_loop, wildcards.word_bypass)
    return any(isinstance(w, Tensor) and w.dim() == 1 for w in weights)


def _needed(lattice: Lattice, labels: Tensor, n: int) -> float:
    """Count the frames of the shortest path, by position and state: b in blank, t in the token, s in ★."""
    row, length = labels[n].tolist(), int(lattice.target_lengths[n])
    bypass, _, word_weight = (
        (lambda i, w=w, v=v: v if w is None else float(w[n, i] if w.dim() == 2 else w[n]))
        for w, v in zip(lattice.weights, lattice.values, strict=True)
    )
    words = (
        padded_rows(lattice.words, lattice.target_lengths, -1)[n].tolist()
        if lattice.words is not None
        else [-1] * len(row)
    )
    b, t, s = [0.0], [math.inf], [math.inf]
    start = 0
    for k in range(1, length + 1):
        word = words[k - 1]
        start = k - 1 if k == 1 or word != words[k - 2] else start
        repeated = k > 1 and row[k - 1] == row[k - 2]
        t.append(1 + min(b[-1], s[-1], math.inf if repeated else t[-1]))
        into = min(b[k - 1], t[k - 1]) if bypass(k - 1) > -math.inf else math.inf
        if word >= 0 and (k == length or words[k] != word) and lattice.present(2) and word_weight(word) > -math.inf:
            into = min(into, b[start], t[start])
        s.append(1 + into)
        b.append(1 + min(t[-1], s[-1]))
    return min(b[-1], t[-1], s[-1])
