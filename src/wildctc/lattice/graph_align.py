"""From the best path through a transcript graph to spans of its token arcs, and to the alternative of each slot."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wildctc.lattice.arcs import ABSENT
from wildctc.lattice.token_arcs import WordArc
from wildctc.lattice.transcripts import TranscriptGraph

_BLANK, _TOKEN, _STAR = 0, 1, 2
_BYPASS, _SELF_LOOP, _WORD_BYPASS = 1, 2, 3


class Frame(NamedTuple):
    """What a path does in one frame, as the backends tell it (`graph_native.best_path`)."""

    place: int
    state: int
    arc: int
    via: int


class Piece(NamedTuple):
    """A token or a ★ on the path.

    Attributes:
        kind: 0 a token, 1 a bypass, 2 a self-loop, 3 a word bypass.
        arcs: The token arcs that it takes, or takes the place of. Of a word bypass those of the word's first writing.
        start: Its first frame.
        end: The frame after its last one.
        word: The word or slot of a word bypass, otherwise −1.
    """

    kind: int
    arcs: list[int]
    start: int
    end: int
    word: int


def pieces(graph: TranscriptGraph, path: Sequence[Frame]) -> list[Piece]:
    """Cut a path into tokens and ★s.

    Args:
        graph: The graph.
        path: Each frame of the path.

    Returns:
        The pieces, in order of time.
    """
    found: list[Piece] = []
    before = None
    for t, frame in enumerate(path):
        same_token = before is not None and frame.state == before.state == _TOKEN and frame.place == before.place
        if same_token or (frame.state == _STAR and frame.arc == 0):
            found[-1] = found[-1]._replace(end=t + 1)
        elif frame.state == _TOKEN:
            found.append(Piece(0, [frame.place], t, t + 1, -1))
        elif frame.state == _STAR:
            found.append(_star(graph, frame, t))
        before = frame
    return found


def _star(graph: TranscriptGraph, frame: Frame, t: int) -> Piece:
    if frame.arc == _BYPASS:
        return Piece(_BYPASS, [frame.via], t, t + 1, -1)
    if frame.arc == _SELF_LOOP:
        return Piece(_SELF_LOOP, [], t, t + 1, -1)
    word = graph.words[frame.via]
    return Piece(_WORD_BYPASS, first_writing(graph, word), t, t + 1, word.word)


def first_writing(graph: TranscriptGraph, word: WordArc) -> list[int]:
    """Find the token arcs of the first writing of a word.

    Args:
        graph: The graph.
        word: One of its word arcs.

    Returns:
        Their numbers. Arcs of other words, such as an optional one before it, are taken only if there is no other way.
    """
    own: dict[int, list[int]] = {word.source: []}
    ways = dict(own)
    for i, arc in enumerate(graph.arcs):  # each comes after all arcs that lead to its source
        if arc.source in own and arc.word == word.word:
            own.setdefault(arc.target, [*own[arc.source], i])
        if arc.source in ways:
            ways.setdefault(arc.target, [*ways[arc.source], i])
    return own.get(word.target, ways.get(word.target, []))


def alternatives(graph: TranscriptGraph, found: Sequence[Piece]) -> list[int | None]:
    """Tell which alternative of each slot a path takes.

    Args:
        graph: The graph.
        found: The pieces of the path.

    Returns:
        For each slot the number of its alternative, whose tokens may be bypassed one by one; None if a word bypass
        takes the place of the whole slot.
    """
    taken: list[int | None] = [slot.index(()) if () in slot else None for slot in graph.slots]
    for piece in found:
        if piece.kind in (0, _BYPASS) and graph.slots:
            arc = graph.arcs[piece.arcs[0]]
            if arc.slot >= 0:
                taken[arc.slot] = arc.alternative
        elif piece.kind == _WORD_BYPASS and graph.slots:
            for slot in {graph.arcs[i].slot for i in piece.arcs} - {-1}:
                if not _written(graph, found, slot):
                    taken[slot] = None
    return taken


def _written(graph: TranscriptGraph, found: Sequence[Piece], slot: int) -> bool:
    """Whether a path has tokens of a slot, bypassed one by one or not."""
    return any(piece.kind in (0, _BYPASS) and graph.arcs[piece.arcs[0]].slot == slot for piece in found)


def next_arcs(graph: TranscriptGraph, found: Sequence[Piece]) -> Iterator[int]:
    """Tell for each piece which token arc comes next on the path.

    Args:
        graph: The graph.
        found: The pieces of the path.

    Yields:
        Its number; the number of arcs where none comes.
    """
    for i in range(len(found)):
        yield next((piece.arcs[0] for piece in found[i + 1 :] if piece.arcs), len(graph.arcs))


def needed_frames(graph: TranscriptGraph, bypass: Sequence[float] | None, words: Sequence[float] | None) -> float:
    """Count the frames of the shortest path: the recursion of the specification, §10, with min and 1.

    Args:
        graph: The graph.
        bypass: The weight of the bypass beside each token arc; None: there are none.
        words: The weight of each word's bypass; None: there are none.

    Returns:
        The fewest frames.
    """
    far = float("inf")
    into: list[list[int]] = [[] for _ in range(graph.num_states)]
    token: list[float] = []
    blank, star = [0.0] + [far] * (graph.num_states - 1), [far] * graph.num_states
    by_target: list[list[int]] = [[] for _ in range(graph.num_states)]
    for i, arc in enumerate(graph.arcs):
        by_target[arc.target].append(i)
    token = [far] * len(graph.arcs)

    def either(q: int) -> float:
        return min([blank[q], *(token[i] for i in into[q])])

    for q in range(graph.num_states):  # arcs lead to higher numbers
        for i in by_target[q]:
            arc = graph.arcs[i]
            before = [token[j] for j in into[arc.source] if graph.arcs[j].label != arc.label]
            token[i] = 1 + min([blank[arc.source], star[arc.source], *before])
            if bypass is not None and bypass[i] > ABSENT:
                star[q] = min(star[q], 1 + either(arc.source))
        for word in graph.words:
            if word.target == q and words is not None and words[word.word] > ABSENT:
                star[q] = min(star[q], 1 + either(word.source))
        into[q] = by_target[q]
        if q:
            blank[q] = 1 + min([star[q], *(token[i] for i in into[q])])
    ends = (q for q, weight in enumerate(graph.final) if weight > ABSENT)
    return min((min(either(q), star[q]) for q in ends), default=far)
