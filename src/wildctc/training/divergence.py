"""Noticing that a run has gone wrong, within 50 steps, and saying which weight to change.

Three things happen: the loss or the gradient stops being finite; every token is bypassed, so the model is no longer
told what was said; or wildcard self-loops that are rewarded take all frames. The last two leave the loss small, even
negative, and look like success.
"""

from __future__ import annotations

import math

import torch

from wildctc import Criterion, wildcard_posteriors
from wildctc.errors import WildCTCError
from wildctc.training.batches import Batch
from wildctc.training.evaluation import has_arcs

CHECK_EVERY = 20  # two looks in a row must agree: 40 steps
MAX_SKIPPED = 0.5  # a token that the audio supports at all is bypassed with a probability far below this
MAX_SELF_LOOPS = 0.25  # a frame; half is the most possible, since a blank must stand between two


class DivergenceWatch:
    """Looks at every loss and gradient, and at the wildcard arcs of one batch in `CHECK_EVERY` steps."""

    def __init__(self, criterion: Criterion) -> None:
        self.criterion = criterion
        self.suspicions = 0

    def numbers(self, step: int, loss: float, norm: float, ids: list[str]) -> None:
        """Stop at a loss or a gradient that is not finite."""
        if math.isfinite(loss) and math.isfinite(norm):
            return
        what = "loss" if not math.isfinite(loss) else "gradient"
        raise WildCTCError(
            f"training has diverged: the {what} of step {step} is {loss if what == 'loss' else norm} "
            f"(utterances {', '.join(ids[:3])}, …); lower --optimizer.lr or raise --optimizer.warmup_steps"
            + self._or_weights()
        )

    def arcs(self, step: int, logits: torch.Tensor, lengths: torch.Tensor, batch: Batch) -> None:
        """Stop when two looks in a row find (nearly) nothing but wildcards. logits (T, N, V)."""
        wildcards = self.criterion.wildcards
        if not has_arcs(wildcards) or step % CHECK_EVERY:
            return
        post = wildcard_posteriors(
            logits.detach(), batch.targets, lengths, batch.target_lengths, wildcards=wildcards, words=batch.words
        )
        tokens, frames = max(1, int(batch.target_lengths.sum())), max(1, int(lengths.sum()))
        skipped = 0.0 if post.skipped is None else float(post.skipped.sum()) / tokens
        loops = 0.0 if post.self_loop is None else float(post.self_loop.sum()) / frames
        if skipped < MAX_SKIPPED and loops < MAX_SELF_LOOPS:
            self.suspicions = 0
            return
        self.suspicions += 1
        if self.suspicions < 2:
            return
        if skipped >= MAX_SKIPPED:
            by_token = 0.0 if post.bypass is None else float(post.bypass.sum()) / tokens
            name = "bypass" if by_token > skipped / 2 else "word_bypass"
            found = f"{skipped:.0%} of the tokens are bypassed"
        else:
            name, found = "self_loop", f"wildcard self-loops take {2 * loops:.0%} of the frames"
        raise WildCTCError(
            f"training has collapsed to wildcards by step {step}: {found}; raise |{name}|, now "
            f"{_number(wildcards, name)}: --schedule.{name} {_stronger(_number(wildcards, name)):g}"
        )

    def _or_weights(self) -> str:
        wildcards = self.criterion.wildcards
        if not has_arcs(wildcards):
            return ""
        names = [n for n in ("word_bypass", "bypass", "self_loop") if getattr(wildcards, n) is not None]
        return f", or raise |{names[0]}|, now {_number(wildcards, names[0])} (--schedule.{names[0]})"


def _number(wildcards: object, name: str) -> float:
    return float(getattr(wildcards, name))


def _stronger(weight: float) -> float:
    """The next weight to try: SPEC §6 goes from −19 to −25 to −30; a reward is turned into a penalty first."""
    if weight > -1:
        return -1.0
    return next((w for w in (-5.0, -25.0, -30.0) if w < weight), 2 * weight)
