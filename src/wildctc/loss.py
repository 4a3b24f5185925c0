"""The loss as a module, with the schedule of its weights inside."""

import torch
from torch import Tensor

from wildctc.criteria import Criterion
from wildctc.lattice.arcs import Lengths, Wildcards
from wildctc.lattice.functional import Backend, Reduction, wildcard_ctc_loss


class WildcardCTCLoss(torch.nn.Module):
    """`torch.nn.CTCLoss` with wildcards; takes logits.

    wildcards: None (plain CTC), `Wildcards`, a `Criterion`, or a criterion's name ("otc-tw-h"). With a name or a
    Criterion its schedule is `.criterion` — call `.criterion.step(entropy)` at each epoch's end — and its state is part
    of this module's state_dict.

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
        self.blank, self.reduction, self.zero_infinity, self.backend = blank, reduction, zero_infinity, backend
        if isinstance(wildcards, str):
            wildcards = Criterion(wildcards)
        self.criterion = wildcards if isinstance(wildcards, Criterion) else None
        self._wildcards = wildcards if isinstance(wildcards, Wildcards) else None

    @property
    def wildcards(self) -> Wildcards | None:
        """The weights in force now."""
        return self.criterion.wildcards if self.criterion is not None else self._wildcards

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
        # a tensor, so that it also travels through formats that hold nothing else
        state = self.criterion.state_dict() if self.criterion is not None else {}
        return torch.tensor(list(state.values()), dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        keys = self.criterion.state_dict() if self.criterion is not None else {}
        if len(keys) != state.numel():
            raise ValueError("the state_dict's criterion does not match this loss: one of them has no schedule")
        if self.criterion is not None:
            self.criterion.load_state_dict(dict(zip(keys, state.tolist(), strict=True)))

    def extra_repr(self) -> str:
        return f"blank={self.blank}, reduction={self.reduction!r}, wildcards={self.criterion or self._wildcards}"
