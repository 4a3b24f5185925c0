"""The audio file of an utterance: what its header says, and the samples that are really there.

Whatever can be wrong with a file is found here, and reported with the utterance's id, the path and the reason, so that
a run can skip the utterance and continue.
"""

import logging
import mmap
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wildctc.audio.archives import audio_source, audio_state, find_member
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import MissingExtra
from wildctc.files import patiently

_TOLERANCE = 0.1  # seconds by which the duration in a manifest or a header may differ from that of the samples
_RATES = (1000, 768_000)  # Hz; outside of it the header must be wrong
_LONG = 600  # seconds, above which the end of a file is checked before memory is allocated for all of it
_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_warned = mmap.mmap(-1, 3)  # bytes shared with forked data-loading workers, so that one warns for all
_RESAMPLED, _MIXED, _NO_AUDIO = range(3)


class CheckedAudio(NamedTuple):
    """An utterance, and what is known about its file.

    Attributes:
        utterance: The utterance, with its duration as the file has it.
        rate: Sampling rate in Hz.
        samples: The number of samples in each channel of the file.
        channels: The number of channels.
        missing: Seconds that a WAV header announces and the file does not have.
    """

    utterance: Utterance
    rate: int
    samples: int
    channels: int
    missing: float


def check_audio(utterance: Utterance) -> CheckedAudio:
    """Check an utterance's file without decoding it.

    Args:
        utterance: Its duration may be 0, which means all of the file from `start`.

    Returns:
        What the file has, and the utterance with its real duration; with channel 0 if there is only one channel.

    Raises:
        UtteranceError: The file is missing, empty, not audio, or more than 0.1 s shorter than its header or the
            manifest says.
    """
    return _patiently(utterance, _check)


def _check(utterance: Utterance) -> CheckedAudio:
    with _open(utterance) as file:
        rate, samples, channels = file.samplerate, file.frames, file.channels
        _check_rate(utterance, rate)
        missing = max(0, _promised_samples(file) - samples) / rate
        if utterance.duration == 0 and missing > _TOLERANCE:
            raise UtteranceError(utterance, f"truncated: {samples / rate:.2f} s of {samples / rate + missing:.2f} s")
        _interval(utterance, rate, samples)
        # Of Ogg and WAV the real length is known; of other formats only what the header says, so look at the end.
        if file.format not in ("OGG", "WAV", "WAVEX") and not _has_end(file):
            _read_through(utterance.audio)
            raise UtteranceError(utterance, f"truncated: less than the {samples / rate:.2f} s that its header promises")
    rest = samples / rate - utterance.start
    whole = utterance.duration == 0 or abs(utterance.duration - rest) <= _TOLERANCE
    utterance = replace(
        utterance,
        duration=rest if whole else utterance.duration,
        channel=0 if channels == 1 else utterance.channel,
    )
    return CheckedAudio(utterance, rate, samples, channels, missing)


def warn_of_short_files(checked: Iterable[CheckedAudio]) -> None:
    """Log one warning for all files that end a little before their header says.

    Args:
        checked: The files to look at.
    """
    short = list({c.utterance.audio: c for c in checked if c.missing > 0}.values())  # a file may have many utterances
    if short:
        _log.warning(
            "%d audio files end before their header says, by at most %.3f s, and are used as they are; the first: %s",
            len(short), max(c.missing for c in short), short[0].utterance.audio,
        )  # fmt: skip


def load_audio(utterance: Utterance, sampling_rate: int = 16000) -> np.ndarray:
    """Read the samples of an utterance.

    Args:
        utterance: Its channel is read, or the mean of all channels if none is named.
        sampling_rate: Of the result, in Hz.

    Returns:
        Samples, (n,) float32.

    Raises:
        UtteranceError: The file is missing, empty, not audio or truncated, or has NaN or infinite samples.

    >>> import soundfile, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     soundfile.write(f"{folder}/a.flac", [0.0] * 32000, 16000)
    ...     wave = load_audio(Utterance("a", pathlib.Path(folder, "a.flac"), start=0.5, duration=1.0))
    >>> wave.shape, wave.dtype
    ((16000,), dtype('float32'))
    """
    wave, rate = read_samples(utterance)
    wave = one_channel(wave, utterance.channel, utterance.audio)
    if not np.isfinite(wave).all():
        raise UtteranceError(utterance, "NaN or infinite samples")
    if rate != sampling_rate:
        _check_rate(utterance, rate)
        warn_of_resampling(rate, sampling_rate, utterance.audio)
    if rate == sampling_rate:
        return wave
    from wildctc.audio.resampling import resample  # here: it needs torch, and a cut of sound does not

    return resample(wave, rate, sampling_rate)


def read_samples(utterance: Utterance, dtype: str = "float32") -> tuple[np.ndarray, int]:
    """Read the samples of an utterance as its file has them.

    Args:
        utterance: The utterance.
        dtype: "float32", or "int16" or "int32" of a file that holds whole numbers.

    Returns:
        Samples, (n, channels of the file), and their sampling rate in Hz.

    Raises:
        UtteranceError: The file is missing, empty, not audio or truncated.
    """
    return _patiently(utterance, lambda u: _decode(u, dtype))


def _decode(utterance: Utterance, dtype: str) -> tuple[np.ndarray, int]:
    with _open(utterance) as file:
        rate = file.samplerate
        begin, end = _interval(utterance, rate, file.frames)
        if end - begin > _LONG * rate and not _has_end(file):  # a header may announce more than fits into memory
            raise UtteranceError(utterance, f"truncated: less than the {end / rate:.2f} s that its header promises")
        try:
            file.seek(begin)
            wave = file.read(end - begin, dtype=dtype, always_2d=True)
        except RuntimeError:  # soundfile's LibsndfileError
            _read_through(utterance.audio)
            raise UtteranceError(utterance, "truncated or damaged: cannot be decoded to its end") from None
    if len(wave) < end - begin:
        _read_through(utterance.audio)
        raise UtteranceError(utterance, f"truncated: {len(wave) / rate:.2f} s of {(end - begin) / rate:.2f} s")
    return wave, rate


