"""The paper's tables as data: published/table2.csv, table3.csv and table4.csv, with its bold figures and its †.

Figure 2 is not among them, because the paper's source has neither the picture nor its numbers. What the text says about
it is here.
"""

from __future__ import annotations

import csv
import math
from importlib.resources import files

import numpy as np

from wildctc.experiments.wer_matrix import PAPER_CRITERIA, Rates

CHOSEN = {"τ": 0.775, "κ": 1.3, "word bypass τ": 0.925, "self-loop": -1.0}  # the paper's best; no others are given
UNITS = ("characters agreed", "characters disputed", "characters d=1", "characters d=2", "characters d=3",
         "words agreed", "words disputed")  # fmt: skip


def rows(name: str) -> list[dict[str, str]]:
    """Read a published table.

    Args:
        name: "table2", "table3" or "table4".

    Returns:
        A dictionary for each line of the CSV file.
    """
    text = (files("wildctc.experiments") / "published" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def table2() -> Rates:
    """Read WER of 25 tasks.

    Returns:
        Table 2.
    """
    return _rates("table2")


def table3() -> Rates:
    """Read WER on LibriSpeech with a Conformer.

    Returns:
        Table 3.
    """
    return _rates("table3")


def _rates(name: str) -> Rates:
    tasks = [row for row in rows(name) if row["corpus"] != "average"]
    wer = np.array([[float(row[criterion].rstrip("†")) for criterion in PAPER_CRITERIA] for row in tasks])
    marks = {
        (row["task"], criterion): "†" for row in tasks for criterion in PAPER_CRITERIA if row[criterion].endswith("†")
    }
    corpora, names = [row["corpus"] for row in tasks], [row["task"] for row in tasks]
    return Rates(corpora, names, wer, np.full(wer.shape, math.nan), np.ones(wer.shape, dtype=int), marks)


def table4() -> dict[str, dict[str, float]]:
    """Read mean bypass probabilities.

    Returns:
        Criterion → kind and class of units, such as "characters agreed" → mean.
    """
    return {row["criterion"]: {unit: float(row[unit]) for unit in UNITS} for row in rows("table4")}
