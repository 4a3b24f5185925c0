"""Annotators with spelling habits: does a file of variants help more than tolerance? Synthetic speech.

    python benchmarks/spelling_habits.py --out DIR

Voices of espeak-ng read the demo's sentences; eight annotators write them down, each with spelling habits and a few
slips (`wildctc.demo.simulated_annotators`), and 5% of the training words are wrong on purpose. Each seed has its own
sentences, voices, annotators, errors and models. Trained on the same transcripts, three seeds each:

  ctc            plain CTC
  otc-t          token wildcards, the paper's weights
  variants       plain CTC with the file of accepted spellings (--data.variants)
  otc-t+variants both

The test references are what was said, with every accepted spelling (`wildctc score --variants`), for all systems
alike. What is done is not done again. Results: DIR/spelling.{json,md}.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from audit import wildctc

from wildctc.demo.sentences import VARIANTS
from wildctc.demo.spoken_corpus import CorpusSize, make_corpus
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.json_lines import read_rows
from wildctc.scoring.error_rates import Score, score
from wildctc.scoring.hypotheses import read_hyps
from wildctc.text.variants import read_variants

SEEDS = (0, 1, 2)
SIZE = CorpusSize(train=1200, dev=100, test=300, voices=40)
SYSTEMS = {
    "ctc": ("--criterion", "ctc"),
    "otc-t": ("--criterion", "otc-t"),
    "variants": ("--criterion", "ctc", "--data.variants"),
    "otc-t+variants": ("--criterion", "otc-t", "--data.variants"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), help="default: 0 1 2")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them")
    options = parser.parse_args()
    variants = make_folder(options.out) / "variants.txt"
    write_text(variants, "".join(" ".join([word, *others]) + "\n" for word, others in VARIANTS.items()))
    found: dict[str, dict[int, Score]] = {}
    for seed in options.seeds:
        corpus = options.out / f"corpus-{seed}"
        if not (corpus / "test.jsonl.gz").exists():
            make_corpus(corpus, SIZE, seed)
        for system in options.systems:
            found.setdefault(system, {})[seed] = run(options.out, system, seed, variants)
    results = {system: figures(scores) for system, scores in found.items()}
    write_text(options.out / "spelling.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "spelling.md", markdown(results))
    print(markdown(results))


def run(out: Path, system: str, seed: int, variants: Path) -> Score:
    """Train a system, decode the test set, and score it with every accepted spelling of what was said."""
    folder, corpus = out / "runs" / system / f"seed{seed}", out / f"corpus-{seed}"
    hyp = folder / "hyp" / "test.jsonl"
    if not hyp.exists():
        words = [*SYSTEMS[system], *([variants] if "variants" in system else []), "--seed", seed]
        words += ["--data.dir", corpus, "--data.cache", out / "features"]
        wildctc("train", "demo", "--out", folder, *words)
        wildctc("decode", folder, corpus / "test.jsonl.gz", "-o", hyp, "--cache", out / "features", "--workers", 0)
    said = {row["id"]: [row["spoken"]] for _, row in read_rows(corpus / "sentences.jsonl") if row["split"] == "test"}
    return score(read_hyps(hyp), said, variants=read_variants(variants))


def figures(scores: dict[int, Score]) -> dict[str, object]:
    each = {seed: round(found.wer, 5) for seed, found in scores.items()}
    return {
        "wer": round(float(np.mean(list(each.values()))), 5),
        "deviation": round(float(np.std(list(each.values()), ddof=1)), 5) if len(each) > 1 else None,
        "seeds": each,
        "words": {seed: found.words.reference for seed, found in scores.items()},
    }


def markdown(results: dict) -> str:
    lines = ["| system | WER with any accepted spelling | seeds |", "|---|---|---|"]
    for system, of in results.items():
        spread = f" ± {of['deviation']:.2%}" if of["deviation"] is not None else ""
        each = ", ".join(f"{wer:.2%}" for wer in of["seeds"].values())
        lines.append(f"| `{system}` | {of['wer']:.2%}{spread} | {each} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    try:
        main()
    except WildCTCError as error:
        raise SystemExit(f"spelling_habits: {error}") from None
