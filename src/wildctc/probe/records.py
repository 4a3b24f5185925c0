"""What a probe finds, and the file in which it is stored.

A probe file has JSON lines: first `{"probe": {…settings}}`, then a row for each utterance with the fields below. An
utterance that could not be probed has a row `{"id": …, "left_out": reason}`, so that no utterance disappears silently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from wildctc.errors import WildCTCError
from wildctc.files import write_text
from wildctc.json_lines import read_rows, row_line

FORMAT = 1  # version of the file format
_LARGEST = 1e12  # a larger number in a file is an error


@dataclass
class ProbedToken:
    """One token of a transcript.

    Attributes:
        text: The token's characters.
        begin: Its first character in the transcript.
        stop: The character after its last.
        start: Its start, in seconds from the start of the utterance.
        end: Its end, in seconds from the start of the utterance.
        bypass: The probability that it was not said, from the token graph.
        heard: What the model would have written in its place.
        misfit: Minus the mean log-probability of the token over its frames in a forced alignment (plain CTC). None if
            plain CTC cannot align the transcript, or if an older version made the file.
    """

    text: str
    begin: int
    stop: int
    start: float
    end: float
    bypass: float
    heard: str
    misfit: float | None = None


@dataclass
class ProbedWord:
    """One word of a transcript.

    Attributes:
        text: The word's characters, without its space.
        begin: Its first character in the transcript.
        stop: The character after its last.
        first: Its first token, which may be the space before the word.
        last: Its last token.
        start: Its start, in seconds from the start of the utterance.
        end: Its end, in seconds from the start of the utterance.
        bypass: The probability that the word as a whole was not said, from the word graph.
        heard: The words that the model wrote in its place. Two written words that the model joined have the same.
        doubt: The probability that the word is wrong, from all evidence together (`wildctc.probe.doubt`); None if it
            was not computed: it needs the other transcripts too.
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
    doubt: float | None = None


@dataclass
class ProbedChoice:
    """A place of a transcript that has alternatives.

    Attributes:
        word: The first word of what was said there, among the words of the probed text.
        length: How many words were said there.
        alternatives: The text of each alternative; that of the first writing is first.
        probabilities: The probability that it was said, of each alternative, if one of the writings was said.
    """

    word: int
    length: int
    alternatives: list[str]
    probabilities: list[float]


@dataclass
class ProbedUtterance:
    """One utterance with its tokens and words.

    Attributes:
        id: The utterance's id.
        audio: The path of its audio file.
        offset: Seconds in that file at which the utterance starts.
        duration: Its length in seconds.
        channel: The channel, from 0; None is the mean of all channels.
        speaker: The speaker's name, if it is known.
        text: The transcript, normalised.
        heard: The model's own transcript (best path).
        tokens: The tokens of the transcript, in order.
        words: The words of the transcript, in order.
        gaps: Before each token and after the last: the expected number of sounds that are not written there, from the
            token graph.
        between: Before each token and after the last: what the model wrote in that gap. So
            between[0] + tokens[0].heard + between[1] + … + between[-1] is `heard`.
        choices: The places of the transcript that have alternatives; `text` has the most probable ones.
    """

    id: str
    audio: str
    offset: float
    duration: float
    channel: int | None
    speaker: str | None
    text: str
    heard: str
    tokens: list[ProbedToken]
    words: list[ProbedWord]
    gaps: list[float]
    between: list[str] = field(default_factory=list)
    choices: list[ProbedChoice] = field(default_factory=list)


class NotProbed(NamedTuple):
    """An utterance that could not be probed.

    Attributes:
        id: The utterance's id.
        reason: Why it could not be probed.
    """

    id: str
    reason: str


# -------------------------------------------------------------------------------------------------------------- reading


def read_probe(path: str | Path) -> tuple[dict[str, Any], list[ProbedUtterance]]:
    """Read a whole probe file.

    Args:
        path: The probe file.

    Returns:
        The settings and the utterances. settings["left_out"] has the utterances that could not be probed: id → reason.
    """
    settings, entries = stream_probe(path)
    left_out: dict[str, str] = {}
    utterances: list[ProbedUtterance] = []
    for entry in entries:
        if isinstance(entry, NotProbed):
            left_out[entry.id] = entry.reason
        else:
            utterances.append(entry)
    return settings | {"left_out": left_out}, utterances


def stream_probe(path: str | Path) -> tuple[dict[str, Any], Iterator[ProbedUtterance | NotProbed]]:
    """Read a probe file one utterance at a time, so that memory does not grow with the file.

    Args:
        path: The probe file.

    Returns:
        The settings, and an iterator over the utterances in the order of the file.
    """
    rows = read_rows(path)
    _, first = next(rows, (0, None))
    if first is None:
        raise WildCTCError(f"{path}: empty; make it with `wildctc probe`")
    return read_settings(first, path), _entries(rows, path)


