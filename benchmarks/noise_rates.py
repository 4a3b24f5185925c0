"""Are estimated error rates of speakers and calls those of their transcripts? Harper Valley.

    wildctc train harper-valley --out RUN --criterion otc-tw-em --rates.by speaker --data.dir MACHINE --trunk CTC_RUN
    wildctc probe RUN MACHINE/train.jsonl.gz -o PROBE.jsonl
    python benchmarks/noise_rates.py --runs RUN --probes PROBE.jsonl --manifest MACHINE/train.jsonl.gz --data DATA

DATA: Harper Valley. MACHINE: the data of `wildctc reproduce harper-valley` with machine text, which is
OUT/data/harper-valley-machine. A word is truly wrong if the person's text differs there (specification §7). Estimates:
the noise rates of a run, and the mean doubt of the words in a probe. Printed: the rate of the corpus, and Spearman's
rank correlation over speakers and over calls between estimated and true rate, with a 95% interval over resampled
speakers or calls.

With `--hyp RUN/hyp/test.jsonl`, also the words that the model left out most often, and how often the machine's text has
each of them wrong in training.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from wildctc.corpora.manifest import load_manifest
from wildctc.disagreement.dissent import differences
from wildctc.errors import WildCTCError
from wildctc.json_lines import read_rows
from wildctc.probe.records import read_probe
from wildctc.scoring.hypotheses import read_hyp_file
from wildctc.terminal import table
from wildctc.training.noise_report import read_rates

RESAMPLES = 10_000


Rates = dict[str, float]  # of each speaker or call


def speaker_of(id: str) -> str:
    return id.split("-")[0]


def call_of(id: str) -> str:
    """Ids are SPEAKER-CALL-UTTERANCE. The two sides of a call are two calls here: other speakers, other transcripts."""
    return id.rsplit("-", 1)[0]


GROUPS = {"speakers": speaker_of, "calls": call_of}


def shares(counted: Iterable[tuple[str, float, int]], group_of: Callable[[str], str]) -> tuple[float, Rates]:
    """The share of wrong words in everything and in each group, from utterance ids, wrong words and words."""
    words, wrong = Counter[str](), Counter[str]()
    for id, bad, number in counted:
        words[group_of(id)] += number
        wrong[group_of(id)] += bad  # type: ignore[assignment]
    return sum(wrong.values()) / sum(words.values()), {name: wrong[name] / words[name] for name in words}


def truth(manifest: Path, data: Path) -> list[tuple[str, float, int]]:
    """Of each utterance its id, wrong words and words."""
    said = {row["id"]: row["text"] for _, row in read_rows(data / "manifest.jsonl")}
    utterances = load_manifest(manifest)
    found = differences([(u.text, said[u.id]) for u in utterances])
    return [
        (u.id, int((d.words.dissent > 0).sum()), len(d.words.dissent)) for u, d in zip(utterances, found, strict=True)
    ]


def by_doubt(probe: Path) -> list[tuple[str, float, int]]:
    """Of each utterance its id, the sum of its words' doubts, and words."""
    return [(u.id, sum(w.doubt or 0.0 for w in u.words), len(u.words)) for u in read_probe(probe)[1]]


def changed(pairs: Iterable[tuple[str, str]], kinds: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """Of pairs of a right and another text: how often a word of the right ones was changed, and is there."""
    found, number = Counter[str](), Counter[str]()
    for right, other in pairs:
        words = right.split()
        number.update(words)
        found.update(words[place] for kind, place, _ in Levenshtein.editops(words, other.split()) if kind in kinds)
    return found, number


def left_out(hyp: Path, manifest: Path, data: Path, most: int = 12) -> str:
    """A table of the words that a model leaves out."""
    said = {row["id"]: row["text"] for _, row in read_rows(data / "manifest.jsonl")}
    lost, number = changed(((row.references[0], row.text) for row in read_hyp_file(hyp)[0]), ["delete"])
    wrong, written = changed(((said[u.id], u.text) for u in load_manifest(manifest)), ["delete", "replace"])
    cells = [
        [word, f"{count} of {number[word]}", f"{wrong[word] / max(1, written[word]):.1%}", f"{written[word]:,}"]
        for word, count in lost.most_common(most)
    ]
    return table((f"{sum(lost.values())} words left out", "", "wrong in training", "of"), cells)


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(x: np.ndarray) -> np.ndarray:
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[where]


def correlation(found: Rates, true: Rates) -> tuple[float, float, float, int]:
    """Spearman's correlation, its interval, and the number of groups."""
    names = sorted(found.keys() & true.keys())
    a, b = (np.array([rates[name] for name in names]) for rates in (found, true))
    rng = np.random.default_rng(0)
    draws = [spearman(a[i], b[i]) for i in rng.integers(len(names), size=(RESAMPLES, len(names)))]
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return spearman(a, b), low, high, len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    parser.add_argument("--probes", nargs="*", type=Path, default=[])
    parser.add_argument("--manifest", type=Path, required=True, help="the training manifest of the runs")
    parser.add_argument("--data", type=Path, required=True, help="the corpus: a folder with manifest.jsonl")
    parser.add_argument("--hyp", type=Path, help="what a model decoded, for the words that it leaves out")
    options = parser.parse_args()
    try:
        print(plain(options))
        if options.hyp:
            print(f"\n{left_out(options.hyp, options.manifest, options.data)}")
    except WildCTCError as error:
        raise SystemExit(f"noise_rates: {error}") from None


def plain(options: argparse.Namespace) -> str:
    known, rows = truth(options.manifest, options.data), []
    for run in options.runs:
        whole, *groups = read_rates(run)
        found = {group.name: group.rates["word"].rate for group in groups}
        rows.append((run, "rates", "speakers", whole.rates["word"].rate, found))
    for probe in options.probes:
        doubted = by_doubt(probe)
        rows += [(probe, "doubt", name, *shares(doubted, group_of)) for name, group_of in GROUPS.items()]
    cells = []
    for path, kind, name, corpus, found in rows:
        true_corpus, true = shares(known, GROUPS[name])
        rho, low, high, number = correlation(found, true)
        cells.append(
            [
                path.name,
                kind,
                f"{corpus:.2%}",
                f"{true_corpus:.2%}",
                f"{number} {name}",
                f"{rho:.2f} [{low:.2f}, {high:.2f}]",
            ]
        )
    return table(("", "estimate", "words wrong", "truly", "of", "Spearman's ρ"), cells)


if __name__ == "__main__":
    main()
