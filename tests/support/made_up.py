"""Results of runs that never were, for the tests of reports."""

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from wildctc.experiments.results import RunResult, TestSet


def outcome(rate: float, seed: int = 0, speakers: Sequence[int] = (12, 7, 3, 2)) -> TestSet:
    """Utterances of 20 words, so many of each speaker, with about `rate` of them wrong."""
    names = [f"s{i}" for i, count in enumerate(speakers) for _ in range(count)]
    reference = np.full(len(names), 20)
    wrong = np.random.default_rng(seed).binomial(reference, rate)
    words = np.stack([wrong - wrong // 4, 0 * wrong, wrong // 4, reference], 1)
    return TestSet([f"u{i}" for i in range(len(names))], names, words, words * np.array([1, 1, 1, 5]))


def run_of(criterion: str, seed: int = 0, rate: float = 0.3, **fields) -> RunResult:
    """A finished run; its errors depend on criterion and seed."""
    number = crc32(f"{criterion} {seed}".encode())
    fields = {"experiment": "iban", "task": "iban", "tests": {"test": outcome(rate, number)}} | fields
    return RunResult(criterion=criterion, seed=seed, **{"audit": {"auc": [0.97, 0.96, 0.98]}} | fields)


def history(criterion: str, number: int = 0, epochs: int = 6) -> list[dict]:
    """The lines of metrics.jsonl."""
    rng = np.random.default_rng(number)
    lines = []
    for epoch in range(1, epochs + 1):
        weight = None if criterion == "ctc" or epoch < 3 else -25 * 0.775 ** (5 * (epoch - 3))
        lines.append(
            {
                "epoch": epoch,
                "valid_wer": 0.3 + 0.5 / epoch + 0.01 * rng.random(),
                "entropy": 0.3 / epoch,
                "bypass": weight if "-t" in criterion else None,
                "self_loop": None if weight is None else weight / 5,
                "word_bypass": weight if "w" in criterion else None,
                "bypass_posterior_train": 0.1 / epoch,
                "bypass_posterior_dev": 0.12 / epoch,
            }
        )
    return lines
