"""Manifests: the list of utterances that every stage works from.

Read are lhotse cuts and plain JSON lines, told apart row by row. Both are parsed here rather than through lhotse, whose
import takes seconds; what `write_cuts` writes is checked against lhotse by a test.
"""

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import WildCTCError

_SPLITS = {"train": "train", "dev": "dev", "val": "dev", "test": "test", "eval": "test"}


@dataclass(frozen=True)
class Utterance:
    """A stretch of one audio file and what was said in it.

    duration: seconds from `start`; 0 if neither the manifest nor the file tells, and then all of the file from `start`.
    """

    id: str
    audio: Path
    text: str = ""
    speaker: str | None = None
    duration: float = 0.0
    start: float = 0.0
    channel: int = 0
    split: str | None = None
    language: str | None = None


def load_manifest(path: str | Path, split: str | None = None) -> list[Utterance]:
    """The utterances of a manifest in its order, or those of one split of it.

    path: .jsonl or .jsonl.gz, each row a lhotse cut or a plain object with `audio` (relative to the manifest's folder)
    and `text`, optionally `id, speaker, split, language, duration, start, channel`; NeMo's `audio_filepath` and
    `offset` are read too. A row without an id is named after its file. Durations that are not given are read from the
    files' headers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "manifest.jsonl")
    ...     _ = path.write_text('{"audio": "clips/a.wav", "text": "hello", "duration": 1.5, "split": "dev"}')
    ...     [utterance] = load_manifest(path, split="dev")
    >>> utterance.id, utterance.audio.name, utterance.duration
    ('a', 'a.wav', 1.5)
    """
    utterances = [utterance for _, found in read_utterances(path) for utterance in found]
    chosen = [u for u in utterances if split is None or u.split == split]
    if not chosen:
        raise WildCTCError(_nothing(Path(path), split, utterances))
    return [_with_duration(utterance) for utterance in chosen]


def read_utterances(path: str | Path) -> Iterator[tuple[dict[str, Any], list[Utterance]]]:
    """The rows of a manifest and the utterances in each, all with ids; one that occurs twice is an error."""
    path, ids = Path(path), set[str]()
    for line, row in read_rows(path):
        found = []
        for utterance in parse_row(row, path, line):
            if not utterance.id:
                stem = utterance.audio.stem
                utterance = replace(utterance, id=stem if stem not in ids else f"{stem}-{line}")
            if utterance.id in ids:
                raise WildCTCError(f"{path}:{line}: id {utterance.id!r} occurs twice; ids must be unique")
            ids.add(utterance.id)
            found.append(utterance)
        yield row, found


def _nothing(path: Path, split: str | None, utterances: Iterable[Utterance]) -> str:
    if split is None:
        return f"{path} is empty: no utterances in it"
    found = sorted({utterance.split or "none" for utterance in utterances})
    return f"{path} has no utterances of split {split!r}; its splits: {', '.join(found) or 'none'}"


def _with_duration(utterance: Utterance) -> Utterance:
    from .audio import UtteranceError, check_audio

    if utterance.duration > 0:
        return utterance
    try:
        return check_audio(utterance)[0]
    except UtteranceError:  # whoever uses the utterance will meet the error and report it
        return utterance


def read_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, and objects of a JSON-lines file, gzipped or not; blank lines are skipped."""
    for line, text in read_lines(path):
        try:
            row = json.loads(text)
        except ValueError as error:
            raise WildCTCError(f"{path}:{line}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise WildCTCError(f"{path}:{line}: not a JSON object: {text.strip()[:40]}")
        yield line, row


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines of a text file, gzipped or not; blank lines are skipped.

    Split at newlines alone: a transcript may hold other Unicode line separators.
    """
    line = 0
    try:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            for line, raw in enumerate(file, start=1):
                text = raw.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield line, text
    except (OSError, EOFError, zlib.error) as error:
        raise WildCTCError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise WildCTCError(f"{path}:{line}: not UTF-8") from None


def parse_row(row: dict[str, Any], path: Path, line: int) -> list[Utterance]:
    """The utterances of one row: one, or for a cut with several supervisions one each. Unnamed rows get id ""."""
    try:
        return _cut(row, path) if "recording" in row or "supervisions" in row else [_plain(row, path)]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise WildCTCError(f"{path}:{line}: {reason}") from None


