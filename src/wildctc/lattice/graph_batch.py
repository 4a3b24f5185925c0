"""A batch of `TranscriptGraph`s: checked, and in padded tensors (specification §10)."""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from wildctc.lattice.arcs import ABSENT, Wildcards
from wildctc.lattice.checks import Lengths, check_lengths, check_logits, lengths_of, on_device, shape_of
from wildctc.lattice.transcripts import TranscriptGraph


class GraphBatch(NamedTuple):
    """A batch with transcripts that are graphs.

    Attributes:
        logits: (T, N, C).
        graphs: N of them.
        input_lengths: (N,) int64.
        blank: The label of the blank.
        bypass: (N, A) log-weights of the bypasses beside token arcs; None: absent.
        self_loop: (N, Q) of the self-loops at states, −inf where there is none; None: absent.
        word_bypass: (N, W) of the word bypasses; None: absent.
        arc_weights: (N, A) log-weights that are added to those of the token arcs; None: nothing is added.
        numbers: The weights of bypass, self_loop and word_bypass that are one number for all arcs; −inf elsewhere.
        memory: Bytes that the native backend may take; 0 for no budget (`memory.budget`).
        constant: (N,) what noise rates add to the loss of each utterance; None: nothing.
    """

    logits: Tensor
    graphs: list[TranscriptGraph]
    input_lengths: Tensor
    blank: int
    bypass: Tensor | None
    self_loop: Tensor | None
    word_bypass: Tensor | None
    arc_weights: Tensor | None
    numbers: tuple[float, float, float] = (ABSENT, ABSENT, ABSENT)
    memory: int = 0
    constant: Tensor | None = None

    @property
    def weights(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """The weights that are tensors: bypass, self_loop, word_bypass and arc_weights."""
        return self.bypass, self.self_loop, self.word_bypass, self.arc_weights

    @property
    def sizes(self) -> list[tuple[int, int, int]]:
        """The token arcs, states and words of each graph."""
        return [(len(g.arcs), g.num_states, g.num_words) for g in self.graphs]

    def each_weight(self) -> "GraphBatch":
        """Expand weights that are one number to one for each arc.

        Returns:
            The same batch. Every family that is present has a tensor.
        """
        families = enumerate(zip(self.weights, self.numbers, strict=False))
        weights = [_of_number(number, self, i) if w is None and number > ABSENT else w for i, (w, number) in families]
        return self._replace(bypass=weights[0], self_loop=weights[1], word_bypass=weights[2], numbers=(ABSENT,) * 3)

    @property
    def target_lengths(self) -> Tensor:
        """(N,) the tokens of the first writings."""
        return torch.tensor([graph.length for graph in self.graphs], dtype=torch.int64)

    @property
    def widths(self) -> tuple[int, int, int]:
        """The most token arcs, states and words of a graph."""
        graphs = self.graphs
        return (
            max((len(g.arcs) for g in graphs), default=0),
            max((g.num_states for g in graphs), default=1),
            max((g.num_words for g in graphs), default=0),
        )


def are_graphs(targets: object) -> TypeGuard[Sequence[TranscriptGraph] | TranscriptGraph]:
    """Tell whether targets are graphs.

    Args:
        targets: What the caller gives as targets.

    Returns:
        True for a `TranscriptGraph`, and for a list or tuple that holds one.
    """
    several = isinstance(targets, list | tuple) and any(isinstance(x, TranscriptGraph) for x in targets)
    return several or isinstance(targets, TranscriptGraph)


def list_of_graphs(targets: Sequence[TranscriptGraph] | TranscriptGraph, size: int | None) -> list[TranscriptGraph]:
    """Check that targets are one graph for each utterance.

    Args:
        targets: A graph, or a list of them.
        size: The number of utterances, if it is known.

    Returns:
        A list of graphs.

    Raises:
        TypeError: Something in the list is not a graph.
        ValueError: There are not as many as utterances.
    """
    graphs = [targets] if isinstance(targets, TranscriptGraph) else list(targets)
    for n, graph in enumerate(graphs):
        if not isinstance(graph, TranscriptGraph):
            raise TypeError(f"utterance {n}: a list of targets must hold TranscriptGraphs, got {type(graph).__name__}")
    if size is not None and len(graphs) != size:
        raise ValueError(f"there are {len(graphs)} graphs for N = {size} utterances; give one for each")
    return graphs


def check_no_lengths(target_lengths: object, words: object) -> None:
    """Refuse what a graph contains already.

    Args:
        target_lengths: Must be None.
        words: Must be None.

    Raises:
        ValueError: One of them was given.
    """
    for name, value in (("target_lengths", target_lengths), ("words", words)):
        if value is not None:
            raise ValueError(f"{name} must be None where targets are TranscriptGraphs, which contain them")


def check_labels(graphs: Sequence[TranscriptGraph], outputs: int, blank: int) -> None:
    """Check that a model has the labels of graphs.

    Args:
        graphs: One for each utterance.
        outputs: C, the outputs of the model.
        blank: The label of the blank.

    Raises:
        ValueError: It lacks one, or one is the blank. The message names utterance and arc.
    """
    for n, graph in enumerate(graphs):
        low, high = graph.label_range
        if high < outputs and not low <= blank <= high:
            continue
        for i in np.flatnonzero((graph.flat.labels >= outputs) | (graph.flat.labels == blank)).tolist():
            arc = graph.arcs[i]
            why = "which is the blank" if arc.label == blank else f"must be at most C - 1 = {outputs - 1}"
            raise ValueError(f"utterance {n}: arc {i} ({arc.source} → {arc.target}) has label {arc.label}, {why}")


def as_chain(graphs: Sequence[TranscriptGraph], alone: bool = False) -> tuple[Tensor, Tensor, Tensor] | None:
    """Turn graphs that are chains into the tensors that every function takes.

    Args:
        graphs: N graphs.
        alone: Whether the result has no batch dimension.

    Returns:
        Padded targets (N, S), target_lengths (N,) and words (N, S); None if a graph is not a chain.
    """
    if not all(graph.is_chain for graph in graphs):
        return None
    width = max((len(graph.arcs) for graph in graphs), default=0)
    rows, words = (np.full((len(graphs), width), fill, dtype=np.int64) for fill in (0, -1))
    for n, graph in enumerate(graphs):
        rows[n, : len(graph.arcs)], words[n, : len(graph.arcs)] = graph.flat.labels, graph.flat.arc_words
    lengths = torch.tensor([len(graph.arcs) for graph in graphs], dtype=torch.int64)
    targets, word_rows = torch.from_numpy(rows), torch.from_numpy(words)
    return (targets[0], lengths, word_rows[0]) if alone else (targets, lengths, word_rows)


def as_graph_batch(
    logits: Tensor,
    targets: Sequence[TranscriptGraph] | TranscriptGraph,
    input_lengths: Lengths,
    blank: int,
    wildcards: Wildcards | None,
    arc_weights: Tensor | None = None,
) -> GraphBatch:
    """Check the arguments of a caller, and give each wildcard its weight.

    Args:
        logits: (T, N, C), or (T, C), which becomes a batch of one.
        targets: One graph for each utterance.
        input_lengths: (N,) frames of each utterance.
        blank: The label of the blank.
        wildcards: The weights of the wildcard arcs; None for none.
        arc_weights: (N, A) log-weights that are added to those of the token arcs.

    Returns:
        The batch.

    Raises:
        ValueError: A label, a length, a weight or a shape is wrong. The message names utterance and arc.
    """
    check_logits(logits, blank)
    if wildcards is not None and not isinstance(wildcards, Wildcards):
        raise TypeError(f"wildcards must be Wildcards or None, got {wildcards!r:.60}")
    one = logits.dim() == 2
    logits = logits.unsqueeze(1) if one else logits
    graphs = list_of_graphs(targets, logits.shape[1])
    check_labels(graphs, logits.shape[2], blank)
    lengths = lengths_of(input_lengths, "input_lengths", len(graphs), logits.device)
    check_lengths(lengths, "input_lengths", logits.shape[0], "T")
    batch = GraphBatch(logits, graphs, lengths, blank, None, None, None, None)
    given = wildcards or Wildcards()
    if arc_weights is not None and not isinstance(arc_weights, Tensor):
        raise ValueError(f"arc_weights is a {type(arc_weights).__name__}, must be a tensor with a weight for each arc")
    names = ("bypass", "self_loop", "word_bypass")
    tensors, numbers = [], []
    for i, weight in enumerate(getattr(given, name) for name in names):
        number = not isinstance(weight, Tensor)
        numbers.append(weight if number and weight is not None else ABSENT)  # checked by Wildcards
        tensors.append(None if number else _weight(names[i], weight, batch.widths[i], i, batch, one))
    added = None if arc_weights is None else _weight("arc_weights", arc_weights, batch.widths[0], 0, batch, one)
    batch = batch._replace(bypass=tensors[0], self_loop=tensors[1], word_bypass=tensors[2], arc_weights=added)
    batch = batch._replace(numbers=(float(numbers[0]), float(numbers[1]), float(numbers[2])))
    if given.self_loop is None or given.self_loop_at == "token":
        return batch
    batch = batch.each_weight()
    if batch.self_loop is None:
        return batch
    words = given.self_loop_at == "word"
    there = word_states(graphs, batch.widths[1], words).to(logits.device)
    return batch._replace(self_loop=torch.where(there, batch.self_loop, ABSENT))


def _of_number(number: float, batch: GraphBatch, family: int) -> Tensor:
    """(N, width) weights of one number, −inf in padding."""
    rows = np.full((len(batch.graphs), batch.widths[family]), ABSENT)
    for row, size in zip(rows, batch.sizes, strict=True):
        row[: size[family]] = number
    return torch.from_numpy(rows).to(batch.logits.device)


def _weight(name: str, weight: Tensor, width: int, family: int, batch: GraphBatch, one: bool) -> Tensor:
    """(N, width) weights, −inf in padding."""
    size, device = len(batch.graphs), batch.logits.device
    if one and weight.dim() == 1:
        weight = weight.unsqueeze(0)
    if not weight.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {weight.dtype}")
    if weight.dim() != 0 and (weight.dim() != 2 or weight.shape[0] != size or weight.shape[1] < width):
        raise ValueError(f"{name} must be a number or a tensor ({size}, {width} or more), got {shape_of(weight)}")
    weight = on_device(weight, device)
    each = weight.expand(size, width) if weight.dim() == 0 else weight[:, :width]
    counts = torch.tensor([row[family] for row in batch.sizes], dtype=torch.int64)
    there = torch.arange(width) < counts.reshape(-1, 1)
    each = torch.where(there.to(device), each, ABSENT)
    if device.type == "cpu":
        bad = (each.isnan() | (each == math.inf)).nonzero()
        if len(bad):
            n, i = bad[0].tolist()
            raise ValueError(f"utterance {n}: {name} weight {i} is {each[n, i].item()}, must be a number or -inf")
    return each


def word_states(graphs: Sequence[TranscriptGraph], states: int, words: bool = True) -> Tensor:
    """Find the states where a self-loop at words is.

    Args:
        graphs: N graphs.
        states: The width of the result.
        words: Whether words count, or the start and the ends alone.

    Returns:
        (N, Q) bool: the start, the ends, and the states where a word starts or ends.
    """
    found = torch.zeros(len(graphs), states, dtype=torch.bool)
    for n, graph in enumerate(graphs):
        at = [0, *(q for word in graph.words if words for q in (word.source, word.target))]
        at += [q for q, weight in enumerate(graph.final) if weight > ABSENT]
        found[n, at] = True
    return found
