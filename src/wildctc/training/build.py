"""From settings to the things that they name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from wildctc.criteria import Criterion
from wildctc.errors import WildCTCError
from wildctc.training.config import Config


def make_criterion(config: Config) -> Criterion:
    """The criterion that the configuration names, with its overrides."""
    overrides = {k: v for k, v in asdict(config.schedule).items() if v is not None}
    try:
        return Criterion(config.criterion, **overrides)
    except (ValueError, TypeError, KeyError) as error:
        raise WildCTCError(f"criterion {config.criterion}: {error}") from None


def encoder_settings(config: Config) -> dict[str, Any]:
    """The arguments of `make_encoder` but for the input's dimension."""
    settings = asdict(config.encoder) | {"attention_dropout": config.encoder.dropout}
    if config.encoder.kind == "e_branchformer":
        settings |= {"cgmlp_dim": config.encoder.ff_dim, "merge_kernel": config.encoder.kernel}
    return settings


def find_device(name: str) -> torch.device:
    """The device of that name; "auto": the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise WildCTCError(f"training.device: there is no device {name!r} here; try auto or cpu") from None
    return device
