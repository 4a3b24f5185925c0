"""Run the demo from end to end: speech, features, two recognisers, and what they find."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import load_manifest
from wildctc.demo.curves import draw_runs
from wildctc.demo.findings import error_rates, suspects
from wildctc.demo.processes import together
from wildctc.demo.spoken_corpus import VALIDATORS, WRONG, CorpusSize, example, make_corpus, read_truth
from wildctc.demo.stages import Stage, run_stages
from wildctc.demo.story import chance, hits, tell_disagreement, tell_errors, tell_suspects, tell_weights
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import make_front_end
from wildctc.files import write_text
from wildctc.progress import duration
from wildctc.training.config import load_recipe, to_yaml
from wildctc.training.data import scan
from wildctc.training.run_folder import read_metrics
from wildctc.version import __version__

_PLAIN, _WILDCARD = "ctc", "otc-t"
_CLOCK = {"bar_format": "{desc} {elapsed}"}  # for what takes some seconds
ENOUGH = 5.0  # times chance: what suspicious words must be found at


@dataclass(frozen=True)
class Scale:
    """The size of a demo.

    Attributes:
        size: Sentences and voices of the corpus.
        epochs: Training epochs.
        batch_seconds: Seconds of padded audio in a batch.
    """

    size: CorpusSize
    epochs: int
    batch_seconds: int


_SCALES = {
    "full": Scale(CorpusSize(train=1200, dev=100, test=200, voices=60), epochs=10, batch_seconds=30),
    "small": Scale(CorpusSize(train=300, dev=30, test=40, voices=30), epochs=8, batch_seconds=15),
}


@dataclass(frozen=True)
class Outcome:
    """Whether the demo found wrong words.

    Attributes:
        hits: How many of the most suspicious words are wrong on purpose.
        chance: How many of as many random words would be.
    """

    hits: int
    chance: float

    @property
    def enough(self) -> bool:
        return self.hits >= ENOUGH * self.chance


class Demo:
    """The demo in a folder. `run` resumes where an earlier call stopped.

    Args:
        folder: Where everything is written.
        scale: "full" or "small".
        say: Prints a text.
    """

    def __init__(self, folder: Path, scale: str, say: Callable[[str], None] = print) -> None:
        self.folder, self.scale, self.say = folder, _SCALES[scale], say
        self.corpus, self.features, self.runs = folder / "corpus", folder / "features", folder / "runs"
        self.logs = folder / "logs"
        self.cores = os.cpu_count() or 1
        self.config = load_recipe("demo")

    def run(self) -> Outcome:
        """Run all stages, then tell the story, which is also written to FOLDER/story.txt.

        Returns:
            How many wrong words were found.
        """
        stages = [
            Stage("speech", self._speech),
            Stage("features", self._compute_features),
            Stage("training", self._training),
            Stage("decoding", self._decoding),
            Stage("probing", self._probing),
            Stage("reports", self._reports),
        ]
        settings = json.dumps([__version__, asdict(self.scale), WRONG, _WILDCARD, to_yaml(self.config)])
        lines: list[str] = []

        def say(text: str) -> None:
            lines.append(text)
            self.say(text)

        say("WildCTC demo: two recognisers learn from transcripts whose faults are known\n")
        seconds = run_stages(self.folder, settings, stages, say)
        outcome = self._tell(say, seconds)
        write_text(self.folder / "story.txt", "\n".join(lines) + "\n")
        return outcome

    # ------------------------------------------------------------------------------------------------------- stages

    def _speech(self) -> str:
        """Make sentences, voices and transcripts."""
        shutil.rmtree(self.corpus, ignore_errors=True)  # what a stopped attempt left
        make_corpus(self.corpus, self.scale.size, processes=self.cores)
        size = self.scale.size
        hours = sum(u.duration for u in self._utterances()) / 3600
        return f"{size.train + size.dev + size.test:,} sentences in {size.voices} voices of espeak-ng, {hours:.1f} h"

    def _compute_features(self) -> str:
        """Run the frozen front end once for both runs."""
        front_end = make_front_end(asdict(self.config.features))
        scan(self._utterances(), FeatureCache(self.features, front_end), [1.0], self.cores, "all speech")
        return f"{self.config.features.name}, a frozen pretrained encoder"

    def _training(self) -> str:
        """Train both criteria side by side, from the same start."""
        epochs = self.scale.epochs
        settings = ["--data.dir", self.corpus, "--data.cache", self.features, "--training.epochs", epochs]
        # the published schedule is of 30 epochs
        settings += ["--schedule.epoch_scale", 30 / epochs, "--data.batch_seconds", self.scale.batch_seconds]
        commands = {
            name: ["train", "demo", "--out", self.runs / name, "--criterion", name, *settings]
            for name in (_PLAIN, _WILDCARD)
        }
        self._commands("train", commands, self._epochs_done, total=2 * epochs, desc="training", unit="epoch")
        draw_runs({name: self.runs / name for name in (_PLAIN, _WILDCARD)}, self.folder / "curves.svg")
        return f"{_PLAIN} and {_WILDCARD} from the same start, {epochs} epochs each"

    def _decoding(self) -> str:
        """Decode the test set."""
        manifest = self.corpus / "test.jsonl.gz"
        commands = {n: ["decode", self.runs / n, manifest, "--cache", self.features] for n in (_PLAIN, _WILDCARD)}
        self._commands("decode", commands, desc="decoding", **_CLOCK)
        return f"{self.scale.size.test} test sentences, prefix beam search"

    def _probing(self) -> str:
        """Probe the training transcripts and the test set: was each word said?"""
        commands = {}
        for name in (_PLAIN, _WILDCARD):
            for split in ("train", "test"):
                output = self._probe(name, split)
                manifest = self.corpus / f"{split}.jsonl.gz"
                commands[f"{name}-{split}"] = [
                    "probe", self.runs / name, manifest, "-o", output, "--cache", self.features,
                ]  # fmt: skip
        self._commands("probe", commands, desc="probing", **_CLOCK)
        return f"{self.scale.size.train:,} training transcripts: was each word said?"

    def _reports(self) -> str:
        """Write the audit page, and compare the probes with the validators."""
        validators = [self.corpus / "validators" / f"{name}.jsonl" for name in VALIDATORS]
        disagree = ["disagree", "--reference", self.corpus / "test.jsonl.gz", "--validators", *validators]
        for name in (_PLAIN, _WILDCARD):
            disagree += ["--probe", self._probe(name, "test")]
        disagree += ["--json", self.folder / "disagreement.json"]
        page = ["audit", self._probe(_WILDCARD, "train"), "-o", self.folder / "audit"]
        self._commands("report", {"audit": page, "disagree": disagree}, desc="reports", **_CLOCK)
        return "suspicious places as a page with sound; where validators disagree"

    # -------------------------------------------------------------------------------------------------------- story

    def _tell(self, say: Callable[[str], None], seconds: float) -> Outcome:
        """Report what was found."""
        truth = read_truth(self.corpus)
        found = {name: suspects(self._probe(name, "train"), truth) for name in (_PLAIN, _WILDCARD)}
        rates = error_rates({name: self.runs / name / "hyp" / "test.jsonl" for name in (_PLAIN, _WILDCARD)}, truth)
        disagreement = json.loads((self.folder / "disagreement.json").read_text(encoding="utf-8"))
        parts = {
            "Finding wrong transcripts": tell_suspects(found),
            "Recognising speech": tell_errors(rates),
            "Where people disagree": tell_disagreement(disagreement, example(self.corpus)),
            f"The price of wildcards in {_WILDCARD}": tell_weights(read_metrics(self.runs / _WILDCARD)),
        }
        for title, text in parts.items():
            say(f"\n── {title} {'─' * (96 - len(title))}\n\n{text}")
        say(
            f"\n── Look at {'─' * 88}\n\n"
            f"learning curves   {self.folder / 'curves.svg'}\n"
            f"audit report      {self.folder / 'audit' / 'index.html'}\n"
            f"this text         {self.folder / 'story.txt'}\n\n"
            f"All in {duration(seconds)}."
        )
        ranked = found[_WILDCARD]
        return Outcome(hits(ranked), chance(ranked))

    # ------------------------------------------------------------------------------------------------------ helpers

    def _commands(self, title: str, commands: dict[str, list[Any]], *arguments: Any, **bar: Any) -> None:
        words = {f"{title}-{name}": list(map(str, command)) for name, command in commands.items()}
        together(words, self.logs, *arguments, **bar)

    def _epochs_done(self) -> int:
        return sum(len(read_metrics(self.runs / name)) for name in (_PLAIN, _WILDCARD))

    def _probe(self, name: str, split: str) -> Path:
        return self.runs / name / "probe" / f"{split}.jsonl"

    def _utterances(self) -> list[Any]:
        return [u for split in ("train", "dev", "test") for u in load_manifest(self.corpus / f"{split}.jsonl.gz")]
