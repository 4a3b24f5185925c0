"""Fit the coefficients of `wildctc.probe.doubt` on errors that are put in on purpose.

    python benchmarks/word_doubt.py confuse MANIFEST -o CONFUSED     # 6% of the words wrong, as a recogniser errs
    wildctc probe RUN CONFUSED -o PROBE                              # a model that was not trained on these transcripts
    python benchmarks/word_doubt.py fit PROBE… --truth MANIFEST      # prints the coefficients

A recogniser puts words that exist and sound alike in place of what was said. So a wrong word is drawn from the words of
the manifest, with a weight that falls with its edit distance to the right one and rises with the root of its count. Of
the errors, 70% replace a word, 15% insert one, and 15% remove one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from wildctc.corpora.manifest import load_manifest
from wildctc.disagreement.dissent import differences
from wildctc.errors import WildCTCError
from wildctc.files import write_text
from wildctc.probe.context import WordContext
from wildctc.probe.doubt import COEFFICIENTS, evidence, hardly_heard
from wildctc.probe.records import read_probe

RATE, REPLACED, INSERTED = 0.06, 0.7, 0.15
NEARNESS = 6.0  # how fast the weight of a word falls with its normalised edit distance
RIDGE = 1.0  # penalty on squared coefficients of standardised evidence


class Confuser:
    """Draws words that sound like others, from the words of a corpus."""

    def __init__(self, texts: list[str], seed: int) -> None:
        counts = Counter(word for text in texts for word in text.split(" "))
        self.words, self.common = list(counts), [math.sqrt(count) for count in counts.values()]
        self.rng = random.Random(seed)
        self.weights: dict[str, list[float]] = {}

    def like(self, word: str) -> str:
        """Draw a word like this one, but not this one."""
        if word not in self.weights:
            near = [math.exp(-NEARNESS * Levenshtein.normalized_distance(word, other)) for other in self.words]
            pairs = zip(self.words, near, self.common, strict=True)
            self.weights[word] = [n * c if other != word else 0.0 for other, n, c in pairs]
        return self.rng.choices(self.words, self.weights[word])[0]

    def confuse(self, text: str) -> str:
        """Put errors into a transcript; it keeps at least one word."""
        found: list[str] = []
        for word in text.split(" "):
            kind = self.rng.random() if self.rng.random() < RATE else 1.0
            if kind == 1.0:
                found.append(word)
            elif kind < REPLACED:
                found.append(self.like(word))
            elif kind < REPLACED + INSERTED:
                found += [self.rng.choices(self.words, self.common)[0], word]
        return " ".join(found) or text


def confuse(manifest: Path, output: Path, seed: int) -> None:
    utterances = load_manifest(manifest)
    confuser = Confuser([u.text for u in utterances], seed)
    rows = [
        {"id": u.id, "audio": str(u.audio), "text": confuser.confuse(u.text), "speaker": u.speaker}
        | {"duration": u.duration, "start": u.start, "split": u.split}
        for u in utterances
    ]
    write_text(output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    print(f"{output}: {len(rows)} utterances")


def fit(probes: list[Path], truth: Path) -> None:
    said = {u.id: u.text for u in load_manifest(truth)}
    found = [word for probe in probes for word in words_of(probe, said)]
    names, wrong = list(COEFFICIENTS), np.array([wrong for _, wrong in found], dtype=float)
    rows = [[values[name] for name in names] for values, _ in found]
    coefficients, intercept = logistic(np.array(rows), wrong)
    print(f"# {len(wrong):,} words, {wrong.mean():.2%} wrong")
    print("COEFFICIENTS = {")
    for name, value in zip(names, coefficients, strict=True):
        print(f'    "{name}": {value:.3f},')
    print(f"}}\nINTERCEPT = {intercept:.3f}")


def words_of(probe: Path, said: dict[str, str]) -> Iterator[tuple[dict[str, float], bool]]:
    """The evidence of each word of a probe, and whether it is wrong; without words whose evidence is not used."""
    probed = read_probe(probe)[1]
    context = WordContext(u.text for u in probed)
    utterances = [u for u in probed if not hardly_heard(u)]
    for u, difference in zip(utterances, differences([(u.text, said[u.id]) for u in utterances]), strict=True):
        for values, dissent in zip(evidence(u, context), difference.words.dissent, strict=True):
            if values.keys() == COEFFICIENTS.keys():
                yield values, dissent > 0


def logistic(x: np.ndarray, y: np.ndarray, steps: int = 30) -> tuple[np.ndarray, float]:
    """Logistic regression by Newton's method; x: (M, K), y: (M,) of 0 and 1."""
    mean, std = x.mean(0), x.std(0)
    z = np.concatenate([(x - mean) / std, np.ones((len(x), 1))], 1)
    w = np.zeros(z.shape[1])
    penalty = np.diag([RIDGE] * (len(w) - 1) + [0.0])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-z @ w))
        w -= np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + penalty, z.T @ (p - y) + penalty @ w)
    return w[:-1] / std, float(w[-1] - (w[:-1] * mean / std).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = parser.add_subparsers(dest="stage", required=True)
    first = stages.add_parser("confuse")
    first.add_argument("manifest", type=Path)
    first.add_argument("-o", "--output", type=Path, required=True)
    first.add_argument("--seed", type=int, default=0)
    second = stages.add_parser("fit")
    second.add_argument("probe", type=Path, nargs="+")
    second.add_argument("--truth", type=Path, required=True, help="the manifest before `confuse`")
    options = parser.parse_args()
    try:
        if options.stage == "confuse":
            confuse(options.manifest, options.output, options.seed)
        else:
            fit(options.probe, options.truth)
    except WildCTCError as error:
        raise SystemExit(f"word_doubt: {error}") from None


if __name__ == "__main__":
    main()
