"""Lhotse Shar against WebDataset tar: writing, size, opening, sequential reading, and a start in the middle.

    python benchmarks/shard_formats.py [--utterances 20000] [--shard 1000]

Both hold the same FLAC files with the same texts. Each is read by its own library, with sound as bytes; the tar also
by `tarfile`, and by byte ranges, as our reader does. A start in the middle asks for the utterance in the middle of a
shard.
Times are of processor time, the fastest of three rounds, interleaved; files are in the page cache.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import soundfile

ROUNDS = 3


def sounds(count: int, seed: int = 0) -> Iterator[tuple[str, bytes, str, float]]:
    """Utterances of 2 to 6 s of noise, a hundred different sounds: id, FLAC, text, seconds."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(100):
        seconds = float(rng.uniform(2, 6))
        file = io.BytesIO()
        soundfile.write(file, 0.05 * rng.standard_normal(int(seconds * 16000)), 16000, format="FLAC")
        made.append((file.getvalue(), int(seconds * 16000) / 16000))
    for i in range(count):
        flac, seconds = made[i % len(made)]
        yield f"utt{i:07d}", flac, f"the text of utterance {i} says that it is number {i}", seconds


def write_tar(folder: Path, count: int, shard: int) -> None:
    for i, (id, flac, text, seconds) in enumerate(sounds(count)):
        if i % shard == 0:
            tar = tarfile.open(folder / f"{i // shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
        row = json.dumps({"id": id, "text": text, "duration": seconds}).encode()
        for suffix, content in (("flac", flac), ("json", row)):
            info = tarfile.TarInfo(f"{id}.{suffix}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if i % shard == shard - 1 or i == count - 1:
            tar.close()


def write_shar(folder: Path, count: int, shard: int) -> None:
    from lhotse import MonoCut, Recording, SupervisionSegment
    from lhotse.shar import SharWriter

    with SharWriter(str(folder), fields={"recording": "original"}, shard_size=shard) as writer:
        for id, flac, text, seconds in sounds(count):
            recording = Recording.from_bytes(flac, id)
            said = SupervisionSegment(id, id, 0.0, seconds, text=text)
            writer.write(MonoCut(id, 0.0, seconds, 0, recording=recording, supervisions=[said]))


def read_shar(folder: Path, first: int = 0) -> Iterator[bytes]:
    from lhotse import CutSet

    fields = {
        "cuts": [str(p) for p in sorted(folder.glob("cuts.*"))][first:],
        "recording": [str(p) for p in sorted(folder.glob("recording.*"))][first:],
    }
    for cut in CutSet.from_shar(fields=fields):
        yield cut.recording.sources[0].source


def read_webdataset(folder: Path, first: int = 0) -> Iterator[bytes]:
    import webdataset

    paths = [str(p) for p in sorted(folder.glob("*.tar"))][first:]
    for sample in webdataset.WebDataset(paths, shardshuffle=False):
        json.loads(sample["json"])
        yield sample["flac"]


def read_tarfile(folder: Path, first: int = 0) -> Iterator[bytes]:
    for path in sorted(folder.glob("*.tar"))[first:]:
        with tarfile.open(path, "r|") as tar:
            for member in tar:
                content = tar.extractfile(member).read()  # type: ignore[union-attr]
                if member.name.endswith(".flac"):
                    yield content
                else:
                    json.loads(content)


def read_ranges(folder: Path, places: dict[str, list[tuple[int, int, str]]], first: int = 0) -> Iterator[bytes]:
    """By offset and size, as an index has them; the text comes from the index."""
    for path in sorted(folder.glob("*.tar"))[first:]:
        with open(path, "rb") as file:
            for offset, size, _ in places[path.name]:
                file.seek(offset)
                yield file.read(size)


def index(folder: Path) -> dict[str, list[tuple[int, int, str]]]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            found[path.name] = [(m.offset_data, m.size, m.name) for m in tar if m.name.endswith(".flac")]
    return found


def seconds_of(function: Callable[[], object]) -> float:
    begun = time.process_time()
    function()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--utterances", type=int, default=20000)
    parser.add_argument("--shard", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        tars, shars = Path(name, "tar"), Path(name, "shar")
        tars.mkdir(), shars.mkdir()
        written = {
            "lhotse Shar": seconds_of(lambda: write_shar(shars, options.utterances, options.shard)),
            "WebDataset": seconds_of(lambda: write_tar(tars, options.utterances, options.shard)),
        }
        places = index(tars)
        middle, shards = options.shard // 2, len(places)
        range_start = lambda: next(r for i, r in enumerate(read_ranges(tars, places, shards // 2)) if i == 0)  # noqa: E731
        readers: dict[str, tuple[Callable[[], Iterator[bytes]], Callable[[], object], Path]] = {
            "lhotse Shar, by lhotse": (
                lambda: read_shar(shars), lambda: _until(read_shar(shars, shards // 2), middle), shars,
            ),
            "WebDataset, by webdataset": (
                lambda: read_webdataset(tars), lambda: _until(read_webdataset(tars, shards // 2), middle), tars,
            ),
            "the same tar, by tarfile": (
                lambda: read_tarfile(tars), lambda: _until(read_tarfile(tars, shards // 2), middle), tars,
            ),
            "the same tar, by byte ranges": (lambda: read_ranges(tars, places), range_start, tars),
        }  # fmt: skip
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in readers}
        for _ in range(ROUNDS):
            for name, (read, start, _) in readers.items():
                opening = seconds_of(lambda read=read: next(read()))  # type: ignore[misc]
                sequential = seconds_of(lambda read=read: sum(1 for _ in read()))  # type: ignore[misc]
                found[name].append((opening, sequential, seconds_of(start)))
        print(f"{options.utterances:,} utterances in {shards} shards; writing: " + ", ".join(
            f"{name} {options.utterances / spent:,.0f} utt/s" for name, spent in written.items()))  # fmt: skip
        print(f"{'':32}{'MB':>8}{'files':>8}{'first, ms':>12}{'utt/s':>10}{'middle, ms':>12}")
        for name, rows in found.items():
            opening, sequential, start = (min(column) for column in zip(*rows, strict=True))
            files = list(readers[name][2].iterdir())
            size = sum(path.stat().st_size for path in files) / 1e6
            rate = options.utterances / sequential
            print(f"{name:32}{size:8,.0f}{len(files):8}{1000 * opening:12.2f}{rate:10,.0f}{1000 * start:12.2f}")


def _until(found: Iterator[bytes], number: int) -> bytes:
    return next(content for i, content in enumerate(found) if i == number)


if __name__ == "__main__":
    main()
