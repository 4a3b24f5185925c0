"""Run `wildctc` commands side by side, each in its own process: this uses two cores better than threads do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wildctc import child_processes as children
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, writing
from wildctc.progress import progress


def together(
    commands: Mapping[str, Sequence[str]], logs: Path, done: Callable[[], int] = lambda: 0, **bar: Any
) -> None:
    """Run commands at the same time. The first that fails stops the others.

    Args:
        commands: A name for each command → its words, without `wildctc`. Its output goes to LOGS/NAME.txt.
        logs: The folder of the logs.
        done: Counts the work that is done, for the progress bar.
        bar: Options of the progress bar.

    Raises:
        WildCTCError: A command failed; the message has its last line and the log.
    """
    with _started(commands, make_folder(logs)) as processes, progress(leave=False, **bar) as shown:
        while processes:
            for name, process in list(processes.items()):
                if process.poll() is not None:
                    del processes[name]
                    if process.returncode:
                        raise WildCTCError(_last_words(logs / f"{name}.txt"))
            shown.update(done() - shown.n)
            time.sleep(0.2)


@contextmanager
def _started(commands: Mapping[str, Sequence[str]], logs: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    threads = str(max(1, (os.cpu_count() or 1) // len(commands)))
    environment = children.environment({"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads})
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            with writing(logs), open(logs / f"{name}.txt", "wb") as out:
                processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "wildctc", *words], stdout=out, stderr=subprocess.STDOUT, env=environment
                )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()


def _last_words(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    said = [line.strip() for line in lines if line.strip()] or ["no output"]
    return f"{said[-1].removeprefix('wildctc: ')} (whole log: {path})"