def _patiently(utterance: Utterance, read: Callable[[Utterance], _T]) -> _T:
    try:
        return patiently(lambda: read(utterance))
    except OSError as error:
        raise UtteranceError(utterance, os_reason(error)) from None


def os_reason(error: OSError) -> str:
    """Say in a few words why a file cannot be read.

    Args:
        error: What reading it raised.

    Returns:
        The reason, for an `UtteranceError`.

    >>> os_reason(FileNotFoundError(2, "No such file or directory")), os_reason(OSError(5, "Input/output error"))
    ('no such file', 'cannot be read: Input/output error')
    """
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return f"cannot be read: {error.strerror or error}"


def _read_through(path: Path) -> None:
    """Raise the OSError, if any, that made libsndfile fail; libsndfile does not report it."""
    member = find_member(path)
    if member is not None:
        member.read()
        return
    with open(path, "rb") as file:
        while file.read(2**20):
            pass


def one_channel(wave: np.ndarray, channel: int | None, source: Path | str) -> np.ndarray:
    """Take one channel of a wave.

    Args:
        wave: Samples, (n, channels).
        channel: Counted from 0; None is the mean of all, about which there is one warning.
        source: The file, for that warning.

    Returns:
        Samples, (n,).

    >>> one_channel(np.array([[0.5, -0.25]]), None, "a.wav"), one_channel(np.array([[0.5, -0.25]]), 1, "a.wav")
    (array([0.125]), array([-0.25]))
    """
    if channel is None and wave.shape[1] > 1:
        _warn_once(_MIXED, "the channels of audio are mixed unless one is named; the first such file: %s", source)
        return wave.mean(axis=1)
    return np.ascontiguousarray(wave[:, channel or 0])


def warn_of_resampling(rate: int, target: int, source: Path | str) -> None:
    """Warn, once for all files, that audio is resampled.

    Args:
        rate: Sampling rate of the audio, in Hz.
        target: Sampling rate that is needed, in Hz. If it is the same, there is no warning.
        source: The file.
    """
    if rate != target:
        _warn_once(_RESAMPLED, "audio is resampled to %d Hz; the first such file, at %d Hz: %s", target, rate, source)


def warn_of_unreadable_audio(source: Path, error: OSError) -> None:
    """Warn, once for all files, that audio cannot be read and its features are taken from the cache.

    Args:
        source: The file.
        error: Why it cannot be read.
    """
    message = "audio cannot be read (%s); features that are in the cache are used; the first such file: %s"
    _warn_once(_NO_AUDIO, message, error.strerror or error, source)


def _warn_once(what: int, message: str, *values: object) -> None:
    if not _warned[what]:
        _warned[what] = 1
        _log.warning(message, *values)


def import_soundfile() -> Any:
    """Import soundfile, which is not a part of the core.

    Returns:
        The module.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import soundfile
    except ImportError:
        raise MissingExtra("soundfile", "train") from None
    return soundfile


def _open(utterance: Utterance) -> Any:
    soundfile = import_soundfile()
    path = utterance.audio
    try:
        state = audio_state(path)
    except ValueError:  # it holds NUL or half a surrogate pair
        raise UtteranceError(utterance, "not a path") from None
    if not stat.S_ISREG(state.mode):
        reason = "a folder, not a file" if stat.S_ISDIR(state.mode) else "a device or a pipe, not a file"
        raise UtteranceError(utterance, reason)
    if state.size == 0:
        raise UtteranceError(utterance, "empty file")
    try:
        file = soundfile.SoundFile(audio_source(path))
    except soundfile.LibsndfileError as error:
        _read_through(path)
        raise UtteranceError(utterance, f"not readable as audio: {error.error_string}") from None
    if file.frames == 0:
        file.close()
        raise UtteranceError(utterance, "no samples in it")
    if utterance.channel is not None and not 0 <= utterance.channel < file.channels:
        channels = file.channels
        file.close()
        raise UtteranceError(utterance, f"no channel {utterance.channel}: the file has {channels}")
    return file


def _check_rate(utterance: Utterance, rate: int) -> None:
    if not _RATES[0] <= rate <= _RATES[1]:
        raise UtteranceError(utterance, f"not a sampling rate of speech: {rate} Hz, not {_RATES[0]} to {_RATES[1]}")


def _interval(utterance: Utterance, rate: int, samples: int) -> tuple[int, int]:
    """The first sample of an utterance in its file, and the one after its last.

    An utterance may end up to `_TOLERANCE` seconds after the file; it is shortened then.
    """
    begin = round(utterance.start * rate)
    end = begin + round(utterance.duration * rate) if utterance.duration > 0 else samples
    if begin >= samples or end - samples > _TOLERANCE * rate:
        raise UtteranceError(utterance, f"truncated: {samples / rate:.2f} s of {max(begin, end) / rate:.2f} s")
    return begin, min(end, samples)


def _promised_samples(file: Any) -> int:
    """The number of samples that a WAV header announces; libsndfile itself uses the file's size."""
    claim = re.search(r"^data *: (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
    if claim is None or int(claim[2]) == 0 or int(claim[1]) >= 2**31 - 2**16:  # the last: from a pipe, size unknown
        return 0
    return round(file.frames * int(claim[1]) / int(claim[2]))


def _has_end(file: Any) -> bool:
    try:
        file.seek(max(0, file.frames - 16))
        return len(file.read()) == min(16, file.frames)
    except RuntimeError:
        return False
