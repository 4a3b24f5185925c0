"""How well is a long recording aligned with a text that is roughly right? The truth is made, so it is known.

    python benchmarks/long_audio.py MODEL SPEECH --split test --minutes 60

MODEL is a run's folder or a model folder. SPEECH has a `manifest.jsonl` and its audio (Harper Valley, Iban).
long_recordings.py says how recording and text are made. Each method runs in a process of its own, on the same logits:

  wildctc           word bypasses and self-loops (`wildctc align-long`)
  forced            plain CTC, no wildcards
  star              a free ★ between sentences, as torchaudio's example has it; plain CTC otherwise
  ctc-segmentation  the package of this name, if it is installed

A sentence was not read if a method says so. The methods without wildcards give a score for each sentence; it gets the
threshold that is best for them on this very recording, which flatters them. A sentence in which half of the words or
more were changed is not judged: of "yes", written "harper", nothing was read.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from long_methods import METHODS, Found, aligned, by_wildcards, find
from long_recordings import Truth, make_recording, read_truth

from wildctc.audio.recordings import open_recording, read_whole
from wildctc.corpora.manifest import load_manifest
from wildctc.longform.alignment import Prices
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.windows import LongLogits, long_logits
from wildctc.terminal import table
from wildctc.training.run_folder import is_unfinished
from wildctc.training.unfinished import load_last

COLUMNS = ["method", "≤0.2 s", "≤0.5 s", "not read R", "P", "not written R", "P", "swapped in place", "CPU s", "GB"]


def main() -> None:
    options = parse()
    if options.method:
        print(json.dumps(run_method(options)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(options.work or temporary)
        found: dict[str, list[Measured]] = {method: [] for method in options.methods}
        for seed in options.seeds:
            folder = work / f"seed{seed}"
            if not (folder / "logits.npz").exists():
                make(options, folder, seed)
            compare(options, folder, found)
        rows = [[method, *row(some)] for method, some in found.items() if some]
        print(table(COLUMNS, rows))
        if options.picture:
            draw(options, work / f"seed{options.seeds[0]}", 120.0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("speech")
    parser.add_argument("--split", default="test")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="a recording for each; results are pooled")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    for field, price in asdict(Prices()).items():
        parser.add_argument(f"--{field}", type=float, default=price, help=f"price (default {price:g})")
    parser.add_argument("--work", help="keep the recordings and their logits there, and use them again")
    parser.add_argument("--picture", metavar="SVG", help="draw two minutes of the first one")
    parser.add_argument("--begin", type=float, default=0.0, help="where the picture begins, seconds")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    return parser.parse_args()


def make(options: argparse.Namespace, folder: Path, seed: int) -> None:
    """Write the recording, its text and the truth, and the logits."""
    utterances = load_manifest(str(Path(options.speech) / "manifest.jsonl"), options.split, None)
    utterances.sort(key=lambda u: u.speaker or "")
    rows, seconds = [], 0.0
    for row in utterances:
        rows.append(row)
        seconds += row.duration * 1.05 + 0.7
        if seconds > 60 * options.minutes:
            break
    make_recording(rows, utterances, folder, seed)
    began = time.process_time()
    logits = long_logits(load_model(options.model), open_recording(folder / "recording.wav"))
    seconds = time.process_time() - began
    np.savez(folder / "logits.npz", logits=logits.logits, numbers=[logits.rate, logits.first, logits.duration])
    shown = f"{logits.duration / 60:.1f} minutes, {len(logits.logits):,} frames"
    print(f"{folder.name}: {shown}; encoder {seconds:.0f} s of processor time", flush=True)


def load_model(folder: str) -> Recognizer:
    path = Path(folder)
    return load_last(path)[0] if is_unfinished(path) else Recognizer.load(path)


def load_logits(folder: Path) -> LongLogits:
    stored = np.load(folder / "logits.npz")
    return LongLogits(torch.from_numpy(stored["logits"]), *stored["numbers"].tolist())


def run_method(options: argparse.Namespace) -> dict[str, Any]:
    """One method, in this process: what it found, its seconds, and the most memory of the process, model included."""
    torch.set_num_threads(1)
    folder = Path(options.work)
    model, logits, truth = load_model(options.model), load_logits(folder), read_truth(folder)
    prices = Prices(options.between, options.inside, options.word)
    began = time.process_time()
    found = find(options.method, model, logits, [text for text, _ in truth.sentences], prices)
    seconds = time.process_time() - began
    return {
        "found": found, "seconds": seconds, "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    }  # fmt: skip


def compare(options: argparse.Namespace, folder: Path, found: dict[str, list[Measured]]) -> None:
    truth = read_truth(folder)
    kinds = Counter(s.kind for s in truth.spoken)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("kept", "swapped", "removed", "foreign"))
    inserted = sum(owner < 0 for _, owner in truth.sentences)
    print(f"{folder.name}: utterances: {counts}; sentences inserted: {inserted}", flush=True)
    for method in options.methods:
        words = [sys.executable, __file__, *sys.argv[1:], "--work", str(folder), "--method", method]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            print(f"{method}: {reason[0]}")
            continue
        result = json.loads(done.stdout.splitlines()[-1])
        found[method].append(Measured(truth, Found(*result["found"]), result["seconds"], result["gigabytes"]))


# ------------------------------------------------------------------------------------------------------------- measures


class Measured:
    """What a method got right on one recording, as lists and counts that can be pooled."""

    def __init__(self, truth: Truth, found: Found, seconds: float, gigabytes: float) -> None:
        self.seconds, self.gigabytes = seconds, gigabytes
        owners = [owner for _, owner in truth.sentences]
        kinds = [truth.spoken[owner].kind if owner >= 0 else "inserted" for owner in owners]
        sure = np.array([sentence[2] for sentence in found.sentences])
        inserted = np.array([kind == "inserted" for kind in kinds])
        judged = np.array(
            [kind == "inserted" or (kind == "kept" and mostly_said(truth, k)) for k, kind in enumerate(kinds)]
        )
        says_so = found.unwritten is not None
        self.unread = sure < (0.5 if says_so else best_threshold(sure[judged], inserted[judged]))
        self.hits, self.inserted = int((self.unread & inserted).sum()), int(inserted.sum())
        self.flagged = int((self.unread & judged).sum())
        self._boundaries(truth, found, owners)
        self._unwritten(truth, found)

    def _boundaries(self, truth: Truth, found: Found, owners: list[int]) -> None:
        """Distances of utterances with nothing wrong at that end; and what became of the swapped ones."""
        self.distances: list[float] = []
        self.swapped: list[str] = []
        for (start, end, _), owner, missed in zip(found.sentences, owners, self.unread, strict=True):
            here = truth.spoken[owner]
            both = [np.inf if missed else abs(start - here.start), np.inf if missed else abs(end - here.end)]
            if owner >= 0 and here.kind == "kept":
                self.distances += [] if here.first_changed else both[:1]
                self.distances += [] if here.last_changed else both[1:]
            if owner >= 0 and here.kind == "swapped":
                self.swapped.append("unread" if missed else "in place" if max(both) <= 0.5 else "elsewhere")

    def _unwritten(self, truth: Truth, found: Found) -> None:
        """Speech that is not in the text, in steps of 10 ms. A changed word is some, too: precision leaves it out."""
        marked = np.full(int(100 * max(s.end for s in truth.spoken)) + 200, found.unwritten is None)
        if found.unwritten is not None:
            for start, end in found.unwritten:
                marked[int(100 * start) : int(100 * end)] = True
        else:
            for (start, end, _), missed in zip(found.sentences, self.unread, strict=True):
                if not missed:
                    marked[int(100 * start) : int(100 * end)] = False
        right = [s for s in truth.spoken if s.kind in ("removed", "foreign")]
        same = [s for s in truth.spoken if s.kind == "kept" and s.text == truth.sentences[s.sentence][0]]
        self.speech = [bool(marked[int(100 * s.start) : int(100 * s.end)].mean() >= 0.5) for s in right]
        self.inside, self.outside = (
            int(sum(marked[int(100 * s.start) : int(100 * s.end)].sum() for s in some)) for some in (right, same)
        )


def mostly_said(truth: Truth, number: int) -> bool:
    """Whether more than half of a sentence's words are what its utterance says."""
    written, owner = truth.sentences[number]
    pairs = list(zip(written.split(), truth.spoken[owner].text.split(), strict=True))
    return 2 * sum(a == b for a, b in pairs) > len(pairs)


