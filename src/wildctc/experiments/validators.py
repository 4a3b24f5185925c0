"""Table 4: compare the models of a language where validators disagree, by `wildctc disagree`.

Each model probes the dev and test sets. OUT/disagreement/<task>-seed<k>/ has a probe for each criterion, and
disagree.json. The transcripts of the paper's validators are not public, so they are a separate input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.experiments.grid import Run
from wildctc.experiments.results import RunResult
from wildctc.experiments.subprocesses import Commands
from wildctc.experiments.systems import CONTROL
from wildctc.experiments.workspace import Site
from wildctc.files import make_folder, write_atomically

_SETS = ("dev", "test")
_FOUND = "disagree.json"


def _folder_of(site: Site, run: Run) -> Path:
    return site.out / "disagreement" / f"{run.task.name}-seed{run.seed}"


def probe_of(site: Site, run: Run) -> Path:
    """Name the probe file of a run.

    Args:
        site: The experiment's folder.
        run: The run.

    Returns:
        The path. `disagree` takes the system's name from it.
    """
    return _folder_of(site, run) / f"{run.criterion}.jsonl"  # by which name `disagree` calls the system


def reference_of(site: Site, run: Run) -> Path:
    """Join the dev and test sets to one manifest, if it does not exist. Gzipped files can be concatenated.

    Args:
        site: The experiment's folder.
        run: A run of the task.

    Returns:
        The manifest.
    """
    folder = site.data / run.task.data
    path = folder / f"{'+'.join(_SETS)}.jsonl.gz"
    if not path.exists():
        write_atomically(path, b"".join((folder / f"{name}.jsonl.gz").read_bytes() for name in _SETS))
    return path


def find_validators(folder: Path | None, tasks: Sequence[str]) -> dict[str, list[Path]]:
    """Find the validators' files of each task.

    Args:
        folder: A folder with files that have the task in their name (hi_vendor1.tsv), or a folder for each task.
        tasks: The tasks.

    Returns:
        Task → files.

    Raises:
        WildCTCError: No folder is given, or it has no file of a task.
    """
    if folder is None:
        raise WildCTCError(
            "--validators DIR is needed: what several people wrote for RESPIN's dev and test sets, in files such as "
            "hi_vendor1.tsv or hi/vendor1.txt that `wildctc disagree` reads; the paper's own are not public"
        )
    found = {}
    for task in tasks:
        files = [path for path in sorted(folder.glob("*")) if path.is_file() and task in re.split(r"[_.-]", path.name)]
        found[task] = files or [path for path in sorted((folder / task).glob("*")) if path.is_file()]
        if not found[task]:
            raise WildCTCError(f"--validators {folder}: no files of {task} there, such as {task}_vendor1.tsv")
    return found


def disagree(site: Site, runs: Sequence[Run], validators: dict[str, list[Path]], commands: Commands) -> list[str]:
    """Compare the models of each task and seed that have probed.

    Args:
        site: The experiment's folder.
        runs: The runs.
        validators: Task → the validators' files.
        commands: Runs `wildctc disagree`.

    Returns:
        A line about each comparison that failed.
    """
    groups: dict[Path, list[Run]] = {}
    for run in runs:
        if probe_of(site, run).exists():
            groups.setdefault(_folder_of(site, run), []).append(run)
    problems = []
    for folder, members in groups.items():
        probes = [probe_of(site, run) for run in sorted(members, key=lambda run: run.criterion != CONTROL)]
        written = validators[members[0].task.name]
        if _is_up_to_date(folder / _FOUND, probes, written):
            continue
        data = site.config(members[0]).data
        choices = ("lower", "strip_punctuation", "keep_invisible")
        flags = [f"--{name.replace('_', '-')}" for name in choices if getattr(data, name)]
        words: list[object] = ["disagree", "--reference", reference_of(site, members[0]), "--validators"]
        words += [*written, *(word for path in probes for word in ("--probe", path))]
        words += ["--json", folder / _FOUND, "--csv", folder / "disagree.csv", *flags]
        try:
            with commands.place() as environment:
                commands.run(words, make_folder(folder) / "log.txt", environment)
        except WildCTCError as error:
            problems.append(f"disagreement of {members[0].task.name}: {error}")
    return problems


def with_disagreement(site: Site, run: Run, result: RunResult) -> RunResult:
    """Add to a result its part of the comparison.

    Args:
        site: The experiment's folder.
        run: The run.
        result: Its result.

    Returns:
        The result with `audit["disagreement"]`; unchanged if the run was not compared.
    """
    path = _folder_of(site, run) / _FOUND
    if not path.exists() or str(probe_of(site, run)) not in _probes(path):
        return result
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for group in content["groups"]:
        for numbers in group.values():
            if isinstance(numbers, dict) and "systems" in numbers:
                own = {name: value for name, value in numbers["systems"].items() if name == run.criterion}
                numbers["systems"] = own
    kept = {key: content[key] for key in ("annotators", "resamples", "self_loop", "baseline", "groups")}
    return replace(result, audit=result.audit | {"disagreement": kept})


def not_compared(site: Site, results: Sequence[RunResult]) -> list[str]:
    """Report models that were not compared with the validators.

    Args:
        site: The experiment's folder.
        results: The results of its runs.

    Returns:
        One line that names them, or none.
    """
    lack = [r for r in results if not r.diverged and "disagreement" not in r.audit]
    named = ", ".join(dict.fromkeys(f"{result.task} {result.criterion}" for result in lack))
    return [f"not compared with the validators: {named}"] if lack and site.experiment.disagreement else []


def _probes(path: Path) -> list[str]:
    """The probes that were compared."""
    return json.loads(path.read_text(encoding="utf-8"))["probes"] if path.exists() else []


def _is_up_to_date(path: Path, probes: Sequence[Path], validators: Sequence[Path]) -> bool:
    """Check whether these files were compared, and none has changed since."""
    if not path.exists():
        return False
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["probes"] != list(map(str, probes)) or content["validators"] != list(map(str, validators)):
        return False
    return max(given.stat().st_mtime_ns for given in (*probes, *validators)) <= path.stat().st_mtime_ns
