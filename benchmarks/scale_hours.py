"""What an hour of speech costs on the way into a run: the constants of the simulation in docs/scale.md.

    python benchmarks/scale_hours.py MANIFEST [--hours 0.5] [--folder DIR]

Takes the first utterances of a manifest and packs them with and without FLAC, computes filterbank features of 80 bins,
reads an epoch of them as training does, and probes them with a model that is not trained (the encoder of the recipe
`small` on these features). Each is one process with one thread. Seconds are of the processor, less those of a call that
finds its work done, and all numbers are for one hour of
speech. The last lines are of a manifest of a million rows, and of a list of 36,000 shards.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.packing import Packing, _write_jobs
from wildctc.corpora.rewriting import plain_row
from wildctc.corpora.shards import FORMAT, LIST, Shard, open_shards
from wildctc.distributed import ALONE
from wildctc.json_lines import row_line
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits
from wildctc.training.config import load_recipe
from wildctc.training.loop import Trainer
from wildctc.training.steps import Position

RECIPE = """
data: {{dir: {folder}, train: packed, dev: dev.jsonl, batch_seconds: 120, workers: 0, cache: {folder}/features}}
features: {{name: fbank, num_bins: 80}}
encoder: {{kind: conformer, d_model: 128, heads: 4, blocks: 3, ff_dim: 512, kernel: 15, subsampling: 4}}
training: {{epochs: 1}}
"""


def spent(words: list[str], folder: Path) -> float:
    """Seconds of the processor of a command and its processes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wildctc", *words],
        cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"wildctc {' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime


def megabytes(folder: Path, pattern: str) -> float:
    return sum(path.stat().st_size for path in folder.rglob(pattern)) / 1e6


def choose(manifest: str, hours: float, folder: Path) -> float:
    """Write the first utterances of a manifest, and a few as dev; returns their hours."""
    taken, seconds = [], 0.0
    for utterance in load_manifest(manifest):
        if seconds >= 3600 * hours:
            break
        taken.append(row_line(plain_row(utterance)))
        seconds += utterance.duration
    (folder / "train.jsonl").write_text("".join(taken))
    (folder / "dev.jsonl").write_text("".join(taken[:5]))
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
    return seconds / 3600


def reading(folder: Path, hours: float) -> float:
    """Seconds of the processor in which an epoch of batches is read, for an hour of speech."""
    trainer = Trainer(load_recipe(str(folder / "recipe.yaml")), folder / "run", ALONE)
    began = time.process_time()
    for step in trainer.steps.epoch(Position(1, 0, None), trainer.stats, trainer.parts):
        for _ in step.batches:
            pass
    return (time.process_time() - began) / hours


def memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def dividing(folder: Path, count: int = 100_000) -> float:
    """Seconds in which one process divides a manifest, for a million rows."""
    (folder / "rows").mkdir(parents=True)
    row = {"audio": "a.flac", "text": "selamat pagi apa kabar", "duration": 10.0, "speaker": "ann", "split": "train"}
    with open(folder / "m.jsonl", "w") as file:
        file.writelines(row_line({"id": f"utt{i:07d}"} | row) for i in range(count))
    began = time.process_time()
    _write_jobs(folder / "m.jsonl", folder / "rows", Packing(), None, None)
    return (time.process_time() - began) * 1e6 / count


def opening(folder: Path) -> tuple[float, float]:
    """Seconds and megabytes of opening a list of 36,000 shards."""
    shards = [vars(Shard(f"{n:06d}", 1000, 1e4, f"{n:064x}", "abcdefghijklmnopqrstuvwxyz' ")) for n in range(36_000)]
    folder.mkdir()
    (folder / LIST).write_text(json.dumps({"format": FORMAT, "source": None, "shards": shards}))
    before, began = memory(), time.process_time()
    found = open_shards(folder)
    assert len(found) == 36_000
    return time.process_time() - began, memory() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest")
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="hours-", dir=options.folder))
    try:
        hours = choose(options.manifest, options.hours, folder)
        print(f"{hours:.2f} h of speech; for one hour:")

        def line(title: str, words: list[str], size: Callable[[], float] | None = None) -> None:
            first, again = spent(words, folder), spent(words, folder)
            room = f"{size() / hours:8.1f} MB" if size else ""
            print(f"{title:44}{(first - again) / hours:8.1f} s{room}", flush=True)

        size = ["--size", "100", "--workers", "0"]
        line("pack", ["pack", "train.jsonl", "packed", *size], lambda: megabytes(folder / "packed", "*.tar"))
        line(
            "pack --flac", ["pack", "train.jsonl", "flac", *size, "--flac"], lambda: megabytes(folder / "flac", "*.tar")
        )
        print(f"{'tables of the shards':44}{'':10}{megabytes(folder / 'packed', '*.arrow') / hours:8.1f} MB")
        features = ["features", "recipe.yaml"]
        line("features, 80 bins, one speed", features, lambda: megabytes(folder / "features", "*.safetensors"))
        print(f"{'reading an epoch of batches':44}{reading(folder, hours):8.1f} s", flush=True)
        config = load_recipe(str(folder / "recipe.yaml"))
        texts = [utterance.text for utterance in load_manifest(folder / "train.jsonl")]
        units = CharUnits.train(texts, Normalizer())
        torch.manual_seed(0)
        Recognizer(vars(config.features), vars(config.encoder), units).save(folder / "model")
        probe = ["probe", "model", "packed", "-o", "probe.jsonl", "--workers", "0", "--max-bad", "1"]
        line("probe, encoder of `small`", probe, lambda: megabytes(folder, "probe.jsonl"))
        line("clean", ["clean", "probe.jsonl", "-o", "clean", "--workers", "0", "--drop", "none"])
        print(f"\ndividing a manifest, a million rows: {dividing(folder / 'rows'):.1f} s")
        print("opening a list of 36,000 shards: {:.2f} s, {:.0f} MB".format(*opening(folder / "many")))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
