"""Noticing that a run has gone wrong, within 50 steps, and saying which setting to change.

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

from wildctc.criteria import CRITERIA, Criterion
from wildctc.distributed import ALONE, Processes
from wildctc.errors import Diverged
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_posteriors
from wildctc.training.batches import Batch
from wildctc.training.evaluation import Evaluation, has_arcs

_log = logging.getLogger(__name__)
CHECK_EVERY = 20  # two looks in a row must agree: 40 steps
MAX_SKIPPED = 0.5  # a token that the audio supports at all is bypassed with a probability far below this
MAX_SELF_LOOPS = 0.25  # a frame; half is the most possible, since a blank must stand between two
_MORE_CTC = 4  # epochs of plain CTC that are advised beyond those that the run had
WORSE = 2  # times the loss of guessing: no model that has learned anything comes near it
_HOPELESS = 0.9  # CER
EPOCHS = 3  # so many in a row from their first look to their last: the run ends


@dataclass(frozen=True)
class _Collapse:
    """What was found, and the arcs that are to blame."""

    found: str
    weight: str


class DivergenceWatch:
    """Looks at every loss and gradient, and at the wildcard arcs of one batch in `CHECK_EVERY` steps.

    Several processes find the same, since they look at each other's arcs too.
    """

    def __init__(self, criterion: Criterion, ctc_epochs: int = 0, processes: Processes = ALONE) -> None:
        self.criterion, self.ctc_epochs, self.processes = criterion, ctc_epochs, processes
        self.collapsed_epochs = 0
        self.in_a_row, self.warned, self.whole_epoch = 0, False, True
        self.last: _Collapse | None = None

    def numbers(self, step: int, loss: float, norm: float, ids: list[str]) -> None:
        """Stop at a loss or a gradient that is not finite."""
        if math.isfinite(loss) and math.isfinite(norm):
            return
        what, value = ("gradient", norm) if math.isfinite(loss) else ("loss", loss)
        advice = "lower --optimizer.lr or raise --optimizer.warmup_steps"
        weights = self.criterion.wildcards
        names = [n for n in ("word_bypass", "bypass", "self_loop") if getattr(weights, n) is not None]
        if names:
            advice += f", or make wildcards dearer ({_options(stricter(self.criterion, names[0]))})"
        where = f"step {step} (utterances {', '.join(ids[:3])}, …)"
        raise Diverged(f"training has diverged: the {what} of {where} is {value}; {advice}")

    def arcs(self, step: int, logits: torch.Tensor, lengths: torch.Tensor, batch: Batch) -> None:
        """Warn when two looks in a row find (nearly) nothing but wildcards. logits (T, N, V)."""
        if step % CHECK_EVERY or not has_arcs(self.criterion.wildcards):
            return
        seen = self.processes.sum(_look(logits, lengths, batch, self.criterion.wildcards))
        collapse = _find_collapse(seen, self.criterion.wildcards)
        self.in_a_row = self.in_a_row + 1 if collapse else 0
        self.whole_epoch = self.whole_epoch and collapse is not None
        if collapse and self.in_a_row >= 2 and not self.warned:
            _log.warning("step %d: training is collapsing to wildcards: %s", step, self.say(collapse))
            self.warned = True
        self.last = collapse

    def end_epoch(self, step: int) -> None:
        """Stop after `EPOCHS` epochs of nothing but wildcards."""
        self.collapsed_epochs = self.collapsed_epochs + 1 if self.whole_epoch and self.in_a_row else 0
        self.warned, self.whole_epoch = False, True
        if self.collapsed_epochs >= EPOCHS:
            assert self.last is not None  # the last look of the epoch found it too
            raise Diverged(f"training has collapsed to wildcards by step {step}: {self.say(self.last)}")

    def say(self, collapse: _Collapse) -> str:
        """The finding, the weight now and in the first epoch, and what to do about it."""
        name = collapse.weight
        first, now = (getattr(w, name) for w in (self.criterion.settings, self.criterion.wildcards))
        weight = f"{name} is {now:.3g}, in the criterion's first epoch {first:g}"
        if first > 0:
            weight += ", a reward"
        ways = [_options(stricter(self.criterion, name))]
        by_epoch = self.criterion.settings.schedule == "epoch" and getattr(self.criterion.settings, f"{name}_tau") < 1
        if first <= 0 and by_epoch:  # an entropy schedule moves on in epochs of plain CTC
            ways.insert(0, f"--training.ctc_epochs {self.ctc_epochs + _MORE_CTC}")
        return f"{collapse.found}; {weight}; train again, in another --out, with {' or '.join(ways)}"


def check_model(found: Evaluation) -> None:
    """Refuse a model that knows less than none, and say it if one gets next to nothing right.

    found: of the model on held-out speech, at the end of training.
    """
    if not found.ctc_loss <= WORSE * found.guessing:
        raise Diverged(
            f"training has diverged: the model's CTC loss on dev is {found.ctc_loss:.3g}, guessing would have "
            f"{found.guessing:.3g} at most; lower --optimizer.lr or raise --optimizer.warmup_steps, in another --out"
        )
    if found.cer >= _HOPELESS:
        _log.warning(
            "the model gets next to nothing right: dev CER %.0f%%, %.0f%% of the characters left out; it needs more "
            "epochs or more speech, or the transcripts are not those of the audio",
            100 * found.cer, 100 * found.deletions,
        )  # fmt: skip


def stricter(criterion: Criterion, weight: str) -> dict[str, float]:
    """The setting of the schedule that makes arcs dearer from now on, if these were too cheap.

    A first weight that is weaker than the published one becomes that; a reward becomes a penalty. If the first weight
    has held and its relaxation came too early, the schedule is made slower. Otherwise the first weight is too weak:
    specification §6 goes from −19 to −25 to −30.

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
    """Settings of the schedule as they are given on the command line."""
    return " ".join(f"--schedule.{name} {value:.3g}" for name, value in settings.items())


