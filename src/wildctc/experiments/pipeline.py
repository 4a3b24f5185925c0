"""Take one run of a grid from corpus to result: prepare, train, decode, score, audit. Finished stages are skipped."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.corpora.manifest import load_manifest
from wildctc.corruption.known_errors import find_known
from wildctc.errors import Diverged, WildCTCError
from wildctc.experiments.catalogue import DAGGER
from wildctc.experiments.grid import Run, Task
from wildctc.experiments.results import RunResult, TestSet
from wildctc.experiments.subprocesses import Commands, Stopped
from wildctc.experiments.validators import probe_of, reference_of
from wildctc.experiments.workspace import RESULT, Site, is_held, portable_settings
from wildctc.files import make_folder, only_one, write_text, writing
from wildctc.scoring.error_rates import score
from wildctc.scoring.hypotheses import Decoded, read_hyp_file
from wildctc.training.run_folder import has_trunk, is_trained, read_metrics

_MAX_UNDECODED = 0.01  # of a test set: the limit of `wildctc decode`
_MAX_BAD = "0.05"  # of a probed set: transcripts with a letter that training lacks, or longer than their audio
Environment = dict[str, str]


class Held(WildCTCError):
    """Another process is working on the run."""


@dataclass(frozen=True)
class Stages:
    """The stages of a run.

    Attributes:
        site: The experiment's folder.
        corpus: The published corpus.
        commands: Runs the commands.
    """

    site: Site
    corpus: Path
    commands: Commands
    _preparing: threading.Lock = field(default_factory=threading.Lock)
    _unprepared: dict[str, WildCTCError] = field(default_factory=dict)  # product → why it failed

    def run(self, run: Run, environment: Environment) -> RunResult:
        """Run all stages of a run. The result is written to the run's folder.

        Args:
            run: The run.
            environment: Environment variables of its commands, such as the GPU.

        Returns:
            The result.

        Raises:
            Held: Another process is working on the run.
            WildCTCError: A stage failed.
        """
        folder = self.site.folder(run)
        self.site.check_settings(run)
        with _taken(folder):
            self._prepare(run.task, environment)
            result = self.site.result(run)  # another experiment or machine may have finished it
            if result is None:
                result = self._result(run, environment)
                result.save(folder / RESULT)
            if self.site.experiment.disagreement and not result.diverged:
                with self._preparing:
                    manifest = reference_of(self.site, run)
                model = _dagger_folder(folder, result.dagger)
                self._probe(run, model, manifest, probe_of(self.site, run), environment)
            return result

    def _prepare(self, task: Task, environment: Environment) -> None:
        """Prepare the task's manifests. The first process prepares them; others wait for the lock."""
        for step in task.steps:
            product = self.site.data / step.product
            with self._preparing, _waiting(make_folder(product.parent) / ".lock", self.commands):
                if step.product in self._unprepared:
                    raise self._unprepared[step.product]
                if not product.exists():
                    words = [word.format(corpus=self.corpus, data=self.site.data) for word in step.words]
                    try:
                        self.commands.run(words, self.site.data / "log.txt", environment)
                    except WildCTCError as error:
                        self._unprepared[step.product] = error
                        raise

    def _result(self, run: Run, environment: Environment) -> RunResult:
        """Train as declared, then by the † rule: an OTC-W run that diverges is trained again with a stricter weight."""
        labels: dict[str, Any] = {
            "experiment": self.site.experiment.name, "task": run.task.name, "criterion": run.criterion,
            "seed": run.seed, "setting": dict(run.setting.shown),
        }  # fmt: skip
        again = DAGGER if run.criterion == "otc-w" else ()
        for dagger in (None, *again):
            folder = _dagger_folder(self.site.folder(run), dagger)
            diverged = self._train(run, folder, dagger, environment)
            kept = {"config": portable_settings(folder), "metrics": read_metrics(folder), "dagger": dagger}
            if diverged is None:
                return RunResult(**labels, **kept, **self._measure(run, folder, environment))
        return RunResult(**labels, **kept, diverged=diverged)

    def _train(self, run: Run, folder: Path, dagger: float | None, environment: Environment) -> str | None:
        """Train, or resume training; returns why training diverged, or None."""
        note = folder / "diverged.txt"
        if note.exists():
            return note.read_text(encoding="utf-8").strip()
        if is_trained(folder):
            return None
        words: list[object] = ["train", *self.site.words(run), "--out", folder]
        if dagger is not None:
            words += ["--schedule.word_bypass", dagger]
        trunk = self.site.trunk(run)
        if trunk is not None and has_trunk(trunk):
            words += ["--trunk", trunk]
        try:
            self.commands.run(words, folder / "reproduce.txt", environment)
        except Diverged as error:
            write_text(note, f"{error}\n")
            return str(error)
        return None

    def _measure(self, run: Run, folder: Path, environment: Environment) -> dict[str, Any]:
        """Decode the test sets, and look for known errors."""
        tests = {name: self._test(run, folder, name, environment) for name in run.task.tests}
        audit = self.site.experiment.audit
        if audit is None:
            return {"tests": tests}
        manifest, output = self.site.data / audit, folder / "probe" / Path(audit).name
        self._probe(run, folder, manifest, output, environment)
        return {"tests": tests, "audit": find_known(output, manifest)}

    def _test(self, run: Run, folder: Path, name: str, environment: Environment) -> TestSet:
        manifest, hyp = self.site.data / run.task.tests[name], folder / "hyp" / f"{name}.jsonl"
        if not hyp.exists():
            words = ["decode", folder, manifest, "-o", hyp, *self._features(run)]
            self.commands.run(words, folder / "reproduce.txt", environment)
        speakers = {u.id: u.speaker for u in load_manifest(manifest) if u.speaker is not None}
        return TestSet.of(score(enough(hyp)), speakers)

    def _probe(self, run: Run, folder: Path, manifest: Path, output: Path, environment: Environment) -> None:
        """Probe a manifest with the run's model; a probe that was interrupted resumes."""
        if not output.exists():
            make_folder(output.parent)
            words = ["probe", folder, manifest, "-o", output, "--max-bad", _MAX_BAD, *self._features(run)]
            self.commands.run(words, folder / "reproduce.txt", environment)

    def _features(self, run: Run) -> list[str]:
        data = self.site.config(run).data
        cache = ["--cache", data.cache] if data.cache is not None else []
        return [*cache, "--workers", str(min(1, data.workers))]


