"""★ as a share of the non-blank probability, in place of its mean (specification §2).

Every backend computes ★ as the mean of the non-blank outputs. Here the logits get further non-blank outputs, which no
transcript has. They raise that mean to what is asked for, and they lower all probabilities of a frame by the same
factor, which is then taken out of the loss.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import Wildcards, compute_dtype
from wildctc.lattice.checks import Lengths, check_lengths, check_logits, lengths_of, on_device


class StarredLogits(NamedTuple):
    """The arguments of a caller whose ★ is a share of the non-blank probability.

    Attributes:
        logits: (T, N, C + some), or without N; their mean of the non-blank outputs is ★.
        wildcards: The same arcs, without the share.
        constant: (N,) what the loss of each utterance gains; () without N.
    """

    logits: Tensor
    wildcards: Wildcards
    constant: Tensor


def with_star(logits: Tensor, input_lengths: Lengths, blank: int, wildcards: Wildcards) -> StarredLogits:
    """Add outputs to the logits, such that the mean of the non-blank outputs is the share that `wildcards.star` states.

    Args:
        logits: (T, N, C), or (T, C) for one utterance.
        input_lengths: (N,) frames of each utterance.
        blank: The label of the blank.
        wildcards: The weights of the arcs; `star` is a number.

    Returns:
        The new logits, the wildcards without `star`, and the constants.
    """
    check_logits(logits, blank)
    assert wildcards.star is not None
    frames, outputs, alone = logits.shape[0], logits.shape[-1], logits.dim() == 2
    size = 1 if alone else logits.shape[1]
    lengths = lengths_of(input_lengths, "input_lengths", size, logits.device)
    check_lengths(lengths, "input_lengths", frames, "T")
    inside = torch.arange(frames, device=logits.device).unsqueeze(1) < on_device(lengths, logits.device)
    inside = inside.squeeze(1) if alone else inside
    # frames after the end may hold anything, also NaN
    logits = torch.where(inside.unsqueeze(-1), logits.to(compute_dtype(logits)), 0)
    added = max(1, math.ceil(1 / wildcards.star) - (outputs - 1))
    extra = wildcards.star * (outputs - 1 + added) - 1  # of all added outputs together, per non-blank probability
    spoken = torch.cat([logits[..., :blank], logits[..., blank + 1 :]], -1)
    possible = (spoken > -math.inf).any(-1, keepdim=True)  # the gradient of a logarithm of 0 would be NaN
    log_spoken = torch.where(possible, torch.where(possible, spoken, 0).logsumexp(-1, keepdim=True), -math.inf)
    column = log_spoken + (math.log(extra / added) if extra > 0 else -math.inf)
    share = torch.where(possible, log_spoken - logits.logsumexp(-1, keepdim=True), -math.inf).exp()
    constant = torch.where(inside, torch.log1p(max(extra, 0.0) * share).squeeze(-1), 0).sum(0)
    return StarredLogits(
        torch.cat([logits, column.expand(*column.shape[:-1], added)], -1), replace(wildcards, star=None), -constant
    )
