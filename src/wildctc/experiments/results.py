"""The result of a run: one small JSON file, enough to write every table and figure again without the weights."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.scoring.error_rates import Errors, Score


@dataclass(frozen=True)
class TestSet:
    """Errors in each utterance of a test set, so that utterances can be resampled.

    Attributes:
        ids: The utterances.
        speakers: The speaker of each.
        words: (utterances, 4) substitutions, insertions, deletions, and words of the reference.
        characters: (utterances, 4) the same of characters.
    """

    __test__ = False  # pytest takes its name for that of a test

    ids: list[str]
    speakers: list[str]
    words: np.ndarray
    characters: np.ndarray

    @classmethod
    def of(cls, score: Score, speakers: dict[str, str]) -> TestSet:
        """Take the counts of a score.

        Args:
            score: The score of a test set.
            speakers: Utterance id → speaker. An utterance without one is its own speaker.

        Returns:
            The counts of each utterance.
        """
        found = score.utterances
        ids = [u.id for u in found]
        counts = [np.array([dataclasses.astuple(getattr(u, of)) for u in found]) for of in ("words", "characters")]
        return cls(ids, [speakers.get(id, id) for id in ids], *counts)

    @property
    def wer(self) -> Errors:
        return Errors(*map(int, self.words.sum(0)))

    @property
    def cer(self) -> Errors:
        return Errors(*map(int, self.characters.sum(0)))


@dataclass(frozen=True)
class RunResult:
    """One finished run of a grid.

    Attributes:
        experiment: The experiment's name.
        task: What it was trained on ("librispeech", "hi_in", "iban", "iban+characters").
        criterion: The criterion's name.
        seed: The seed.
        setting: What else differs from the criterion's published setting, by name ("τ": 0.8).
        tests: The name of each test set → errors.
        metrics: The lines of metrics.jsonl.
        config: The run's settings, without places on a disk.
        dagger: The word bypass weight that an OTC-W run got after it had diverged; None for the published one.
        diverged: Why it ended without a model; None if it has one.
        audit: How well the probe finds errors (`corruption.known_errors`), or what `wildctc disagree` wrote.
    """

    experiment: str
    task: str
    criterion: str
    seed: int
    setting: dict[str, float | str] = field(default_factory=dict)
    tests: dict[str, TestSet] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    dagger: float | None = None
    diverged: str | None = None
    audit: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the result as JSON.

        Args:
            path: The file to write.
        """
        make_folder(path.parent)
        content = dataclasses.asdict(self)
        for test in content["tests"].values():
            test |= {name: test[name].tolist() for name in ("words", "characters")}
        write_text(path, json.dumps(content, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> RunResult:
        """Read a result.

        Args:
            path: The file.

        Returns:
            The result.

        Raises:
            WildCTCError: The file is not the result of a run.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            tests = {
                name: TestSet(t["ids"], t["speakers"], np.array(t["words"]), np.array(t["characters"]))
                for name, t in content.pop("tests").items()
            }
            return cls(tests=tests, **content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WildCTCError(f"{path}: not the result of a run ({error})") from None

    def errors(self, of: str = "words") -> Errors:
        """Add the errors of all test sets.

        Args:
            of: "words" or "characters".

        Returns:
            The counts; without test sets, all 0.
        """
        rates = [test.wer if of == "words" else test.cer for test in self.tests.values()]
        return reduce(add, rates, Errors())