def _look(logits: torch.Tensor, lengths: torch.Tensor, batch: Batch, wildcards: Wildcards) -> list[float]:
    """What `_find_collapse` judges, as sums: tokens, words, tokens skipped and bypassed, frames, loops, likelihood."""
    post = wildcard_posteriors(
        logits.detach(),
        batch.targets,
        lengths,
        batch.target_lengths,
        wildcards=batch.weigh(wildcards),
        words=batch.words,
    )
    words = batch.words.amax(1) + 1
    arcs = (batch.target_lengths, words, post.skipped, post.bypass, lengths, post.self_loop, post.log_likelihood)
    return [0.0 if family is None or not batch.counts else float(family.sum()) for family in arcs]


def _find_collapse(seen: list[float], wildcards: Wildcards) -> _Collapse | None:
    """Whether the tokens are bypassed rather than recognised, or the frames taken by rewarded self-loops."""
    tokens, words, skipped, bypassed, frames, self_loops, log_likelihood = seen
    skipped, bypassed, loops = skipped / max(1, tokens), bypassed / max(1, tokens), self_loops / max(1, frames)
    if skipped >= MAX_SKIPPED:
        found = f"{skipped:.0%} of the tokens are bypassed"
        return _Collapse(found, _cheap(wildcards, tokens / max(1, words), bypassed > skipped / 2))
    # Early in training loops are many and mean nothing; a likelihood above 1 says that they are there for the reward.
    if wildcards.self_loop is not None and loops >= MAX_SELF_LOOPS and log_likelihood > 0:
        return _Collapse(f"wildcard self-loops take {loops:.0%} of the frames", "self_loop")
    return None


def _cheap(wildcards: Wildcards, word_length: float, mostly_tokens: bool) -> str:
    """The arcs without which there would be no collapse.

    Where a word's tokens, bypassed one by one, cost less than its word bypass, a dearer word bypass would not help.
    """
    if wildcards.word_bypass is None or wildcards.bypass is None:
        return "bypass" if wildcards.word_bypass is None else "word_bypass"
    token, word = float(wildcards.bypass), float(wildcards.word_bypass)
    return "bypass" if mostly_tokens or token * word_length > word else "word_bypass"
