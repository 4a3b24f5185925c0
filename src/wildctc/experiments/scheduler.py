"""A grid of runs, several side by side, and at the end the table of what there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.experiments.grid import Run
from wildctc.experiments.pipeline import Held, Stages
from wildctc.experiments.results import RunResult
from wildctc.experiments.subprocesses import Commands, Stopped
from wildctc.experiments.validators import probe_of, with_disagreement
from wildctc.experiments.workspace import RESULT, Site, load_result
from wildctc.training.run_folder import has_trunk

_LOOK = 2.0  # seconds until it is looked again whether a trunk has grown


@dataclass
class Runner:
    """Works through runs in their order. keep: where results are copied as runs end; failed: run → why, afterwards."""

    site: Site
    corpus: Path
    jobs: int = 1
    keep: Path | None = None
    say: Callable[[str], None] = print
    failed: dict[Path, str] = field(default_factory=dict)

    def run(self, runs: Sequence[Run]) -> None:
        """Do what is not done. One run's failure does not stop the others."""
        commands = Commands(self.jobs)
        stages = Stages(self.site, self.corpus, commands)
        pending = self._not_done(runs)
        active: dict[Future[None], Run] = {}
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                while pending or active:
                    while len(active) < self.jobs and (run := self._next(pending, list(active.values()))):
                        pending.remove(run)
                        active[pool.submit(self._one, stages, run)] = run
                    done, _ = wait(active, timeout=_LOOK, return_when=FIRST_COMPLETED)
                    for future in done:
                        del active[future]
                        future.result()
            finally:
                commands.stop()  # nothing goes on running when this ends before its time

    def _not_done(self, runs: Sequence[Run]) -> list[Run]:
        pending = []
        for run in runs:
            try:
                if not self._is_done(run):
                    pending.append(run)
            except WildCTCError as error:
                self._fail(run, str(error))
        if done := len(runs) - len(pending) - len(self.failed):
            self.say(f"{done} of {len(runs)} runs are done")
        return pending

    def _is_done(self, run: Run) -> bool:
        result = self.site.result(run)
        if result is None or result.diverged or not self.site.experiment.disagreement:
            return result is not None
        return probe_of(self.site, run).exists()

    def _next(self, pending: Sequence[Run], active: Sequence[Run]) -> Run | None:
        """The first run that need not wait for one of these to get as far as the epochs that they share."""
        coming = {self.site.folder(run) for run in (*pending, *active)}
        for run in pending:
            trunk = self.site.trunk(run)
            if trunk is None or trunk not in coming or has_trunk(trunk):
                return run
        return None

    def _one(self, stages: Stages, run: Run) -> None:
        begun = time.monotonic()
        try:
            with stages.commands.place() as environment:
                self.say(f"{run}: {self.site.state(run)}")
                result = stages.run(run, environment)
                if self.keep:
                    keep(self.site, [run], self.keep)
        except Held as held:
            self.say(f"{run}: left out, {held}")
        except Stopped:
            pass
        except WildCTCError as error:
            self._fail(run, str(error))
        else:
            self.say(f"{run}: {_summary(result)}, {(time.monotonic() - begun) / 60:.1f} min")

    def _fail(self, run: Run, why: str) -> None:
        self.failed[run.folder] = why
        self.say(f"{run}: FAILED: {why}")


def _summary(result: RunResult) -> str:
    """
    >>> _summary(RunResult("iban", "iban", "otc-w", 0, diverged="training has diverged: …"))
    'diverged'
    """
    if result.diverged:
        return "diverged"
    rates = [f"{name} WER {test.wer.rate:.2%}, CER {test.cer.rate:.2%}" for name, test in result.tests.items()]
    auc = [f"AUC {result.audit['auc'][0]}"] if result.audit else []
    return ", ".join([*rates, *auc, *([f"word bypass {result.dagger:g} (†)"] if result.dagger else [])])


def collect(site: Site, runs: Sequence[Run], failed: dict[Path, str]) -> tuple[list[RunResult], list[str]]:
    """The results that there are, and a line about each run that has none."""
    results, missing = [], []
    for run in runs:
        why = failed.get(run.folder) or site.state(run)
        result = _result_of(site, run) if why in ("done", "diverged") else None
        if result is None:
            missing.append(f"{run}: {why}")
            continue
        results.append(result)
    return results, missing


def _result_of(site: Site, run: Run) -> RunResult | None:
    """With what is known about the run only after others."""
    result = site.result(run)
    return with_disagreement(site, run, result) if result is not None and site.experiment.disagreement else result


def collect_kept(site: Site, runs: Sequence[Run], kept: Path) -> tuple[list[RunResult], list[str]]:
    """The same from a folder of kept results, without the runs."""
    if not kept.is_dir():
        raise WildCTCError(f"--from {kept}: no such folder")
    found = {run: load_result(_kept_path(kept, run), site.experiment, run) for run in runs}
    if not any(found.values()):
        first = _kept_path(kept, runs[0])
        raise WildCTCError(f"--from {kept}: no result of {site.experiment.name} is there; the first would be {first}")
    return [r for r in found.values() if r is not None], [f"{run}: not there" for run, r in found.items() if r is None]


def keep(site: Site, runs: Sequence[Run], kept: Path) -> None:
    """Copy the results that there are to a folder of small files, named as the experiment that made them."""
    for run in runs:
        path = site.folder(run) / RESULT
        if path.exists() and site.state(run) in ("done", "diverged"):
            result = RunResult.load(path)
            result = with_disagreement(site, run, result) if site.experiment.disagreement else result
            _with_kept(result, _kept_path(kept, run)).save(_kept_path(kept, run))


def _with_kept(result: RunResult, path: Path) -> RunResult:
    """With what another experiment found with the same run: table2-respin does not ask the validators."""
    old = RunResult.load(path) if path.exists() else None
    return replace(result, audit=old.audit | result.audit) if old and old.metrics == result.metrics else result


def _kept_path(kept: Path, run: Run) -> Path:
    return kept / run.folder.parent / f"{run.folder.name}.json"
