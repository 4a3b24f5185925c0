"""The native backend as PyTorch operators: with autograd, and known to torch.compile.

In a compiled graph the operators of `torch.library` are used. Eager calls go to the same functions through a plain
autograd.Function, because dispatching a custom operator costs more than the whole lattice of a short utterance
(benchmarks/loss.py, last row).
"""

import torch
from torch import Tensor

from wildctc.lattice import native
from wildctc.lattice.arcs import Lattice, compute_dtype

_TENSORS = 8  # the first fields of Lattice are tensors, or None
_DIFFERENTIABLE = (0, 5, 6, 7)  # logits and weights


def loss(lattice: Lattice, reduction: str, zero_infinity: bool) -> Tensor:
    """Negative log-likelihoods, (N,) or reduced to (), differentiable with respect to logits and tensor weights."""
    if torch.compiler.is_compiling() or type(lattice.logits) not in (Tensor, torch.nn.Parameter):
        keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in lattice[:_TENSORS])
        return forward_op(*lattice, reduction, zero_infinity, keep)[0]
    return _Loss.apply(*lattice, reduction, zero_infinity)  # type: ignore[no-any-return]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):  # type: ignore[no-untyped-def]
        *fields, reduction, zero_infinity = args
        result, saved = native.forward(Lattice(*fields), reduction, zero_infinity, any(ctx.needs_input_grad))
        ctx.save_for_backward(*fields[:_TENSORS], saved)
        ctx.rest = (fields[_TENSORS:], reduction)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        *tensors, saved = ctx.saved_tensors
        rest, reduction = ctx.rest
        want = [ctx.needs_input_grad[i] for i in _DIFFERENTIABLE]
        grads = native.backward(Lattice(*tensors, *rest), reduction, saved, grad, want)
        return grads[0], None, None, None, None, *grads[1:], None, None, None, None, None


@torch.library.custom_op("wildctc::forward", mutates_args=(), device_types="cpu")
def forward_op(
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
    reduction: str,
    zero_infinity: bool,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    weights = (bypass, self_loop, word_bypass)
    lattice = Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    return native.forward(lattice, reduction, zero_infinity, keep)


@forward_op.register_fake
def _(*args):  # type: ignore[no-untyped-def]
    *fields, reduction, _zero_infinity, keep = args
    lattice = Lattice(*fields)
    shape = (lattice.logits.shape[1],) if reduction == "none" else ()
    saved = native.saved_bytes(lattice) if keep else 0
    loss = lattice.logits.new_empty(shape, dtype=compute_dtype(lattice.logits))
    return loss, lattice.logits.new_empty(saved, dtype=torch.uint8)


@torch.library.custom_op("wildctc::backward", mutates_args=(), device_types="cpu")
def backward_op(
    grad: Tensor,
    saved: Tensor,
    want: list[bool],
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
    reduction: str,
) -> list[Tensor]:
    """Gradients to logits and weights; an empty tensor for one that is not wanted."""
    weights = (bypass, self_loop, word_bypass)
    lattice = Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    grads = native.backward(lattice, reduction, saved, grad, want)
    return [g if g is not None else logits.new_empty(0) for g in grads]


@backward_op.register_fake
def _(grad, saved, want, *fields):  # type: ignore[no-untyped-def]
    tensors = [fields[i] for i in _DIFFERENTIABLE]
    return [
        torch.empty_like(x) if wanted and x is not None else fields[0].new_empty(0)
        for x, wanted in zip(tensors, want, strict=True)
    ]


def _setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:_TENSORS], output[1])
    ctx.rest = inputs[_TENSORS:12]


def _backward(ctx, grad, _):  # type: ignore[no-untyped-def]
    *tensors, saved = ctx.saved_tensors
    want = [ctx.needs_input_grad[i] for i in _DIFFERENTIABLE]
    grads = backward_op(grad, saved, want, *tensors, *ctx.rest)
    grads = [g if wanted else None for g, wanted in zip(grads, want, strict=True)]
    return grads[0], None, None, None, None, *grads[1:], None, None, None, None, None, None


forward_op.register_autograd(_backward, setup_context=_setup_context)
