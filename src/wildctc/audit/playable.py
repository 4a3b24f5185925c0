"""Sound for a page: a file that browsers play with just the utterance in it, and its outline."""

from __future__ import annotations

import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from wildctc.corpora import Utterance, check_audio, load_audio

PEAKS = 100  # a second
# What browsers play as it is: libsndfile's names of format and encoding, and how such a file must be called.
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
    """source: address relative to the page. offset: seconds in it at which the utterance begins. bytes: what it added.

    peaks: (n,) uint8, the loudest sample of each hundredth of a second, 255 being the loudest of all.
    """

    source: str
    offset: float
    bytes: int
    peaks: np.ndarray


def make_playable(utterance: Utterance, place: Path, link_from: Path | None = None) -> Playable:
    """Put the sound of an utterance at `place` (REPORT/audio/NAME without suffix), or link to it.

    A file with one channel that browsers play and that holds nothing else is copied; of any other the stretch and the
    channel are written as FLAC. link_from: the page's folder, from which a file that browsers play is linked instead,
    longer ones too. Raises UtteranceError for audio that cannot be used.
    """
    checked, rate, samples = check_audio(utterance)
    import soundfile  # after the line that says which extra is missing

    wave = load_audio(checked, rate)
    info = soundfile.info(utterance.audio)
    suffix = _PLAYED.get((info.format, info.subtype)) if info.channels == 1 else None
    if suffix and link_from and utterance.audio.suffix.lower() in {*_PLAYED.values(), ".oga"}:
        address = os.path.relpath(utterance.audio.resolve(), link_from.resolve())
        return Playable(quote(address), utterance.start, 0, outline(wave, rate))
    if suffix and utterance.start == 0 and checked.duration == samples / rate:
        path = place.with_suffix(suffix)
        shutil.copyfile(utterance.audio, path)
    else:
        path = place.with_suffix(".flac")
        file = io.BytesIO()  # a full disk is an OSError then, not one of libsndfile's
        soundfile.write(file, wave, rate, format="FLAC", subtype="PCM_16")
        path.write_bytes(file.getvalue())
    return Playable(f"audio/{path.name}", 0.0, path.stat().st_size, outline(wave, rate))


def outline(wave: np.ndarray, rate: int) -> np.ndarray:
    """The loudest sample of each hundredth of a second of (samples,), as uint8.

    >>> outline(np.array([0.0, 0.5, -0.25, 0.25], np.float32), rate=200)
    array([255, 128], dtype=uint8)
    """
    count = max(1, round(len(wave) / rate * PEAKS))
    starts = np.linspace(0, len(wave), count, endpoint=False).astype(np.int64)
    loudest = np.maximum.reduceat(np.abs(wave), starts)
    return np.round(255 * loudest / max(float(loudest.max()), 1e-9)).astype(np.uint8)
