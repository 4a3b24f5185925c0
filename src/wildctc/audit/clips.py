"""Sound for the page: for each utterance a file that browsers can play, the outline of its wave, and a spectrogram."""

from __future__ import annotations

import io
import os
import shutil
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from wildctc.audio.archives import audio_source, find_member
from wildctc.audio.sound_files import check_audio, load_audio
from wildctc.corpora.utterance import Utterance

_PEAKS_PER_SECOND = 100
_COLUMNS_PER_SECOND = 80  # of a spectrogram
_BANDS = 64
_BLOCK = 2000  # columns that are computed at once
_HIGHEST = 8000.0  # Hz
_RANGE = 65.0  # decibels below the loudest that are still shown
_LEVELS = 16  # grey levels: a compressed spectrogram is then about a tenth of the sound
# Files that browsers can play: libsndfile's names of format and encoding, and the suffix that browsers need.
_PLAYED = {
    ("WAV", "PCM_16"): ".wav",
    ("WAV", "PCM_U8"): ".wav",
    ("FLAC", "PCM_16"): ".flac",
    ("FLAC", "PCM_24"): ".flac",
    ("OGG", "OPUS"): ".opus",
    ("OGG", "VORBIS"): ".ogg",
    ("MP3", "MPEG_LAYER_III"): ".mp3",
}


@dataclass(frozen=True)
class Playable:
    """The sound of an utterance on the page.

    Attributes:
        source: Its address, relative to the page.
        offset: Seconds in the file at which the utterance starts.
        bytes: The size of the file that was written; 0 for a link.
        peaks: (n,) uint8, the loudest sample of each hundredth of a second; 255 is the loudest of the utterance.
        loudest: The loudest sample; 1 is full scale.
        picture: The file of the spectrogram; None if there is none.
        picture_bytes: Its size.
    """

    source: str
    offset: float
    bytes: int
    peaks: np.ndarray
    loudest: float = 0.0
    picture: Path | None = None
    picture_bytes: int = 0


def make_playable(
    utterance: Utterance, place: Path, picture: Path | None = None, link_from: Path | None = None
) -> Playable:
    """Copy, convert or link the sound of an utterance, and draw its spectrogram.

    A file with one channel that browsers can play is copied if it contains this utterance only. Otherwise the
    utterance's part of the file is written as FLAC with one channel.

    Args:
        utterance: The utterance: its audio file, start, duration and channel.
        place: Where to put the sound: REPORT/audio/NAME without suffix.
        picture: Where to put the spectrogram (.png); None for none.
        link_from: The page's folder. If it is given, files that browsers can play are linked instead of copied, even if
            they are longer than the utterance.

    Returns:
        Where the sound is, and its outline.

    Raises:
        UtteranceError: The audio cannot be used.
    """
    checked = check_audio(utterance)
    rate = checked.rate
    import soundfile  # after check_audio, whose error names the missing extra

    wave = load_audio(checked.utterance, rate)
    seen = outline(wave, rate), round(float(np.abs(wave).max(initial=0.0)), 4)
    drawn = (picture, _write_png(picture, spectrogram(wave, rate))) if picture else (None, 0)
    info = soundfile.info(audio_source(utterance.audio))
    suffix = _PLAYED.get((info.format, info.subtype)) if checked.channels == 1 else None
    if suffix and link_from and utterance.audio.suffix.lower() in {*_PLAYED.values(), ".oga"}:
        address = os.path.relpath(utterance.audio.resolve(), link_from.resolve())
        return Playable(quote(address), utterance.start, 0, *seen, *drawn)
    if suffix and utterance.start == 0 and checked.utterance.duration == checked.samples / rate:
        path = place.with_suffix(suffix)
        _copy(utterance.audio, path)
    else:
        path = place.with_suffix(".flac")
        file = (
            io.BytesIO()
        )  # in memory first: on a full disk, write_bytes raises OSError, and libsndfile an error of its own
        soundfile.write(file, wave, rate, format="FLAC", subtype="PCM_16")
        path.write_bytes(file.getvalue())
    return Playable(f"audio/{path.name}", 0.0, path.stat().st_size, *seen, *drawn)


def _copy(audio: Path, path: Path) -> None:
    member = find_member(audio)
    if member is None:
        shutil.copyfile(audio, path)
    else:
        path.write_bytes(member.read())


def outline(wave: np.ndarray, rate: int) -> np.ndarray:
    """Compute the outline of a wave for drawing.

    Args:
        wave: (samples,) float32.
        rate: Samples per second.

    Returns:
        (n,) uint8, the loudest sample of each hundredth of a second; 255 is the loudest of all.

    >>> outline(np.array([0.0, 0.5, -0.25, 0.25], np.float32), rate=200)
    array([255, 128], dtype=uint8)
    """
    count = max(1, round(len(wave) / rate * _PEAKS_PER_SECOND))
    starts = np.linspace(0, len(wave), count, endpoint=False).astype(np.int64)
    loudest = np.maximum.reduceat(np.abs(wave), starts)
    return np.round(255 * loudest / max(float(loudest.max()), 1e-9)).astype(np.uint8)


def spectrogram(wave: np.ndarray, rate: int) -> np.ndarray:
    """Compute a spectrogram for drawing.

    Args:
        wave: (samples,) float32.
        rate: Samples per second.

    Returns:
        (64, columns) uint8, high frequencies first; bands are narrow below and wide above, as in hearing. 255 is the
        loudest, 0 is 65 dB less.
    """
    hop, size = max(1, round(rate / _COLUMNS_PER_SECOND)), 1 << max(4, round(rate * 0.025) - 1).bit_length()
    columns = max(1, len(wave) // hop)
    padded = np.zeros(columns * hop + size, np.float32)
    padded[size // 2 : size // 2 + len(wave)] = wave[: len(padded) - size // 2]
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[: columns * hop : hop]
    window = np.hanning(size).astype(np.float32)
    top = min(_HIGHEST, rate / 2)
    mel = np.linspace(0, np.log1p(top / 700), _BANDS, endpoint=False)
    starts = np.minimum((700 * np.expm1(mel) * size / rate).astype(int), size // 2)
    stop = max(int(starts[-1]) + 1, int(top * size / rate))
    bands = np.empty((columns, _BANDS), np.float32)
    for first in range(0, columns, _BLOCK):  # an hour at once would take gigabytes
        power = np.abs(np.fft.rfft(frames[first : first + _BLOCK] * window, axis=1)[:, :stop]) ** 2
        bands[first : first + _BLOCK] = np.maximum.reduceat(power, starts, axis=1)
    decibels = 10 * np.log10(bands / max(float(bands.max()), 1e-12) + 1e-12)
    level = np.clip(1 + decibels / _RANGE, 0, 1)
    return (np.round(level * (_LEVELS - 1)) * (255 // (_LEVELS - 1))).astype(np.uint8).T[::-1]


def _write_png(path: Path, grey: np.ndarray) -> int:
    """Write a grey picture; returns its size. matplotlib would take ten times as long."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = grey.shape
    lines = np.zeros((height, width + 1), np.uint8)  # a filter byte begins each line: none
    lines[:, 1:] = grey
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines.tobytes(), 4)), chunk(b"IEND", b""))
    return path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
