"""The native backend as a PyTorch operator: with autograd, and known to torch.compile.

In a compiled graph the operator of `torch.library` is used. Eager calls go to the same function through a plain
autograd.Function, because dispatching a custom operator costs more than the whole lattice of a short utterance
(benchmarks/loss.py, last row).
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from wildctc.lattice import native
from wildctc.lattice.arcs import Lattice, compute_dtype
from wildctc.lattice.native import check_values

_TENSORS = 8  # the first fields of Lattice are tensors, or None
_DIFFERENTIABLE = (0, 5, 6, 7)  # logits and weights


def loss(lattice: Lattice, reduction: str, zero_infinity: bool) -> Tensor:
    """Negative log-likelihoods, (N,) or reduced to (), differentiable with respect to logits and tensor weights."""
    inputs = (lattice.logits, *lattice.weights)
    want = [x is not None and x.requires_grad and torch.is_grad_enabled() for x in inputs]
    if torch.compiler.is_compiling() or type(lattice.logits) not in (Tensor, torch.nn.Parameter):
        return loss_op(*lattice, reduction, zero_infinity, want)[0]
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError('torch.func (vmap, grad, jvp, …) of the loss needs backend="reference"')
    if any(x is not None and unpack_dual(x).tangent is not None for x in inputs):
        raise NotImplementedError('forward-mode derivatives of the loss need backend="reference"')
    if not any(want):
        return native.loss(lattice, reduction, zero_infinity, want)[0]
    return _Loss.apply(*lattice, reduction, zero_infinity)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        *fields, reduction, zero_infinity = args
        want = [ctx.needs_input_grad[i] for i in _DIFFERENTIABLE]
        result, ctx.gradients = native.loss(Lattice(*fields), reduction, zero_infinity, want)
        ctx.save_for_backward(*fields[:_TENSORS])
        ctx.rest = (fields[_TENSORS:], reduction, zero_infinity, want)
        return result

    @staticmethod
    def backward(ctx, grad):
        # Given away, not lent: a leaf's .grad then needs no copy. A second backward computes them anew.
        tensors = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        rest, reduction, zero_infinity, want = ctx.rest
        with torch.no_grad():
            if gradients is None:
                gradients = native.loss(Lattice(*tensors, *rest), reduction, zero_infinity, want)[1]
            if not (grad.item() == 1 if grad.dim() == 0 else (grad == 1).all()):
                gradients = scaled(gradients, grad)
            gradients[0] = in_dtype(gradients[0], tensors[0].dtype)
        if torch.is_grad_enabled():
            gradients = differentiable_once(gradients, grad, *(tensors[i] for i in _DIFFERENTIABLE))
        return gradients[0], None, None, None, None, *gradients[1:], None, None, None, None, None


def differentiable_once(gradients: native.Gradients, *inputs: Tensor | None) -> native.Gradients:
    """For a backward pass that is recorded (create_graph=True): gradients that depend on the inputs, and refuse to be
    differentiated, where they would pass for constants."""
    return [g if g is None else _Once.apply(g, *inputs) for g in gradients]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gradient, *inputs):
        return gradient.clone()

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError('the loss can be differentiated once; for more use backend="reference"')


def scaled(gradients: native.Gradients, grad: Tensor) -> native.Gradients:
    """Times the gradient of the loss, () or (N,). An utterance that is not used passes nothing on, not even NaN."""
    result: native.Gradients = []
    for x in gradients:
        factor = grad if grad.dim() == 0 or x is None else grad.view({3: (1, -1, 1), 2: (-1, 1), 1: (-1,)}[x.dim()])
        result.append(None if x is None else torch.where(factor == 0, 0, x * factor).to(x.dtype))
    return result


def in_dtype(gradient: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Half types are rounded to last, after scaling: a small gradient that a large scale would save is still there."""
    return gradient if gradient is None or gradient.dtype == dtype else gradient.to(dtype)


@torch.library.custom_op("wildctc::loss", mutates_args=(), device_types="cpu")
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
    reduction: str,
    zero_infinity: bool,
    want: list[bool],
) -> list[Tensor]:
    """The loss, and its gradients to logits and weights, each an empty tensor if it is not wanted."""
    weights = (bypass, self_loop, word_bypass)
    lattice = Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    result, gradients = native.loss(lattice, reduction, zero_infinity, want)
    return [result, *(g if g is not None else logits.new_empty(0) for g in gradients)]


@loss_op.register_fake
def _(*args):
    *fields, reduction, _zero_infinity, want = args
    logits = fields[0]
    shape = (logits.shape[1],) if reduction == "none" else ()
    inputs = [fields[i] for i in _DIFFERENTIABLE]
    gradients = [
        (native.gradient_like(x) if x is logits else torch.empty_like(x))
        if wanted and x is not None
        else logits.new_empty(0)
        for x, wanted in zip(inputs, want, strict=True)
    ]
    return [logits.new_empty(shape, dtype=compute_dtype(logits)), *gradients]


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.want, ctx.dtype = inputs[-1], inputs[0].dtype


def _backward(ctx, grads):
    saved = ctx.saved_tensors
    gradients = [g if wanted else None for g, wanted in zip(saved, ctx.want, strict=True)]
    with torch.no_grad():
        gradients = scaled(gradients, grads[0])
        gradients[0] = in_dtype(gradients[0], ctx.dtype)
    if torch.is_grad_enabled():
        gradients = differentiable_once(gradients, grads[0], *saved)  # saved outputs, which depend on the inputs
    return gradients[0], None, None, None, None, *gradients[1:], None, None, None, None, None, None


loss_op.register_autograd(_backward, setup_context=_setup_context)


P = ParamSpec("P")
R = TypeVar("R")


def eagerly(function: Callable[P, R]) -> Callable[P, R]:
    """A function that torch.compile does not look into: for those that hand addresses of tensors to native code.

    torch.compiler.disable as a decorator would do the same, but imports the compiler, which takes seconds.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call


def checked(lattice: Lattice) -> Lattice:
    """The lattice after `check_values`, for a backend that torch.compile and torch.func look into.

    An operator checks, because it gets tensors that have values, where this function may not. Logits are not looked at.
    """
    shape = torch.empty((), dtype=lattice.logits.dtype, device=lattice.logits.device).expand(lattice.logits.shape)
    fields = (x.detach() if isinstance(x, Tensor) else x for x in lattice._replace(logits=shape))
    return lattice._replace(targets=check_op(*fields))


@torch.library.custom_op("wildctc::check", mutates_args=())
def check_op(
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
) -> Tensor:
    """The targets, once everything has been checked: as a result that is used, so that no compiler drops the check."""
    weights = (bypass, self_loop, word_bypass)
    check_values(
        Lattice(logits, targets, input_lengths, target_lengths, words, *weights, values, blank, loops_at_words)
    )
    return targets.clone()


@check_op.register_fake
def _(logits, targets, *rest):
    return torch.empty_like(targets)


@check_op.register_vmap
def _(info, in_dims, *fields):
    checked = []
    for i in range(info.batch_size):
        one = (x.select(dim, i) if isinstance(dim, int) else x for x, dim in zip(fields, in_dims, strict=True))
        checked.append(check_op(*one))
    return torch.stack(checked), 0
