"""`--engine ray`: the same command on the machines of a Ray cluster, which share its work by claims.

Ray starts a worker on each machine (or for each GPU), and starts a worker again that was lost. Which worker does which
piece is decided by the locks of `wildctc.claims`, as where somebody gives the command on each machine. So all machines
must share the folders, under the same paths.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from wildctc.child_processes import environment
from wildctc.errors import MissingExtra, WildCTCError

_log = logging.getLogger(__name__)
_STARTS = 5  # how often a worker is started again that was killed, or whose machine was lost
_ENGINE, _WORKERS = "--engine", "--ray-workers"


def split_engine(words: Sequence[str]) -> tuple[list[str], bool, int]:
    """Take the options of the engine out of a command line.

    Args:
        words: The words after `wildctc`.

    Returns:
        The other words; whether Ray is asked for; and how many workers, 0 for the default.

    Raises:
        WildCTCError: Another engine, or no number of workers.

    >>> split_engine(["pack", "a.jsonl", "--engine", "ray", "--ray-workers=4", "out"])
    (['pack', 'a.jsonl', 'out'], True, 4)
    """
    rest: list[str] = []
    found: dict[str, str] = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name in (_ENGINE, _WORKERS):
            found[name] = value if equals else left.pop(0) if left else ""
        else:
            rest.append(name + equals + value)
    engine, workers = found.get(_ENGINE, "here"), found.get(_WORKERS, "0")
    if engine not in ("here", "ray"):
        raise WildCTCError(f"{_ENGINE} is here or ray, got {engine!r}")
    if not workers.isdecimal():
        raise WildCTCError(f"{_WORKERS} is a number of workers, got {workers!r}")
    return rest, engine == "ray", int(workers)


def run_on_ray(words: Sequence[str], workers: int = 0, gpus: bool = False) -> None:
    """Run a command in several workers of a Ray cluster, until all its work is done.

    The cluster is that of RAY_ADDRESS, or one that runs on this machine; otherwise one is started for this call.

    Args:
        words: The words after `wildctc`, without those of the engine. The command must share its work by claims.
        workers: How many workers; 0: one for each GPU, if the command uses them and there are some, or one for each
            machine.
        gpus: Whether the command uses GPUs.

    Raises:
        WildCTCError: The command failed, or a worker was lost too often.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    try:
        ray.init(logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise WildCTCError(f"no Ray cluster: {str(error).splitlines()[0] if str(error) else error!r}") from None
    try:
        _wait(ray, [str(word) for word in words], workers, gpus)
    finally:
        ray.shutdown()


def _wait(ray: Any, words: list[str], workers: int, gpus: bool) -> None:
    machines = [int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0)]
    if not machines:
        raise WildCTCError("the Ray cluster has no machine with CPUs")
    available = int(ray.cluster_resources().get("GPU", 0)) if gpus else 0
    count = workers or available or len(machines)
    cpus = max(1, min(sum(machines) // count, *machines))
    options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": 1 if 0 < count <= available else 0}
    options |= {"max_retries": _STARTS, "retry_exceptions": [_Killed], "scheduling_strategy": "SPREAD"}
    work = ray.remote(**options)(_work)
    _log.info("Ray: %d workers on %d machines, with %d CPUs each", count, len(machines), cpus)
    running = [work.remote(words, os.getcwd()) for _ in range(count)]
    while running:
        done, running = ray.wait(running)
        try:
            failed = ray.get(done[0])
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or str(error).strip().splitlines()[0]
            raise WildCTCError(f"a worker of Ray was lost {_STARTS + 1} times: {cause}") from None
        if failed:
            raise WildCTCError(failed)


class _Killed(Exception):
    """A command that was killed, so that Ray starts it again."""


def _work(words: list[str], folder: str) -> str:
    """Run the command in a process of its own, which ends with the worker; returns what went wrong."""
    host = socket.gethostname()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "wildctc", *words], cwd=folder, env=environment({}), text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        return f"{host}: {folder}: {error.strerror}; all machines must see the same folders"
    last = ""
    assert process.stderr is not None
    for line in process.stderr:
        last = line.strip() or last
        sys.stderr.write(line)
    code = process.wait()
    if code < 0:
        raise _Killed(f"{host}: killed by signal {-code} (out of memory?): {last}")
    return f"{host}: {last.removeprefix('wildctc: ')}" if code else ""
