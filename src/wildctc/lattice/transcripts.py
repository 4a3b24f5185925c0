"""Transcripts that allow several writings: `TranscriptGraph` (specification §10)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from wildctc.lattice.slots import aligned_slots
from wildctc.lattice.token_arcs import RawArc, TokenArc, WordArc, checked_arcs, is_index, without_epsilon


class _Parts(NamedTuple):
    """What a graph is built from, before arcs without a label are removed."""

    arcs: list[RawArc]
    final: dict[int, float]
    words: list[tuple[int, int]]
    length: int
    slots: tuple[tuple[tuple[int, ...], ...], ...] = ()


class FlatGraph(NamedTuple):
    """A graph in arrays.

    Attributes:
        labels: (A,) int64.
        ends: (A, 2) int64: source and target of each token arc.
        weights: (A, 2): its weight, and the part of it that its bypass pays too.
        arc_words: (A,) int64: the word of each token arc, −1 for none.
        words: (word arcs, 3) int64: source, target, and the number of the word.
        word_weights: (word arcs,).
        final: (Q,).
    """

    labels: np.ndarray
    ends: np.ndarray
    weights: np.ndarray
    arc_words: np.ndarray
    words: np.ndarray
    word_weights: np.ndarray
    final: np.ndarray


@dataclass(frozen=True, repr=False)
class TranscriptGraph:
    """All acceptable writings of one utterance, as a graph without cycles. It is checked when it is made.

    States are numbered from 0, the start; every arc leads to a higher number. Weights are natural logarithms. Make one
    with `from_labels`, `from_slots`, `from_sequences`, `from_aligned` or `from_arcs`.

    Attributes:
        arcs: The token arcs. Arcs without a label have been replaced by the arcs that they stand for. `arcs[i]` is what
            index i means in posteriors, alignments and weights per arc.
        final: For each state its weight as an end, −inf where no writing ends.
        words: The word bypasses. Several can have the same number: their word starts in several states.
        num_words: How many words (or slots) there are.
        length: The tokens of the first writing, by which `reduction="mean"` divides.
        slots: The alternatives of each slot, as labels; empty if the graph was not made from slots.

    >>> print(TranscriptGraph.from_slots([[[5]], [[1, 2], [3]], [[4], []]]))
    5 {1 2|3} {4|}
    """

    arcs: tuple[TokenArc, ...]
    final: tuple[float, ...]
    words: tuple[WordArc, ...] = ()
    num_words: int = 0
    length: int = 0
    slots: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @classmethod
    def from_labels(cls, labels: Sequence[int], words: Sequence[int] | None = None) -> "TranscriptGraph":
        """Make the graph of one writing: a chain, for which every function does what it does for tensors.

        Args:
            labels: The tokens.
            words: The word of each token, −1 for none, as `word_ids` gives them; None: there are no word bypasses.

        Returns:
            The graph.
        """
        _check_alternative("the transcript", labels)
        arcs, spans = _branch(labels, words, (0, 0), 0.0, 0, len(labels)) if len(labels) else ([], [])
        arcs = [replace(arc, slot=-1, alternative=-1) for arc in arcs]
        return _build(_Parts(arcs, {len(labels): 0.0}, spans, len(labels)))

    @classmethod
    def from_slots(
        cls,
        slots: Sequence[Sequence[Sequence[int]]],
        weights: Sequence[Sequence[float]] | None = None,
        words: Sequence[bool] | None = None,
    ) -> "TranscriptGraph":
        """Make the graph of a sequence of slots, each with one or more alternatives.

        Args:
            slots: The alternatives of each slot, each a list of labels. An empty alternative makes the slot optional.
            weights: The log-weight of each alternative of each slot; None: all 0.
            words: Which slots are words, each with one word bypass; None: all.

        Returns:
            The graph.

        Raises:
            ValueError: A slot has no alternatives, a number is out of range, or all slots together can be left out.
        """
        _check_slots(slots, weights, words)
        arcs: list[RawArc] = []
        spans: list[tuple[int, int]] = []
        start = 0
        for i, alternatives in enumerate(slots):
            each = [0.0] * len(alternatives) if weights is None else weights[i]
            end = start + 1 + sum(max(len(labels) - 1, 0) for labels in alternatives)
            inner = start
            for j, labels in enumerate(alternatives):
                arcs += _alternative(labels, start, inner, end, each[j], i, j)
                inner += max(len(labels) - 1, 0)
            if (words is None or words[i]) and any(len(labels) for labels in alternatives):
                spans.append((start, end))
            start = end
        length = sum(len(alternatives[0]) for alternatives in slots)
        labels_of = tuple(tuple(tuple(map(int, labels)) for labels in alternatives) for alternatives in slots)
        return _build(_Parts(arcs, {start: 0.0}, spans, length, labels_of))

    @classmethod
    def from_sequences(
        cls,
        sequences: Sequence[Sequence[int]],
        weights: Sequence[float] | None = None,
        words: Sequence[Sequence[int]] | None = None,
    ) -> "TranscriptGraph":
        """Make the union of whole writings: one of them was said, nobody knows which.

        Args:
            sequences: The labels of each writing, none of them empty.
            weights: The log-weight of each writing; None: all 0.
            words: The word of each label of each writing, −1 for none; None: there are no word bypasses.

        Returns:
            The graph.
        """
        _check_sequences(sequences, weights, words)
        last = 1 + sum(max(len(labels) - 1, 0) for labels in sequences)
        arcs: list[RawArc] = []
        spans: list[tuple[int, int]] = []
        inner = 0
        for j, labels in enumerate(sequences):
            weight = 0.0 if weights is None else weights[j]
            more, new = _branch(labels, None if words is None else words[j], (inner, len(spans)), weight, j, last)
            arcs, spans, inner = arcs + more, spans + new, inner + max(len(labels) - 1, 0)
        slots = (tuple(tuple(map(int, labels)) for labels in sequences),)
        return _build(_Parts(arcs, {last: 0.0}, spans, len(sequences[0]), slots))

    @classmethod
    def from_aligned(cls, sequences: Sequence[Sequence[Sequence[int]]], shares: bool = False) -> "TranscriptGraph":
        """Align several writings word by word, and let each word be taken from any of them.

        Args:
            sequences: Each a list of words, each word a list of labels.
            shares: Whether an alternative has the logarithm of its share of the writings as weight. If not, it is 0.

        Returns:
            The graph, with a slot for each place.

        >>> print(TranscriptGraph.from_aligned([[[1], [2, 3], [4]], [[1], [5], [4]], [[1], [4]]]))
        1 {2 3|5|} 4
        """
        if not sequences:
            raise ValueError("there are no sequences; give at least one")
        for j, sequence in enumerate(sequences):
            for i, word in enumerate(sequence):
                _check_alternative(f"word {i} of sequence {j}", word)
        slots = aligned_slots([[tuple(word) for word in sequence] for sequence in sequences])
        logs = [[math.log(count / len(sequences)) if shares else 0.0 for count in slot.values()] for slot in slots]
        return cls.from_slots([list(slot) for slot in slots], logs)

    @classmethod
    def from_arcs(
        cls,
        arcs: Sequence[tuple[int, int, int | None] | tuple[int, int, int | None, float]],
        final: Mapping[int, float] | None = None,
        words: Sequence[tuple[int, int]] = (),
    ) -> "TranscriptGraph":
        """Make a graph from its arcs.

        The arcs keep their order if each comes after all arcs that lead to its source. If not, they are sorted by the
        states that they lead to.

        Args:
            arcs: (source, target, label) or (source, target, label, log-weight). The label None means that nothing is
                emitted. Every arc must lead to a higher number, which also means that there is no cycle.
            final: The states where a writing ends, with their log-weights; None: the last state, with weight 0.
            words: (start, end) states of the words, each with one word bypass.

        Returns:
            The graph.

        Raises:
            ValueError: An arc leads backwards, is on no path from the start to an end, or has a wrong label or weight.
        """
        for i, arc in enumerate(arcs):
            if len(arc) not in (3, 4):
                raise ValueError(
                    f"arc {i} is {arc}, must be (source, target, label) or (source, target, label, weight)"
                )
        raw = [RawArc(arc[0], arc[1], arc[2], arc[3] if len(arc) > 3 else 0.0) for arc in arcs]
        if final is None:
            final = {max((arc.target for arc in raw if is_index(arc.target)), default=0): 0.0}
        elif not isinstance(final, Mapping):
            raise ValueError(f"final must be a mapping from state to log-weight, got a {type(final).__name__}")
        return _build(_Parts(raw, dict(final), [(int(s), int(e)) for s, e in words], -1))

    @property
    def num_states(self) -> int:
        """The number of states."""
        return len(self.final)

    @cached_property
    def flat(self) -> FlatGraph:
        """The graph in arrays, for batches. They are made once."""
        arcs, words = self.arcs, self.words
        return FlatGraph(
            np.array([a.label for a in arcs], dtype=np.int64),
            np.array([(a.source, a.target) for a in arcs], dtype=np.int64).reshape(-1, 2),
            np.array([(a.weight, a.skipped) for a in arcs], dtype=np.float64).reshape(-1, 2),
            np.array([a.word for a in arcs], dtype=np.int64),
            np.array([(w.source, w.target, w.word) for w in words], dtype=np.int64).reshape(-1, 3),
            np.array([w.weight for w in words], dtype=np.float64),
            np.array(self.final, dtype=np.float64),
        )

    @cached_property
    def label_range(self) -> tuple[int, int]:
        """The lowest and the highest label; (0, −1) if there is none."""
        labels = [arc.label for arc in self.arcs]
        return (min(labels), max(labels)) if labels else (0, -1)

    @cached_property
    def is_chain(self) -> bool:
        """Whether the graph is one writing without weights, whose words follow one another."""
        states = range(self.num_states)
        ends = all((w == 0.0) if q == len(self.arcs) else (w == -math.inf) for q, w in enumerate(self.final))
        steps = all((a.source, a.target, a.weight) == (i, i + 1, 0.0) for i, a in enumerate(self.arcs))
        numbers = [w.word for w in self.words]
        apart = all(a.target <= b.source for a, b in zip(self.words, self.words[1:], strict=False))
        return ends and steps and len(states) == len(self.arcs) + 1 and apart and numbers == list(range(len(numbers)))

    def word_of_each_arc(self) -> list[int]:
        """Tell which word each token arc belongs to.

        Returns:
            The number of the word, −1 for none; of words that overlap the one that starts last.
        """
        return [arc.word for arc in self.arcs]

    def __str__(self) -> str:
        """The slots, as in `5 {1 2|3} {4|}`; of other graphs the arcs and the weights of the ends."""
        if self.slots:
            return " ".join(_slot_text(slot) for slot in self.slots)
        if self.is_chain:
            return " ".join(str(arc.label) for arc in self.arcs)
        arcs = ", ".join(f"{a.source}→{a.target}: {a.label}{_weight_text(a.weight)}" for a in self.arcs)
        ends = ", ".join(f"{q}{_weight_text(w)}" for q, w in enumerate(self.final) if w > -math.inf)
        return f"{arcs}; ends at {ends}"

    def __repr__(self) -> str:
        return f"<TranscriptGraph {self!s:.200}>"


def _check_alternative(name: str, labels: object) -> None:
    """Check that an alternative is a list of labels, whose values `checked_arcs` checks."""
    if not isinstance(labels, Sequence | np.ndarray | Tensor) or isinstance(labels, str):
        raise ValueError(f"{name} must be a list of labels, got {labels!r:.60}")
    if not all(is_index(label) for label in labels):
        wrong = next(label for label in labels if not is_index(label))
        raise ValueError(f"{name} has label {wrong!r:.60}: a label must be an integer of at least 0")


def _check_count(name: str, given: Sequence[Any] | None, wanted: int, what: str) -> None:
    if given is not None and len(given) != wanted:
        raise ValueError(f"{name} must hold one item for each of the {wanted} {what}, got {len(given)}")


def _check_slots(
    slots: Sequence[Sequence[Sequence[int]]], weights: Sequence[Sequence[float]] | None, words: Sequence[bool] | None
) -> None:
    _check_count("weights", weights, len(slots), "slots")
    _check_count("words", words, len(slots), "slots")
    for i, alternatives in enumerate(slots):
        if not len(alternatives):
            raise ValueError(f"slot {i} has no alternatives; give it at least one, which may be empty: [[]]")
        for j, labels in enumerate(alternatives):
            _check_alternative(f"alternative {j} of slot {i}", labels)
        if weights is not None and len(weights[i]) != len(alternatives):
            raise ValueError(f"slot {i} has {len(alternatives)} alternatives, but {len(weights[i])} weights")


def _check_sequences(
    sequences: Sequence[Sequence[int]], weights: Sequence[float] | None, words: Sequence[Sequence[int]] | None
) -> None:
    if not len(sequences):
        raise ValueError("there are no sequences; give at least one")
    _check_count("weights", weights, len(sequences), "sequences")
    _check_count("words", words, len(sequences), "sequences")
    for j, labels in enumerate(sequences):
        _check_alternative(f"sequence {j}", labels)


def _alternative(
    labels: Sequence[int], start: int, inner: int, end: int, weight: float, slot: int, number: int
) -> list[RawArc]:
    """The arcs of one alternative from `start` to `end`; the states between are those after `inner`."""
    if not len(labels):
        return [RawArc(start, end, None, weight, slot, number)]
    states = [start, *range(inner + 1, inner + len(labels)), end]
    return [
        RawArc(states[i], states[i + 1], label, weight if i == 0 else 0.0, slot, number, i == 0)
        for i, label in enumerate(labels)
    ]


def _branch(
    labels: Sequence[int], words: Sequence[int] | None, first: tuple[int, int], weight: float, number: int, end: int
) -> tuple[list[RawArc], list[tuple[int, int]]]:
    """The arcs of a whole writing, and the states that its words join. `first`: of its inner states and its words."""
    if words is not None and len(words) != len(labels):
        raise ValueError(f"words must hold the word of each of the {len(labels)} labels, got {len(words)}")
    arcs = _alternative(labels, 0, first[0], end, weight, 0, number)
    spans: list[tuple[int, int]] = []
    words = [] if words is None else [int(word) for word in words]
    for i, word in enumerate(words):
        if word >= 0 and i and words[i - 1] == word:
            spans[-1] = (spans[-1][0], arcs[i].target)
        elif word >= 0:
            if word in words[:i]:
                raise ValueError(f"words are not contiguous: word {word} at label {i} comes again after other labels")
            spans.append((arcs[i].source, arcs[i].target))
        arcs[i] = replace(arcs[i], word=first[1] + len(spans) - 1 if word >= 0 else -1)
    return arcs, spans


def _build(parts: _Parts) -> TranscriptGraph:
    raw, ends, states = checked_arcs(parts.arcs, parts.final, parts.words)
    arcs, final, words = without_epsilon(raw, ends, parts.words, states)
    length = parts.length if parts.length >= 0 else _first_writing(arcs, final)
    return TranscriptGraph(tuple(arcs), tuple(final), tuple(words), len(parts.words), length, parts.slots)


def _first_writing(arcs: Sequence[TokenArc], final: Sequence[float]) -> int:
    """The tokens on the path that always takes the first arc, to the first end that has no arc or is final."""
    first: dict[int, int] = {}
    for arc in arcs:
        first.setdefault(arc.source, arc.target)
    state = count = 0
    while state in first and (count == 0 or final[state] == -math.inf):
        state, count = first[state], count + 1
    return count


def _slot_text(alternatives: Sequence[Sequence[int]]) -> str:
    texts = [" ".join(map(str, labels)) for labels in alternatives]
    return texts[0] if len(texts) == 1 and texts[0] else "{" + "|".join(texts) + "}"


def _weight_text(weight: float) -> str:
    return f" ({weight:.3g})".replace("-", "−") if weight else ""
