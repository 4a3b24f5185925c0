"""Files that are either whole or not there: temporary file, flush, fsync, rename.

A run can be killed at any moment and a disk can fill up; what was written before stays readable, and the user sees
one line that says what could not be written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from wildctc.errors import MissingExtra, WildCTCError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write `path` into one clear line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise WildCTCError(f"cannot write {path}: {reason}; what was saved before is intact") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, so that a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """`write_atomically` for text."""
    write_atomically(path, as_bytes(text))


def as_bytes(text: str) -> bytes:
    """UTF-8. Half a surrogate pair, which a JSON file may hold and UTF-8 may not, becomes JSON's own way to write it.

    >>> as_bytes("\\ud83d"), as_bytes("é").hex()
    (b'\\\\ud83d', 'c3a9')
    """
    return text.encode("utf-8", "backslashreplace")


def make_folder(path: Path) -> Path:
    """The folder, made if need be."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def check_writable(path: Path, source: str | Path | None = None) -> None:
    """Find out before long work whether `path` can be written after it. source: what it is made from, and must stay."""
    make_folder(path.parent)
    if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
        raise WildCTCError(f"cannot write {path}: it is what is read, and would be lost; give another name")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        reason = "is a directory" if path.is_dir() else "permission denied"
        raise WildCTCError(f"cannot write {path}: {reason}")


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Keep a second process from writing the same run. The lock goes with the process, however that ends."""
    with writing(lock):
        file = open(lock, "w")  # noqa: SIM115 (closed below)
    with file:
        try:
            # Not flock: data-loading workers would inherit it, and outlive a killed run by some seconds.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WildCTCError(f"{lock.parent}: another process is training there; wait for it or stop it") from None
        yield


def remove_parts(folder: Path) -> None:
    """Remove temporary files that a killed run left behind."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a JSON state as one safetensors file: one rename commits both."""
    from_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, _safetensors().save(from_cpu, metadata={"state": json.dumps(state)}))


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `save_tensors` wrote. Nothing is unpickled."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except FileNotFoundError:
        raise WildCTCError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise WildCTCError(f"{path}: not a readable safetensors file ({error})") from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtra("safetensors", "train") from None
    return safetensors.torch
