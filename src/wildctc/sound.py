"""Audio of any length, from a file or an array, in pieces that are short enough for a recogniser.

A file is read in blocks, so that an hour takes no more memory than a minute, and cut where it is quiet. Each piece is
resampled by itself: at its ends there is nothing to hear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from wildctc.corpora import Utterance, UtteranceError, check_audio, resample
from wildctc.errors import MissingExtra, WildCTCError

LONGEST = 20.0  # seconds: about what recognisers are trained on, and attention grows with the square
SHORTEST = 5.0  # of a piece that is cut off; less would tear sentences apart
BLOCK = 30.0
PAUSE = 20  # steps of 10 ms over which loudness is averaged
NEAR = 10**0.3  # 3 dB: what is this near to the quietest place counts as quiet too

Audio = str | Path | np.ndarray | torch.Tensor


@dataclass(frozen=True)
class Sound:
    """One channel of audio: its sampling rate, its seconds, and its samples in blocks, which can be read once."""

    rate: int
    duration: float
    blocks: Iterable[np.ndarray]

    def pieces(self, rate: int, longest: float = LONGEST) -> Iterator[tuple[float, float, np.ndarray]]:
        """Pieces of at most `longest` seconds: where each starts and ends, and its samples (n,) at `rate`."""
        start = 0
        for piece in cut_at_pauses(self.blocks, self.rate, longest):
            end = start + len(piece)
            yield start / self.rate, end / self.rate, resample(piece, self.rate, rate)
            start = end


def open_sound(audio: Audio, sampling_rate: int | None = None, channel: int | None = None) -> Sound:
    """A file, or an array (samples,) or with two dimensions, of which the shorter are its channels.

    channel: counted from 0; None: the mean of all. sampling_rate: of an array; a file has its own. Whole numbers are
    scaled by the largest of their type. Raises WildCTCError for audio that cannot be used.

    >>> sound = open_sound(np.zeros((2, 44100), np.int16), sampling_rate=44100)
    >>> sound.duration, [(start, end, wave.shape) for start, end, wave in sound.pieces(16000)]
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
    return Sound(sampling_rate, len(wave) / sampling_rate, [wave])


def _open_file(path: Path, sampling_rate: int | None, channel: int | None) -> Sound:
    utterance = Utterance(path.stem, path, channel=channel or 0)
    try:
        checked, rate, _ = check_audio(utterance)
    except UtteranceError as error:
        raise WildCTCError(f"{path}: {error.reason}") from None
    if sampling_rate not in (None, rate):
        raise WildCTCError(f"{path}: is at {rate} Hz, not {sampling_rate}; sampling_rate is for arrays")
    return Sound(rate, checked.duration, _read(path, channel))


def _read(path: Path, channel: int | None) -> Iterator[np.ndarray]:
    try:
        import soundfile
    except ImportError:
        raise MissingExtra("soundfile", "train") from None
    done = 0
    try:
        with soundfile.SoundFile(path) as file:
            while done < file.frames:
                block = file.read(int(BLOCK * file.samplerate), dtype="float32", always_2d=True)
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
    """(samples, channels) → (samples,)"""
    if channel is not None and not 0 <= channel < block.shape[1]:
        raise WildCTCError(f"{name}: no channel {channel}: it has {block.shape[1]}, counted from 0")
    wave = block.mean(axis=1) if channel is None else np.ascontiguousarray(block[:, channel])
    if not np.isfinite(wave).all():
        raise WildCTCError(f"{name}: NaN or infinite samples")
    return wave


def cut_at_pauses(blocks: Iterable[np.ndarray], rate: int, longest: float = LONGEST) -> Iterator[np.ndarray]:
    """Blocks of samples (n,) as pieces of at most `longest` seconds, cut where it is quiet; what fits stays whole.

    >>> wave = np.ones(90, np.float32)
    >>> [len(piece) for piece in cut_at_pauses([wave, wave], rate=100, longest=60.0)]
    [180]
    """
    limit = int(longest * rate)
    rest = np.empty(0, np.float32)

    def cut() -> np.ndarray:
        nonlocal rest
        end = find_pause(rest[: min(limit, len(rest) - rate)], rate)  # a second at least is left for the last piece
        piece, rest = rest[:end], rest[end:]
        return piece

    for block in blocks:
        rest = np.concatenate((rest, block))
        while len(rest) > limit + rate:
            yield cut()
    while len(rest) > limit:
        yield cut()
    yield rest


def find_pause(wave: np.ndarray, rate: int) -> int:
    """The sample in the middle of the longest quiet stretch of (n,), not within its first `SHORTEST` seconds."""
    step = max(1, rate // 100)
    steps = len(wave) // step
    power = np.square((wave - wave.mean())[: steps * step].reshape(steps, step), dtype=np.float32).mean(1)
    loudness = np.convolve(power, np.full(PAUSE, 1 / PAUSE, np.float32), "valid")  # of steps i … i + PAUSE
    first = min(int(SHORTEST * 100), len(loudness) // 2)
    quiet = loudness[first:] <= loudness[first:].min() * NEAR + 1e-10
    edges = np.flatnonzero(np.diff(np.concatenate(([0], quiet.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    middle = (int(starts[longest]) + int(ends[longest]) - 1) // 2
    return (first + middle + PAUSE // 2) * step


def read_whole(audio: Audio, rate: int, sampling_rate: int | None = None, channel: int | None = None) -> np.ndarray:
    """All samples (n,) at `rate`, uncut."""
    sound = open_sound(audio, sampling_rate, channel)
    return resample(np.concatenate(list(sound.blocks)), sound.rate, rate)
