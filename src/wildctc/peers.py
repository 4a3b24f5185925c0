"""Notices which process of a group was killed, was stopped, hangs or never came, and says so in one line.

An exchange waits for all processes and cannot tell one that is slow from one that is gone. So a thread of each process
writes a beat to the group's store every few seconds, whatever else the process is at, and reads those of the others. A
second thread judges what the first has heard. It never waits for anything but time and signals, so it can end the
process also while an exchange or the store hangs.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from wildctc.errors import WildCTCError

T = TypeVar("T")
log = logging.getLogger(__name__)
BEAT = 5.0  # seconds between beats
SILENCE = 60.0  # seconds without a beat until a process is taken for lost
ARRIVAL = 600.0  # seconds that all may take to come, machines and disks differ; who is late is named after SILENCE
AGAIN = "run the same command again, and it goes on"


def connect(host: bool = False) -> dist.Store:
    """The group's store. host: whether this process keeps it, unless torchrun does."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(
        address, port, is_master=host and not _kept_by_torchrun(), wait_for_workers=False,
        timeout=timedelta(seconds=SILENCE),
    )  # fmt: skip
    return dist.PrefixStore(f"wildctc {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


class Peers:
    """The processes of a group as process `rank` of `size` sees them. `meet` comes first."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.exchanges = 0  # that this process has begun
        self._barriers = 0
        self.store: dist.Store | None = None
        self._names: list[tuple[str, int]] = []  # host and process id of each
        self._heard, self._answered = [time.monotonic()] * size, time.monotonic()  # when; the store's last answer
        self._counts = [0] * size  # exchanges that each has begun
        self._failed = False  # whether this or another process says why all of them end
        self._speaks = False  # whether this one does
        self._lock = threading.RLock()  # of two threads that want to say why, the one that may is not to be cut short
        self._exchange_failed = False
        self._stop, self._pipe, self._threads = threading.Event(), os.pipe(), list[threading.Thread]()
        self._before: Any = None  # what SIGTERM did before

    # ------------------------------------------------------------------------------------------- meeting and leaving

    def meet(self) -> dist.Store:
        """Wait until all processes are there, then keep an eye on them; returns the store that they share."""
        begun = time.monotonic()
        self.store = store = self._connect_first(begun)
        own = connect()  # of the first thread: this one may wait within the store
        self._write_beat(own, 0)
        store.set(f"name {self.rank}", f"{socket.gethostname()} {os.getpid()}")
        warned = False
        while late := [r for r in range(self.size) if not store.check([f"name {r}"])]:
            self._look_for_failure(store)
            waited = time.monotonic() - begun
            if waited > ARRIVAL:
                raise WildCTCError(f"{self._listed(late)} did not come within {waited:.0f} s: are all started?")
            if waited > SILENCE and not warned:
                warned = True
                if self.rank == min(set(range(self.size)) - set(late)):
                    _say_waiting(self._listed(late))
            time.sleep(0.05)
        names = [store.get(f"name {r}").decode().rsplit(" ", 1) for r in range(self.size)]
        self._names = [(host, int(pid)) for host, pid in names]
        self._watch(own)
        return store

    def _connect_first(self, begun: float) -> dist.Store:
        """torch would print its own stack while nobody answers, so it is asked only then."""
        warned = self.rank > 1  # rank 0 or 1 says it
        while (self.rank or _kept_by_torchrun()) and not _answers():
            waited = time.monotonic() - begun
            if waited > ARRIVAL:
                raise WildCTCError(f"no answer from {_keeper()} within {waited:.0f} s: is it started?")
            if waited > SILENCE and not warned:
                warned = True
                _say_waiting(_keeper())
            time.sleep(0.1)
        return connect(host=self.rank == 0)

    def _watch(self, store: dist.Store) -> None:
        now = time.monotonic()
        self._heard, self._answered = [now] * self.size, now
        self._threads = [
            threading.Thread(target=self._beat, args=(store,), daemon=True),
            threading.Thread(target=self._judge, daemon=True),
        ]
        if threading.current_thread() is threading.main_thread():
            for end in self._pipe:
                os.set_blocking(end, False)
            # A signal's number goes to the pipe at once, also while the main thread waits within torch.
            self._before = signal.signal(signal.SIGTERM, self._told_to_end)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for thread in self._threads:
            thread.start()

    def _told_to_end(self, *_: object) -> None:
        if not self._threads[1].is_alive() and not self._stop.is_set():  # nobody reads the pipe
            os._exit(128 + signal.SIGTERM)

    def leave(self) -> None:
        """Part when all have come to the end."""
        assert self.store is not None
        self.barrier()
        self.store.add("left", 1)
        begun = time.monotonic()
        while self.rank == 0 and self.store.add("left", 0) < self.size and time.monotonic() - begun < 5:
            time.sleep(0.01)  # it may keep the store
        self.stop()
        if self._before is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, self._before)

    def stop(self) -> None:
        """Look no more. SIGTERM stays without effect: what ends this process is to be said before torchrun ends it."""
        self._stop.set()
        for thread in self._threads[:1]:
            thread.join(2)  # one that asks the store while Python ends would crash it

    def barrier(self) -> None:
        """Wait until all have come here, for as long as they live."""
        assert self.store is not None
        self._barriers += 1
        key, pause = f"barrier {self._barriers}", 0.001
        self.store.add(key, 1)
        while self.store.add(key, 0) < self.size:
            self._look_for_failure(self.store)
            time.sleep(pause)
            pause = min(0.2, 2 * pause)

    def _look_for_failure(self, store: dist.Store) -> None:
        if self._hears_of_failure(store):
            raise WildCTCError("another process failed")

    # ----------------------------------------------------------------------------------------------------- watching

    def _write_beat(self, store: dist.Store, number: int) -> None:
        store.set(f"beat {self.rank}", f"{number} {self.exchanges}")

    def _beat(self, store: dist.Store) -> None:
        """The first thread: the only one that may hang with the store."""
        number, known = 0, [b""] * self.size
        while not self._stop.wait(BEAT if number else 0):
            number += 1
            try:
                self._write_beat(store, number)
                beats = store.multi_get([f"beat {r}" for r in range(self.size)])
                self._hears_of_failure(store)
            except (dist.DistError, RuntimeError):
                continue
            self._answered = now = time.monotonic()
            for r, beat in enumerate(beats):
                if beat != known[r]:
                    self._heard[r], self._counts[r] = now, int(beat.split()[1])
            known = beats

    def _judge(self) -> None:
        """The second thread: ends this process when another is lost, or when it is told to end."""
        looked = time.monotonic()
        while not self._stop.is_set():
            ready = select.select([self._pipe[0]], [], [], BEAT)[0]
            signals = os.read(self._pipe[0], 1024) if ready else b""
            if self._stop.is_set():
                return
            now = time.monotonic()
            if now - looked > SILENCE / 2:  # this process itself was stopped, and all others may have been
                self._heard, self._answered = [now] * self.size, now
            looked = now
            if signal.SIGTERM in signals:
                lost = f"another process was lost; {AGAIN}"
                told = f"{self._listed([self.rank])} was told to end (SIGTERM); {AGAIN}"
                self._end(self.dead(), 128 + signal.SIGTERM, lost if self._exchange_failed else told)
            elif now - self._answered > SILENCE:
                self._end([], 2, f"no answer from {_keeper()} for {SILENCE:.0f} s; {AGAIN}")
            elif silent := self.silent():
                self._end(silent, 2)

    def _end(self, lost: Sequence[int], code: int, otherwise: str = "") -> None:
        """Say what is lost, or else `otherwise`, unless another process has said why, and end."""
        with self._lock:
            if self.first_to_fail():
                log.error("wildctc: %s", self.describe(lost) if lost else otherwise)
                logging.shutdown()
            elif self._speaks:
                return  # the main thread is about to
            os._exit(code)  # the main thread may wait for ever

    def first_to_fail(self) -> bool:
        """Whether this process is the one to say why all of them end. Without the store, the lowest rank is."""
        store = self.store
        if store is None:
            return True
        with self._lock:
            if self._failed:
                return False
            self._failed = True
            lost = {*self.dead(), *self.silent()}
            lowest = min(set(range(self.size)) - lost)
            self._speaks = _within(10 + 2 * BEAT, lambda: self._claim(store, lost), self.rank == lowest)
            return self._speaks

    def _claim(self, store: dist.Store, lost: set[int]) -> bool:
        first = store.add("failed", 1) == 1
        if not first:
            store.add("heard", 1)
        deadline = time.monotonic() + 5 + 2 * BEAT
        if self.rank == 0 and not _kept_by_torchrun():  # the store ends with this process: all others must know before
            while store.add("heard", 0) < self.size - 1 - len(lost) and time.monotonic() < deadline:
                time.sleep(0.02)
        return first

    def _hears_of_failure(self, store: dist.Store) -> bool:
        if not self._failed and store.check(["failed"]):
            self._failed = True
            store.add("heard", 1)
        return self._failed

    # --------------------------------------------------------------------------------------------- who, and what of it

    def dead(self) -> list[int]:
        """Ranks of processes on this machine that have ended."""
        here = socket.gethostname()
        others = [(r, pid) for r, (host, pid) in enumerate(self._names) if host == here and r != self.rank]
        return [r for r, pid in others if _has_ended(pid)]

    def silent(self) -> list[int]:
        """Ranks of processes that have not been heard of for long."""
        now, met = time.monotonic(), bool(self._names)
        return [r for r, heard in enumerate(self._heard) if met and r != self.rank and now - heard > SILENCE]

    def why(self, error: BaseException) -> str:
        """Why an exchange failed. Looks for who is gone until it is found, as long as silence takes to be one."""
        if not self._names:
            return f"no answer from {_keeper()}; {AGAIN}"
        self._exchange_failed = True
        deadline = time.monotonic() + SILENCE + 2 * BEAT
        if "timed out" in str(error).lower():
            behind = [r for r, count in enumerate(self._counts) if count < max(self._counts)]
            if behind:
                return f"{self._listed(behind)} kept the others waiting for too long (a disk that hangs?); {AGAIN}"
        while time.monotonic() < deadline and not self._failed:
            if lost := self.dead() or self.silent():
                return self.describe(lost)
            time.sleep(0.1)
        return f"another process was lost; {AGAIN}"

    def describe(self, lost: Sequence[int]) -> str:
        """What happened to them, and what to do."""
        if set(lost) <= set(self.dead()):
            return f"{self._listed(lost)} was killed (out of memory?); {AGAIN}"
        return f"{self._listed(lost)} did not answer for {SILENCE:.0f} s (stopped, or its machine lost?); {AGAIN}"

    def _listed(self, ranks: Sequence[int]) -> str:
        """
        >>> Peers(0, 4)._listed([1, 2])
        'process of rank 1, 2 of 4'
        """
        known = [f" (process id {pid} on {host})" for host, pid in self._names] or [""] * self.size
        return f"process of rank {', '.join(f'{r}{known[r]}' for r in ranks)} of {self.size}"


def _say_waiting(whom: str) -> None:
    log.critical("wildctc: waiting for %s", whom)  # all but the first process say nothing less, see log_level


def _kept_by_torchrun() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _keeper() -> str:
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    return f"{'torchrun' if _kept_by_torchrun() else 'the process of rank 0'} at {place}"


def _answers() -> bool:
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=5).close()
    except OSError:
        return False
    return True


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except ProcessLookupError:
        return True
    except OSError:  # another user's, or no Linux
        return False
    return state == "Z"


def _within(seconds: float, ask: Callable[[], T], otherwise: T) -> T:
    """The answer if there is one in time: a store whose keeper was stopped never gives one."""
    answers: list[T] = []

    def wait() -> None:
        try:
            answers.append(ask())
        except (dist.DistError, RuntimeError):
            answers.append(otherwise)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else otherwise
