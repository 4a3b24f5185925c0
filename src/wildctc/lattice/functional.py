"""The public functions of the engine."""

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from wildctc.lattice import native, ops, reference, triton_backend, triton_ops
from wildctc.lattice.arcs import ABSENT, Lattice, Wildcards, as_lattice, compute_dtype, each_arc, padded_rows
from wildctc.lattice.checks import Lengths, on_device
from wildctc.lattice.native import check_values

Backend = Literal["auto", "reference", "native", "triton"]
Reduction = Literal["none", "mean", "sum"]

HAS_TRITON = importlib.util.find_spec("triton") is not None
MANY_WORDS = 1_000_000  # in an utterance
_said: set[str] = set()  # what has been said once


def wildcard_ctc_loss(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
    *,
    wildcards: Wildcards | None = None,
    words: Tensor | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """CTC, or CTC with wildcard arcs, from logits: arguments as those of `torch.nn.functional.ctc_loss`.

    logits: (T, N, C) or (T, C), any float type, any strides; log-probabilities are fine too. targets: (N, S) padded or
    1-D concatenated. input_lengths, target_lengths: (N,) tensors or lists. words: like targets, the word of each token
    (`word_ids`), needed for word arcs only. Returns () or, with reduction="none", (N,): `mean` divides each loss by
    its target's length before averaging, as torch does. An utterance with too few frames has loss +inf (0 with
    `zero_infinity`) and gradient 0. With wildcards a loss can be negative.

    >>> logits = torch.zeros(4, 1, 3)
    >>> loss = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], reduction="sum")
    >>> wild = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], reduction="sum",
    ...                          wildcards=Wildcards(bypass=-1.0, self_loop=-2.0))
    >>> f"{loss:.4f} {wild:.4f}"
    '1.6864 0.9765'
    """
    check_reduction(reduction)
    lattice = as_lattice(logits, targets, input_lengths, target_lengths, blank, wildcards, words)
    chosen = choose_backend(backend, lattice)
    if chosen == "native":
        loss = ops.loss(lattice, reduction, zero_infinity)
    elif chosen == "triton":
        loss = _reduce(triton_ops.loss(lattice), lattice.target_lengths, reduction, zero_infinity)
    else:
        lattice = ops.checked(lattice)
        loss = _reduce(-reference.log_likelihood(lattice), lattice.target_lengths, reduction, zero_infinity)
    return loss.squeeze(0) if logits.dim() == 2 and reduction == "none" else loss


def check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction must be "none", "mean" or "sum", got {reduction!r}')


def _reduce(losses: Tensor, target_lengths: Tensor, reduction: Reduction, zero_infinity: bool) -> Tensor:
    if zero_infinity:
        losses = torch.where(losses == torch.inf, 0, losses)
    if reduction == "mean":
        return (losses / on_device(target_lengths, losses.device).clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses


def choose_backend(backend: Backend, lattice: Lattice) -> str:
    """For "auto": native on the CPU, triton on a GPU if it is installed, reference everywhere else."""
    if backend not in ("auto", "reference", "native", "triton"):
        raise ValueError(f'backend must be "auto", "reference", "native" or "triton", got {backend!r}')
    device = lattice.logits.device
    if backend == "native" and device.type != "cpu":
        raise ValueError(f'backend="native" needs CPU tensors, logits are on {device}')
    if backend != "auto":
        return backend
    if device.type == "cpu":
        return "native"
    if device.type == "cuda" and HAS_TRITON:  # ROCm's devices have this name too
        return "triton"
    if not torch.compiler.is_compiling() and device.type not in _said:
        _said.add(device.type)
        reason = "triton is not installed: the extra gpu brings it" if device.type == "cuda" else "it has no kernel"
        warnings.warn(f"on {device.type} the lattice is computed by slow plain PyTorch, since {reason}", stacklevel=3)
    return "reference"


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Posteriors of the wildcard arcs. An absent family is None; padding is 0."""

    bypass: Tensor | None  # (N, S) probability that token u was bypassed
    self_loop: Tensor | None  # (N, S+1) expected number of ★ insertions at position k
    word_bypass: Tensor | None  # (N, W) probability that word w was bypassed as a whole
    skipped: Tensor  # (N, S) probability that token u was not emitted: its bypass or its word's
    log_likelihood: Tensor  # (N,)


@ops.eagerly
@torch.no_grad()
def wildcard_posteriors(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    *,
    wildcards: Wildcards,
    words: Tensor | None = None,
    backend: Backend = "auto",
) -> Posteriors:
    """The posterior of each wildcard arc: the derivative of the log-likelihood with respect to its weight.

    Arguments as those of `wildcard_ctc_loss`. An infeasible utterance has posteriors 0 and log-likelihood −inf.

    >>> logits = torch.tensor([[0., 9, 0, 0], [9, 0, 0, 0], [0, 9, 0, 0]]).unsqueeze(1)  # sounds like 1 1
    >>> post = wildcard_posteriors(logits, torch.tensor([[1, 2]]), [3], [2], wildcards=Wildcards(bypass=-3.0))
    >>> [round(p, 2) for p in post.bypass[0].tolist()]
    [0.02, 0.99]
    """
    lattice = as_lattice(logits, targets, input_lengths, target_lengths, blank, wildcards, words)
    check_values(lattice)
    lattice = _with_weight_tensors(lattice)
    counted = {"native": _native_counts, "triton": triton_backend.counts, "reference": _reference_counts}
    log_likelihood, counts = counted[choose_backend(backend, lattice)](lattice)
    dtype = compute_dtype(logits)
    bypass, self_loop, word_bypass = (c.to(dtype) if c is not None else None for c in counts)
    skipped = bypass if bypass is not None else _no_tokens(lattice, dtype)
    if word_bypass is not None and lattice.words is not None:
        rows = padded_rows(lattice.words, lattice.target_lengths, -1)
        share = word_bypass.gather(1, rows.clamp(min=0)) if word_bypass.shape[1] else torch.zeros_like(skipped)
        skipped = skipped + torch.where(rows >= 0, share, 0)
    found = (bypass, self_loop, word_bypass, skipped, log_likelihood.to(dtype))
    return Posteriors(*(x.squeeze(0) if x is not None and logits.dim() == 2 else x for x in found))  # type: ignore


def _no_tokens(lattice: Lattice, dtype: torch.dtype) -> Tensor:
    return torch.zeros(
        padded_rows(lattice.targets, lattice.target_lengths, 0).shape, dtype=dtype, device=lattice.logits.device
    )


def _with_weight_tensors(lattice: Lattice) -> Lattice:
    """One weight per arc and no more, so that each arc has a place for its posterior."""
    size = lattice.logits.shape[1]
    tokens = padded_rows(lattice.targets, lattice.target_lengths, 0).shape[1]
    words = padded_rows(lattice.words, lattice.target_lengths, -1) if lattice.words is not None else None
    num_words = int(words.max()) + 1 if words is not None and words.numel() else 0
    if num_words > MANY_WORDS:  # there would be a posterior for each
        raise ValueError(f"words go up to {num_words - 1}; number them 0, 1, 2, … from left to right in each utterance")
    widths = (tokens, tokens + 1, num_words)
    spread = []
    for i, (weight, width) in enumerate(zip(lattice.weights, widths, strict=True)):
        if weight is None and lattice.present(i):
            weight = torch.full((size, width), lattice.values[i], dtype=torch.float64, device=lattice.logits.device)
        spread.append(each_arc(weight, width) if weight is not None and (i < 2 or weight.dim() == 1) else weight)
    return lattice._replace(bypass=spread[0], self_loop=spread[1], word_bypass=spread[2], values=[ABSENT] * 3)


def _native_counts(lattice: Lattice) -> tuple[Tensor, list[Tensor | None]]:
    counts = [torch.zeros(w.shape, dtype=torch.float64) if w is not None else None for w in lattice.weights]
    return -native.loss_into(lattice, "none", False, None, counts), counts


def _reference_counts(lattice: Lattice) -> tuple[Tensor, list[Tensor | None]]:
    # nothing is recorded in inference mode, which enable_grad does not leave, nor of a tensor that was made there
    with torch.inference_mode(False), torch.enable_grad():
        fields = (x.clone() if isinstance(x, Tensor) and x.is_inference() else x for x in lattice)
        lattice = Lattice(*fields)  # type: ignore[arg-type]
        weights = [w.detach().clone().requires_grad_() if w is not None else None for w in lattice.weights]
        log_likelihood = reference.log_likelihood(
            lattice._replace(
                logits=lattice.logits.detach(), bypass=weights[0], self_loop=weights[1], word_bypass=weights[2]
            )
        )
        given = [w for w in weights if w is not None]
        # without frames, or words for word bypasses, nothing depends on a weight
        connected = log_likelihood.requires_grad
        found = (
            torch.autograd.grad(log_likelihood.sum(), given, allow_unused=True) if connected else [None] * len(given)
        )
    grads = iter(torch.zeros_like(w) if g is None else g for w, g in zip(given, found, strict=True))
    counts = [next(grads) if w is not None else None for w in weights]
    return log_likelihood.detach(), counts
