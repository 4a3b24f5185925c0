"""The learning rate of each optimiser step."""

from __future__ import annotations

import math
from typing import Literal


def learning_rate(step: int, peak: float, warmup: int, decay: Literal["sqrt", "cosine"], total: int) -> float:
    """Compute the learning rate of a step: a linear rise to the peak, then 1/√step or a cosine to 0.

    Args:
        step: The step, from 1.
        peak: The rate at the end of the warm-up.
        warmup: Steps of the warm-up.
        decay: What follows the warm-up.
        total: The step at which a cosine reaches 0.

    Returns:
        The rate.

    >>> [learning_rate(s, 1.0, 10, "sqrt", 100) for s in (1, 10, 40)]
    [0.1, 1.0, 0.5]
    >>> learning_rate(55, 1.0, 10, "cosine", 100)
    0.5
    """
    if step < warmup:
        return peak * step / warmup
    if decay == "sqrt":
        return peak * math.sqrt(max(1, warmup) / step)
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (1 + math.cos(math.pi * done)) / 2
