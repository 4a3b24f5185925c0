"""Noise rates that are estimated while a model is trained (specification §9).

The posteriors of arcs are the expected counts of an EM step: a new rate is the expected number of events divided by the
number of opportunities. A Beta prior keeps rates apart from 0 and 1. The corpus has a rate for each family of arcs.
Each group of utterances (an annotator, a speaker, a source) has its own, drawn towards the corpus's by the same prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from wildctc.lattice.noise import NoiseCounts, NoiseRates

FAMILIES = ("token", "unwritten", "word")
PRIOR_MEAN = 1e-3  # what the prior expects of a corpus; it matters only where there are few tokens
EVERYTHING = ""  # the group of all utterances, if there are no groups


class RateTable:
    """The noise rates of a corpus and of its groups, and the counts of the current epoch.

    Attributes:
        families: Those of `FAMILIES` that the criterion has.
        groups: The names of the groups.
        corpus: (3,) float64, the rates of the whole corpus; NaN for an absent family.
        rates: (3, G) float64, the rates of the groups.
        events: (3, G) expected events of this epoch so far.
        chances: (3, G) how often they could have happened.
        last: (2, 3, G) events and chances of the last epoch; zeros before.

    >>> table = RateTable(["word"], start=0.001, prior=100.0)
    >>> table.events[2], table.chances[2] = 60.0, 1000.0
    >>> table.update()
    >>> round(float(table.corpus[2]), 4)
    0.0546
    """

    def __init__(
        self,
        families: Sequence[str],
        start: float = PRIOR_MEAN,
        prior: float = 100.0,
        self_loop_at: Literal["token", "word"] = "token",
        groups: Sequence[str] = (EVERYTHING,),
    ) -> None:
        """Make a table in which all rates are the same.

        Args:
            families: Which of `FAMILIES` there are.
            start: The first value of all rates.
            prior: How many tokens, positions or words the prior is worth. Its mean is `PRIOR_MEAN`.
            self_loop_at: As in `NoiseRates`.
            groups: The names of the groups.
        """
        self.families, self.prior = tuple(families), prior
        self.self_loop_at: Literal["token", "word"] = self_loop_at
        self.groups = tuple(groups)
        shape = (len(FAMILIES), len(self.groups))
        there = torch.tensor([family in families for family in FAMILIES])
        self.corpus = torch.where(there, start, math.nan).double()
        self.rates = self.corpus.unsqueeze(1).expand(shape).clone()
        self.events, self.chances = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
        self.last = torch.zeros((2, *shape), dtype=torch.float64)

    def begin_at(self, corpus: Tensor) -> None:
        """Set all rates.

        Args:
            corpus: (3,) the rates of the corpus, which all groups get; NaN for an absent family.
        """
        self.corpus = corpus.double()
        self.rates = self.corpus.unsqueeze(1).expand(self.rates.shape).clone()

    def noise(self) -> NoiseRates:
        """Give the rates of the corpus.

        Returns:
            One number for each family.
        """
        found = {family: float(self.corpus[FAMILIES.index(family)]) for family in self.families}
        return NoiseRates(**found, self_loop_at=self.self_loop_at)

    def noise_of(self, groups: Tensor) -> NoiseRates:
        """Give the rates of a batch.

        Args:
            groups: (N,) the number of each utterance's group.

        Returns:
            (N,) float64 for each family, on the device of `groups`.
        """
        where = groups.cpu()
        found = {f: self.rates[FAMILIES.index(f)][where].to(groups.device) for f in self.families}
        return NoiseRates(**found, self_loop_at=self.self_loop_at)

    def add(self, groups: Tensor, counts: NoiseCounts) -> None:
        """Add the expected counts of a batch. Utterances without a likelihood are left out.

        Args:
            groups: (N,) the number of each utterance's group.
            counts: The counts of each utterance.
        """
        where = groups.cpu()
        for i, pair in enumerate(counts):
            if pair is not None:
                events, chances = (x.detach().double().cpu() for x in pair)
                usable = events.isfinite() & chances.isfinite()
                self.events[i].index_add_(0, where[usable], events[usable])
                self.chances[i].index_add_(0, where[usable], chances[usable])

    def update(self) -> None:
        """Estimate all rates from the counts since the last update, and begin to count anew."""
        events, chances = self.events.sum(1), self.chances.sum(1)
        counted = ~self.corpus.isnan() & (chances > 0)
        corpus = (events + self.prior * PRIOR_MEAN) / (chances + self.prior)
        self.corpus = torch.where(counted, corpus, self.corpus)
        if len(self.groups) == 1:
            rates = self.corpus.unsqueeze(1)
        else:
            rates = (self.events + self.prior * self.corpus.unsqueeze(1)) / (self.chances + self.prior)
        self.rates = torch.where(counted.unsqueeze(1), rates, self.rates)
        self.forget()

    def forget(self) -> None:
        """Begin to count anew, and leave the rates as they are."""
        self.last = torch.stack([self.events, self.chances])
        self.events, self.chances = torch.zeros_like(self.events), torch.zeros_like(self.chances)

    @property
    def has_counted(self) -> bool:
        """Whether there have been any counts. If not, all rates are the first ones."""
        return bool(self.chances.any() or self.last.any())

    def skipped(self) -> float:
        """Compute the expected share of tokens that were not emitted, in this epoch so far.

        Returns:
            From 0 to 1, as if all words had the same length; 0 if nothing was counted.
        """
        events, chances = self.events.sum(1).tolist(), self.chances.sum(1).tolist()
        token, word = (events[i] / chances[i] if chances[i] else 0.0 for i in (0, 2))
        return word + (1 - word) * token

    def state_dict(self) -> dict[str, Any]:
        """Give the state, for a checkpoint.

        Returns:
            Names and lists of numbers.
        """
        tensors = {name: getattr(self, name) for name in ("corpus", "rates", "events", "chances", "last")}
        return {"groups": list(self.groups)} | {name: _finite(x.tolist()) for name, x in tensors.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state.

        Args:
            state: The result of `state_dict`.

        Raises:
            ValueError: It is the state of other groups.
        """
        if tuple(state["groups"]) != self.groups:
            raise ValueError(
                f"the rates are those of {len(state['groups'])} other groups; there are {len(self.groups)}"
            )
        for name in ("corpus", "rates", "events", "chances", "last"):
            setattr(self, name, torch.tensor(_with_nan(state[name]), dtype=torch.float64))


def _finite(values: Any) -> Any:
    """JSON has no NaN: absent families are None."""
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return None if math.isnan(values) else values


def _with_nan(values: Any) -> Any:
    if isinstance(values, list):
        return [_with_nan(value) for value in values]
    return math.nan if values is None else values
