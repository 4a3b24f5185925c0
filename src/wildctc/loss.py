"""The loss as a module, which contains the schedule of its weights."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wildctc.criteria import Criterion
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.checks import Lengths
from wildctc.lattice.functional import Backend, Reduction, check_reduction, wildcard_ctc_loss


class WildcardCTCLoss(torch.nn.Module):
    """`torch.nn.CTCLoss` with wildcards. It takes logits, not log-probabilities, which work too.

    With a criterion, call `loss.criterion.step(entropy)` at the end of each epoch. The state of its schedule is part of
    this module's state_dict. Weights in `Wildcards` that are `torch.nn.Parameter`s are parameters of this module.

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
        wildcards: Wildcards | Criterion | str | None = None,
        backend: Backend = "auto",
    ) -> None:
        """Make the loss.

        Args:
            blank: The label of the blank.
            reduction: "none", "mean" or "sum", as in torch.
            zero_infinity: Whether an utterance with too few frames has loss 0 instead of +inf.
            wildcards: None for plain CTC, `Wildcards`, a `Criterion`, or the name of one, such as "otc-tw-h".
            backend: As for `wildcard_ctc_loss`.
        """
        super().__init__()
        if isinstance(blank, str):
            raise ValueError(f"blank is {blank!r}; a criterion is given as wildcards={blank!r}")
        check_reduction(reduction)
        self.blank, self.reduction, self.zero_infinity, self.backend = blank, reduction, zero_infinity, backend
        if isinstance(wildcards, str):
            wildcards = Criterion(wildcards)
        if not isinstance(wildcards, Wildcards | Criterion | None):
            raise TypeError(
                f"wildcards must be None, Wildcards, a Criterion or the name of one, got {wildcards!r:.60}; "
                'a criterion with other settings is Criterion("otc-t", bypass=-20.0)'
            )
        self.criterion = wildcards if isinstance(wildcards, Criterion) else None
        self._wildcards = wildcards if isinstance(wildcards, Wildcards) else None
        for name in ("bypass", "self_loop", "word_bypass"):
            weight = getattr(self._wildcards, name, None)
            if isinstance(weight, torch.nn.Parameter):
                self.register_parameter(name, weight)

    @property
    def wildcards(self) -> Wildcards | None:
        """The current weights; None for plain CTC."""
        if self.criterion is not None:
            return self.criterion.wildcards
        if self._wildcards is None or not self._parameters:
            return self._wildcards
        return replace(self._wildcards, **self._parameters)  # type: ignore[arg-type]

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        input_lengths: Lengths,
        target_lengths: Lengths,
        words: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss.

        Args:
            logits: (T, N, C), or (T, C) for one utterance.
            targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
            input_lengths: (N,) frames of each utterance.
            target_lengths: (N,) labels of each transcript.
            words: The word of each label, in the shape of the targets; needed by word arcs only (see `word_ids`).

        Returns:
            The loss: (), or (N,) without a reduction.
        """
        return wildcard_ctc_loss(
            logits,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
            wildcards=self.wildcards,
            words=words,
            backend=self.backend,
        )

    def get_extra_state(self) -> Tensor:
        """Give the state of the schedule to `state_dict`.

        Returns:
            Numbers, then the bytes of the criterion's name. It is a tensor, because some formats of checkpoints, such
            as safetensors, hold nothing else. Empty without a criterion.
        """
        criterion = self.criterion
        state = [] if criterion is None else [*criterion.state_dict().values(), *criterion.name.encode()]
        return torch.tensor(state, dtype=torch.float64)

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
            keys = list(self.criterion.state_dict())
            name = bytes(map(int, numbers[len(keys) :])).decode()
            if name not in ("", self.criterion.name):
                raise ValueError(
                    f"the state_dict's criterion is {name}, which does not match this loss, {self.criterion.name}"
                )
            self.criterion.load_state_dict(dict(zip(keys, numbers[: len(keys)], strict=True)))

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
