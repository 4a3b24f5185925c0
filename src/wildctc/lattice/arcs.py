"""Convert the arguments of a caller into a `Lattice`, the form that every backend takes, and check their shapes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from wildctc.lattice.checks import Lengths, check_logits, integers, lengths_of, on_device, shape_of
from wildctc.lattice.memory import Memory, memory_bytes

_Weight: TypeAlias = float | Tensor | None
_WeightTensors: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]

ABSENT = -math.inf


@dataclass(frozen=True, eq=False)
class Wildcards:
    """Log-weights of the wildcard arcs (specification §1).

    A weight is a number for all arcs of its family, a tensor () for all arcs, or a tensor with one weight per arc. None
    means that the family is absent; −inf removes a single arc. Gradients flow to tensors.

    Attributes:
        bypass: Of the arcs beside single tokens; per arc (N, S).
        self_loop: Of the arcs for speech that is not in the transcript; per arc (N, S+1).
        word_bypass: Of the arcs beside whole words; per arc (N, W).
        self_loop_at: "token" allows a self-loop at every position; "word" only at the ends of the transcript and where
            a word starts or ends; "end" only at the ends of the transcript.
        star: The score of ★ in a frame, as a share of the probability of all non-blank outputs together: 1 is their
            sum. None: their mean, 1 / (C − 1).

    >>> Wildcards(bypass=-5.0, self_loop=-1.0)
    Wildcards(bypass=-5.0, self_loop=-1.0, word_bypass=None, self_loop_at='token', star=None)
    """

    bypass: _Weight = None
    self_loop: _Weight = None
    word_bypass: _Weight = None
    self_loop_at: Literal["token", "word", "end"] = "token"
    star: float | None = None

    def __post_init__(self) -> None:
        if self.self_loop_at not in ("token", "word", "end"):
            raise ValueError(f'self_loop_at must be "token", "word" or "end", got {self.self_loop_at!r}')
        if self.star is not None and not (isinstance(self.star, Real) and 0 < self.star <= 1):
            raise ValueError(f"star is {self.star!r}, must be greater than 0 and at most 1")
        for name in ("bypass", "self_loop", "word_bypass"):
            weight = getattr(self, name)
            if isinstance(weight, Tensor) or weight is None:
                continue
            if not isinstance(weight, (int, float, Real)):
                raise ValueError(f"{name} is a {type(weight).__name__}, must be a number or a tensor")
            if weight != weight or weight == math.inf:  # not math.isnan, which torch.compile cannot trace
                raise ValueError(f"{name} is {weight}, must be a number or -inf")


_NO_WILDCARDS = Wildcards()


class Lattice(NamedTuple):
    """A batch with its transcript graphs, in the form that every backend takes.

    Attributes:
        logits: (T, N, C).
        targets: (N, S) padded, or (sum of target_lengths,) concatenated; int64.
        input_lengths: (N,) int64.
        target_lengths: (N,) int64.
        words: The word of each token, in the shape of the targets; None if no arc needs words.
        bypass: (N, S), or (N,) with one weight for all arcs of an utterance. None: `values` has the weight of all arcs.
        self_loop: (N, S+1) or (N,), or None.
        word_bypass: (N, W) or (N,), or None.
        values: The weights of bypass, self_loop and word_bypass that are not tensors; −inf if the family is absent.
        blank: The label of the blank.
        loops_at_words: Whether self-loops stand only at the ends of the transcript and of words.
        memory: Bytes that the native backend may take; 0 for no budget (`memory.budget`).
    """

    logits: Tensor
    targets: Tensor
    input_lengths: Tensor
    target_lengths: Tensor
    words: Tensor | None
    bypass: Tensor | None
    self_loop: Tensor | None
    word_bypass: Tensor | None
    values: list[float]
    blank: int
    loops_at_words: bool
    memory: int = 0

    @property
    def weights(self) -> _WeightTensors:
        """The weights that are tensors: bypass, self_loop, word_bypass."""
        return self.bypass, self.self_loop, self.word_bypass

    def to_host(self) -> "Lattice":
        """Copy the tensors to the CPU, detached from autograd's graph.

        Returns:
            The same lattice on the CPU.
        """
        return Lattice(*(x.detach().cpu() if isinstance(x, Tensor) else x for x in self))  # type: ignore[arg-type]

    def present(self, family: int) -> bool:
        """Tell whether the graphs have arcs of a family.

        Args:
            family: 0 bypass, 1 self-loop, 2 word bypass.

        Returns:
            False if the family is absent. A tensor of weights counts as present, whatever its values.
        """
        return self.weights[family] is not None or self.values[family] > ABSENT


def compute_dtype(logits: Tensor) -> torch.dtype:
    """Choose the precision of the lattice.

    Args:
        logits: Of any floating-point type.

    Returns:
        float64 for float64, float32 for all other types.
    """
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def as_lattice(
    logits: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int,
    wildcards: Wildcards | None,
    words: Tensor | None,
    memory: Memory = None,
) -> Lattice:
    """Batch the arguments of a caller, convert integers to int64 and check all shapes.

    Args:
        logits: (T, N, C), or (T, C), which becomes a batch of one.
        targets: (N, S) padded labels, or (sum of target_lengths,) concatenated.
        input_lengths: (N,) frames of each utterance.
        target_lengths: (N,) labels of each transcript.
        blank: The label of the blank.
        wildcards: The weights of the wildcard arcs; None for plain CTC.
        words: The word of each label, in the shape of the targets; needed by word arcs only.
        memory: A budget for the native backend, in bytes or as "4GB".

    Returns:
        The lattice. Its values have not been checked (see `native.check_values`).
    """
    check_logits(logits, blank)
    if wildcards is None:
        wildcards = _NO_WILDCARDS
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
    lengths = lengths_of(target_lengths, "target_lengths", size, logits.device)
    if wildcards.self_loop_at == "end":
        wildcards = _loops_at_ends(wildcards, logits, targets, lengths)
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
        lengths,
        words if needs_words else None,
        *weights,
        values=values,
        blank=blank,
        loops_at_words=wildcards.self_loop_at == "word",
        memory=memory_bytes(memory),
    )


def _batch_of_one(wildcards: Wildcards) -> Wildcards:
    weights = (wildcards.bypass, wildcards.self_loop, wildcards.word_bypass)
    bypass, self_loop, word = (w.unsqueeze(0) if isinstance(w, Tensor) and w.dim() == 1 else w for w in weights)
    return Wildcards(bypass, self_loop, word, wildcards.self_loop_at)


def _loops_at_ends(wildcards: Wildcards, logits: Tensor, targets: Tensor, lengths: Tensor) -> Wildcards:
    """Write self-loops that are at both ends only as one weight for each position."""
    given, there = wildcards.self_loop, on_device(lengths, logits.device).unsqueeze(1)
    if given is None:
        return replace(wildcards, self_loop_at="token")
    width = 1 + (targets.shape[1] if targets.dim() == 2 else int(lengths.max()) if lengths.numel() else 0)
    position = torch.arange(width, device=logits.device)
    weight = torch.as_tensor(given, dtype=compute_dtype(logits) if not isinstance(given, Tensor) else None)
    weight = on_device(weight, logits.device)
    each = weight if weight.dim() == 2 else weight.expand(logits.shape[1], width)
    ends = (position == 0) | (position == there)
    if each.shape[0] != ends.shape[0] or each.shape[1] < width:
        raise ValueError(f"self_loop must be a number or a tensor {shape_of(ends)}, got {shape_of(weight)}")
    return replace(wildcards, self_loop=torch.where(ends, each[:, :width], ABSENT), self_loop_at="token")


def _weights(wildcards: Wildcards, logits: Tensor, targets: Tensor) -> tuple[_WeightTensors, list[float]]:
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
    """Set the arc counts of utterances without a likelihood to NaN, except in padding.

    Args:
        counts: Of bypass (N, S), self_loop (N, S+1) and word_bypass (N, W), or (N,) each; changed in place.
        lost: (N,) bool: which utterances have no likelihood.
        target_lengths: (N,).
    """
    lengths = on_device(target_lengths, lost.device).unsqueeze(1)
    for count, extra in zip(counts, (0, 1, 0), strict=True):
        if count is not None:
            arcs = torch.arange(count.shape[1] if count.dim() == 2 else 1, device=lost.device) < lengths + extra
            count.masked_fill_((lost.unsqueeze(1) & arcs).reshape(count.shape), math.nan)


def each_arc(weight: Tensor, width: int) -> Tensor:
    """Expand weights to one per arc.

    Args:
        weight: (N, at least `width`), or (N,) with one weight for all arcs of an utterance.
        width: The number of arcs.

    Returns:
        (N, width), a view.
    """
    return weight.unsqueeze(1).expand(-1, width) if weight.dim() == 1 else weight[:, :width]


def padded_rows(rows: Tensor, lengths: Tensor, fill: int) -> Tensor:
    """Bring rows of integers into a padded tensor.

    Args:
        rows: (N, S) padded, or (sum of lengths,) concatenated.
        lengths: (N,).
        fill: What the padding becomes.

    Returns:
        (N, S), with `fill` after the end of each row.
    """
    there = on_device(lengths, rows.device)
    if rows.dim() == 1:
        width = int(lengths.max()) if lengths.numel() else 0
        index = (there.cumsum(0) - there).unsqueeze(1) + torch.arange(width, device=rows.device)
        rows = rows[index.clamp(max=max(rows.numel() - 1, 0))] if rows.numel() else rows.new_zeros(len(lengths), width)
    inside = torch.arange(rows.shape[1], device=rows.device) < there.unsqueeze(1)
    return torch.where(inside, rows, fill)
