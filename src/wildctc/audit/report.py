"""Write the report: a folder with a page that shows a probe with its sound, opened from disk without a network.

A page that is opened from disk may not fetch files, so its data are scripts. `rows` have what the list shows; the page
reads all of them at the start. `details` have what one utterance shows; the page reads them when the utterance is
chosen. Utterances are read and written one at a time. The page ranks them.
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

from wildctc.audit.clips import Playable, make_playable
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, writing
from wildctc.json_lines import read_lines
from wildctc.probe.issues import LabelIssue, issues_of, suspicion
from wildctc.probe.records import NotProbed, ProbedUtterance, stream_probe
from wildctc.progress import progress
from wildctc.scoring.error_rates import Errors, wer
from wildctc.scoring.mismatch import HEARS_NOTHING, hopeless
from wildctc.version import __version__

ROWS_PER_FILE = 1000  # utterances in a file of rows
LEAST_SCORE = 0.25  # findings with a lower score are not shown
KINDS = ("changed", "extra", "missing")
_DETAILS_PER_FILE = 50  # utterances in a file of details
_MADE = Path("data", "made.json")  # what the report was made from
_MAX_NAMED = 5  # utterances without sound that are named in the log; the others are counted

_log = logging.getLogger(__name__)


@dataclass
class AuditReport:
    """What was written. `print` shows a summary.

    Attributes:
        page: The page to open.
        utterances: How many utterances are shown.
        doubtful: How many of them have a finding with a score of at least 0.5.
        silent: How many of them have no sound, because their audio could not be used.
        left_out: Utterances that could not be probed: id → reason.
        words: Word errors of the model's own transcripts against the written ones.
        audio_bytes: The size of all sound files.
        data_bytes: The size of all data files.
    """

    page: Path
    utterances: int = 0
    doubtful: int = 0
    silent: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    words: Errors = field(default_factory=Errors)
    audio_bytes: int = 0
    data_bytes: int = 0

    def __str__(self) -> str:
        sizes = f"{_megabytes(self.audio_bytes)} of audio, {_megabytes(self.data_bytes)} of data"
        lines = [f"{self.page}: {self.utterances:,} utterances, {self.doubtful:,} with findings; {sizes}"]
        if hopeless(self.words):
            lines.append(f"WER {self.words.rate:.1%}: {HEARS_NOTHING}")
        if self.silent:
            hint = "; is this the folder in which it was probed?" if self.silent == self.utterances else ""
            lines.append(f"without sound: {self.silent:,}, because their audio cannot be used{hint}")
        if self.left_out:
            lines.append(f"not in it: {len(self.left_out):,}, which could not be probed (the page lists them)")
        return "\n".join(lines)


def write_report(probe: str | Path, folder: str | Path, link: bool = False) -> AuditReport:
    """Write the report of a probe file into a folder.

    The folder is replaced when the report is complete, so a failure leaves what was there before. Other files in the
    folder, such as decisions, stay.

    Args:
        probe: The probe file.
        folder: A new or empty folder, or one with an earlier report.
        link: Link to audio files instead of copying them, if browsers can play them as they are.

    Returns:
        What was written.
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
            (part / _MADE).write_text(json.dumps(_origin(probe, link)))
            _replace(place, part)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return report


def is_current(probe: str | Path, folder: str | Path) -> bool:
    """Whether a folder has the report of a probe, with its sound, made by this version.

    Args:
        probe: The probe file.
        folder: The folder of the report.

    Returns:
        True if there is nothing to make again.
    """
    try:
        return bool(json.loads((Path(folder) / _MADE).read_text()) == _origin(Path(probe), link=False))
    except (OSError, ValueError):
        return False


def _origin(probe: Path, link: bool) -> dict[str, Any]:
    with probe.open("rb") as file:
        return {"probe": hashlib.file_digest(file, "sha256").hexdigest(), "link": link, "version": __version__}


