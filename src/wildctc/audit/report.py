"""The report: a folder with a page that shows a probe with its sound, and works from disk without a network.

A page opened from disk may not fetch anything, so the data are scripts, in pieces: `rows` with what the list shows, all
read at the start, and `details` with what one utterance shows, read when it is looked at. Utterances are written as
they are read, one at a time; the page ranks them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from itertools import accumulate
from pathlib import Path
from typing import Any

from wildctc.audit.issues import LabelIssue, issues_of, suspicion
from wildctc.audit.playable import Playable, make_playable
from wildctc.audit.probed import ProbedUtterance, check_settings, from_row
from wildctc.corpora import Utterance, UtteranceError
from wildctc.corpora.manifest import read_lines, read_rows
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, writing
from wildctc.progress import progress

ROWS = 1000  # utterances in a file of rows
DETAILS = 50  # and in one of details
LEAST = 0.25  # findings below this score are not shown
NAMED = 5  # utterances without sound that are named in the log; the rest are counted
KINDS = ("changed", "extra", "missing")

_log = logging.getLogger(__name__)


@dataclass
class Report:
    """What was written: `print` it."""

    page: Path
    utterances: int = 0
    doubtful: int = 0
    silent: int = 0  # utterances whose audio could not be used
    left_out: dict[str, str] = field(default_factory=dict)  # id → why the probe has no numbers for it
    audio_bytes: int = 0
    data_bytes: int = 0

    def __str__(self) -> str:
        sizes = f"{_megabytes(self.audio_bytes)} of audio, {_megabytes(self.data_bytes)} of data"
        lines = [f"{self.page}: {self.utterances:,} utterances, {self.doubtful:,} with findings; {sizes}"]
        if self.silent:
            hint = "; is this the folder in which it was probed?" if self.silent == self.utterances else ""
            lines.append(f"without sound: {self.silent:,}, since their audio cannot be used{hint}")
        if self.left_out:
            lines.append(f"not in it: {len(self.left_out):,}, which could not be probed (the page lists them)")
        return "\n".join(lines)


def write_report(probe: str | Path, folder: str | Path, link: bool = False) -> Report:
    """Write the report of a probe file into `folder`, which is new, empty, or an earlier report.

    link: refer to audio files where they lie instead of copying them, where a browser can play them as they are. The
    folder is replaced when everything is there, so a failure leaves what was there before.
    """
    probe, folder = Path(probe), Path(folder)
    _check_folder(folder)
    place = folder.resolve()
    part = place.with_name(f".{place.name}.part")
    with writing(folder):
        shutil.rmtree(part, ignore_errors=True)
        make_folder(part / "data")
        make_folder(part / "audio")
        try:
            report = _Writer(probe, part, folder, link).write()
            _copy_page(part)
            _replace(place, part)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return report


class _Writer:
    """Reads a probe once and writes its data and audio into `part`, which will be at `folder`."""

    def __init__(self, probe: Path, part: Path, folder: Path, link: bool) -> None:
        self.probe, self.part, self.folder, self.link = probe, part, folder, link
        self.report = Report(folder / "index.html")
        self.speakers: dict[str | None, int] = {None: 0}
        self.identity = hashlib.sha256()
        self.settings: dict[str, Any] | None = None

    def write(self) -> Report:
        rows = _Chunks(self.part, "rows", ROWS)
        details = _Chunks(self.part, "details", DETAILS)
        total = max(0, sum(1 for _ in read_lines(self.probe)) - 1)
        for utterance in progress(self._utterances(), desc="report", unit="utt", total=total):
            sound = self._sound(utterance)
            rows.add(self._row(utterance, sound))
            details.add(_detail(utterance, sound))
            self.report.utterances += 1
        rows.close()
        details.close()
        if self.settings is None:
            raise WildCTCError(f"{self.probe}: empty; make it with `wildctc probe`")
        if self.report.utterances == 0:
            raise WildCTCError(f"{self.probe}: no utterances in it; was every one left out?")
        if self.report.silent > NAMED:
            _log.warning("no sound: %s more", f"{self.report.silent - NAMED:,}")
        info = {
            "key": self.identity.hexdigest()[:16],
            "name": self.folder.resolve().name,
            "settings": self.settings,
            "utterances": self.report.utterances,
            "perDetails": DETAILS,
            "rowFiles": rows.files,
            "speakers": [name or "" for name in self.speakers],
            "leftOut": list(self.report.left_out.items()),
        }
        written = _write_script(self.part / "data" / "report.js", "report", info)
        self.report.data_bytes = rows.bytes + details.bytes + written
        return self.report

    def _utterances(self) -> Iterator[ProbedUtterance]:
        for line, row in read_rows(self.probe):
            try:
                if self.settings is None:
                    self.settings = check_settings(row, self.probe)
                elif "left_out" in row:
                    self.report.left_out[str(row["id"])] = str(row["left_out"])
                else:
                    yield from_row(row)
            except (KeyError, TypeError) as error:
                message = f"{self.probe}:{line}: not a row of a probe ({error}); make it with `wildctc probe`"
                raise WildCTCError(message) from None

    def _sound(self, utterance: ProbedUtterance) -> Playable | None:
        path = Path(utterance.audio)
        if not path.is_file():  # relative to the working directory, else to the probe
            path = self.probe.parent / path
        stretch = Utterance(
            utterance.id, path, start=utterance.offset, duration=utterance.duration, channel=utterance.channel
        )
        place = self.part / "audio" / f"{self.report.utterances:06d}"
        try:
            sound = make_playable(stretch, place, self.folder if self.link else None)
        except UtteranceError as error:
            self.report.silent += 1
            if self.report.silent <= NAMED:
                _log.warning("no sound: %s", error)
            return None
        self.report.audio_bytes += sound.bytes
        return sound

    def _row(self, utterance: ProbedUtterance, sound: Playable | None) -> list[Any]:
        self.identity.update(json.dumps([utterance.id, utterance.text]).encode())
        at = _utf16(utterance.text)
        issues = issues_of(utterance, LEAST)
        self.report.doubtful += any(issue.score >= 0.5 for issue in issues)
        return [
            utterance.id,
            self.speakers.setdefault(utterance.speaker, len(self.speakers)),
            utterance.text,
            utterance.heard,
            _digits(suspicion(utterance)),
            round(utterance.duration, 3),
            sound.source if sound else None,
            round(sound.offset, 3) if sound else 0,
            _shade(utterance, at),
            [[at[w.begin], at[w.stop], *map(_digits, (w.start, w.end, w.bypass))] for w in utterance.words],
            [_issue(issue, at) for issue in issues],
        ]


def _detail(utterance: ProbedUtterance, sound: Playable | None) -> list[Any]:
    at = _utf16(utterance.text)
    return [
        [[at[t.begin], at[t.stop], *map(_digits, (t.start, t.end, t.bypass)), t.heard] for t in utterance.tokens],
        _unwritten(utterance),
        [word.heard for word in utterance.words],
        base64.b64encode(sound.peaks.tobytes()).decode() if sound else "",
        Path(utterance.audio).name,
    ]


def _unwritten(utterance: ProbedUtterance) -> list[list[Any]]:
    """The gaps with sounds that are not written: when, the expected number, what the model wrote there."""
    starts = [token.start for token in utterance.tokens] + [utterance.duration]
    ends = [0.0] + [token.end for token in utterance.tokens]
    heard = utterance.between or [""] * len(utterance.gaps)
    return [
        [_digits((ends[k] + starts[k]) / 2), _digits(count), heard[k].strip()]
        for k, count in enumerate(utterance.gaps)
        if count >= LEAST
    ]


def _issue(issue: LabelIssue, at: list[int]) -> list[Any]:
    numbers = map(_digits, (issue.start, issue.end, issue.score))
    return [KINDS.index(issue.kind), at[issue.begin], at[issue.stop], *numbers, issue.word, issue.heard]


def _shade(utterance: ProbedUtterance, at: list[int]) -> str:
    """A digit for each UTF-16 unit of the text: tenths of the bypass probability of its token."""
    digits = ["0"] * at[-1]
    for token in utterance.tokens:
        level = str(min(9, int(10 * token.bypass)))
        digits[at[token.begin] : at[token.stop]] = level * (at[token.stop] - at[token.begin])
    return "".join(digits)


def _utf16(text: str) -> list[int]:
    """Where each code point begins in JavaScript's strings, and where the last ends.

    >>> _utf16("a😀b")
    [0, 1, 3, 4]
    """
    return list(accumulate((2 if char > "\uffff" else 1 for char in text), initial=0))


def _digits(value: float) -> float:
    return round(value, 3)


class _Chunks:
    """Values in files of `size`: data/NAME-0000.js and so on, each a script that calls wildctc.NAME(number, values)."""

    def __init__(self, folder: Path, name: str, size: int) -> None:
        self.folder, self.name, self.size = folder, name, size
        self.values: list[Any] = []
        self.files = self.bytes = 0

    def add(self, value: Any) -> None:
        self.values.append(value)
        if len(self.values) == self.size:
            self.close()

    def close(self) -> None:
        if self.values:
            path = self.folder / "data" / f"{self.name}-{self.files:04d}.js"
            self.bytes += _write_script(path, self.name, self.files, self.values)
            self.files, self.values = self.files + 1, []


def _write_script(path: Path, function: str, *arguments: Any) -> int:
    """Write a script that hands values to the page; returns its size."""
    values = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in arguments)
    content = f"wildctc.{function}({','.join(values)});\n"
    # nothing that could end a script element or a line of one, wherever the text may be pasted
    for char in "<\u2028\u2029":
        content = content.replace(char, f"\\u{ord(char):04x}")
    raw = content.encode("utf-8", "backslashreplace")  # half a surrogate pair is \udxxx in JavaScript too
    path.write_bytes(raw)
    return len(raw)


def _copy_page(folder: Path) -> None:
    for file in resources.files("wildctc.audit").joinpath("page").iterdir():
        if file.name.endswith((".html", ".css", ".js")):
            (folder / file.name).write_bytes(file.read_bytes())


def _check_folder(folder: Path) -> None:
    make_folder(folder.parent)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "data" / "report.js").is_file():
        raise WildCTCError(f"{folder} holds other files and no report: name a new folder")
    if folder.exists() and not folder.is_dir():
        raise WildCTCError(f"{folder} is a file: name a folder for the report")


def _replace(folder: Path, part: Path) -> None:
    """Put `part` in the place of `folder`; what a person put there beside the report stays, such as decisions."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists():  # a command was killed in the middle of what follows: a person's files are there
        make_folder(folder)
        _keep_others(old, folder)
    if not folder.exists():
        part.rename(folder)
        return
    folder.rename(old)
    part.rename(folder)
    _keep_others(old, folder)


def _keep_others(old: Path, folder: Path) -> None:
    """Move what only `old` has to `folder`, and remove the rest of it."""
    for path in old.iterdir():
        if not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
