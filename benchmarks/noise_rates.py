"""Are the noise rates that a run has estimated for its speakers those of their transcripts? Harper Valley.

    wildctc train harper-valley --out RUN --criterion otc-tw-em --rates.by speaker --data.dir MACHINE --trunk CTC_RUN
    python benchmarks/noise_rates.py RUN --manifest MACHINE/train.jsonl.gz --data HARPER_VALLEY

MACHINE: the data of `wildctc reproduce harper-valley` with machine text (OUT/data/harper-valley-machine). A word is
truly wrong if the person's text differs there (specification §7). Printed: the rate of the corpus, and Spearman's rank
correlation over speakers between estimated and true rate, with a 95% interval over resampled speakers.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from wildctc.corpora.manifest import load_manifest
from wildctc.disagreement.dissent import differences
from wildctc.errors import WildCTCError
from wildctc.json_lines import read_rows
from wildctc.training.noise_report import read_rates

RESAMPLES = 10_000


def true_rates(manifest: Path, data: Path) -> tuple[float, dict[str, float]]:
    """The share of wrong words in all transcripts, and in those of each speaker."""
    said = {row["id"]: row["text"] for _, row in read_rows(data / "manifest.jsonl")}
    utterances = load_manifest(manifest)
    words, wrong = Counter[str](), Counter[str]()
    pairs = [(u.text, said[u.id]) for u in utterances]
    for u, difference in zip(utterances, differences(pairs), strict=True):
        words[u.speaker or ""] += len(difference.words.dissent)
        wrong[u.speaker or ""] += int((difference.words.dissent > 0).sum())
    return wrong.total() / words.total(), {speaker: wrong[speaker] / words[speaker] for speaker in words}


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(x: np.ndarray) -> np.ndarray:
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[where]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--manifest", type=Path, required=True, help="the training manifest of the run")
    parser.add_argument("--data", type=Path, required=True, help="the corpus: a folder with manifest.jsonl")
    options = parser.parse_args()
    try:
        corpus, true = true_rates(options.manifest, options.data)
        whole, *groups = read_rates(options.run)
    except WildCTCError as error:
        raise SystemExit(f"noise_rates: {error}") from None
    found = np.array([group.rates["word"].rate for group in groups])
    wanted = np.array([true[group.name] for group in groups])
    print(f"words wrong in the corpus: {whole.rates['word'].rate:.2%} estimated, {corpus:.2%} true")
    rng = np.random.default_rng(0)
    draws = [spearman(found[i], wanted[i]) for i in rng.integers(len(found), size=(RESAMPLES, len(found)))]
    low, high = np.percentile(draws, [2.5, 97.5])
    rho = spearman(found, wanted)
    print(f"Spearman's rank correlation over {len(found)} speakers: {rho:.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
