"""Is a model as good if it is trained on segments of a long recording, in place of the utterances it was made of?

    python benchmarks/long_training.py MODEL SPEECH DATA --out DIR

SPEECH has a `manifest.jsonl` and its audio (Harper Valley). DATA is what `wildctc prepare` made of a part of it, with
which MODEL was trained. An hour of other utterances of its train speakers is joined to a recording, and its text is
disturbed (long_recordings.py); `wildctc segment` cuts it with MODEL. The recipe is trained on

  original  the utterances of that hour, with their own text
  segments  what `segment` made of the recording and its disturbed text

and each model decodes the test set of DATA. What is done is not done again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from long_recordings import is_loud, make_recording

from wildctc.audio.recordings import read_whole
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.subset import Subset
from wildctc.files import make_folder, write_text
from wildctc.json_lines import read_rows
from wildctc.longform.recording import align_recording
from wildctc.longform.segments import Cutting, Pair, cut
from wildctc.recognizer.model import Recognizer

CASES = ("original", "undisturbed", "segments", "bridged")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("speech")
    parser.add_argument("data")
    parser.add_argument("--out", required=True)
    parser.add_argument("--hours", type=float, default=1.0, help="of speech (default 1)")
    parser.add_argument("--recipe", default="harper-valley")
    parser.add_argument("--epochs", type=int, default=14, help="default 14")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--equal-steps", action="store_true", help="more epochs where there is less speech")
    parser.add_argument("--count", action="store_true", help="train nothing")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="these only")
    options = parser.parse_args()
    out = make_folder(Path(options.out))
    for case in options.cases:
        if not (out / "data" / case / "train.jsonl").exists():
            make_case(options, out, case)
        print(count(out, case))
        if not options.count:
            train(options, out, case)


def wildctc(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "wildctc", *map(str, words)], check=True)


def make_case(options: argparse.Namespace, out: Path, case: str) -> None:
    taken = {u.id for u in load_manifest(str(Path(options.data) / "train.jsonl.gz"), None, None)}
    rows = load_manifest(str(Path(options.speech) / "manifest.jsonl"), "train", None)
    rows = [u for u in rows if u.id not in taken]
    hour = [u for u in Subset(hours=options.hours).of(rows) if is_loud(read_whole(u.audio, 8000))]
    hour.sort(key=lambda u: (u.speaker or "", u.id))
    if case == "original":
        original = [{"id": u.id, "audio": str(u.audio.resolve()), "text": u.text, "duration": u.duration} for u in hour]
        return write_data(options, out, case, original)
    joined = out / ("undisturbed" if case == "undisturbed" else "joined")
    if not (joined / "truth.json").exists():
        make_recording(hour, rows, joined, options.seed, disturbed=case != "undisturbed")
    pair = Pair("recording", joined / "recording.wav", joined / "text.txt")
    found = align_recording(Recognizer.load(options.model), pair.audio, pair.text).alignment
    for name in ("undisturbed",) if case == "undisturbed" else ("segments", "bridged"):
        segments, report = cut(found, pair, Cutting(bridge=2 if name == "bridged" else 0))
        print(name, report)
        write_data(options, out, name, [row | {"text": row["text"].replace(".", "")} for row in segments])


def seconds(out: Path, case: str) -> float:
    return sum(row["duration"] for _, row in read_rows(out / "data" / case / "train.jsonl"))


def count(out: Path, case: str) -> str:
    rows = [row for _, row in read_rows(out / "data" / case / "train.jsonl")]
    words = sum(len(row["text"].split()) for row in rows)
    return f"{case}: {len(rows):,} utterances, {seconds(out, case) / 60:.1f} minutes, {words:,} words"


def write_data(options: argparse.Namespace, out: Path, case: str, rows: list[dict[str, Any]]) -> None:
    folder = make_folder(out / "data" / case)
    for name, every in (("dev", 4), ("test", 1)):  # a quarter of dev is enough to choose epochs
        lines = gzip.decompress((Path(options.data) / f"{name}.jsonl.gz").read_bytes()).decode().splitlines()
        write_text(folder / f"{name}.jsonl", "".join(f"{line}\n" for line in lines[::every]))
    write_text(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def train(options: argparse.Namespace, out: Path, case: str) -> None:
    share = seconds(out, "original") / seconds(out, case) if options.equal_steps else 1.0
    epochs = round(options.epochs * share)
    data, run = out / "data" / case, out / "runs" / f"{case}-{epochs}" / f"seed{options.seed}"
    files = ["--data.dir", data, "--data.train", "train.jsonl", "--data.dev", "dev.jsonl"]
    cache = out / "features"
    files += ["--data.cache", cache, "--training.epochs", epochs, "--training.ctc_epochs", 0]
    wildctc("train", options.recipe, *files, "--seed", options.seed, "--out", run)
    if not (run / "hyp" / "test.jsonl").exists():
        wildctc("decode", run, data / "test.jsonl", "--cache", cache, "--beam", 1)
    if case != "original":
        original = out / "runs" / f"original-{options.epochs}" / run.name
        wildctc("compare", *(folder / "hyp" / "test.jsonl" for folder in (original, run)))


if __name__ == "__main__":
    main()
