"""The best path through the lattice, as spans of tokens and of wildcards."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from wildctc.lattice import graph_native, graph_path, native, reference, triton_backend
from wildctc.lattice.arcs import ABSENT, Wildcards, as_lattice, padded_rows
from wildctc.lattice.backends import Backend, choose_backend, choose_graph_backend
from wildctc.lattice.band import best_path_in_band
from wildctc.lattice.checks import Lengths
from wildctc.lattice.functional import Targets, arcs_of, chain_or_batch, checked_targets
from wildctc.lattice.graph_align import Frame, alternatives, next_arcs, pieces
from wildctc.lattice.graph_batch import GraphBatch, are_graphs, check_no_lengths, list_of_graphs
from wildctc.lattice.memory import Memory
from wildctc.lattice.native import check_values
from wildctc.lattice.noise import NoiseRates
from wildctc.lattice.ops import eagerly
from wildctc.lattice.star import with_star
from wildctc.lattice.transcripts import TranscriptGraph

_BLANK, _TOKEN, _STAR = 0, 1, 2  # states of a backend's best path
_KINDS = {1: "bypass", 2: "self_loop", 3: "word_bypass"}


class Span(NamedTuple):
    """The frames of one token of the transcript.

    Attributes:
        index: The number of the token, from 0; of a graph, of its token arc.
        label: Its label.
        start: Its first frame.
        end: The frame after its last one.
        bypassed: Whether the path bypasses it. Its frames are then those of the ★ that takes its place.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    label: int
    start: int
    end: int
    bypassed: bool


class WildcardSpan(NamedTuple):
    """The frames of one ★, and the tokens that it takes the place of.

    Attributes:
        kind: The arc family.
        start: Its first frame.
        end: The frame after its last one.
        first: The first token that it replaces. A self-loop replaces none: it stands before this token. Of a graph it
            is the number of a token arc; a word bypass replaces the first writing of its word or slot.
        last: The last token that it replaces; for a self-loop first − 1.
    """

    kind: Literal["bypass", "self_loop", "word_bypass"]
    start: int
    end: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Alignment:
    """The best path of one utterance.

    Attributes:
        score: The log-probability of the path, weights of arcs included. −inf if there is no path, NaN if the logits
            are NaN; everything else is empty then.
        frames: (T,) what each frame emits: a label, the blank, or −1 for ★.
        tokens: The frames of each token, in the order of the transcript.
        wildcards: The frames of each ★, in order of time.
        symbols: label → string, for `str(alignment)`.
        alternatives: Of a graph made from slots, for each slot the number of the alternative that the path takes (its
            tokens may be bypassed one by one); None where a word bypass takes the place of the whole slot. Empty if
            there is no path, or no slots.
        band: None if the path is the best of all; else how many positions on either side of a guide were looked at.
    """

    score: float
    frames: Tensor
    tokens: list[Span] = field(default_factory=list)
    wildcards: list[WildcardSpan] = field(default_factory=list)
    symbols: Sequence[str] | None = None
    alternatives: list[int | None] = field(default_factory=list)
    band: int | None = None

    def __str__(self) -> str:
        """One line: tokens with their frames, a bypassed one in brackets, extra audio as ★.

        >>> spans = [Span(0, 1, 0, 2, False), Span(1, 2, 3, 4, True)]
        >>> stars = [WildcardSpan("bypass", 3, 4, 1, 1), WildcardSpan("self_loop", 5, 6, 2, 1)]
        >>> print(Alignment(-1.5, torch.tensor([1, 1, 0, -1, 0, -1]), spans, stars, ["-", "a", "b"]))
        -1.50  a 0-2  [b] 3-4  ★ 5-6
        """
        symbols = self.symbols
        name = str if symbols is None else symbols.__getitem__
        parts = [(s.start, s.index, f"[{name(s.label)}]" if s.bypassed else name(s.label), s.end) for s in self.tokens]
        parts += [(w.start, w.first, "★", w.end) for w in self.wildcards if w.kind == "self_loop"]
        return "  ".join([f"{self.score:.2f}"] + [f"{text} {start}-{end}" for start, _, text, end in sorted(parts)])


