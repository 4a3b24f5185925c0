"""Rows of JSON that are kept as they are made, so that work on a manifest can be stopped and resumed.

Each process appends its rows to a partial file of its own beside the output, `OUTPUT.<rank>.partial`. When all rows are
there the first process writes the output, in the manifest's order, and removes the partial files. A partial file begins
with a header (what the rows depend on), and a blank line ends each batch: rows after the last blank line do not count.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.distributed import ALONE, Processes
from wildctc.errors import WildCTCError
from wildctc.files import as_bytes, writing

Row = dict[str, Any]


def row_line(row: Row) -> str:
    """A row as its line of the file."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def left_out(error: UtteranceError) -> Row:
    """The row of an utterance that cannot be used: it says why."""
    return {"id": error.id, "left_out": error.reason}


def manifest_digest(utterances: Sequence[Utterance]) -> str:
    """A short hash of what the rows of a manifest depend on."""
    content = [(u.id, u.start, u.duration, u.channel, u.text) for u in utterances]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Partials:
    """The partial files of `output`.

    kind: the command, such as "probe"; the header is {kind: settings}. deciding: the settings that must be the same
    for rows to be taken over, and what another value means ("another model").
    """

    output: Path
    kind: str
    settings: Row
    deciding: Mapping[str, str]
    processes: Processes = ALONE

    @property
    def paths(self) -> list[Path]:
        """The partial files that are there, of this process and of others."""
        return sorted(self.output.parent.glob(f"{self.output.name}.*.partial"))

    @property
    def header(self) -> str:
        """The first line of a file."""
        return row_line({self.kind: self.settings})

    def done(self) -> set[str]:
        """The ids of all rows in partial files. Call it in every process, before any of them appends."""
        found = {id for path in self.paths for id in self.index(path)}
        self.processes.barrier()
        return found

    def index(self, path: Path) -> dict[str, int]:
        """Where the row of each utterance begins, in a partial file or in a finished one with a header."""
        found: dict[str, int] = {}
        batch: dict[str, int] = {}
        position = 0
        with open(path, "rb") as file:
            for line in file:
                if position == 0:
                    if not line.endswith(b"\n"):
                        return {}  # killed as it began
                    self._check(path, self.parse(line, path))
                elif line == b"\n":
                    found |= batch
                    batch = {}
                elif line.endswith(b"\n"):
                    batch[self.parse(line, path).get("id", "")] = position
                position += len(line)
        return found if path != self.output else found | batch

    def append(self, batches: Iterable[Iterable[Row]]) -> None:
        """Write rows to this process's partial file, a batch at a time."""
        part = self.output.with_name(f"{self.output.name}.{self.processes.rank}.partial")
        with writing(part), open(part, "a+b") as file:
            _lock(file, part)
            if _cut_off_half_a_batch(file) == 0:
                file.write(as_bytes(self.header + "\n"))
                file.flush()
            for batch in batches:
                file.write(as_bytes("".join(map(row_line, batch)) + "\n"))
                file.flush()

    def merge(self, ids: Iterable[str], header: str = "") -> None:
        """Write the output: `header`, then the rows of `ids`; row by row, since all may not fit into memory.

        Call it in every process, when it has appended its rows.
        """
        self.processes.barrier()
        if self.processes.first:
            self._merge(ids, header)
        self.processes.barrier()

    def _merge(self, ids: Iterable[str], header: str) -> None:
        parts = self.paths
        places = {id: (part, where) for part in parts for id, where in self.index(part).items()}
        temporary = self.output.with_name(f".{self.output.name}.part")
        with writing(self.output):
            files = {part: open(part, "rb") for part in parts}  # noqa: SIM115 (closed below)
            with open(temporary, "wb") as out:
                out.write(as_bytes(header))
                for id in ids:
                    part, where = places[id]
                    files[part].seek(where)
                    out.write(files[part].readline())
                out.flush()
                os.fsync(out.fileno())
            for file in files.values():
                file.close()
            os.replace(temporary, self.output)
            for part in parts:
                part.unlink()

    def parse(self, line: bytes, path: Path) -> Row:
        """The row of a line; WildCTCError if it is none."""
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError):
            raise self._foreign(path) from None

    def _check(self, path: Path, header: Row) -> None:
        there = header.get(self.kind)
        if not isinstance(there, dict):
            raise self._foreign(path)
        for name, what in self.deciding.items():
            if there.get(name) != self.settings[name]:
                raise WildCTCError(f"{path} was made with {what}; remove it, or write elsewhere with -o")

    def _foreign(self, path: Path) -> WildCTCError:
        return WildCTCError(f"{path}: damaged, or not written by `wildctc {self.kind}`; remove it to {self.kind} again")


def _lock(file: IO[bytes], part: Path) -> None:
    """Keep a second command from writing the same rows."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WildCTCError(f"{part}: another process is writing it; wait for it or stop it") from None


def _cut_off_half_a_batch(file: IO[bytes]) -> int:
    """Remove what a killed process left after the last blank line; returns the size that remains."""
    file.seek(0)
    size = position = 0
    for line in file:
        position += len(line)
        if line == b"\n":
            size = position
    file.truncate(size)
    return size
