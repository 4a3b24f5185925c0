"""The public functions of the lattice: loss and posteriors, on any backend."""

import importlib.util
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from wildctc.lattice import native, ops, reference, triton_backend, triton_ops
from wildctc.lattice.arcs import ABSENT, Lattice, Wildcards, as_lattice, compute_dtype, each_arc, padded_rows
from wildctc.lattice.checks import Lengths, lengths_of, on_device
from wildctc.lattice.native import check_values
from wildctc.lattice.noise import NoiseRates, NormalisedArcs, normalised_arcs

Backend = Literal["auto", "reference", "native", "triton"]
Reduction = Literal["none", "mean", "sum"]

HAS_TRITON = importlib.util.find_spec("triton") is not None
_MANY_WORDS = 1_000_000  # in an utterance
_warned: set[str] = set()  # devices that a warning has been given for


def wildcard_ctc_loss(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
    *,
    wildcards: Wildcards | NoiseRates | None = None,
    words: Tensor | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Compute the CTC loss, with or without wildcard arcs. The arguments are those of `torch.nn.functional.ctc_loss`.

    Args:
        logits: (T, N, C), or (T, C) for one utterance; of any floating-point type and any strides. Log-probabilities
            are possible too.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
        input_lengths: (N,) frames of each utterance, a tensor or a list.
        target_lengths: (N,) labels of each transcript, a tensor or a list.
        blank: The label of the blank.
        reduction: "none", "sum", or "mean", which divides each loss by the length of its target before averaging, as
            torch does.
        zero_infinity: Whether the loss of an utterance with too few frames is 0 instead of +inf. Its gradient is 0 in
            both cases.
        wildcards: The weights of the wildcard arcs, or noise rates; None for plain CTC. With noise rates the loss is
            that of a proper mixture, so that rates can be learned.
        words: The word of each label, in the shape of the targets (see `word_ids`); needed by word arcs only.
        backend: "native" (C++, for the CPU), "triton" (for GPUs), "reference" (plain PyTorch, slow), or "auto", which
            chooses by device.

    Returns:
        The loss: (), or (N,) without a reduction. With wildcards it can be negative.

    >>> logits = torch.zeros(4, 1, 3)
    >>> loss = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], reduction="sum")
    >>> wild = wildcard_ctc_loss(logits, torch.tensor([[1, 2]]), [4], [2], reduction="sum",
    ...                          wildcards=Wildcards(bypass=-1.0, self_loop=-2.0))
    >>> f"{loss:.4f} {wild:.4f}"
    '1.6864 0.9765'
    """
    check_reduction(reduction)
    if isinstance(wildcards, NoiseRates):
        arcs = arcs_of(wildcards, logits, targets, target_lengths, words)
        arguments = (logits, targets, input_lengths, target_lengths, blank)
        losses = wildcard_ctc_loss(*arguments, "none", wildcards=arcs.wildcards, words=words, backend=backend)
        losses = losses + arcs.constant.reshape(losses.shape).to(losses.dtype)
        lengths = lengths_of(target_lengths, "target_lengths", arcs.constant.numel(), logits.device)
        return _reduce(losses, lengths, reduction, zero_infinity)
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


def arcs_of(
    rates: NoiseRates, logits: Tensor, targets: Tensor, target_lengths: Lengths, words: Tensor | None
) -> NormalisedArcs:
    """Turn noise rates into weights, for the arguments of a caller.

    Args:
        rates: The rates.
        logits: (T, N, C), or (T, C) for one utterance.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
        target_lengths: (N,) labels of each transcript.
        words: The word of each label, in the shape of the targets, or None.

    Returns:
        The weights of all arcs, and the constant of each utterance.
    """
    size = logits.shape[1] if logits.dim() == 3 else 1
    if logits.dim() == 2:
        targets, words = targets.reshape(1, -1), None if words is None else words.reshape(1, -1)
    lengths = lengths_of(target_lengths, "target_lengths", size, logits.device)
    return normalised_arcs(rates, targets, lengths, words, compute_dtype(logits))


def check_reduction(reduction: str) -> None:
    """Check the name of a reduction.

    Args:
        reduction: What the caller asked for.

    Raises:
        ValueError: It is none of "none", "mean" and "sum".
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f'reduction must be "none", "mean" or "sum", got {reduction!r}')


