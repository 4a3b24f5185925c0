"""Write files atomically (temporary file, flush, fsync, rename), and read them from disks that fail for a moment.

A run can be killed at any moment, and a disk can fill up. What was written before stays readable, and the user sees one
line that says what could not be written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from wildctc.errors import WildCTCError

_T = TypeVar("_T")
# Errors of network disks and busy disks that can be over a second later.
_TEMPORARY = {
    errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT, errno.ENOTCONN,
    errno.ECONNRESET, errno.ECONNABORTED, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
}  # fmt: skip
WAITS = (0.1, 0.5, 2.0)  # seconds before each further attempt
MOST_FAILURES = 20  # files that still fail after waiting; then a process stops waiting, or a dead disk would take days
_failures = 0


def patiently(read: Callable[[], _T]) -> _T:
    """Read with a few attempts, if the disk reports an error that can be temporary.

    Args:
        read: Reads a file.

    Returns:
        What `read` returns.

    Raises:
        OSError: The last attempt failed, or the error is permanent.

    >>> patiently(lambda: 3)
    3
    """
    global _failures
    for wait in WAITS if _failures < MOST_FAILURES else ():
        try:
            return read()
        except OSError as error:
            if error.errno not in _TEMPORARY:
                raise
            time.sleep(wait)
    try:
        return read()
    except OSError as error:
        _failures += error.errno in _TEMPORARY
        raise


class Damaged(WildCTCError):
    """The content of a file is not what was written."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a WildCTCError.

    Args:
        path: What is being written, for the message.

    Yields:
        Nothing.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise WildCTCError(f"cannot write {path}: {reason}; what was saved before is intact") from None


def write_atomically(path: Path, content: bytes, keep: Path | None = None) -> None:
    """Replace a file, so that a reader sees the old file or the new one, never a part.

    Args:
        path: The file.
        content: The new content.
        keep: Where the old file is kept; None removes it. It is linked there after the new file is safe on the disk, so
            that `path` exists at every moment, and a full disk leaves both files as they were.

    Raises:
        WildCTCError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if keep is not None and path.exists():
                _link(path, keep)
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def put_file(path: Path, content: bytes, parts: Path, replace: bool = False) -> bool:
    """Write a file that other processes may be writing too: whole or not at all, and the first one stays.

    It is not synced: its content must tell whether it is damaged. Raises OSError.

    Args:
        path: The file; its folder is made if it does not exist.
        content: What it shall hold.
        parts: A folder on the same disk for the file while it is being written; see `remove_parts`.
        replace: The last one stays.

    Returns:
        Whether it was written.
    """
    parts.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = parts / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part"
    try:
        part.write_bytes(content)
        if not replace:
            try:
                os.link(part, path)
                return True
            except FileExistsError:
                return False
            except OSError:  # a disk without hard links
                pass
        os.replace(part, path)
        return True
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically.

    Args:
        path: The file.
        text: The new content.
    """
    write_atomically(path, as_bytes(text))


def as_bytes(text: str) -> bytes:
    """Encode text as UTF-8.

    Args:
        text: Any text. Half a surrogate pair, which JSON allows and UTF-8 does not, is written as JSON escapes it.

    Returns:
        The bytes.

    >>> as_bytes("\\ud83d"), as_bytes("é").hex()
    (b'\\\\ud83d', 'c3a9')
    """
    return text.encode("utf-8", "backslashreplace")


def make_folder(path: Path) -> Path:
    """Make a folder, unless it exists.

    Args:
        path: The folder; folders above it are made too.

    Returns:
        The same path.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def check_writable(path: Path, source: str | Path | None = None) -> None:
    """Check before long work that its result can be written.

    Args:
        path: The file to write; its folder is made.
        source: A file that is read, and must not be overwritten.

    Raises:
        WildCTCError: It cannot be written, or is the source.
    """
    make_folder(path.parent)
    if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
        raise WildCTCError(f"cannot write {path}: it is the input, and would be overwritten; give another name")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        reason = "is a directory" if path.is_dir() else "permission denied"
        raise WildCTCError(f"cannot write {path}: {reason}")


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Keep a second process from writing the same run.

    Args:
        lock: The lock file. The operating system releases the lock when the process ends, even if it is killed.

    Yields:
        Nothing.

    Raises:
        WildCTCError: Another process has the lock.
    """
    with writing(lock):
        file = open(lock, "w")  # noqa: SIM115 (closed below)
    with file:
        try:
            # not flock: data-loading workers would inherit the lock, and outlive a killed run by some seconds
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WildCTCError(f"{lock.parent}: another process is training there; wait for it or stop it") from None
        yield


def remove_parts(folder: Path, older_than: float = 0.0) -> None:
    """Remove temporary files that killed processes left behind.

    Args:
        folder: Where they are; it need not exist.
        older_than: Seconds since they were last written to, for a folder that other processes may be using.
    """
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if part.stat().st_mtime <= time.time() - older_than:
                part.unlink()


def _link(path: Path, other: Path) -> None:
    """Make `other` a hard link to `path`, in one step; a copy if the disk has no links."""
    temporary = other.with_name(f".{other.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:
        shutil.copyfile(path, temporary)
    os.replace(temporary, other)
    temporary.unlink(missing_ok=True)  # os.replace does nothing if both are links to the same file


def read_json(path: Path, limit: int) -> Any:
    """Read a JSON file.

    Args:
        path: The file.
        limit: The most bytes that it may have.

    Returns:
        Its content.

    Raises:
        WildCTCError: It cannot be read, is too large or is not JSON.
    """
    try:
        return json.loads(read_bytes(path, limit))
    except RecursionError:
        raise WildCTCError(f"{path}: cannot be read (nested too deeply)") from None
    except ValueError as error:
        raise WildCTCError(f"{path}: cannot be read ({error})") from None


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file that may come from a stranger.

    Args:
        path: The file. A pipe or a device, which might never end, is refused.
        limit: The most bytes that it may have.

    Returns:
        Its content.

    Raises:
        WildCTCError: It cannot be read or is too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise WildCTCError(f"{path}: cannot be read (not a file)")
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise WildCTCError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > limit:
        raise WildCTCError(f"{path}: cannot be read (more than {limit:,} bytes)")
    return content


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
