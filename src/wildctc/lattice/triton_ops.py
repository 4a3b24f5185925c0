"""The Triton backend as a pair of PyTorch operators, forward and backward: torch.compile sees no graph break."""

import torch
from torch import Tensor

from wildctc.lattice.arcs import Lattice, compute_dtype
from wildctc.lattice.native import check_values
from wildctc.lattice.triton_backend import Passed, backward, forward, gradient_like, num_positions, num_states

_TENSORS = 8  # the first fields of Lattice are tensors, or None
_DIFFERENTIABLE = (0, 5, 6, 7)  # logits and weights


def loss(lattice: Lattice) -> Tensor:
    """Negative log-likelihoods (N,), differentiable with respect to logits and tensor weights."""
    keep = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (lattice.logits, *lattice.weights)
    )
    return loss_op(*lattice, keep)[0]


@torch.library.custom_op("wildctc::triton_loss", mutates_args=())
def loss_op(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    words: Tensor | None,
    bypass: Tensor | None,
    self_loop: Tensor | None,
    word_bypass: Tensor | None,
    values: list[float],
    blank: int,
    loops_at_words: bool,
    keep: bool,
) -> list[Tensor]:
    """Losses (N,), and the fields of `Passed`."""
    weights = (bypass, self_loop, word_bypass)
    lattice = Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    check_values(lattice)
    losses, passed = forward(lattice, keep)
    return [losses, *passed]


@loss_op.register_fake
def _(*args):
    *fields, keep = args
    lattice = Lattice(*fields)
    length, size, _ = lattice.logits.shape
    alphas = num_positions(lattice) * num_states(lattice) * (length + 1) if keep else 0
    shapes = ((size,), (size,), (alphas,), (size, length), (size, length), (size, length))
    return [lattice.logits.new_empty(shape, dtype=compute_dtype(lattice.logits)) for shape in shapes]


@torch.library.custom_op("wildctc::triton_gradients", mutates_args=())
def gradients_op(
    grad: Tensor,
    passed: list[Tensor],
    logits: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    words: Tensor | None,
    bypass: Tensor | None,
    self_loop: Tensor | None,
    word_bypass: Tensor | None,
    values: list[float],
    blank: int,
    loops_at_words: bool,
    wanted: list[bool],
) -> list[Tensor]:
    """Gradients of logits and weights times that of the losses (N,); each an empty tensor if it is not wanted."""
    weights = (bypass, self_loop, word_bypass)
    lattice = Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    grad = grad.contiguous()
    result, counts = backward(lattice, Passed(*passed), grad, wanted)
    found = [result if result is not None else logits.new_empty(0)]
    for count, weight in zip(counts, weights, strict=True):
        if count is None or weight is None:
            found.append(logits.new_empty(0))
        else:
            factor = grad.unsqueeze(1) if count.dim() == 2 else grad
            found.append(torch.where(factor == 0, 0, -count * factor).to(weight.dtype))
    return found


@gradients_op.register_fake
def _(*args):
    *fields, wanted = args[2:]
    given = [fields[i] for i in _DIFFERENTIABLE]
    first = gradient_like(given[0]) if wanted[0] else given[0].new_empty(0)
    rest = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) if x is not None and w else given[0].new_empty(0)
        for x, w in zip(given[1:], wanted[1:], strict=True)
    )
    return [first, *rest]


def _setup_context(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)
    *fields, _keep = inputs
    ctx.save_for_backward(*fields[:_TENSORS], *output[1:])
    ctx.rest = fields[_TENSORS:]


def _backward(ctx, grads):
    nothing = [None] * 12
    if grads[0] is None:
        return tuple(nothing)
    fields, passed = ctx.saved_tensors[:_TENSORS], list(ctx.saved_tensors[_TENSORS:])
    wanted = [ctx.needs_input_grad[i] for i in _DIFFERENTIABLE]
    found = gradients_op(grads[0], passed, *fields, *ctx.rest, wanted)
    for i, gradient, wanted_too in zip(_DIFFERENTIABLE, found, wanted, strict=True):
        nothing[i] = gradient if wanted_too else None
    return tuple(nothing)


loss_op.register_autograd(_backward, setup_context=_setup_context)
