"""The report of an experiment: tables as text, Markdown, CSV and LaTeX, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.reproduce.comparison import compare_systems, error_table, records, training_table
from wildctc.reproduce.layout import Table, as_csv, as_latex, as_markdown, as_text
from wildctc.reproduce.results import RunResult
from wildctc.reproduce.systems import group_runs


@dataclass(frozen=True)
class Report:
    """pictures: SVG by what their names end in, "" for the first."""

    tables: list[Table]
    records: list[dict[str, Any]]
    pictures: dict[str, str] = field(default_factory=dict)


def write_report(experiment: str, results: Sequence[RunResult], out: Path, missing: Sequence[str]) -> str:
    """Write out/EXPERIMENT.{txt,md,csv,tex} and its pictures; return the text. missing: runs that are not done yet."""
    if not results:
        raise WildCTCError(f"{experiment}: no run is finished, so there is nothing to report")
    report = _report(experiment, results)
    warning = _say_missing(missing, len(results))
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
    return text


def _report(experiment: str, results: Sequence[RunResult]) -> Report:
    compared = compare_systems(group_runs(results))
    tables = [error_table(compared, f"{experiment}: errors (%)"), training_table(compared, f"{experiment}: training")]
    return Report(tables, records(compared))


def _say_missing(missing: Sequence[str], done: int) -> list[str]:
    if not missing:
        return []
    named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return [f"Not complete: {len(missing)} of {done + len(missing)} runs are missing ({named})."]