@eagerly
@torch.no_grad()
def wildcard_align(
    logits: Tensor,
    targets: Targets,
    input_lengths: Lengths,
    target_lengths: Lengths | None = None,
    blank: int = 0,
    *,
    wildcards: Wildcards | NoiseRates | None = None,
    words: Tensor | None = None,
    arc_weights: Tensor | None = None,
    backend: Backend = "auto",
    symbols: Sequence[str] | None = None,
    memory: Memory = None,
    band: int | None = None,
) -> list[Alignment]:
    """Find the best path of each utterance: the frames of each token, and which tokens and words are bypassed.

    Of two parallel arcs the better is taken; if they tie, the token arc.

    Args:
        logits: (T, N, C), or (T, C) for one utterance.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated; or a list of N `TranscriptGraph`s.
        input_lengths: (N,) frames of each utterance.
        target_lengths: (N,) labels of each transcript; None where targets are graphs.
        blank: The label of the blank.
        wildcards: The weights of the wildcard arcs, or noise rates; None for plain CTC.
        words: The word of each label, in the shape of the targets; needed by word arcs only (see `word_ids`). None
            where targets are graphs.
        arc_weights: (N, A) log-weights that are added to those of the token arcs of graphs.
        backend: As for `wildcard_ctc_loss`.
        symbols: label → string, to make `str(alignment)` readable.
        memory: As for `wildcard_ctc_loss`.
        band: Tokens on either side of a guide to which the path is kept, for recordings for which the best of all paths
            would take too long. The band is doubled until the path neither touches its edge nor gains by the doubling.
            None: no band. Needs the native backend.

    Returns:
        An alignment for each utterance. Its `band` says whether it is the best of all paths.

    >>> logits = torch.tensor([[0., 9, 0], [9, 0, 0], [0, 9, 0]]).unsqueeze(1)  # sounds like 1 1
    >>> wildcards = Wildcards(bypass=0.0)
    >>> print(wildcard_align(logits, torch.tensor([[1, 2]]), [3], [2], wildcards=wildcards, symbols="-ab")[0])
    -0.69  a 0-1  [b] 2-3
    """
    if symbols is not None and len(symbols) < logits.shape[-1]:
        raise ValueError(f"symbols must name each of the {logits.shape[-1]} outputs, got {len(symbols)}")
    if isinstance(wildcards, Wildcards) and wildcards.star is not None:
        starred = with_star(logits, input_lengths, blank, wildcards)
        there = wildcard_align(
            starred.logits, targets, input_lengths, target_lengths, blank, wildcards=starred.wildcards, words=words,
            arc_weights=arc_weights, backend=backend, memory=memory, band=band,
        )  # fmt: skip
        constants = starred.constant.reshape(-1).tolist()
        return [replace(a, score=a.score - c, symbols=symbols) for a, c in zip(there, constants, strict=True)]
    if are_graphs(targets):
        check_no_lengths(target_lengths, words)
        return _align_graphs(
            logits, targets, input_lengths, blank, wildcards, arc_weights, backend, symbols, memory, band
        )
    targets, target_lengths = checked_targets(targets, target_lengths, arc_weights)
    constant = None
    if isinstance(wildcards, NoiseRates):
        wildcards, constant = arcs_of(wildcards, logits, targets, target_lengths, words)
    lattice = as_lattice(logits, targets, input_lengths, target_lengths, blank, wildcards, words, memory)
    find = {"native": native.best_path, "triton": triton_backend.best_path, "reference": reference.best_path}
    chosen = choose_backend(backend, lattice)
    if chosen != "native":  # native.best_path checks the values itself
        check_values(lattice)
    widths: list[int | None] = [None] * lattice.logits.shape[1]
    if band is None:
        found = find[chosen](lattice)
    elif chosen != "native":
        raise ValueError(f"band needs the native backend, this is {chosen}")
    else:
        found, widths = best_path_in_band(lattice, band)
    score, position, state, arc = (x.cpu() for x in found)
    if constant is not None:
        score = score - constant.cpu().to(score.dtype)
    labels = padded_rows(lattice.targets, lattice.target_lengths, 0).tolist()
    starts = _word_starts(lattice.words, lattice.target_lengths)
    return [
        replace(_spans(score[n].item(), labels[n], starts[n] if starts else [], blank, symbols, path), band=widths[n])
        for n, path in enumerate(_paths(lattice.input_lengths, position, state, arc))
    ]


