"""Plain JSON lines: a manifest with a `split` for each row, or one file per split."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from wildctc.corpora.manifest import parse_row, split_of
from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, read_lines, try_rows

_TABLES = {".csv": "", ".tsv": r", delimiter='\t', quoting=csv.QUOTE_NONE"}  # how `csv` reads them


def read(source: Path, text_field: str = "text") -> Iterator[Utterance | UtteranceError]:
    """Read a manifest, or a directory with manifest.jsonl or with train.jsonl, dev.jsonl, test.jsonl.

    A row without a split belongs to the split that its file is named after, or to train. In a directory with several
    files, rows without a split are refused in a file whose name is not that of a split.

    Args:
        source: The manifest or the directory. Rows are as in `load_manifest`.
        text_field: The field with the transcript, for rows that have several.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    for path in _manifests(source):
        nameless = path == source or path.stem.startswith("manifest")
        own = "train" if nameless and split_of(path.stem) is None else path.stem
        for line, row in try_rows(path):
            if isinstance(row, RowError):
                yield bad_row(row)
                continue
            try:
                if text_field not in row and (text_field != "text" or not row.keys() & {"supervisions", "texts"}):
                    raise RowError(path, line, f"no field {text_field!r}: there are {', '.join(row) or 'none'}")
                of_text = {"weights": None, "texts": None}  # they belong to `text`
                chosen = row if text_field == "text" else row | {"text": row[text_field]} | of_text
                if text_field != "text":
                    del chosen[text_field]  # the transcript is no further field
                for utterance in parse_row(chosen, path, line):
                    yield replace(utterance, id=utterance.id or utterance.audio.stem, split=utterance.split or own)
            except RowError as error:
                yield bad_row(error, row.get("id"))


def _manifests(source: Path) -> list[Path]:
    if source.is_file():
        if source.suffix in _TABLES:
            raise WildCTCError(_how_to_convert(source))
        return [source]
    paths = sorted(source.glob("manifest.jsonl")) or sorted(source.glob("*.jsonl"))
    if not paths:
        tables = sorted(path for path in source.iterdir() if path.suffix in _TABLES)
        raise WildCTCError(f"no manifest.jsonl in {source}" + "".join(f": {_how_to_convert(t)}" for t in tables[:1]))
    return paths


def _how_to_convert(table: Path) -> str:
    """Say that tables are not read, and give the command that converts this one to JSON lines."""
    columns = next((text for _, text in read_lines(table)), "").split("\t" if table.suffix == ".tsv" else ",")
    first = (
        "" if {"audio", "text"} <= {*columns} else f" name the columns audio and text ({', '.join(columns)} now), then"
    )
    rows = f"[print(json.dumps(row)) for row in csv.DictReader(sys.stdin{_TABLES[table.suffix]})]"
    return (
        f"{table} is a table, but JSON lines are needed:{first} run "
        f'python -c "import csv, json, sys; {rows}" < {table} > {table.with_suffix(".jsonl")}'
    )
