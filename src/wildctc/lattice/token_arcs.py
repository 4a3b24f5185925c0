"""The arcs of a transcript graph: checking them, and removing those without a label (specification §10)."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

_ABSENT = -math.inf
_MOST_STATES = 1_000_000  # a typing error in a number must not fill the memory
_MOST_LABELS = 2**31


@dataclass(frozen=True)
class RawArc:
    """An arc as the caller gives it. label None: nothing is emitted. word None: found from the states of the words."""

    source: int
    target: int
    label: int | None
    weight: float
    slot: int = -1
    alternative: int = -1
    first: bool = False
    word: int | None = None


class TokenArc(NamedTuple):
    """An arc that emits a token.

    Attributes:
        source: The state where it starts.
        target: The state where it ends.
        label: The token.
        weight: Its log-weight.
        skipped: The part of the weight that comes from arcs without a label before it. Its bypass pays it too.
        word: The number of its word or slot, −1 for none.
        slot: The slot that it belongs to, −1 for none.
        alternative: The number of its alternative in the slot, −1 for none.
        first: Whether it is the first of its alternative.
    """

    source: int
    target: int
    label: int
    weight: float = 0.0
    skipped: float = 0.0
    word: int = -1
    slot: int = -1
    alternative: int = -1
    first: bool = False


class WordArc(NamedTuple):
    """A word bypass.

    Attributes:
        source: The state where it starts.
        target: The state where it ends.
        word: The number of its weight.
        weight: A log-weight that is added, of arcs without a label before the word.
    """

    source: int
    target: int
    word: int
    weight: float = 0.0


def is_index(value: object) -> bool:
    """Tell whether a value can be a state or a label.

    Args:
        value: Anything.

    Returns:
        True for an integer of Python, NumPy or PyTorch.
    """
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def checked_arcs(
    arcs: Sequence[RawArc], final: Mapping[int, float], words: Sequence[tuple[int, int]]
) -> tuple[list[RawArc], dict[int, float], int]:
    """Check the arcs of one transcript, and bring them into an order that the lattice can walk.

    Args:
        arcs: As the caller gives them.
        final: state → log-weight.
        words: (start, end) states.

    Returns:
        The arcs, where each comes after all arcs that lead to its source; the final weights; and the number of states.

    Raises:
        ValueError: The message names the arc and says what is wrong.
    """
    arcs = [_checked_arc(i, arc) for i, arc in enumerate(arcs)]
    states = 1 + max((arc.target for arc in arcs), default=0)
    if states > _MOST_STATES:
        raise ValueError(f"states go up to {states - 1}; number them 0, 1, 2, … without large gaps")
    ends = {}
    for q, weight in final.items():
        if not is_index(q) or q < 0 or not _is_finite(weight):
            raise ValueError(f"final state {q} has weight {weight}; states go from 0, and weights must be finite")
        if q >= states:
            raise ValueError(f"the final state {q} cannot be reached from the start, 0")
        ends[int(q)] = float(weight)
    if not ends:
        raise ValueError("no state is final: no path leads to an end")
    for i, (start, end) in enumerate(words):
        if not 0 <= start < end < states:
            raise ValueError(
                f"word {i} goes from state {start} to {end}; it must lead forward, inside 0 to {states - 1}"
            )
    _check_paths(arcs, ends, states)
    return _walkable(arcs), ends, states


def _named(i: int, arc: RawArc) -> str:
    label = "no label" if arc.label is None else f"label {arc.label}"
    return f"arc {i} ({arc.source} → {arc.target}, {label})"


def _is_finite(weight: object) -> bool:
    try:
        return math.isfinite(weight)  # type: ignore[arg-type]
    except TypeError:
        return False


def _checked_arc(i: int, arc: RawArc) -> RawArc:
    if not is_index(arc.source) or not is_index(arc.target):
        raise ValueError(f"{_named(i, arc)}: states must be integers")
    if arc.source < 0 or arc.target <= arc.source:
        raise ValueError(
            f"{_named(i, arc)} does not lead forward: there is a cycle, or the states are not numbered so that every "
            "arc leads to a higher number"
        )
    if arc.label is not None and (not is_index(arc.label) or not 0 <= arc.label < _MOST_LABELS):
        raise ValueError(
            f"{_named(i, arc)}: a label must be an integer of at least 0 and below 2^31, or None for nothing"
        )
    if not _is_finite(arc.weight):
        raise ValueError(f"{_named(i, arc)}: its weight is {arc.weight}, must be finite; leave the arc out instead")
    label = None if arc.label is None else int(arc.label)
    return replace(arc, source=int(arc.source), target=int(arc.target), label=label, weight=float(arc.weight))


def _check_paths(arcs: Sequence[RawArc], final: Mapping[int, float], states: int) -> None:
    """Every arc must be on a path from state 0 to an end, and every end must be reached."""
    from_start, to_end = [q == 0 for q in range(states)], [q in final for q in range(states)]
    for arc in sorted(arcs, key=lambda a: a.source):
        from_start[arc.target] |= from_start[arc.source]
    for arc in sorted(arcs, key=lambda a: -a.target):
        to_end[arc.source] |= to_end[arc.target]
    for i, arc in enumerate(arcs):
        if not from_start[arc.source]:
            raise ValueError(f"{_named(i, arc)} cannot be reached: no path leads from the start, 0, to {arc.source}")
        if not to_end[arc.target]:
            raise ValueError(f"{_named(i, arc)} leads to no end: no path goes on from {arc.target} to a final state")
    for q in final:
        if not from_start[q]:
            raise ValueError(f"the final state {q} cannot be reached from the start, 0")


def _walkable(arcs: Sequence[RawArc]) -> list[RawArc]:
    last_into: dict[int, int] = {}
    for i, arc in enumerate(arcs):
        last_into[arc.target] = i
    if all(last_into.get(arc.source, -1) < i for i, arc in enumerate(arcs)):
        return list(arcs)
    return sorted(arcs, key=lambda arc: arc.target)


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def without_epsilon(
    arcs: Sequence[RawArc], final: Mapping[int, float], words: Sequence[tuple[int, int]], states: int
) -> tuple[list[TokenArc], list[float], list[WordArc]]:
    """Replace arcs without a label by the arcs and final weights that they stand for.

    What leaves the target of such an arc then also leaves its source, with both weights: token arcs with their
    bypasses, word bypasses, and ends. States that only such arcs led to lose their arcs.

    Args:
        arcs: Checked.
        final: state → log-weight.
        words: (start, end) states.
        states: The number of states.

    Returns:
        Token arcs, the final weight of each state, and word bypasses.

    Raises:
        ValueError: A path without any token goes through a transcript that has tokens, or a word has none.
    """
    closure = _closures(arcs, states)
    ends = [_ABSENT] * states
    for q in range(states):
        for other, weight in closure[q].items():
            if other in final:
                ends[q] = _log_add(ends[q], weight + final[other])
    tokens = [arc for arc in arcs if arc.label is not None]
    if tokens and ends[0] > _ABSENT:
        raise ValueError(f"the transcript can be left out as a whole: {_silent_path(arcs, final)}; add a token to it")
    live = {0} | {arc.target for arc in tokens}
    into = {q: [(p, closure[p][q]) for p in range(q, -1, -1) if p in live and q in closure[p]] for q in range(states)}
    word_of = _words_of(tokens, words)
    found = [
        TokenArc(p, a.target, a.label, a.weight + w, w, word_of[i], a.slot, a.alternative, a.first)  # type: ignore[arg-type]
        for i, a in enumerate(tokens)
        for p, w in into[a.source]
    ]
    bypasses = [WordArc(p, end, i, w) for i, (start, end) in enumerate(words) for p, w in into[start]]
    return found, [w if q in live else _ABSENT for q, w in enumerate(ends)], bypasses


def _closures(arcs: Sequence[RawArc], states: int) -> list[dict[int, float]]:
    """For each state the states that arcs without a label lead to, with the weight of all ways together."""
    closure: list[dict[int, float]] = [{q: 0.0} for q in range(states)]
    silent = sorted((arc for arc in arcs if arc.label is None), key=lambda arc: -arc.source)
    for arc in silent:  # the last sources first: what they lead to is complete
        for q, weight in closure[arc.target].items():
            closure[arc.source][q] = _log_add(closure[arc.source].get(q, _ABSENT), arc.weight + weight)
    return closure


def _silent_path(arcs: Sequence[RawArc], final: Mapping[int, float]) -> str:
    """Name the arcs of a path without tokens from the start to an end."""
    ways: dict[int, list[int]] = {0: []}
    for i, arc in sorted(enumerate(arcs), key=lambda pair: pair[1].source):
        if arc.label is None and arc.source in ways:
            ways.setdefault(arc.target, [*ways[arc.source], i])
    path = next((ways[q] for q in final if q in ways), [])
    return (
        "its path of " + ", ".join(_named(i, arcs[i]) for i in path) + " has no token" if path else "state 0 is an end"
    )


def _words_of(tokens: Sequence[RawArc], words: Sequence[tuple[int, int]]) -> list[int]:
    """The word of each token arc: one whose start leads to the arc, and whose end the arc leads to."""
    found = [-1 if arc.word is None else arc.word for arc in tokens]
    for number, (start, end) in enumerate(words):
        after, before = {start}, {end}
        for arc in tokens:
            if arc.source in after and arc.target <= end:
                after.add(arc.target)
        if end not in after:
            raise ValueError(f"word {number}: no token arcs lead from its start, {start}, to its end, {end}")
        for arc in reversed(tokens):
            if arc.target in before and arc.source >= start:
                before.add(arc.source)
        for i, arc in enumerate(tokens):
            if arc.word is None and arc.source in after and arc.target in before:
                found[i] = number
    return found
