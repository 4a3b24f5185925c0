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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from wildctc import wildcard_align
from wildctc.audit.evaluation import FLAGGED, Found, Interval, Units, evaluate, roc
from wildctc.audit.probe import ProbedUtterance, read_probe
from wildctc.corpora import Rejects, load_manifest
from wildctc.corpora.manifest import read_rows
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.inference import utterance_logits
from wildctc.recognizer import Recognizer
from wildctc.scoring import Decoded, score

STAGES = ("prepare", "train", "probe", "report")
PARTS = {"all": "train", "a": "train-a", "b": "train-b"}  # model → what it is trained on
SETTINGS = {  # setting → (model, what it probes)
    "test": [("all", "test")],
    "self": [("all", "train")],
    "cross": [("a", "train-b"), ("b", "train-a")],
}
TITLES = {"test": "held-out speakers", "self": "training set, its own model", "cross": "training set, cross-trained"}
SCORES = ("probe", "greedy", "forced", "random")


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
    return parser.parse_args()


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
        lines = (data / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        in_a = np.random.default_rng(options.seed).permutation(len(lines)) < len(lines) // 2
        for name, chosen in (("train-a", in_a), ("train-b", ~in_a)):
            write_text(data / f"{name}.jsonl", "".join(np.array(lines, dtype=object)[chosen]))


def shorten(path: Path, hours: float, seed: int) -> None:
    """Keep random utterances of a manifest, up to so many hours, in its order."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    order = np.random.default_rng(seed).permutation(len(lines))
    seconds = np.cumsum([json.loads(lines[i])["duration"] for i in order])
    write_text(path, "".join(lines[i] for i in sorted(order[seconds <= 3600 * hours])))


def train(options: argparse.Namespace, out: Path, run: str) -> None:
    criterion, _, part = run.rpartition("-")
    if part not in PARTS:
        raise SystemExit(f"no run {run!r}: a criterion and one of {', '.join(PARTS)}, such as ctc-all")
    if (out / "runs" / run / "model" / "model.safetensors").exists():
        return
    scale = options.epoch_scale or 30 / options.epochs
    wildctc(
        "train", options.recipe, "--out", out / "runs" / run, "--criterion", criterion,
        "--training.epochs", options.epochs, "--data.dir", out / "data", "--data.train", f"{PARTS[part]}.jsonl",
        "--data.dev", "dev.jsonl", "--data.cache", options.cache or out / "features", "--seed", options.seed,
        *(("--schedule.epoch_scale", scale) if criterion != "ctc" and not criterion.endswith("-h") else ()),
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
    found = utterance_logits(model, load_manifest(manifest), Rejects(1.0), cache=cache, workers=0, title="aligning")
    for utterance, logits in found:
        labels = model.units.encode(utterance.text)
        [path] = wildcard_align(logits, torch.tensor(labels), [len(logits)], [len(labels)])
        log_p = logits.log_softmax(1)
        if len(path.tokens) == len(labels):
            yield utterance.id, [-float(log_p[s.start : s.end, s.label].mean()) for s in path.tokens]


class Case(NamedTuple):
    """One criterion in one setting."""

    criterion: str
    setting: str
    cer: float  # of the greedy transcripts, against the clean ones
    utterances: int
    characters: Units
    gaps: Units
    kinds: np.ndarray  # of each character: "", "substitution" or "insertion"


def load_case(options: argparse.Namespace, out: Path, criterion: str, setting: str) -> Case:
    rng = np.random.default_rng(options.seed)
    characters, gaps, kinds, decoded = [], [], [], []
    for model, name in SETTINGS[setting]:
        truth = {row["id"]: row for _, row in read_rows(out / "data" / f"{name}.jsonl")}
        path = out / "probe" / f"{criterion}-{model}-{name}.jsonl"
        forced = {row["id"]: row["scores"] for _, row in read_rows(path.with_suffix(".forced.jsonl"))}
        for utterance in read_probe(path)[1]:
            row = truth[utterance.id]
            if utterance.text != row["text"]:
                raise WildCTCError(f"{path}: {utterance.id}: another text than in the manifest: normalised?")
            decoded.append(Decoded(utterance.id, utterance.heard, (row["truth"],), 0.0))
            if utterance.id in forced:
                characters.append(character_scores(utterance, row["edits"], forced[utterance.id], rng))
                gaps.append(gap_scores(utterance, row["edits"], forced[utterance.id], rng))
                kinds += kinds_of(utterance, row["edits"])
    cer = score(decoded).cer
    return Case(criterion, setting, cer, len(characters), Units.join(characters), Units.join(gaps), np.array(kinds))


def kinds_of(utterance: ProbedUtterance, edits: list[dict[str, Any]]) -> list[str]:
    kinds = [""] * len(utterance.tokens)
    for edit in edits:
        if edit["kind"] in ("substitution", "insertion"):
            kinds[edit["begin"] : edit["stop"]] = [edit["kind"]] * (edit["stop"] - edit["begin"])
    return kinds


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
    results = []
    for case in cases:
        for what, units in (("characters", case.characters), ("gaps", case.gaps)):
            found = evaluate(units, resamples=options.resamples, seed=options.seed)
            results.append((case, what, units, found))
    table = [row for case, what, units, found in results for row in table_rows(case, what, units, found)]
    text = f"{describe(options, cases)}\n\n{aligned(table)}"
    print(text)
    write_text(out / "audit.txt", text + "\n")
    write_text(out / "audit.md", f"{describe(options, cases)}\n\n{markdown(table)}\n")
    write_text(out / "audit.json", json.dumps(as_json(options, results), indent=1) + "\n")
    draw(cases, out / "audit.svg")


HEADER = ("setting", "criterion", "CER", "wrong", "score", "AUC", "behind the probe", f"precision at {FLAGGED:.0%}")


def table_rows(case: Case, what: str, units: Units, found: dict[str, Found]) -> list[tuple[str, ...]]:
    kind = "substituted, inserted" if what == "characters" else "deleted"
    wrong = f"{int(units.wrong.sum()):,} {kind} ({units.wrong.mean():.2%} of {what})"
    first = (TITLES[case.setting], case.criterion, f"{case.cer:.1%}", wrong)
    return [
        (*first, name, str(f.auc), "" if name == "probe" else str(f.behind), str(f.precision))
        for name, f in ((name, found[name]) for name in SCORES)
    ]


def describe(options: argparse.Namespace, cases: list[Case]) -> str:
    counts = ", ".join(f"{case.utterances:,} utterances {case.setting}" for case in cases[:: len(options.criteria)])
    return (
        f"{options.rate:.0%} of characters corrupted; recipe {options.recipe}, {options.epochs} epochs, seed "
        f"{options.seed}; {counts}. 95% intervals by {options.resamples:,} resamples of utterances. "
        f"Where fewer than {FLAGGED:.0%} are wrong, no score can have a higher precision than their share of that."
    )


def aligned(rows: list[tuple[str, ...]]) -> str:
    """A table for the terminal; what repeats the row above is left blank."""
    widths = [max(len(row[i]) for row in [HEADER, *rows]) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(HEADER, widths, strict=True)).rstrip()]
    before: tuple[str, ...] = ("",) * len(HEADER)
    for row in rows:
        if row[:4] != before[:4]:
            lines.append("")
        shown = [cell if row[: i + 1] != before[: i + 1] or i > 3 else "" for i, cell in enumerate(row)]
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True)).rstrip())
        before = row
    return "\n".join(lines)


def markdown(rows: list[tuple[str, ...]]) -> str:
    lines = [HEADER, ("---",) * len(HEADER), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def as_json(options: argparse.Namespace, results: list[tuple[Case, str, Units, dict[str, Found]]]) -> dict[str, Any]:
    def interval(value: Interval) -> list[float | None]:
        return [None if np.isnan(x) else round(x, 5) for x in value]

    rows = []
    for case, what, units, found in results:
        row: dict[str, Any] = {"setting": case.setting, "criterion": case.criterion, "cer": round(case.cer, 5)}
        row |= {"units": what, "count": len(units.wrong), "wrong": int(units.wrong.sum())}
        row["scores"] = {
            name: {"auc": interval(f.auc), "behind": interval(f.behind), "precision": interval(f.precision)}
            for name, f in found.items()
        }
        if what == "characters":
            row["auc_by_kind"] = {kind: by_kind(case, kind) for kind in ("substitution", "insertion")}
        rows.append(row)
    names = ("recipe", "epochs", "epoch_scale", "hours", "rate", "seed", "resamples")
    return {"settings": {name: getattr(options, name) for name in names}, "results": rows}


def by_kind(case: Case, kind: str) -> dict[str, float | None]:
    """AUC of each score for errors of one kind against all correct characters."""
    chosen = (case.kinds == "") | (case.kinds == kind)
    units = Units(
        case.characters.wrong[chosen],
        case.characters.utterance[chosen],
        {name: values[chosen] for name, values in case.characters.scores.items()},
    )
    values = {name: found.auc.value for name, found in evaluate(units, resamples=0).items()}
    return {name: None if np.isnan(value) else round(value, 5) for name, value in values.items()}


def draw(cases: list[Case], path: Path) -> None:
    """ROC curves: a row for characters and one for gaps, a column for each setting; x is logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams |= {"svg.hashsalt": "wildctc", "font.size": 9}
    criteria = list(dict.fromkeys(case.criterion for case in cases))
    colours = dict(zip(SCORES, ("#0b6e4f", "#d1495b", "#edae49", "#8d99ae"), strict=True))
    styles = dict(zip(criteria, ("-", "--", ":", "-.") * len(criteria), strict=False))
    figure, axes = plt.subplots(2, len(SETTINGS), figsize=(10, 6.4), sharex=True, sharey=True, layout="constrained")
    for case in cases:
        for row, units in enumerate((case.characters, case.gaps)):
            axis = axes[row][list(SETTINGS).index(case.setting)]
            for name in reversed(SCORES[:3]):  # the probe on top
                x, y = roc(units.wrong, units.scores[name])
                label = f"{case.criterion}: {name}"
                axis.plot(x, y, color=colours[name], linestyle=styles[case.criterion], linewidth=1.4, label=label)
            what = "substituted, inserted" if row == 0 else "deleted"
            axis.set_title(f"{TITLES[case.setting]}\n{what} characters", fontsize=9)
    for axis in axes.flat:
        x = np.geomspace(1e-4, 1, 100)
        axis.plot(x, x, color=colours["random"], linewidth=1, label="random")
        axis.set(xscale="log", xlim=(1e-4, 1), ylim=(0, 1.02))
        axis.grid(alpha=0.25)
    for axis in axes[-1]:
        axis.set_xlabel("share of correct ones flagged")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of wrong ones found")
    handles, labels = axes[0][0].get_legend_handles_labels()
    unique = dict(sorted(zip(labels, handles, strict=True)))
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"audit: {error}") from None
