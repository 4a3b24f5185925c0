"""`wildctc reproduce`."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.experiments.grid import Run
    from wildctc.experiments.workspace import Site


def register(add: Add) -> None:
    p = add("reproduce", run, "Run an experiment of the paper, or ours on Iban, from corpus to table.")
    p.add_argument(
        "experiment", metavar="EXPERIMENT", help="such as table2-fleurs, figure2-tau or iban; list: name all"
    )
    p.add_argument("--data", metavar="DIR", help="the corpus as it was published")
    p.add_argument("--out", metavar="DIR", help="where everything goes; the same command resumes there")
    p.add_argument("--tasks", nargs="+", default=[], metavar="NAME", help="only these, such as hi_in")
    p.add_argument("--criteria", nargs="+", default=[], metavar="NAME", help="only these")
    p.add_argument("--seeds", nargs="+", type=int, default=[], metavar="K", help="these instead of the declared ones")
    p.add_argument("--runs", nargs="+", default=[], metavar="NAME", help="only these, such as 'iban/otc-tw*/seed0'")
    p.add_argument("--shard", metavar="I/N", help="every n-th run from the i-th: this machine's part")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="runs side by side, a GPU each (default 1)")
    p.add_argument("--dry-run", action="store_true", help="print the runs, their sizes and an estimate of the time")
    p.add_argument(
        "--rate", type=float, metavar="R", help="for --dry-run: hours of speech that a run trains on in an hour"
    )
    p.add_argument("--keep", metavar="DIR", help="copy each run's result there: small files, enough for the tables")
    p.add_argument(
        "--from", dest="kept", metavar="DIR", help="write the tables from a folder of --keep, without the runs"
    )
    p.add_argument("--validators", metavar="DIR", help="table4-disagreement: what several people wrote, by language")
    p.epilog = "Further settings, such as --encoder.blocks 2, are passed on to every `wildctc train`."
    p.set_defaults(settings=[])


def run(options: argparse.Namespace) -> None:
    from wildctc.experiments.catalogue import EXPERIMENTS, find_experiment
    from wildctc.experiments.grid import select
    from wildctc.experiments.workspace import Site

    if options.experiment == "list":
        width = max(map(len, EXPERIMENTS))
        print("\n".join(f"{e.name:<{width}}  {len(e.runs):>3} runs: {e.about}" for e in EXPERIMENTS.values()))
        return
    experiment = find_experiment(options.experiment)
    if experiment.only_kept and not (options.kept or options.dry_run):
        raise WildCTCError(f"{experiment.name} is {experiment.about}")
    if options.out is None:
        raise WildCTCError("--out DIR is needed: where everything goes")
    if options.jobs < 1:
        raise WildCTCError(f"--jobs must be at least 1, got {options.jobs}")
    if options.kept and options.settings:
        raise WildCTCError(f"{options.settings[0]}: --from takes the settings that the results have")
    runs = select(experiment.runs, options.tasks, options.criteria, options.seeds, options.runs)
    mine = experiment.shard(runs, options.shard) if options.shard else runs
    site = Site(experiment, Path(options.out), tuple(options.settings))
    for one in runs:
        site.config(one)  # finds a wrong setting before the work
    if options.dry_run:
        from wildctc.experiments.estimate import estimate

        print(estimate(site, runs, options.jobs, options.rate, options.shard))
    elif options.kept:
        _report_kept(site, runs, Path(options.kept))
    else:
        _run(options, site, runs, mine)


def _run(options: argparse.Namespace, site: Site, runs: list[Run], mine: list[Run]) -> None:
    from wildctc.experiments.scheduler import Runner, collect, keep
    from wildctc.experiments.subprocesses import Commands
    from wildctc.experiments.validators import disagree, find_validators, not_compared
    from wildctc.files import make_folder

    if options.data is None or not Path(options.data).exists():
        raise WildCTCError(
            f"--data {options.data}: no such folder" if options.data else "--data DIR is needed: the corpus"
        )
    kept = make_folder(Path(options.keep)) if options.keep else None
    validators = {}
    if site.experiment.disagreement:
        folder = Path(options.validators) if options.validators else None
        validators = find_validators(folder, list(dict.fromkeys(one.task.name for one in runs)))
    runner = Runner(site, Path(options.data), options.jobs, kept, lambda text: print(text, flush=True))
    problems: list[str] = []
    before = signal.signal(signal.SIGTERM, _interrupt)  # so that the commands that it started end with it
    try:
        runner.run(mine)
        if validators:
            problems = disagree(site, runs, validators, Commands(1))
    finally:
        signal.signal(signal.SIGTERM, before)
        results, missing = collect(site, runs, runner.failed)
        _report(site, results, missing, [*not_compared(site, results), *problems])
        if kept:
            keep(site, runs, kept)
    if problems:
        raise WildCTCError(problems[0])
    if runner.failed:
        raise WildCTCError(f"{len(runner.failed)} of {len(mine)} runs failed; the same command tries them again")
    if missing := collect(site, mine, {})[1]:  # another process is working on them, or somebody stopped them
        raise WildCTCError(f"{len(missing)} of {len(mine)} runs are not done ({missing[0]}); the same command resumes")


def _report_kept(site: Site, runs: list[Run], kept: Path) -> None:
    from wildctc.experiments.scheduler import collect_kept

    _report(site, *collect_kept(site, runs, kept))


def _report(site: Site, results: list[Any], missing: list[str], remarks: list[str] | None = None) -> None:
    from wildctc.experiments.outputs import write_outputs

    print(write_outputs(site.experiment.name, results, site.out, missing, remarks or []))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
