"""Run a grid, several runs side by side, and collect the results."""

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

_LOOK = 2.0  # seconds between two checks whether a trunk is ready


@dataclass
class Runner:
    """Works through runs in their order.

    Attributes:
        site: The experiment's folder.
        corpus: The published corpus.
        jobs: How many runs are trained side by side.
        keep: Where results are copied when a run ends; None for nowhere.
        say: Prints a line.
        failed: Folder of a failed run → reason.
    """

    site: Site
    corpus: Path
    jobs: int = 1
    keep: Path | None = None
    say: Callable[[str], None] = print
    failed: dict[Path, str] = field(default_factory=dict)

    def run(self, runs: Sequence[Run]) -> None:
        """Do everything that is not done. A run that fails does not stop the others.

        Args:
            runs: The runs, in the order in which they start. A run waits for the trunk whose epochs it shares.
        """
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
                commands.stop()  # if an error ends this early, no command keeps running

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
        """The first run that does not have to wait for shared epochs of another pending or active run."""
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
            self.say(f"{run}: skipped, {held}")
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
    """Collect the results of runs.

    Args:
        site: The experiment's folder.
        runs: The runs.
        failed: Folder of a failed run → reason.

    Returns:
        The results, and a line about each run that has none.
    """
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
    """The result with the comparison of models, which is known only after all runs of a task."""
    result = site.result(run)
    return with_disagreement(site, run, result) if result is not None and site.experiment.disagreement else result


def collect_kept(site: Site, runs: Sequence[Run], kept: Path) -> tuple[list[RunResult], list[str]]:
    """Collect results from a folder of kept results, without the runs.

    Args:
        site: The experiment's folder.
        runs: The runs.
        kept: The folder of kept results.

    Returns:
        The results, and a line about each run that has none.

    Raises:
        WildCTCError: The folder does not exist, or has no result of the experiment.
    """
    if not kept.is_dir():
        raise WildCTCError(f"--from {kept}: no such folder")
    found = {run: load_result(_kept_path(kept, run), site.experiment, run) for run in runs}
    if not any(found.values()):
        first = _kept_path(kept, runs[0])
        raise WildCTCError(f"--from {kept}: no result of {site.experiment.name} is there; the first would be {first}")
    return [r for r in found.values() if r is not None], [f"{run}: not there" for run, r in found.items() if r is None]


def keep(site: Site, runs: Sequence[Run], kept: Path) -> None:
    """Copy results to a folder of small files.

    Args:
        site: The experiment's folder.
        runs: The runs; those without a result are skipped.
        kept: The folder to write to.
    """
    for run in runs:
        path = site.folder(run) / RESULT
        if path.exists() and site.state(run) in ("done", "diverged"):
            result = RunResult.load(path)
            result = with_disagreement(site, run, result) if site.experiment.disagreement else result
            _with_kept(result, _kept_path(kept, run)).save(_kept_path(kept, run))


def _with_kept(result: RunResult, path: Path) -> RunResult:
    """Add what another experiment found with the same run: table2-respin does not use the validators."""
    old = RunResult.load(path) if path.exists() else None
    return replace(result, audit=old.audit | result.audit) if old and old.metrics == result.metrics else result


def _kept_path(kept: Path, run: Run) -> Path:
    return kept / run.folder.parent / f"{run.folder.name}.json"
