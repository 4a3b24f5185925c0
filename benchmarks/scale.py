"""What a corpus of N utterances costs before and while it is trained on: a manifest and a file an utterance, or shards.

    python benchmarks/scale.py [--manifest 10000] [--shards 10000 100000 1000000] [--folder DIR]

For each size and way the corpus is made in DIR, and removed afterwards. Utterances have 4 s and ten words, and name the
same audio; the features are there: a filterbank of 4 bins. Those of shards are all zeros, links to one file, so that a
million utterances fit on any disk; they are read and checked as any others. Each measurement is a process of its own,
which makes a `Trainer` and takes an optimiser step of a tiny encoder. `resume` does the same from a checkpoint in the
middle of an epoch, and takes a further step. Seconds are of the processor (user and system), and by the clock without
imports; memory is the peak of the process and of its largest data-loading process, as the kernel counts it.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import soundfile

SECONDS, BINS, SIZE, RATE = 4.0, 4, 1000, 16000
WORDS = ("pagi", "malam", "jalan", "rumah", "besar", "kecil", "makan", "minum", "datang", "pergi")
TEXTS = [" ".join(row) for row in np.random.default_rng(0).choice(WORDS, (1000, 10))]
RECIPE = """
data: {{dir: {folder}, train: {train}, dev: dev.jsonl, batch_seconds: 120, workers: 1, cache: {folder}/features}}
features: {{name: fbank, num_bins: 4}}
encoder: {{kind: conformer, subsampling_conv: conv1d, d_model: 16, heads: 2, blocks: 1, ff_dim: 16, kernel: 3}}
training: {{epochs: 1}}
"""


def text(number: int) -> str:
    """One of a thousand texts."""
    return TEXTS[number % len(TEXTS)]


def make_common(folder: Path, train: str) -> None:
    rng = np.random.default_rng(0)
    soundfile.write(folder / "a.flac", 0.05 * rng.standard_normal(int(SECONDS * RATE)), RATE)
    rows = ({"id": f"dev{i}", "audio": "a.flac", "text": text(i), "duration": SECONDS} for i in range(20))
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder, train=train))


def make_manifest(folder: Path, count: int) -> None:
    """A manifest of N rows that name N files, all of them links to one; features come with the first start."""
    make_common(folder, "train.jsonl.gz")
    (folder / "audio").mkdir()
    with gzip.open(folder / "train.jsonl.gz", "wt", compresslevel=1) as file:
        for i in range(count):
            path = folder / "audio" / f"{i}.flac"
            os.symlink(folder / "a.flac", path)
            row = {
                "id": f"utt{i:07d}",
                "audio": str(path),
                "text": text(i),
                "duration": SECONDS,
                "speaker": f"s{i % 999}",
            }
            file.write(json.dumps(row) + "\n")


def make_shards(folder: Path, count: int) -> None:
    """Shards of tables that name one file, with their features."""
    from wildctc.corpora.shard_files import table_bytes
    from wildctc.corpora.shards import FORMAT, LIST, Shard
    from wildctc.features.fbank import Fbank

    make_common(folder, "shards")
    front_end, audio = Fbank(BINS), str(folder / "a.flac")
    packed = folder / "features" / "packed" / front_end.name / "1"
    packed.mkdir(parents=True)
    (folder / "shards").mkdir()
    frames = front_end.frames(int(SECONDS * RATE))
    rows = [
        {"id": f"utt{i:07d}", "text": text(i), "audio": audio, "start": 0.0, "duration": SECONDS, "channel": 0,
         "rate": RATE, "samples": int(SECONDS * RATE), "speaker": f"s{i % 999}"}
        for i in range(SIZE)
    ]  # fmt: skip
    characters = "".join(sorted({char for row in rows for char in str(row["text"])}))
    write_features(folder / "zeros", SIZE, frames, zlib.crc32(bytes(frames * BINS * 2)))
    shards = []
    for number in range(count // SIZE):
        for i, row in enumerate(rows):
            row["id"] = f"utt{number * SIZE + i:07d}"
        content, name = table_bytes(rows), f"{number:06d}"
        (folder / "shards" / f"{name}.arrow").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        shards.append(vars(Shard(name, SIZE, SIZE * SECONDS, digest, characters, False)))
        os.link(folder / "zeros", packed / f"{digest[:32]}.safetensors")
    (folder / "shards" / LIST).write_text(json.dumps({"format": FORMAT, "source": None, "shards": shards}))


def write_features(path: Path, count: int, frames: int, check: int) -> None:
    """A file of zeros as features, in the form that `ShardFeatures.write` gives it."""
    size = 2 * BINS * frames * count
    header = {
        "features.0": {"dtype": "F16", "shape": [count * frames, BINS], "data_offsets": [0, size]},
        "ends.0": {"dtype": "I64", "shape": [count], "data_offsets": [size, size + 8 * count]},
        "checks.0": {"dtype": "U32", "shape": [count], "data_offsets": [size + 8 * count, size + 12 * count]},
    }
    named = json.dumps(header).encode()
    named += b" " * (-len(named) % 8)
    ends = np.arange(1, count + 1, dtype="<i8") * frames
    with path.open("wb") as file:
        file.write(len(named).to_bytes(8, "little") + named + bytes(size))
        file.write(ends.tobytes() + np.full(count, check, "<u4").tobytes())


def child(folder: Path, resumed: bool) -> None:
    """Make a trainer and take one step, after which a checkpoint is kept; what it took is printed."""
    import torch

    from wildctc.distributed import ALONE
    from wildctc.training.config import load_recipe
    from wildctc.training.loop import Trainer
    from wildctc.training.steps import Position

    begun = time.perf_counter()
    torch.set_num_threads(1)
    trainer = Trainer(load_recipe(str(folder / "recipe.yaml")), folder / "run", ALONE)
    assert (trainer.group > 0) == resumed
    position = Position(trainer.epoch, trainer.group, trainer.places)
    for step in trainer.steps.epoch(position, trainer.stats, trainer.parts):
        trainer._step(step)
        trainer.group += 1
        break
    elapsed = time.perf_counter() - begun
    trainer._save()  # the data-loading process has ended with the loop, so that its memory is known
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({
        "cpu": sum(s.ru_utime + s.ru_stime for s in spent), "clock": elapsed,
        "memory": spent[0].ru_maxrss / 1024, "worker": spent[1].ru_maxrss / 1024,
    }), flush=True)  # fmt: skip
    os._exit(0)  # without waiting for the data-loading process


def measure(folder: Path, resumed: bool = False) -> dict[str, float]:
    words = [sys.executable, __file__, "--child", str(folder), *(["--resumed"] if resumed else [])]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr)
    return dict(json.loads(found.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifest", type=int, nargs="*", default=[10_000])
    parser.add_argument("--shards", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--child", type=Path)
    parser.add_argument("--resumed", action="store_true")
    options = parser.parse_args()
    if options.child:
        child(options.child, options.resumed)
    print(f"{'':10}{'utterances':>12}{'start, CPU s':>14}{'clock s':>9}{'resume, CPU s':>15}{'clock s':>9}"
          f"{'process, MB':>13}{'worker, MB':>12}{'files':>9}{'cache files':>13}", flush=True)  # fmt: skip
    sizes = [("shards", n) for n in options.shards] + [("manifest", n) for n in options.manifest]
    for way, count in sizes:
        folder = Path(tempfile.mkdtemp(prefix="scale-", dir=options.folder))
        try:
            (make_manifest if way == "manifest" else make_shards)(folder, count)
            if way == "manifest":
                measure(folder)  # computes the features
            shutil.rmtree(folder / "run", ignore_errors=True)
            first, again = measure(folder), measure(folder, resumed=True)
            cache = sum(len(files) for _, _, files in os.walk(folder / "features"))
            data = sum(len(files) for name in ("shards", "audio") for _, _, files in os.walk(folder / name))
            memory, worker = (max(first[name], again[name]) for name in ("memory", "worker"))
            print(f"{way:10}{count:12,}{first['cpu']:14.1f}{first['clock']:9.1f}{again['cpu']:15.1f}"
                  f"{again['clock']:9.1f}{memory:13,.0f}{worker:12,.0f}{data:9,}{cache:13,}", flush=True)  # fmt: skip
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
