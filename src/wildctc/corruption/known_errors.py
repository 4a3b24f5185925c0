"""Measure how well a probe finds errors that `wildctc corrupt` put into transcripts."""

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
    """Pair each probed utterance with its row of the corrupted manifest.

    Args:
        probe: A probe file.
        manifest: The corrupted manifest that was probed.

    Yields:
        The probed utterance and its row, which has the edits.

    Raises:
        WildCTCError: The manifest does not have the utterance, or has another text for it.
    """
    truth = {row["id"]: row for _, row in read_rows(manifest)}
    for utterance in read_probe(probe)[1]:
        row = truth.get(utterance.id)
        if row is None or utterance.text != row["text"]:
            raise WildCTCError(f"{probe}: {utterance.id}: another text than in {manifest}: normalised?")
        yield utterance, row


def kinds_of(utterance: ProbedUtterance, edits: _Edits) -> list[str]:
    """Find which characters of a transcript are errors.

    Args:
        utterance: The probed utterance. Its tokens are single characters.
        edits: The edits of its row in the corrupted manifest.

    Returns:
        For each character "substitution", "insertion" or "" for none. Deleted characters are not in the text.
    """
    kinds = [""] * len(utterance.tokens)
    for edit in edits:
        if edit["kind"] in ("substitution", "insertion"):
            kinds[edit["begin"] : edit["stop"]] = [edit["kind"]] * (edit["stop"] - edit["begin"])
    return kinds


def find_known(probe: str | Path, manifest: str | Path, *, resamples: int = 1000) -> dict[str, Any]:
    """Measure how well the bypass probability finds substituted and inserted characters.

    Args:
        probe: A probe file.
        manifest: The corrupted manifest that was probed.
        resamples: Bootstrap resamples for the intervals.

    Returns:
        For JSON: `auc` and `precision` as [value, low, high], and the numbers of `wrong` and of all `characters`.
    """
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
    """Convert an estimate to a list for a JSON file.

    Args:
        interval: The estimate and its 95% interval.

    Returns:
        [value, low, high], rounded to five digits. NaN becomes null.
    """
    return [None if math.isnan(x) else round(x, 5) for x in interval]
