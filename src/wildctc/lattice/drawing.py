"""Draw a transcript graph, as in the paper's Figure 1: tokens along a line, bypasses above, self-loops below.

A long transcript is drawn in several rows, which break between words. The last state of a row is drawn again, pale, at
the start of the next row.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby

from torch import Tensor

from wildctc.lattice.arcs import ABSENT, Wildcards

_INK, _BYPASS, _LOOP, _WORD = "#1f2937", "#b45309", "#0f766e", "#6d28d9"
_DASHES = {_INK: "none", _BYPASS: "7 5", _LOOP: "2 4", _WORD: "12 4 2 4"}
_TINTS = ("#eff4fb", "#fdf3e7")  # behind one word and the next
_FONTS = "DejaVu Sans, Noto Sans, Verdana, sans-serif"

# Pixels.
_ROW = 1060  # the most that the arcs of a row may take
_MARGIN = 52
_RADIUS = 17
_STEP = 66  # from one state to the next; more if the token is long or there are few tokens
_NARROWEST = 640
_LETTER = 11
_RISE = 58, 118  # of the control points of a bypass and of a word bypass; the apex is at three quarters of it
_SINK = 52  # of a self-loop


@dataclass(frozen=True)
class _Word:
    """A word, from state `start` to state `end`."""

    start: int
    end: int
    text: str


def draw_graph(tokens: Sequence[str], words: Sequence[int], wildcards: Wildcards, title: str = "") -> str:
    """Draw the graph of a transcript as SVG.

    Args:
        tokens: The strings of the tokens; a space is a token, or ▁ begins a piece.
        words: The word of each token, −1 for none (see `word_ids`).
        wildcards: Which arcs there are. Weights that are numbers are shown in the legend.
        title: A line above the graph; none if it is empty.

    Returns:
        The SVG document.

    >>> svg = draw_graph(list("a b"), [0, 1, 1], Wildcards(bypass=-5.0), "otc-t, epoch 1")
    >>> svg.count('class="token"'), svg.count('class="bypass"'), svg.count('class="self-loop"')
    (3, 3, 0)
    """
    _check_words(tokens, words)
    wildcards = _present(wildcards)
    graph = _Graph(tokens, words, wildcards)
    rows = _rows([graph.width(u) for u in range(len(tokens))], graph.words)
    drawn = [_Row(graph, *row) for row in rows]
    width = max(_NARROWEST, *(row.width for row in drawn))
    body, y = [], 56 if title else 20
    if title:
        body.append(_text(_MARGIN - 30, 36, html.escape(title), size=16, anchor="start"))
    for row in drawn:
        body += row.draw(y + graph.above)
        y += graph.above + graph.below
    legend = _legend(wildcards, y + 14)
    height = y + 40 + 26 * (len(legend) // 2 - 1)
    markers = "".join(_marker(colour) for colour in _DASHES)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{_FONTS}">',
        f"<title>{html.escape(f'Transcript graph of {graph.sentence!r}. {title}')}</title>",
        f"<defs>{markers}</defs>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        *body,
        *legend,
        "</svg>\n",
    ])  # fmt: skip


def _check_words(tokens: Sequence[str], words: Sequence[int]) -> None:
    if len(words) != len(tokens):
        raise ValueError(f"words must hold the word of each of the {len(tokens)} tokens, got {len(words)}")
    found = [word for word, _ in groupby(words) if word >= 0]
    if len(set(found)) < len(found):
        raise ValueError(f"words are not contiguous: {list(words)}; number words 0, 1, 2, … from left to right")


def _present(wildcards: Wildcards) -> Wildcards:
    """Replace weights of −inf by None: such families have no arcs."""
    weights = {name: getattr(wildcards, name) for name in ("bypass", "self_loop", "word_bypass")}
    absent = {name: None for name, w in weights.items() if not isinstance(w, Tensor) and w == ABSENT}
    return replace(wildcards, **absent)  # type: ignore[arg-type]


class _Graph:
    """What is drawn, and the space that it takes above and below the line of tokens."""

    def __init__(self, tokens: Sequence[str], words: Sequence[int], wildcards: Wildcards) -> None:
        self.tokens, self.wildcards = [shown(token) for token in tokens], wildcards
        self.words = list(_words(tokens, words))
        self.sentence = "".join(tokens).replace("▁", " ").strip()
        ends = {0, len(tokens)}
        edges = {state for word in self.words for state in (word.start, word.end)}
        places = {"token": set(range(len(tokens) + 1)), "word": ends | edges, "end": ends}
        self.loops = places[wildcards.self_loop_at]
        rises = [r for r, w in zip(_RISE, (wildcards.bypass, wildcards.word_bypass), strict=True) if w is not None]
        self.top = _RADIUS + 16 + round(0.75 * max(rises, default=14))  # the words' names are above this
        self.above = self.top + 30
        self.below = 84 if wildcards.self_loop is not None else 40
        self.step = min(130, max(_STEP, (_NARROWEST - 2 * _MARGIN) // max(1, len(tokens))))

    def width(self, token: int) -> int:
        return max(self.step, 2 * _RADIUS + 24 + _LETTER * len(self.tokens[token]))


def _words(tokens: Sequence[str], words: Sequence[int]) -> Iterator[_Word]:
    for word, group in groupby(range(len(tokens)), key=lambda u: words[u]):
        inside = list(group)
        if word >= 0:
            text = "".join(tokens[u] for u in inside).replace("▁", " ").strip()
            yield _Word(inside[0], inside[-1] + 1, "".join(map(_visible, text)))


def _rows(widths: list[int], words: list[_Word]) -> list[tuple[int, int]]:
    """Choose the first and last state of each row: as many words as fit. A word that is too long takes several rows."""
    ends = {word.end for word in words}
    rows, first, last_end, taken = [], 0, 0, 0
    for u, width in enumerate(widths):
        if taken + width > _ROW and u > first:
            cut = last_end if last_end > first else u
            rows.append((first, cut))
            first, taken = cut, sum(widths[cut:u])
        taken += width
        if u + 1 in ends:
            last_end = u + 1
    return [*rows, (first, len(widths))]


class _Row:
    """States first…last on one line."""

    def __init__(self, graph: _Graph, first: int, last: int) -> None:
        self.graph, self.first, self.last = graph, first, last
        steps = accumulate((graph.width(u) for u in range(first, last)), initial=_MARGIN)
        self.x = dict(zip(range(first, last + 1), steps, strict=True))
        self.width = self.x[last] + _MARGIN

    def draw(self, y: int) -> list[str]:
        """Draw the row with its tokens on the line at y: first words, then arcs, then states on top."""
        wildcards, final = self.graph.wildcards, len(self.graph.tokens)
        found = [self._name(word, number, y) for number, word in enumerate(self.graph.words) if self._has(word)]
        if self.first == 0:
            found.append(_path("start", _INK, f"M{_MARGIN - 44} {y} H{_MARGIN - _RADIUS - 2}"))
        for u in range(self.first, self.last):
            found += self._token(u, y, final=u + 1 == final)
        if wildcards.word_bypass is not None:
            found += [self._word_bypass(word, y) for word in self.graph.words if self._has(word)]
        for state, x in self.x.items():
            pale = state == self.first > 0
            if wildcards.self_loop is not None and state in self.graph.loops and not pale:
                found += _loop(x, y, outer=4 * (state == final))
            found.append(_state(x, y, state, pale, final=state == final))
        return found

    def _has(self, word: _Word) -> bool:
        return word.start < self.last and word.end > self.first

    def _name(self, word: _Word, number: int, y: int) -> str:
        """Draw the background, the bar and the text of a word."""
        left, right = self.x[max(word.start, self.first)], self.x[min(word.end, self.last)]
        top, height = y - self.graph.top - 24, self.graph.top + self.graph.below
        return (
            f'<rect x="{left}" y="{top}" width="{right - left}" height="{height}" rx="6" fill="{_TINTS[number % 2]}"/>'
            f'<path d="M{left + 8} {top + 24} H{right - 8}" stroke="#c3c9d4"/>'
            + _text((left + right) / 2, top + 18, html.escape(_cut(word.text, (right - left) // 9)), "#6b7280", 14)
        )

    def _token(self, u: int, y: int, final: bool) -> list[str]:
        left, right, outer = self.x[u], self.x[u + 1], 4 * final
        middle = (left + right) / 2
        found = [
            _path("token", _INK, f"M{left + _RADIUS} {y} H{right - _RADIUS - 2 - outer}"),
            _text(middle, y - 8, html.escape(self.graph.tokens[u]), size=17),
        ]
        if self.graph.wildcards.bypass is not None:
            found += _bypass(left, right, y, outer)
        return found

    def _word_bypass(self, word: _Word, y: int) -> str:
        """Draw a word bypass: up, along and down; of an arc over several rows, the part in this row."""
        top = y - _RADIUS - round(0.75 * _RISE[1])
        begins, ends = self.first <= word.start, word.end <= self.last
        left = self.x[word.start] if begins else self.x[self.first] - 30
        right = self.x[word.end] if ends else self.x[self.last] + 30
        bend = min(50, (right - left) // 2)
        end = y - _RADIUS - 1 - 4 * (word.end == len(self.graph.tokens))
        curve = f"M{left + 4} {y - _RADIUS + 2} C{left + 8} {top} {left + 20} {top} {left + bend} {top}"
        curve = curve if begins else f"M{left} {top}"
        curve += f" H{right - bend} C{right - 20} {top} {right - 8} {top} {right - 4} {end}" if ends else f" H{right}"
        star = _text((left + right) / 2 if ends else left + bend, top - 4, "★", _WORD)
        name = "word-bypass" if begins else "word-bypass-continued"
        return _path(name, _WORD, curve, arrow=ends) + (star if begins else "")


def _bypass(left: int, right: int, y: int, outer: int) -> list[str]:
    begin, end, top = y - _RADIUS + 3, y - _RADIUS - 1 - outer, y - _RADIUS - _RISE[0]
    curve = f"M{left + 10} {begin} C{left + 22} {top} {right - 22} {top} {right - 10} {end}"
    star = _text((left + right) / 2, y - _RADIUS - round(0.75 * _RISE[0]) - 4, "★", _BYPASS)
    return [_path("bypass", _BYPASS, curve), star]


def _loop(x: int, y: int, outer: int) -> list[str]:
    begin = y + _RADIUS + outer - 2
    curve = f"M{x - 8} {begin} C{x - 30} {begin + _SINK} {x + 30} {begin + _SINK} {x + 9} {begin + 2}"
    return [_path("self-loop", _LOOP, curve), _text(x, begin + _SINK + 2, "★", _LOOP)]


def _state(x: int, y: int, number: int, pale: bool, final: bool) -> str:
    ring = (
        f'<circle cx="{x}" cy="{y}" r="{_RADIUS + 4}" fill="#fff" stroke="{_INK}" stroke-width="1.6"/>' if final else ""
    )
    look = 'fill="#fff" stroke="#9ca3af" stroke-dasharray="3 3"' if pale else f'fill="#f3f4f6" stroke="{_INK}"'
    circle = f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" {look} stroke-width="1.6"/>'
    return ring + circle + _text(x, y + 5, str(number), "#9ca3af" if pale else _INK, 14 if number < 1000 else 11)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _legend(wildcards: Wildcards, y: int) -> list[str]:
    rows = [("token", _INK, 0.0, "the transcript as written")]
    rows += [
        (name, colour, weight, meaning)
        for name, colour, weight, meaning in (
            ("bypass", _BYPASS, wildcards.bypass, "this token is not what was said"),
            ("word bypass", _WORD, wildcards.word_bypass, "this word is not what was said"),
            ("self-loop", _LOOP, wildcards.self_loop, "speech that the transcript lacks"),
        )
        if isinstance(weight, int | float)
    ]
    found = []
    for number, (name, colour, weight, meaning) in enumerate(rows):
        line = y + 26 * number
        found.append(_path("key", colour, f"M{_MARGIN - 30} {line} h46"))
        label = f"{name}, weight {f'{weight:.3g}'.replace('-', '−')}: {meaning}"
        found.append(_text(_MARGIN + 28, line + 5, label, _INK, 14, "start"))
    return found


def _path(name: str, colour: str, curve: str, arrow: bool = True) -> str:
    end = f' marker-end="url(#arrow-{colour[1:]})"' if arrow else ""
    dashes = f' stroke-dasharray="{_DASHES[colour]}"' if colour != _INK else ""
    return f'<path class="{name}" d="{curve}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}{end}/>'


def _text(x: float, y: float, escaped: str, colour: str = _INK, size: int = 16, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" font-size="{size}" text-anchor="{anchor}">{escaped}</text>'


def _marker(colour: str) -> str:
    return (
        f'<marker id="arrow-{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5 L10 5 L0 9.5 z" fill="{colour}"/></marker>'
    )


def shown(token: str) -> str:
    """Write a token visibly: a space as ␣, a mark on a dotted circle, an invisible character by its code.

    Args:
        token: The string of a token.

    Returns:
        What is drawn for it.

    >>> shown(" "), shown("a"), shown("\\u0301"), shown("\\u200d")
    ('␣', 'a', '◌́', 'U+200D')
    """
    if token == " ":
        return "␣"
    if all(unicodedata.category(char)[0] in "CZ" for char in token):
        return " ".join(f"U+{ord(char):04X}" for char in token)
    text = "".join(map(_visible, token))
    return f"◌{text}" if unicodedata.category(text[0]).startswith("M") else text


def _visible(char: str) -> str:
    # XML cannot contain control characters and surrogates
    return f"U+{ord(char):04X}" if unicodedata.category(char) in ("Cc", "Cs", "Cn") else char
