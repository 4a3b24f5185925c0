"""The paper's Table 4: mean bypass probability where validators agree and where they do not.

A run's `audit["disagreement"]` is what `wildctc disagree --json` writes, for its model alone or for several models
under the names of their criteria. Units are pooled over tasks and seeds, as the paper pools them over languages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.experiments.published_tables import UNITS, table4
from wildctc.experiments.results import RunResult
from wildctc.experiments.systems import CONTROL, PAPER_NAMES
from wildctc.experiments.table_formats import Cell, Table
from wildctc.experiments.wer_tables import number

_SPLIT = "test"  # which the paper reports
_HEADER = ["", *(unit.replace("characters", "char.").replace("words", "word") for unit in UNITS)]
_BOLD = ("characters disputed", "words disputed")  # the columns whose highest the paper prints in bold


def _pooled_means(results: Sequence[RunResult]) -> tuple[dict[str, dict[str, float]], dict[str, int], list[str]]:
    """Means by criterion and units; numbers of units, the same for all criteria; the tasks that all criteria have."""
    parts: dict[tuple[str, str], list[dict[str, tuple[int, float]]]] = {}
    for run in results:
        if "disagreement" in run.audit:
            parts.setdefault((run.criterion, run.task), []).append(_units(run))
    criteria = [criterion for criterion in PAPER_NAMES if any(criterion == c for c, _ in parts)]
    tasks = [task for task in dict.fromkeys(task for _, task in parts) if all((c, task) in parts for c in criteria)]
    means: dict[str, dict[str, float]] = {}
    counts: dict[str, int] = {}
    for criterion in criteria:
        own = [part for task in tasks for part in parts[criterion, task]]
        sizes = {unit: sum(part[unit][0] for part in own) for unit in UNITS}
        sums = {unit: sum(count * mean for count, mean in (part[unit] for part in own) if count) for unit in UNITS}
        means[criterion] = {unit: sums[unit] / sizes[unit] if sizes[unit] else math.nan for unit in UNITS}
        counts = counts or {unit: sum(parts[criterion, task][0][unit][0] for task in tasks) for unit in UNITS}
    return means, counts, tasks


def _units(run: RunResult) -> dict[str, tuple[int, float]]:
    """Number and mean of each kind and class of units."""
    group = _group(run)
    found = {}
    for unit in UNITS:
        kind, _, of = unit.partition(" ")
        numbers = _own(run, group[kind]["systems"])
        mean = numbers.get(of, {}).get("mean", {}).get("value")
        found[unit] = group[kind]["units"].get(of, 0), math.nan if mean is None else float(mean)
    return found


def _group(run: RunResult) -> dict[str, Any]:
    """The numbers of the test set; if sets are not separated, those of all."""
    groups = run.audit["disagreement"]["groups"]
    return next((group for group in groups if group["split"] == _SPLIT), groups[0])


def _own(run: RunResult, systems: dict[str, Any]) -> dict[str, Any]:
    if len(systems) == 1:
        return next(iter(systems.values()))
    if run.criterion not in systems:
        raise WildCTCError(f"{run.task}, {run.criterion}: its disagreement is of {', '.join(systems) or 'no system'}")
    return systems[run.criterion]


def bypass_tables(results: Sequence[RunResult]) -> list[Table]:
    """Make Table 4: measured, published and the difference, and the change against CTC.

    Args:
        results: The results of runs; those without `disagreement` are ignored.

    Returns:
        The tables.
    """
    means, counts, tasks = _pooled_means(results)
    published = table4()
    notes = [f"pooled over {len(tasks)} task{'s' * (len(tasks) != 1)}: {', '.join(tasks)}"] if tasks else []
    notes += [f"units: {', '.join(f'{unit} {count:,}' for unit, count in counts.items())}"] if counts else []
    absent = [name for criterion, name in PAPER_NAMES.items() if criterion not in means]
    notes += [f"not run: {', '.join(absent)}"] if absent else []
    left_out = sorted({run.task for run in results} - set(tasks))
    notes += [f"left out, since not every criterion has them: {', '.join(left_out)}"] if left_out and means else []
    title = "Table 4: mean bypass probability"
    differences = {c: {unit: means[c][unit] - published[c][unit] for unit in UNITS} for c in means}
    compared = [run for run in results if run.task in tasks and "disagreement" in run.audit]
    if any(_group(run)["split"] != _SPLIT for run in compared):
        notes.append(f"of all sets together, and not of {_SPLIT} alone as in the paper")
    return [
        Table(f"{title}, measured", _HEADER, _rows(means), [*notes, "bold or *: highest on disputed units"]),
        Table(f"{title}, as published", _HEADER, _rows(published)),
        Table(f"{title}, measured − published", _HEADER, _rows(differences, signed=True)),
        *_change_tables(compared, means),
    ]


def _change_tables(results: Sequence[RunResult], means: dict[str, dict[str, float]]) -> list[Table]:
    """Are disputed characters bypassed more than by plain CTC, and in how many tasks?"""
    rows: list[list[Cell] | str] = []
    for criterion, row in means.items():
        against = [run for run in results if run.audit["disagreement"].get("baseline") == CONTROL]
        own = [_own(run, _group(run)["characters"]["systems"]) for run in against if run.criterion == criterion]
        tested = [numbers["disputed"] for numbers in own if "p" in numbers.get("disputed", {})]
        if tested and CONTROL in means:
            changes = [row[unit] / means[CONTROL][unit] - 1 for unit in ("characters disputed", "characters agreed")]
            higher = [one["p"] for one in tested if one["difference"]["value"] > 0]
            counts = [len(higher), sum(p < 0.001 for p in higher), len(tested)]
            cells = [*(number(100 * x, 1, signed=True) for x in changes), *map(str, counts)]
            rows.append([Cell(PAPER_NAMES[criterion]), *map(Cell, cells)])
    header = ["", "disputed, %", "agreed, %", "higher in", "p < 0.001 in", "of runs"]
    note = "%: change of the pooled mean; higher: disputed characters, paired bootstrap over a run's utterances"
    return [Table("Change against CTC, characters", header, rows, [note])] if rows else []


def _rows(means: dict[str, dict[str, float]], *, signed: bool = False) -> list[list[Cell] | str]:
    highest = {} if signed else {unit: max(row[unit] for row in means.values()) for unit in _BOLD if means}
    rows: list[list[Cell] | str] = []
    for criterion, row in means.items():
        cells = [Cell(number(row[unit], 3, signed=signed), bold=row[unit] == highest.get(unit)) for unit in UNITS]
        rows.append([Cell(PAPER_NAMES[criterion]), *cells])
    return rows


def bypass_records(results: Sequence[RunResult]) -> list[dict[str, Any]]:
    """Convert the means to records for CSV.

    Args:
        results: The results of runs.

    Returns:
        A record for each criterion, kind and class of units.
    """
    means, counts, _ = _pooled_means(results)
    return [
        {
            "criterion": criterion,
            "units": unit,
            "count": counts[unit],
            "mean": mean,
            "published": table4()[criterion][unit],
        }
        for criterion, row in means.items()
        for unit, mean in row.items()
    ]