def _plain(row: dict[str, Any], path: Path) -> Utterance:
    name = row["audio_filepath"] if "audio_filepath" in row else row["audio"]
    text, speaker, split, language = (row.get(field) for field in ("text", "speaker", "split", "language"))
    strings = {"audio": name, "text": text or "", "split": split or "", "language": language or ""}
    for field, value in strings.items():
        if not isinstance(value, str):
            raise TypeError(f"field {field!r} is {value!r}, not a string")
    return Utterance(
        id="" if row.get("id") is None else str(row["id"]),
        audio=path.parent / name,
        text=text or "",
        speaker=None if speaker is None else str(speaker),
        duration=_seconds(row, "duration"),
        start=_seconds(row, "start" if "start" in row else "offset"),
        channel=int(_number("channel", row.get("channel") or 0)),
        split=split,
        language=language,
    )


def _seconds(row: dict[str, Any], field: str) -> float:
    value = _number(field, row.get(field) or 0.0)
    if not 0 <= value < math.inf:
        raise ValueError(f"field {field!r} is {value}")
    return value


def _number(field: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"field {field!r} is {value!r}, not a number") from None


def _cut(row: dict[str, Any], path: Path) -> list[Utterance]:
    if row.get("type", "MonoCut") != "MonoCut":
        raise ValueError(f"a {row['type']} is not supported; save the audio of the cuts and use MonoCuts")
    if not row.get("recording"):
        raise ValueError("a cut without a recording; cuts with features only are not supported")
    source = row["recording"]["sources"][0]
    if source["type"] != "file" or row["recording"].get("transforms"):
        raise ValueError(f"recording of type {source['type']!r}, or with transforms; save its audio to a file first")
    audio = Path(source["source"])
    if not audio.is_file():  # as lhotse, relative to the working directory; else to the manifest
        audio = path.parent / audio
    whole = Utterance(
        id=str(row["id"]),
        audio=audio,
        duration=_seconds(row, "duration"),
        start=_seconds(row, "start"),
        channel=int(_number("channel", row.get("channel") or 0)),
        split=(row.get("custom") or {}).get("split"),
    )
    said = row.get("supervisions") or []
    if len(said) < 2:
        return [_said(whole, s) for s in said] or [whole]
    return [
        replace(
            _said(whole, s),
            id=s["id"],
            start=max(0.0, whole.start + _number("start", s["start"])),
            duration=_number("duration", s["duration"]),
        )
        for s in said
    ]


def _said(whole: Utterance, supervision: dict[str, Any]) -> Utterance:
    text, speaker, language = (supervision.get(field) for field in ("text", "speaker", "language"))
    return replace(whole, text=text or "", speaker=speaker, language=language)


def split_of(subset: str) -> str | None:
    """The split that a subset belongs to, by how its name begins; None if that says nothing.

    >>> split_of("train-clean-100"), split_of("validation"), split_of("eval92"), split_of("lang")
    ('train', 'dev', 'test', None)
    """
    return next((split for prefix, split in _SPLITS.items() if subset.lower().startswith(prefix)), None)


def write_cuts(path: Path, utterances: Iterable[tuple[Utterance, int, int]]) -> None:
    """Writes lhotse cuts (.jsonl.gz), byte-identical for the same input; the file is whole or not there.

    utterances: each with its file's sampling rate and number of samples.
    """
    from ..files import as_bytes, write_atomically

    raw = io.BytesIO()
    with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for utterance, sampling_rate, samples in utterances:
            cut = _as_cut(utterance, sampling_rate, samples)
            file.write(as_bytes(json.dumps(cut, ensure_ascii=False) + "\n"))
    write_atomically(path, raw.getvalue())


def _as_cut(u: Utterance, sampling_rate: int, samples: int) -> dict[str, Any]:
    recording_id = u.id if u.start == 0 else u.audio.stem
    supervision = {"id": u.id, "recording_id": recording_id, "start": 0.0, "duration": u.duration}
    supervision |= {"channel": u.channel, "text": u.text}
    supervision |= {field: value for field in ("speaker", "language") if (value := getattr(u, field))}
    source = {"type": "file", "channels": [u.channel], "source": str(u.audio)}
    recording = {"id": recording_id, "sources": [source], "sampling_rate": sampling_rate, "num_samples": samples}
    recording |= {"duration": samples / sampling_rate, "channel_ids": [u.channel]}
    cut = {"id": u.id, "start": u.start, "duration": u.duration, "channel": u.channel}
    return cut | {
        "supervisions": [supervision],
        "recording": recording,
        "custom": {"split": u.split},
        "type": "MonoCut",
    }
