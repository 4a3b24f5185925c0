"""Read text files and rows, with errors that name the file and the line; write rows.

Rows are JSON lines, or a table (CSV, TSV) with the names of the columns in its first line.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from wildctc.errors import WildCTCError
from wildctc.files import check_writable

LONGEST_LINE = 50_000_000  # bytes; the probe of an hour of speech has about five million
# Columns of a table whose cells are JSON: numbers, and lists.
_VALUES = {
    "duration", "start", "offset", "channel", "weights", "score", "nbest", "begin", "stop", "end", "word",
    "confidence", "words", "texts",
}  # fmt: skip
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
    """Read a file of JSON lines, or a table.

    Args:
        path: The file; `.gz` is unzipped. `.csv` and `.tsv` are tables.

    Returns:
        An iterator over line numbers, from 1, and objects. Blank lines are skipped.

    Raises:
        RowError: A line is not a JSON object, or does not fit the table.
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
    """Read a file of JSON lines, or a table, and continue after bad lines.

    Args:
        path: The file; `.gz` is unzipped. `.csv` and `.tsv` are tables.

    Yields:
        Line numbers, from 1, with the object, or with the error of a line that is not a JSON object.
    """
    if is_table(path):
        yield from _table_rows(path)
        return
    path = Path(path)
    for line, text in try_lines(path):
        yield line, text if isinstance(text, RowError) else parse_object(text, path, line)


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


def is_table(path: str | Path) -> bool:
    """Tell whether a file is a table, by its name.

    Args:
        path: The file.

    Returns:
        Whether it is CSV or TSV.

    >>> is_table("dev.csv"), is_table("dev.tsv.gz"), is_table("dev.jsonl")
    (True, True, False)
    """
    return str(path).removesuffix(".gz").lower().endswith((".csv", ".tsv"))


def check_rows_writable(path: Path, source: str | Path | None = None) -> None:
    """Check before long work that a file of JSON lines can be written.

    Args:
        path: The file to write; its folder is made.
        source: A file that is read, and must not be overwritten.

    Raises:
        WildCTCError: It cannot be written, is the source, or is named like a table, as which it would be read.
    """
    if is_table(path):
        advice = f"`wildctc convert NAME.jsonl {path}` then makes a table of it"
        raise WildCTCError(f"{path}: what is written are JSON lines; give a name in .jsonl, and {advice}")
    check_writable(path, source)


def table_text(rows: Iterable[dict[str, Any]], path: str | Path) -> str:
    """Write rows as a table.

    Args:
        rows: The rows. Columns are in the order in which their names occur first. None is an empty cell; numbers,
            lists and objects are JSON.
        path: The file that it is for; .tsv has tabs between cells, and no quotes.

    Returns:
        The text of the file.

    >>> table_text([{"id": "a", "text": "yes, no", "score": -1.5}, {"id": "b", "text": "no", "score": None}], "h.csv")
    'id,text,score\\na,"yes, no",-1.5\\nb,no,\\n'
    """
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    if ".tsv" in Path(path).suffixes:  # no quotes: Common Voice and most others have none
        return "".join("\t".join(" ".join(c.split("\t")) for c in cells) + "\n" for cells in lines)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return " ".join(text.splitlines())


def _table_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    """The rows of a table, line by line: a cell cannot hold a line break."""
    columns, how = None, {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if ".tsv" in Path(path).suffixes else {}
    for line, text in try_lines(path):
        if isinstance(text, RowError):
            yield line, text
            continue
        if columns is None and not how and ";" in text and "," not in text:
            how = {"delimiter": ";"}  # as spreadsheets write it where the comma is the decimal sign
        try:
            [cells] = csv.reader([text], strict=True, **how)  # type: ignore[arg-type]
        except csv.Error as error:
            yield line, RowError(Path(path), line, f"not a row of a table: {error}")
            continue
        if columns is None:
            columns = [name.strip() for name in cells]
            if len(set(columns)) != len(columns):
                raise WildCTCError(f"{path}:{line}: two columns have the same name: {', '.join(columns)}")
        elif len(cells) != len(columns):
            reason = f"another number of cells: {len(cells)}, where the first line names {len(columns)} columns"
            yield line, RowError(Path(path), line, reason, cells[0])
        else:
            yield line, _as_object(dict(zip(columns, cells, strict=True)), Path(path), line)


def _as_object(cells: dict[str, str], path: Path, line: int) -> dict[str, Any] | RowError:
    """The object that a row of a table stands for: an empty cell is no field, except that a text can be empty."""
    row: dict[str, Any] = {name: cell for name, cell in cells.items() if cell or name in ("text", "reference")}
    for name in _VALUES & row.keys():
        try:
            row[name] = json.loads(row[name])
        except ValueError:
            return RowError(
                path, line, f"not a {'list' if name == 'texts' else 'number'} in column {name!r}: {row[name][:40]}"
            )
    if str(row.get("reference", "")).startswith('["'):  # several references
        try:
            row["reference"] = json.loads(row["reference"])
        except ValueError:
            return RowError(path, line, "not a list of references")
    return row
