"""The loss as a module, with the schedule of its weights inside."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from wildctc.criteria import Criterion
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.checks import Lengths
from wildctc.lattice.functional import Backend, Reduction, check_reduction, wildcard_ctc_loss


class WildcardCTCLoss(torch.nn.Module):
    """`torch.nn.CTCLoss` with wildcards; takes logits.

    wildcards: None (plain CTC), `Wildcards`, a `Criterion`, or a criterion's name ("otc-tw-h"). With a name or a
    Criterion its schedule is `.criterion` — call `.criterion.step(entropy)` at each epoch's end — and its state is part
    of this module's state_dict. Weights in `Wildcards` that are `torch.nn.Parameter`s are parameters of this module.

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
        """The weights in force now."""
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
        # a tensor, so that it also travels through formats that hold nothing else; the name is there byte by byte
        criterion = self.criterion
        state = [] if criterion is None else [*criterion.state_dict().values(), *criterion.name.encode()]
        return torch.tensor(state, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
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
        if self.criterion is None:  # as torch.nn.CTCLoss, whose checkpoints have nothing of it
            state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"blank={self.blank}, reduction={self.reduction!r}, wildcards={self.criterion or self._wildcards}"
