"""Noise rates in place of weights (specification §9).

Raising the weight of a wildcard always raises the likelihood, so weights cannot be learned as they are. Rates can: at
each token the written token was said with probability 1 − ε, or not with ε. At each position that is visited, unwritten
speech is inserted with δ, again and again, or not with 1 − δ. A word is wholly wrong with η. All arcs that leave a
position then share a probability of 1.

Relative to "everything that is written was said, and nothing else", the arcs have the weights

    bypass_k      = log ε_k − log(1 − ε_k)
    self_loop_q   = log δ_q
    word_bypass_w = log η_w − log(1 − η_w) − Σ_{k in w} log(1 − ε_k) − Σ_{q inside w} log(1 − δ_q)

and that path itself costs −Σ_k log(1 − ε_k) − Σ_q log(1 − δ_q) − Σ_w log(1 − η_w), which the loss contains. The
positions inside a word are those between its tokens: a word bypass does not visit them. It does visit the last one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from wildctc.lattice.arcs import Wildcards, padded_rows
from wildctc.lattice.checks import on_device, shape_of

_Rate: TypeAlias = float | Tensor | None


@dataclass(frozen=True, eq=False)
class NoiseRates:
    """Probabilities that a transcript is wrong, for the `wildcards` argument of loss, posteriors and alignment.

    A rate is a number for all, a tensor () for all, (N,) with one rate for each utterance, or a tensor with one rate
    for each arc. None means that the family of arcs is absent. Gradients flow to tensors; learn logits, and give
    `torch.sigmoid(logits)`.

    Attributes:
        token: ε, that a written token was not said; per arc (N, S).
        unwritten: δ, that something was said at a position and is not written; per arc (N, S+1).
        word: η, that a written word is wholly wrong; per arc (N, W).
        self_loop_at: As in `Wildcards`.

    >>> rates = NoiseRates(token=0.01, unwritten=0.001)
    >>> round(rates.bypass, 3), round(rates.self_loop, 3), rates.word_bypass
    (-4.595, -6.908, None)
    """

    token: _Rate = None
    unwritten: _Rate = None
    word: _Rate = None
    self_loop_at: Literal["token", "word"] = "token"

    def __post_init__(self) -> None:
        if self.self_loop_at not in ("token", "word"):
            raise ValueError(f'self_loop_at must be "token" or "word", got {self.self_loop_at!r}')
        for name in ("token", "unwritten", "word"):
            rate = getattr(self, name)
            if isinstance(rate, Tensor):
                if not rate.is_floating_point():
                    raise ValueError(f"the {name} rate must be floating point, got {rate.dtype}")
            elif rate is not None and not (isinstance(rate, (int, float, Real)) and 0 < float(rate) < 1):
                raise ValueError(f"the {name} rate is {rate!r}, must be greater than 0 and less than 1, or None")

    @property
    def bypass(self) -> _Rate:
        """The weight of a token bypass; None if there are none."""
        return _log_odds(self.token)

    @property
    def self_loop(self) -> _Rate:
        """The weight of a self-loop; None if there are none."""
        return self.unwritten.log() if isinstance(self.unwritten, Tensor) else _log(self.unwritten)

    @property
    def word_bypass(self) -> _Rate:
        """The weight of the bypass of a word without tokens; each token adds to it. None if there are none."""
        return _log_odds(self.word)

    def as_weights(self) -> Wildcards:
        """Give the weights without regard to words, for a picture or an alignment on a criterion's graph.

        Returns:
            The log-odds of the rates; those of a word bypass lack what each of its tokens adds.
        """
        return Wildcards(self.bypass, self.self_loop, self.word_bypass, self.self_loop_at)


class NormalisedArcs(NamedTuple):
    """The arcs of a batch with noise rates.

    Attributes:
        wildcards: One weight for each arc: (N, S), (N, S+1) and (N, W).
        constant: (N,) what the loss of each utterance gains: the cost of the path without wildcards.
    """

    wildcards: Wildcards
    constant: Tensor


def normalised_arcs(
    rates: NoiseRates, targets: Tensor, target_lengths: Tensor, words: Tensor | None, dtype: torch.dtype
) -> NormalisedArcs:
    """Turn noise rates into the weights of arcs.

    Args:
        rates: The rates.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
        target_lengths: (N,).
        words: The word of each label, in the shape of the targets; needed by word arcs only.
        dtype: Of the weights.

    Returns:
        The weights of all arcs, and the constant of each utterance. Gradients flow to the rates.

    Raises:
        ValueError: A tensor has the wrong shape, or a rate that is not between 0 and 1.
    """
    needs_words = rates.word is not None or (rates.self_loop_at == "word" and rates.unwritten is not None)
    if needs_words and words is None:
        raise ValueError("a word rate and self_loop_at='word' need words: the word of each token (see word_ids)")
    tokens = padded_rows(targets, target_lengths, 0)
    of_token = padded_rows(words, target_lengths, -1) if words is not None else torch.full_like(tokens, -1)
    places = _places(of_token, on_device(target_lengths, tokens.device), rates.self_loop_at)
    widths = {"token": tokens.shape[1], "unwritten": tokens.shape[1] + 1, "word": places.num_words}
    token, unwritten, word = (
        per_arc(getattr(rates, name), name, (len(tokens), width), tokens.device, dtype)
        for name, width in widths.items()
    )
    # what the path without wildcards costs at each token, position and word
    zero = torch.zeros(len(tokens), dtype=dtype, device=tokens.device)
    stay, quiet, right = (None if rate is None else torch.log1p(-rate) for rate in (token, unwritten, word))
    constant = zero
    for kept, there in ((stay, places.token), (quiet, places.position), (right, places.word)):
        if kept is not None:
            constant = constant - torch.where(there, kept, 0).sum(1)
    weights = Wildcards(
        None if token is None or stay is None else token.log() - stay,
        None if unwritten is None else unwritten.log(),
        None if word is None or right is None else word.log() - right - _inside(of_token, places, stay, quiet),
        rates.self_loop_at,
    )
    return NormalisedArcs(weights, constant)


class _Places(NamedTuple):
    """Where there are tokens, positions with a self-loop, and words."""

    token: Tensor  # (N, S) bool
    position: Tensor  # (N, S+1) bool
    word: Tensor  # (N, W) bool
    starts: Tensor  # (N, S) bool: the token begins a word, or is in none
    num_words: int


def _places(words: Tensor, lengths: Tensor, self_loop_at: str) -> _Places:
    size, width = words.shape
    index = torch.arange(width + 1, device=words.device)
    token = index[:width] < lengths.unsqueeze(1)
    starts = words != torch.cat([words.new_full((size, 1), -2), words[:, :-1]], 1)
    position = index <= lengths.unsqueeze(1)
    if self_loop_at == "word":
        ends = index == lengths.unsqueeze(1)
        position = position & (torch.cat([starts, starts.new_ones(size, 1)], 1) | ends)
    num_words = int(words.max()) + 1 if words.numel() else 0
    word = torch.zeros(size, num_words + 1, dtype=torch.bool, device=words.device)
    word.scatter_(1, torch.where(words < 0, num_words, words), True)  # the last column is no word
    return _Places(token, position, word[:, :num_words], starts, num_words)


def _inside(words: Tensor, places: _Places, stay: Tensor | None, quiet: Tensor | None) -> Tensor:
    """(N, W): the sum over a word's tokens of log(1 − ε), and over the positions between them of log(1 − δ)."""
    column = torch.where(words < 0, places.num_words, words)
    dtype = next(x.dtype for x in (stay, quiet, torch.empty(0)) if x is not None)
    total = torch.zeros(len(words), places.num_words + 1, dtype=dtype, device=words.device)
    if stay is not None:
        total = total.scatter_add(1, column, torch.where(places.token, stay, 0))
    if quiet is not None:
        between = ~places.starts & places.token & places.position[:, :-1]
        total = total.scatter_add(1, column, torch.where(between, quiet[:, :-1], 0))
    return total[:, : places.num_words]


