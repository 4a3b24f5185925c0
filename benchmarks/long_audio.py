"""How well is a long recording aligned with a text that is roughly right? The truth is made, so it is known.

    python benchmarks/long_audio.py MODEL SPEECH --split test --minutes 60

MODEL is a run's folder or a model folder. SPEECH has a `manifest.jsonl` and its audio (Harper Valley, Iban). The
utterances of a speaker are joined with pauses, speaker after speaker; 5% more utterances of other speakers are foreign
matter. Of the text, 5% of the sentences are deleted, 5% that were not read are inserted, two paragraphs are swapped and
5% of the words are changed. Each method runs in a process of its own, on the same logits:

  wildctc           word bypasses and self-loops (`wildctc align-long`)
  forced            plain CTC, no wildcards
  star              a free ★ between sentences, as torchaudio's example has it; plain CTC otherwise
  ctc-segmentation  the package of this name, if it is installed

A sentence was not read if a method says so. The methods without wildcards give a score for each sentence; it gets the
threshold that is best for them on this very recording, which flatters them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wildctc.audio.recordings import Recording, open_recording, read_whole
from wildctc.lattice.align import wildcard_align
from wildctc.longform.alignment import LongAlignment, Prices, align_text
from wildctc.longform.written import as_spoken, parse_text
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.windows import LongLogits, long_logits
from wildctc.terminal import table
from wildctc.training.run_folder import is_unfinished
from wildctc.training.unfinished import load_last

RATE = 16000
LEAST_LOUD = 0.003  # root mean square: of Harper Valley, 2% of the utterances are next to silent, and left out
EDGE = 10**-1.5  # 30 dB below the loudest 20 ms of an utterance: where its speech begins and ends
PARAGRAPH = 6  # sentences
METHODS = ("wildctc", "forced", "star", "ctc-segmentation")


@dataclass
class Spoken:
    """An utterance of the recording: what became of it, and the number of its sentence in the text (−1: none)."""

    kind: str  # kept, swapped, removed, foreign
    start: float
    end: float
    text: str
    sentence: int = -1
    first_changed: bool = False
    last_changed: bool = False


def load(folder: Path, split: str) -> dict[str, list[dict[str, Any]]]:
    speakers: dict[str, list[dict[str, Any]]] = {}
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["split"] == split:
            speakers.setdefault(row["speaker"], []).append(row)
    return speakers


def make(folder: Path, split: str, minutes: float, seed: int, work: Path) -> None:
    """Write WORK/truth.json, and WORK/wave.npy."""
    rng = np.random.default_rng(seed)
    speakers = load(folder, split)
    rows = [row for speaker in sorted(speakers) for row in speakers[speaker]]
    own, other = [], {s: [r for t in speakers if t != s for r in speakers[t]] for s in speakers}
    seconds = 0.0
    for row in rows:
        if loudness(read_whole(folder / row["audio"], RATE)) < LEAST_LOUD:
            continue
        own.append(row)
        seconds += row["duration"] * 1.05 + 0.7
        if seconds > 60 * minutes:
            break
    if seconds < 60 * minutes:
        print(f"the split has {seconds / 60:.1f} minutes only", file=sys.stderr)
    # the recording
    waves, spoken, at = [], [], 0.0

    def add(row: dict[str, Any], kind: str) -> None:
        nonlocal at
        pause = float(rng.uniform(0.2, 1.2))
        wave = read_whole(folder / row["audio"], RATE)
        waves.extend([0.001 * rng.standard_normal(int(pause * RATE)).astype(np.float32), wave])
        at += int(pause * RATE) / RATE
        start, end = edges(wave)
        spoken.append(Spoken(kind, at + start, at + end, row["text"]))
        at += len(wave) / RATE

    for row in own:
        if rng.random() < 0.05:
            strangers = other[row["speaker"]]
            add(strangers[rng.integers(len(strangers))], "foreign")
        add(row, "kept")
    np.save(work / "wave.npy", np.concatenate(waves))
    sentences = disturb(spoken, [r["text"] for s in other.values() for r in s], rng)
    (work / "truth.json").write_text(json.dumps({"spoken": [asdict(s) for s in spoken], "sentences": sentences}))


def loudness(wave: np.ndarray) -> float:
    return float(np.sqrt(np.square(wave).mean()))


def edges(wave: np.ndarray) -> tuple[float, float]:
    """Where the speech of an utterance begins and ends, by its loudness in steps of 20 ms: seconds."""
    step = RATE // 50
    loud = np.sqrt(np.square(wave[: len(wave) // step * step].reshape(-1, step)).mean(1))
    there = np.flatnonzero(loud >= EDGE * loud.max())
    return there[0] / 50, (there[-1] + 1) / 50


def disturb(spoken: list[Spoken], texts: list[str], rng: np.random.Generator) -> list[list[Any]]:
    """The sentences of the text in order: [text, number of its utterance or −1]. Marks what was done in `spoken`."""
    own = [i for i, s in enumerate(spoken) if s.kind == "kept"]
    for i in rng.choice(own, round(0.05 * len(own)), replace=False):
        spoken[i].kind = "removed"
    paragraphs = [own[k : k + PARAGRAPH] for k in range(0, len(own), PARAGRAPH)]
    a = int(rng.integers(len(paragraphs) - 2))
    for i in paragraphs[a] + paragraphs[a + 1]:
        if spoken[i].kind == "kept":
            spoken[i].kind = "swapped"
    paragraphs[a], paragraphs[a + 1] = paragraphs[a + 1], paragraphs[a]
    vocabulary = sorted({word for text in texts for word in text.split()})
    long = [text for text in texts if len(text.split()) >= 3]
    sentences: list[list[Any]] = []
    for i in [i for paragraph in paragraphs for i in paragraph]:
        if rng.random() < 0.05:
            sentences.append([str(rng.choice(long)), -1])
        if spoken[i].kind == "removed":
            continue
        words = spoken[i].text.split()
        changed = rng.random(len(words)) < 0.05
        words = [str(rng.choice(vocabulary)) if c else word for word, c in zip(words, changed, strict=True)]
        spoken[i].first_changed, spoken[i].last_changed = bool(changed[0]), bool(changed[-1])
        spoken[i].sentence = len(sentences)
        sentences.append([" ".join(words), i])
    return sentences


# ------------------------------------------------------------------------------------------------------------- methods

Found = list[tuple[float, float, float]]  # of each sentence: start, end, and how sure it was read


def aligned(model: Recognizer, logits: LongLogits, sentences: list[str], prices: Prices) -> LongAlignment:
    text = parse_text("\n".join(f"{sentence}." for sentence in sentences))
    sound = Recording(RATE, logits.duration, [])
    return align_text(model.units, sound, logits, text, as_spoken(text, model.units), prices=prices)


def by_wildcards(found: LongAlignment, sentences: list[str]) -> tuple[Found, list[tuple[float, float]]]:
    rows: Found = []
    at = 0
    for sentence in sentences:
        words = found.words[at : at + len(sentence.split())]
        at += len(words)
        read = [w for w in words if w.read]
        share = sum(len(w.text) for w in read) / sum(len(w.text) for w in words)
        rows.append((read[0].start, read[-1].end, share) if read else (0.0, 0.0, 0.0))
    return rows, [(d.start, d.end) for d in found.differences if d.heard]


def by_plain_ctc(model: Recognizer, logits: LongLogits, sentences: list[str], star: bool) -> Found:
    """Plain CTC; with `star`, a token between sentences that has the log-probability 0 in each frame."""
    scores, labels, places = logits.logits.log_softmax(1), [], []
    if star:
        scores = torch.cat((scores, torch.zeros(len(scores), 1)), 1)
    for sentence in sentences:
        labels += [scores.shape[1] - 1] if star else model.units.encode(" ") if labels else []
        mine = model.units.encode(sentence)
        places.append((len(labels), len(labels) + len(mine)))
        labels += mine
    labels += [scores.shape[1] - 1] if star else []
    [path] = wildcard_align(scores.unsqueeze(1), torch.tensor([labels]), [len(scores)], [len(labels)])
    found: Found = []
    for begin, stop in places:
        spans = path.tokens[begin:stop]
        first, last = spans[0].start, spans[-1].end
        frames = path.frames[first:last]
        score = scores[torch.arange(first, last), frames].mean()
        found.append((logits.time(first), logits.time(last), float(score)))
    return found


def by_ctc_segmentation(model: Recognizer, logits: LongLogits, sentences: list[str]) -> Found:
    import ctc_segmentation as package

    config = package.CtcSegmentationParameters(index_duration=1 / logits.rate, blank=0, char_list=model.units.tokens)
    tokens = [np.array(model.units.encode(sentence)) for sentence in sentences]
    matrix, begins = package.prepare_token_list(config, tokens)
    timings, probabilities, _ = package.ctc_segmentation(config, logits.logits.log_softmax(1).numpy(), matrix)
    segments = package.determine_utterance_segments(config, begins, probabilities, timings, sentences)
    return [(start + logits.first, end + logits.first, float(score)) for start, end, score in segments]


def draw(model: Recognizer, work: Path, prices: Prices, picture: str, begin: float, seconds: float) -> None:
    """A stretch of the recording: what `align-long` found, and the truth."""
    from matplotlib.figure import Figure

    logits, truth = (load(work, begin + seconds) for load in (load_logits, load_truth))
    sentences = [text for text, _ in truth["sentences"]]
    found = aligned(model, logits, sentences, prices)
    rows, _ = by_wildcards(found, sentences)
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    wave, bars = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    samples = np.load(work / "wave.npy")[int(begin * RATE) : int((begin + seconds) * RATE)]
    step = max(1, len(samples) // 4000)
    wave.plot(begin + np.arange(0, len(samples), step) / RATE, samples[::step], color="0.4", linewidth=0.4)
    wave.set_axis_off()
    for start, end, share in rows:
        if share > 0:
            bars.broken_barh([(start, end - start)], (1.1, 0.8), color="0.75", edgecolor="white")
    for d in found.differences:
        if d.written:
            bars.plot([(d.start + d.end) / 2] * 2, [1.1, 1.9], color="tab:orange", linewidth=2.5)
        if d.heard:
            bars.broken_barh([(d.start, d.end - d.start)], (1.1, 0.8), color="tab:blue", alpha=0.7)
    colours = {"kept": "0.75", "swapped": "0.9", "removed": "tab:blue", "foreign": "tab:blue"}
    for s in truth["spoken"]:
        bars.broken_barh([(s["start"], s["end"] - s["start"])], (0.1, 0.8), color=colours[s["kind"]], edgecolor="white")
    bars.set(xlim=(begin, begin + seconds), ylim=(0, 2), xlabel="seconds", yticks=[0.5, 1.5])
    bars.set_yticklabels(["truth", "found"])
    for side in ("top", "right", "left"):
        bars.spines[side].set_visible(False)
    figure.savefig(picture)


def load_logits(work: Path, seconds: float = np.inf) -> LongLogits:
    stored = np.load(work / "logits.npz")
    rate, first, duration = stored["numbers"].tolist()
    frames = int(min(seconds, duration) * rate)
    return LongLogits(torch.from_numpy(stored["logits"][:frames]), rate, first, min(seconds, duration))


def load_truth(work: Path, seconds: float = np.inf) -> dict[str, Any]:
    """The truth of the first seconds: of the text, all up to the last sentence that was said in them."""
    truth = json.loads((work / "truth.json").read_text())
    truth["spoken"] = [s for s in truth["spoken"] if s["end"] <= seconds]
    count = max(k for k, (_, owner) in enumerate(truth["sentences"]) if 0 <= owner < len(truth["spoken"])) + 1
    truth["sentences"] = [row for row in truth["sentences"][:count] if row[1] < len(truth["spoken"])]
    return truth


def run_method(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """One method, in this process: its sentences, its unwritten speech, seconds and memory."""
    torch.set_num_threads(1)
    model = load_model(options.model)
    logits, truth = (load(work, 60 * options.first) for load in (load_logits, load_truth))
    sentences = [text for text, _ in truth["sentences"]]
    before, began, unwritten = peak(), time.process_time(), None
    if options.method == "wildctc":
        prices = Prices(options.between, options.inside, options.word)
        rows, unwritten = by_wildcards(aligned(model, logits, sentences, prices), sentences)
    elif options.method == "ctc-segmentation":
        rows = by_ctc_segmentation(model, logits, sentences)
    else:
        rows = by_plain_ctc(model, logits, sentences, options.method == "star")
    seconds = time.process_time() - began
    return {"rows": rows, "unwritten": unwritten, "seconds": seconds, "gigabytes": peak() - before}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


# ------------------------------------------------------------------------------------------------------------- measures


def measure(truth: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    spoken = [Spoken(**row) for row in truth["spoken"]]
    owners, rows = [owner for _, owner in truth["sentences"]], found["rows"]
    sure = np.array([row[2] for row in rows])
    inserted = np.array([owner < 0 for owner in owners])
    judged = np.array([owner < 0 or spoken[owner].kind == "kept" for owner in owners])
    threshold = 0.5 if found["unwritten"] is not None else best_threshold(sure[judged], inserted[judged])
    unread = sure < threshold
    result = detection(unread[judged], inserted[judged], "unread")
    # boundaries of utterances with nothing wrong at that end
    distances = []
    for row, owner, missed in zip(rows, owners, unread, strict=True):
        if owner >= 0 and spoken[owner].kind == "kept":
            here = spoken[owner]
            distances += [] if here.first_changed else [np.inf if missed else abs(row[0] - here.start)]
            distances += [] if here.last_changed else [np.inf if missed else abs(row[1] - here.end)]
    for limit in (0.2, 0.5):
        result[f"within {limit}"] = float(np.mean(np.array(distances) <= limit))
    # speech that is not in the text, in steps of 10 ms
    steps = int(100 * max(s.end for s in spoken)) + 200
    marked = np.zeros(steps, bool)
    if found["unwritten"] is not None:
        for start, end in found["unwritten"]:
            marked[int(100 * start) : int(100 * end)] = True
    else:
        marked[:] = True
        for (start, end, _), missed in zip(rows, unread, strict=True):
            if not missed:
                marked[int(100 * start) : int(100 * end)] = False
    # An utterance with a changed word has speech that is not written, too: precision leaves it out.
    right = [s for s in spoken if s.kind in ("removed", "foreign")]
    same = [s for s in spoken if s.kind == "kept" and s.text == truth["sentences"][s.sentence][0]]
    hits = [marked[int(100 * s.start) : int(100 * s.end)].mean() >= 0.5 for s in right]
    inside, outside = (sum(marked[int(100 * s.start) : int(100 * s.end)].sum() for s in some) for some in (right, same))
    total = inside + outside
    return result | {"speech recall": float(np.mean(hits)), "speech precision": float(inside / max(1, total))}


def best_threshold(sure: np.ndarray, inserted: np.ndarray) -> float:
    def f1(threshold: float) -> float:
        hits = (sure < threshold) & inserted
        return 2 * hits.sum() / max(1, (sure < threshold).sum() + inserted.sum())

    return max([-np.inf, *np.sort(sure)], key=f1)


def detection(flagged: np.ndarray, true: np.ndarray, name: str) -> dict[str, float]:
    hits = (flagged & true).sum()
    return {f"{name} recall": hits / max(1, true.sum()), f"{name} precision": hits / max(1, flagged.sum())}


def load_model(folder: str) -> Recognizer:
    path = Path(folder)
    return load_last(path)[0] if is_unfinished(path) else Recognizer.load(path)


def encode(options: argparse.Namespace, work: Path) -> LongLogits:
    wave = np.load(work / "wave.npy")
    began = time.perf_counter()
    logits = long_logits(load_model(options.model), open_recording(wave, RATE))
    seconds = time.perf_counter() - began
    np.savez(work / "logits.npz", logits=logits.logits, numbers=[logits.rate, logits.first, logits.duration])
    print(f"{logits.duration / 60:.1f} minutes, {len(logits.logits):,} frames; encoder {seconds:.0f} s", flush=True)
    return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("speech")
    parser.add_argument("--split", default="test")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=float, default=np.inf, help="align the first minutes of it only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    for field, price in asdict(Prices()).items():
        parser.add_argument(f"--{field}", type=float, default=price, help=f"price (default {price:g})")
    parser.add_argument("--work", help="keep the recording there, and use it again")
    parser.add_argument("--picture", metavar="SVG", help="draw two minutes of it")
    parser.add_argument("--begin", type=float, default=0.0, help="where the picture begins, seconds")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method:
        print(json.dumps(run_method(options, Path(options.work))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(options.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "logits.npz").exists():
            make(Path(options.speech), options.split, options.minutes, options.seed, work)
            encode(options, work)
        compare(options, work)
        if options.picture:
            prices = Prices(options.between, options.inside, options.word)
            draw(load_model(options.model), work, prices, options.picture, options.begin, 120.0)


def compare(options: argparse.Namespace, work: Path) -> None:
    truth, rows = load_truth(work, 60 * options.first), []
    kinds = [s["kind"] for s in truth["spoken"]]
    inserted = sum(owner < 0 for _, owner in truth["sentences"])
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("kept", "swapped", "removed", "foreign"))
    print(f"utterances: {counts}; sentences inserted: {inserted}")
    for method in options.methods:
        words = [sys.executable, __file__, *sys.argv[1:], "--work", str(work), "--method", method]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            print(f"{method}: {reason[0]}")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        m = measure(truth, found)
        shares = ("within 0.2", "within 0.5", "unread recall", "unread precision", "speech recall", "speech precision")
        rows.append([method, *(f"{100 * m[name]:.1f}" for name in shares)])
        rows[-1] += [f"{found['seconds']:.1f}", f"{found['gigabytes']:.2f}"]
    print(table(["method", "≤0.2 s", "≤0.5 s", "not read R", "P", "not written R", "P", "CPU s", "GB"], rows))


if __name__ == "__main__":
    main()
