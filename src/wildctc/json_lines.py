"""Text files and JSON lines, read with the file and line of whatever is wrong."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from wildctc.errors import WildCTCError

LONGEST_LINE = 50_000_000  # bytes; a probe of an hour has about five million
T = TypeVar("T")


class RowError(WildCTCError):
    """A line of a file that cannot be used: `path`, `line` and `reason` say which and why.

    What differs from row to row comes after a colon in the reason, so that the words before it name the kind of fault.
    key: the line's first word, which in tables is an id.
    """

    def __init__(self, path: Path, line: int, reason: str, key: str = "") -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path, self.line, self.reason, self.key = path, line, reason, key


def read_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, and objects of a JSON-lines file, gzipped or not; blank lines are skipped."""
    return _strict(try_rows(path))


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines of a text file, gzipped or not; blank lines are skipped.

    Split at newlines alone: a transcript may hold other Unicode line separators.
    """
    return _strict(try_lines(path))


def try_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    """As `read_rows`, with a line that is no JSON object as an error, and the lines after it."""
    for line, text in try_lines(path):
        yield line, text if isinstance(text, RowError) else _parse_object(text, Path(path), line)


def try_lines(path: str | Path) -> Iterator[tuple[int, str | RowError]]:
    """As `read_lines`, with a line that is not UTF-8 as an error, and the lines after it."""
    try:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            for line, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
                if len(raw) > LONGEST_LINE:  # a few megabytes of gzip can hold all memory in one line
                    raise WildCTCError(f"{path}:{line}: a line of more than {LONGEST_LINE:,} bytes: not rows of JSON?")
                try:
                    text = raw.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    key, *_ = raw.decode("utf-8", "replace").split()
                    yield line, RowError(Path(path), line, f"not UTF-8: byte 0x{raw[error.start]:02x}", key)
                    continue
                if text.strip():
                    yield line, text
    except (OSError, EOFError, zlib.error) as error:
        raise WildCTCError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _strict(found: Iterator[tuple[int, T | RowError]]) -> Iterator[tuple[int, T]]:
    for line, row in found:
        if isinstance(row, RowError):
            raise row
        yield line, row


def _parse_object(text: str, path: Path, line: int) -> dict[str, Any] | RowError:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return RowError(path, line, f"not JSON: {error}")
    return row if isinstance(row, dict) else RowError(path, line, f"not a JSON object: {text.strip()[:40]}")
