"""Write the data and the sound of a report. Several processes make them; this one puts them in order.

A page that is opened from disk may not fetch files, so its data are scripts. They are in the order of suspicion, so
that what the list shows first is in the first file. Memory grows with the index only, not with sounds and texts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import IO, Any, NamedTuple

from wildctc.audit.entries import Entry, Places, as_script, make_entry
from wildctc.child_processes import end_with_parent
from wildctc.cores import available_cores
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, parse_object, read_lines
from wildctc.probe.records import NotProbed, note_line, parse_entry, read_settings
from wildctc.progress import progress
from wildctc.scoring.error_rates import Errors
from wildctc.scoring.mismatch import HEARS_NOTHING, hopeless

INDEX_PER_FILE = 10_000  # utterances in a file
TEXTS_PER_FILE = 500
DETAILS_PER_FILE = 50
_MAX_NAMED = 5  # utterances without sound that are named in the log; the others are counted
_BATCH = 50  # lines that a process gets at once
_LEAST_LINES = 400  # with fewer, starting processes is not worth it

_log = logging.getLogger(__name__)
_Lines = list[tuple[int, str]]


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


class _Indexed(NamedTuple):
    """What the index has of an utterance, and where its other data are in the spool."""

    suspicion: float
    number: int
    id: str
    speaker: int
    duration: float
    checksum: int
    kinds: list[int]
    scores: list[float]
    begin: int
    texts: int
    details: int


class Builder:
    """Reads a probe once and writes its data and audio into a folder, which is renamed later."""

    def __init__(self, probe: Path, part: Path, folder: Path, link: bool, workers: int | None = None) -> None:
        """Read the probe's settings.

        Args:
            probe: The probe file.
            part: Where to write.
            folder: The name that `part` will get.
            link: Whether to link audio.
            workers: How many processes; None for one on each core.
        """
        self.part, self.folder = part, folder
        self.places = Places(probe, part, folder if link else None)
        self.workers = available_cores() if workers is None else workers
        self.report = AuditReport(folder / "index.html")
        self.speakers: dict[str | None, int] = {None: 0}
        self.identity = hashlib.sha256()
        self.characters: set[str] = set()
        self.linked = False
        self.index: list[_Indexed] = []
        self.lines = read_lines(probe)
        self.settings = self._read_settings()

    def _read_settings(self) -> dict[str, Any]:
        line, text = next(self.lines, (0, ""))
        if not line:
            raise WildCTCError(f"{self.places.probe}: empty; make it with `wildctc probe`")
        row = parse_object(text, self.places.probe, line)
        if isinstance(row, RowError):
            raise row
        return read_settings(row, self.places.probe)

    def write(self) -> AuditReport:
        """Write all data and audio.

        Returns:
            What was written.
        """
        spool = self.part / "spool"
        total = max(0, sum(1 for _ in read_lines(self.places.probe)) - 1)
        workers = self.workers if total >= _LEAST_LINES else 0
        with spool.open("wb+") as file:
            with closing(_made(self.lines, self.places, workers)) as made:
                for entry in progress(made, desc="report", unit="utt", total=total):
                    self._add(entry, file)
            if not self.index:
                raise WildCTCError(f"{self.places.probe}: no utterances in it; could none be probed?")
            if self.report.silent > _MAX_NAMED:
                _log.warning("no sound: %s more", f"{self.report.silent - _MAX_NAMED:,}")
            self.index.sort(key=lambda row: (-row.suspicion, row.number))
            self._write_scripts(file)
        spool.unlink()
        return self.report

    def _add(self, entry: Entry | NotProbed, spool: IO[bytes]) -> None:
        report = self.report
        if isinstance(entry, NotProbed):
            report.left_out[entry.id] = entry.reason
            return
        self.identity.update(json.dumps([entry.id, entry.text]).encode())
        self.characters |= entry.characters
        self.linked |= entry.linked
        parts = [part.encode("utf-8", "backslashreplace") for part in (entry.texts, entry.details)]
        place = spool.tell()
        spool.write(b"".join(parts))
        self.index.append(
            _Indexed(
                entry.suspicion,
                report.utterances,
                entry.id,
                self.speakers.setdefault(entry.speaker, len(self.speakers)),
                entry.duration,
                entry.checksum,
                entry.kinds,
                entry.scores,
                place,
                *map(len, parts),
            )
        )
        report.utterances += 1
        report.doubtful += any(score >= 0.5 for score in entry.scores)
        report.words += entry.words
        report.audio_bytes += entry.audio_bytes
        report.data_bytes += entry.picture_bytes
        if entry.silent:
            report.silent += 1
            if report.silent <= _MAX_NAMED:
                _log.warning("no sound: %s", entry.silent)

    def _write_scripts(self, spool: IO[bytes]) -> None:
        files = {
            "index": self._write_pieces("index", INDEX_PER_FILE, _columns),
            "texts": self._write_pieces("texts", TEXTS_PER_FILE, lambda rows: _spooled(spool, rows, 0)),
            "details": self._write_pieces("details", DETAILS_PER_FILE, lambda rows: _spooled(spool, rows, 1)),
        }
        info = {
            "key": self.identity.hexdigest()[:16],
            "name": self.folder.resolve().name,
            "settings": {name: value for name, value in self.settings.items() if name != "characters"},
            "characters": self._characters(),
            "linked": self.linked,
            "utterances": self.report.utterances,
            "files": files,
            "perFile": {"index": INDEX_PER_FILE, "texts": TEXTS_PER_FILE, "details": DETAILS_PER_FILE},
            "speakers": [name or "" for name in self.speakers],
            "leftOut": list(self.report.left_out.items()),
        }
        self._write("report", "report", _bytes(as_script(info)))

    def _write_pieces(self, name: str, size: int, values: Callable[[list[_Indexed]], bytes]) -> int:
        """Write data/NAME-0000.js and so on, each about `size` utterances; returns how many."""
        count = 0
        for begin in range(0, len(self.index), size):
            self._write(f"{name}-{count:04d}", name, str(count).encode(), values(self.index[begin : begin + size]))
            count += 1
        return count

    def _write(self, name: str, function: str, *arguments: bytes) -> None:
        """Write a script that passes values to a function of the page."""
        content = b"wildctc.%s(%s);\n" % (function.encode(), b",".join(arguments))
        self.report.data_bytes += (self.part / "data" / f"{name}.js").write_bytes(content)

    def _characters(self) -> str:
        """What the model can write: as the probe says, else all characters that it heard or that are written."""
        known = self.settings.get("characters")
        return known if isinstance(known, str) else "".join(sorted(self.characters))


def _columns(rows: list[_Indexed]) -> bytes:
    names = ("id", "number", "speaker", "suspicion", "duration", "checksum", "kinds", "scores")
    return _bytes(as_script([[getattr(row, name) for row in rows] for name in names]))


def _spooled(spool: IO[bytes], rows: list[_Indexed], part: int) -> bytes:
    """A JSON array of what the spool has of some rows: part 0 is the texts, 1 the details."""
    values = []
    for row in rows:
        spool.seek(row.begin + row.texts * part)
        values.append(spool.read(row.details if part else row.texts))
    return b"[%s]" % b",".join(values)


def _bytes(script: str) -> bytes:
    return script.encode("utf-8", "backslashreplace")  # half a surrogate pair becomes \\udxxx, as in JavaScript


# ------------------------------------------------------------------------------------------------------------ processes


def _made(lines: Iterable[tuple[int, str]], places: Places, workers: int) -> Generator[Entry | NotProbed]:
    """Make the data of all utterances, in the order of the lines, in this process or in several."""
    seen: dict[str, int] = {}
    batches = _batches(lines)
    found = _in_processes(batches, places, workers) if workers > 1 else (_make(places, *batch) for batch in batches)
    for entries in found:
        for line, entry in entries:
            note_line(places.probe, line, entry.id, seen)
            yield entry


def _batches(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, _Lines]]:
    """Groups of lines, each with the number of its first one, from 0."""
    rest, number = iter(lines), 0
    while batch := list(islice(rest, _BATCH)):
        yield number, batch
        number += len(batch)


def _make(places: Places, number: int, batch: _Lines) -> list[tuple[int, Entry | NotProbed]]:
    made = []
    for i, (line, text) in enumerate(batch):
        row = parse_object(text, places.probe, line)
        if isinstance(row, RowError):
            raise WildCTCError(str(row))  # which can be sent to another process
        made.append((line, make_entry(parse_entry(places.probe, line, row), number + i, places)))
    return made


def _in_processes(
    batches: Iterable[tuple[int, _Lines]], places: Places, workers: int
) -> Iterator[list[tuple[int, Entry | NotProbed]]]:
    """Make batches in several processes; a few wait, so that memory does not grow with the probe."""
    # a forked process need not import everything again
    context = get_context("fork" if "fork" in get_all_start_methods() else "spawn")
    waiting: deque[Future[list[tuple[int, Entry | NotProbed]]]] = deque()
    with ProcessPoolExecutor(workers, context, end_with_parent, (os.getpid(),)) as pool:
        try:
            for batch in batches:
                waiting.append(pool.submit(_make, places, *batch))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise WildCTCError("a process was killed; is there too little memory? Run the command again") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
