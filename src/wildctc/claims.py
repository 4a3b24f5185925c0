"""Pieces of work that several processes, on several machines, do side by side: each piece is claimed by a lock.

All claims of a folder are locks on single bytes of one file. The operating system releases them when a process ends,
even if it is killed, so that nobody waits for the dead. On a disk without locks, two processes may do the same piece;
the result must therefore be the same whoever makes it, and written whole.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from wildctc.distributed import settle_before_fork
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text, writing

_WAIT = 1.0  # seconds until a process looks again whether others have finished what they claimed
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class Claims:
    """The claims of one process on the pieces of work of a folder.

    A process must have one object for a file: closing a second one would release the locks of the first.

    Args:
        path: The file of locks; it is made.
    """

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        with writing(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)

    def take(self, number: int) -> bool:
        """Claim a piece, without waiting.

        Args:
            number: Of the piece, from 0.

        Returns:
            False if another process has claimed it.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def release(self, number: int) -> None:
        """Release a piece.

        Args:
            number: Of the piece.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def close(self) -> None:
        """Release all pieces."""
        os.close(self._file)


def agree_on(path: Path, settings: dict[str, Any]) -> None:
    """Note what the pieces of work depend on, or check that it is what others have noted.

    Args:
        path: A file beside the pieces.
        settings: What they depend on, as JSON.

    Raises:
        WildCTCError: The pieces that are there were made in another way.
    """
    if not path.exists():
        write_text(path, json.dumps(settings))
    there = json.loads(path.read_text(encoding="utf-8"))
    if other := [name for name, value in json.loads(json.dumps(settings)).items() if value != there.get(name)]:
        raise WildCTCError(
            f"{path.parent} was made with another {', '.join(other)}; remove it, or write elsewhere with -o"
        )


def once(path: Path, is_done: Callable[[], bool], do: Callable[[], object]) -> None:
    """Do what one of several processes must do, and wait until it is done.

    Args:
        path: The file of the lock.
        is_done: Tells whether it is done, by what it left on the disk.
        do: Does it.

    Raises:
        WildCTCError: It cannot be done.
    """
    list(work_through([0], path, lambda _: is_done(), lambda _: do()))


def work_through(
    numbers: Sequence[int],
    path: Path,
    is_done: Callable[[int], bool],
    do: Callable[[int], object],
    workers: int = 0,
) -> Iterator[int]:
    """Do pieces of work that nobody else is doing, until all are done by somebody.

    Several processes that begin at the same time begin at different pieces.

    Args:
        numbers: The pieces.
        path: The file of locks.
        is_done: Tells whether a piece is done, by what it left on the disk.
        do: Does a piece.
        workers: Processes that this one starts; 0 does the work in this one.

    Yields:
        The pieces, as this process or another one finishes them.

    Raises:
        WildCTCError: A piece cannot be done.
    """
    first = secrets.randbelow(max(1, len(numbers)))
    left = [*numbers[first:], *numbers[:first]]
    pieces = _Pieces(path, is_done, do)
    try:
        while left:
            found = set()
            if workers:
                settle_before_fork()
            loader = DataLoader(
                pieces, batch_size=None, sampler=left, num_workers=min(workers, len(left)),
                prefetch_factor=1 if workers else None, generator=torch.Generator(), worker_init_fn=one_thread,
            )  # fmt: skip
            for number, result in loader:
                if isinstance(result, WildCTCError):
                    raise result
                if result:
                    found.add(number)
                    yield number
            left = [number for number in left if number not in found]
            if left and not found:
                time.sleep(_WAIT)
    finally:
        pieces.close()


class _Pieces(Dataset[tuple[int, bool | WildCTCError]]):
    """Item n is piece n and whether it is done now: False if somebody else is doing it."""

    def __init__(self, path: Path, is_done: Callable[[int], bool], do: Callable[[int], object]) -> None:
        self.path, self.is_done, self.do = path, is_done, do
        self.claims: Claims | None = None

    def __getitem__(self, number: int) -> tuple[int, bool | WildCTCError]:
        if self.is_done(number):
            return number, True
        if self.claims is None:  # here: each data-loading process has its own
            self.claims = Claims(self.path)
        if not self.claims.take(number):
            return number, False
        try:
            if not self.is_done(number):
                self.do(number)
        except WildCTCError as error:  # returned, because an exception in a worker would be a traceback
            return number, error
        finally:
            self.claims.release(number)
        return number, True

    def close(self) -> None:
        if self.claims is not None:
            self.claims.close()


def one_thread(worker: int) -> None:
    """Use one thread in a data-loading process, so that it does not compete with the training step for the cores.

    Args:
        worker: The number of the process, which DataLoader passes.
    """
    torch.set_num_threads(1)
