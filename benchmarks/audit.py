"""How well does the probe find wrong characters in the transcripts of real speech?

    python benchmarks/audit.py --data IBAN --out DIR

IBAN: a folder with a manifest.jsonl (splits train, dev, test). 2% of the characters of every split are corrupted
(substituted, inserted, deleted); nothing is trained or selected on clean text. Three models for each criterion, `all`
on the whole training set and `a`, `b` on random halves of it, give three settings:

  test   held-out speakers: the test set, by the model `all`
  self   the training transcripts, by the model that was trained on them
  cross  the training transcripts, each half by the model of the other

Scores compared: the probe (bypass probability of a character; self-loop count of a gap); the difference to the greedy
transcript; a forced alignment (plain CTC: minus the mean log-probability over the frames of the character; of a gap,
the worse of its neighbours); random. Substituted and inserted characters are found among all characters, deleted ones
among all gaps. Real errors of the corpus count as correct text, which costs every score some precision.

Every stage is skipped where it is done. `--stage` runs some stages only, `--runs` trains some models only, so that
training can be spread: then give the same command without them. Results: DIR/audit.{txt,md,json,svg}.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_report import SETTINGS, Case, write_report

from wildctc import wildcard_align
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.preparation import Rejects
from wildctc.corruption.detection import ScoredUnits
from wildctc.corruption.known_errors import kinds_of, with_truth
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.json_lines import read_lines, read_rows
from wildctc.probe.records import ProbedUtterance, read_probe
from wildctc.recognizer.batch import logits_batches
from wildctc.recognizer.model import Recognizer
from wildctc.scoring.error_rates import score
from wildctc.scoring.hypotheses import Decoded

STAGES = ("prepare", "train", "probe", "report")
PARTS = {"all": "train", "a": "train-a", "b": "train-b"}  # model → what it is trained on


def main() -> None:
    options = parse()
    out = make_folder(Path(options.out))
    if "prepare" in options.stage:
        prepare(options, out)
    if "train" in options.stage:
        for run in options.runs or [f"{c}-{part}" for part in PARTS for c in options.criteria]:
            train(options, out, run)
    if "probe" in options.stage:
        for criterion in options.criteria:
            for model, name in [pair for pairs in SETTINGS.values() for pair in pairs]:
                probe(options, out, f"{criterion}-{model}", name)
    if "report" in options.stage:
        report(options, out)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the corpus: a folder with manifest.jsonl")
    parser.add_argument("--out", required=True, help="where everything goes")
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=STAGES, help="default: all of them")
    parser.add_argument("--runs", nargs="+", metavar="CRITERION-PART", help="train these only, such as ctc-all otc-t-b")
    parser.add_argument("--criteria", nargs="+", default=["ctc", "otc-t"], help="default: ctc otc-t")
    parser.add_argument("--recipe", default="iban", help="default: iban")
    parser.add_argument("--epochs", type=int, default=8, help="default 8")
    parser.add_argument("--epoch-scale", type=float, help="of epoch schedules; default 30 / epochs")
    parser.add_argument("--hours", type=float, help="use so much of the training set only")
    parser.add_argument("--rate", type=float, default=0.02, help="share of characters corrupted (default 0.02)")
    parser.add_argument("--cache", help="folder of features (default: DIR/features)")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap (default 1000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.epoch_scale = options.epoch_scale or 30 / options.epochs
    return options


def wildctc(*words: object) -> None:
    """Run a command of WildCTC; its own messages say what is wrong."""
    line = [sys.executable, "-m", "wildctc", *map(str, words)]
    print("+ wildctc", *line[3:], flush=True)
    if subprocess.run(line).returncode:
        raise SystemExit("stopped: see the message above")


def prepare(options: argparse.Namespace, out: Path) -> None:
    """Clean manifests → corrupted ones, and the halves of the training set."""
    clean, data = out / "clean", make_folder(out / "data")
    if not (clean / "test.jsonl.gz").exists():
        wildctc("prepare", "jsonl", options.data, clean)
    for i, split in enumerate(("train", "dev", "test")):
        if not (data / f"{split}.jsonl").exists():
            wildctc(
                "corrupt", clean / f"{split}.jsonl.gz", "-o", data / f"{split}.jsonl",
                "--characters", options.rate, "--seed", options.seed + i,
            )  # fmt: skip
            if split == "train" and options.hours:
                shorten(data / "train.jsonl", options.hours, options.seed)
    if not (data / "train-b.jsonl").exists():
        lines = lines_of(data / "train.jsonl")
        in_a = np.random.default_rng(options.seed).permutation(len(lines)) < len(lines) // 2
        for name, chosen in (("train-a", in_a), ("train-b", ~in_a)):
            write_text(data / f"{name}.jsonl", "".join(np.array(lines, dtype=object)[chosen]))


def lines_of(path: Path) -> list[str]:
    return [f"{line}\n" for _, line in read_lines(path)]


def shorten(path: Path, hours: float, seed: int) -> None:
    """Keep random utterances of a manifest, up to so many hours, in its order."""
    lines = lines_of(path)
    order = np.random.default_rng(seed).permutation(len(lines))
    seconds = np.cumsum([json.loads(lines[i])["duration"] for i in order])
    write_text(path, "".join(lines[i] for i in sorted(order[seconds <= 3600 * hours])))


def train(options: argparse.Namespace, out: Path, run: str) -> None:
    criterion, _, part = run.rpartition("-")
    if part not in PARTS:
        raise SystemExit(f"no run {run!r}: a criterion and one of {', '.join(PARTS)}, such as ctc-all")
    if (out / "runs" / run / "model" / "model.safetensors").exists():
        return
    by_epoch = criterion != "ctc" and not criterion.endswith("-h")
    wildctc(
        "train", options.recipe, "--out", out / "runs" / run, "--criterion", criterion,
        "--training.epochs", options.epochs, "--data.dir", out / "data", "--data.train", f"{PARTS[part]}.jsonl",
        "--data.dev", "dev.jsonl", "--data.cache", options.cache or out / "features", "--seed", options.seed,
        "--training.select_by", "ctc_loss",  # as results/iban-audit
        *(("--schedule.epoch_scale", options.epoch_scale) if by_epoch else ()),
    )  # fmt: skip


def probe(options: argparse.Namespace, out: Path, run: str, name: str) -> None:
    """The probe of a manifest by a run's model, and beside it the scores of a forced alignment."""
    output = out / "probe" / f"{run}-{name}.jsonl"
    manifest, cache = out / "data" / f"{name}.jsonl", options.cache or out / "features"
    if not output.exists():
        wildctc("probe", out / "runs" / run, manifest, "-o", output, "--cache", cache, "--workers", 0)
    forced = output.with_suffix(".forced.jsonl")
    if not forced.exists():
        model = Recognizer.load(out / "runs" / run)
        rows = [{"id": name, "scores": scores} for name, scores in forced_alignment(model, manifest, cache)]
        write_text(forced, "".join(json.dumps(row) + "\n" for row in rows))


