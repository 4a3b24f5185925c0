"""What commands cost that read N transcripts, hypotheses or findings: score, compare, disagree, audit, clean.

    python benchmarks/scale_commands.py [--score 1000000] [--probe 100000] [--folder DIR]

Each is the real command, in a process of its own. Utterances have ten words; of two systems the first has every tenth
word wrong, the second every eighth. `disagree` reads three annotators for a third of the utterances each.
`audit` and `clean` read a probe without sound, with half a word in ten wrong; `clean` also reads it shard by shard.
Seconds are of the processor (user and system), with imports; memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from scale import SECONDS, make_shards, text
from support.probes import SETTINGS, probed

from wildctc.json_lines import row_line
from wildctc.probe.doubt import score_words
from wildctc.probe.records import FORMAT, as_row


def wrong(words: str, number: int, every: int) -> str:
    """The words with one of `every` misheard, spread over the utterances."""
    found = words.split()
    return " ".join("salah" if (number * len(found) + i) % every == 0 else word for i, word in enumerate(found))


def make_hypotheses(folder: Path, count: int) -> None:
    for name, every in (("a", 10), ("b", 8)):
        with open(folder / f"{name}.jsonl", "w") as file:
            for i in range(count):
                row = {"id": f"utt{i:07d}", "text": wrong(text(i), i, every), "reference": text(i)}
                file.write(json.dumps(row | {"speaker": f"s{i % 999}"}) + "\n")
    with open(folder / "reference.jsonl", "w") as reference, open(folder / "crowd.tsv", "w") as crowd:
        for i in range(count // 3):
            reference.write(json.dumps({"id": f"utt{i:07d}", "audio": "a.flac", "text": text(i), "duration": 4}) + "\n")
            for name, every in (("ann", 9), ("ben", 10), ("cleo", 11)):
                crowd.write(f"utt{i:07d}\t{wrong(text(i), i, every)}\t{name}\n")


def make_probe(folder: Path, count: int) -> None:
    """Shards, a manifest of the same utterances, and a probe of both."""
    make_shards(folder, count)
    for name in ("shards", "train.jsonl"):
        with open(folder / f"{name}.probe", "w") as file:
            file.write(row_line({"probe": {"format": FORMAT, **SETTINGS, "manifest": str(folder / name)}}))
            for i in range(count):
                words = text(i % 1000)
                changed = {i % 10: "salah"} if i % 2 else {}
                file.write(row_line(as_row(probed(f"utt{i:07d}", words, changed, audio=str(folder / "a.flac")))))
        score_words(folder / f"{name}.probe")
    with open(folder / "train.jsonl", "w") as file:
        for i in range(count):
            row = {"id": f"utt{i:07d}", "audio": "a.flac", "text": text(i % 1000), "duration": SECONDS}
            file.write(json.dumps(row | {"split": "train"}) + "\n")


def measure(title: str, count: int, words: list[str], folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "wildctc", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _, status, spent = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{title}: {words} failed")
    print(f"{title:44}{count:12,}{spent.ru_utime + spent.ru_stime:10.1f}{spent.ru_maxrss / 1024:10,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--score", type=int, default=1_000_000)
    parser.add_argument("--probe", type=int, default=100_000)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    print(f"{'':44}{'utterances':>12}{'CPU s':>10}{'MB':>10}")
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=options.folder))
    try:
        if count := options.score:
            make_hypotheses(folder, count)
            measure("score, with intervals", count, ["score", "a.jsonl"], folder)
            measure("compare, with 10,000 draws", count, ["compare", "a.jsonl", "b.jsonl"], folder)
            some = ["disagree", "--reference", "reference.jsonl", "--validators", "crowd.tsv"]
            measure("disagree, three annotators", count // 3, some, folder)
        if count := options.probe:
            make_probe(folder, count)
            measure("audit, without sound", count, ["audit", "shards.probe", "-o", "report"], folder)
            shutil.rmtree(folder / "report")
            measure("clean a manifest", count, ["clean", "train.jsonl.probe", "-o", "clean.jsonl"], folder)
            measure("clean shards", count, ["clean", "shards.probe", "-o", "clean", "--workers", "0"], folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
