"""Noticing that a run has gone wrong, within 50 steps, and saying which weight to change.

Three things happen. The loss or the gradient stops being finite: that is the end of the run. All tokens are bypassed,
so that the model is no longer told what was said; or wildcard self-loops that are rewarded take the frames: both leave
the loss small, even negative, and look like success. A model that has not yet left CTC's all-blank plateau can look
the same for a while and still recover, so a collapse is warned of at once and ends the run after whole epochs.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import torch

from wildctc import Criterion, Wildcards, wildcard_posteriors
from wildctc.distributed import ALONE, Processes
from wildctc.errors import Diverged
from wildctc.training.batches import Batch
from wildctc.training.evaluation import has_arcs

log = logging.getLogger(__name__)
CHECK_EVERY = 20  # two looks in a row must agree: 40 steps
MAX_SKIPPED = 0.5  # a token that the audio supports at all is bypassed with a probability far below this
MAX_SELF_LOOPS = 0.25  # a frame; half is the most possible, since a blank must stand between two
EPOCHS = 3  # so many in a row from their first look to their last: the run ends


@dataclass(frozen=True)
class Collapse:
    """What was found, and the weight that is to blame."""

    found: str
    weight: str
    value: float

    def __str__(self) -> str:
        advice = f"raise |{self.weight}|" if self.value <= 0 else f"{self.weight} is a reward: make it a penalty"
        better = f"--schedule.{self.weight} {_stronger(self.value):g}"
        return f"{self.found}; {advice}, now {self.value:g}: {better}"


class DivergenceWatch:
    """Looks at every loss and gradient, and at the wildcard arcs of one batch in `CHECK_EVERY` steps.

    Several processes find the same, since they look at each other's arcs too.
    """

    def __init__(self, criterion: Criterion, collapsed_epochs: int = 0, processes: Processes = ALONE) -> None:
        self.criterion, self.processes = criterion, processes
        self.collapsed_epochs = collapsed_epochs
        self.in_a_row, self.warned, self.whole_epoch = 0, False, True

    def numbers(self, step: int, loss: float, norm: float, ids: list[str]) -> None:
        """Stop at a loss or a gradient that is not finite."""
        if math.isfinite(loss) and math.isfinite(norm):
            return
        what, value = ("gradient", norm) if math.isfinite(loss) else ("loss", loss)
        advice = "lower --optimizer.lr or raise --optimizer.warmup_steps"
        weights = self.criterion.wildcards
        names = [n for n in ("word_bypass", "bypass", "self_loop") if getattr(weights, n) is not None]
        if names:
            advice += f", or raise |{names[0]}|, now {getattr(weights, names[0]):g} (--schedule.{names[0]})"
        where = f"step {step} (utterances {', '.join(ids[:3])}, …)"
        raise Diverged(f"training has diverged: the {what} of {where} is {value}; {advice}")

    def arcs(self, step: int, logits: torch.Tensor, lengths: torch.Tensor, batch: Batch) -> None:
        """Warn when two looks in a row find (nearly) nothing but wildcards. logits (T, N, V)."""
        if step % CHECK_EVERY or not has_arcs(self.criterion.wildcards):
            return
        seen = self.processes.sum(look(logits, lengths, batch, self.criterion.wildcards))
        collapse = find_collapse(seen, self.criterion.wildcards)
        self.in_a_row = self.in_a_row + 1 if collapse else 0
        self.whole_epoch = self.whole_epoch and collapse is not None
        if collapse and self.in_a_row >= 2 and not self.warned:
            log.warning("step %d: training is collapsing to wildcards: %s", step, collapse)
            self.warned = True
        self.last = collapse

    def end_epoch(self, step: int) -> None:
        """Stop after `EPOCHS` epochs of nothing but wildcards."""
        self.collapsed_epochs = self.collapsed_epochs + 1 if self.whole_epoch and self.in_a_row else 0
        self.warned, self.whole_epoch = False, True
        if self.collapsed_epochs >= EPOCHS:
            raise Diverged(f"training has collapsed to wildcards by step {step}: {self.last}")


def look(logits: torch.Tensor, lengths: torch.Tensor, batch: Batch, wildcards: Wildcards) -> list[float]:
    """What `find_collapse` judges, as sums: tokens, those skipped, those bypassed, frames, self-loops, likelihood."""
    post = wildcard_posteriors(
        logits.detach(), batch.targets, lengths, batch.target_lengths, wildcards=wildcards, words=batch.words
    )
    arcs = (batch.target_lengths, post.skipped, post.bypass, lengths, post.self_loop, post.log_likelihood)
    return [0.0 if family is None or not batch.counts else float(family.sum()) for family in arcs]


def find_collapse(seen: list[float], wildcards: Wildcards) -> Collapse | None:
    """Whether the tokens are bypassed rather than recognised, or the frames taken by rewarded self-loops."""
    tokens, skipped, bypassed, frames, self_loops, log_likelihood = seen
    skipped, bypassed, loops = skipped / max(1, tokens), bypassed / max(1, tokens), self_loops / max(1, frames)
    if skipped >= MAX_SKIPPED:
        name = "bypass" if bypassed > skipped / 2 else "word_bypass"
        return Collapse(f"{skipped:.0%} of the tokens are bypassed", name, float(getattr(wildcards, name)))
    # Early in training loops are many and mean nothing; a likelihood above 1 says that they are there for the reward.
    if wildcards.self_loop is not None and loops >= MAX_SELF_LOOPS and log_likelihood > 0:
        return Collapse(f"wildcard self-loops take {loops:.0%} of the frames", "self_loop", float(wildcards.self_loop))
    return None


def _stronger(weight: float) -> float:
    """The next weight to try: SPEC §6 goes from −19 to −25 to −30; a reward becomes a penalty first."""
    if weight > -1:
        return -1.0
    return next((w for w in (-5.0, -25.0, -30.0) if w < weight), 2 * weight)