def best_threshold(sure: np.ndarray, inserted: np.ndarray) -> float:
    def f1(threshold: float) -> float:
        hits = (sure < threshold) & inserted
        return 2 * hits.sum() / max(1, (sure < threshold).sum() + inserted.sum())

    return max([-np.inf, *np.sort(sure)], key=f1)


def row(found: list[Measured]) -> list[str]:
    """The cells of a method: pooled over recordings; the most seconds and gigabytes of one."""
    distances = np.array([d for some in found for d in some.distances])
    hits, inserted, flagged, inside, outside = (
        sum(getattr(some, name) for some in found) for name in ("hits", "inserted", "flagged", "inside", "outside")
    )
    speech = [hit for some in found for hit in some.speech]
    shares = [float(np.mean(distances <= limit)) for limit in (0.2, 0.5)]
    shares += [
        hits / max(1, inserted),
        hits / max(1, flagged),
        float(np.mean(speech)),
        inside / max(1, inside + outside),
    ]
    swapped = Counter(where for some in found for where in some.swapped)
    places = " ".join(f"{swapped[where]}" for where in ("in place", "unread", "elsewhere"))
    most = [
        f"{max(getattr(some, name) for some in found):.{digits}f}"
        for name, digits in (("seconds", 1), ("gigabytes", 2))
    ]
    return [*(f"{100 * share:.1f}" for share in shares), places, *most]


