"""The Triton backend as two PyTorch operators, forward and backward, so that torch.compile has no graph break."""

from typing import Any

import torch
from torch import Tensor

from wildctc.lattice.arcs import Lattice
from wildctc.lattice.native import check_values, gradient_like
from wildctc.lattice.ops import DIFFERENTIABLE, LATTICE_SCHEMA, TENSORS
from wildctc.lattice.triton_backend import Passed, backward, forward, tensors_made


def loss(lattice: Lattice) -> Tensor:
    """Compute the losses, differentiable with respect to logits and tensor weights.

    Args:
        lattice: The batch, on a GPU.

    Returns:
        Negative log-likelihoods (N,).
    """
    keep = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (lattice.logits, *lattice.weights)
    )
    return loss_op(*lattice, keep)[0]


@torch.library.custom_op("wildctc::triton_loss", mutates_args=(), schema=f"({LATTICE_SCHEMA}, bool keep) -> Tensor[]")
def loss_op(*args: Any) -> list[Tensor]:
    """Run the forward pass, as an operator.

    Args:
        *args: The fields of a `Lattice`, then whether to keep what the backward pass needs.

    Returns:
        Losses (N,), and the other tensors of `Passed`.
    """
    *fields, keep = args
    lattice = Lattice(*fields)
    check_values(lattice)
    return forward(lattice, keep).tensors()


@loss_op.register_fake
def _(*args: Any) -> list[Tensor]:
    *fields, keep = args
    return tensors_made(Lattice(*fields), keep)


@torch.library.custom_op(
    "wildctc::triton_gradients",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor[] passed, {LATTICE_SCHEMA}, bool[] wanted) -> Tensor[]",
)
def _gradients_op(grad: Tensor, passed: list[Tensor], *args: Any) -> list[Tensor]:
    """Compute the gradients of logits and weights times that of the losses (N,); an empty tensor if not wanted."""
    *fields, wanted = args
    lattice = Lattice(*fields)
    grad = grad.contiguous()
    result, counts = backward(lattice, Passed.from_tensors(passed), grad, wanted)
    found = [result if result is not None else lattice.logits.new_empty(0)]
    for count, weight in zip(counts, lattice.weights, strict=True):
        if count is None or weight is None:
            found.append(lattice.logits.new_empty(0))
        else:
            factor = grad.unsqueeze(1) if count.dim() == 2 else grad
            found.append(torch.where(factor == 0, 0, -count * factor).to(weight.dtype))
    return found


@_gradients_op.register_fake
def _(grad: Tensor, passed: list[Tensor], *args: Any) -> list[Tensor]:
    *fields, wanted = args
    given = [fields[i] for i in DIFFERENTIABLE]
    first = gradient_like(given[0], given[0].dtype) if wanted[0] else given[0].new_empty(0)
    rest = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) if x is not None and w else given[0].new_empty(0)
        for x, w in zip(given[1:], wanted[1:], strict=True)
    )
    return [first, *rest]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    *fields, _keep = inputs
    ctx.save_for_backward(*fields[:TENSORS], *output)
    ctx.rest = fields[TENSORS:]


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    gradients: list[Tensor | None] = [None] * (len(Lattice._fields) + 1)
    if grads[0] is None:
        return tuple(gradients)
    fields, passed = ctx.saved_tensors[:TENSORS], list(ctx.saved_tensors[TENSORS:])
    wanted = [ctx.needs_input_grad[i] for i in DIFFERENTIABLE]
    found = _gradients_op(grads[0], passed, *fields, *ctx.rest, wanted)
    for i, gradient, wanted_too in zip(DIFFERENTIABLE, found, wanted, strict=True):
        gradients[i] = gradient if wanted_too else None
    return tuple(gradients)


loss_op.register_autograd(_backward, setup_context=_setup_context)