def forced_alignment(model: Recognizer, manifest: Path, cache: str | Path) -> Iterator[tuple[str, list[float]]]:
    """For each utterance that plain CTC can align: minus the mean log-probability of each character's frames."""
    batches = logits_batches(model, load_manifest(manifest), Rejects(1.0), cache=cache, workers=0, title="aligning")
    for utterance, logits in chain.from_iterable(batches):
        labels = model.units.encode(utterance.text)
        [path] = wildcard_align(logits, torch.tensor(labels), [len(logits)], [len(labels)])
        log_p = logits.log_softmax(1)
        if len(path.tokens) == len(labels):
            yield utterance.id, [-float(log_p[s.start : s.end, s.label].mean()) for s in path.tokens]


def load_case(options: argparse.Namespace, out: Path, criterion: str, setting: str) -> Case:
    rng = np.random.default_rng(options.seed)
    characters, gaps, kinds, room, decoded = [], [], [], [], []
    for model, name in SETTINGS[setting]:
        path = out / "probe" / f"{criterion}-{model}-{name}.jsonl"
        forced = {row["id"]: row["scores"] for _, row in read_rows(path.with_suffix(".forced.jsonl"))}
        frame_rate = read_probe(path)[0]["frame_rate"]
        for utterance, row in with_truth(path, out / "data" / f"{name}.jsonl"):
            decoded.append(Decoded(utterance.id, utterance.heard, (row["truth"],), 0.0))
            if utterance.id in forced:
                characters.append(character_scores(utterance, row["edits"], forced[utterance.id], rng))
                gaps.append(gap_scores(utterance, row["edits"], forced[utterance.id], rng))
                kinds += kinds_of(utterance, row["edits"])
                room.append(utterance.duration * frame_rate / max(1, len(utterance.tokens)))
    cer = score(decoded).cer
    units = ScoredUnits.join(characters), ScoredUnits.join(gaps)
    return Case(criterion, setting, cer, len(characters), *units, np.array(kinds), np.array(room))


Scored = tuple[list[bool], dict[str, Any]]


def character_scores(
    utterance: ProbedUtterance, edits: list[dict[str, Any]], forced: list[float], rng: np.random.Generator
) -> Scored:
    tokens = utterance.tokens
    return [kind != "" for kind in kinds_of(utterance, edits)], {
        "probe": [t.bypass for t in tokens],
        "greedy": [float(t.heard != t.text) for t in tokens],
        "forced": forced,
        "random": rng.random(len(tokens)),
    }


def gap_scores(
    utterance: ProbedUtterance, edits: list[dict[str, Any]], forced: list[float], rng: np.random.Generator
) -> Scored:
    wrong = [False] * len(utterance.gaps)
    for edit in edits:
        if edit["kind"] == "deletion":
            wrong[edit["begin"]] = True
    return wrong, {
        "probe": utterance.gaps,
        "greedy": [float(heard != "") for heard in utterance.between],
        "forced": np.maximum([-np.inf, *forced], [*forced, -np.inf]),
        "random": rng.random(len(wrong)),
    }


def report(options: argparse.Namespace, out: Path) -> None:
    cases = [load_case(options, out, criterion, setting) for setting in SETTINGS for criterion in options.criteria]
    names = ("recipe", "epochs", "epoch_scale", "hours", "rate", "seed", "resamples")
    write_report(out, cases, {name: getattr(options, name) for name in names})


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"audit: {error}") from None
