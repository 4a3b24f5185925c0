"""Format tables as text for the terminal, Markdown and LaTeX, from one description; format records as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wildctc.terminal import table

NONE = "–"  # a cell without a figure


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: The figure.
        mark: What follows the figure, such as †.
        bold: Whether it is printed in bold.
    """

    text: str
    mark: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: Its title; "" for none.
        header: The heading of each column.
        rows: Cells, the first of which names the row; a string is the heading of the rows below it.
        notes: Lines below the table.
    """

    title: str
    header: list[str]
    rows: list[list[Cell] | str]
    notes: list[str] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------------------- terminal


def as_text(it: Table) -> str:
    """Format a table for the terminal. A bold figure is followed by *.

    Args:
        it: The table.

    Returns:
        The text.

    >>> rows = ["Part", [Cell("x"), Cell("5.24", bold=True)], [Cell("y"), Cell("6.1")]]
    >>> print(as_text(Table("WER", ["", "a"], rows)))
    WER
    <BLANKLINE>
              a
    ───────────
    Part
    x     5.24*
    y      6.1
    """
    marks = [
        ["", *("", *[""] * (len(it.header) - 2))] if isinstance(row, str) else [c.mark + "*" * c.bold for c in row]
        for row in it.rows
    ]
    widths = [max(map(len, column), default=0) for column in zip(*marks, strict=True)] or [0] * len(it.header)
    rows = []
    for row, of_row in zip(it.rows, marks, strict=True):
        cells = [row, *[""] * (len(it.header) - 1)] if isinstance(row, str) else [cell.text for cell in row]
        rows.append([cell + mark.ljust(width) for cell, mark, width in zip(cells, of_row, widths, strict=True)])
    header = [name + " " * width for name, width in zip(it.header, widths, strict=True)]
    return "\n\n".join(filter(None, [it.title, table(header, rows), "\n".join(it.notes)]))


# ------------------------------------------------------------------------------------------------------------- Markdown


def as_markdown(it: Table) -> str:
    """Format a table as Markdown.

    Args:
        it: The table.

    Returns:
        The Markdown.

    >>> print(as_markdown(Table("", ["", "a"], [[Cell("x"), Cell("5.24", bold=True)]])))
    |  | a |
    |:--|--:|
    | x | **5.24** |
    """
    lines = [it.header, [":--", *["--:"] * (len(it.header) - 1)]]
    for row in it.rows:
        cells = (
            [f"*{row}*", *[""] * (len(it.header) - 1)] if isinstance(row, str) else [_markdown(cell) for cell in row]
        )
        lines.append(cells)
    ruled = [("|{}|" if i == 1 else "| {} |").format(("|" if i == 1 else " | ").join(x)) for i, x in enumerate(lines)]
    title = f"**{it.title}**" if it.title else ""
    return "\n\n".join(filter(None, [title, "\n".join(ruled), "  \n".join(it.notes)]))


def _markdown(cell: Cell) -> str:
    return (f"**{cell.text}**" if cell.bold else cell.text) + cell.mark


# ---------------------------------------------------------------------------------------------------------------- LaTeX

_LATEX = {
    "\\": r"\textbackslash{}",
    **{char: "\\" + char for char in "%&#$_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "†": r"$^{\dag}$",
    "‡": r"$^{\ddag}$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "…": r"\dots{}",
    "Δ": r"$\Delta$",
    "τ": r"$\tau$",
    "κ": r"$\kappa$",
    "≥": r"$\geq$",
    "<": "$<$",
    ">": "$>$",
    "×": r"$\times$",
    "★": r"$\star$",
    "′": "$'$",
    "“": "``",
    "”": "''",
}


def as_latex(it: Table) -> str:
    r"""Format a table as LaTeX, with the rules of booktabs.

    Args:
        it: The table.

    Returns:
        The LaTeX.

    >>> print(as_latex(Table("WER (%)", ["", "W_e'"], ["Part", [Cell("hi_in"), Cell("5.24", "†", bold=True)]])))
    \begin{table}[t]
    \centering
    \caption{WER (\%)}
    \begin{tabular}{lr}
    \toprule
     & W$_{e}'$ \\
    \midrule
    \multicolumn{2}{l}{\textit{Part}} \\
    hi\_in & \textbf{5.24}$^{\dag}$ \\
    \bottomrule
    \end{tabular}
    \end{table}
    """
    columns = len(it.header)
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{latex(it.title)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}", r"\toprule", _row(map(latex, it.header)), r"\midrule"]
    for i, row in enumerate(it.rows):
        if isinstance(row, str):
            lines += [r"\midrule"] * (i > 0)
            lines += [rf"\multicolumn{{{columns}}}{{l}}{{\textit{{{latex(row)}}}}} \\"] * bool(row)
        else:
            lines.append(_row(_latex(cell) for cell in row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {latex(note)}" for note in it.notes]
    return "\n".join([*lines, r"\end{table}"])


def latex(text: str) -> str:
    """Escape a text for LaTeX. Names such as W_e get a subscript.

    Args:
        text: Any text.

    Returns:
        The LaTeX.
    """
    parts = re.split(r"\b([TW]+)_([eH])('?)", text)
    plain = ["".join(_LATEX.get(char, char) for char in part) for part in parts[::4]]
    names = [
        rf"{arcs}$_{{{index}}}{prime}$" for arcs, index, prime in zip(*(parts[i::4] for i in (1, 2, 3)), strict=True)
    ]
    return "".join(x for pair in zip(plain, [*names, ""], strict=True) for x in pair)


def _latex(cell: Cell) -> str:
    return (rf"\textbf{{{latex(cell.text)}}}" if cell.bold else latex(cell.text)) + latex(cell.mark)


def _row(cells: Any) -> str:
    return " & ".join(cells) + r" \\"


# ------------------------------------------------------------------------------------------------------------------ CSV


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    r"""Format records as CSV.

    Args:
        records: Name → value. The columns are the names of all records.

    Returns:
        The CSV. A value that is missing or NaN is empty.

    >>> as_csv([{"criterion": "ctc", "wer": 0.25}, {"criterion": "otc-t", "wer": float("nan")}])
    'criterion,wer\nctc,0.25\notc-t,\n'
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(record.get(name)) for name in names] for record in records)
    return text.getvalue()


def _plain(value: Any) -> Any:
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
