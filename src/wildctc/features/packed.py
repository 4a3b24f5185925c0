"""Features of shards: a file for each shard, with its index, or computed whenever they are asked for.

A file is in the safetensors format, so that others can read it. For each speed it has all features one after the other
(`features.0`, float16), the frame after the last of each utterance (`ends.0`), and CRC-32 checksums (`checks.0`). An
utterance of which the front end makes nothing has no frames. Files are written whole or not at all, and the same shard
gives the same bytes, so several processes and machines can work side by side.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from wildctc.audio.resampling import resampled_length
from wildctc.claims import work_through
from wildctc.corpora.shards import Shard, Shards
from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache, NoFeatures, check_size
from wildctc.features.front_end import FrontEnd
from wildctc.files import make_folder, patiently, remove_parts, writing

_ABANDONED = 3600.0  # seconds after which a part of a file is of a process that was killed


class OpenShard(Protocol):
    """The features of a shard.

    Attributes:
        frames: (utterances, speeds) frames; 0 where there are no features.
    """

    frames: np.ndarray

    def get(self, utterance: Utterance, row: int, speed: int) -> np.ndarray:
        """Read the features of an utterance.

        Args:
            utterance: The utterance.
            row: The number of the utterance in its shard.
            speed: The number of the speed.

        Returns:
            (frames, *shape of a frame) float32.

        Raises:
            WildCTCError: They cannot be read or computed.
        """
        ...


class ShardFeatures:
    """The features of the shards of a corpus.

    Attributes:
        shards: The shards.
        front_end: What computes the features.
        speeds: How many times as fast each utterance is played.
        folder: Where the files are; None: none are kept.
    """

    def __init__(
        self, root: str | Path | None, shards: Shards, front_end: FrontEnd, speeds: Sequence[float] = (1.0,)
    ) -> None:
        """Name the folder; it need not exist.

        Args:
            root: The folder of computed features, which runs can share; None: none are kept.
            shards: The shards.
            front_end: What computes the features.
            speeds: How many times as fast each utterance is played.
        """
        self.shards, self.front_end, self.speeds = shards, front_end, tuple(speeds)
        named = "-".join(f"{speed:g}" for speed in self.speeds)
        self.folder = None if root is None else Path(root) / "packed" / front_end.name / named

    def missing(self) -> list[int]:
        """Find the shards whose features are not there.

        Returns:
            Their numbers; none if no features are kept.
        """
        if self.folder is None:
            return []
        there = set(os.listdir(self.folder)) if self.folder.is_dir() else set()
        return [n for n, shard in enumerate(self.shards.shards) if _name(shard) not in there]

    def compute(self, workers: int, limit_gb: float) -> Iterator[int]:
        """Compute what is missing. Other processes, also on other machines, may do the same at the same time.

        Args:
            workers: Processes; 0 does the work in this one.
            limit_gb: The most that all features may take, in 10⁹ bytes.

        Yields:
            The numbers of shards, as they are finished by anyone.

        Raises:
            WildCTCError: The features take too much room, or cannot be written.
        """
        missing = self.missing()
        if self.folder is None or not missing:
            return
        per_second = self.front_end.frame_rate * math.prod(self.front_end.shape) * np.float16().nbytes
        needed, more = (
            sum(shard.seconds / speed for shard in some for speed in self.speeds)
            for some in (self.shards.shards, [self.shards.shards[n] for n in missing])
        )
        check_size(self.front_end, self.folder, needed * per_second, more * per_second, limit_gb)
        remove_parts(make_folder(self.folder), _ABANDONED)
        yield from work_through(
            missing, self.folder / ".claims", lambda n: self._path(n).is_file(), self.write, workers
        )

    def open(self, number: int) -> OpenShard:
        """Open the features of a shard.

        Args:
            number: Of the shard.

        Returns:
            Its features.

        Raises:
            WildCTCError: The file is not there, or is damaged.
        """
        if self.folder is None:
            return _Computed(self, number)
        return _Packed(self._path(number), self.shards.shards[number].utterances, len(self.speeds))

    def write(self, number: int) -> None:
        """Compute the features of a shard and write its file.

        Args:
            number: Of the shard.

        Raises:
            WildCTCError: Its audio cannot be read, or the file cannot be written.
        """
        utterances, frames = self.shards.read(number), self.count(number)
        path = self._path(number)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with writing(path):
            try:
                with open(part, "wb") as file:
                    self._write(file, utterances, frames)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(part, path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        self.shards.done(number)

    def _write(self, file: IO[bytes], utterances: Sequence[Utterance], frames: np.ndarray) -> None:
        shape, count = self.front_end.shape, len(utterances)
        header: dict[str, Any] = {}
        begin = 0
        for speed in range(len(self.speeds)):
            total = int(frames[:, speed].sum())
            kinds = {
                "features": ("F16", [total, *shape], 2),
                "ends": ("I64", [count], 8),
                "checks": ("U32", [count], 4),
            }
            for name, (dtype, of, each) in kinds.items():
                end = begin + each * math.prod(of)
                header[f"{name}.{speed}"] = {"dtype": dtype, "shape": of, "data_offsets": [begin, end]}
                begin = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        computes = FeatureCache(None, self.front_end)
        for number, factor in enumerate(self.speeds):
            ends, checks = [0], []
            for utterance, counted in zip(utterances, frames[:, number].tolist(), strict=True):
                found = self._features(computes, utterance, factor, counted)
                file.write(found.tobytes())
                ends.append(ends[-1] + len(found))
                checks.append(zlib.crc32(found.tobytes()))
            unused = int(frames[:, number].sum()) - ends[-1]
            file.write(bytes(unused * math.prod(shape) * 2))
            file.write(np.array(ends[1:], "<i8").tobytes() + np.array(checks, "<u4").tobytes())

    def _features(self, computes: FeatureCache, utterance: Utterance, speed: float, counted: int) -> np.ndarray:
        try:
            found = computes.compute(utterance, speed)
        except NoFeatures:
            return np.zeros((0, *self.front_end.shape), np.float16)
        if len(found) != counted:
            raise WildCTCError(
                f"{utterance.id} ({utterance.audio}): {len(found)} frames of features, but {self.front_end.name} "
                f"counted {counted}: has the audio changed since the corpus was packed?"
            )
        return found

    def count(self, number: int) -> np.ndarray:
        """Count frames by the lengths in the table of a shard.

        Args:
            number: Of the shard.

        Returns:
            (utterances, speeds) frames.
        """
        rate = self.front_end.sampling_rate
        lengths = [resampled_length(samples, own, rate) for samples, own in self.shards.lengths(number)]
        counts = [[self.front_end.frames(resampled_length(n, speed, 1)) for speed in self.speeds] for n in lengths]
        return np.array(counts, np.int64).reshape(len(lengths), len(self.speeds))

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / _name(self.shards.shards[number])


def _name(shard: Shard) -> str:
    return f"{shard.digest[:32]}.safetensors"


class _Packed:
    """The features in a file. They are read with a call for each utterance: pages of a file that is mapped into memory
    would count as memory of the process, and would be read one by one from a network disk."""

    def __init__(self, path: Path, utterances: int, speeds: int) -> None:
        self.path = path
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (open as long as the object lives)
            size = int.from_bytes(self._read(0, 8), "little")
            if size > os.fstat(self._file.fileno()).st_size:
                raise ValueError("it is not in the format safetensors")
            header = json.loads(self._read(8, size))
            self._begin = 8 + size
            self._header = [header[f"features.{speed}"] for speed in range(speeds)]
            self._ends = [self._array(header[f"ends.{speed}"], "<i8", utterances) for speed in range(speeds)]
            self._checks = [self._array(header[f"checks.{speed}"], "<u4", utterances) for speed in range(speeds)]
            self.frames = np.stack([np.diff(ends, prepend=0) for ends in self._ends], axis=1)
            self._shapes = [tuple(map(int, found["shape"][1:])) for found in self._header]
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise self._damaged(str(error)) from None

    def _read(self, offset: int, size: int) -> bytes:
        content = patiently(lambda: os.pread(self._file.fileno(), size, offset))
        if len(content) < size:
            raise ValueError("it ends too early")
        return content

    def _array(self, named: dict[str, Any], dtype: str, utterances: int) -> np.ndarray:
        begin, end = named["data_offsets"]
        found = np.frombuffer(self._read(self._begin + begin, end - begin), dtype)
        if len(found) != utterances:
            raise ValueError("it has another number of utterances than its shard")
        return found

    def get(self, utterance: Utterance, row: int, speed: int) -> np.ndarray:
        ends, shape = self._ends[speed], self._shapes[speed]
        first, last = int(ends[row - 1]) if row else 0, int(ends[row])
        each = 2 * math.prod(shape)
        try:
            place = self._begin + self._header[speed]["data_offsets"][0] + first * each
            content = self._read(place, (last - first) * each) if last > first else b""
        except (OSError, ValueError) as error:
            raise self._damaged(str(error)) from None
        if zlib.crc32(content) != self._checks[speed][row]:
            raise self._damaged(f"the checksum of utterance {row} is wrong")
        return np.frombuffer(content, "<f2").reshape(last - first, *shape).astype(np.float32)

    def _damaged(self, reason: str) -> WildCTCError:
        return WildCTCError(f"{self.path}: damaged: {reason}; remove it, and the same command computes it again")


class _Computed:
    """Features that are computed whenever they are asked for."""

    def __init__(self, features: ShardFeatures, number: int) -> None:
        self._cache, self._speeds = FeatureCache(None, features.front_end), features.speeds
        self.frames = features.count(number)

    def get(self, utterance: Utterance, row: int, speed: int) -> np.ndarray:
        return self._cache.get(utterance, self._speeds[speed])