def read_settings(row: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Check the first row of a probe file.

    Args:
        row: The row.
        path: The file, for messages.

    Returns:
        What the probe was made with.
    """
    settings = row.get("probe")
    if not isinstance(settings, dict):
        raise WildCTCError(f'{path}: not a probe (no {{"probe": …}} in its first line); make it with `wildctc probe`')
    if settings.get("format") != FORMAT:
        raise WildCTCError(f"{path}: format {settings.get('format')} of a probe, this version reads {FORMAT}")
    return settings


def _entries(rows: Iterator[tuple[int, dict[str, Any]]], path: str | Path) -> Iterator[ProbedUtterance | NotProbed]:
    lines: dict[str, int] = {}  # id → its line
    for line, row in rows:
        entry = parse_entry(path, line, row)
        note_line(path, line, entry.id, lines)
        yield entry


def parse_entry(path: str | Path, line: int, row: dict[str, Any]) -> ProbedUtterance | NotProbed:
    """Convert a row of a probe file, after the first.

    Args:
        path: The file, for messages.
        line: The number of the line, for messages.
        row: The row.

    Returns:
        The utterance, or that it could not be probed.
    """
    try:
        if "left_out" in row:
            return NotProbed(str(row["id"]), str(row["left_out"]))
        return _from_row(row)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_a_row(path, line, error) from None


def note_line(path: str | Path, line: int, id: str, lines: dict[str, int]) -> None:
    """Check that no earlier line has the same id.

    Args:
        path: The file, for messages.
        line: The number of the line.
        id: The utterance's id.
        lines: The lines of earlier ids; this one is added.
    """
    if id in lines:
        raise _not_a_row(path, line, f"the id {id[:40]!r} is also in line {lines[id]}; ids must differ")
    lines[id] = line


def _not_a_row(path: str | Path, line: int, error: object) -> WildCTCError:
    return WildCTCError(f"{path}:{line}: not a row of a probe ({error}); make it with `wildctc probe`")


def _from_row(row: dict[str, Any]) -> ProbedUtterance:
    """The utterance of a row. Files may come from others, so wrong content is a KeyError, TypeError or ValueError."""
    known = {f.name for f in dataclasses.fields(ProbedUtterance)}
    content = {name: value for name, value in row.items() if name in known}
    content["tokens"] = [ProbedToken(**token) for token in row["tokens"]]
    content["words"] = [ProbedWord(**word) for word in row["words"]]
    content["choices"] = [ProbedChoice(**choice) for choice in row.get("choices", [])]
    utterance = ProbedUtterance(**content)
    parts: list[_Part] = [utterance, *utterance.tokens, *utterance.words, *utterance.choices]
    for part in parts:
        _check_types(part)
    _check_places(utterance)
    return utterance


def _check_types(found: _Part) -> None:
    for name, value in vars(found).items():
        types = _TYPES[name]
        if type(value) not in types or (float in types and value is not None and not abs(value) < _LARGEST):  # or NaN
            raise TypeError(f"{name} is {str(value)[:40]!r}")


_Part: TypeAlias = ProbedUtterance | ProbedToken | ProbedWord | ProbedChoice
_KINDS: dict[str, set[type]] = {"str": {str}, "int": {int}, "float": {float, int}, "None": {type(None)}}
# The allowed types of each field, from the annotations above. A field has the same type in all four classes.
_TYPES = {
    f.name: set[type]().union(*(_KINDS.get(kind, {list}) for kind in str(f.type).split(" | ")))
    for cls in (ProbedToken, ProbedWord, ProbedChoice, ProbedUtterance)
    for f in dataclasses.fields(cls)
}


def _check_places(utterance: ProbedUtterance) -> None:
    tokens = utterance.tokens
    units: list[ProbedToken | ProbedWord] = [*tokens, *utterance.words]
    right = all(0 <= unit.begin <= unit.stop <= len(utterance.text) and 0 <= unit.bypass <= 1.001 for unit in units)
    right &= all(0 <= word.first <= word.last < len(tokens) for word in utterance.words)
    right &= all(word.doubt is None or 0 <= word.doubt <= 1 for word in utterance.words)
    right &= all(token.misfit is None or token.misfit >= 0 for token in tokens)
    right &= len(utterance.gaps) == len(tokens) + 1 and len(utterance.between) in (0, len(tokens) + 1)
    right &= all(type(gap) in (float, int) and abs(gap) < _LARGEST for gap in utterance.gaps)
    right &= all(isinstance(heard, str) for heard in utterance.between)
    right &= all(_is_choice(choice, len(utterance.words)) for choice in utterance.choices)
    if not right or min(utterance.offset, utterance.duration) < 0:
        raise ValueError("tokens, words and gaps do not match the transcript")


def _is_choice(choice: ProbedChoice, words: int) -> bool:
    right = 0 <= choice.word <= choice.word + choice.length <= words and len(choice.alternatives) > 1
    right &= len(choice.alternatives) == len(choice.probabilities)
    right &= all(isinstance(text, str) for text in choice.alternatives)
    return right and all(type(p) in (float, int) and 0 <= p <= 1.001 for p in choice.probabilities)


# -------------------------------------------------------------------------------------------------------------- writing


def write_probe(path: str | Path, settings: dict[str, Any], utterances: list[ProbedUtterance]) -> None:
    """Write a whole probe file.

    Args:
        path: The file to write.
        settings: What the probe was made with, for the first row; the format is added.
        utterances: The utterances, in the order in which they are written.
    """
    header = row_line({"probe": {"format": FORMAT, **settings}})
    write_text(Path(path), header + "".join(row_line(as_row(u)) for u in utterances))


def as_row(utterance: ProbedUtterance) -> dict[str, Any]:
    """Convert an utterance to its row of a probe file.

    Args:
        utterance: The utterance.

    Returns:
        Its fields for JSON: times are rounded to milliseconds, probabilities and gaps to six digits.
    """
    row = vars(utterance) | {"gaps": [_six_digits(gap) for gap in utterance.gaps]}
    for name in ("tokens", "words"):
        row[name] = [
            vars(unit) | {"start": round(unit.start, 3), "end": round(unit.end, 3), "bypass": _six_digits(unit.bypass)}
            for unit in getattr(utterance, name)
        ]
    row["choices"] = [vars(choice) for choice in utterance.choices]
    if not utterance.choices:  # as in files of earlier versions
        del row["choices"]
    for units, name in (("words", "doubt"), ("tokens", "misfit")):
        for unit in row[units]:
            unit[name] = None if unit[name] is None else _six_digits(unit[name])
    return row


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")