def per_arc(rate: _Rate, name: str, shape: tuple[int, int], device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """Spread a rate over arcs.

    Args:
        rate: A number, a tensor, or None.
        name: The name of its family, for messages.
        shape: (N, arcs).
        device: Of the result.
        dtype: Of the result.

    Returns:
        One rate for each arc; None for None.

    Raises:
        ValueError: The tensor has another shape, or a value that is not between 0 and 1.
    """
    if rate is None:
        return None
    if not isinstance(rate, Tensor):
        return torch.full(shape, float(rate), dtype=dtype, device=device)
    if rate.dim() == 2 and name == "word" and rate.shape[0] == shape[0] and rate.shape[1] >= shape[1]:
        rate = rate[:, : shape[1]]
    if not (rate.dim() == 0 or tuple(rate.shape) in (shape, shape[:1])):
        raise ValueError(
            f"the {name} rate must be a number or a tensor (), {shape[:1]} or {shape}, got {shape_of(rate)}"
        )
    if not bool(((rate > 0) & (rate < 1)).all()):
        raise ValueError(f"the {name} rate has values that are not greater than 0 and less than 1")
    spread = on_device(rate, device).to(dtype)
    return (spread.unsqueeze(1) if spread.dim() == 1 else spread).expand(shape)


class NoiseCounts(NamedTuple):
    """Expected events in a batch, and how often each could have happened; (N,) each, None for an absent family.

    Attributes:
        token: Token bypasses; tokens that are not in a bypassed word.
        unwritten: Self-loops; self-loops and visited positions.
        word: Word bypasses; words.
    """

    token: tuple[Tensor, Tensor] | None
    unwritten: tuple[Tensor, Tensor] | None
    word: tuple[Tensor, Tensor] | None


def noise_counts(
    bypass: Tensor | None,
    self_loop: Tensor | None,
    word_bypass: Tensor | None,
    words: Tensor,
    target_lengths: Tensor,
    self_loop_at: Literal["token", "word"] = "token",
) -> NoiseCounts:
    """Sum the posteriors of arcs to the counts of an EM step. The new rate is events ÷ opportunities.

    Args:
        bypass: (N, S) posteriors; None if there are no such arcs.
        self_loop: (N, S+1), or None.
        word_bypass: (N, W), or None.
        words: (N, S) the word of each label, −1 for none and for padding.
        target_lengths: (N,).
        self_loop_at: As in `NoiseRates`.

    Returns:
        The counts of each utterance, in the type of the posteriors.
    """
    places = _places(words, on_device(target_lengths, words.device), self_loop_at)
    found: list[tuple[Tensor, Tensor] | None] = [None, None, None]
    skipped: Tensor | float = 0.0
    if word_bypass is not None:
        found[2] = word_bypass.sum(1), places.word.sum(1).to(word_bypass.dtype)
        if word_bypass.shape[1]:
            skipped = torch.where(words >= 0, word_bypass.gather(1, words.clamp(min=0)), 0)
    if bypass is not None:
        found[0] = bypass.sum(1), torch.where(places.token, 1 - skipped, 0.0).to(bypass.dtype).sum(1)
    if self_loop is not None:
        # a position between two tokens of a word is not visited if the word is bypassed
        visited = places.position.to(self_loop.dtype)
        visited[:, :-1] -= torch.where(~places.starts & places.position[:, :-1] & places.token, skipped, 0.0)
        loops = self_loop.sum(1)
        found[1] = loops, loops + visited.sum(1)
    return NoiseCounts(*found)


def _log(rate: float | None) -> float | None:
    return None if rate is None else math.log(rate)


def _log_odds(rate: _Rate) -> _Rate:
    if isinstance(rate, Tensor):
        return rate.log() - torch.log1p(-rate)
    return None if rate is None else math.log(rate) - math.log1p(-rate)
