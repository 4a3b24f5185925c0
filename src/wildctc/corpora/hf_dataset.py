"""A dataset of the Hugging Face library on disk: parquet, arrow, or a folder of `save_to_disk`.

Its sound is inside the tables, so it is written to files first. Nothing is decoded by the datasets library, which would
need torchcodec, and no script of a dataset is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wildctc.corpora.audio_folder import TEXTS
from wildctc.corpora.manifest import split_of
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import make_folder, write_atomically, write_text
from wildctc.json_lines import row_line
from wildctc.progress import progress

_KEPT = ("speaker", "speaker_id", "language")


def unpack(source: str | Path, folder: str | Path, text_field: str | None = None) -> Path:
    """Write FOLDER/audio/ and FOLDER/manifest.jsonl.

    Args:
        source: A .parquet or .arrow file, a folder of them, or what `save_to_disk` wrote. A column `audio` holds the
            bytes of a file, or its path.
        folder: The folder to write.
        text_field: The column with the transcript; None looks for text, transcription, sentence and the like.

    Returns:
        The manifest.

    Raises:
        WildCTCError: It is no such dataset, or has no such columns.
    """
    source, folder = Path(source), make_folder(Path(folder))
    rows = []
    for split, table in _splits(source).items():
        text = _column(table, source, text_field)
        places = make_folder(make_folder(folder / "audio") / split)
        for i, row in enumerate(progress(table, desc=f"unpacking {split}", unit="utt", leave=False)):
            kept = {
                name.removesuffix("_id"): str(row[name]) for name in _KEPT if row.get(name) is not None and name != "id"
            }
            id = str(row["id"]) if row.get("id") is not None else f"{split}-{i:07}"
            audio = _file(row["audio"], places / f"{i:07}", source)
            rows.append({"id": id, "audio": audio, "text": row[text] or "", "split": split_of(split) or "train"} | kept)
    write_text(folder / "manifest.jsonl", "".join(map(row_line, rows)))
    return folder / "manifest.jsonl"


def _file(audio: dict[str, Any], place: Path, source: Path) -> str:
    """Write the sound of a row to a file, as it is; or find the file that the row names."""
    content, path = audio.get("bytes"), audio.get("path")
    if content:
        place = place.with_suffix(Path(path).suffix if path else ".wav")
        write_atomically(place, content)
        return str(place.absolute())
    if not path:
        raise WildCTCError(f"{source}: a row has neither bytes nor a path in its column audio")
    beside = (source if source.is_dir() else source.parent) / path
    return str(beside.absolute() if beside.is_file() else path)


def _splits(source: Path) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "datasets") from None

    datasets.disable_progress_bars()
    try:
        if (source / "dataset_dict.json").is_file():
            found = dict(datasets.load_from_disk(str(source)))
        elif (source / "state.json").is_file():
            found = {"train": datasets.load_from_disk(str(source))}
        else:
            found = {split: datasets.concatenate_datasets(list(parts)) for split, parts in _tables(source, datasets)}
    except WildCTCError:
        raise
    except Exception as error:  # those of pyarrow, and its own
        raise WildCTCError(
            f"{source}: the datasets library cannot read it: {str(error).splitlines()[0][:200]}"
        ) from None
    for split, table in found.items():
        if "audio" not in table.column_names:
            raise WildCTCError(f"{source}, {split}: no column audio; there are {', '.join(table.column_names)}")
        if isinstance(table.features["audio"], datasets.Audio):
            found[split] = table.cast_column("audio", datasets.Audio(decode=False))
    return found


def _tables(source: Path, datasets: Any) -> Iterator[tuple[str, list[Any]]]:
    """The tables of each split. A file belongs to the split that it, or its folder, is named after."""
    files = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.suffix in (".parquet", ".arrow"))
    if not files:
        raise WildCTCError(f"no .parquet or .arrow file in {source}, nor what save_to_disk writes")
    groups: dict[str, list[Any]] = {}
    for path in files:
        open_table = datasets.Dataset.from_parquet if path.suffix == ".parquet" else datasets.Dataset.from_file
        groups.setdefault(split_of(path.name) or split_of(path.parent.name) or "train", []).append(
            open_table(str(path))
        )
    yield from groups.items()


def _column(table: Any, source: Path, text_field: str | None) -> str:
    names = [text_field] if text_field else TEXTS
    if not (found := next((name for name in names if name in table.column_names), None)):
        raise WildCTCError(f"{source}: no column {' or '.join(names)}; there are {', '.join(table.column_names)}")
    return found
