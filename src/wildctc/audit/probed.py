"""What a probe finds, and the file that it is kept in.

A probe file is JSON lines: first `{"probe": {…settings}}`, then a row for each utterance with the fields below. An
utterance that could not be probed has a row `{"id": …, "left_out": reason}`, so that nothing vanishes without a word.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError

FORMAT = 1


@dataclass
class ProbedToken:
    """One token: `text` is characters begin…stop of the transcript, start…end are seconds from the utterance's start.

    bypass: the probability that it was not said (T graph). heard: what the model would have written in its place.
    """

    text: str
    begin: int
    stop: int
    start: float
    end: float
    bypass: float
    heard: str


@dataclass
class ProbedWord:
    """One word: characters begin…stop without its space; tokens first…last, both included, with its space.

    bypass: the probability that the word as a whole was not said (W graph). heard: the words that the model wrote in
    its place; two words that it ran together have the same.
    """

    text: str
    begin: int
    stop: int
    first: int
    last: int
    start: float
    end: float
    bypass: float
    heard: str


@dataclass
class ProbedUtterance:
    """One utterance: `offset` seconds into its audio file, `duration` seconds long.

    text: the transcript, normalised. heard: the model's own transcript (best path). gaps: before each token and after
    the last, the expected number of sounds that are not written there (T graph). between: what the model wrote in each
    gap, so that between[0] + tokens[0].heard + between[1] + … + between[-1] is `heard`.
    """

    id: str
    audio: str
    offset: float
    duration: float
    channel: int
    speaker: str | None
    text: str
    heard: str
    tokens: list[ProbedToken]
    words: list[ProbedWord]
    gaps: list[float]
    between: list[str] = field(default_factory=list)


def as_row(utterance: ProbedUtterance) -> dict[str, Any]:
    """The utterance as its row of a probe file: milliseconds, six digits of a probability."""
    row = vars(utterance) | {"gaps": [_six(gap) for gap in utterance.gaps]}
    for name in ("tokens", "words"):
        row[name] = [
            vars(unit) | {"start": round(unit.start, 3), "end": round(unit.end, 3), "bypass": _six(unit.bypass)}
            for unit in getattr(utterance, name)
        ]
    return row


def _six(value: float) -> float:
    return float(f"{value:.6g}")


def from_row(row: dict[str, Any]) -> ProbedUtterance:
    """The utterance of a row; KeyError or TypeError if it is none."""
    known = {f.name for f in dataclasses.fields(ProbedUtterance)}
    content = {name: value for name, value in row.items() if name in known}
    content["tokens"] = [ProbedToken(**token) for token in row["tokens"]]
    content["words"] = [ProbedWord(**word) for word in row["words"]]
    return ProbedUtterance(**content)


def header_line(settings: dict[str, Any]) -> str:
    """The first line of a probe file."""
    return json.dumps({"probe": {"format": FORMAT, **settings}}, ensure_ascii=False) + "\n"


def row_line(row: dict[str, Any]) -> str:
    """Another line of it."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_probe(path: str | Path) -> tuple[dict[str, Any], list[ProbedUtterance]]:
    """The settings and the utterances of a probe file.

    Utterances that could not be probed are in settings["left_out"]: id → reason.
    """
    from wildctc.corpora.manifest import read_rows

    settings: dict[str, Any] | None = None
    left_out: dict[str, str] = {}
    utterances: list[ProbedUtterance] = []
    for line, row in read_rows(path):
        try:
            if settings is None:
                settings = check_settings(row, path)
            elif "left_out" in row:
                left_out[row["id"]] = row["left_out"]
            else:
                utterances.append(from_row(row))
        except (KeyError, TypeError) as error:
            raise WildCTCError(f"{path}:{line}: not a row of a probe ({error}); make it with `wildctc probe`") from None
    if settings is None:
        raise WildCTCError(f"{path}: empty; make it with `wildctc probe`")
    return settings | {"left_out": left_out}, utterances


def check_settings(row: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """The settings in the first row of a probe file."""
    settings = row.get("probe")
    if not isinstance(settings, dict):
        raise WildCTCError(f'{path}: not a probe (no {{"probe": …}} in its first line); make it with `wildctc probe`')
    if settings.get("format") != FORMAT:
        raise WildCTCError(f"{path}: format {settings.get('format')} of a probe, this version reads {FORMAT}")
    return settings


def write_probe(path: str | Path, settings: dict[str, Any], utterances: list[ProbedUtterance]) -> None:
    """Write a probe file at once."""
    from wildctc.files import write_text

    write_text(Path(path), header_line(settings) + "".join(row_line(as_row(u)) for u in utterances))
