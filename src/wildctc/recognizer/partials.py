"""Keep rows of JSON as they are made, so that work on a manifest can be stopped and resumed.

Each process appends its rows to its own partial file beside the output, `OUTPUT.<rank>.partial`. When all rows exist,
the first process writes the output, in the manifest's order, and removes the partial files. A partial file begins with
a header (what the rows depend on). A blank line ends each batch: rows after the last blank line do not count.
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
from wildctc.json_lines import row_line

Row = dict[str, Any]


def left_out(error: UtteranceError) -> Row:
    """Make the row of an utterance that cannot be used.

    Args:
        error: Which utterance, and why.

    Returns:
        A row with the id and the reason.
    """
    return {"id": error.id, "left_out": error.reason}


def manifest_digest(utterances: Sequence[Utterance]) -> str:
    """Hash what the rows of a manifest depend on.

    Args:
        utterances: The manifest's utterances.

    Returns:
        16 hexadecimal digits.
    """
    content = [(u.id, u.start, u.duration, u.channel, u.text) for u in utterances]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def texts_digest(texts: Mapping[str, str]) -> str:
    """Hash texts that rows depend on.

    Args:
        texts: Texts by utterance id.

    Returns:
        16 hexadecimal digits.
    """
    return hashlib.sha256(json.dumps(list(texts.items())).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Partials:
    """The partial files of an output.

    Attributes:
        output: The file to write.
        kind: The command, such as "probe". The header is {kind: settings}.
        settings: What the rows depend on.
        deciding: The settings that must be the same to resume → how an error names another value ("another model").
        processes: The processes that share the work.
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
        """Find the rows that exist. Call it in every process, before any of them appends.

        Returns:
            The ids of all rows in partial files.

        Raises:
            WildCTCError: A partial file is damaged, or was made with other settings.
        """
        found = {id for path in self.paths for id in self.index(path)}
        self.processes.barrier()
        return found

    def index(self, path: Path) -> dict[str, int]:
        """Find where each row begins.

        Args:
            path: A partial file, or a finished file with a header.

        Returns:
            Utterance id → position in bytes.

        Raises:
            WildCTCError: The file is damaged, or was made with other settings.
        """
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
        """Append rows to this process's partial file, a batch at a time.

        Args:
            batches: The rows of each batch.

        Raises:
            WildCTCError: Another process is writing the file.
        """
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
        """Write the output, row by row, because all rows together may not fit into memory.

        Call it in every process, after it has appended its rows.

        Args:
            ids: The utterances, in the order of the output.
            header: What comes before the rows.
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
        """Parse a line.

        Args:
            line: The line.
            path: Its file, for errors.

        Returns:
            The row.

        Raises:
            WildCTCError: The line is not a JSON object.
        """
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
    """Prevent a second command from writing the same rows."""
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
