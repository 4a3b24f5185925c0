"""Which backend computes a batch."""

import importlib.util
import warnings
from typing import Literal

import torch

from wildctc.lattice.arcs import Lattice
from wildctc.lattice.graph_batch import GraphBatch

Backend = Literal["auto", "reference", "native", "triton"]

HAS_TRITON = importlib.util.find_spec("triton") is not None
_warned: set[str] = set()  # what a warning has been given for


def choose_graph_backend(backend: Backend, batch: GraphBatch) -> str:
    """Choose the backend for graphs that are not chains: native on the CPU, the reference elsewhere.

    Args:
        backend: What the caller asked for.
        batch: The batch.

    Returns:
        "native" or "reference".

    Raises:
        ValueError: The backend is unknown or computes no graphs, or does not work on the device of the logits.
    """
    device = batch.logits.device
    if backend == "triton":
        raise ValueError('backend="triton" computes no graphs with alternatives; use "reference" or "auto"')
    if backend not in ("auto", "reference", "native"):
        raise ValueError(f'backend must be "auto", "reference", "native" or "triton", got {backend!r}')
    if backend == "native" and device.type != "cpu":
        raise ValueError(f'backend="native" needs CPU tensors, logits are on {device}')
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "native"
    warn_of_reference(f"{device.type}, of graphs,", "there is no kernel for graphs with alternatives there")
    return "reference"


def choose_backend(backend: Backend, lattice: Lattice) -> str:
    """Choose the backend for a batch.

    Args:
        backend: What the caller asked for. "auto" is native on the CPU, triton on a GPU if it is installed, and
            reference everywhere else, with a warning.
        lattice: The batch.

    Returns:
        "native", "triton" or "reference".

    Raises:
        ValueError: The backend is unknown, or does not work on the device of the logits.
    """
    if backend not in ("auto", "reference", "native", "triton"):
        raise ValueError(f'backend must be "auto", "reference", "native" or "triton", got {backend!r}')
    device = lattice.logits.device
    if backend == "native" and device.type != "cpu":
        raise ValueError(f'backend="native" needs CPU tensors, logits are on {device}')
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "native"
    if device.type == "cuda" and HAS_TRITON:  # ROCm's devices have this name too
        return "triton"
    reason = "triton is not installed (extra gpu)" if device.type == "cuda" else "there is no kernel for it"
    warn_of_reference(device.type, reason)
    return "reference"


def warn_of_reference(what: str, reason: str) -> None:
    """Warn once that the slow backend was chosen.

    Args:
        what: Where it is used.
        reason: Why.
    """
    if not torch.compiler.is_compiling() and what not in _warned:
        _warned.add(what)
        warnings.warn(f"on {what} the lattice uses the slow reference backend, because {reason}", stacklevel=4)
