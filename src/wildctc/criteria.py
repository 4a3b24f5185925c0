"""The training criteria as one table (specification §6), and the schedules that relax their weights (specification §5).

A criterion defines which arcs there are, their first weights, and what relaxes them: the epoch (w₁ · τ^(e−1)), or the
held-out predictive entropy, from w₁ towards w∞. Or it has noise rates in place of weights, which are estimated from the
data (specification §9). Epochs count from 1.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.checks import Lengths, check_lengths, check_logits, lengths_of, on_device
from wildctc.lattice.noise import NoiseRates
from wildctc.rate_table import FAMILIES, RateTable

_LIMITS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "tau": ("greater than 0 and at most 1", lambda x: 0 < x <= 1),
    "alpha": ("greater than 0 and at most 1", lambda x: 0 < x <= 1),
    "h_low": ("between 0 and 1", lambda x: 0 < x < 1),
    "kappa": ("greater than 0", lambda x: x > 0),
    "eps": ("at least 0", lambda x: x >= 0),
    "epoch_scale": ("greater than 0", lambda x: x > 0),
    "rate": ("greater than 0 and less than 1", lambda x: 0 < x < 1),
    "prior": ("greater than 0", lambda x: x > 0),
    "star": ("greater than 0 and at most 1", lambda x: 0 < x <= 1),
    "star_final": ("greater than 0 and at most 1", lambda x: 0 < x <= 1),
    "star_half": ("greater than 0", lambda x: x > 0),
}
_SCHEDULES = ("none", "epoch", "entropy", "rates", "star")
_PLACES = ("token", "word", "end")  # of self-loops
_OF_RATES = ("rate", "prior")  # settings that only criteria with noise rates have
_RUNAWAY = 0.5  # of all tokens bypassed: rates do not follow if the held-out loss rises too
_KNOWS_LITTLE = 0.5  # held-out character error rate above which a model cannot tell its errors from the transcript's


def _check(name: str, value: float) -> None:
    """Raise ValueError if a setting of a schedule is not a number, or out of its range."""
    allowed, fits = _LIMITS.get("tau" if name.endswith("_tau") else name, ("finite", lambda x: True))
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, must be a number")
    if not (math.isfinite(value) and fits(float(value))):
        raise ValueError(f"{name} is {value}, must be {allowed}")


@dataclass(frozen=True)
class EpochDecay:
    """A weight that depends on the epoch: w(e) = w1 · tau^(e−1).

    Attributes:
        w1: The weight of epoch 1.
        tau: What each epoch multiplies it by, greater than 0 and at most 1.

    >>> EpochDecay(-25.0, 0.775)(10)
    -2.521...
    """

    w1: float
    tau: float

    def __post_init__(self) -> None:
        _check("w1", self.w1)
        _check("tau", self.tau)

    def __call__(self, epoch: float) -> float:
        return self.w1 * self.tau ** (epoch - 1)


@dataclass
class EntropyDecay:
    """Weights that depend on the predictive entropy on held-out data.

    The entropy is smoothed. Progress β is measured by its reciprocal, from the value after the first epoch to `h_low`.
    If the entropy rises, the weights become stricter again.

    Attributes:
        alpha: The share of the newest entropy in the smoothed one.
        h_low: The entropy at which weights are fully relaxed.
        kappa: The exponent of the progress; above 1, weights relax later.
        eps: Added to entropies before their reciprocal is taken.
        first: The entropy after the first epoch (H_0); None before.
        smooth: The smoothed entropy (H̄); None before the first epoch.

    >>> decay = EntropyDecay()
    >>> [round(decay.update(h), 3) for h in (0.5, 0.1, 0.05, 0.02)]
    [0.0, 0.001, 0.005, 0.011]
    >>> round(decay.weight(-25.0, -0.01), 1)
    -23.0
    """

    alpha: float = 0.3
    h_low: float = 0.01
    kappa: float = 1.3
    eps: float = 1e-4
    first: float | None = field(default=None, init=False)
    smooth: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        for name in ("alpha", "h_low", "kappa", "eps"):
            _check(name, getattr(self, name))

    def update(self, entropy: float) -> float:
        """Add the entropy of an epoch.

        Args:
            entropy: The quotient of the sums of `predictive_entropy`, from 0 to 1. NaN changes nothing, and a warning
                is given.

        Returns:
            The progress β afterwards, from 0 (strict, as long as the entropy has not fallen) to 1 (fully relaxed).
        """
        entropy = float(entropy)
        if math.isnan(entropy):
            warnings.warn(
                "held-out entropy is NaN, so the wildcard weights stay as they are: either only the blank has any "
                "probability, or the logits are not numbers (has training diverged?)",
                stacklevel=3,
            )
            return self.beta
        if not 0 <= entropy <= 1 + 1e-3:  # sums of float32 are not exact
            raise ValueError(
                f"entropy is {entropy}, must be between 0 and 1: the quotient of predictive_entropy's sums"
            )
        if self.first is None or self.smooth is None:
            self.first = self.smooth = entropy
            if entropy <= self.h_low:
                warnings.warn(
                    f"held-out entropy after the first epoch is {entropy:.4g}, not above h_low = {self.h_low:g}: "
                    "the wildcard weights are fully relaxed from the start; lower h_low",
                    stacklevel=3,
                )
        else:
            self.smooth = self.alpha * entropy + (1 - self.alpha) * self.smooth
        return self.beta

    @property
    def beta(self) -> float:
        """The progress, from 0 (strict) to 1 (fully relaxed)."""
        if self.first is None or self.smooth is None:
            return 0.0
        if self.first <= self.h_low:
            return 1.0
        start, now, end = (1 / (h + self.eps) for h in (self.first, self.smooth, self.h_low))
        return min(1.0, max(0.0, (now - start) / (end - start))) ** self.kappa

    def weight(self, w1: float, w_inf: float) -> float:
        """Compute the present weight of an arc family, between two weights on a geometric scale.

        Args:
            w1: The first weight, negative.
            w_inf: The fully relaxed weight, negative.

        Returns:
            The weight.
        """
        if not (w1 < 0 and w_inf < 0):
            raise ValueError(f"an entropy schedule needs negative weights, got w1 = {w1}, w_inf = {w_inf}")
        return -(abs(w1) ** (1 - self.beta)) * abs(w_inf) ** self.beta


def predictive_entropy(logits: Tensor, input_lengths: Lengths, blank: int = 0) -> tuple[Tensor, Tensor]:
    """Compute the normalised entropy of the non-blank outputs, weighted by their probability, as two sums.

    Add both sums over all batches and processes, then divide.

    Args:
        logits: (T, N, C), or (T, C) for one utterance.
        input_lengths: (N,) frames of each utterance.
        blank: The label of the blank.

    Returns:
        Numerator and denominator, float64 tensors (). Their quotient is in [0, 1]. They are NaN if a logit is NaN or
        +inf, or if all logits of a frame are −inf.

    >>> top, bottom = predictive_entropy(torch.zeros(3, 1, 5), [3])
    >>> round(float(top / bottom), 6)
    1.0
    """
    check_logits(logits, blank)
    logits = logits.unsqueeze(1) if logits.dim() == 2 else logits
    frames, size, outputs = logits.shape
    lengths = lengths_of(input_lengths, "input_lengths", size, logits.device)
    check_lengths(lengths, "input_lengths", frames, "T")
    if outputs < 3:
        raise ValueError(f"predictive entropy needs at least two non-blank outputs, logits have C = {outputs}")
    with torch.no_grad():
        inside = torch.arange(frames, device=logits.device).unsqueeze(1) < on_device(lengths, logits.device)
        log_p = torch.where(inside.unsqueeze(2), logits.float(), 0).log_softmax(2)
        log_p = torch.cat([log_p[:, :, :blank], log_p[:, :, blank + 1 :]], 2)
        log_mass = log_p.logsumexp(2, keepdim=True)
        mass = log_mass.exp()
        terms = torch.where(log_p == -math.inf, 0, log_p.exp() * (log_p - log_mass))
        entropy = torch.where(mass.squeeze(2) == 0, 0, -terms.sum(2))
        numerator = (entropy * inside).sum(dtype=torch.float64) / math.log(outputs - 1)
        return numerator, (mass.squeeze(2) * inside).sum(dtype=torch.float64)


@dataclass(frozen=True)
class Settings:
    """One row of the table of criteria.

    Attributes:
        schedule: What relaxes the weights: nothing, the epoch, or the held-out entropy; or "rates", if there are noise
            rates in place of weights; or "star", if the epoch changes the score of ★ and not the weights.
        bypass: The first weight of token bypasses; None if there are none.
        bypass_tau: The factor per epoch of their weight, in an epoch schedule.
        bypass_final: Their fully relaxed weight, in an entropy schedule.
        self_loop: The first weight of self-loops; None if there are none.
        self_loop_tau: As `bypass_tau`.
        self_loop_final: As `bypass_final`.
        word_bypass: The first weight of word bypasses; None if there are none.
        word_bypass_tau: As `bypass_tau`.
        word_bypass_final: As `bypass_final`.
        self_loop_at: As in `Wildcards`.
        alpha: As in `EntropyDecay`; so are `h_low`, `kappa` and `eps`.
        h_low: See `alpha`.
        kappa: See `alpha`.
        eps: See `alpha`.
        epoch_scale: The speed of an epoch schedule: epoch e counts as 1 + (e − 1) · epoch_scale.
        star: The score of ★ as a share of the non-blank probability, as in `Wildcards`; in a star schedule the first.
        star_final: What it approaches, in a star schedule.
        star_half: After how many epochs it is half-way there.
        families: Which noise rates there are: "token", "unwritten", "word".
        rate: Their first value.
        prior: How many tokens, positions or words the prior of a noise rate is worth.
    """

    schedule: Literal["none", "epoch", "entropy", "rates", "star"] = "none"
    bypass: float | None = None
    bypass_tau: float = 1.0
    bypass_final: float = -0.01
    self_loop: float | None = None
    self_loop_tau: float = 1.0
    self_loop_final: float = -0.001
    word_bypass: float | None = None
    word_bypass_tau: float = 1.0
    word_bypass_final: float = -1.0
    self_loop_at: Literal["token", "word", "end"] = "token"
    alpha: float = 0.3
    h_low: float = 0.01
    kappa: float = 1.3
    eps: float = 1e-4
    epoch_scale: float = 1.0
    families: tuple[str, ...] = ()
    rate: float = 1e-3
    prior: float = 100.0
    star: float | None = None
    star_final: float = 0.5
    star_half: float = 5.0

    def __post_init__(self) -> None:
        for name, allowed in (("schedule", _SCHEDULES), ("self_loop_at", _PLACES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, must be one of {', '.join(allowed)}")
        for name in self.__dataclass_fields__.keys() - {"schedule", "self_loop_at", "families"}:
            value = getattr(self, name)
            if value is not None or name not in ("bypass", "self_loop", "word_bypass", "star"):
                _check(name, value)
        if self.schedule == "star" and self.star is None:
            raise ValueError("a star schedule needs star, the first share")


_TOKEN = Settings("epoch", bypass=-25.0, bypass_tau=0.775, self_loop=-5.0, self_loop_tau=0.775)
_WORD = Settings("epoch", word_bypass=-19.0, word_bypass_tau=0.975, self_loop_at="word")

CRITERIA: dict[str, Settings] = {
    "ctc": Settings(),
    "otc-w": replace(_WORD, self_loop=3.75, self_loop_tau=0.999),
    "otc-w-tuned": replace(_WORD, self_loop=-1.0, self_loop_tau=0.975, word_bypass_tau=0.925),
    "otc-t": _TOKEN,
    "otc-t-h": replace(_TOKEN, schedule="entropy"),
    "otc-tw": replace(_TOKEN, word_bypass=-19.0, word_bypass_tau=0.925),
    "otc-tw-h": replace(_TOKEN, schedule="entropy", word_bypass=-19.0),
    "btc": _WORD,
    "w-ctc": Settings(self_loop=0.0, self_loop_at="end", star=1.0),
    "stc": Settings("star", self_loop=0.0, star=0.1),
    "otc-t-em": Settings("rates", families=("token", "unwritten")),
    "otc-w-em": Settings("rates", families=("unwritten", "word"), self_loop_at="word"),
    "otc-tw-em": Settings("rates", families=FAMILIES),
}


def _without_effect(settings: Settings) -> set[str]:
    """The settings that a criterion does not have: weights if it has noise rates, and the reverse."""
    if settings.schedule == "rates":
        return set(Settings.__dataclass_fields__) - {"self_loop_at", *_OF_RATES}
    return {*_OF_RATES, "families"}


class Criterion:
    """A named criterion with its schedule.

    Call `step` at the end of each epoch. `state_dict` belongs into a checkpoint.

    Attributes:
        name: The name, a key of `CRITERIA`.
        settings: The row of the table, with overrides.
        epoch: The current epoch, from 1.
        entropy_decay: The state of the entropy schedule.
        rates: The noise rates; None for a criterion with weights.

    >>> criterion = Criterion("otc-tw", bypass=-20.0)
    >>> criterion.wildcards
    Wildcards(bypass=-20.0, self_loop=-5.0, word_bypass=-19.0, self_loop_at='token', star=None)
    >>> criterion.step()
    >>> criterion.epoch, criterion.wildcards.bypass
    (2, -15.5)
    """

    def __init__(self, name: str, **overrides: float | str | None) -> None:
        """Look up a criterion.

        Args:
            name: A key of `CRITERIA`.
            **overrides: Fields of `Settings` that differ from the table.

        Raises:
            ValueError: The name or a setting is unknown, or a value is out of range.
        """
        if name not in CRITERIA:
            raise ValueError(f"no criterion is called {name!r}; there are {', '.join(CRITERIA)}")
        unknown = sorted(set(overrides) - set(Settings.__dataclass_fields__))
        if unknown:
            raise ValueError(
                f"criterion {name}: no setting {unknown[0]!r}; there are {', '.join(Settings.__dataclass_fields__)}"
            )
        if overrides.get("schedule") == "rates":
            raise ValueError(f"criterion {name} has weights; criteria with noise rates are called otc-…-em")
        wrong = sorted(set(overrides) & _without_effect(CRITERIA[name]))
        if wrong:
            what = "noise rates" if CRITERIA[name].schedule == "rates" else "weights and no noise rates"
            raise ValueError(f"criterion {name} has {what}: the setting {wrong[0]!r} has no effect")
        self.name = name
        self.settings = replace(CRITERIA[name], **overrides)  # type: ignore[arg-type]
        self.epoch = 1
        s = self.settings
        self.entropy_decay = EntropyDecay(s.alpha, s.h_low, s.kappa, s.eps)
        by_rates = s.schedule == "rates"
        if by_rates and s.self_loop_at == "end":
            raise ValueError("noise rates have self-loops at tokens or at words; leave self_loop_at out")
        self.rates = RateTable(s.families, s.rate, s.prior, s.self_loop_at) if by_rates else None  # type: ignore[arg-type]
        self.held_out_loss = math.nan  # of the last epoch, for the guard of noise rates
        _ = self.wildcards  # raises now, not after the first epoch, if the schedule does not allow a setting

    @property
    def needs_entropy(self) -> bool:
        """Whether `step` needs the held-out entropy."""
        return self.settings.schedule == "entropy"

    @property
    def needs_words(self) -> bool:
        """Whether the loss needs the word of each token."""
        s = self.settings
        loops = s.self_loop is not None or "unwritten" in s.families
        return s.word_bypass is not None or "word" in s.families or (s.self_loop_at == "word" and loops)

    @property
    def wildcards(self) -> Wildcards | NoiseRates:
        """The weights of the current epoch, or the noise rates of the corpus."""
        s = self.settings
        if self.rates is not None:
            return self.rates.noise()
        return Wildcards(
            self._weight(s.bypass, s.bypass_tau, s.bypass_final),
            self._weight(s.self_loop, s.self_loop_tau, s.self_loop_final),
            self._weight(s.word_bypass, s.word_bypass_tau, s.word_bypass_final),
            s.self_loop_at,
            self._star(),
        )

    @property
    def weights(self) -> Wildcards:
        """The weights of the current epoch as numbers, with noise rates those of the corpus."""
        found = self.wildcards
        return found.as_weights() if isinstance(found, NoiseRates) else found

    def _weight(self, w1: float | None, tau: float, final: float) -> float | None:
        if w1 is None or self.settings.schedule in ("none", "star"):
            return w1
        if self.settings.schedule == "entropy":
            return self.entropy_decay.weight(w1, final)
        return EpochDecay(w1, tau)(1 + (self.epoch - 1) * self.settings.epoch_scale)

    def _star(self) -> float | None:
        s = self.settings
        if s.star is None or s.schedule != "star":
            return s.star
        left = 0.5 ** ((self.epoch - 1) * s.epoch_scale / s.star_half)
        return s.star * left + s.star_final * (1 - left)

    def group_by(self, groups: Sequence[str]) -> None:
        """Estimate noise rates for groups of utterances, beside those of the corpus. Call it before training.

        Args:
            groups: The names of the groups, such as annotators.
        """
        if self.rates is None:
            raise ValueError(f"criterion {self.name} has no noise rates, so it has none for groups")
        s = self.settings
        self.rates = RateTable(s.families, s.rate, s.prior, s.self_loop_at, groups)  # type: ignore[arg-type]

    def step(self, entropy: float | None = None, *, loss: float | None = None, cer: float | None = None) -> str | None:
        """Advance the schedule at the end of an epoch, or estimate noise rates from its counts.

        Args:
            entropy: The held-out predictive entropy; needed if `needs_entropy`.
            loss: The held-out plain CTC loss. It holds noise rates if they run away.
            cer: The held-out character error rate. It holds noise rates while the model knows little.

        Returns:
            Why noise rates were held, or None.
        """
        if self.needs_entropy:
            if entropy is None:
                raise ValueError(f"criterion {self.name} follows the held-out entropy: step(entropy) needs it")
            self.entropy_decay.update(entropy)
        held = None
        if self.rates is not None:
            held = self._why_held(loss, cer)
            if held is None:
                self.rates.update()
            else:
                self.rates.forget()
            self.held_out_loss = math.nan if loss is None else loss
        self.epoch += 1
        return held

    def _why_held(self, loss: float | None, cer: float | None) -> str | None:
        assert self.rates is not None
        if cer is not None and cer > _KNOWS_LITTLE:
            return f"the model has a held-out character error rate of {cer:.0%}, so it cannot judge the transcripts yet"
        skipped = self.rates.skipped()
        if skipped > _RUNAWAY and loss is not None and loss > self.held_out_loss:
            return (
                f"{skipped:.0%} of the tokens were bypassed, and the held-out CTC loss rose from "
                f"{self.held_out_loss:.4g} to {loss:.4g}"
            )
        return None

    def state_dict(self) -> dict[str, Any]:
        """Give the state of the schedule, for a checkpoint.

        Returns:
            Numbers by name; entropies are NaN before the first epoch. Once noise rates have counted, also "rates".
        """
        first, smooth = self.entropy_decay.first, self.entropy_decay.smooth
        nan = math.nan
        state = {
            "epoch": self.epoch,
            "h_0": nan if first is None else first,
            "h_bar": nan if smooth is None else smooth,
        }
        if self.rates is None or not self.rates.has_counted:  # a branch of plain CTC has its own first rates
            return state
        return state | {"held_out_loss": self.held_out_loss, "rates": self.rates.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the schedule.

        Args:
            state: The result of `state_dict`. Without noise rates, as in epochs of plain CTC, they stay as they are.
        """
        self.epoch = int(state["epoch"])
        first, smooth = (None if math.isnan(state[key]) else float(state[key]) for key in ("h_0", "h_bar"))
        self.entropy_decay.first, self.entropy_decay.smooth = first, smooth
        if self.rates is not None and "rates" in state:
            self.held_out_loss = float(state["held_out_loss"])
            self.rates.load_state_dict(state["rates"])

    def __repr__(self) -> str:
        return f"Criterion({self.name!r}, epoch={self.epoch}, {self.wildcards})"