def enough(hyp: Path) -> list[Decoded]:
    """Read the hypotheses of a test set. `wildctc decode` writes the file even if it skipped too many utterances.

    Args:
        hyp: The hypothesis file.

    Returns:
        The hypotheses.

    Raises:
        WildCTCError: More than 1% of the utterances were skipped.
    """
    decoded, left_out = read_hyp_file(hyp)
    if len(left_out) > _MAX_UNDECODED * (len(decoded) + len(left_out)):
        raise WildCTCError(f"{hyp}: {len(left_out)} utterances could not be decoded; remove it to decode again")
    return decoded


def _dagger_folder(folder: Path, dagger: float | None) -> Path:
    return folder if dagger is None else folder.with_name(f"{folder.name}-dagger{abs(dagger):g}")


@contextmanager
def _taken(folder: Path) -> Iterator[None]:
    """Lock a run; Held if another process has it, here or on a machine that shares the disk."""
    if is_held(make_folder(folder)):
        raise Held(f"{folder}: another process is working on it")
    with only_one(folder / ".reproduce"):
        yield


@contextmanager
def _waiting(lock: Path, commands: Commands) -> Iterator[None]:
    """Wait until no other process has the lock. It does not separate the threads of one process."""
    with writing(lock):
        file = open(lock, "w")  # noqa: SIM115 (closed below)
    with file:
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if commands.stopped:
                    raise Stopped from None
                time.sleep(1)
        yield
