"""Write a manifest again with some of its transcripts changed. All other fields of a row stay as they are."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from wildctc.corpora.utterance import Utterance
from wildctc.files import as_bytes, write_atomically

Row = dict[str, Any]


def set_text(row: Row, number: int, text: str) -> None:
    """Set the transcript of a row. Weights of its words, which belong to the old transcript, are removed.

    Args:
        row: The row of a manifest; it is changed.
        number: Which utterance of the row, from 0: a cut may have several supervisions.
        text: The new transcript.
    """
    set_weights(row, number, None)
    _holder(row, number, make=True)["text"] = text


def add_fields(row: Row, number: int, fields: dict[str, str]) -> None:
    """Add fields about a transcript: to the row, or to `custom` of the cut's supervision.

    Args:
        row: The row of a manifest; it is changed.
        number: Which utterance of the row, from 0.
        fields: Their names and values.
    """
    holder = _holder(row, number, make=True)
    if _is_cut(row):
        holder["custom"] = {**(holder.get("custom") or {}), **fields}
    else:
        row.update(fields)


def set_weights(row: Row, number: int, weights: Sequence[float] | None) -> None:
    """Set the weights of a transcript's words.

    Args:
        row: The row of a manifest; it is changed.
        number: Which utterance of the row, from 0.
        weights: One number for each word; None removes them.
    """
    holder = _holder(row, number, make=weights is not None)
    if _is_cut(row):
        custom = {name: value for name, value in (holder.get("custom") or {}).items() if name != "weights"}
        custom |= {} if weights is None else {"weights": list(weights)}
        if custom or "custom" in holder:
            holder["custom"] = custom
    elif weights is not None:
        row["weights"] = list(weights)
    else:
        row.pop("weights", None)


def keep_utterances(row: Row, numbers: Collection[int]) -> bool:
    """Remove all other utterances from a row.

    A cut with one supervision is an utterance as a whole. So if one of several is left, the cut becomes its part.

    Args:
        row: The row of a manifest; it is changed.
        numbers: Which of its utterances stay, from 0.

    Returns:
        Whether any is left.
    """
    said = row.get("supervisions") or []
    if len(said) < 2 or len(numbers) == len(said):
        return bool(numbers)
    row["supervisions"] = [supervision for n, supervision in enumerate(said) if n in numbers]
    if len(row["supervisions"]) == 1:
        [left] = row["supervisions"]
        row["id"] = left["id"]
        row["start"] = max(0.0, (row.get("start") or 0.0) + (left.get("start") or 0.0))
        row["duration"], left["start"] = left["duration"], 0.0
    return bool(numbers)


def move_audio(row: Row, manifest: Path, output: Path) -> None:
    """Make the path of the audio relative to the new manifest, if it was relative to the old one.

    Args:
        row: The row of a manifest; it is changed.
        manifest: The manifest that it comes from.
        output: The manifest that it will be in.
    """
    before, after = manifest.parent.resolve(), output.parent.resolve()
    if row.get("recording"):  # lhotse: relative to the working directory if the file is there, else to the manifest
        sources = row["recording"]["sources"]
        places = [(source, "source") for source in sources if not Path(source["source"]).is_file()]
    else:
        places = [(row, "audio_filepath" if "audio_filepath" in row else "audio")]
    for place, name in places:
        if before != after and not Path(place[name]).is_absolute():
            place[name] = os.path.relpath(before / place[name], after)


def write_manifest(output: Path, rows: Iterable[Row]) -> None:
    """Write rows as a manifest; the same rows give the same bytes.

    Args:
        output: The file, .jsonl or .jsonl.gz.
        rows: The rows.
    """
    content = as_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_atomically(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)


def _is_cut(row: Row) -> bool:
    return "recording" in row or "supervisions" in row


def _holder(row: Row, number: int, make: bool) -> Row:
    """What has the transcript: the row, or a supervision of the cut, which is made if there is none."""
    if not _is_cut(row):
        return row
    if not row.get("supervisions"):
        stretch = {"start": 0.0, "duration": row["duration"], "channel": row.get("channel", 0)}
        made = {"id": row["id"], "recording_id": row["recording"]["id"], **stretch}
        if not make:
            return made
        row["supervisions"] = [made]
    found: Row = row["supervisions"][number]
    return found


def plain_row(u: Utterance) -> Row:
    """Make a row of a plain manifest.

    Args:
        u: The utterance.

    Returns:
        Its fields, without those that are empty. The path of its audio is absolute, since the file may be in another
        folder.
    """
    row: Row = {
        "id": u.id,
        "audio": str(u.audio.absolute()),
        "text": u.text,
        "split": u.split,
        "speaker": u.speaker,
    }
    row |= {"language": u.language, "start": u.start or None, "duration": u.duration or None, "channel": u.channel}
    row |= {"weights": list(u.weights) if u.weights is not None else None, **dict(u.fields)}
    if u.texts:
        row["texts"] = dict(zip(u.annotators, u.texts, strict=True)) if u.annotators else list(u.texts)
    return {name: value for name, value in row.items() if value is not None}
