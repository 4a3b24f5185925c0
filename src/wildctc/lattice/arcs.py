"""The arguments of a caller, brought into the one form that every backend takes: a `Lattice`, with shapes checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from wildctc.lattice.checks import Lengths, check_logits, integers, lengths_of, on_device, shape_of

Weight: TypeAlias = float | Tensor | None
WeightTensors: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]

ABSENT = -math.inf


@dataclass(frozen=True, eq=False)
class Wildcards:
    """Log-weights of the wildcard arcs; None: that arc family is absent.

    Each is a number, a tensor of one number for all arcs of the family, or a tensor with one weight per arc: bypass
    (N, S), self_loop (N, S+1), word_bypass (N, W). −inf: that arc is absent. Gradients flow to tensors.
    `self_loop_at="word"` leaves self-loops only at the ends of the transcript and where a word starts or ends.

    >>> Wildcards(bypass=-5.0, self_loop=-1.0)
    Wildcards(bypass=-5.0, self_loop=-1.0, word_bypass=None, self_loop_at='token')
    """

    bypass: Weight = None
    self_loop: Weight = None
    word_bypass: Weight = None
    self_loop_at: Literal["token", "word"] = "token"

    def __post_init__(self) -> None:
        if self.self_loop_at not in ("token", "word"):
            raise ValueError(f'self_loop_at must be "token" or "word", got {self.self_loop_at!r}')
        for name in ("bypass", "self_loop", "word_bypass"):
            weight = getattr(self, name)
            if isinstance(weight, Tensor) or weight is None:
                continue
            if not isinstance(weight, (int, float, Real)):
                raise ValueError(f"{name} is a {type(weight).__name__}, must be a number or a tensor")
            if weight != weight or weight == math.inf:  # not math.isnan, which torch.compile cannot trace
                raise ValueError(f"{name} is {weight}, must be a number or -inf")


NO_WILDCARDS = Wildcards()


class Lattice(NamedTuple):
    """A batch with its transcript graphs, as every backend takes it."""

    logits: Tensor  # (T, N, C)
    targets: Tensor  # (N, S) padded or 1-D concatenated, int64
    input_lengths: Tensor  # (N,) int64
    target_lengths: Tensor  # (N,) int64
    words: Tensor | None  # like targets
    bypass: Tensor | None  # (N, S), or (N,): one for all arcs of an utterance; None: `values` holds for all arcs
    self_loop: Tensor | None  # (N, S+1) or (N,)
    word_bypass: Tensor | None  # (N, W) or (N,)
    values: list[float]  # of bypass, self_loop, word_bypass; −inf: absent
    blank: int
    loops_at_words: bool

    @property
    def weights(self) -> WeightTensors:
        return self.bypass, self.self_loop, self.word_bypass

    def to_host(self) -> "Lattice":
        """The same on the CPU, without its history."""
        return Lattice(*(x.detach().cpu() if isinstance(x, Tensor) else x for x in self))  # type: ignore[arg-type]

    def present(self, family: int) -> bool:
        return self.weights[family] is not None or self.values[family] > ABSENT


def compute_dtype(logits: Tensor) -> torch.dtype:
    """float64 for float64, float32 for everything else."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def as_lattice(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int,
    wildcards: Wildcards | None,
    words: Tensor | None,
) -> Lattice:
    """Everything batched, integers as int64, shapes checked. logits (T, C) becomes a batch of one."""
    check_logits(logits, blank)
    if wildcards is None:
        wildcards = NO_WILDCARDS
    elif not isinstance(wildcards, Wildcards):
        raise TypeError(
            f"wildcards must be Wildcards or None, got {wildcards!r:.60}; those of a criterion are "
            'Criterion("otc-t").wildcards'
        )
    targets = integers(targets, "targets", logits.device)
    words = integers(words, "words", logits.device) if words is not None else None
    if logits.dim() == 2:
        logits = logits.unsqueeze(1)
        targets, words = (x.reshape(1, -1) if x is not None else None for x in (targets, words))  # type: ignore
        wildcards = _batch_of_one(wildcards)
    size = logits.shape[1]
    if targets.dim() not in (1, 2) or (targets.dim() == 2 and targets.shape[0] != size):
        raise ValueError(
            f"targets must be (N, S) with N = {size} (logits are (T, N, C)) or 1-D concatenated, "
            f"got {shape_of(targets)}"
        )
    if words is not None and words.shape != targets.shape:
        raise ValueError(f"words must have the shape of targets, {shape_of(targets)}, got {shape_of(words)}")
    weights, values = _weights(wildcards, logits, targets)
    needs_words = wildcards.word_bypass is not None or (
        wildcards.self_loop_at == "word" and wildcards.self_loop is not None
    )
    if needs_words and words is None:
        raise ValueError("word_bypass and self_loop_at='word' need words: the word of each token (see word_ids)")
    return Lattice(
        logits,
        targets,
        lengths_of(input_lengths, "input_lengths", size, logits.device),
        lengths_of(target_lengths, "target_lengths", size, logits.device),
        words if needs_words else None,
        *weights,
        values=values,
        blank=blank,
        loops_at_words=wildcards.self_loop_at == "word",
    )


