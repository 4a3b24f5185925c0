"""Draw experiments as SVG. A criterion has the same colour and mark in all pictures."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from wildctc.errors import MissingExtra
from wildctc.experiments.criteria_tables import AgainstControl
from wildctc.experiments.differences import Difference, Spread
from wildctc.experiments.systems import CONTROL, System, describe
from wildctc.experiments.wer_matrix import CTC, PAPER_CRITERIA, Rates, reduction

# Okabe and Ito's colours, which the colour-blind can tell apart; words are warm, tokens blue
_COLOURS = {
    "ctc": "#333333",
    "otc-w": "#e69f00",
    "otc-w-tuned": "#8a7d00",
    "otc-t": "#0072b2",
    "otc-t-h": "#56b4e9",
    "otc-tw": "#d55e00",
    "otc-tw-h": "#cc79a7",
    "btc": "#009e73",
    "w-ctc": "#a6761d",
    "stc": "#b2182b",
    "otc-t-em": "#004c78",
    "otc-w-em": "#5c5200",
    "otc-tw-em": "#7a3b9c",
}
_MARKERS = dict(zip(_COLOURS, "osPD^vXhd8<>*", strict=True))
_LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))  # settings of a criterion
_STYLE: Any = {
    "svg.hashsalt": "wildctc",  # the same numbers give the same file
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
}


@contextmanager
def _drawing(width: float, height: float) -> Iterator[tuple[Any, Callable[[], str]]]:
    """An empty figure, and what turns it into SVG."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "train") from None

    def svg() -> str:
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()

    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, svg


# ------------------------------------------------------------------------------------------------------ learning curves

_PANELS = {
    "Held-out WER (%), greedy": ("valid_wer", 100.0),
    "Held-out predictive entropy": ("entropy", 1.0),
    "Letters bypassed in training transcripts (%)": ("bypass_posterior_train", 100.0),
}


def draw_learning_curves(systems: Sequence[System], title: str = "") -> str:
    """Draw curves by epoch: the mean over seeds, and a thin line for each seed. Shared epochs are drawn as plain CTC.

    Args:
        systems: The systems of one task; those without metrics are not drawn.
        title: What the legend's title begins with.

    Returns:
        SVG.
    """
    systems = [system for system in systems if any(run.metrics for run in system.runs.values())]
    shared = max(_shared(system) for system in systems)
    with _drawing(10, 9.6) as (figure, svg):
        wer, entropy, doubts, names, *weights = figure.subplots(3, 2, sharex=True).flat
        for axes, (heading, (name, scale)) in zip((wer, entropy, doubts), _PANELS.items(), strict=True):
            axes.set_title(heading)
            for system, line in _with_lines(systems):
                _curve(axes, system, name, scale, line)
            axes.set_ylim(bottom=0)
        _zoom(wer, systems)
        for axes, (heading, name) in zip(weights, _WEIGHTS.items(), strict=True):
            axes.set_title(heading)
            _weights(axes, systems, name)
        for axes in (wer, entropy, doubts, *weights):
            axes.set_xlabel("epoch; left of the dashes: plain CTC, shared by a seed" if shared else "epoch")
            axes.tick_params(labelbottom=True)
            if shared:
                axes.axvline(shared + 0.5, color="#888888", linestyle=(0, (2, 3)), linewidth=1)
            axes.xaxis.get_major_locator().set_params(integer=True)
        names.set_axis_off()
        heading = f"{title}: means over seeds, thin: single seeds\nbelow, thin on thick: the same weights".lstrip(": ")
        names.legend(*wer.get_legend_handles_labels(), loc="center", title=heading)
        return svg()


def _shared(system: System) -> int:
    """How many epochs of plain CTC the runs started with."""
    return max(run.config.get("training", {}).get("ctc_epochs", 0) for run in system.runs.values())


def _curve(axes: Any, system: System, name: str, scale: float, line: Any) -> None:
    runs = _by_epoch(system, name, scale)
    colour = _COLOURS[system.criterion]
    for run in runs if len(runs) > 1 else []:
        axes.plot(list(run), list(run.values()), color=colour, linewidth=0.6, alpha=0.35)
    means = _mean_by_epoch(system, name, scale)
    count = f", {len(runs)} seed{'s' * (len(runs) > 1)}"
    axes.plot(list(means), list(means.values()), color=colour, ls=line, lw=1.8, label=system.name + count)


