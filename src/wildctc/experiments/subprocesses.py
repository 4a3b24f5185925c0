"""Commands of WildCTC, each a process of its own, of which several can run side by side, a GPU each."""

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
    """Somebody wants everything to end."""


class Commands:
    """Runs commands from several threads. What they say goes to files; `stop` ends all of them."""

    def __init__(self, jobs: int) -> None:
        self._environments: SimpleQueue[dict[str, str]] = SimpleQueue()
        for environment in environments(jobs):
            self._environments.put(environment)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self.stopped = threading.Lock(), False

    @contextmanager
    def place(self) -> Iterator[dict[str, str]]:
        """One of the places where a run can be trained, until it has ended."""
        environment = self._environments.get()
        try:
            yield environment
        finally:
            self._environments.put(environment)

    def run(self, words: Sequence[object], log: Path, environment: dict[str, str]) -> None:
        """Run `wildctc WORDS`. A command that fails is an error with its last words; Diverged if training has."""
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
        if code == 130 or (self.stopped and code):  # Ctrl-C reaches the command before it is heard of here
            raise Stopped
        if code == 3:
            raise Diverged(last_words(log))  # which is kept: no place on a disk in it
        if code:
            raise WildCTCError(f"{f'killed by signal {-code}' if code < 0 else last_words(log)} ({log})")

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            for process in self._running:
                process.terminate()


def environments(jobs: int) -> list[dict[str, str]]:
    """What tells each of several runs side by side from the others: its GPU, in turn; without one, a single thread."""
    import torch

    if not torch.cuda.is_available():
        return [{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} for _ in range(jobs)]
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    names = named or [str(i) for i in range(torch.cuda.device_count())]
    return [{"CUDA_VISIBLE_DEVICES": names[i % len(names)]} for i in range(jobs)]


def last_words(log: Path) -> str:
    """The last line that a command said."""
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1].removeprefix("wildctc: ")
