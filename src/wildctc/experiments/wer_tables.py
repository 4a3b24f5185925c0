"""The paper's tables of word error rates: what was measured, what was published, and the difference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from wildctc.experiments.systems import PAPER_NAMES
from wildctc.experiments.table_formats import NONE, Cell, Table
from wildctc.experiments.wer_matrix import BEST, CTC, PAPER_CRITERIA, Rates, lowest, reduction

_HEADER = ["", *PAPER_NAMES.values(), "Δ"]


def rate_tables(title: str, measured: Rates, published: Rates) -> list[Table]:
    """Make the paper's Table 2: measured, published, and the difference.

    Args:
        title: What the titles begin with.
        measured: The measured rates.
        published: The published rates of the same tasks.

    Returns:
        Three tables.
    """
    notes = [*_seed_notes(measured), *_mark_notes(measured), *_missing_notes(measured), *_best_notes(measured)]
    return [
        _table(f"{title}, measured: WER (%)", measured, notes),
        _table(f"{title}, as published: WER (%)", published, _best_notes(published)),
        _difference_table(f"{title}, measured − published: points of WER", measured, published),
    ]


def turned_tables(title: str, measured: Rates, published: Rates) -> list[Table]:
    """Make the same tables in the form of the paper's Table 3: Δ is a row, of every criterion's average.

    Args:
        title: What the titles begin with.
        measured: The measured rates.
        published: The published rates of the same tasks.

    Returns:
        Three tables.
    """
    tables = [_without_delta(table) for table in rate_tables(title, measured, published)]
    for table, rates in zip(tables, (measured, published), strict=False):
        mean = rates.mean()
        cells = [Cell(number(x, 1), bold=bool(low)) for x, low in zip(reduction(mean), lowest(mean), strict=True)]
        table.rows.append([Cell("Δ"), Cell(NONE), *cells[1:]])
        table.notes[0] = "Δ: relative reduction (%) of the average against CTC; bold or *: lowest of the row, highest Δ"
    apart = reduction(measured.mean()) - reduction(published.where(measured).mean())
    tables[-1].rows.append([Cell("Δ"), Cell(NONE), *(Cell(number(x, 1, signed=True)) for x in apart[1:])])
    return tables


def _without_delta(table: Table) -> Table:
    return replace(table, header=table.header[:-1], rows=[x if isinstance(x, str) else x[:-1] for x in table.rows])


def _table(title: str, rates: Rates, notes: list[str]) -> Table:
    def row(i: int) -> list[Cell]:
        return [*(_cell(rates, i, j) for j in range(len(PAPER_CRITERIA))), _delta(rates.wer[i])]

    def average(_: str, part: Rates) -> list[Cell]:
        mean = part.mean()
        cells = [Cell(number(x), bold=bool(low)) for x, low in zip(mean, lowest(mean), strict=True)]
        return [*cells, _delta(mean)]

    note = "Δ: relative reduction (%) of TW_H against CTC; bold or *: lowest of the row"
    return Table(title, _HEADER, _rows(rates, row, average), [note, *notes])


def _difference_table(title: str, measured: Rates, published: Rates) -> Table:
    theirs = dict(published.where(measured).averages())

    def row(i: int) -> list[Cell]:
        return _differences(measured.wer[i], published.wer[i])

    def average(name: str, part: Rates) -> list[Cell]:
        return _differences(part.mean(), theirs[name].mean())

    return Table(title, _HEADER, _rows(measured, row, average), ["averages: over the same tasks of both"])


def _rows(
    rates: Rates, row: Callable[[int], list[Cell]], average: Callable[[str, Rates], list[Cell]]
) -> list[list[Cell] | str]:
    """Tasks with a heading for each corpus, then averages."""
    rows: list[list[Cell] | str] = []
    for i, (corpus, task) in enumerate(zip(rates.corpora, rates.tasks, strict=True)):
        rows += [corpus] if corpus not in rates.corpora[:i] else []
        rows.append([Cell(task), *row(i)])
    return [*rows, "", *([Cell(_of_how_many(name, x)), *average(name, x)] for name, x in rates.averages())]


def _cell(rates: Rates, i: int, j: int) -> Cell:
    mark = rates.marks.get((rates.tasks[i], PAPER_CRITERIA[j]), "")
    wer, spread = rates.wer[i, j], rates.spread[i, j]
    if math.isnan(wer):
        return Cell("diverged" if "‡" in mark else NONE)
    return Cell(number(wer) + ("" if math.isnan(spread) else f" ± {number(spread)}"), mark, bool(rates.best[i, j]))


def _delta(wer: np.ndarray) -> Cell:
    return Cell(number(reduction(wer)[BEST]))


def _differences(ours: np.ndarray, theirs: np.ndarray) -> list[Cell]:
    both = [*(ours - theirs), (reduction(ours) - reduction(theirs))[BEST]]
    return [Cell(number(x, signed=True)) for x in both]


def _of_how_many(name: str, part: Rates) -> str:
    complete = int(part.complete.sum())
    return name if complete == len(part.tasks) else f"{name}, {complete} of {len(part.tasks)} tasks"


# ---------------------------------------------------------------------------------------------------------------- notes


def _best_notes(rates: Rates) -> list[str]:
    """
    >>> from wildctc.experiments.published_tables import table2
    >>> _best_notes(table2())[0]
    'lowest WER on: TW_H 9, T_H 7, TW_e 5, T_e 3, W_e 1 of 25 tasks'
    """
    tasks = int(rates.complete.sum())
    if not tasks or rates.begun.sum() < 2:
        return []
    better = (rates.wer < rates.wer[:, CTC : CTC + 1]) & rates.complete[:, None]
    lines = []
    for what, counts in (("lowest WER", rates.best.sum(axis=0)), ("lower WER than CTC", better.sum(axis=0))):
        order = sorted(np.flatnonzero(counts), key=lambda j: -counts[j])
        named = ", ".join(f"{PAPER_NAMES[PAPER_CRITERIA[j]]} {counts[j]}" for j in order)
        lines.append(f"{what} on: {named or 'none'} of {tasks} task{'s' * (tasks > 1)}")
    return lines


def _seed_notes(rates: Rates) -> list[str]:
    seeds = rates.seeds[rates.seeds > 0]
    if not len(seeds) or seeds.max() == 1:
        return []
    many = f"{seeds.min()} to {seeds.max()}" if seeds.min() < seeds.max() else str(seeds.max())
    return [f"mean ± standard deviation of {many} seeds"]


def _mark_notes(rates: Rates) -> list[str]:
    marks = "".join(rates.marks.values())
    notes = ["†: diverged, and was run again with a stricter word bypass"] if "†" in marks else []
    return notes + (["‡, diverged: a run without a model"] if "‡" in marks else [])


def _missing_notes(rates: Rates) -> list[str]:
    absent = [name for name, begun in zip(PAPER_NAMES.values(), rates.begun, strict=True) if not begun]
    notes = [f"not run: {', '.join(absent)}"] if absent else []
    if not rates.complete.all():
        notes.append(f"{NONE}: not run; averages and counts are of tasks with all criteria that were run")
    return notes


# -------------------------------------------------------------------------------------------------------------- numbers


def number(value: float, digits: int = 2, *, signed: bool = False) -> str:
    """Format a number. Halves are rounded up, as in the paper.

    Args:
        value: The number; NaN for none.
        digits: Digits after the point.
        signed: Whether positive numbers get a +.

    Returns:
        The text, with a true minus sign.

    >>> number(9.575), number(-0.004, signed=True), number(math.nan)
    ('9.58', '0.00', '–')
    """
    if math.isnan(value):
        return NONE
    text = f"{value + math.copysign(1e-9, value):{'+' * signed}.{digits}f}"
    return text.strip("+-") if not float(text) else text.replace("-", "−")


def rate_records(measured: Rates, published: Rates) -> list[dict[str, Any]]:
    """Convert rates to records for CSV.

    Args:
        measured: The measured rates.
        published: The published rates of the same tasks.

    Returns:
        A record for each task and criterion.
    """
    lines = []
    for i, task in enumerate(measured.tasks):
        for j, criterion in enumerate(PAPER_CRITERIA):
            ours, theirs = float(measured.wer[i, j]), float(published.wer[i, j])
            line: dict[str, Any] = {"corpus": measured.corpora[i], "task": task, "criterion": criterion}
            line |= {"seeds": int(measured.seeds[i, j]), "wer": ours, "deviation": float(measured.spread[i, j])}
            line |= {"mark": measured.marks.get((task, criterion)), "published": theirs, "difference": ours - theirs}
            lines.append(line | {"published_mark": published.marks.get((task, criterion))})
    return lines
