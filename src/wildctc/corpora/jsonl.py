"""Rows, as JSON lines or as a table: a manifest with a `split` for each row, or one file per split."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from wildctc.corpora.manifest import parse_row, split_of
from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError, try_rows


def read(source: Path, text_field: str = "text") -> Iterator[Utterance | UtteranceError]:
    """Read a manifest, or a directory with manifest.jsonl or with train.jsonl, dev.jsonl, test.jsonl.

    Where there is no such file, those that end in .csv are taken, or else in .tsv.

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
                if text_field not in row and (text_field != "text" or "supervisions" not in row):
                    raise RowError(path, line, f"no field {text_field!r}: there are {', '.join(row) or 'none'}")
                # weights belong to the words of `text`
                chosen = row if text_field == "text" else row | {"text": row[text_field], "weights": None}
                if text_field != "text":
                    del chosen[text_field]  # the transcript is no further field
                for utterance in parse_row(chosen, path, line):
                    yield replace(utterance, id=utterance.id or utterance.audio.stem, split=utterance.split or own)
            except RowError as error:
                yield bad_row(error, row.get("id"))


def _manifests(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    for ending in ("jsonl", "csv", "tsv"):
        if paths := sorted(source.glob(f"manifest.{ending}")) or sorted(source.glob(f"*.{ending}")):
            return paths
    raise WildCTCError(f"no manifest.jsonl, manifest.csv or manifest.tsv in {source}")
