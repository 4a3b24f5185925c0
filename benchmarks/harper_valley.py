"""Can the audit find real transcript errors, and how much of their damage can be undone? Harper Valley.

    wildctc reproduce harper-valley --data HARPER_VALLEY --out DIR --seeds 0
    python benchmarks/harper_valley.py --data HARPER_VALLEY --out DIR --seed 0

HARPER_VALLEY: a folder with manifest.jsonl, whose rows have `text` (what a person wrote) and `machine` (what a machine
wrote before). DIR has the models of the first command, trained on 3 h of machine text (part a). This script trains one
more, on 3 h of other machine transcripts (part b), and probes:

  self      part a, by the models that were trained on it
  cross     parts a and b, each by the `ctc` model of the other
  held-out  the machine transcripts of dev and test, whose speakers are in no training set

A word of the machine's text is wrong if the person's text differs there (specification §7). Scores of a word: its doubt
(`wildctc.probe.doubt`), the bypass of its worst token, the bypass of the word, a forced alignment (plain CTC: minus the
mean log-probability over the frames of its worst character), and whether the greedy transcript differs.

Then `wildctc clean` corrects part a without a person, and models are trained on the result (`clean`); or it writes what
was heard beside what is written, and plain CTC decides (`either`). Both use the cross probe that is there, whatever
its seed. Every stage is skipped where it is done; `--stage` runs some only. Results: DIR/audit.{json,md,svg}.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from audit import forced_alignment, wildctc

from wildctc.cleaning.judgement import judge, read_texts
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.subset import Subset
from wildctc.disagreement.dissent import differences
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.json_lines import read_lines, read_rows
from wildctc.probe.records import ProbedUtterance, read_probe
from wildctc.recognizer.model import Recognizer
from wildctc.scoring.error_rates import score
from wildctc.scoring.hypotheses import read_hyp_file

STAGES = ("prepare", "train", "probe", "clean", "either", "report")
SCORES = ("doubt", "worst token", "word bypass", "forced alignment", "greedy difference")
FLAGGED = 0.05  # share of the words that a person would listen to
HOURS = 3.0
SHARES = [x / 100 for x in range(21)]  # of the words, from the most doubtful on, for the picture
A = "runs/harper-valley-machine"
CLEANED, EITHER = "harper-valley-cleaned", "harper-valley-cleaned-either"  # what `wildctc clean` writes
# probe → (model without its seed, manifest in DIR/data)
PROBES = {
    "self-ctc": (f"{A}/ctc", "harper-valley-machine/train.jsonl.gz"),
    "self-otc-tw": (f"{A}/otc-tw", "harper-valley-machine/train.jsonl.gz"),
    "cross-a": ("runs/harper-valley-machine-b/ctc", "harper-valley-machine/train.jsonl.gz"),
    "cross-b": (f"{A}/ctc", "harper-valley-machine-b/train.jsonl.gz"),
    "dev-ctc": (f"{A}/ctc", "harper-valley-machine/dev.jsonl.gz"),
    "test-ctc": (f"{A}/ctc", "harper-valley-machine/test.jsonl.gz"),
    "dev-otc-tw": (f"{A}/otc-tw", "harper-valley-machine/dev.jsonl.gz"),
    "test-otc-tw": (f"{A}/otc-tw", "harper-valley-machine/test.jsonl.gz"),
}
CASES = {
    "self, `ctc`": ("self-ctc",),
    "self, `otc-tw`": ("self-otc-tw",),
    "cross, `ctc`": ("cross-a", "cross-b"),
    "held-out, `ctc`": ("dev-ctc", "test-ctc"),
    "held-out, `otc-tw`": ("dev-otc-tw", "test-otc-tw"),
}


def main() -> None:
    options = parse()
    out, data = Path(options.out), make_folder(Path(options.out) / "data")
    if "prepare" in options.stage:
        prepare(options, data)
    if "train" in options.stage:
        train(out, "harper-valley-machine-b", "ctc", options.seed)
    if "probe" in options.stage:
        for name in options.probes or PROBES:
            probe(out, name, options.seed)
    if "clean" in options.stage:
        # --insert was the default when this was first run, and is off since: most insertions were wrong
        clean(out, CLEANED, "--replace", 0.5, "--drop", 0.5, "--insert", 0.95)
        for criterion in options.criteria:
            train(out, CLEANED, criterion, options.seed)
    if "either" in options.stage:
        clean(out, EITHER, "--replace", "none", "--drop", 0.5, "--either", 0.1, "--weights", "none")
        train(out, EITHER, "ctc", options.seed)
    if "report" in options.stage:
        report(options, out)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the corpus: a folder with manifest.jsonl")
    parser.add_argument("--out", required=True, help="the --out of `wildctc reproduce harper-valley`")
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=STAGES, help="default: all of them")
    parser.add_argument("--probes", nargs="+", choices=PROBES, help="default: all of them")
    parser.add_argument("--criteria", nargs="+", default=["ctc", "otc-tw"], help="trained on cleaned text")
    parser.add_argument("--seed", type=int, default=0, help="of the models (default 0)")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap (default 1000)")
    return parser.parse_args()


def prepare(options: argparse.Namespace, data: Path) -> None:
    """Part b: the next hours of machine text, in the order in which the first were drawn."""
    folder = data / "harper-valley-machine-b"
    if (folder / "train.jsonl.gz").exists():
        return
    wildctc("prepare", "jsonl", options.data, folder, "--text-field", "machine", "--no-decode", "--hours", 2 * HOURS)
    path = folder / "train.jsonl.gz"
    first = {u.id for u in Subset(HOURS).of(load_manifest(path))}
    lines = [line for _, line in read_lines(path) if json.loads(line)["id"] not in first]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def train(out: Path, task: str, criterion: str, seed: int) -> None:
    run = out / "runs" / task / criterion / f"seed{seed}"
    if (run / "hyp" / "test.jsonl").exists():
        return
    trunk = out / "runs" / task / "ctc" / f"seed{seed}"
    schedule = () if criterion == "ctc" else ("--schedule.epoch_scale", 5, "--trunk", trunk)
    words = ("--criterion", criterion, "--seed", seed)
    words += ("--data.dir", out / "data" / task, "--data.cache", out / "features")
    wildctc("train", "harper-valley", "--out", run, *words, *schedule)
    test = out / "data" / "harper-valley" / "test.jsonl.gz"
    wildctc("decode", run, test, "-o", run / "hyp" / "test.jsonl", "--cache", out / "features", "--workers", 0)


def probe(out: Path, name: str, seed: int) -> None:
    """The probe of a manifest by a model, and beside it the scores of a forced alignment."""
    run, manifest = out / PROBES[name][0] / f"seed{seed}", out / "data" / PROBES[name][1]
    output, cache = make_folder(out / "probe") / f"{name}.jsonl", out / "features"
    wildctc("probe", run, manifest, "-o", output, "--cache", cache, "--workers", 0, "--max-bad", 0.05)
    forced = output.with_suffix(".forced.jsonl")
    if not forced.exists():
        found = forced_alignment(Recognizer.load(run), manifest, cache)
        write_text(forced, "".join(json.dumps({"id": id, "scores": scores}) + "\n" for id, scores in found))


def clean(out: Path, task: str, *words: object) -> None:
    """Part a, cleaned by `wildctc clean` from the cross probe; dev stays as the machine wrote it."""
    folder = out / "data" / task
    if not (folder / "train.jsonl.gz").exists():
        make_folder(folder)
        (folder / "dev.jsonl.gz").write_bytes((out / "data/harper-valley-machine/dev.jsonl.gz").read_bytes())
        wildctc("clean", out / "probe" / "cross-a.jsonl", "-o", folder / "train.jsonl.gz", *words)


# --------------------------------------------------------------------------------------------------------------- report


def report(options: argparse.Namespace, out: Path) -> None:
    said = {row["id"]: row["text"] for _, row in read_rows(Path(options.data) / "manifest.jsonl")}
    found = {}
    for case, names in CASES.items():
        if all((out / "probe" / f"{name}.forced.jsonl").exists() for name in names):
            found[case] = measure(out, names, said, options.resamples)
    results = {"models": models(options, out), "audit": found, "clean": judge_clean(out)}
    write_text(out / "audit.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_text(out / "audit.md", markdown(results))
    if found:
        draw(results, out / "audit.svg")
    print(markdown(results))


def models(options: argparse.Namespace, out: Path) -> dict[str, dict[str, object]]:
    """Test WER of each model, of sentences that its training text lacks, and how much of the gap it wins back.

    The gap: `ctc` on machine text minus `ctc` on human text. Intervals: the test's utterances are resampled, the same
    for all models.
    """
    known = {u.text for u in load_manifest(out / "data" / "harper-valley" / "train.jsonl.gz")}
    errors, words, new = {}, np.zeros(0), np.zeros(0, bool)
    for hyp in sorted(out.glob(f"runs/*/*/seed{options.seed}/hyp/test.jsonl")):
        task, criterion = hyp.parts[-5:-3]
        utterances = score(read_hyp_file(hyp)[0]).utterances
        errors[f"{task} {criterion}"] = np.array([u.words.total for u in utterances])
        words = np.array([u.words.reference for u in utterances])
        new = np.array([u.reference not in known for u in utterances])
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(words), np.full(len(words), 1 / len(words)), options.resamples)
    draws = np.concatenate([np.ones((1, len(words))), drawn])
    rate = {name: draws @ wrong / (draws @ words) for name, wrong in errors.items()}
    floor, ceiling = rate["harper-valley-machine ctc"], rate["harper-valley ctc"]
    found = {}
    for name, wrong in errors.items():
        won = (floor - rate[name]) / (floor - ceiling)
        found[name] = {
            "wer": round(float(rate[name][0]), 5),
            "wer_new_sentences": round(float(wrong[new].sum() / words[new].sum()), 5),
            "won_back": [round(float(x), 4) for x in (won[0], *np.percentile(won[1:], [2.5, 97.5]))],
        }
    return found


def measure(out: Path, names: tuple[str, ...], said: dict[str, str], resamples: int) -> dict[str, object]:
    """How well each score finds wrong words; speakers are resampled, since their words are not independent."""
    wrong: list[bool] = []
    speakers: list[str] = []
    scores: dict[str, list[float]] = {name: [] for name in SCORES}
    for name in names:
        path = out / "probe" / f"{name}.jsonl"
        forced = {row["id"]: row["scores"] for _, row in read_rows(path.with_suffix(".forced.jsonl"))}
        utterances = [u for u in read_probe(path)[1] if u.id in forced]
        for u, difference in zip(utterances, differences([(u.text, said[u.id]) for u in utterances]), strict=True):
            wrong += (difference.words.dissent > 0).tolist()
            speakers += [u.speaker or u.id] * len(u.words)
            for kind, values in word_scores(u, forced[u.id]).items():
                scores[kind] += values
    clusters = np.unique(np.array(speakers), return_inverse=True)[1]
    found = {k: detect(np.array(wrong), clusters, np.array(v), resamples) for k, v in scores.items()}
    return {"words": len(wrong), "wrong": int(sum(wrong)), "speakers": len(set(speakers)), "scores": found}


def word_scores(utterance: ProbedUtterance, forced: list[float]) -> dict[str, list[float]]:
    letters = [range(word.last + 1 - len(word.text), word.last + 1) for word in utterance.words]  # without the space
    return {
        "doubt": [word.doubt or 0.0 for word in utterance.words],
        "worst token": [max(utterance.tokens[i].bypass for i in of) for of in letters],
        "word bypass": [word.bypass for word in utterance.words],
        "forced alignment": [max(forced[i] for i in of) for of in letters],
        "greedy difference": [float(word.heard != word.text) for word in utterance.words],
    }


def detect(wrong: np.ndarray, cluster: np.ndarray, score: np.ndarray, resamples: int) -> dict[str, list[float]]:
    """AUC, average precision and the share of wrong words among the FLAGGED: value and 95% interval over clusters."""
    rng = np.random.default_rng(0)
    order = np.lexsort((rng.random(len(score)), -score))  # ties at random
    wrong, cluster = wrong[order], cluster[order]
    size = int(cluster.max()) + 1
    draws = rng.multinomial(size, np.full(size, 1 / size), resamples)
    rows = np.array([figures(wrong, counts[cluster]) for counts in (np.ones(size), *draws)])
    low, high = np.nanpercentile(rows[1:], [2.5, 97.5], axis=0)
    names = ("auc", "average_precision", "found")
    found = {n: [round(float(x), 4) for x in (rows[0, i], low[i], high[i])] for i, n in enumerate(names)}
    true = np.concatenate([[0], np.cumsum(wrong)])
    return found | {"curve": [round(float(true[round(share * len(wrong))] / true[-1]), 4) for share in SHARES]}


def figures(wrong: np.ndarray, weight: np.ndarray) -> tuple[float, float, float]:
    """Of words from the highest score down, each counted `weight` times."""
    seen, true = np.cumsum(weight), np.cumsum(weight * wrong)
    false = seen - true
    auc = (weight * wrong * (false[-1] - false)).sum() / (true[-1] * false[-1])
    precision = (weight * wrong * true / np.maximum(seen, 1)).sum() / true[-1]
    return auc, precision, true[np.searchsorted(seen, FLAGGED * seen[-1])] / true[-1]


def judge_clean(out: Path) -> dict[str, object]:
    """What `wildctc clean` did to part a, against what people wrote."""
    after = out / "data" / CLEANED / "train.jsonl.gz"
    if not after.exists():
        return {}
    texts = [read_texts(out / "data" / name / "train.jsonl.gz") for name in ("harper-valley-machine", "harper-valley")]
    return judge(texts[0], read_texts(after), texts[1]).to_dict()


def markdown(results: dict) -> str:
    lines = ["| trained on, criterion | WER | of new sentences | won back |", "|---|---|---|---|"]
    for name, of in results["models"].items():
        share = "{:.0%} [{:.0%}, {:.0%}]".format(*of["won_back"])
        lines.append(f"| {name} | {of['wer']:.2%} | {of['wer_new_sentences']:.2%} | {share} |")
    lines += ["", "| | score | AUC | average precision | errors in the worst 5% |"]
    lines.append("|---|---|---|---|---|")
    for case, found in results["audit"].items():
        for i, (name, values) in enumerate(found["scores"].items()):
            cells = [f"{v[0]:.3f} [{v[1]:.3f}, {v[2]:.3f}]" for v in (values["auc"], values["average_precision"])]
            share = values["found"]
            of = f"{case}: {found['wrong']:,} of {found['words']:,} words wrong" if i == 0 else ""
            lines.append(f"| {of} | {name} | {' | '.join(cells)} | {share[0]:.0%} [{share[1]:.0%}, {share[2]:.0%}] |")
    return "\n".join([*lines, "", "clean: " + json.dumps(results["clean"]), ""])


def draw(results: dict, path: Path) -> None:
    """The share of all errors that is found by the share of words that somebody listens to."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    cases = [(case, found) for case, found in results["audit"].items() if "otc" not in case]
    with rc_context({"svg.hashsalt": "wildctc", "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 3.6))
        for axes, (case, found) in zip(
            figure.subplots(1, len(cases), sharey=True, squeeze=False)[0], cases, strict=True
        ):
            for name, values in found["scores"].items():
                axes.plot(SHARES, values["curve"], label=name, linewidth=2.5 if name == "doubt" else 1.2)
            axes.axvline(FLAGGED, color="grey", linewidth=0.8, linestyle=":")
            axes.set_title(case.replace("`", ""))
            axes.set_xlabel("words listened to")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.grid(alpha=0.3)
            axes.set_ylim(0, 1)
        figure.axes[0].set_ylabel("errors found")
        figure.axes[-1].legend(fontsize="small", loc="lower right")
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"harper_valley: {error}") from None
