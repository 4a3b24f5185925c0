"""Features on disk, or computed whenever they are asked for."""

import hashlib
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np

from ..corpora import Utterance, UtteranceError, load_audio, resample
from ..errors import WildCTCError
from .front_end import FrontEnd

_log = logging.getLogger(__name__)
GB = 1e9


class FeatureCache:
    """Features on disk, one file for each utterance and speed, computed when first asked for.

    directory: may be shared by several runs and processes; files are written whole or not at all. None: nothing is
    kept, and features are computed whenever they are asked for. They are float16, half the size of float32, and what is
    returned has gone through that rounding the first time too, so that a run that computes and a run that reads see the
    same bits. A file is found by its audio's path, size and time of change, so changed audio is computed anew.
    """

    def __init__(self, directory: str | Path | None, front_end: FrontEnd) -> None:
        self.directory = None if directory is None else Path(directory) / front_end.name
        self.front_end = front_end

    def get(self, utterance: Utterance, speed: float = 1.0) -> np.ndarray:
        """(frames, *shape of a frame) float32 of an utterance spoken `speed` times as fast.

        UtteranceError if its audio is bad.
        """
        if self.directory is None:
            return self._compute(utterance, speed).astype(np.float32)
        path = self._path(self.directory, utterance, speed)
        stored = _read(path)
        if stored is None:
            stored = self._compute(utterance, speed)
            _write(path, stored)
        return stored.astype(np.float32)

    def frames(self, utterance: Utterance, speed: float = 1.0) -> int:
        """The number of frames that `get` gives, whose features are in the cache afterwards if there is one."""
        if self.directory is not None:
            return len(self.get(utterance, speed))
        wave = self._wave(utterance, speed)
        return self._check_frames(utterance, wave, self.front_end.frames(len(wave)))

    def check_room(self, wanted: Iterable[tuple[Utterance, float]], limit_gb: float) -> None:
        """Before long work: say how much disk the features of utterances at speeds take, and refuse what is too much.

        limit_gb: the most that all of them may take, in 10⁹ bytes. What is in the cache already needs no more room.
        """
        if self.directory is None:
            return
        seconds = missing = 0.0
        for utterance, speed in wanted:
            seconds += utterance.duration / speed
            missing += utterance.duration / speed * (not self._has(utterance, speed))
        each = self.front_end.frame_rate * math.prod(self.front_end.shape) * np.float16().nbytes / GB
        needed, more = seconds * each, missing * each
        if more == 0:
            return
        numbers = " × ".join(map(str, self.front_end.shape))
        _log.info(
            "features: %.2f h at all speeds × %g frames a second × %s × 2 bytes = %s, of which %s are new, in %s",
            seconds / 3600, self.front_end.frame_rate, numbers, _size(needed), _size(more), self.directory,
        )  # fmt: skip
        free = _free(self.directory) / GB
        if needed > limit_gb:
            self._refuse(needed, needed, f"data.cache_limit_gb allows {limit_gb:g} GB")
        if more > free:
            self._refuse(needed, more, f"{_size(free)} are free")

    def _refuse(self, needed: float, amount: float, bound: str) -> NoReturn:
        layers = self.front_end.shape[0] if len(self.front_end.shape) > 1 else 1
        fewer = f"--features.layers last ({_size(needed / layers)}), " if layers > 1 else ""
        raise WildCTCError(
            f"the features would take {_size(amount)} in {self.directory}, and {bound}: set {fewer}"
            "a larger --data.cache_limit_gb, another --data.cache, or --data.cache null to compute them in each epoch"
        )

    def _has(self, utterance: Utterance, speed: float) -> bool:
        assert self.directory is not None
        try:
            return self._path(self.directory, utterance, speed).is_file()
        except UtteranceError:  # it will be reported when it is used, and take no room
            return True

    def _path(self, directory: Path, utterance: Utterance, speed: float) -> Path:
        try:
            stat = utterance.audio.stat()
        except OSError:
            raise UtteranceError(utterance, "no such file") from None
        u = utterance
        key = (os.path.abspath(u.audio), stat.st_size, stat.st_mtime_ns, u.start, u.duration, u.channel, speed)
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
        return directory / name[:2] / f"{name[2:]}.npy"

    def _wave(self, utterance: Utterance, speed: float) -> np.ndarray:
        return resample(load_audio(utterance, self.front_end.sampling_rate), speed, 1)

    def _check_frames(self, utterance: Utterance, wave: np.ndarray, frames: int) -> int:
        if frames == 0:
            raise UtteranceError(utterance, f"too short: {len(wave)} samples give no frame of {self.front_end.name}")
        return frames

    def _compute(self, utterance: Utterance, speed: float) -> np.ndarray:
        wave = self._wave(utterance, speed)
        features = self.front_end.extract(wave)
        self._check_frames(utterance, wave, len(features))
        limit = np.finfo(np.float16).max
        return features.clip(-limit, limit).astype(np.float16)


def _read(path: Path) -> np.ndarray | None:
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError):  # not there, or cut short by a crash
        return None


def _write(path: Path, features: np.ndarray) -> None:
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            np.save(file, features)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise WildCTCError(f"cannot write to the feature cache {path.parent}: {error.strerror}") from None


def _free(directory: Path) -> int:
    """Bytes free where a folder is or will be."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def _size(gb: float) -> str:
    return f"{gb:,.0f} GB" if gb >= 10 else f"{gb:.1f} GB" if gb >= 1 else f"{gb * 1000:.3g} MB"
