"""Features on disk, or computed whenever they are asked for."""

import hashlib
import io
import logging
import math
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import numpy as np

from wildctc.audio.resampling import resample
from wildctc.audio.sound_files import load_audio, os_reason
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.features.digests import AudioDigests
from wildctc.features.front_end import FrontEnd, NotFinite, extract
from wildctc.files import Damaged, patiently, put_file, remove_parts

_log = logging.getLogger(__name__)
_GB = 1e9
_ABANDONED = 3600.0  # seconds after which a part of a file is of a process that was killed


class GivesFeatures(Protocol):
    """A feature cache, or a window of shards."""

    def get(self, utterance: Utterance, speed: float = 1.0) -> np.ndarray:
        """Get the features of an utterance.

        Args:
            utterance: The utterance.
            speed: How many times as fast it is played.

        Returns:
            (frames, *shape of a frame) float32.
        """
        ...


class NoFeatures(UtteranceError):
    """An utterance whose audio can be read, and of which the front end makes nothing that could be used."""


class FeatureCache:
    """Features on disk, one file for each utterance and speed, computed when first asked for.

    Features are float16, half the size of float32. What is returned has gone through that rounding the first time too,
    so that a run that computes and a run that reads see the same bits. A file is found by the content of its audio
    file, wherever that is: changed audio is computed again, and audio that cannot be read now does not matter. A
    damaged file is noticed by its checksum and computed again.

    Attributes:
        directory: Where the features of this front end are; None: none are kept.
        front_end: What computes them.
    """

    def __init__(self, directory: str | Path | None, front_end: FrontEnd) -> None:
        """Name the folder; it need not exist.

        Args:
            directory: May be shared by several runs and processes; files are written whole or not at all. None: nothing
                is kept, and features are computed whenever they are asked for.
            front_end: What computes them.
        """
        self.directory = None if directory is None else Path(directory) / front_end.name
        self.front_end = front_end
        root = Path(directory or "")
        self._parts = root / "parts"
        self._digests = AudioDigests(root / "audio", self._parts)
        self._wrote = False

    def get(self, utterance: Utterance, speed: float = 1.0) -> np.ndarray:
        """Read the features of an utterance, or compute and keep them.

        Args:
            utterance: The utterance.
            speed: How many times as fast it is played.

        Returns:
            (frames, *shape of a frame) float32.

        Raises:
            UtteranceError: Its audio is bad.
        """
        if self.directory is None:
            return self.compute(utterance, speed).astype(np.float32)
        path = self._path(self.directory, utterance, speed)
        try:
            stored = self._read(path)
        except Damaged as fault:
            stored = self._mend(path, fault, utterance, speed)
        if stored is None:
            stored = self._write(path, self.compute(utterance, speed))
        return stored.astype(np.float32)

    def frames(self, utterance: Utterance, speed: float = 1.0) -> int:
        """Count the frames that `get` returns. If there is a cache, the features are in it afterwards.

        Args:
            utterance: The utterance.
            speed: How many times as fast it is played.

        Returns:
            The number of frames.

        Raises:
            UtteranceError: Its audio is bad.
        """
        if self.directory is not None:
            return len(self.get(utterance, speed))
        wave = self._wave(utterance, speed)
        return self._check_frames(utterance, wave, self.front_end.frames(len(wave)))

    def check_room(self, wanted: Iterable[tuple[Utterance, float]], limit_gb: float) -> None:
        """Report how much disk the features will take, and refuse what is too much, before long work.

        Args:
            wanted: Utterances with their speeds. What is in the cache already needs no more room.
            limit_gb: The most that all of them may take, in 10⁹ bytes.
        """
        if self.directory is None:
            return
        wanted = list(wanted)
        seconds, missing = self.seconds(wanted)
        each = self.front_end.frame_rate * math.prod(self.front_end.shape) * np.float16().nbytes / _GB
        needed, more = seconds * each, missing * each
        if more == 0:
            return
        if more > _free(self.directory) / _GB:  # what is new by its path may be there by its content
            more = each * self.seconds(wanted, look=True)[1]  # which takes longer to find out
        check_size(self.front_end, self.directory, needed * _GB, more * _GB, limit_gb)

    def seconds(self, wanted: Iterable[tuple[Utterance, float]], look: bool = False) -> tuple[float, float]:
        """Add up how much speech there is, and how much of it has no features here yet.

        Args:
            wanted: Utterances with their speeds.
            look: Whether to look at the audio itself, whose content may be known from another path. Otherwise a new
                path has no features.

        Returns:
            Seconds of all of it, and of what has no features.
        """
        every = missing = 0.0
        for utterance, speed in wanted:
            every += utterance.duration / speed
            missing += utterance.duration / speed * (not self._has(utterance, speed, look))
        return every, missing

    def _has(self, utterance: Utterance, speed: float, look: bool) -> bool:
        if self.directory is None:
            return False
        try:
            digest = self._digests.get(utterance.audio) if look else self._digests.noted(utterance.audio)
        except OSError:  # it will be reported when it is used, and take no room
            return True
        return digest is not None and _place(self.directory, digest, utterance, speed).is_file()

    def _path(self, directory: Path, utterance: Utterance, speed: float) -> Path:
        try:
            return _place(directory, self._digests.get(utterance.audio), utterance, speed)
        except OSError as error:
            raise UtteranceError(utterance, os_reason(error)) from None

    def _wave(self, utterance: Utterance, speed: float) -> np.ndarray:
        return resample(load_audio(utterance, self.front_end.sampling_rate), speed, 1)

    def _check_frames(self, utterance: Utterance, wave: np.ndarray, frames: int) -> int:
        if frames == 0:
            raise NoFeatures(utterance, f"too short: {len(wave)} samples give no frame of {self.front_end.name}")
        return frames

    def compute(self, utterance: Utterance, speed: float = 1.0) -> np.ndarray:
        """Compute the features of an utterance, without looking for them on the disk.

        Args:
            utterance: The utterance.
            speed: How many times as fast it is played.

        Returns:
            (frames, *shape of a frame) float16.

        Raises:
            NoFeatures: The front end makes nothing of its audio.
            UtteranceError: Its audio is bad.
        """
        wave = self._wave(utterance, speed)
        try:
            features = extract(self.front_end, wave)
        except NotFinite as error:
            raise NoFeatures(utterance, str(error)) from None
        self._check_frames(utterance, wave, len(features))
        limit = np.finfo(np.float16).max
        return features.clip(-limit, limit).astype(np.float16)

    def _read(self, path: Path) -> np.ndarray | None:
        """The features in a file; None if there is no such file."""
        try:
            content = patiently(path.read_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Damaged(os_reason(error)) from None
        body = content[:-4]
        if _checksum(path, body) != content[-4:]:
            raise Damaged("its checksum is wrong")
        features: np.ndarray = np.load(io.BytesIO(body))
        if features.shape[1:] != self.front_end.shape or len(features) == 0 or features.dtype != np.float16:
            raise Damaged(f"it holds {features.dtype} of shape {features.shape}")
        return features

    def _write(self, path: Path, features: np.ndarray, replace: bool = False) -> np.ndarray:
        """Keep features, and return those that are kept: another process may have been first."""
        if not self._wrote:
            self._wrote = True
            remove_parts(self._parts, _ABANDONED)
        file = io.BytesIO()
        try:
            np.save(file, features)
            content = file.getvalue()
            if put_file(path, content + _checksum(path, content), self._parts, replace):
                return features
        except OSError as error:
            raise WildCTCError(f"cannot write to the feature cache {path.parent}: {error.strerror}") from None
        try:
            kept = self._read(path)
        except Damaged:
            kept = None  # it will be mended when it is read next
        return features if kept is None else kept

    def _mend(self, path: Path, fault: Damaged, utterance: Utterance, speed: float) -> np.ndarray:
        """Compute anew what a damaged file should hold."""
        try:
            features = self.compute(utterance, speed)
        except UtteranceError as error:
            reason = (
                f"its features in the cache are damaged ({path}: {fault}) and cannot be computed anew: {error.reason}"
            )
            raise UtteranceError(utterance, reason) from None
        _log.warning("a file of the feature cache was damaged and is computed anew: %s: %s", path, fault)
        return self._write(path, features, replace=True)


def check_size(front_end: FrontEnd, directory: Path, needed: float, more: float, limit_gb: float) -> None:
    """Report how much disk features will take, and refuse what is too much, before long work.

    Args:
        front_end: What computes them.
        directory: Where they will be.
        needed: Bytes of all of them.
        more: Bytes of those that are not there yet.
        limit_gb: The most that all of them may take, in 10⁹ bytes.

    Raises:
        WildCTCError: It is too much.
    """
    needed, more, free = needed / _GB, more / _GB, _free(directory) / _GB
    each = front_end.frame_rate * math.prod(front_end.shape) * np.float16().nbytes / _GB
    _log.info(
        "features: %.2f h at all speeds × %g frames a second × %s × 2 bytes = %s, of which %s are new, in %s",
        needed / each / 3600, front_end.frame_rate, " × ".join(map(str, front_end.shape)), _size(needed), _size(more),
        directory,
    )  # fmt: skip
    amount, bound = (needed, f"data.cache_limit_gb allows {limit_gb:g} GB") if needed > limit_gb else (0.0, "")
    if not bound and more > free:
        amount, bound = more, f"{_size(free)} are free"
    if bound:
        layers = front_end.shape[0] if len(front_end.shape) > 1 else 1
        fewer = f"--features.layers last ({_size(needed / layers)}), " if layers > 1 else ""
        raise WildCTCError(
            f"the features would take {_size(amount)} in {directory}, and {bound}: set {fewer}"
            "a larger --data.cache_limit_gb, another --data.cache, or --data.cache null to compute them in each epoch"
        )


def _place(directory: Path, digest: str, utterance: Utterance, speed: float) -> Path:
    """The file for the features of an utterance in audio with this digest."""
    key = (digest, utterance.start, utterance.duration, utterance.channel, speed)
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    return directory / name[:2] / f"{name[2:]}.npy"


def _checksum(path: Path, body: bytes) -> bytes:
    """Of a file's name and content, so that a file in another's place is noticed too.

    CRC-32 finds any few flipped bits, and takes a quarter of the time of a cryptographic digest.
    """
    return zlib.crc32(body, zlib.crc32(path.name.encode())).to_bytes(4, "little")


def _free(directory: Path) -> int:
    """Bytes free where a folder is or will be."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def _size(gb: float) -> str:
    return f"{gb:,.0f} GB" if gb >= 10 else f"{gb:.1f} GB" if gb >= 1 else f"{gb * 1000:.3g} MB"
