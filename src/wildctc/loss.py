"""The loss as a module, which contains the schedule of its weights."""

import json
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wildctc.criteria import Criterion
from wildctc.lattice.arcs import Wildcards, padded_rows
from wildctc.lattice.backends import Backend
from wildctc.lattice.checks import Lengths, integers, lengths_of
from wildctc.lattice.functional import (
    Reduction,
    Targets,
    check_reduction,
    checked_targets,
    wildcard_ctc_loss,
    wildcard_posteriors,
)
from wildctc.lattice.graph_batch import are_graphs, list_of_graphs
from wildctc.lattice.graph_noise import graph_noise_counts
from wildctc.lattice.noise import NoiseRates, noise_counts
from wildctc.rate_table import RateTable

_NUMBERS = ("epoch", "h_0", "h_bar")  # of a criterion's state, which every criterion has


class WildcardCTCLoss(torch.nn.Module):
    """`torch.nn.CTCLoss` with wildcards. It takes logits, not log-probabilities, which work too.

    With a criterion, call `loss.criterion.step(entropy)` at the end of each epoch. The state of its schedule is part of
    this module's state_dict. Weights in `Wildcards` that are `torch.nn.Parameter`s are parameters of this module. A
    criterion with noise rates, such as "otc-tw-em", counts in training mode, for the rates of the next epoch.

    Attributes:
        criterion: The criterion with its schedule; None for plain CTC and for fixed wildcards.

    >>> loss = WildcardCTCLoss(wildcards="otc-t")
    >>> loss.criterion.wildcards.bypass
    -25.0
    >>> float(loss(torch.zeros(4, 1, 3), torch.tensor([[1, 2]]), [4], [2])) > 0
    True
    """

    def __init__(
        self,
        blank: int = 0,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        *,
        wildcards: Wildcards | NoiseRates | Criterion | str | None = None,
        backend: Backend = "auto",
    ) -> None:
        """Make the loss.

        Args:
            blank: The label of the blank.
            reduction: "none", "mean" or "sum", as in torch.
            zero_infinity: Whether an utterance with too few frames has loss 0 instead of +inf.
            wildcards: None for plain CTC, `Wildcards`, `NoiseRates`, a `Criterion`, or the name of a criterion, such as
                "otc-tw-h".
            backend: As for `wildcard_ctc_loss`.
        """
        super().__init__()
        if isinstance(blank, str):
            raise ValueError(f"blank is {blank!r}; a criterion is given as wildcards={blank!r}")
        check_reduction(reduction)
        self.blank, self.reduction, self.zero_infinity, self.backend = blank, reduction, zero_infinity, backend
        if isinstance(wildcards, str):
            wildcards = Criterion(wildcards)
        if not isinstance(wildcards, Wildcards | NoiseRates | Criterion | None):
            raise TypeError(
                "wildcards must be None, Wildcards, NoiseRates, a Criterion or the name of one, got "
                f'{wildcards!r:.60}; a criterion with other settings is Criterion("otc-t", bypass=-20.0)'
            )
        self.criterion = wildcards if isinstance(wildcards, Criterion) else None
        self._wildcards = None if isinstance(wildcards, Criterion) else wildcards
        for name in ("bypass", "self_loop", "word_bypass"):
            weight = getattr(self._wildcards, name, None) if isinstance(self._wildcards, Wildcards) else None
            if isinstance(weight, torch.nn.Parameter):
                self.register_parameter(name, weight)

    @property
    def wildcards(self) -> Wildcards | NoiseRates | None:
        """The current weights or noise rates; None for plain CTC."""
        if self.criterion is not None:
            return self.criterion.wildcards
        if self._wildcards is None or not self._parameters:
            return self._wildcards
        return replace(self._wildcards, **self._parameters)  # type: ignore[arg-type]

    def forward(
        self,
        logits: Tensor,
        targets: Targets,
        input_lengths: Lengths,
        target_lengths: Lengths | None = None,
        words: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss.

        Args:
            logits: (T, N, C), or (T, C) for one utterance.
            targets: (N, S) padded labels, or (sum of target_lengths,) concatenated; or a list of N `TranscriptGraph`s.
            input_lengths: (N,) frames of each utterance.
            target_lengths: (N,) labels of each transcript; None where targets are graphs.
            words: The word of each label, in the shape of the targets; needed by word arcs only (see `word_ids`). None
                where targets are graphs.

        Returns:
            The loss: (), or (N,) without a reduction.
        """
        arguments = (logits, targets, input_lengths, target_lengths, self.blank)
        if self.training and self.criterion is not None and self.criterion.rates is not None:
            self._count(self.criterion.rates, arguments, words)
        return wildcard_ctc_loss(
            *arguments,
            self.reduction,
            self.zero_infinity,
            wildcards=self.wildcards,
            words=words,
            backend=self.backend,
        )

    def _count(
        self,
        rates: RateTable,
        arguments: tuple[Tensor, Targets, Lengths, Lengths | None, int],
        words: Tensor | None,
    ) -> None:
        """Add the expected counts of a batch to the criterion's noise rates."""
        logits, targets, _, target_lengths, _ = arguments
        noise = rates.noise()
        post = wildcard_posteriors(*arguments, wildcards=noise, words=words, backend=self.backend)
        if logits.dim() == 2:
            names = ("bypass", "self_loop", "word_bypass", "token")
            with_batch = {name: x.unsqueeze(0) for name in names if (x := getattr(post, name)) is not None}
            post = replace(post, **with_batch)
        size = logits.shape[1] if logits.dim() == 3 else 1
        found = (post.bypass, post.self_loop, post.word_bypass)
        if are_graphs(targets):
            assert post.token is not None
            graphs = list_of_graphs(targets, size)
            counts = graph_noise_counts(post.token, *found, graphs, noise.self_loop_at)
        else:
            labels, given = checked_targets(targets, target_lengths)
            lengths = lengths_of(given, "target_lengths", size, logits.device)
            of_token = torch.full_like(labels, -1) if words is None else integers(words, "words", logits.device)
            rows = padded_rows(of_token.reshape(1, -1) if logits.dim() == 2 else of_token, lengths, -1)
            counts = noise_counts(*found, rows, lengths, noise.self_loop_at)
        rates.add(torch.zeros(size, dtype=torch.int64), counts)

    def get_extra_state(self) -> Tensor:
        """Give the state of the schedule to `state_dict`.

        Returns:
            Numbers, then the bytes of the criterion's name, and of its noise rates as JSON. It is a tensor, because
            some formats of checkpoints, such as safetensors, hold nothing else. Empty without a criterion.
        """
        if self.criterion is None:
            return torch.tensor([], dtype=torch.float64)
        state = self.criterion.state_dict()
        numbers, text = [state.pop(key) for key in _NUMBERS], self.criterion.name
        text += f"\n{json.dumps(state)}" if state else ""
        return torch.tensor([*numbers, *text.encode()], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the state of the schedule from `load_state_dict`.

        Args:
            state: The result of `get_extra_state`.

        Raises:
            ValueError: It is the state of another criterion.
        """
        numbers = state.tolist()
        if (self.criterion is None) != (not numbers):
            raise ValueError("the state_dict's criterion does not match this loss: one of them has no schedule")
        if self.criterion is not None:
            text = bytes(map(int, numbers[len(_NUMBERS) :])).decode()
            name, _, rest = text.partition("\n")
            if name not in ("", self.criterion.name):
                raise ValueError(
                    f"the state_dict's criterion is {name}, which does not match this loss, {self.criterion.name}"
                )
            schedule = dict(zip(_NUMBERS, numbers[: len(_NUMBERS)], strict=True))
            self.criterion.load_state_dict(schedule | (json.loads(rest) if rest else {}))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if self.criterion is None:  # checkpoints with torch.nn.CTCLoss lack this key, and can be loaded
            state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Describe the settings, for `repr`.

        Returns:
            The settings.
        """
        return f"blank={self.blank}, reduction={self.reduction!r}, wildcards={self.criterion or self._wildcards}"
