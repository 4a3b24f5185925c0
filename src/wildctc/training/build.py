"""Build what settings describe: criterion, encoder, device."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from wildctc.criteria import Criterion
from wildctc.errors import WildCTCError
from wildctc.training.settings import Config


def make_criterion(config: Config) -> Criterion:
    """Build the criterion of a run.

    Args:
        config: The settings; those of `schedule` and `rates` override what the criterion's name says.

    Returns:
        The criterion.

    Raises:
        WildCTCError: There is no such criterion, or a setting is not valid for it.
    """
    given = asdict(config.schedule) | {"rate": config.rates.start, "prior": config.rates.prior}
    overrides = {k: v for k, v in given.items() if v is not None}
    try:
        criterion = Criterion(config.criterion, **overrides)
        if config.rates.by is not None and criterion.rates is None:
            raise ValueError("it has no noise rates, so --rates.by has no effect; otc-tw-em has them")
        return criterion
    except (ValueError, TypeError, KeyError) as error:
        raise WildCTCError(f"criterion {config.criterion}: {error}") from None


def encoder_settings(config: Config) -> dict[str, Any]:
    """Collect the arguments of `make_encoder`.

    Args:
        config: The settings of a run.

    Returns:
        All arguments except the dimension of the input.
    """
    settings = asdict(config.encoder) | {"attention_dropout": config.encoder.dropout}
    if config.encoder.kind == "e_branchformer":
        settings |= {"cgmlp_dim": config.encoder.ff_dim, "merge_kernel": config.encoder.kernel}
    return settings


def find_device(name: str) -> torch.device:
    """Find a device.

    Args:
        name: Its name; "auto" is the GPU if there is one.

    Returns:
        The device.

    Raises:
        WildCTCError: There is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise WildCTCError(f"training.device: there is no device {name!r} here; try auto or cpu") from None
    return device
