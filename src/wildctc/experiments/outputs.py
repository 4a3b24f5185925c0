"""Write the results of an experiment: tables as text, Markdown, CSV and LaTeX, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wildctc.experiments import published_tables as published
from wildctc.experiments.criteria_tables import (
    AgainstControl,
    addition_tables,
    compare_systems,
    error_table,
    length_tables,
    level_tables,
    records,
    training_table,
)
from wildctc.experiments.pictures import draw_differences, draw_learning_curves, draw_rates, draw_sweep
from wildctc.experiments.results import RunResult
from wildctc.experiments.systems import System, describe, group_runs
from wildctc.experiments.table4 import bypass_records, bypass_tables
from wildctc.experiments.table_formats import Table, as_csv, as_latex, as_markdown, as_text
from wildctc.experiments.wer_matrix import AVERAGES, Rates, measured
from wildctc.experiments.wer_tables import rate_records, rate_tables, turned_tables
from wildctc.files import make_folder, write_text

Results = Sequence[RunResult]


@dataclass(frozen=True)
class ExperimentOutput:
    """What is written about an experiment.

    Attributes:
        tables: The tables.
        records: The records of the CSV file.
        pictures: What follows the experiment's name in the file name → SVG.
    """

    tables: list[Table]
    records: list[dict[str, Any]]
    pictures: dict[str, str] = field(default_factory=dict)


def write_outputs(
    experiment: str, results: Results, out: Path, missing: Sequence[str], remarks: Sequence[str] = ()
) -> str:
    """Write OUT/EXPERIMENT.{txt,md,csv,tex} and the pictures.

    Args:
        experiment: The experiment's name.
        results: The results of its finished runs.
        out: The folder to write to.
        missing: A line about each run that is not done.
        remarks: What else a reader must know.

    Returns:
        The tables as text, with the names of the files. Without results nothing is written.
    """
    warning = [*_say_missing(missing, len(results)), *remarks]
    if not any(run.tests or run.audit for run in results):
        return "\n".join([*warning, f"{experiment}: no run has a result yet, so there is no table.\n"])
    report = REPORTS.get(experiment, _criteria)(experiment, results)
    make_folder(out)
    for end, picture in report.pictures.items():
        write_text(out / f"{experiment}{end}.svg", picture)
    shown = [f"![{experiment}{end}]({experiment}{end}.svg)" for end in report.pictures]
    text = "\n\n".join([*warning, *map(as_text, report.tables)]) + "\n"
    write_text(out / f"{experiment}.txt", text)
    write_text(out / f"{experiment}.md", "\n\n".join([*warning, *map(as_markdown, report.tables), *shown]) + "\n")
    remark = [f"% {line}" for line in warning]
    write_text(out / f"{experiment}.tex", "\n\n".join([*remark, *map(as_latex, report.tables)]) + "\n")
    write_text(out / f"{experiment}.csv", as_csv(report.records))
    count = len(report.pictures)
    drawn = f" and {count} picture{'s' * (count > 1)} (.svg)" if count else ""
    return f"{text}\nwritten: {out / experiment}.txt, .md, .csv, .tex{drawn}\n"


def _say_missing(missing: Sequence[str], done: int) -> list[str]:
    if not missing:
        return []
    named = "; ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return [f"Not complete: {len(missing)} of {done + len(missing)} runs are missing ({named})."]


# ---------------------------------------------------------------------------------------------------------- experiments


def _table2(*corpora: str) -> Callable[[str, Results], ExperimentOutput]:
    """Make the paper's Table 2, or the part about some corpora."""
    title = ", ".join(["Table 2", *corpora])
    return lambda _, results: _rates(title, results, published.table2().of(corpora or tuple(AVERAGES)))


def _table3(experiment: str, results: Results) -> ExperimentOutput:
    return _rates("Table 3", results, published.table3(), turned_tables)


def _rates(
    title: str, results: Results, paper: Rates, lay_out: Callable[..., list[Table]] = rate_tables
) -> ExperimentOutput:
    found = measured(results, paper)
    pictures = {"": draw_rates(found, paper)} | _curves(group_runs(results))
    return ExperimentOutput(lay_out(title, found, paper), rate_records(found, paper), pictures)


def _table4(experiment: str, results: Results) -> ExperimentOutput:
    return ExperimentOutput(bypass_tables(results), bypass_records(results))


def _criteria(experiment: str, results: Results) -> ExperimentOutput:
    """Criteria against plain CTC, and what token and word arcs add to each other."""
    compared = compare_systems(group_runs(results))
    report = _compared(experiment, compared)
    return replace(report, tables=[*report.tables[:1], *level_tables(compared), *report.tables[1:]])


def _baselines(experiment: str, results: Results) -> ExperimentOutput:
    """Other people's criteria, and whether CR-CTC and wildcards add up."""
    compared = compare_systems(group_runs(results))
    report = _compared(experiment, compared)
    return replace(report, tables=[*report.tables[:1], *addition_tables(compared), *report.tables[1:]])


def _lengths(experiment: str, results: Results) -> ExperimentOutput:
    """The same by length."""
    compared = compare_systems(group_runs(results))
    report = _compared(experiment, compared)
    return replace(report, tables=[*length_tables(compared), *report.tables])


def _compared(experiment: str, compared: Sequence[AgainstControl]) -> ExperimentOutput:
    tables = [error_table(compared, f"{experiment}: errors (%)"), training_table(compared, f"{experiment}: training")]
    pictures = {"": draw_differences(compared)} if any(one.paired for one in compared) else {}
    return ExperimentOutput(tables, records(compared), pictures | _curves([one.system for one in compared]))


def _sweep(experiment: str, results: Results) -> ExperimentOutput:
    """Settings of one criterion against plain CTC."""
    compared = compare_systems(group_runs(results))
    swept = [one.system for one in compared if one.system.setting and one.system.finished]
    table = error_table(compared, f"{experiment}: errors (%)")
    table.notes.extend(_best_setting(swept))
    pictures = {"": draw_sweep([one.system for one in compared])} if swept else {}
    return ExperimentOutput([table], records(compared), pictures)


def _best_setting(swept: Sequence[System]) -> list[str]:
    if not swept:
        return []
    best = min(
        swept, key=lambda system: sum(run.errors().rate for run in system.finished.values()) / len(system.finished)
    )
    theirs = {name: published.CHOSEN[name] for name in best.setting if name in published.CHOSEN}
    return [
        f"lowest WER: {describe(best.setting)}",
        f"the paper's choice: {describe(theirs)}; the numbers of what else it tried are not in its source",
    ]


def _curves(systems: Sequence[System]) -> dict[str, str]:
    """A picture for each task."""
    tasks = dict.fromkeys(s.task for s in systems if any(run.metrics for run in s.runs.values()))
    ends = {task: f"-curves-{task}" if len(tasks) > 1 else "-curves" for task in tasks}
    return {end: draw_learning_curves([s for s in systems if s.task == task], task) for task, end in ends.items()}


REPORTS: dict[str, Callable[[str, Results], ExperimentOutput]] = {
    "table2": _table2(),  # given the results of all three
    "table2-librispeech": _table2("LibriSpeech"),
    "table2-fleurs": _table2("FLEURS"),
    "table2-respin": _table2("RESPIN"),
    "table3-conformer": _table3,
    "figure2-tau": _sweep,
    "figure2-kappa": _sweep,
    "retune-otc-w": _sweep,
    "table4-disagreement": _table4,
    "iban": _criteria,
    "iban-corrupted": _criteria,
    "iban-length": _lengths,
    "harper-valley-baselines": _baselines,
}
