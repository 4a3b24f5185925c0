"""Audio files: what their header promises, the samples that are really there, and resampling.

Everything that can be wrong with a file is found here and named with the utterance's id, its path and the reason, so
that a run can report it and go on.
"""

import logging
import math
import mmap
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ..errors import MissingExtra, WildCTCError
from .manifest import Utterance

TOLERANCE = 0.1  # seconds by which a manifest's durations may differ from the file's
_log = logging.getLogger(__name__)
_resampling_said = mmap.mmap(-1, 1)  # a byte shared with forked data-loading workers, so that one of all says it


class UtteranceError(WildCTCError):
    """An utterance that cannot be used: `id`, `path` and `reason` say which and why."""

    def __init__(self, utterance: Utterance, reason: str) -> None:
        super().__init__(f"{utterance.id} ({utterance.audio}): {reason}")
        self.id, self.path, self.reason = utterance.id, utterance.audio, reason

    def __reduce__(self) -> Any:  # a data-loading worker hands it to its parent
        return UtteranceError, (Utterance(self.id, self.path), self.reason)


def check_audio(utterance: Utterance) -> tuple[Utterance, int, int]:
    """Looks at an utterance's file without decoding it.

    Returns the utterance with its duration as the file has it, the file's sampling rate and its number of samples.
    Raises UtteranceError for a file that is missing, empty, no audio, or shorter than its header or the manifest says.
    """
    with _open(utterance) as file:
        rate, samples = file.samplerate, file.frames
        if utterance.duration == 0 and (promised := _promised_samples(file)) > samples:
            raise UtteranceError(utterance, f"truncated: {samples / rate:.2f} s of {promised / rate:.2f} s")
        _interval(utterance, rate, samples)
        # Ogg and WAV report what is there; other formats repeat what their header promises, so look at the end.
        if file.format not in ("OGG", "WAV", "WAVEX") and not _has_end(file):
            raise UtteranceError(utterance, f"truncated: less than the {samples / rate:.2f} s that its header promises")
    rest = samples / rate - utterance.start
    whole = utterance.duration == 0 or abs(utterance.duration - rest) <= TOLERANCE
    return (replace(utterance, duration=rest) if whole else utterance), rate, samples


def load_audio(utterance: Utterance, sampling_rate: int = 16000) -> np.ndarray:
    """The samples of an utterance: (samples,) float32 of its channel, resampled to `sampling_rate` if need be.

    Raises UtteranceError for a file that is missing, empty, no audio, truncated, or has NaN or infinite samples.

    >>> import soundfile, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     soundfile.write(f"{folder}/a.flac", [0.0] * 32000, 16000)
    ...     wave = load_audio(Utterance("a", pathlib.Path(folder, "a.flac"), start=0.5, duration=1.0))
    >>> wave.shape, wave.dtype
    ((16000,), dtype('float32'))
    """
    with _open(utterance) as file:
        rate = file.samplerate
        begin, end = _interval(utterance, rate, file.frames)
        try:
            file.seek(begin)
            wave = file.read(end - begin, dtype="float32", always_2d=True)
        except RuntimeError:  # soundfile's LibsndfileError
            raise UtteranceError(utterance, "truncated or damaged: cannot be decoded to its end") from None
    if len(wave) < end - begin:
        raise UtteranceError(utterance, f"truncated: {len(wave) / rate:.2f} s of {(end - begin) / rate:.2f} s")
    wave = np.ascontiguousarray(wave[:, utterance.channel])
    if not np.isfinite(wave).all():
        raise UtteranceError(utterance, "NaN or infinite samples")
    if rate != sampling_rate and not _resampling_said[0]:
        _resampling_said[0] = 1
        _log.warning(
            "audio is resampled to %d Hz; the first such file, at %d Hz: %s", sampling_rate, rate, utterance.audio
        )
    return resample(wave, rate, sampling_rate)


def _open(utterance: Utterance) -> Any:
    try:
        import soundfile
    except ImportError:
        raise MissingExtra("soundfile", "train") from None
    path = utterance.audio
    try:
        if not path.is_file():
            raise UtteranceError(utterance, "a folder, not a file" if path.is_dir() else "no such file")
        if path.stat().st_size == 0:
            raise UtteranceError(utterance, "empty file")
        file = soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        raise UtteranceError(utterance, f"not readable as audio: {error.error_string}") from None
    except OSError as error:
        raise UtteranceError(utterance, str(error.strerror)) from None
    if file.frames == 0:
        file.close()
        raise UtteranceError(utterance, "no samples in it")
    if not 0 <= utterance.channel < file.channels:
        channels = file.channels
        file.close()
        raise UtteranceError(utterance, f"no channel {utterance.channel}: the file has {channels}")
    return file


def _interval(utterance: Utterance, rate: int, samples: int) -> tuple[int, int]:
    """First and last sample of an utterance in its file; a few hundredths past the end are forgiven."""
    begin = round(utterance.start * rate)
    end = begin + round(utterance.duration * rate) if utterance.duration > 0 else samples
    if begin >= samples or end - samples > TOLERANCE * rate:
        raise UtteranceError(utterance, f"truncated: {samples / rate:.2f} s of {max(begin, end) / rate:.2f} s")
    return begin, min(end, samples)


def _promised_samples(file: Any) -> int:
    """The number of samples that a WAV header claims; libsndfile itself goes by the file's size."""
    claim = re.search(r"^data *: (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
    if claim is None or int(claim[2]) == 0 or int(claim[1]) >= 2**31 - 2**16:  # the latter: written to a pipe
        return 0
    return round(file.frames * int(claim[1]) / int(claim[2]))


def _has_end(file: Any) -> bool:
    try:
        file.seek(max(0, file.frames - 16))
        return len(file.read()) == min(16, file.frames)
    except RuntimeError:
        return False


def resample(wave: np.ndarray, source: float, target: float) -> np.ndarray:
    """Band-limited resampling of (samples,) from one rate to another; the same rate gives the same array.

    Only the ratio counts, so a wave is made to run 1.1 times as fast by going from 1.1 to 1.

    >>> len(resample(np.zeros(441, np.float32), 44100, 16000))
    160
    """
    ratio = Fraction(source / target).limit_denominator(1000)  # keeps the filters few; off by < 0.1%
    if ratio == 1:
        return wave
    kernels, width = _sinc_kernels(ratio.numerator, ratio.denominator)
    padded = torch.nn.functional.pad(torch.from_numpy(wave), (width, width + ratio.numerator))
    phases = torch.nn.functional.conv1d(padded[None, None], kernels, stride=ratio.numerator)  # (1, denominator, blocks)
    length = math.ceil(len(wave) / ratio)
    return phases[0].T.reshape(-1)[:length].contiguous().numpy()


@lru_cache(maxsize=8)
def _sinc_kernels(source: int, target: int, zeros: int = 6, rolloff: float = 0.99) -> tuple[torch.Tensor, int]:
    """(target, 1, taps): for each output phase a sinc under a Hann window, cut off below the lower Nyquist."""
    cutoff = min(source, target) * rolloff
    width = math.ceil(zeros * source / cutoff)
    times = torch.arange(-width, width + source, dtype=torch.float64) / source
    times = times - torch.arange(target, dtype=torch.float64)[:, None] / target
    times = (times * cutoff).clamp(-zeros, zeros)
    kernels = torch.sinc(times) * torch.cos(times * math.pi / zeros / 2) ** 2 * cutoff / source
    return kernels.float()[:, None], width