class _Writer:
    """Reads a probe once and writes its data and audio into `part`, which is renamed to `folder` later."""

    def __init__(self, probe: Path, part: Path, folder: Path, link: bool) -> None:
        self.probe, self.part, self.folder, self.link = probe, part, folder, link
        self.report = AuditReport(folder / "index.html")
        self.speakers: dict[str | None, int] = {None: 0}
        self.identity = hashlib.sha256()
        self.characters: set[str] = set()
        self.linked = False
        self.settings, self.entries = stream_probe(probe)

    def write(self) -> AuditReport:
        """Write all data and audio."""
        rows = _Chunks(self.part, "rows", ROWS_PER_FILE)
        details = _Chunks(self.part, "details", _DETAILS_PER_FILE)
        total = max(0, sum(1 for _ in read_lines(self.probe)) - 1)
        for utterance in progress(self._utterances(), desc="report", unit="utt", total=total):
            sound = self._sound(utterance)
            rows.add(self._row(utterance, sound))
            details.add(_detail(utterance, sound))
            self.report.words += wer([utterance.text], [utterance.heard])
            self.report.utterances += 1
        rows.close()
        details.close()

        # what could not be shown
        if self.report.utterances == 0:
            raise WildCTCError(f"{self.probe}: no utterances in it; could none be probed?")
        if self.report.silent > _MAX_NAMED:
            _log.warning("no sound: %s more", f"{self.report.silent - _MAX_NAMED:,}")

        # what the page needs to know about the whole report
        info = {
            "key": self.identity.hexdigest()[:16],
            "name": self.folder.resolve().name,
            "settings": {name: value for name, value in self.settings.items() if name != "characters"},
            "characters": self._characters(),
            "linked": self.linked,
            "utterances": self.report.utterances,
            "perDetails": _DETAILS_PER_FILE,
            "rowFiles": rows.files,
            "speakers": [name or "" for name in self.speakers],
            "leftOut": list(self.report.left_out.items()),
        }
        written = _write_script(self.part / "data" / "report.js", "report", info)
        self.report.data_bytes = rows.bytes + details.bytes + written
        return self.report

    def _characters(self) -> str:
        """What the model can write: as the probe says, else all characters that it heard or that are written."""
        known = self.settings.get("characters")
        return known if isinstance(known, str) else "".join(sorted(self.characters))

    def _utterances(self) -> Iterator[ProbedUtterance]:
        for entry in self.entries:
            if isinstance(entry, NotProbed):
                self.report.left_out[entry.id] = entry.reason
            else:
                yield entry

    def _sound(self, utterance: ProbedUtterance) -> Playable | None:
        path = Path(utterance.audio)
        if not path.is_file():  # paths are relative to the working directory, else to the probe
            path = self.probe.parent / path
        stretch = Utterance(
            utterance.id, path, start=utterance.offset, duration=utterance.duration, channel=utterance.channel
        )
        place = self.part / "audio" / f"{self.report.utterances:06d}"
        try:
            sound = make_playable(stretch, place, self.folder if self.link else None)
        except UtteranceError as error:
            self.report.silent += 1
            if self.report.silent <= _MAX_NAMED:
                _log.warning("no sound: %s", error)
            return None
        self.report.audio_bytes += sound.bytes
        self.linked |= sound.bytes == 0
        return sound

    def _row(self, utterance: ProbedUtterance, sound: Playable | None) -> list[Any]:
        self.identity.update(json.dumps([utterance.id, utterance.text]).encode())
        self.characters.update(utterance.text, utterance.heard)
        at = _utf16(utterance.text)
        issues = issues_of(utterance, LEAST_SCORE)
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
    """The gaps with unwritten sounds: their time, the expected number of sounds, what the model wrote there."""
    starts = [token.start for token in utterance.tokens] + [utterance.duration]
    ends = [0.0] + [token.end for token in utterance.tokens]
    heard = utterance.between or [""] * len(utterance.gaps)
    return [
        [_digits((ends[k] + starts[k]) / 2), _digits(count), heard[k].strip()]
        for k, count in enumerate(utterance.gaps)
        if count >= LEAST_SCORE
    ]


def _issue(issue: LabelIssue, at: list[int]) -> list[Any]:
    numbers = map(_digits, (issue.start, issue.end, issue.score))
    return [KINDS.index(issue.kind), at[issue.begin], at[issue.stop], *numbers, issue.word, issue.heard]


def _shade(utterance: ProbedUtterance, at: list[int]) -> str:
    """A digit for each UTF-16 code unit of the text: the bypass probability of its token, in tenths."""
    digits = ["0"] * at[-1]
    for token in utterance.tokens:
        level = str(min(9, int(10 * token.bypass)))
        digits[at[token.begin] : at[token.stop]] = level * (at[token.stop] - at[token.begin])
    return "".join(digits)


def _utf16(text: str) -> list[int]:
    """The index of each code point in a JavaScript string (UTF-16), and the index after the last.

    >>> _utf16("a😀b")
    [0, 1, 3, 4]
    """
    return list(accumulate((2 if char > "\uffff" else 1 for char in text), initial=0))


def _digits(value: float) -> float:
    return round(value, 3)


class _Chunks:
    """Writes values in files of `size`: data/NAME-0000.js and so on. Each calls wildctc.NAME(number, values)."""

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
    """Write a script that passes values to a function of the page; returns its size in bytes."""
    values = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in arguments)
    content = f"wildctc.{function}({','.join(values)});\n"
    # Escape all that could end a script element or a line of the script.
    for char in "<\u2028\u2029":
        content = content.replace(char, f"\\u{ord(char):04x}")
    raw = content.encode("utf-8", "backslashreplace")  # half a surrogate pair becomes \udxxx, as in JavaScript
    path.write_bytes(raw)
    return len(raw)


def _copy_page(folder: Path) -> None:
    for file in resources.files("wildctc.audit").joinpath("page").iterdir():
        if file.name.endswith((".html", ".css", ".js")):
            (folder / file.name).write_bytes(file.read_bytes())


def _check_folder(folder: Path) -> None:
    make_folder(folder.parent)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "data" / "report.js").is_file():
        raise WildCTCError(f"{folder} holds other files and no report: give a new folder")
    if folder.exists() and not folder.is_dir():
        raise WildCTCError(f"{folder} is a file: give a folder for the report")


def _replace(folder: Path, part: Path) -> None:
    """Replace `folder` by `part`. Files that a person put into the folder, such as decisions, stay."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists():  # an earlier command was killed during the steps below: a person's files may be there
        make_folder(folder)
        _keep_others(old, folder)
    if not folder.exists():
        part.rename(folder)
        return
    folder.rename(old)
    part.rename(folder)
    _keep_others(old, folder)


def _keep_others(old: Path, folder: Path) -> None:
    """Move the files that only `old` has to `folder`, and remove `old`."""
    for path in old.iterdir():
        if not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
