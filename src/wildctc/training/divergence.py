"""Detect within 50 steps that a run has failed, and name the setting to change.

There are three kinds of failure. First, the loss or the gradient is no longer finite: the run ends. Second, all tokens
are bypassed, so that the model no longer learns what was said. Third, wildcard self-loops with a reward take the
frames. The last two make the loss small, even negative, and look like success. A model that still gives only blanks, as
CTC does early in training, can look the same for a while and recover. A collapse therefore first gives a warning; it
ends the run after whole epochs.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from wildctc.criteria import CRITERIA, Criterion
from wildctc.distributed import ALONE, Processes
from wildctc.errors import Diverged
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_posteriors
from wildctc.lattice.noise import NoiseRates
from wildctc.training.batches import Batch
from wildctc.training.evaluation import Evaluation, has_arcs

_log = logging.getLogger(__name__)
CHECK_EVERY = 20  # steps; two checks in a row must agree: 40 steps
MAX_SKIPPED = 0.5  # a token with any support in the audio has a bypass probability far below this
MAX_SELF_LOOPS = 0.25  # per frame; at most half is possible, because a blank must stand between two
_MORE_CTC = 4  # how many more epochs of plain CTC the advice is
WORSE = 2  # times the loss of guessing: a model that has learned anything is far below
_RATES = {"bypass": "token", "self_loop": "unwritten", "word_bypass": "word"}
_HOPELESS = 0.9  # CER
EPOCHS = 3  # collapsed epochs in a row that end the run


@dataclass(frozen=True)
class _Collapse:
    """What was found, and the family of arcs that caused it."""

    found: str
    weight: str


class DivergenceWatch:
    """Checks every loss and gradient, and the wildcard arcs of one batch in `CHECK_EVERY` steps.

    All processes find the same, because the numbers are summed over them.

    Attributes:
        collapsed_epochs: How many epochs in a row were collapsed; checkpoints contain it.

    Args:
        criterion: The criterion of the run.
        ctc_epochs: The run's epochs of plain CTC.
        processes: The training processes.
    """

    def __init__(self, criterion: Criterion, ctc_epochs: int = 0, processes: Processes = ALONE) -> None:
        self.criterion, self.ctc_epochs, self.processes = criterion, ctc_epochs, processes
        self.collapsed_epochs = 0
        self.in_a_row, self.warned, self.whole_epoch = 0, False, True
        self.last: _Collapse | None = None

    def numbers(self, step: int, loss: float, norm: float, ids: Sequence[str]) -> None:
        """Stop at a loss or a gradient that is not finite.

        Args:
            step: The number of the step.
            loss: Its loss.
            norm: The norm of its gradient.
            ids: Its utterances.

        Raises:
            Diverged: One of them is not finite.
        """
        if math.isfinite(loss) and math.isfinite(norm):
            return
        what, value = ("gradient", norm) if math.isfinite(loss) else ("loss", loss)
        advice = "lower --optimizer.lr or raise --optimizer.warmup_steps"
        weights = self.criterion.wildcards
        names = [n for n in ("word_bypass", "bypass", "self_loop") if getattr(weights, n) is not None]
        if names and self.criterion.rates is None:
            advice += f", or make wildcards more expensive ({_options(stricter(self.criterion, names[0]))})"
        where = f"step {step} (utterances {', '.join(ids[:3])}, …)"
        raise Diverged(f"training has diverged: the {what} of {where} is {value}; {advice}")

    def arcs(self, step: int, logits: torch.Tensor, lengths: torch.Tensor, batch: Batch) -> None:
        """Warn if two checks in a row find almost only wildcards.

        Args:
            step: The number of the step; most steps are not checked.
            logits: (T, N, V).
            lengths: (N,) frames.
            batch: The batch.
        """
        if step % CHECK_EVERY or not has_arcs(self.criterion.wildcards):
            return
        seen = self.processes.sum(_look(logits, lengths, batch, self.criterion.wildcards))
        collapse = _find_collapse(seen, self.criterion.wildcards)
        self.in_a_row = self.in_a_row + 1 if collapse else 0
        self.whole_epoch = self.whole_epoch and collapse is not None
        if collapse and self.in_a_row >= 2 and not self.warned:
            _log.warning("step %d: training is collapsing to wildcards: %s", step, self._describe(collapse))
            self.warned = True
        self.last = collapse

    def end_epoch(self, step: int) -> None:
        """Stop after `EPOCHS` epochs that were collapsed from the first check to the last.

        Args:
            step: The number of the last step.

        Raises:
            Diverged: So many epochs in a row were collapsed.
        """
        self.collapsed_epochs = self.collapsed_epochs + 1 if self.whole_epoch and self.in_a_row else 0
        self.warned, self.whole_epoch = False, True
        if self.collapsed_epochs >= EPOCHS:
            assert self.last is not None  # the last check of the epoch found it too
            raise Diverged(f"training has collapsed to wildcards by step {step}: {self._describe(self.last)}")

    def _describe(self, collapse: _Collapse) -> str:
        """Describe what was found, the weight now and in the first epoch, and what to do."""
        name = collapse.weight
        more_ctc = f"--training.ctc_epochs {self.ctc_epochs + _MORE_CTC}"
        if self.criterion.rates is not None:
            rate = getattr(self.criterion.wildcards, _RATES[name])
            rate_now = f"the {_RATES[name]} rate is {rate:.2%}"
            return f"{collapse.found}; {rate_now}; train again, in another --out, with {more_ctc}"
        first, now = (getattr(w, name) for w in (self.criterion.settings, self.criterion.wildcards))
        weight = f"{name} is {now:.3g}, in the criterion's first epoch {first:g}"
        if first > 0:
            weight += ", a reward"
        ways = [_options(stricter(self.criterion, name))]
        by_epoch = self.criterion.settings.schedule == "epoch" and getattr(self.criterion.settings, f"{name}_tau") < 1
        if first <= 0 and by_epoch:  # not for an entropy schedule, which also moves in epochs of plain CTC
            ways.insert(0, more_ctc)
        return f"{collapse.found}; {weight}; train again, in another --out, with {' or '.join(ways)}"


def check_model(found: Evaluation) -> None:
    """Refuse a model that is worse than guessing, and warn about one that gets almost nothing right.

    Args:
        found: The evaluation of the model on held-out speech, at the end of training.

    Raises:
        Diverged: The model is worse than guessing.
    """
    if not found.ctc_loss <= WORSE * found.guessing:
        raise Diverged(
            f"training has diverged: the model's CTC loss on dev is {found.ctc_loss:.3g}, guessing would have "
            f"{found.guessing:.3g} at most; lower --optimizer.lr or raise --optimizer.warmup_steps, in another --out"
        )
    if found.cer >= _HOPELESS:
        _log.warning(
            "the model gets almost nothing right: dev CER %.0f%%, %.0f%% of the characters deleted; it needs more "
            "epochs or more speech, or the transcripts are not those of the audio",
            100 * found.cer, 100 * found.deletions,
        )  # fmt: skip


def stricter(criterion: Criterion, weight: str) -> dict[str, float]:
    """Choose a setting of the schedule that makes arcs more expensive.

    A first weight that is weaker than the published one becomes the published one. A reward becomes a penalty. If the
    first weight was strict enough and was relaxed too early, the schedule becomes slower. Otherwise the first weight is
    too weak: specification §6 goes from −19 to −25 to −30.

    Args:
        criterion: The criterion, in the epoch of the collapse.
        weight: The family of arcs: "bypass", "self_loop" or "word_bypass".

    Returns:
        The setting of the schedule and its value.

    >>> stricter(Criterion("otc-tw", word_bypass=-5.0), "word_bypass")
    {'word_bypass': -19.0}
    >>> stricter(Criterion("otc-w"), "self_loop")
    {'self_loop': -1.0}
    """
    settings = criterion.settings
    first, published = (getattr(s, weight) for s in (settings, CRITERIA[criterion.name]))
    if published is not None and published < min(0, first):
        return {weight: published}
    if first > -1:
        return {weight: -1.0}
    if getattr(criterion.wildcards, weight) > first:
        if not criterion.needs_entropy:
            return {"epoch_scale": settings.epoch_scale / 2}
        reached = criterion.entropy_decay.smooth
        return {"h_low": min(settings.h_low, reached or settings.h_low) / 2}
    return {weight: next((w for w in (-25.0, -30.0) if w < first), 2 * first)}


def _options(settings: dict[str, float]) -> str:
    """Format settings of the schedule as options of the command line."""
    return " ".join(f"--schedule.{name} {value:.3g}" for name, value in settings.items())


def _look(logits: torch.Tensor, lengths: torch.Tensor, batch: Batch, wildcards: Wildcards | NoiseRates) -> list[float]:
    """Sum what `_find_collapse` judges: tokens, words, tokens skipped and bypassed, frames, loops, likelihood."""
    post = wildcard_posteriors(
        logits.detach(), input_lengths=lengths, wildcards=batch.weigh(wildcards), **batch.transcripts
    )
    words = batch.words.amax(1) + 1
    arcs = (batch.target_lengths, words, post.skipped, post.bypass, lengths, post.self_loop, post.log_likelihood)
    return [0.0 if family is None or not batch.counts else float(family.sum()) for family in arcs]


def _find_collapse(seen: list[float], wildcards: Wildcards | NoiseRates) -> _Collapse | None:
    """Check whether tokens are bypassed instead of recognised, or whether self-loops with a reward take the frames."""
    tokens, words, skipped, bypassed, frames, self_loops, log_likelihood = seen
    skipped, bypassed, loops = skipped / max(1, tokens), bypassed / max(1, tokens), self_loops / max(1, frames)
    if skipped >= MAX_SKIPPED:
        found = f"{skipped:.0%} of the tokens are bypassed"
        return _Collapse(found, _cheap(wildcards, tokens / max(1, words), bypassed > skipped / 2))
    # Early in training there are many self-loops, without harm. A likelihood above 1 shows that the reward causes them.
    if wildcards.self_loop is not None and loops >= MAX_SELF_LOOPS and log_likelihood > 0:
        return _Collapse(f"wildcard self-loops take {loops:.0%} of the frames", "self_loop")
    return None


def _cheap(wildcards: Wildcards | NoiseRates, word_length: float, mostly_tokens: bool) -> str:
    """Find the arcs that cause the collapse.

    If bypassing a word's tokens one by one costs less than its word bypass, a more expensive word bypass does not help.
    """
    if wildcards.word_bypass is None or wildcards.bypass is None:
        return "bypass" if wildcards.word_bypass is None else "word_bypass"
    token, word = float(wildcards.bypass), float(wildcards.word_bypass)
    return "bypass" if mostly_tokens or token * word_length > word else "word_bypass"
