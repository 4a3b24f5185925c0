"""Read text files and JSON lines, with errors that name the file and the line; write a row as a line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from wildctc.errors import WildCTCError

LONGEST_LINE = 50_000_000  # bytes; the probe of an hour of speech has about five million
_T = TypeVar("_T")


class RowError(WildCTCError):
    """A line of a file that cannot be used.

    Attributes:
        path: The file.
        line: The number of the line, from 1.
        reason: What is wrong. Words before a colon name the kind of error; details of this line follow the colon.
        key: The first word of the line, which is an id in tables.
    """

    def __init__(self, path: Path, line: int, reason: str, key: str = "") -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path, self.line, self.reason, self.key = path, line, reason, key


def row_line(row: dict[str, Any]) -> str:
    """Convert a row to a line of JSON.

    Args:
        row: The row.

    Returns:
        JSON and a newline.
    """
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read a file of JSON lines.

    Args:
        path: The file; `.gz` is unzipped.

    Returns:
        An iterator over line numbers, from 1, and objects. Blank lines are skipped.

    Raises:
        RowError: A line is not a JSON object.
        WildCTCError: The file cannot be read.
    """
    return _strict(try_rows(path))


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a text file, split at newlines only: a transcript may have other Unicode line separators.

    Args:
        path: The file; `.gz` is unzipped.

    Returns:
        An iterator over line numbers, from 1, and lines. Blank lines are skipped.

    Raises:
        RowError: A line is not UTF-8.
        WildCTCError: The file cannot be read.
    """
    return _strict(try_lines(path))


def try_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    """Read a file of JSON lines, and continue after bad lines.

    Args:
        path: The file; `.gz` is unzipped.

    Yields:
        Line numbers, from 1, with the object, or with the error of a line that is not a JSON object.
    """
    for line, text in try_lines(path):
        yield line, text if isinstance(text, RowError) else parse_object(text, Path(path), line)


def try_lines(path: str | Path) -> Iterator[tuple[int, str | RowError]]:
    """Read the lines of a text file, and continue after bad lines.

    Args:
        path: The file; `.gz` is unzipped.

    Yields:
        Line numbers, from 1, with the line, or with the error of a line that is not UTF-8.
    """
    try:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            for line, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
                if len(raw) > LONGEST_LINE:  # a few megabytes of gzip can unpack to one line that fills the memory
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


def _strict(found: Iterator[tuple[int, _T | RowError]]) -> Iterator[tuple[int, _T]]:
    for line, row in found:
        if isinstance(row, RowError):
            raise row
        yield line, row


def parse_object(text: str, path: Path, line: int) -> dict[str, Any] | RowError:
    """Parse a line of a file of JSON lines.

    Args:
        text: The line.
        path: The file, for messages.
        line: Its number, from 1.

    Returns:
        The object, or the error.
    """
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return RowError(path, line, f"not JSON: {error}")
    return row if isinstance(row, dict) else RowError(path, line, f"not a JSON object: {text.strip()[:40]}")
