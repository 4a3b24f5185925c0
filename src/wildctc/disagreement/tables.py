"""Write disagreement as tables for the terminal, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wildctc.disagreement.by_class import AGREED, DISPUTED, UNANIMOUS, UNIT_KINDS, Disputes, Group
from wildctc.scoring.class_means import ClassMeans
from wildctc.terminal import table

_MEANS = {
    "characters": "Mean bypass probability of characters",
    "words": "Mean bypass probability of words",
    "insertions": "Mean number of unwritten sounds heard between characters",
}


# ------------------------------------------------------------------------------------------------------------- terminal


def as_text(disputes: Disputes) -> str:
    """Format tables of units by class and, if there are systems, of their means.

    Args:
        disputes: The numbers.

    Returns:
        The tables for a terminal.
    """
    parts = [_title(disputes), _count_table(disputes), _word_table(disputes)]
    for kind in disputes.groups[0].compared:
        parts.append(_mean_table(disputes, kind))
        if len(disputes.systems) > 1:
            parts.append(_change_table(disputes, kind))
    if disputes.systems:
        parts.append(_notes(disputes))
    return "\n\n".join(parts)


def _title(disputes: Disputes) -> str:
    found = disputes.groups[0].found
    few, many = min(one.annotators for one in found), max(one.annotators for one in found)
    each = f"{few}" if few == many else f"{few} to {many}"
    text = f"{_utterances(len(found))}, {disputes.annotators:,} annotators, {each} to an utterance"
    return text + (f"; {_utterances(len(disputes.left_out))} skipped" if disputes.left_out else "")


def _utterances(count: int) -> str:
    return f"{count:,} utterance{'s' * (count != 1)}"


def _count_table(disputes: Disputes) -> str:
    header = ["units", "all", "agreed", "", "disputed", "", "unanimous", "", *disputes.classes[UNANIMOUS + 1 :]]
    rows = []
    for kind in UNIT_KINDS:
        for group in disputes.groups:
            counts = group.counts[kind]
            total = counts.sum() - counts[DISPUTED]
            shares = [[f"{n:,}", f"{n / max(total, 1):.1%}"] for n in counts[: UNANIMOUS + 1]]
            by_dissent = [f"{n:,}" for n in counts[UNANIMOUS + 1 :]]
            label = kind if group is disputes.groups[0] else f"  {group.name}"
            rows.append([label, f"{total:,}", *(cell for pair in shares for cell in pair), *by_dissent])
    note = "insertions: units are the places between characters; d: annotators who change a disputed unit"
    return f"{table(header, rows)}\n{note}"


def _word_table(disputes: Disputes) -> str:
    header = ["", "disputed words", "by one character", "by insertion only", "mean length"]
    header += ["inserted characters", "spaces", "words"]
    rows = []
    for group in disputes.groups:
        numbers = _word_numbers(group)
        shares = [numbers["one_character"], numbers["only_insertion"]]
        rows.append(
            [group.name, f"{numbers['disputed']:,}", *(_share(n, numbers["disputed"]) for n in shares)]
            + [_number(numbers["mean_length"], ".1f")]
            + [f"{numbers[name]:,}" for name in ("inserted", "inserted_spaces", "inserted_words")]
        )
    return table(header, rows)


def _word_numbers(group: Group) -> dict[str, Any]:
    lengths = [b - a for one in group.found for (a, b), d in zip(one.spans, one.words.disputed, strict=True) if d]
    return {
        "disputed": len(lengths),
        "one_character": sum(int(one.one_character.sum()) for one in group.found),
        "only_insertion": sum(int(one.only_inserts.sum()) for one in group.found),
        "mean_length": float(np.mean(lengths)) if lengths else math.nan,
        "inserted": sum(one.inserted for one in group.found),
        "inserted_spaces": sum(one.inserted_spaces for one in group.found),
        "inserted_words": sum(one.inserted_words for one in group.found),
    }


def _mean_table(disputes: Disputes, kind: str) -> str:
    shown = [c for c in range(len(disputes.classes)) if c != UNANIMOUS]

    def row(found: ClassMeans, i: int) -> list[str]:
        return [*(_number(found.mean[i, c, 0], ".4f") for c in shown), _number(found.ratio[i, 0], ".1f")]

    rows = _system_rows(disputes, kind, row, first=0)
    return f"{_MEANS[kind]}\n\n{table(['', *(disputes.classes[c] for c in shown), 'ratio'], rows)}"


def _change_table(disputes: Disputes, kind: str) -> str:
    def row(found: ClassMeans, i: int) -> list[str]:
        cells = []
        for c in (AGREED, DISPUTED):
            change, low, high = (_percent(value) for value in found.relative[i, c])
            cells += [change, f"{low} … {high:>6}", _p(found.p[i, c])]
        return cells

    header = ["", "agreed", "95% interval", "p", "disputed", "95% interval", "p"]
    rows = _system_rows(disputes, kind, row, first=1)
    return f"Change against {disputes.systems[0].name}, {kind}\n\n{table(header, rows)}"


def _system_rows(
    disputes: Disputes, kind: str, row: Callable[[ClassMeans, int], list[str]], first: int
) -> list[list[str]]:
    """A row for each system from the first; with several groups, a line with its name comes before each group."""
    rows = []
    several = len(disputes.groups) > 1
    for group in disputes.groups:
        found = [
            ["  " * several + system.name, *row(group.compared[kind], i)]
            for i, system in enumerate(disputes.systems)
            if i >= first
        ]
        rows += [[group.name, *[""] * (len(found[0]) - 1)], *found] if several else found
    return rows


def _notes(disputes: Disputes) -> str:
    self_loop = disputes.systems[0].self_loop
    lines = [f"self-loop weight of the probes: {'none' if self_loop is None else f'{self_loop:g}'}"]
    lines.append("ratio: disputed to agreed")
    if len(disputes.systems) > 1:
        lines.append(f"interval, two-sided p: paired bootstrap over utterances, {disputes.resamples:,} resamples")
    return "\n".join(lines)


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else "+∞" if math.isinf(value) else f"{value:+.1%}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


# --------------------------------------------------------------------------------------------------------- JSON and CSV


def as_json(disputes: Disputes, settings: dict[str, Any]) -> str:
    """Convert all numbers to JSON.

    Args:
        disputes: The numbers.
        settings: What the command was given; it comes first.

    Returns:
        One JSON object. A number that does not exist is null.
    """
    groups = []
    for group in disputes.groups:
        numbers: dict[str, Any] = {"language": group.language, "split": group.split, "utterances": len(group.found)}
        numbers |= {"disputed_words": _word_numbers(group)}
        for kind in UNIT_KINDS:
            counts = dict(zip(disputes.classes, group.counts[kind].tolist(), strict=True))
            numbers[kind] = {"units": counts, "systems": _system_numbers(disputes, group, kind)}
        groups.append(numbers)
    content = {
        **settings,
        "annotators": disputes.annotators,
        "left_out": disputes.left_out,
        "resamples": disputes.resamples if disputes.systems else None,
        "self_loop": disputes.systems[0].self_loop if disputes.systems else None,
        "baseline": disputes.systems[0].name if disputes.systems else None,
        "groups": groups,
    }
    return json.dumps(_without_nan(content), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _system_numbers(disputes: Disputes, group: Group, kind: str) -> dict[str, Any]:
    if kind not in group.compared:
        return {}
    found = group.compared[kind]
    numbers: dict[str, Any] = {}
    for i, system in enumerate(disputes.systems):
        numbers[system.name] = {"ratio": _interval(found.ratio[i])}
        for c, name in enumerate(disputes.classes):
            numbers[system.name][name] = {"mean": _interval(found.mean[i, c])}
            if i > 0:
                numbers[system.name][name] |= {
                    "difference": _interval(found.difference[i, c]),
                    "relative": _interval(found.relative[i, c]),
                    "p": float(found.p[i, c]),
                }
    return numbers


def _interval(values: np.ndarray) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), values.tolist(), strict=True))


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _without_nan(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


_CSV_HEADER = [
    *("language", "split", "units", "class", "count", "system"),
    *(f"{name}{end}" for name in ("mean", "difference", "relative") for end in ("", "_low", "_high")),
    "p",
]


def as_csv(disputes: Disputes) -> str:
    """Convert the numbers to CSV.

    Args:
        disputes: The numbers.

    Returns:
        A row for each group, kind of units, class and system; without systems a row for each class.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_HEADER)
    for group in disputes.groups:
        for kind in UNIT_KINDS:
            for c, name in enumerate(disputes.classes):
                start = [group.language or "", group.split or "", kind, name, group.counts[kind][c]]
                for numbers in _csv_numbers(disputes, group, kind, c):
                    writer.writerow([*start, *numbers, *[""] * (len(_CSV_HEADER) - len(start) - len(numbers))])
    return text.getvalue()


def _csv_numbers(disputes: Disputes, group: Group, kind: str, c: int) -> Iterator[Sequence[Any]]:
    if kind not in group.compared:
        yield []
        return
    found = group.compared[kind]
    for i, system in enumerate(disputes.systems):
        values = [found.mean[i, c]] + ([found.difference[i, c], found.relative[i, c], [found.p[i, c]]] if i else [])
        numbers = [float(value) for part in values for value in part]
        yield [system.name, *("" if math.isnan(value) else f"{value:.6g}" for value in numbers)]
