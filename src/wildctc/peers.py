"""Find out which process of a group was killed, was stopped, hangs or never started, and report it in one line.

An exchange waits for all processes and cannot tell a slow process from one that is gone. So a thread of each process
writes a heartbeat to the group's store every few seconds, whatever the process does, and reads those of the others. A
second thread decides from them whether a process is lost. It waits only for time and signals, so it can end the process
even while an exchange or the store hangs.
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

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
BEAT = 5.0  # seconds between heartbeats
SILENCE = 60.0  # seconds without a heartbeat after which a process counts as lost
ARRIVAL = 600.0  # seconds within which all must start; late processes are named after SILENCE
_RESUME = "run the same command again to resume"


def _connect(host: bool = False) -> dist.Store:
    """Connect to the group's store. host: whether this process runs it, unless torchrun does."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(
        address, port, is_master=host and not _kept_by_torchrun(), wait_for_workers=False,
        timeout=timedelta(seconds=SILENCE),
    )  # fmt: skip
    return dist.PrefixStore(f"wildctc {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


class Peers:
    """The processes of a group, as one of them sees them. Call `meet` first.

    Attributes:
        rank: The number of this process, from 0.
        size: The number of processes.
        exchanges: How many exchanges this process has begun; the caller counts.
        store: The store that the processes share; None before `meet`.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.exchanges = 0
        self._barriers = 0
        self.store: dist.Store | None = None
        self._names: list[tuple[str, int]] = []  # host and process id of each
        self._heard, self._answered = (
            [time.monotonic()] * size,
            time.monotonic(),
        )  # times of the last heartbeats, and of the store's last answer
        self._counts = [0] * size  # exchanges that each process has begun
        self._failed = False  # whether this or another process reports why all of them end
        self._speaks = False  # whether this process reports it
        self._lock = threading.RLock()  # keeps one thread from ending the process while another reports
        self._exchange_failed = False
        self._stop, self._pipe, self._threads = threading.Event(), os.pipe(), list[threading.Thread]()
        self._before: Any = None  # the handler of SIGTERM before

    # ------------------------------------------------------------------------------------------- meeting and leaving

    def meet(self) -> dist.Store:
        """Wait until all processes have started, then begin to watch them.

        Returns:
            The store that the processes share.

        Raises:
            WildCTCError: A process is missing.
        """
        begun = time.monotonic()
        self.store = store = self._connect_first(begun)
        own = _connect()  # for the heartbeat thread, because this thread may block in its own
        self._write_beat(own, 0)
        store.set(f"name {self.rank}", f"{socket.gethostname()} {os.getpid()}")
        warned = False
        while late := [r for r in range(self.size) if not store.check([f"name {r}"])]:
            self._look_for_failure(store)
            waited = time.monotonic() - begun
            if waited > ARRIVAL:
                raise WildCTCError(f"{self._listed(late)} did not start within {waited:.0f} s: are all started?")
            if waited > SILENCE and not warned:
                warned = True
                if self.rank == min(set(range(self.size)) - set(late)):
                    _report_waiting(self._listed(late))
            time.sleep(0.05)
        names = [store.get(f"name {r}").decode().rsplit(" ", 1) for r in range(self.size)]
        self._names = [(host, int(pid)) for host, pid in names]
        self._watch(own)
        return store

    def _connect_first(self, begun: float) -> dist.Store:
        """Connect when the store answers: torch prints a stack trace for each failed attempt."""
        warned = self.rank > 1  # rank 0 or 1 reports it
        while (self.rank or _kept_by_torchrun()) and not _answers():
            waited = time.monotonic() - begun
            if waited > ARRIVAL:
                raise WildCTCError(f"no answer from {_keeper()} within {waited:.0f} s: is it started?")
            if waited > SILENCE and not warned:
                warned = True
                _report_waiting(_keeper())
            time.sleep(0.1)
        return _connect(host=self.rank == 0)

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
            # the number of a signal is written to the pipe at once, even while the main thread waits in torch
            self._before = signal.signal(signal.SIGTERM, self._on_sigterm)
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for thread in self._threads:
            thread.start()

    def _on_sigterm(self, *_: object) -> None:
        if not self._threads[1].is_alive() and not self._stop.is_set():  # no thread reads the pipe
            os._exit(128 + signal.SIGTERM)

    def leave(self) -> None:
        """Wait until all processes have come to the end, then stop watching."""
        assert self.store is not None
        self.barrier()
        self.store.add("left", 1)
        begun = time.monotonic()
        while self.rank == 0 and self.store.add("left", 0) < self.size and time.monotonic() - begun < 5:
            time.sleep(0.01)  # this process may run the store, which the others still use
        self.stop()
        if self._before is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, self._before)

    def stop(self) -> None:
        """Stop watching. SIGTERM stays without effect, so that this process can still report its error."""
        self._stop.set()
        for thread in self._threads[:1]:
            thread.join(2)  # a thread that uses the store while Python shuts down would crash it

    def barrier(self) -> None:
        """Wait until all processes have called this, as long as they are alive."""
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
        """The first thread: exchanges heartbeats. It is the only thread that may hang with the store."""
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
        """The second thread: ends this process when another is lost, or on SIGTERM."""
        looked = time.monotonic()
        while not self._stop.is_set():
            ready = select.select([self._pipe[0]], [], [], BEAT)[0]
            signals = os.read(self._pipe[0], 1024) if ready else b""
            if self._stop.is_set():
                return
            now = time.monotonic()
            if now - looked > SILENCE / 2:  # this process was stopped itself, and perhaps all others with it
                self._heard, self._answered = [now] * self.size, now
            looked = now
            if signal.SIGTERM in signals:
                lost = f"another process was lost; {_RESUME}"
                told = f"{self._listed([self.rank])} was told to end (SIGTERM); {_RESUME}"
                self._end(self.dead(), 128 + signal.SIGTERM, lost if self._exchange_failed else told)
            elif now - self._answered > SILENCE:
                self._end([], 2, f"no answer from {_keeper()} for {SILENCE:.0f} s; {_RESUME}")
            elif silent := self.silent():
                self._end(silent, 2)

    def _end(self, lost: Sequence[int], code: int, otherwise: str = "") -> None:
        """End this process; first report the lost ones, or else `otherwise`, unless another process has reported."""
        with self._lock:
            if self.first_to_fail():
                _log.error("wildctc: %s", self.describe(lost) if lost else otherwise)
                logging.shutdown()
            elif self._speaks:
                return  # the main thread is about to report
            os._exit(code)  # the main thread may be blocked

    def first_to_fail(self) -> bool:
        """Decide which process reports why all of them end.

        Returns:
            Whether it is this one: the first that asks the store, or without the store the lowest rank.
        """
        store = self.store
        if store is None:
            return True
        with self._lock:
            lost = {*self.dead(), *self.silent()}
            if self._failed:
                _within(10 + 2 * BEAT, lambda: self._wait_until_heard(store, lost), None)
                return False
            self._failed = True
            lowest = min(set(range(self.size)) - lost)
            self._speaks = _within(10 + 2 * BEAT, lambda: self._claim(store, lost), self.rank == lowest)
            return self._speaks

    def _claim(self, store: dist.Store, lost: set[int]) -> bool:
        first = store.add("failed", 1) == 1
        store.set(f"heard {self.rank}", "")
        self._wait_until_heard(store, lost)
        return first

    def _wait_until_heard(self, store: dist.Store, lost: set[int]) -> None:
        """Keep the store until all others have read that a process failed, if it ends with this process."""
        if self.rank != 0 or _kept_by_torchrun():
            return
        waiting, deadline = set(range(1, self.size)) - lost, time.monotonic() + 5 + 2 * BEAT
        while waiting and time.monotonic() < deadline:
            waiting = {r for r in waiting - {*self.dead()} if not store.check([f"heard {r}"])}
            time.sleep(0.02)

    def _hears_of_failure(self, store: dist.Store) -> bool:
        if not self._failed and store.check(["failed"]):
            self._failed = True
            store.set(f"heard {self.rank}", "")
        return self._failed

    # -------------------------------------------------------------------------------- which processes are lost, and why

    def dead(self) -> list[int]:
        """Find processes on this machine that have ended.

        Returns:
            Their ranks.
        """
        here = socket.gethostname()
        others = [(r, pid) for r, (host, pid) in enumerate(self._names) if host == here and r != self.rank]
        return [r for r, pid in others if _has_ended(pid)]

    def silent(self) -> list[int]:
        """Find processes without a heartbeat for SILENCE seconds.

        Returns:
            Their ranks.
        """
        now, met = time.monotonic(), bool(self._names)
        return [r for r, heard in enumerate(self._heard) if met and r != self.rank and now - heard > SILENCE]

    def why(self, error: BaseException) -> str:
        """Find out why an exchange failed. This takes as long as a lost process takes to be noticed.

        Args:
            error: What the exchange raised.

        Returns:
            A message that names the lost process, if it can be found, and says what to do.
        """
        if not self._names:
            return f"no answer from {_keeper()}; {_RESUME}"
        self._exchange_failed = True
        deadline = time.monotonic() + SILENCE + 2 * BEAT
        if "timed out" in str(error).lower():
            behind = [r for r, count in enumerate(self._counts) if count < max(self._counts)]
            if behind:
                return f"{self._listed(behind)} kept the others waiting for too long (a disk that hangs?); {_RESUME}"
        while time.monotonic() < deadline and not self._failed:
            if lost := self.dead() or self.silent():
                return self.describe(lost)
            time.sleep(0.1)
        return f"another process was lost; {_RESUME}"

    def describe(self, lost: Sequence[int]) -> str:
        """Describe what happened to lost processes.

        Args:
            lost: Their ranks.

        Returns:
            A message that also says what to do.
        """
        if set(lost) <= set(self.dead()):
            return f"{self._listed(lost)} was killed (out of memory?); {_RESUME}"
        return f"{self._listed(lost)} did not answer for {SILENCE:.0f} s (stopped, or its machine lost?); {_RESUME}"

    def _listed(self, ranks: Sequence[int]) -> str:
        """
        >>> Peers(0, 4)._listed([1, 2])
        'process of rank 1, 2 of 4'
        """
        known = [f" (process id {pid} on {host})" for host, pid in self._names] or [""] * self.size
        return f"process of rank {', '.join(f'{r}{known[r]}' for r in ranks)} of {self.size}"


def _report_waiting(whom: str) -> None:
    _log.critical("wildctc: waiting for %s", whom)  # critical: other processes than the first log nothing less now


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
    except OSError:  # another user's process, or not Linux
        return False
    return state == "Z"


def _within(seconds: float, ask: Callable[[], _T], otherwise: _T) -> _T:
    """Ask with a time limit, because a store whose process was stopped never answers."""
    answers: list[_T] = []

    def wait() -> None:
        try:
            answers.append(ask())
        except (dist.DistError, RuntimeError):
            answers.append(otherwise)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else otherwise
