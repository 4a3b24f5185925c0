"""Two transcripts of each utterance, one of them right: what do they win back as alternatives? Harper Valley.

    python benchmarks/harper_valley_alternatives.py --data HARPER_VALLEY --out DIR

Runs `wildctc reproduce harper-valley-alternatives`: a person's text, a machine's text, both as alternatives of equal
weight (`ctc`), and `otc-tw` on the machine's text, three seeds. With the --out of `wildctc reproduce harper-valley`,
only the runs with alternatives are new. Then `wildctc variants` asks each of these models which of the two texts was
said where they differ: in its own training set, and in the test set, whose speakers it does not know. What is done is
not done again. The rules were fixed before any result: docs/alternatives.md.

Results: DIR/alternatives.{json,md}.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from audit import wildctc

from wildctc.corpora.manifest import load_manifest
from wildctc.errors import WildCTCError
from wildctc.experiments.results import RunResult, TestSet
from wildctc.files import make_folder, write_text
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.variant_counts import count_variants
from wildctc.text.reader import Reader

SEEDS = (0, 1, 2)
FLOOR, CEILING = "harper-valley-machine/ctc", "harper-valley/ctc"
EITHER = "harper-valley-either/ctc"
SYSTEMS = (CEILING, FLOOR, "harper-valley-machine/otc-tw", EITHER)
HUMAN = "text"  # the field of the person's text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the corpus: a folder with manifest.jsonl")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--resamples", type=int, default=10_000, help="of the bootstrap (default 10,000)")
    parser.add_argument("--kept", type=Path, help="kept results of the other systems, such as results/harper-valley")
    parser.add_argument("--no-train", action="store_true", help="report what is there")
    options = parser.parse_args()
    if not options.no_train:
        only = ["--tasks", EITHER.split("/")[0]] if options.kept else []
        wildctc("reproduce", "harper-valley-alternatives", "--data", options.data, "--out", options.out, *only)
    picks = [pick(options.out, seed, split) for seed in SEEDS for split in ("train", "test")]
    results = {"models": won_back(options.out, options.kept, options.resamples), "picks": [p for p in picks if p]}
    write_text(make_folder(options.out) / "alternatives.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "alternatives.md", markdown(results))
    print(markdown(results))


def won_back(out: Path, kept: Path | None, resamples: int) -> dict[str, dict[str, object]]:
    """The WER of each system, a mean over its seeds, and the share of the gap between the texts that it wins back.

    Intervals: seeds and test utterances are drawn with replacement, utterances alike for all systems.
    """
    found = {name: results_of(out, kept, name) for name in SYSTEMS}
    found = {name: tests for name, tests in found.items() if tests}
    if not {FLOOR, CEILING} <= found.keys():
        return {}
    rng = np.random.default_rng(0)
    ids = next(iter(found[FLOOR].values())).ids
    words = next(iter(found[FLOOR].values())).words[:, 3]
    weights = rng.multinomial(len(words), np.full(len(words), 1 / len(words)), resamples)
    weights = np.concatenate([np.ones((1, len(words))), weights])
    rates = {}
    for name, tests in found.items():
        if any(test.ids != ids for test in tests.values()):
            raise WildCTCError(f"{name}: tested on other utterances than {FLOOR}")
        errors = np.array([test.words[:, :3].sum(axis=1) for test in tests.values()])
        of_seeds = (weights @ errors.T) / (weights @ words)[:, None]
        drawn = rng.multinomial(len(errors), np.full(len(errors), 1 / len(errors)), resamples) / len(errors)
        drawn = np.concatenate([np.full((1, len(errors)), 1 / len(errors)), drawn])
        rates[name] = (of_seeds * drawn).sum(axis=1)
    won = {name: (rates[FLOOR] - rate) / (rates[FLOOR] - rates[CEILING]) for name, rate in rates.items()}
    return {
        name: {
            "seeds": sorted(found[name]),
            "wer": round(float(rates[name][0]), 5),
            "won_back": [round(float(x), 4) for x in (won[name][0], *np.percentile(won[name][1:], [2.5, 97.5]))],
        }
        for name in rates
    }


def results_of(out: Path, kept: Path | None, name: str) -> dict[int, TestSet]:
    """The errors in the test set by seed: of the runs in `out`, else of kept results."""
    paths = {seed: out / "runs" / name / f"seed{seed}" / "result.json" for seed in SEEDS}
    if kept is not None:
        paths = {seed: path if path.exists() else kept / name / f"seed{seed}.json" for seed, path in paths.items()}
    return {seed: RunResult.load(path).tests["test"] for seed, path in paths.items() if path.exists()}


def pick(out: Path, seed: int, split: str) -> dict[str, object] | None:
    """How often the posterior picks the person's text where the two differ."""
    run = out / "runs" / EITHER / f"seed{seed}"
    if not (run / "model").exists():
        return None
    kept = make_folder(out / "picks") / f"{split}-{seed}.json"
    if not kept.exists():
        model = Recognizer.load(run)
        utterances = load_manifest(out / "data" / "harper-valley-either" / f"{split}.jsonl.gz")
        reader = Reader(model.units.normalizer)
        counts = count_variants(model, utterances, reader, cache=out / "features", workers=0, max_bad=0.05)
        places, human = counts.annotators[HUMAN]
        row = {"seed": seed, "split": split, "places": int(places), "human": round(human / places, 4)}
        write_text(kept, json.dumps(row | {"utterances": counts.utterances}) + "\n")
    return json.loads(kept.read_text(encoding="utf-8"))


def markdown(results: dict) -> str:
    lines = ["| trained on, criterion | seeds | WER | gap won back |", "|---|---|---|---|"]
    for name, of in results["models"].items():
        share = "{:.0%} [{:.0%}, {:.0%}]".format(*of["won_back"])
        lines.append(f"| `{name}` | {len(of['seeds'])} | {of['wer']:.2%} | {share} |")
    lines += ["", "| seed | set | places where the texts differ | the person's text is picked |", "|---|---|---|---|"]
    lines += [f"| {p['seed']} | {p['split']} | {p['places']:,} | {p['human']:.1%} |" for p in results["picks"]]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"harper_valley_alternatives: {error}") from None
