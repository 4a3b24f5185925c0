"""Write the files of a shard: the archive with the audio, and the table of its utterances."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from wildctc.audio.archives import audio_source
from wildctc.audio.sound_files import CheckedAudio, check_audio, import_soundfile, load_audio, read_samples
from wildctc.corpora.rewriting import plain_row
from wildctc.corpora.shards import Shard, Shards, arrow, is_address
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.files import as_bytes, write_atomically, writing

_ENDINGS = {"WAV": "wav", "WAVEX": "wav", "FLAC": "flac", "OGG": "ogg", "MPEG": "mp3"}
_EXACT = {"PCM_S8": "int16", "PCM_U8": "int16", "PCM_16": "int16", "PCM_24": "int32"}  # FLAC has the same samples
_IN_TABLE = {"id", "text", "speaker", "duration", "start", "channel", "split"}
_HEADER = 512  # bytes before a file in a tar archive


class How(Protocol):
    """The parts of `Packing` that decide how a shard is written."""

    @property
    def flac(self) -> bool:
        """Write uncompressed audio as FLAC."""
        ...

    @property
    def link(self) -> bool:
        """Leave the audio where it is."""
        ...

    @property
    def decode(self) -> bool:
        """Decode all audio."""
        ...


def write_shard(
    folder: Path, name: str, utterances: Sequence[Utterance], how: How
) -> tuple[Shard | None, list[UtteranceError]]:
    """Write a shard. The same utterances give the same bytes.

    Args:
        folder: Where it is written.
        name: Of its files.
        utterances: What it holds.
        how: How it is written.

    Returns:
        What the list of shards says about it, None if no utterance can be used; and the utterances that cannot.

    Raises:
        WildCTCError: It cannot be written.
    """
    rows: list[dict[str, Any]] = []
    bad: list[UtteranceError] = []
    archive = None if how.link else _Archive(folder / f"{name}.tar")
    try:
        for utterance in utterances:
            try:
                rows.append(_row(utterance, how, archive, f"{name}-{len(rows):05d}"))
            except UtteranceError as error:
                bad.append(error)
    except BaseException:
        if archive is not None:
            archive.abandon()
        raise
    if archive is not None:
        archive.close()
    if not rows:
        if archive is not None:
            archive.path.unlink()
        return None, bad
    shard = _write_table(folder, name, rows)
    return (shard if archive is None else replace(shard, digest=archive.digest, audio=True)), bad


def _write_table(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> Shard:
    """Write the table of a shard that has no archive beside it."""
    table = table_bytes(rows)
    write_atomically(folder / f"{name}.arrow", table)
    characters = "".join(sorted({char for row in rows for char in row["text"]}))
    seconds = round(sum(row["duration"] for row in rows), 3)
    return Shard(name, len(rows), seconds, hashlib.sha256(table).hexdigest(), characters, False)


def rewrite_shard(
    folder: Path, shards: Shards, number: int, change: Callable[[Utterance, dict[str, Any]], bool]
) -> Shard | None:
    """Write the table of a shard again with other transcripts. The audio stays where it is.

    Args:
        folder: Where the new table is written.
        shards: The shards.
        number: Of the shard.
        change: Given each utterance and its row of a plain manifest, without the audio; it may change the row. False
            leaves the utterance out.

    Returns:
        What the list of the new shards says about it; None if no utterance is left.

    Raises:
        WildCTCError: It cannot be read or written.
    """
    old = shards.shards[number]
    rows = []
    table = shards.table(number).to_pylist()
    for row, utterance in zip(table, shards.read(number, audio=False), strict=True):
        plain = {name: value for name, value in plain_row(utterance).items() if name != "audio"}
        if change(utterance, plain):
            rows.append(row | {"text": plain["text"], "more": _more(plain)})
    if not rows:
        return None
    shard = _write_table(folder, old.name, rows)
    if not old.audio:
        return shard
    archive = shards.place(number)
    if not is_address(archive):
        archive = os.path.relpath(archive, folder)
    digest = hashlib.sha256(f"{shard.digest} {old.digest}".encode()).hexdigest()  # the table names places only
    return replace(shard, digest=digest, audio=True, archive=archive)


def _more(plain: dict[str, Any]) -> str | None:
    """The fields of a row, if it has some that are no columns of the table."""
    return None if plain.keys() <= _IN_TABLE else json.dumps(plain, ensure_ascii=False)


def _row(utterance: Utterance, how: How, archive: _Archive | None, key: str) -> dict[str, Any]:
    """Add the audio of an utterance to the archive, and make its row of the table."""
    checked = check_audio(utterance)
    utterance, samples = checked.utterance, round(checked.utterance.duration * checked.rate)
    if how.decode:
        samples = len(load_audio(utterance, checked.rate))
    offset = size = None
    if archive is not None:
        ending, content, utterance = _sound(checked, how)
        offset, size = archive.add(f"{key}.{ending}", content), len(content)
        plain = {k: v for k, v in plain_row(utterance).items() if k != "audio"}
        archive.add(f"{key}.json", as_bytes(json.dumps(plain, ensure_ascii=False)))
    plain = plain_row(utterance)
    audio = plain.pop("audio")
    return {
        "id": utterance.id, "text": utterance.text, "audio": None if archive else audio, "offset": offset,
        "size": size, "start": utterance.start, "duration": utterance.duration, "channel": utterance.channel,
        "rate": checked.rate, "samples": samples, "speaker": utterance.speaker, "split": utterance.split,
        "more": _more(plain),
    }  # fmt: skip


def _sound(checked: CheckedAudio, how: How) -> tuple[str, bytes, Utterance]:
    """The audio of an utterance as a file of its own: the ending of its name, its bytes, and the utterance in it."""
    utterance = checked.utterance
    with import_soundfile().SoundFile(audio_source(utterance.audio)) as file:
        kind, subtype = file.format, file.subtype
    whole = utterance.start == 0 and utterance.duration == checked.samples / checked.rate
    if whole and not (how.flac and kind in ("WAV", "WAVEX") and subtype in _EXACT):
        source = audio_source(utterance.audio)
        content = source.getvalue() if isinstance(source, io.BytesIO) else source.read_bytes()
        return _ENDINGS.get(kind, kind.lower()), content, utterance
    return "flac", *_as_flac(utterance, subtype)


def _as_flac(utterance: Utterance, subtype: str) -> tuple[bytes, Utterance]:
    """An utterance in FLAC: with the same samples if they are whole numbers, otherwise rounded to 24 bits."""
    wave, rate = read_samples(utterance, _EXACT.get(subtype, "float32"))
    if wave.dtype == np.float32:
        wave = (np.round(wave * 2.0**23).clip(-(2**23), 2**23 - 1).astype(np.int64) << 8).astype(np.int32)
    if utterance.channel is not None and wave.shape[1] > 1:
        wave = wave[:, utterance.channel : utterance.channel + 1]
        utterance = replace(utterance, channel=0)
    file = io.BytesIO()
    subtype = "PCM_16" if wave.dtype == np.int16 else "PCM_24"
    import_soundfile().write(file, wave, rate, format="FLAC", subtype=subtype)
    return file.getvalue(), replace(utterance, start=0.0, duration=len(wave) / rate)


def table_bytes(rows: Sequence[dict[str, Any]]) -> bytes:
    """Make the table of a shard.

    Args:
        rows: A row for each utterance; columns that it lacks are empty.

    Returns:
        An Arrow file.
    """
    pa = arrow()
    whole, number, text = pa.int64(), pa.float64(), pa.string()
    schema = pa.schema(
        {
            "id": text, "text": text, "audio": text, "offset": whole, "size": whole, "start": number,
            "duration": number, "channel": pa.int32(), "rate": pa.int32(), "samples": whole, "speaker": text,
            "split": text, "more": text,
        }
    )  # fmt: skip
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, schema) as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), schema))
    return bytes(file.getvalue())


class _Archive:
    """A tar archive that is being written; it has its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self.path, self._part = path, path.with_name(f".{path.name}.{os.getpid()}.part")
        with writing(path):
            self._file = _Hashed(open(self._part, "wb"))  # noqa: SIM115 (closed below)
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.USTAR_FORMAT)  # type: ignore[arg-type]
        self.digest = ""

    def add(self, name: str, content: bytes) -> int:
        """Add a file; returns where its bytes begin."""
        info = tarfile.TarInfo(name)
        info.size = len(content)
        offset = self._file.tell() + _HEADER
        with writing(self.path):
            self._tar.addfile(info, io.BytesIO(content))
        return offset

    def close(self) -> None:
        with writing(self.path):
            self._tar.close()
            self._file.finish()
            os.replace(self._part, self.path)
        self.digest = self._file.digest.hexdigest()

    def abandon(self) -> None:
        self._file.file.close()
        self._part.unlink(missing_ok=True)


class _Hashed:
    """A file that is written once, and the digest of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.digest, self._size = file, hashlib.sha256(), 0

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        self._size += len(content)
        return self.file.write(content)

    def tell(self) -> int:
        return self._size

    def finish(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
