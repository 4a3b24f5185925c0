"""AudioFolder of Hugging Face datasets: metadata.csv, .jsonl or .parquet beside the files, a folder for each split."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import parse_row, split_of
from wildctc.corpora.utterance import Utterance, UtteranceError, bad_row
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.json_lines import RowError, try_rows

TEXTS = ("text", "transcription", "sentence", "transcript", "normalized_text")  # how the column is called


def read(source: Path) -> Iterator[Utterance | UtteranceError]:
    """Read every metadata file in the folder and below.

    Args:
        source: The folder. A file belongs to the split that the first folder of its path is named after, or to train.

    Yields:
        The utterances; for a row that cannot be used, what is wrong with it.
    """
    tables = sorted(p for ending in ("csv", "jsonl", "parquet") for p in source.rglob(f"metadata.{ending}"))
    if not tables:
        raise WildCTCError(f"no metadata.csv, metadata.jsonl or metadata.parquet in {source}")
    for path in tables:
        for line, row in _parquet_rows(path) if path.suffix == ".parquet" else try_rows(path):
            try:
                if isinstance(row, RowError):
                    raise row
                text = next((name for name in TEXTS if name in row), None)
                if text is None or "file_name" not in row:
                    raise RowError(
                        path, line, f"no file_name or none of {', '.join(TEXTS)}: there are {', '.join(row)}"
                    )
                plain = {k: v for k, v in row.items() if k not in ("file_name", text)}
                [utterance] = parse_row(plain | {"audio": row["file_name"], "text": row[text]}, path, line)
            except RowError as error:
                yield bad_row(error)
                continue
            place = utterance.audio.relative_to(source)
            split = utterance.split or (split_of(place.parts[0]) if len(place.parts) > 1 else None)
            yield replace(utterance, id=utterance.id or "-".join(place.with_suffix("").parts), split=split)


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "datasets") from None
    try:
        line = 0
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                line += 1
                yield line, {name: value for name, value in row.items() if value is not None}
    except (OSError, pyarrow.ArrowException) as error:
        raise WildCTCError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from None
