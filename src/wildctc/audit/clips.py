"""Sound for the page: for each utterance a file that browsers can play, and the outline of its wave."""

from __future__ import annotations

import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from wildctc.audio.sound_files import check_audio, load_audio
from wildctc.corpora.utterance import Utterance

_PEAKS_PER_SECOND = 100
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
    """

    source: str
    offset: float
    bytes: int
    peaks: np.ndarray


def make_playable(utterance: Utterance, place: Path, link_from: Path | None = None) -> Playable:
    """Copy, convert or link the sound of an utterance.

    A file with one channel that browsers can play is copied if it contains this utterance only. Otherwise the
    utterance's part of the file is written as FLAC with one channel.

    Args:
        utterance: The utterance: its audio file, start, duration and channel.
        place: Where to put the sound: REPORT/audio/NAME without suffix.
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
    info = soundfile.info(utterance.audio)
    suffix = _PLAYED.get((info.format, info.subtype)) if checked.channels == 1 else None
    if suffix and link_from and utterance.audio.suffix.lower() in {*_PLAYED.values(), ".oga"}:
        address = os.path.relpath(utterance.audio.resolve(), link_from.resolve())
        return Playable(quote(address), utterance.start, 0, outline(wave, rate))
    if suffix and utterance.start == 0 and checked.utterance.duration == checked.samples / rate:
        path = place.with_suffix(suffix)
        shutil.copyfile(utterance.audio, path)
    else:
        path = place.with_suffix(".flac")
        file = (
            io.BytesIO()
        )  # in memory first: on a full disk, write_bytes raises OSError, and libsndfile an error of its own
        soundfile.write(file, wave, rate, format="FLAC", subtype="PCM_16")
        path.write_bytes(file.getvalue())
    return Playable(f"audio/{path.name}", 0.0, path.stat().st_size, outline(wave, rate))


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
