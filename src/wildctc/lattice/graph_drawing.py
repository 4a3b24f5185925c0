"""Draw a transcript graph with alternatives: the first writing along a line, the others below it.

States of the first writing are on a line. Every other way from one of its states to another is a branch, with a lane of
its own below the line where branches overlap. A long graph is drawn in several rows, which break at states that every
writing passes.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from wildctc.lattice import drawing as d
from wildctc.lattice.arcs import ABSENT, Wildcards
from wildctc.lattice.token_arcs import TokenArc
from wildctc.lattice.transcripts import TranscriptGraph

_LANE = 96  # pixels from one lane to the next
_LANE_LOOPS = 124  # the same where states have self-loops


@dataclass(frozen=True)
class _Branch:
    """A way that leaves what was drawn before at its first state and comes back at its last."""

    arcs: tuple[int, ...]
    states: tuple[int, ...]


def draw_transcript_graph(
    graph: TranscriptGraph, symbols: Sequence[str], wildcards: Wildcards | None = None, title: str = ""
) -> str:
    """Draw any transcript graph as SVG.

    Args:
        graph: The graph.
        symbols: label → string.
        wildcards: Which wildcard arcs there are. Weights that are numbers are shown in the legend.
        title: A line above the graph; none if it is empty.

    Returns:
        The SVG document.

    >>> graph = TranscriptGraph.from_slots([[[1]], [[2], [1, 3]], [[3], []]])
    >>> svg = draw_transcript_graph(graph, "-abc", Wildcards(bypass=-5.0, self_loop=-1.0))
    >>> svg.count('class="token"') == svg.count('class="bypass"') == len(graph.arcs)
    True
    """
    wildcards = d._present(wildcards or Wildcards())
    plan = _Plan(graph, [d.shown(symbol) for symbol in symbols], wildcards)
    rows = [_Row(plan, first, last) for first, last in plan.rows()]
    width = max(d._NARROWEST, *(row.width for row in rows))
    body, y = [], 56 if title else 20
    if title:
        body.append(d._text(d._MARGIN - 30, 36, html.escape(title), size=16, anchor="start"))
    for row in rows:
        body += row.draw(y + plan.above)
        y += plan.above + row.below
    legend = d._legend(wildcards, y + 14)
    height = y + 40 + 26 * (len(legend) // 2 - 1)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{d._FONTS}">',
        f"<title>{html.escape(f'Transcript graph with alternatives. {title}')}</title>",
        f"<defs>{''.join(d._marker(colour) for colour in d._DASHES)}</defs>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        *body,
        *legend,
        "</svg>\n",
    ])  # fmt: skip


class _Plan:
    """Where everything is, before it is cut into rows."""

    def __init__(self, graph: TranscriptGraph, symbols: Sequence[str], wildcards: Wildcards) -> None:
        self.graph, self.symbols, self.wildcards = graph, symbols, wildcards
        self.branches = _branches(graph)
        self.on_line = set(self.branches[0].states)
        self.x = self._places()
        self.lane_of = self._lanes()
        self.line_gap = _LANE if wildcards.self_loop is None else _LANE_LOOPS
        rises = [r for r, w in zip(d._RISE, (wildcards.bypass, wildcards.word_bypass), strict=True) if w is not None]
        self.above = d._RADIUS + 46 + round(0.75 * max(rises, default=14))
        self.loops = self._states_with_loops()

    def name(self, arc: TokenArc) -> str:
        text = self.symbols[arc.label] if arc.label < len(self.symbols) else str(arc.label)
        return text if not arc.weight else f"{text} {arc.weight:+.2f}".replace("-", "−")

    def _places(self) -> list[int]:
        """The x of each state: as far right as the longest way to it needs."""
        x = [0] * self.graph.num_states
        for arc in self.graph.arcs:  # each comes after all arcs that lead to its source
            step = max(d._STEP + 14, 2 * d._RADIUS + 30 + d._LETTER * len(self.name(arc)))
            x[arc.target] = max(x[arc.target], x[arc.source] + step)
        return x

    def _lanes(self) -> list[int]:
        """The lane of each branch: 0 is the line; others take the first below that is free where they are."""
        lanes, taken = [0], [[(-1, 10**9)]]
        for branch in self.branches[1:]:
            left, right = self.x[branch.states[0]], self.x[branch.states[-1]]
            lane = next(
                (i for i, spans in enumerate(taken) if all(right <= a or left >= b for a, b in spans)), len(taken)
            )
            taken += [[] for _ in range(lane + 1 - len(taken))]
            taken[lane].append((left, right))
            lanes.append(lane)
        return lanes

    def _states_with_loops(self) -> set[int]:
        used = {0, *(arc.target for arc in self.graph.arcs)}
        if self.wildcards.self_loop is None:
            return set()
        if self.wildcards.self_loop_at == "token":
            return used
        ends = {q for q, weight in enumerate(self.graph.final) if weight > ABSENT}
        words = self.graph.words if self.wildcards.self_loop_at == "word" else []
        return used & ({0} | ends | {q for word in words for q in (word.source, word.target)})

    def rows(self) -> list[tuple[int, int]]:
        """The first and last state of each row: they break at states that every writing and every word passes."""
        graph, line = self.graph, self.branches[0].states
        spans = [(a.source, a.target) for a in graph.arcs] + [(w.source, w.target) for w in graph.words]
        cuts = [q for q in line if not any(self.x[s] < self.x[q] < self.x[t] for s, t in spans)]
        found, first, last = [], line[0], line[0]
        for q in [*cuts[1:], line[-1]]:
            if self.x[q] - self.x[first] > d._ROW and last != first:
                found.append((first, last))
                first = last
            last = q
        return [*found, (first, line[-1])]


def _branches(graph: TranscriptGraph) -> list[_Branch]:
    """The first writing, then the other ways: each arc is in one branch."""
    left = dict(enumerate(graph.arcs))
    drawn: set[int] = set()
    found = []
    while left:
        start = min(left)
        arcs, states = [start], [graph.arcs[start].source, graph.arcs[start].target]
        while states[-1] not in drawn:
            following = [i for i, arc in left.items() if arc.source == states[-1]]
            if not following:
                break
            arcs.append(following[0])
            states.append(graph.arcs[following[0]].target)
        for i in arcs:
            del left[i]
        drawn |= set(states)
        found.append(_Branch(tuple(arcs), tuple(states)))
    return found or [_Branch((), (0,))]


class _Row:
    """The part of the graph from one state of the line to another."""

    def __init__(self, plan: _Plan, first: int, last: int) -> None:
        self.plan, self.first, self.last = plan, first, last
        x = plan.x
        self.shift = d._MARGIN - x[first]
        self.inside = {q for q in range(len(x)) if x[first] <= x[q] <= x[last]}
        self.width = x[last] - x[first] + 2 * d._MARGIN
        self.branches = [
            (branch, lane)
            for branch, lane in zip(plan.branches, plan.lane_of, strict=True)
            if lane == 0 or (branch.states[0] in self.inside and branch.states[-1] in self.inside)
        ]
        deepest = max(lane for _, lane in self.branches)
        self.below = deepest * plan.line_gap + (84 if plan.loops else 40)

    def draw(self, y: int) -> list[str]:
        """Draw the row, its line at y: first words and arcs, then states on top."""
        plan, graph = self.plan, self.plan.graph
        found: list[str] = []
        if self.first == 0:
            found.append(d._path("start", d._INK, f"M{d._MARGIN - 44} {y} H{d._MARGIN - d._RADIUS - 2}"))
        height = dict.fromkeys(plan.on_line, y)
        for branch, lane in self.branches[1:]:
            height.update({q: y + lane * plan.line_gap for q in branch.states if q not in height})
        for branch, lane in self.branches:
            for i in branch.arcs:
                arc = graph.arcs[i]
                if arc.source in self.inside and arc.target in self.inside and self._here(arc.source, arc.target):
                    found += self._arc(arc, height, y + lane * plan.line_gap)
        if plan.wildcards.word_bypass is not None:
            for word in graph.words:
                if word.source in self.inside and word.target in self.inside and self._here(word.source, word.target):
                    found += self._word(word.source, word.target, height)
        for q in sorted(self.inside & height.keys()):
            pale, final = q == self.first > 0, graph.final[q] > ABSENT
            x = plan.x[q] + self.shift
            if q in plan.loops and not pale:
                found += d._loop(x, height[q], outer=4 * final)
            found.append(d._state(x, height[q], q, pale, final))
        return found

    def _here(self, source: int, target: int) -> bool:
        return self.plan.x[source] < self.plan.x[self.last] and self.plan.x[target] > self.plan.x[self.first]

    def _arc(self, arc: TokenArc, height: dict[int, int], lane: int) -> list[str]:
        """Draw a token arc and its bypass: straight inside a lane, otherwise down to the lane and up again."""
        plan = self.plan
        left, right = plan.x[arc.source] + self.shift, plan.x[arc.target] + self.shift
        y1, y2 = height[arc.source], height[arc.target]
        outer = 4 * (plan.graph.final[arc.target] > ABSENT)
        name = html.escape(plan.name(arc))
        if y1 == y2 == lane:
            found = [d._path("token", d._INK, f"M{left + d._RADIUS} {lane} H{right - d._RADIUS - 2 - outer}")]
            middle, top = (left + right) / 2, lane
        else:
            a, b = (left + 12, y1 + 14) if y1 < lane else (left + d._RADIUS, y1)
            e, f = (right - 12, y2 + 14 + outer) if y2 < lane else (right - d._RADIUS - 2 - outer, y2)
            bend = min(36, (right - left) // 3)
            curve = f"M{a} {b} C{left + bend} {lane} {left + bend} {lane} {left + bend + 8} {lane} H{right - bend - 8}"
            curve += f" C{right - bend} {lane} {right - bend} {lane} {e} {f}" if y2 < lane else f" L{e} {f}"
            found = [d._path("token", d._INK, curve)]
            middle, top = (left + right) / 2, lane
        found.append(d._text(middle, top - 8, name, size=17))
        if plan.wildcards.bypass is not None:
            found += d._bypass(left, right, lane, outer) if y1 == y2 == lane else self._low_bypass(left, right, lane)
        return found

    def _low_bypass(self, left: int, right: int, lane: int) -> list[str]:
        """Draw the bypass of an arc that comes down to a lane: over its name, inside the lane."""
        begin, end = left + min(36, (right - left) // 3), right - min(36, (right - left) // 3)
        top = lane - 40
        curve = f"M{begin} {lane - 3} C{begin + 4} {top} {end - 4} {top} {end} {lane - 4}"
        return [
            d._path("bypass", d._BYPASS, curve),
            d._text((begin + end) / 2, top + 2, "★", d._BYPASS),
        ]

    def _word(self, source: int, target: int, height: dict[int, int]) -> list[str]:
        left, right = self.plan.x[source] + self.shift, self.plan.x[target] + self.shift
        top = height[self.first] - d._RADIUS - round(0.75 * d._RISE[1])
        bend = min(50, (right - left) // 2)
        outer = 4 * (self.plan.graph.final[target] > ABSENT)
        curve = f"M{left + 4} {height[source] - d._RADIUS + 2} C{left + 8} {top} {left + 20} {top} {left + bend} {top}"
        end = height[target] - d._RADIUS - 1 - outer
        curve += f" H{right - bend} C{right - 20} {top} {right - 8} {top} {right - 4} {end}"
        return [d._path("word-bypass", d._WORD, curve), d._text((left + right) / 2, top - 4, "★", d._WORD)]