def _align_graphs(
    logits: Tensor,
    targets: Sequence[TranscriptGraph] | TranscriptGraph,
    input_lengths: Lengths,
    blank: int,
    wildcards: Wildcards | NoiseRates | None,
    arc_weights: Tensor | None,
    backend: Backend,
    symbols: Sequence[str] | None,
    memory: Memory,
    band: int | None,
) -> list[Alignment]:
    graphs = list_of_graphs(targets, None)
    batch = chain_or_batch(logits, graphs, input_lengths, blank, wildcards, arc_weights, memory)
    if isinstance(batch, GraphBatch):
        if band is not None:
            raise ValueError("a band is for single transcripts; leave band= out for graphs with alternatives")
        find = graph_native.best_path if choose_graph_backend(backend, batch) == "native" else graph_path.best_path
        score, *columns = find(batch)
        if batch.constant is not None:
            score = score - batch.constant.to(score)
        rows = zip(*(x.tolist() for x in columns), strict=True)
        paths = [[Frame(*f) for f in zip(*row, strict=True)] for row in rows]
        lengths = batch.input_lengths.tolist()
        return [
            _graph_spans(graphs[n], score[n].item(), paths[n][: lengths[n]], blank, symbols) for n in range(len(graphs))
        ]
    chain, chain_lengths, words = batch
    found = wildcard_align(
        logits, chain, input_lengths, chain_lengths, blank, wildcards=wildcards, words=words, backend=backend,
        symbols=symbols, memory=memory, band=band,
    )  # fmt: skip
    return [_of_chain(graph, alignment) for graph, alignment in zip(graphs, found, strict=True)]


def _of_chain(graph: TranscriptGraph, alignment: Alignment) -> Alignment:
    """The same, with the alternatives of slots, each of which has one."""
    if not graph.slots or alignment.score != alignment.score or alignment.score == ABSENT:
        return alignment
    taken: list[int | None] = [0] * len(graph.slots)
    for star in alignment.wildcards:
        if star.kind == "word_bypass":
            taken[graph.arcs[star.first].slot] = None
    return replace(alignment, alternatives=taken)


def _graph_spans(
    graph: TranscriptGraph, score: float, path: list[Frame], blank: int, symbols: Sequence[str] | None
) -> Alignment:
    if not score > ABSENT:
        return Alignment(score, torch.empty(0, dtype=torch.int64), symbols=symbols)
    emits = {_BLANK: lambda f: blank, _TOKEN: lambda f: graph.arcs[f.place].label, _STAR: lambda f: -1}
    frames = torch.tensor([emits[f.state](f) for f in path], dtype=torch.int64)
    found = pieces(graph, path)
    tokens, stars = [], []
    for piece, coming in zip(found, next_arcs(graph, found), strict=True):
        tokens += [Span(a, graph.arcs[a].label, piece.start, piece.end, piece.kind > 0) for a in piece.arcs]
        if piece.kind > 0:
            first, last = (piece.arcs[0], piece.arcs[-1]) if piece.arcs else (coming, coming - 1)
            stars.append(WildcardSpan(_KINDS[piece.kind], piece.start, piece.end, first, last))  # type: ignore[arg-type]
    return Alignment(score, frames, tokens, stars, symbols, alternatives(graph, found))


def _paths(lengths: Tensor, position: Tensor, state: Tensor, arc: Tensor) -> list[list[tuple[int, int, int]]]:
    columns = zip(lengths.tolist(), position.tolist(), state.tolist(), arc.tolist(), strict=True)
    return [list(zip(p[:t], s[:t], a[:t], strict=True)) for t, p, s, a in columns]


def _word_starts(words: Tensor | None, lengths: Tensor) -> list[list[int]]:
    """For each token, the first token of its word."""
    if words is None:
        return []
    found = []
    for row in padded_rows(words, lengths, -1).tolist():
        starts: list[int] = []
        for u, word in enumerate(row):
            starts.append(starts[-1] if u and word >= 0 and word == row[u - 1] else u)
        found.append(starts)
    return found


def _spans(
    score: float,
    labels: list[int],
    starts: list[int],
    blank: int,
    symbols: Sequence[str] | None,
    path: list[tuple[int, int, int]],
) -> Alignment:
    if not path or path[0][1] < 0:
        return Alignment(score, torch.empty(0, dtype=torch.int64), symbols=symbols)
    frames: list[int] = []
    tokens: list[Span] = []
    stars: list[WildcardSpan] = []
    for t, (k, state, arc) in enumerate(path):
        frames.append(blank if state == _BLANK else labels[k - 1] if state == _TOKEN else -1)
        if state == _TOKEN:
            if tokens and tokens[-1].index == k - 1:
                tokens[-1] = tokens[-1]._replace(end=t + 1)
            else:
                tokens.append(Span(k - 1, labels[k - 1], t, t + 1, False))
        elif state == _STAR and arc == 0:
            stars[-1] = stars[-1]._replace(end=t + 1)
        elif state == _STAR:
            first = {1: k - 1, 2: k, 3: starts[k - 1] if arc == 3 else k}[arc]
            stars.append(WildcardSpan(_KINDS[arc], t, t + 1, first, k - 1))  # type: ignore[arg-type]
    for star in stars:
        if star.kind != "self_loop":
            tokens += [Span(u, labels[u], star.start, star.end, True) for u in range(star.first, star.last + 1)]
    return Alignment(score, torch.tensor(frames), sorted(tokens), stars, symbols)
