"""Draw `wildctc disagree`: means on agreed and disputed units, and by the number of dissenters."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from wildctc.disagreement.by_class import DISPUTED, UNANIMOUS, Disputes
from wildctc.errors import MissingExtra

_COLOURS = ("#333333", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7d00")
_MARKERS = "osD^vPX*"
_PANELS = {"characters": "Characters", "words": "Words"}


def as_svg(disputes: Disputes) -> str:
    """Draw characters and words side by side: a mark for each system, with its 95% interval.

    Args:
        disputes: The numbers; there must be at least one system.

    Returns:
        The picture as SVG. The same numbers give the same file.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "train") from None
    style: Any = {"svg.hashsalt": "wildctc", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with rc_context(style):  # the salt: the same numbers give the same file
        width = 4.6 + 0.25 * len(disputes.classes)
        figure = Figure(figsize=(2 * width, 4.4), layout="constrained")
        panels = figure.subplots(1, len(_PANELS))
        for axes, (kind, title) in zip(panels, _PANELS.items(), strict=True):
            _draw(axes, disputes, kind)
            axes.set_title(title, loc="left", fontweight="bold")
            axes.set_xlabel("class of units, and their number; d: annotators who change them")
        panels[0].set_ylabel("mean bypass probability, 95% interval")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _draw(axes: Any, disputes: Disputes, kind: str) -> None:
    group = disputes.groups[0]
    counts, found = group.counts[kind], group.compared[kind]
    shown = [c for c in range(len(disputes.classes)) if c != UNANIMOUS and counts[c]]
    # a gap separates agreed and disputed from the classes by d, which are parts of "disputed"
    places = np.array([c if c <= DISPUTED else c - UNANIMOUS + DISPUTED + 0.6 for c in shown])
    systems = len(disputes.systems)
    for i, system in enumerate(disputes.systems):
        value, low, high = found.mean[i, shown].T
        offset = (i - (systems - 1) / 2) * 0.7 / max(systems, 4)
        axes.errorbar(
            places + offset,
            value,
            yerr=np.maximum([value - low, high - value], 0),  # rounding can make them negative where units are few
            fmt=_MARKERS[i % len(_MARKERS)],
            color=_COLOURS[i % len(_COLOURS)],
            markersize=5,
            capsize=2,
            elinewidth=1.2,
            label=system.name,
        )
    axes.set_xticks(places, [f"{disputes.classes[c]}\n{_thousands(int(counts[c]))}" for c in shown])
    axes.axvline(DISPUTED + 0.8, color="#cccccc", linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _thousands(count: int) -> str:
    """A count in few characters.

    >>> _thousands(390), _thousands(13_600), _thousands(1_014_000)
    ('390', '13.6k', '1.01M')
    """
    if count < 1000:
        return str(count)
    return f"{count / 1e3:.3g}k" if count < 999_500 else f"{count / 1e6:.3g}M"