def _batch_of_one(wildcards: Wildcards) -> Wildcards:
    weights = (wildcards.bypass, wildcards.self_loop, wildcards.word_bypass)
    bypass, self_loop, word = (w.unsqueeze(0) if isinstance(w, Tensor) and w.dim() == 1 else w for w in weights)
    return Wildcards(bypass, self_loop, word, wildcards.self_loop_at)


def _weights(wildcards: Wildcards, logits: Tensor, targets: Tensor) -> tuple[WeightTensors, list[float]]:
    size = logits.shape[1]
    padded = targets.shape[1] if targets.dim() == 2 else None
    widths = {"bypass": padded, "self_loop": None if padded is None else padded + 1, "word_bypass": None}
    tensors: list[Tensor | None] = []
    values: list[float] = []
    for name, width in widths.items():
        weight = getattr(wildcards, name)
        if not isinstance(weight, Tensor):
            tensors.append(None)
            values.append(ABSENT if weight is None else float(weight))
            continue
        if weight.dim() == 0:  # one learned number for the whole family
            weight = weight.expand(size)
        elif weight.dim() != 2 or weight.shape[0] != size or (width is not None and weight.shape[1] != width):
            letter = {"bypass": "S", "self_loop": "S + 1", "word_bypass": "W"}[name]
            wanted = f"(N, {letter}) = ({size}, {width if width is not None else letter})"
            raise ValueError(f"{name} must be a number or a tensor {wanted}, got {shape_of(weight)}")
        if not weight.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {weight.dtype}")
        tensors.append(on_device(weight, logits.device))
        values.append(ABSENT)
    return (tensors[0], tensors[1], tensors[2]), values


def lose_counts(counts: Sequence[Tensor | None], lost: Tensor, target_lengths: Tensor) -> None:
    """Where there is no likelihood, lost (N,), there are no posteriors: NaN in place of the counts, but for padding."""
    lengths = on_device(target_lengths, lost.device).unsqueeze(1)
    for count, extra in zip(counts, (0, 1, 0), strict=True):
        if count is not None:
            arcs = torch.arange(count.shape[1] if count.dim() == 2 else 1, device=lost.device) < lengths + extra
            count.masked_fill_((lost.unsqueeze(1) & arcs).reshape(count.shape), math.nan)


def each_arc(weight: Tensor, width: int) -> Tensor:
    """(N, width) from weights for that many arcs or more, or from one weight for all arcs of an utterance, (N,)."""
    return weight.unsqueeze(1).expand(-1, width) if weight.dim() == 1 else weight[:, :width]


def padded_rows(rows: Tensor, lengths: Tensor, fill: int) -> Tensor:
    """(N, S) from padded or concatenated rows, `fill` past each row's length."""
    there = on_device(lengths, rows.device)
    if rows.dim() == 1:
        width = int(lengths.max()) if lengths.numel() else 0
        index = (there.cumsum(0) - there).unsqueeze(1) + torch.arange(width, device=rows.device)
        rows = rows[index.clamp(max=max(rows.numel() - 1, 0))] if rows.numel() else rows.new_zeros(len(lengths), width)
    inside = torch.arange(rows.shape[1], device=rows.device) < there.unsqueeze(1)
    return torch.where(inside, rows, fill)
