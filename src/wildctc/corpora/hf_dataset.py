"""A dataset of the Hugging Face library: parquet, arrow, a folder of `save_to_disk`, or at an address, as a stream.

Its sound is inside the tables, so it is written to files first, row by row: memory does not grow with the dataset, and
parquet is not converted to arrow on the way. Nothing is decoded by the datasets library, which would need torchcodec,
and no script of a dataset is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wildctc.corpora.audio_folder import TEXTS
from wildctc.corpora.manifest import split_of
from wildctc.corpora.shards import is_address
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import make_folder, write_atomically, writing
from wildctc.json_lines import row_line
from wildctc.progress import progress

_KEPT = ("speaker", "speaker_id", "language")
_HUB = "hf://datasets/"


def unpack(
    source: str | Path, folder: str | Path, text_field: str | None = None, configuration: str | None = None
) -> Path:
    """Write FOLDER/audio/ and FOLDER/manifest.jsonl.

    Args:
        source: A .parquet or .arrow file, a folder of them, or what `save_to_disk` wrote. A column `audio` holds the
            bytes of a file, or its path. Or an address: of parquet files for fsspec (`s3://bucket/train-*.parquet`), or
            of a dataset on the hub (`hf://datasets/USER/NAME`).
        folder: The folder to write.
        text_field: The column with the transcript; None looks for text, transcription, sentence and the like.
        configuration: Of a dataset on the hub, such as a language.

    Returns:
        The manifest.

    Raises:
        WildCTCError: It is no such dataset, or has no such columns.
    """
    folder = make_folder(Path(folder))
    manifest, part = folder / "manifest.jsonl", folder / ".manifest.jsonl.part"
    with writing(part), open(part, "w", encoding="utf-8") as file:
        for split, table in _splits(source, configuration).items():
            places = make_folder(make_folder(folder / "audio") / split)
            rows = progress(_rows(table, source, split), desc=f"unpacking {split}", unit="utt", leave=False)
            text = None
            for i, row in enumerate(rows):
                text = text or _column(row, source, text_field)
                file.write(row_line(_plain(row, text, split, i, _file(row["audio"], places / f"{i:07}", source))))
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, manifest)
    return manifest


def _plain(row: dict[str, Any], text: str, split: str, number: int, audio: str) -> dict[str, Any]:
    kept = {name.removesuffix("_id"): str(row[name]) for name in _KEPT if row.get(name) is not None}
    id = str(row["id"]) if row.get("id") is not None else f"{split}-{number:07}"
    return {"id": id, "audio": audio, "text": row[text] or "", "split": split_of(split) or "train"} | kept


def _rows(table: Any, source: str | Path, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a split. A stream fails where it is read, not where it is opened."""
    try:
        for row in table:
            if "audio" not in row:
                raise WildCTCError(f"{source}, {split}: no column audio; there are {', '.join(row)}")
            yield row
    except WildCTCError:
        raise
    except Exception as error:  # those of pyarrow, fsspec and its own
        raise _unreadable(source, error) from None


def _unreadable(source: str | Path, error: Exception) -> WildCTCError:
    said = str(error).splitlines()[0][:200] if str(error) else repr(error)
    return WildCTCError(f"{source}: the datasets library cannot read it: {said}")


def _file(audio: dict[str, Any], place: Path, source: str | Path) -> str:
    """Write the sound of a row to a file, as it is; or find the file that the row names."""
    content, path = audio.get("bytes"), audio.get("path")
    if content:
        place = place.with_suffix(Path(path).suffix if path else ".wav")
        write_atomically(place, content)
        return str(place.absolute())
    if not path:
        raise WildCTCError(f"{source}: a row has neither bytes nor a path in its column audio")
    if is_address(source):
        return str(path)
    here = Path(source)
    beside = (here if here.is_dir() else here.parent) / path
    return str(beside.absolute() if beside.is_file() else path)


def _splits(source: str | Path, configuration: str | None) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "datasets") from None

    datasets.disable_progress_bars()
    try:
        found = _open(datasets, str(source), configuration)
        for split, table in found.items():
            if table.features is not None and isinstance(table.features.get("audio"), datasets.Audio):
                found[split] = table.cast_column("audio", datasets.Audio(decode=False))
    except WildCTCError:
        raise
    except Exception as error:  # those of pyarrow, fsspec and its own
        raise _unreadable(source, error) from None
    return found


def _open(datasets: Any, source: str, configuration: str | None) -> dict[str, Any]:
    if source.startswith(_HUB) and not source.endswith(".parquet"):
        name = source.removeprefix(_HUB).rstrip("/")
        return dict(datasets.load_dataset(name, configuration, streaming=True))
    if is_address(source):
        split = split_of(source.rsplit("/", 1)[-1]) or "train"
        return dict(datasets.load_dataset("parquet", data_files={split: source}, streaming=True))
    here = Path(source)
    if (here / "dataset_dict.json").is_file():
        return dict(datasets.load_from_disk(source))
    if (here / "state.json").is_file():
        return {"train": datasets.load_from_disk(source)}
    found: dict[str, Any] = {}
    for split, files in _tables(here).items():
        if files[0].suffix == ".parquet":
            names = {split: [str(path) for path in files]}
            found |= datasets.load_dataset("parquet", data_files=names, streaming=True)
        else:
            found[split] = datasets.concatenate_datasets([datasets.Dataset.from_file(str(path)) for path in files])
    return found


def _tables(source: Path) -> dict[str, list[Path]]:
    """The tables of each split. A file belongs to the split that it, or its folder, is named after."""
    files = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.suffix in (".parquet", ".arrow"))
    if not files:
        raise WildCTCError(f"no .parquet or .arrow file in {source}, nor what save_to_disk writes")
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(split_of(path.name) or split_of(path.parent.name) or "train", []).append(path)
    for split, some in groups.items():
        if len({path.suffix for path in some}) > 1:
            raise WildCTCError(f"{source}: the files of {split} are parquet and arrow; keep those of one kind")
    return groups


def _column(row: dict[str, Any], source: str | Path, text_field: str | None) -> str:
    names = [text_field] if text_field else TEXTS
    if not (found := next((name for name in names if name in row), None)):
        raise WildCTCError(f"{source}: no column {' or '.join(names)}; there are {', '.join(row)}")
    return found
