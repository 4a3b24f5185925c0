"""What a run found out about its transcripts: the noise rates of the corpus and of its groups, with intervals."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.rate_table import FAMILIES, PRIOR_MEAN, RateTable
from wildctc.tensor_files import load_tensors
from wildctc.terminal import table
from wildctc.training.build import make_criterion
from wildctc.training.run_folder import LAST, checkpoint_folder, has_checkpoint, read_settings

CORPUS = "whole corpus"
_TITLES = {"token": "tokens wrong", "word": "words wrong", "unwritten": "unwritten speech"}
_UNITS = {"token": "tokens", "word": "words", "unwritten": "positions"}
_DRAWS = 20_000
_COLOURS = {"token": "#0072b2", "word": "#d55e00", "unwritten": "#009e73"}


@dataclass(frozen=True)
class RateEstimate:
    """A noise rate with its 95% interval.

    Attributes:
        rate: The estimate.
        low: The lower end of the interval.
        high: Its upper end.
        chances: How many tokens, positions or words it was estimated from.
    """

    rate: float
    low: float
    high: float
    chances: float


@dataclass(frozen=True)
class GroupRates:
    """The noise rates of a group of utterances.

    Attributes:
        name: The name of the group, or `CORPUS`.
        rates: Family → estimate.
    """

    name: str
    rates: dict[str, RateEstimate]


def read_rates(run: Path) -> list[GroupRates]:
    """Read the noise rates that a run has estimated.

    The interval is that of a Beta distribution, whose counts are the expected events and opportunities of the last
    epoch and the prior. It contains the uncertainty of few words, not that of a model which is wrong.

    Args:
        run: The run's folder.

    Returns:
        The corpus first, then its groups, if there are any, from the highest rate of wrong words or tokens down.

    Raises:
        WildCTCError: The run has no noise rates, or none yet.
    """
    criterion = make_criterion(read_settings(run))
    if criterion.rates is None:
        raise WildCTCError(f"{run}: its criterion is {criterion.name}, which has no noise rates; otc-tw-em has them")
    if not has_checkpoint(run):
        raise WildCTCError(f"{run}: no epoch has ended yet")
    state = load_tensors(checkpoint_folder(run) / LAST)[1]["criterion"].get("rates")
    if state is None:
        raise WildCTCError(f"{run}: there are only epochs of plain CTC so far, so no noise rates yet")
    criterion.group_by(state["groups"])
    criterion.rates.load_state_dict(state)
    return _all_groups(criterion.rates, run)


def _all_groups(found: RateTable, run: Path) -> list[GroupRates]:
    events, chances = found.last.numpy()
    if not chances.any():
        raise WildCTCError(f"{run}: no epoch with noise rates has ended yet")
    families = [family for family in ("word", "token", "unwritten") if family in found.families]
    rows = {family: FAMILIES.index(family) for family in families}
    rng = np.random.default_rng(0)

    def estimates(events: np.ndarray, chances: np.ndarray, means: Sequence[float]) -> dict[str, RateEstimate]:
        return {
            family: _estimate(rng, events[i], chances[i], found.prior, mean)
            for (family, i), mean in zip(rows.items(), means, strict=True)
        }

    corpus = [float(found.corpus[i]) for i in rows.values()]
    whole = GroupRates(CORPUS, estimates(events.sum(1), chances.sum(1), [PRIOR_MEAN] * len(rows)))
    if len(found.groups) == 1:
        return [whole]
    groups = [GroupRates(name, estimates(events[:, g], chances[:, g], corpus)) for g, name in enumerate(found.groups)]
    return [whole, *sorted(groups, key=lambda group: -group.rates[families[0]].rate)]


def _estimate(rng: np.random.Generator, events: float, chances: float, prior: float, mean: float) -> RateEstimate:
    wrong, right = events + prior * mean, chances - events + prior * (1 - mean)
    low, high = np.percentile(rng.beta(wrong, max(right, 1e-9), _DRAWS), [2.5, 97.5])
    return RateEstimate(wrong / (wrong + right), float(low), float(high), chances)


def rates_table(found: Sequence[GroupRates], by: str | None, most: int) -> str:
    """Format noise rates as a table.

    Args:
        found: The result of `read_rates`.
        by: What the groups are, such as "speaker".
        most: How many groups are shown.

    Returns:
        The lines: a rate in percent with its interval for each family.
    """
    families = list(found[0].rates)
    header = [by or "", *(column for family in families for column in (_TITLES[family], f"of {_UNITS[family]}"))]
    rows = [
        [group.name, *(cell for family in families for cell in _cells(group.rates[family]))]
        for group in found[: most + 1]
    ]
    more = len(found) - 1 - most
    return table(header, rows) + (f"\n{more} more groups have lower rates (--most)" if more > 0 else "")


def _cells(rate: RateEstimate) -> tuple[str, str]:
    return f"{100 * rate.rate:.2f}% [{100 * rate.low:.2f}, {100 * rate.high:.2f}]", f"{rate.chances:,.0f}"


def rates_tsv(found: Sequence[GroupRates]) -> str:
    """Format noise rates for a spreadsheet.

    Args:
        found: The result of `read_rates`.

    Returns:
        Tab-separated lines with a header: group, then rate, low, high and number for each family.
    """
    families = list(found[0].rates)
    header = ["group", *(f"{family}_{column}" for family in families for column in ("rate", "low", "high", "number"))]
    lines = ["\t".join(header)]
    for group in found:
        values = [x for f in families for x in (group.rates[f].rate, group.rates[f].low, group.rates[f].high)]
        numbers = [group.rates[f].chances for f in families]
        cells = [f"{x:.6g}" for i in range(len(families)) for x in (*values[3 * i : 3 * i + 3], round(numbers[i]))]
        lines.append("\t".join([group.name.replace("\t", " "), *cells]))
    return "\n".join(lines) + "\n"


def draw_rates(found: Sequence[GroupRates], by: str | None) -> bytes:
    """Draw noise rates: a panel for each family, a mark with its interval for each group, a line for the corpus.

    Args:
        found: The result of `read_rates`.
        by: What the groups are, such as "speaker".

    Returns:
        SVG. The same numbers give the same file.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "train") from None
    families, groups = list(found[0].rates), found[1:] or found
    with rc_context({"svg.hashsalt": "wildctc", "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.4 * len(families) + 1, 1.2 + 0.2 * len(groups)), layout="constrained")
        panels = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
        places = np.arange(len(groups))[::-1]
        for axes, family in zip(panels, families, strict=True):
            rates = [group.rates[family] for group in groups]
            value, low, high = (100 * np.array([getattr(r, name) for r in rates]) for name in ("rate", "low", "high"))
            errors = np.maximum([value - low, high - value], 0)
            axes.errorbar(value, places, xerr=errors, fmt="o", color=_COLOURS[family], markersize=4, elinewidth=1)
            axes.axvline(100 * found[0].rates[family].rate, color="grey", linewidth=0.8, linestyle=":")
            axes.set_title(f"{_TITLES[family]}, percent", loc="left")
            axes.set_xlim(left=0)
            axes.grid(axis="x", alpha=0.3)
        panels[0].set_yticks(places, [group.name for group in groups], fontsize="small")
        panels[0].set_ylabel(by or "")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