def _reduce(losses: Tensor, target_lengths: Tensor, reduction: Reduction, zero_infinity: bool) -> Tensor:
    if zero_infinity:
        losses = torch.where(losses == torch.inf, 0, losses)
    if reduction == "mean":
        return (losses / on_device(target_lengths, losses.device).clamp(min=1)).mean()
    return losses.sum() if reduction == "sum" else losses


def choose_backend(backend: Backend, lattice: Lattice) -> str:
    """Choose the backend for a batch.

    Args:
        backend: What the caller asked for. "auto" is native on the CPU, triton on a GPU if it is installed, and
            reference everywhere else, with a warning.
        lattice: The batch.

    Returns:
        "native", "triton" or "reference".

    Raises:
        ValueError: The backend is unknown, or does not work on the device of the logits.
    """
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
    if not torch.compiler.is_compiling() and device.type not in _warned:
        _warned.add(device.type)
        reason = "triton is not installed (extra gpu)" if device.type == "cuda" else "there is no kernel for it"
        warnings.warn(f"on {device.type} the lattice uses the slow reference backend, because {reason}", stacklevel=3)
    return "reference"


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Posteriors of the wildcard arcs. An absent family is None; padding is 0.

    Attributes:
        bypass: (N, S) probability that each token was bypassed.
        self_loop: (N, S+1) expected number of self-loops at each position.
        word_bypass: (N, W) probability that each word was bypassed as a whole.
        skipped: (N, S) probability that each token was not emitted: it was bypassed, or its word was.
        log_likelihood: (N,).
    """

    bypass: Tensor | None
    self_loop: Tensor | None
    word_bypass: Tensor | None
    skipped: Tensor
    log_likelihood: Tensor


@ops.eagerly
@torch.no_grad()
def wildcard_posteriors(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    *,
    wildcards: Wildcards | NoiseRates,
    words: Tensor | None = None,
    backend: Backend = "auto",
) -> Posteriors:
    """Compute the posterior of each wildcard arc: the derivative of the log-likelihood with respect to its weight.

    Args:
        logits: (T, N, C), or (T, C) for one utterance; the results then have no batch dimension.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
        input_lengths: (N,) frames of each utterance.
        target_lengths: (N,) labels of each transcript.
        blank: The label of the blank.
        wildcards: The weights of the wildcard arcs, or noise rates.
        words: The word of each label, in the shape of the targets (see `word_ids`); needed by word arcs only.
        backend: As for `wildcard_ctc_loss`.

    Returns:
        The posteriors. An utterance with too few frames has posteriors 0 and log-likelihood −inf.

    >>> logits = torch.tensor([[0., 9, 0, 0], [9, 0, 0, 0], [0, 9, 0, 0]]).unsqueeze(1)  # sounds like 1 1
    >>> post = wildcard_posteriors(logits, torch.tensor([[1, 2]]), [3], [2], wildcards=Wildcards(bypass=-3.0))
    >>> [round(p, 2) for p in post.bypass[0].tolist()]
    [0.02, 0.99]
    """
    if isinstance(wildcards, NoiseRates):
        wildcards = arcs_of(wildcards, logits, targets, target_lengths, words).wildcards
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
    """Expand all weights to one per arc, so that each arc has a place for its posterior."""
    size = lattice.logits.shape[1]
    tokens = padded_rows(lattice.targets, lattice.target_lengths, 0).shape[1]
    words = padded_rows(lattice.words, lattice.target_lengths, -1) if lattice.words is not None else None
    num_words = int(words.max()) + 1 if words is not None and words.numel() else 0
    if num_words > _MANY_WORDS:  # there would be a posterior for each number
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
    # autograd records nothing in inference mode, which enable_grad does not end, nor for tensors that were made in it
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
        # without frames, or without words for word bypasses, the likelihood does not depend on the weights
        connected = log_likelihood.requires_grad
        found = (
            torch.autograd.grad(log_likelihood.sum(), given, allow_unused=True) if connected else [None] * len(given)
        )
    grads = iter(torch.zeros_like(w) if g is None else g for w, g in zip(given, found, strict=True))
    counts = [next(grads) if w is not None else None for w in weights]
    return log_likelihood.detach(), counts
