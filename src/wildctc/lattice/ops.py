"""The native backend as a PyTorch operator, for autograd and torch.compile.

In a compiled graph the operator of `torch.library` is used. Eager calls go to the same function through a plain
autograd.Function, because dispatching a custom operator costs more than the whole lattice of a short utterance
(benchmarks/loss.py, last row).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from wildctc.lattice import native
from wildctc.lattice.arcs import Lattice, compute_dtype
from wildctc.lattice.native import check_values

# The fields of `Lattice` as torch.library describes them: the first arguments of every operator.
LATTICE_SCHEMA = (
    "Tensor logits, Tensor targets, Tensor input_lengths, Tensor target_lengths, Tensor? words, Tensor? bypass, "
    "Tensor? self_loop, Tensor? word_bypass, float[] values, SymInt blank, bool loops_at_words, int memory"
)
TENSORS = 8  # the first fields of Lattice are tensors, or None
DIFFERENTIABLE = (0, 5, 6, 7)  # logits and weights
_P = ParamSpec("_P")
_R = TypeVar("_R")


def loss(lattice: Lattice, reduction: str, zero_infinity: bool) -> Tensor:
    """Compute the loss, differentiable with respect to logits and tensor weights.

    Args:
        lattice: The batch, on the CPU.
        reduction: "none", "mean" or "sum".
        zero_infinity: Whether a loss of +inf becomes 0.

    Returns:
        Negative log-likelihoods (N,), or reduced to ().
    """
    inputs = (lattice.logits, *lattice.weights)
    want = [x is not None and x.requires_grad and torch.is_grad_enabled() for x in inputs]
    if torch.compiler.is_compiling() or type(lattice.logits) not in (Tensor, torch.nn.Parameter):
        return loss_op(*lattice, reduction, zero_infinity, want)[0]
    check_transforms(*inputs)
    if not any(want):
        return native.loss(lattice, reduction, zero_infinity, want)[0]
    return _Loss.apply(lattice, reduction, zero_infinity, *inputs)


def check_transforms(*inputs: Tensor | None) -> None:
    """Refuse derivatives that native code cannot compute.

    Args:
        *inputs: The tensors that the loss is differentiated by.

    Raises:
        NotImplementedError: torch.func or forward mode is at work.
    """
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError('torch.func (vmap, grad, jvp, …) of the loss needs backend="reference"')
    if any(x is not None and unpack_dual(x).tangent is not None for x in inputs):
        raise NotImplementedError('forward-mode derivatives of the loss need backend="reference"')


class _Loss(torch.autograd.Function):
    # few arguments, and nothing that is not needed: for a short utterance this is most of the time
    @staticmethod
    def forward(ctx: Any, lattice: Lattice, reduction: str, zero_infinity: bool, *inputs: Tensor | None) -> Tensor:
        want = ctx.needs_input_grad[3:]
        result, ctx.gradients = native.loss(lattice, reduction, zero_infinity, want)
        ctx.save_for_backward(*lattice[:TENSORS])
        ctx.rest = (lattice[TENSORS:], reduction, zero_infinity, want)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Transfer ownership of the gradients, so autograd need not copy them. A second backward computes them again.
        tensors = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if torch.is_grad_enabled():
            with torch.no_grad():
                gradients = _Loss.scaled(ctx, tensors, gradients, grad)
            gradients = differentiable_once(gradients, grad, *(tensors[i] for i in DIFFERENTIABLE))
        else:
            gradients = _Loss.scaled(ctx, tensors, gradients, grad)
        return None, None, None, *gradients

    @staticmethod
    def scaled(ctx: Any, tensors: Sequence[Any], gradients: native.Gradients | None, grad: Tensor) -> native.Gradients:
        if gradients is None:
            rest, reduction, zero_infinity, want = ctx.rest
            gradients = native.loss(Lattice(*tensors, *rest), reduction, zero_infinity, want)[1]
        return scaled_by(gradients, grad, tensors[0].dtype)


def scaled_by(gradients: native.Gradients, grad: Tensor, dtype: torch.dtype) -> native.Gradients:
    """Multiply gradients by that of the loss.

    Args:
        gradients: To logits, then to weights.
        grad: Of the loss, () or (N,).
        dtype: That of the logits, whose gradient is rounded to it after scaling.

    Returns:
        The scaled gradients.
    """
    if not (grad.item() == 1 if grad.dim() == 0 else (grad == 1).all()):
        gradients = _scaled(gradients, grad)
    return [_in_dtype(gradients[0], dtype), *gradients[1:]]


def differentiable_once(gradients: native.Gradients, *inputs: Tensor | None) -> native.Gradients:
    """Make gradients that raise an error if they are differentiated, for a backward pass with create_graph=True.

    Otherwise autograd would take them for constants, and second derivatives would silently be 0.

    Args:
        gradients: To logits and weights.
        *inputs: What they depend on.

    Returns:
        The same numbers.
    """
    return [g if g is None else _Once.apply(g, *inputs) for g in gradients]


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor | None) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        raise NotImplementedError('the loss can be differentiated once; for more use backend="reference"')


def _scaled(gradients: native.Gradients, grad: Tensor) -> native.Gradients:
    """Multiply by the gradient of the loss, () or (N,). Where that is 0 the result is 0, also of NaN."""
    result: native.Gradients = []
    for x in gradients:
        factor = grad if grad.dim() == 0 or x is None else grad.view({3: (1, -1, 1), 2: (-1, 1), 1: (-1,)}[x.dim()])
        result.append(None if x is None else torch.where(factor == 0, 0, x * factor).to(x.dtype))
    return result


def _in_dtype(gradient: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Round to a half-precision type after scaling, so that a large scale (GradScaler) saves small gradients."""
    return gradient if gradient is None or gradient.dtype == dtype else gradient.to(dtype)


