"""Errors that were put into transcripts on purpose (`wildctc corrupt`), and how well a probe of them finds them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wildctc.corruption.detection import Interval, ScoredUnits, measure_detection
from wildctc.errors import WildCTCError
from wildctc.json_lines import read_rows
from wildctc.probe.records import ProbedUtterance, read_probe

_Edits = list[dict[str, Any]]  # as in a row of a corrupted manifest


def with_truth(probe: str | Path, manifest: str | Path) -> Iterator[tuple[ProbedUtterance, dict[str, Any]]]:
    """Each probed utterance with its row of the corrupted manifest."""
    truth = {row["id"]: row for _, row in read_rows(manifest)}
    for utterance in read_probe(probe)[1]:
        row = truth.get(utterance.id)
        if row is None or utterance.text != row["text"]:
            raise WildCTCError(f"{probe}: {utterance.id}: another text than in {manifest}: normalised?")
        yield utterance, row


def kinds_of(utterance: ProbedUtterance, edits: _Edits) -> list[str]:
    """For each character: "", "substitution" or "insertion"."""
    kinds = [""] * len(utterance.tokens)
    for edit in edits:
        if edit["kind"] in ("substitution", "insertion"):
            kinds[edit["begin"] : edit["stop"]] = [edit["kind"]] * (edit["stop"] - edit["begin"])
    return kinds


def find_known(probe: str | Path, manifest: str | Path, *, resamples: int = 1000) -> dict[str, Any]:
    """How well bypass probability finds substituted and inserted characters: AUC and precision, with 95% intervals."""
    parts: list[tuple[Sequence[bool], dict[str, Sequence[float]]]] = []
    for utterance, row in with_truth(probe, manifest):
        wrong = [kind != "" for kind in kinds_of(utterance, row["edits"])]
        parts.append((wrong, {"probe": [token.bypass for token in utterance.tokens]}))
    units = ScoredUnits.join(parts)
    found = measure_detection(units, resamples=resamples)["probe"]
    return {
        "auc": as_list(found.auc),
        "precision": as_list(found.precision),
        "wrong": int(units.wrong.sum()),
        "characters": len(units.wrong),
    }


def as_list(interval: Interval) -> list[float | None]:
    """[value, low, high] for a JSON file, where a number that is none is null."""
    return [None if math.isnan(x) else round(x, 5) for x in interval]
