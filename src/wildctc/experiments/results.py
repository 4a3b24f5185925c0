"""What is kept of a run: one small JSON file, enough to write every table and figure again without the weights."""

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
    """Errors of each utterance of a test set, so that they can be resampled.

    `words` and `characters`: (utterances, 4): substitutions, insertions, deletions, and the reference's length.
    """

    __test__ = False  # pytest takes its name for that of a test

    ids: list[str]
    speakers: list[str]
    words: np.ndarray
    characters: np.ndarray

    @classmethod
    def of(cls, score: Score, speakers: dict[str, str]) -> TestSet:
        """speakers: of each utterance by its id; one that has none is a speaker of its own."""
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

    task: what it was trained on ("librispeech", "hi_in", "iban", "iban+characters"); setting: what else differs from
    the criterion's published setting, by name ("τ": 0.8), {} for none; tests: by name of the test set; metrics: the
    lines of metrics.jsonl; config: the run's settings without places on a disk; dagger: the word bypass weight that an
    OTC-W run which had diverged was given instead; diverged: why it ended without a model; audit: how well the probe
    finds errors (`audit.known`), or what `wildctc disagree` wrote.
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
        make_folder(path.parent)
        content = dataclasses.asdict(self)
        for test in content["tests"].values():
            test |= {name: test[name].tolist() for name in ("words", "characters")}
        write_text(path, json.dumps(content, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> RunResult:
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
        """Over all test sets: words or characters."""
        rates = [test.wer if of == "words" else test.cer for test in self.tests.values()]
        return reduce(add, rates, Errors())