@torch.library.custom_op(
    "wildctc::loss",
    mutates_args=(),
    device_types="cpu",
    schema=f"({LATTICE_SCHEMA}, str reduction, bool zero_infinity, bool[] want) -> Tensor[]",
)
def loss_op(*args: Any) -> list[Tensor]:
    """Compute the loss and its gradients, as an operator.

    Args:
        *args: The fields of a `Lattice`, then the other arguments of `native.loss`.

    Returns:
        The loss, and the gradients to logits and weights, each an empty tensor if it is not needed.
    """
    *fields, reduction, zero_infinity, want = args
    lattice = Lattice(*fields)
    result, gradients = native.loss(lattice, reduction, zero_infinity, want)
    return [result, *(g if g is not None else lattice.logits.new_empty(0) for g in gradients)]


@loss_op.register_fake
def _(*args: Any) -> list[Tensor]:
    *fields, reduction, _zero_infinity, want = args
    logits = fields[0]
    shape = (logits.shape[1],) if reduction == "none" else ()
    inputs = [fields[i] for i in DIFFERENTIABLE]
    gradients = [
        (native.gradient_like(x, compute_dtype(x)) if x is logits else torch.empty_like(x))
        if wanted and x is not None
        else logits.new_empty(0)
        for x, wanted in zip(inputs, want, strict=True)
    ]
    return [logits.new_empty(shape, dtype=compute_dtype(logits)), *gradients]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.want, ctx.dtype = inputs[-1], inputs[0].dtype


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    gradients = [g if wanted else None for g, wanted in zip(saved, ctx.want, strict=True)]
    with torch.no_grad():
        gradients = _scaled(gradients, grads[0])
        gradients[0] = _in_dtype(gradients[0], ctx.dtype)
    if torch.is_grad_enabled():
        gradients = differentiable_once(gradients, grads[0], *saved)  # saved outputs depend on the inputs
    return gradients[0], None, None, None, None, *gradients[1:], None, None, None, None, None, None, None


loss_op.register_autograd(_backward, setup_context=_setup_context)


def eagerly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Keep torch.compile and torch.func from tracing a function, because it passes addresses of tensors to native code.

    torch.compiler.disable as a decorator would do the same, but it imports the compiler, which takes seconds.

    Args:
        function: Any function.

    Returns:
        The function. It is called eagerly even in a compiled graph, and raises NotImplementedError inside torch.func.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        if torch._C._are_functorch_transforms_active():  # tensors that are made inside have no addresses either
            raise NotImplementedError(f"{function.__name__} cannot be transformed by torch.func; call it outside")
        return function(*args, **kwargs)

    return call


def checked(lattice: Lattice) -> Lattice:
    """Check the values of a lattice (`native.check_values`), for a backend that torch.compile and torch.func trace.

    An operator does it, because an operator gets tensors with values, even where this function is traced without them.

    Args:
        lattice: The batch. The values of its logits are not checked.

    Returns:
        The lattice, with targets that come from the check, so that no compiler removes it.
    """
    shape = torch.empty((), dtype=lattice.logits.dtype, device=lattice.logits.device).expand(lattice.logits.shape)
    fields = (x.detach() if isinstance(x, Tensor) else x for x in lattice._replace(logits=shape))
    return lattice._replace(targets=_check_op(*fields))


@torch.library.custom_op("wildctc::check", mutates_args=(), schema=f"({LATTICE_SCHEMA}) -> Tensor")
def _check_op(*fields: Any) -> Tensor:
    """Check a lattice, and return a copy of its targets."""
    lattice = Lattice(*fields)
    check_values(lattice)
    return lattice.targets.clone()


@_check_op.register_fake
def _(logits: Tensor, targets: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(targets)


@_check_op.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *fields: Any) -> tuple[Tensor, int]:
    checked = []
    for i in range(info.batch_size):
        one = (x.select(dim, i) if isinstance(dim, int) else x for x, dim in zip(fields, in_dims, strict=True))
        checked.append(_check_op(*one))
    return torch.stack(checked), 0
