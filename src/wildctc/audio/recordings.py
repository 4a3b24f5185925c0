"""Audio of any length, from a file or an array, in pieces that are short enough for a recogniser.

A file is read in blocks, so that an hour needs no more memory than a minute, and cut at pauses. Each piece is resampled
separately, which makes no audible difference, because its ends are quiet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from wildctc.audio.archives import audio_source
from wildctc.audio.resampling import resample
from wildctc.audio.segmentation import LONGEST, cut_at_pauses
from wildctc.audio.sound_files import (
    check_audio,
    import_soundfile,
    one_channel,
    warn_of_resampling,
    warn_of_short_files,
)
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError

_BLOCK = 30.0  # seconds that are read at a time
Audio = str | Path | np.ndarray | torch.Tensor


@dataclass(frozen=True)
class Recording:
    """One channel of audio.

    Attributes:
        rate: Sampling rate in Hz.
        duration: Seconds.
        blocks: The samples in order, as arrays (n,); for a file they can be read once.
        name: The file, for messages.
    """

    rate: int
    duration: float
    blocks: Iterable[np.ndarray]
    name: str = "an array"

    def pieces(self, rate: int, longest: float = LONGEST) -> Iterator[tuple[float, float, np.ndarray]]:
        """Cut the audio into pieces at pauses, and resample them.

        Args:
            rate: Sampling rate of the result, in Hz.
            longest: The most seconds that a piece may have.

        Yields:
            For each piece the second where it starts, the second where it ends, and its samples (n,).
        """
        start = 0
        warn_of_resampling(self.rate, rate, self.name)
        for piece in cut_at_pauses(self.blocks, self.rate, longest):
            end = start + len(piece)
            yield start / self.rate, end / self.rate, resample(piece, self.rate, rate)
            start = end


def open_recording(audio: Audio, sampling_rate: int | None = None, channel: int | None = None) -> Recording:
    """Open audio without reading all of it.

    Args:
        audio: A file, or an array of samples, (n,) or with two dimensions, the shorter of which are the channels.
            Samples that are whole numbers are divided by the largest number of their type.
        sampling_rate: Of an array, in Hz. A file has its own.
        channel: Counted from 0; None is the mean of all channels.

    Returns:
        The recording.

    Raises:
        WildCTCError: The audio cannot be used.

    >>> recording = open_recording(np.zeros((2, 44100), np.int16), sampling_rate=44100)
    >>> recording.duration, [(start, end, wave.shape) for start, end, wave in recording.pieces(16000)]
    (1.0, [(0.0, 1.0, (16000,))])
    """
    if isinstance(audio, str | Path):
        return _open_file(Path(audio), sampling_rate, channel)
    if sampling_rate is None or sampling_rate <= 0:
        raise WildCTCError("an array of samples needs its sampling_rate, for example sampling_rate=16000")
    wave = _as_float(audio.detach().cpu().numpy() if isinstance(audio, torch.Tensor) else np.asarray(audio))
    if wave.ndim not in (1, 2):
        raise WildCTCError(f"an array of samples has one dimension, or two with channels; this one has {wave.ndim}")
    columns = wave[:, None] if wave.ndim == 1 else wave if wave.shape[0] >= wave.shape[1] else wave.T
    wave = _one_channel(columns, channel, "the array")
    return Recording(sampling_rate, len(wave) / sampling_rate, [wave])


def _open_file(path: Path, sampling_rate: int | None, channel: int | None) -> Recording:
    try:
        checked = check_audio(Utterance(path.stem, path, channel=channel))
    except UtteranceError as error:
        raise WildCTCError(f"{path}: {error.reason}") from None
    if sampling_rate not in (None, checked.rate):
        raise WildCTCError(f"{path}: is at {checked.rate} Hz, not {sampling_rate}; sampling_rate is for arrays")
    warn_of_short_files([checked])
    return Recording(checked.rate, checked.utterance.duration, _read(path, channel), str(path))


def _read(path: Path, channel: int | None) -> Iterator[np.ndarray]:
    soundfile = import_soundfile()
    done = 0
    try:
        with soundfile.SoundFile(audio_source(path)) as file:
            while done < file.frames:
                block = file.read(int(_BLOCK * file.samplerate), dtype="float32", always_2d=True)
                if len(block) == 0:
                    raise WildCTCError(f"{path}: truncated: ends after {done / file.samplerate:.2f} s")
                done += len(block)
                yield _one_channel(block, channel, str(path))
    except soundfile.LibsndfileError:
        raise WildCTCError(f"{path}: truncated or damaged: cannot be decoded to its end") from None


def _as_float(wave: np.ndarray) -> np.ndarray:
    if wave.dtype.kind not in "if":
        raise WildCTCError(f"samples are real numbers or signed whole ones, not {wave.dtype}")
    if wave.dtype.kind == "i":
        return wave / -np.float32(np.iinfo(wave.dtype).min)
    return wave.astype(np.float32, copy=False)


def _one_channel(block: np.ndarray, channel: int | None, name: str) -> np.ndarray:
    if channel is not None and not 0 <= channel < block.shape[1]:
        raise WildCTCError(f"{name}: no channel {channel}: it has {block.shape[1]}, counted from 0")
    wave = one_channel(block, channel, name)
    if not np.isfinite(wave).all():
        raise WildCTCError(f"{name}: NaN or infinite samples")
    return wave


def read_whole(audio: Audio, rate: int, sampling_rate: int | None = None, channel: int | None = None) -> np.ndarray:
    """Read audio as a whole.

    Args:
        audio: A file or an array; see `open_recording`.
        rate: Sampling rate of the result, in Hz.
        sampling_rate: Of an array, in Hz.
        channel: Counted from 0; None is the mean of all channels.

    Returns:
        Samples, (n,).
    """
    recording = open_recording(audio, sampling_rate, channel)
    warn_of_resampling(recording.rate, rate, recording.name)
    return resample(np.concatenate(list(recording.blocks)), recording.rate, rate)
