"""The native backend as PyTorch operators: with autograd, and known to torch.compile.

In a compiled graph the operators of `torch.library` are used. Eager calls go to the same functions through a plain
autograd.Function, because dispatching a custom operator costs more than the whole lattice of a short utterance
(benchmarks/loss.py, last row).
"""

import torch
from torch import Tensor

from wildctc.lattice import native
from wildctc.lattice.arcs import Lattice, compute_dtype

_WEIGHTS = slice(5, 8)


def losses(lattice: Lattice) -> Tensor:
    """(N,) negative log-likelihoods, differentiable with respect to logits and tensor weights."""
    plain = type(lattice.logits) in (Tensor, torch.nn.Parameter)
    if torch.compiler.is_compiling() or not plain:
        return forward_op(*lattice, keep=_needs_grad(lattice))[0]
    return _Losses.apply(*lattice)


def _needs_grad(lattice: Lattice) -> bool:
    tensors = (lattice.logits, *lattice.weights)
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


class _Losses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):  # type: ignore[no-untyped-def]
        lattice = Lattice(*args)
        result, saved = native.forward(lattice, keep=any(ctx.needs_input_grad))
        ctx.save_for_backward(*(x for x in args if isinstance(x, Tensor)), saved)
        ctx.args = tuple(isinstance(x, Tensor) or x for x in args)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_losses):  # type: ignore[no-untyped-def]
        tensors = list(ctx.saved_tensors)
        saved = tensors.pop()
        tensors.reverse()
        lattice = Lattice(*(tensors.pop() if x is True and i < 8 else x for i, x in enumerate(ctx.args)))
        want = [ctx.needs_input_grad[i] for i in (0, 5, 6, 7)]
        grads = native.backward(lattice, saved, grad_losses, want)
        return (grads[0], None, None, None, None, *grads[1:], None, None, None)


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
    keep: bool,
) -> tuple[Tensor, Tensor]:
    weights = (bypass, self_loop, word_bypass)
    lattice = Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    return native.forward(lattice, keep)


@forward_op.register_fake
def _(
    logits,
    targets,
    input_lengths,
    target_lengths,
    words,
    bypass,
    self_loop,
    word_bypass,
    values,
    blank,
    loops_at_words,
    keep,
):  # type: ignore[no-untyped-def]
    lattice = Lattice(
        logits,
        targets,
        input_lengths,
        target_lengths,
        words,
        bypass,
        self_loop,
        word_bypass,
        values,
        blank,
        loops_at_words,
    )
    saved = native.saved_bytes(lattice) if keep else 0
    return logits.new_empty(logits.shape[1], dtype=compute_dtype(logits)), logits.new_empty(saved, dtype=torch.uint8)


@torch.library.custom_op("wildctc::backward", mutates_args=(), device_types="cpu")
def backward_op(
    grad_losses: Tensor,
    saved: Tensor,
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
    want: list[bool],
) -> list[Tensor]:
    """Gradients to logits and weights; an empty tensor for one that is not wanted."""
    lattice = Lattice(
        logits,
        targets,
        input_lengths,
        target_lengths,
        words,
        bypass,
        self_loop,
        word_bypass,
        values,
        blank,
        loops_at_words,
    )
    grads = native.backward(lattice, saved, grad_losses, want)
    return [g if g is not None else logits.new_empty(0) for g in grads]


@backward_op.register_fake
def _(
    grad_losses,
    saved,
    logits,
    targets,
    input_lengths,
    target_lengths,
    words,
    bypass,
    self_loop,
    word_bypass,
    values,
    blank,
    loops_at_words,
    want,
):  # type: ignore[no-untyped-def]
    tensors = (logits, bypass, self_loop, word_bypass)
    return [
        torch.empty_like(x) if w and x is not None else logits.new_empty(0) for x, w in zip(tensors, want, strict=True)
    ]


def _setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.tensors = [isinstance(x, Tensor) for x in inputs[:8]]
    ctx.save_for_backward(*(x for x in inputs[:8] if x is not None), output[1])
    ctx.rest = inputs[8:11]


def _backward(ctx, grad_losses, _):  # type: ignore[no-untyped-def]
    *tensors, saved = ctx.saved_tensors
    present = iter(tensors)
    args = [next(present) if given else None for given in ctx.tensors]
    want = [ctx.needs_input_grad[i] for i in (0, 5, 6, 7)]
    grads = backward_op(grad_losses, saved, *args, *ctx.rest, want)
    grads = [g if w else None for g, w in zip(grads, want, strict=True)]
    return (grads[0], None, None, None, None, *grads[1:], None, None, None, None)


forward_op.register_autograd(_backward, setup_context=_setup_context)
