"""Run commands of WildCTC as processes, several side by side, each on its own GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from wildctc import child_processes as children
from wildctc.errors import Diverged, WildCTCError
from wildctc.files import make_folder, writing


class Stopped(Exception):
    """The user stopped everything."""


class Commands:
    """Runs commands from several threads. Their output goes to files; `stop` ends all of them.

    Attributes:
        stopped: Whether `stop` was called.

    Args:
        jobs: How many commands run side by side.
    """

    def __init__(self, jobs: int) -> None:
        self._environments: SimpleQueue[dict[str, str]] = SimpleQueue()
        for environment in environments(jobs):
            self._environments.put(environment)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self.stopped = threading.Lock(), False

    @contextmanager
    def place(self) -> Iterator[dict[str, str]]:
        """Reserve a place (a GPU, or a core) for a run.

        Yields:
            The environment variables of its commands.
        """
        environment = self._environments.get()
        try:
            yield environment
        finally:
            self._environments.put(environment)

    def run(self, words: Sequence[object], log: Path, environment: dict[str, str]) -> None:
        """Run `wildctc WORDS` and wait for it.

        Args:
            words: The words of the command.
            log: The file that its output is appended to.
            environment: Environment variables.

        Raises:
            Diverged: Training has diverged.
            Stopped: `stop` was called.
            WildCTCError: The command failed; the message is its last line.
        """
        line = [sys.executable, "-m", "wildctc", *map(str, words)]
        make_folder(log.parent)
        with writing(log), open(log, "ab") as out:
            out.write(f"+ wildctc {' '.join(line[3:])}\n".encode())
            out.flush()
            with self._lock:
                if self.stopped:
                    raise Stopped
                process = subprocess.Popen(
                    line, stdout=out, stderr=subprocess.STDOUT, env=children.environment(environment)
                )
                self._running.add(process)
        code = process.wait()
        with self._lock:
            self._running.discard(process)
        if code == 130 or (self.stopped and code):  # Ctrl-C reaches the command first
            raise Stopped
        if code == 3:
            raise Diverged(last_words(log))  # the result keeps this text, so it must not name a path
        if code:
            raise WildCTCError(f"{f'killed by signal {-code}' if code < 0 else last_words(log)} ({log})")

    def stop(self) -> None:
        """End all running commands, and let no new one start."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                process.terminate()


def environments(jobs: int) -> list[dict[str, str]]:
    """Choose environment variables for runs side by side.

    Args:
        jobs: How many runs.

    Returns:
        For each a GPU, in turn; without GPUs, a single thread.
    """
    import torch

    if not torch.cuda.is_available():
        return [{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} for _ in range(jobs)]
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = named or [str(i) for i in range(torch.cuda.device_count())]
    return [{"CUDA_VISIBLE_DEVICES": names[i % len(names)]} for i in range(jobs)]


def last_words(log: Path) -> str:
    """Read the last line of a log.

    Args:
        log: The output of a command.

    Returns:
        The line, without "wildctc: ".
    """
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1].removeprefix("wildctc: ")
