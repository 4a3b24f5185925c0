"""Rows, as JSON lines or as a table: a manifest with a `split` for each row, or one file per split."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import parse_row, split_of
from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_rows


def read(source: Path, text_field: str | Sequence[str] = "text") -> Iterator[Utterance | UtteranceError]:
    """Read a manifest, or a directory with manifest.jsonl or with train.jsonl, dev.jsonl, test.jsonl.

    Where there is no such file, those that end in .csv are taken, or else in .tsv.

    A row without a split belongs to the split that its file is named after, or to train. In a directory with several
    files, rows without a split are refused in a file whose name is not that of a split.

    Args:
        source: The manifest or the directory. Rows are as in `load_manifest`.
        text_field: The field with the transcript, for rows that have several. Of several fields the first is the
            transcript, and all of them become the `texts` of the utterance, as if each were an annotator.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    fields = (text_field,) if isinstance(text_field, str) else tuple(text_field)
    for path in _manifests(source):
        nameless = path == source or path.stem.startswith("manifest")
        own = "train" if nameless and split_of(path.stem) is None else path.stem
        for line, row in try_rows(path):
            if isinstance(row, RowError):
                yield bad_row(row)
                continue
            try:
                for utterance in parse_row(_with_transcript(row, fields, path, line), path, line):
                    yield replace(utterance, id=utterance.id or utterance.audio.stem, split=utterance.split or own)
            except RowError as error:
                yield bad_row(error, row.get("id"))


def _with_transcript(row: dict[str, Any], fields: tuple[str, ...], path: Path, line: int) -> dict[str, Any]:
    """The row with the transcripts of some fields in the places of `text` and `texts`."""
    if fields == ("text",):
        if not row.keys() & {"text", "texts", "supervisions"}:
            raise RowError(path, line, f"no field 'text': there are {', '.join(row) or 'none'}")
        return row
    if lacking := next((name for name in fields if name not in row), None):
        raise RowError(path, line, f"no field {lacking!r}: there are {', '.join(row) or 'none'}")
    texts = {name: row[name] for name in fields} if len(fields) > 1 else None
    chosen = {key: value for key, value in row.items() if key not in fields}  # a transcript is no further field
    return chosen | {"text": row[fields[0]], "texts": texts, "weights": None}  # weights belong to the words of `text`


def _manifests(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    for ending in ("jsonl", "csv", "tsv"):
        if paths := sorted(source.glob(f"manifest.{ending}")) or sorted(source.glob(f"*.{ending}")):
            return paths
    raise WildCTCError(f"no manifest.jsonl, manifest.csv or manifest.tsv in {source}")
