"""Read the files of a model folder. They may come from a stranger, so everything is checked before anything is built.

A few bytes of JSON can ask for any amount of memory and time. The shapes in the header of the weights are therefore
read first. They are as large as the file itself, and the configuration must agree with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import read_json

MODEL_FORMAT = 1
_CONFIG_BYTES = 1_000_000  # of config.json, which has a few hundred
_HEADER_BYTES = 20_000_000  # of the header of the weights, which has about 4,000 for a block
_LEAST_STD = 1e-6  # of a feature; training gives 1e-4 at least
_ADVICE = "get the folder again, or train anew"
_DTYPES = {"F32": torch.float32, "I64": torch.int64}

Tensors = dict[str, tuple[str, tuple[int, ...]]]  # name → type, as safetensors names it, and shape


def read_model_config(folder: Path) -> dict[str, Any]:
    """Read config.json.

    Args:
        folder: The model folder.

    Returns:
        Its content; `front_end` and `encoder` are objects, `units` is text.

    Raises:
        WildCTCError: The file is missing, not valid, or of another format.
    """
    path = folder / "config.json"
    config = read_json(path, _CONFIG_BYTES)
    if not isinstance(config, dict):
        raise WildCTCError(f"{path}: not a JSON object; {_ADVICE}")
    if "format" in config and config["format"] != MODEL_FORMAT:
        raise WildCTCError(
            f"{path}: format {str(config['format'])[:20]!r} of a model, this version reads {MODEL_FORMAT}"
        )
    for field, kind in (("front_end", dict), ("encoder", dict), ("units", str)):
        if field not in config:
            raise WildCTCError(f"{path}: no {field!r} in it: not written by WildCTC?")
        if not isinstance(config[field], kind):
            raise WildCTCError(f"{path}: {field} is not {'text' if kind is str else 'an object'}; {_ADVICE}")
    if "kind" not in config["encoder"] or "input_dim" in config["encoder"]:
        raise WildCTCError(f"{path}: encoder must have a kind, and no input_dim; {_ADVICE}")
    return config


def read_header(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read types and shapes of the tensors in a safetensors file, without loading a tensor.

    safetensors checks that the tensors fill the file exactly, so they cannot be larger than it.

    Args:
        path: The file.

    Returns:
        Name → type and shape; and the state that is stored with the weights.

    Raises:
        WildCTCError: The file cannot be read.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingExtra("safetensors", "train") from None
    try:
        with open(path, "rb") as raw:
            size = int.from_bytes(raw.read(8), "little")
        if size > _HEADER_BYTES:
            raise WildCTCError(f"{path}: a header of {size:,} bytes; {_ADVICE}")
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            tensors = {name: (str(found.get_dtype()), tuple(found.get_shape())) for name, found in slices.items()}
            state = json.loads((file.metadata() or {}).get("state", "{}"))
    except OSError as error:
        raise WildCTCError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise WildCTCError(f"{path}: not a readable safetensors file ({error})") from None
    return tensors, state if isinstance(state, dict) else {}


def check_shapes(folder: Path, tensors: Tensors, expected: Mapping[str, torch.Tensor], blocks: int) -> None:
    """Refuse weights that do not match the configuration.

    Args:
        folder: The model folder, for errors.
        tensors: Types and shapes in the file.
        expected: The tensors of a network with one block, which the other blocks repeat. Their values do not matter.
        blocks: The number of blocks in the configuration.

    Raises:
        WildCTCError: A tensor is missing, or has another shape or type.
    """
    block = "encoder.blocks.0."
    inside = {name.removeprefix(block): tensor for name, tensor in expected.items() if name.startswith(block)}
    outside = {name: tensor for name, tensor in expected.items() if not name.startswith(block)}
    if len(tensors) != len(outside) + blocks * len(inside):
        have = len({name.split(".")[2] for name in tensors if name.startswith("encoder.blocks.")})
        raise WildCTCError(
            f"{folder}: the weights do not fit config.json: {len(tensors):,} tensors and {have:,} blocks, "
            f"not {len(outside) + blocks * len(inside):,} and {blocks:,}; {_ADVICE}"
        )
    for number in range(blocks):
        _check(folder, tensors, inside, f"encoder.blocks.{number}.")
    _check(folder, tensors, outside, "")


def _check(folder: Path, tensors: Tensors, expected: Mapping[str, torch.Tensor], prefix: str) -> None:
    for name, tensor in expected.items():
        if prefix + name not in tensors:
            raise WildCTCError(f"{folder}: the weights do not fit config.json: no {prefix}{name}; {_ADVICE}")
        dtype, shape = tensors[prefix + name]
        if shape != tuple(tensor.shape):
            raise WildCTCError(
                f"{folder}: the weights do not fit config.json: {prefix}{name} is {shape}, not {tuple(tensor.shape)}; "
                f"{_ADVICE}"
            )
        if _DTYPES.get(dtype) != tensor.dtype:
            raise WildCTCError(
                f"{folder}: {prefix}{name} is of type {dtype}, and only {_name(tensor.dtype)} is read; "
                "convert the weights, or save the model again with Recognizer.save"
            )


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in _DTYPES.items() if known == dtype)


def check_weights(folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse weights with which every output would be NaN.

    Args:
        folder: The model folder, for errors.
        weights: The tensors.

    Raises:
        WildCTCError: A weight is not finite, or a deviation is too small.
    """
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WildCTCError(f"{folder}: {name} holds NaN or infinite numbers; has training diverged? {_ADVICE}")
        least = _LEAST_STD if name == "std" else 0.0 if name.endswith("running_var") else None
        if least is not None and bool((tensor < least).any()):
            raise WildCTCError(f"{folder}: {name} is less than {least:g} in some dimension; {_ADVICE}")
