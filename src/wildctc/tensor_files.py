"""Files of tensors: one safetensors file with a JSON state and a checksum of both.

Apart from `files`, so that what needs no tensor does not wait for torch.
"""

from __future__ import annotations

import errno
import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import Damaged, write_atomically


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], state: dict[str, Any], keep: Path | None = None) -> None:
    """Write tensors and a JSON state, with a checksum of both, as one safetensors file: one rename commits all.

    Args:
        path: The file.
        tensors: Tensors by name, on any device.
        state: What JSON can hold.
        keep: Where the old file is kept (see `write_atomically`).
    """
    from_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # inside the state: safetensors writes several metadata fields in any order, and equal content must give equal files
    text = json.dumps(state | {"sha256": _checksum(from_cpu, state)})
    write_atomically(path, _safetensors().save(from_cpu, metadata={"state": text}), keep)


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read a file of `save_tensors`. Nothing is unpickled.

    Args:
        path: The file. One without a checksum, of another program or an older release, is accepted.

    Returns:
        The tensors and the state.

    Raises:
        Damaged: The content does not match its checksum, or cannot be read.
        WildCTCError: There is no such file, or it cannot be opened.
    """
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = json.loads(metadata.get("state", "{}"))
        if not isinstance(state, dict) or not metadata.keys() <= {"state", "format"}:
            raise Damaged(f"{path}: damaged: its metadata are not those of WildCTC")
        if state.pop("sha256", None) not in (None, _checksum(tensors, state)):
            raise Damaged(f"{path}: damaged: its content does not match its checksum")
        return tensors, state
    except FileNotFoundError:
        raise WildCTCError(f"{path}: no such file") from None
    except OSError as error:
        kind = Damaged if error.errno == errno.EIO else WildCTCError
        raise kind(f"{path}: cannot be read: {error.strerror or error}") from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise Damaged(f"{path}: not a readable safetensors file ({error})") from None


def _checksum(tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> str:
    """Compute SHA-256 of names, types, shapes and bytes of the tensors, and of the state."""
    found = hashlib.sha256(json.dumps(state).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingExtra("safetensors", "train") from None
    return safetensors.torch
