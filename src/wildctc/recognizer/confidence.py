"""How probable it is that a recognised word is right: a logistic function of three log-odds, fitted on dev.

All are from the best path of the text: of the geometric mean and of the least of the probabilities of the word's
tokens, each at the token's best frame, and of the geometric mean of the best output's probability over the frames of
the word. Log-odds tell 99% from 99.9%, where most words are; with log-probabilities the error of calibration was four
times as large (docs/using-the-model.md).
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import read_json, write_text

CONFIDENCE = "confidence.json"  # in a model folder
EVIDENCE = ("mean token", "least token", "mean frame")
_FORMAT = 1
_SURE = 1e-6  # a probability nearer to 0 or 1 says no more
_BINS = 10
_RIDGE = 1.0  # keeps the weights finite where all words are right, or all wrong


@dataclass(frozen=True)
class Calibration:
    """From the evidence of a word to a probability.

    Attributes:
        bias: Added to the weighted sum.
        weights: One for each of `EVIDENCE`.

    >>> Calibration(0.0, (1.0, 0.0, 0.0))([-2.0, -5.0, -1.0])
    0.11920292202211755
    """

    bias: float
    weights: tuple[float, ...]

    def __call__(self, evidence: Sequence[float]) -> float:
        """Compute the probability that a word is right.

        Args:
            evidence: The three numbers of the word.

        Returns:
            From 0 to 1.
        """
        total = self.bias + sum(w * x for w, x in zip(self.weights, evidence, strict=True))
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, total))))

    @classmethod
    def fit(cls, evidence: np.ndarray, right: np.ndarray) -> Calibration:
        """Fit the weights by logistic regression (Newton's method).

        Args:
            evidence: (words, 3).
            right: (words,), 1 for a word that is right, else 0.

        Returns:
            The calibration.

        Raises:
            WildCTCError: There are no words.
        """
        if not len(right):
            raise WildCTCError("there is nothing to calibrate on: no word was recognised")
        mean, std = evidence.mean(0), np.maximum(evidence.std(0), 1e-6)
        x = np.hstack([np.ones((len(right), 1)), (evidence - mean) / std])
        penalty, beta = np.diag([1e-3, *[_RIDGE] * evidence.shape[1]]), np.zeros(x.shape[1])
        for _ in range(50):
            p = 1 / (1 + np.exp(-np.clip(x @ beta, -50, 50)))
            curvature = x.T @ (x * (p * (1 - p))[:, None]) + penalty
            step = np.linalg.solve(curvature, x.T @ (right - p) - penalty @ beta)
            beta += step * min(1.0, 5.0 / max(1e-9, float(np.abs(step).max())))
            if np.abs(step).max() < 1e-8:
                break
        weights = beta[1:] / std
        return cls(float(beta[0] - weights @ mean), tuple(map(float, weights)))

    def save(self, folder: Path) -> None:
        """Write confidence.json.

        Args:
            folder: The model folder.
        """
        content = {"format": _FORMAT, "evidence": EVIDENCE, "bias": self.bias, "weights": self.weights}
        write_text(folder / CONFIDENCE, json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """Read confidence.json, which may come from a stranger.

        Args:
            folder: The model folder.

        Returns:
            The calibration; None if there is none.

        Raises:
            WildCTCError: The file is damaged.
        """
        path = folder / CONFIDENCE
        if not path.is_file():
            return None
        stored = read_json(path, 100_000)
        try:
            found = cls(float(stored["bias"]), tuple(map(float, stored["weights"])))
            valid = stored["format"] == _FORMAT and len(found.weights) == len(EVIDENCE)
            valid = valid and all(map(math.isfinite, (found.bias, *found.weights)))
        except (KeyError, TypeError, ValueError):
            valid = False
        if not valid:
            raise WildCTCError(
                f"{path}: not a calibration of words; make it anew with `wildctc calibrate`, or remove it"
            )
        return found


def gather_evidence(log_probs: np.ndarray, tokens: Sequence[tuple[int, int, int]]) -> list[float]:
    """Compute the evidence of a word.

    Args:
        log_probs: (T, V).
        tokens: The label of each of its tokens, its first frame and the frame after its last.

    Returns:
        The three numbers of `EVIDENCE`.
    """
    said = [float(log_probs[start:end, label].max()) for label, start, end in tokens]
    frames = float(log_probs[tokens[0][1] : tokens[-1][2]].max(axis=1).mean())
    return [_log_odds(math.exp(value)) for value in (sum(said) / len(said), min(said), frames)]


def token_probability(evidence: np.ndarray) -> np.ndarray:
    """Give what a model says of its words without calibration.

    Args:
        evidence: (words, 3).

    Returns:
        (words,) the geometric mean of the probabilities of their tokens.
    """
    return 1 / (1 + np.exp(-evidence[:, 0]))


def _log_odds(probability: float) -> float:
    p = min(max(probability, _SURE), 1 - _SURE)
    return math.log(p / (1 - p))


def cross_fitted(evidence: np.ndarray, right: np.ndarray, utterance: np.ndarray) -> np.ndarray:
    """Compute confidences by calibrations that have not seen the word: each half by the one of the other half.

    Args:
        evidence: (words, 3).
        right: (words,).
        utterance: (words,), the number of the utterance of each word; utterances are not divided.

    Returns:
        (words,) probabilities.
    """
    found = np.empty(len(right))
    for half in (0, 1):
        inside = utterance % 2 == half
        other = Calibration.fit(evidence[~inside], right[~inside])
        found[inside] = [other(row) for row in evidence[inside]]
    return found


def reliability(confidence: np.ndarray, right: np.ndarray) -> list[tuple[float, float, int]]:
    """Compare confidences with how many words are right.

    Args:
        confidence: (words,).
        right: (words,).

    Returns:
        For each tenth from 0 to 1 that has words: the mean confidence, the share that is right, and how many.

    >>> reliability(np.array([0.95, 0.99, 0.25]), np.array([1, 1, 0]))
    [(0.25, 0.0, 1), (0.97, 1.0, 2)]
    """
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    return [
        (float(confidence[bins == b].mean()), float(right[bins == b].mean()), int((bins == b).sum()))
        for b in range(_BINS)
        if (bins == b).any()
    ]


def calibration_error(curve: Sequence[tuple[float, float, int]]) -> float:
    """Compute the expected calibration error.

    Args:
        curve: From `reliability`.

    Returns:
        The mean distance between confidence and share, over words.

    >>> round(calibration_error([(0.25, 0.0, 1), (0.97, 1.0, 2)]), 4)
    0.1033
    """
    return sum(abs(said - true) * n for said, true, n in curve) / sum(n for _, _, n in curve)


def draw_reliability(before: Sequence[tuple[float, float, int]], after: Sequence[tuple[float, float, int]]) -> bytes:
    """Draw the curves before and after calibration.

    Args:
        before: From `reliability`, of the mean probability of a word's tokens.
        after: From `reliability`, of the calibrated confidences.

    Returns:
        SVG. The same numbers give the same file.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import PercentFormatter
    except ImportError:
        raise MissingExtra("matplotlib", "train") from None
    with rc_context({"svg.hashsalt": "wildctc"}):
        figure = Figure(figsize=(5, 5), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="perfect")
        largest = max(n for _, _, n in (*before, *after))
        for curve, name in ((before, "mean probability of tokens"), (after, "calibrated")):
            label = f"{name}, ECE {calibration_error(curve):.1%}"
            [line] = axes.plot([c for c, _, _ in curve], [r for _, r, _ in curve], label=label)
            sizes = [12 + 150 * n / largest for _, _, n in curve]
            axes.scatter([c for c, _, _ in curve], [r for _, r, _ in curve], sizes, color=line.get_color(), alpha=0.6)
        axes.set(xlabel="confidence", ylabel="words that are right", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", fontsize="small")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