def _zoom(axes: Any, systems: Sequence[System]) -> None:
    """The first epochs are far above the others, where criteria differ: show the range of the later half."""
    rates = [[100 * m["valid_wer"] for m in run.metrics] for system in systems for run in system.runs.values()]
    late = [rate for run in rates for rate in run[len(run) // 3 :]]
    if late:
        margin = 0.1 * (max(late) - min(late)) + 0.5
        axes.set_ylim(min(late) - margin, max(late) + margin)


_WEIGHTS = {"Log-weight of a token bypass": "bypass", "Log-weight of a word bypass": "word_bypass"}


def _weights(axes: Any, systems: Sequence[System], name: str) -> None:
    having = [(system, line) for system, line in _with_lines(systems) if _mean_by_epoch(system, name)]
    for i, (system, line) in enumerate(having):
        means = _mean_by_epoch(system, name)
        width = 1.5 + 3 * (1 - i / max(1, len(having) - 1))  # of equal schedules all are seen: thin on thick
        axes.plot(list(means), list(means.values()), color=_COLOURS[system.criterion], ls=line, lw=width)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_yticks([-20, -5, -1, -0.2, -0.05, 0], ["−20", "−5", "−1", "−0.2", "−0.05", "0"])
    axes.minorticks_off()
    if not having:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes)


def _by_epoch(system: System, name: str, scale: float = 1.0) -> list[dict[int, float]]:
    """A metric of each run by epoch, without shared epochs and epochs that do not have it."""
    first = 1 if system.criterion == CONTROL else _shared(system) + 1
    histories = [[m for m in run.metrics if m["epoch"] >= first] for run in system.runs.values()]
    return [{m["epoch"]: scale * m[name] for m in history if m.get(name) is not None} for history in histories]


def _mean_by_epoch(system: System, name: str, scale: float = 1.0) -> dict[int, float]:
    runs = _by_epoch(system, name, scale)
    epochs = sorted({epoch for run in runs for epoch in run})
    return {epoch: float(np.mean([run[epoch] for run in runs if epoch in run])) for epoch in epochs}


def _with_lines(systems: Sequence[System]) -> Iterator[tuple[System, Any]]:
    """Each with a kind of line: settings of one criterion differ in it."""
    seen: dict[str, int] = {}
    for system in systems:
        number = seen[system.criterion] = seen.get(system.criterion, -1) + 1
        yield system, _LINES[number % len(_LINES)]


# --------------------------------------------------------------------------------------------------- differences to CTC


def draw_differences(compared: Sequence[AgainstControl]) -> str:
    """Draw WER and CER minus those of plain CTC, with 95% intervals and a dot for each seed.

    Args:
        compared: The systems; those without a difference are not drawn.

    Returns:
        SVG.
    """
    rows = [one for one in compared if one.paired]
    tasks = list(dict.fromkeys(one.system.task for one in rows))
    with _drawing(10, 1.3 + 0.42 * len(rows)) as (figure, svg):
        panels = figure.subplots(1, 2, sharey=True)
        for axes, title, rate in zip(panels, ("Δ WER", "Δ CER"), ("wer", "cer"), strict=True):
            for place, one in enumerate(rows):
                _difference(axes, place, one.system.criterion, getattr(one.paired, rate))
            axes.axvline(0, color=_COLOURS[CONTROL], linewidth=1)
            axes.set_title(f"{title} to {CONTROL}, points; 95% interval; dots: seeds")
            axes.set_xlabel(f"left of the line: fewer errors than {CONTROL}")
            axes.grid(axis="y", visible=False)
            axes.locator_params(axis="x", nbins=6)
        several = "{}: " if len(tasks) > 1 else ""
        names = [several.format(one.system.task) + one.system.name for one in rows]
        panels[0].set_yticks(range(len(rows)), names)
        panels[0].set_ylim(len(rows) - 0.5, -0.5)
        return svg()


def _difference(axes: Any, place: int, criterion: str, difference: Difference) -> None:
    colour = _COLOURS[criterion]
    seeds = 100 * np.array(list(difference.by_seed.values()))
    if len(seeds) > 1:
        axes.plot(seeds, [place + 0.24] * len(seeds), ".", color=colour, markersize=4, alpha=0.6)
    axes.plot([100 * difference.low, 100 * difference.high], [place] * 2, color=colour, linewidth=2)
    axes.plot([100 * difference.value], [place], _MARKERS[criterion], color=colour, markersize=7)


# --------------------------------------------------------------------------------------------------------------- sweeps


def draw_sweep(systems: Sequence[System]) -> str:
    """Draw WER against a parameter, as in the paper's Figure 2: plain CTC dashed, the best setting circled.

    The parameter is the first one of the settings. Each combination of the other parameters has its own line.

    Args:
        systems: The systems, plain CTC included.

    Returns:
        SVG.
    """
    swept = [system for system in systems if system.setting and system.finished]
    parameter = next(iter(swept[0].setting))
    lines: dict[str, list[tuple[float, Spread]]] = {}
    for system in swept:
        other = describe({name: value for name, value in system.setting.items() if name != parameter})
        line = lines.setdefault(f"{system.criterion}, {other}" if other else system.criterion, [])
        line.append((float(system.setting[parameter]), _wer(system)))
    with _drawing(5.4, 3.8) as (figure, svg):
        axes = figure.subplots()
        for (name, points), style in zip(lines.items(), _LINES, strict=False):
            _sweep_line(axes, sorted(points), style, swept[0].criterion, name)
        control = [_wer(system) for system in systems if system.criterion == CONTROL and system.finished]
        if control:
            axes.axhline(control[0].mean, color=_COLOURS[CONTROL], linestyle="--", linewidth=1.4, label=CONTROL)
        value, best = min((point for points in lines.values() for point in points), key=lambda point: point[1].mean)
        axes.plot(value, best.mean, "o", markersize=15, fillstyle="none", color="#222222")
        axes.set_xlabel(parameter)
        axes.set_ylabel("WER (%)")
        axes.legend()
        return svg()


def _sweep_line(axes: Any, points: list[tuple[float, Spread]], line: Any, criterion: str, name: str) -> None:
    values, spreads = zip(*points, strict=True)
    deviations = [0.0 if math.isnan(wer.deviation) else wer.deviation for wer in spreads]
    style = {"color": _COLOURS[criterion], "marker": _MARKERS[criterion], "linestyle": line}
    axes.errorbar(values, [x.mean for x in spreads], deviations, capsize=2, markersize=5, label=name, **style)


def _wer(system: System) -> Spread:
    return Spread.of([100 * run.errors().rate for run in system.finished.values()])


# --------------------------------------------------------------------------------------------------- the paper's tables


def draw_rates(measured: Rates, published: Rates) -> str:
    """Draw the relative reduction of WER against CTC on each task.

    Args:
        measured: What was measured: filled marks.
        published: What was published: hollow marks.

    Returns:
        SVG.
    """
    with _drawing(8, 1.8 + 0.42 * len(measured.tasks)) as (figure, svg):
        axes = figure.subplots()
        ours, theirs = reduction(measured.wer), reduction(published.wer)
        for j, criterion in enumerate(PAPER_CRITERIA):
            if j != CTC:
                places = np.arange(len(measured.tasks)) + (j - len(PAPER_CRITERIA) / 2) * 0.1
                style = {"color": _COLOURS[criterion], "marker": _MARKERS[criterion], "linestyle": "none"}
                axes.plot(theirs[:, j], places, fillstyle="none", markersize=6, alpha=0.7, **style)
                axes.plot(ours[:, j], places, markersize=6, label=criterion, **style)
        for place in range(1, len(measured.tasks)):
            axes.axhline(place - 0.5, color="#e6e6e6", linewidth=0.8)
        axes.axvline(0, color=_COLOURS[CONTROL], linewidth=1)
        axes.set_yticks(range(len(measured.tasks)), measured.tasks)
        axes.set_ylim(len(measured.tasks) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("relative reduction of WER against CTC (%); hollow: as published")
        figure.legend(loc="outside lower center", ncols=6)
        return svg()