def draw(options: argparse.Namespace, folder: Path, seconds: float) -> None:
    """A stretch of the recording: what `align-long` found, and the truth."""
    from matplotlib.figure import Figure

    truth, begin = read_truth(folder), options.begin
    sentences = [text for text, _ in truth.sentences]
    prices = Prices(options.between, options.inside, options.word)
    found = aligned(load_model(options.model), load_logits(folder), sentences, prices)
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    top, bars = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    wave = read_whole(folder / "recording.wav", 8000)[int(begin * 8000) : int((begin + seconds) * 8000)]
    step = max(1, len(wave) // 4000)
    top.plot(begin + np.arange(0, len(wave), step) / 8000, wave[::step], color="0.4", linewidth=0.4)
    top.set_axis_off()
    for start, end, share in by_wildcards(found, sentences).sentences:
        if share > 0:
            bars.broken_barh([(start, end - start)], (1.1, 0.8), color="0.75", edgecolor="white")
    for d in found.differences:
        if d.written:
            bars.plot([(d.start + d.end) / 2] * 2, [1.1, 1.9], color="tab:orange", linewidth=2.5)
        if d.heard:
            bars.broken_barh([(d.start, d.end - d.start)], (1.1, 0.8), color="tab:blue", alpha=0.7)
    colours = {"kept": "0.75", "swapped": "0.9", "removed": "tab:blue", "foreign": "tab:blue"}
    for s in truth.spoken:
        bars.broken_barh([(s.start, s.end - s.start)], (0.1, 0.8), color=colours[s.kind], edgecolor="white")
    bars.set(xlim=(begin, begin + seconds), ylim=(0, 2), xlabel="seconds", yticks=[0.5, 1.5])
    bars.set_yticklabels(["truth", "found"])
    for side in ("top", "right", "left"):
        bars.spines[side].set_visible(False)
    figure.savefig(options.picture)


if __name__ == "__main__":
    main()
