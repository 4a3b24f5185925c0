"""The Triton backend: starts the kernels, in the order of docs/gpu.md. Nothing is copied to the host.

For a gradient the forward pass keeps a few rows of states (see `triton_sweep`). Kernels scale gradients and round them
to the type of the logits.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wildctc.lattice.arcs import Lattice, compute_dtype, lose_counts
from wildctc.lattice.native import Gradients, gradient_like
from wildctc.lattice.triton_batch import (
    Emissions,
    Graphs,
    emissions,
    exponent_dtype,
    has_words,
    kernels,
    lanes,
    log_others,
    longest_transcript,
    num_positions,
    num_states,
    pack,
    tiling,
)

_EVERY = 16  # frames from one kept row of states to the next
_NEVER = 1 << 30
_TILE, _INTERPRETED_TILE = (16, 32), (64, 256)  # frames × outputs
_PROGRAMS = 512  # that compute posteriors, at most; each has memory of its own
_SCRATCH = 64 * 2**20  # bytes for them, at most, or half of the emissions


class Passed(NamedTuple):
    """Results of the forward pass that the backward pass needs: the fields of `Graphs` and `Emissions`, and these.

    Attributes:
        losses: (N,).
        scale: (N,) exponents of the likelihoods.
        states: Mantissas and exponents of alphas and of betas: the rows of `triton_sweep`; empty if they were not kept.
    """

    losses: Tensor
    scale: Tensor
    states: tuple[Tensor, Tensor, Tensor, Tensor]
    graphs: Graphs
    emissions: Emissions

    def tensors(self) -> list[Tensor]:
        """List all tensors.

        Returns:
            The tensors, in the order that `from_tensors` takes.
        """
        return [self.losses, self.scale, *self.states, *self.graphs, *self.emissions]

    @classmethod
    def from_tensors(cls, tensors: list[Tensor]) -> "Passed":
        """Put the tensors together again.

        Args:
            tensors: As from `tensors`.

        Returns:
            The same.
        """
        losses, scale, alpha_m, alpha_e, beta_m, beta_e, *rest = tensors
        middle = len(Graphs._fields)
        states = alpha_m, alpha_e, beta_m, beta_e
        return cls(losses, scale, states, Graphs(*rest[:middle]), Emissions(*rest[middle:]))


def kept_rows(length: int, keep: bool) -> tuple[int, int]:
    """Choose which rows of states are kept.

    Args:
        length: Frames.
        keep: Whether there will be a backward pass.

    Returns:
        The distance of two rows, and how many there are.
    """
    return (_EVERY, length // _EVERY + 1) if keep else (_NEVER, 1)


def forward(lattice: Lattice, keep: bool) -> Passed:
    """Run the forward pass.

    Args:
        lattice: The batch. Its values must have been checked.
        keep: Whether a backward pass follows.

    Returns:
        Losses (N,), and what the backward pass needs.
    """
    dtype, logits = compute_dtype(lattice.logits), lattice.logits
    length, size, _ = logits.shape
    kernel = kernels(logits)
    every, marks = kept_rows(length, keep)
    cells = num_positions(lattice) * num_states(lattice) * (marks + 2)
    exponents = exponent_dtype(dtype)

    def zeros(count: int, of: torch.dtype) -> Tensor:
        # not every row is written, and what an operator returns must be the same each time
        return torch.zeros(count, dtype=of, device=logits.device)

    alphas = zeros(cells, dtype), zeros(cells, exponents)
    betas = zeros(cells if keep else 0, dtype), zeros(cells if keep else 0, exponents)
    mantissas, scale = zeros(size, dtype), zeros(size, exponents)
    with torch.cuda.device_of(logits):
        graphs = pack(lattice, dtype, scaled=True)
        emitted = emissions(lattice, graphs, dtype, tokens=True)
        if size:
            in_registers = lanes(kernel, lattice)
            flags = in_registers or tiling(kernel, lattice)
            sweep = kernel.sweep_in_registers if in_registers else kernel.sweep_in_tiles
            sweep[(-(-size // flags["GROUP"]) * (2 if keep else 1),)](
                *_read_by_recursion(lattice, graphs, emitted, graphs.readable),
                *alphas,
                *betas,
                mantissas,
                scale,
                length,
                size,
                num_positions(lattice),
                marks,
                BOTH=keep,
                EVERY=every,
                STARS=num_states(lattice) == 3,
                WORDS=has_words(lattice),
                **flags,
            )
    likelihood = mantissas.double().log() + scale.double() * math.log(2)
    likelihood = torch.where(scale < (-(2**58) if dtype == torch.float64 else -(2**26)), -math.inf, likelihood)
    likelihood = torch.where(graphs.readable == 0, math.nan, likelihood)
    losses = (emitted.total.sum(1, dtype=torch.float64) - likelihood).to(dtype)
    states = (*alphas, *betas) if keep else (zeros(0, dtype), zeros(0, exponents), *betas)
    return Passed(losses, scale, states, graphs, emitted)


def tensors_made(lattice: Lattice, keep: bool) -> list[Tensor]:
    """Make empty tensors of the shapes that `forward` returns, for torch.compile.

    Args:
        lattice: The batch.
        keep: Whether a backward pass follows.

    Returns:
        As `Passed.tensors`.
    """
    logits, dtype = lattice.logits, compute_dtype(lattice.logits)
    exponents = exponent_dtype(dtype)
    length, size, _ = logits.shape
    positions = num_positions(lattice)
    cells = positions * num_states(lattice) * (length // _EVERY + 3) if keep else 0
    of_utterances, of_positions = (size,), (positions,)
    frames = [((size, length), dtype)] * 4
    ints = [(of_utterances, torch.int64)] * 4 + [(of_utterances, torch.int32), (of_positions, torch.int32)]
    shapes = [
        *((of_utterances, dtype), (of_utterances, exponents)),
        *[((cells,), dtype), ((cells,), exponents)] * 2,
        *ints,
        *(
            ((3, positions), dtype),
            ((3, positions), exponents),
            (of_positions, torch.int32),
            (of_positions, torch.int32),
        ),
        *frames,
        ((positions * length,), dtype),
    ]
    return [logits.new_empty(shape, dtype=of) for shape, of in shapes]


def _read_by_recursion(lattice: Lattice, graphs: Graphs, emitted: Emissions, usable: Tensor) -> tuple[Any, ...]:
    """The first arguments of the kernels that walk over frames."""
    return (
        emitted.sounds,
        emitted.silence,
        emitted.others,
        log_others(lattice, emitted.top.dtype),
        graphs.frames,
        graphs.tokens,
        graphs.first,
        usable,
        graphs.labels,
        graphs.arcs_m,
        graphs.arcs_e,
        graphs.word_start,
        graphs.word_end,
    )


def backward(
    lattice: Lattice, passed: Passed, factor: Tensor | None, wanted: list[bool]
) -> tuple[Tensor | None, Gradients]:
    """Run the backward pass.

    Args:
        lattice: The batch.
        passed: The result of `forward` with keep=True.
        factor: (N,) the gradient of the losses; None if the gradient to the logits is not wanted.
        wanted: Whether the gradient to the logits, and the counts of bypass, self-loop and word bypass, are wanted.

    Returns:
        The gradient (T, N, C) to the logits, times the factor; and the expected counts of the arcs, in the shapes of
        their weights. None for what is not wanted, and for weights that are not tensors.
    """
    dtype, logits = passed.losses.dtype, lattice.logits
    length, size, _ = logits.shape
    counts = [
        torch.zeros(w.shape, dtype=dtype, device=logits.device) if w is not None and wanted_too else None
        for w, wanted_too in zip(lattice.weights, wanted[1:], strict=True)
    ]
    result = gradient_like(logits, logits.dtype) if wanted[0] else None
    if size == 0 or length == 0:
        return result, counts
    usable = passed.losses.isfinite().to(torch.int32)
    with torch.cuda.device_of(logits):
        occupied = _posteriors(lattice, passed, usable, result is not None, counts)
        if result is not None:
            _gradient(lattice, passed, factor, occupied, result)
    lose_counts(counts, passed.losses.isnan(), lattice.target_lengths)
    return result, counts


def _posteriors(
    lattice: Lattice, passed: Passed, usable: Tensor, occupancy: bool, counts: Gradients
) -> tuple[Tensor | None, ...]:
    """Fill the counts. Returns occupancies of each token, the shares of their frames, occupancies of blank and of ★."""
    dtype, logits = passed.losses.dtype, lattice.logits
    length, size, _ = logits.shape
    kernel, states, positions = kernels(logits), num_states(lattice), num_positions(lattice)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    every, marks = kept_rows(length, keep=True)
    segments = -(-length // every)
    flags = tiling(kernel, lattice)
    widest = longest_transcript(lattice) + 1
    rows = flags["GROUP"] * (every + 3) * states * widest  # of the memory of a program
    room = max(_SCRATCH, passed.emissions.sounds.numel() * dtype.itemsize // 2) // (rows * 2 * dtype.itemsize)
    programs = max(1, min(_PROGRAMS, room, -(-size * segments // flags["GROUP"])))
    shapes = [(positions * length,), (size, length), (size, length), (size, length)]
    occupied = tuple(empty(*shape) if occupancy else None for shape in shapes)
    words = [has_words(lattice) if family == 2 else True for family in range(3)]
    by_segment = [
        empty(positions * segments) if c is not None and there else None for c, there in zip(counts, words, strict=True)
    ]
    graphs = passed.graphs
    kernel.posteriors[(programs,)](
        *_read_by_recursion(lattice, graphs, passed.emissions, usable),
        *passed.states,
        passed.scale,
        empty(programs * rows),
        torch.empty(programs * rows, dtype=exponent_dtype(dtype), device=logits.device),
        *occupied,
        *by_segment,
        length,
        size,
        positions,
        marks,
        segments,
        widest,
        STARS=states == 3,
        WORDS=has_words(lattice),
        OCCUPANCY=occupancy,
        COUNT_BYPASS=by_segment[0] is not None,
        COUNT_LOOP=by_segment[1] is not None,
        COUNT_WORD=by_segment[2] is not None,
        EVERY=every,
        **flags,
    )
    for family, (count, part) in enumerate(zip(counts, by_segment, strict=True)):
        if count is not None and part is not None:
            kernel.add_counts[(-(-size // flags["GROUP"]),)](
                graphs.frames,
                graphs.tokens,
                graphs.first,
                usable,
                lattice.words.contiguous() if lattice.words is not None else None,
                graphs.starts,
                graphs.word_start,
                part,
                count,
                count.shape[-1],
                size,
                segments,
                0 if family == 1 else 1,
                EACH=count.dim() == 2,
                WORD=family == 2,
                EVERY=every,
                **flags,
            )
    return occupied


def _gradient(
    lattice: Lattice, passed: Passed, factor: Tensor | None, occupied: tuple[Tensor | None, ...], result: Tensor
) -> None:
    logits, graphs, emitted = lattice.logits, passed.graphs, passed.emissions
    length, size, outputs = logits.shape
    kernel = kernels(logits)
    rows, columns = _INTERPRETED_TILE if kernel.INTERPRETED else _TILE
    tiles = -(-length // rows)
    kernel.gradient[(size * tiles, -(-outputs // columns))](
        logits,
        *logits.stride(),
        emitted.top,
        emitted.total,
        emitted.others,
        graphs.frames,
        graphs.tokens,
        graphs.first,
        graphs.starts,
        passed.losses,
        factor,
        *occupied,
        *_by_label(lattice, graphs),
        result,
        *result.stride()[:2],
        length,
        outputs,
        tiles,
        lattice.blank,
        STARS=num_states(lattice) == 3,
        ROWS=rows,
        COLUMNS=columns,
    )


def _by_label(lattice: Lattice, graphs: Graphs) -> tuple[Tensor, Tensor]:
    """Sort tokens by utterance and label, and find where those of each label start, (N, C + 1).

    With these, each output adds up its own tokens in a fixed order. Atomic additions would have no fixed order.
    """
    targets, outputs, size = lattice.targets, lattice.logits.shape[2], lattice.logits.shape[1]
    place = torch.arange(targets.numel(), device=targets.device)
    if targets.dim() == 2:
        utterance = place.div(max(targets.shape[1], 1), rounding_mode="floor")
    else:
        utterance = torch.searchsorted(graphs.starts, place, right=True) - 1
    labels = targets.reshape(-1)
    inside = place - graphs.starts[utterance] < graphs.tokens[utterance]
    used = inside & (labels >= 0) & (labels < outputs) & (labels != lattice.blank)
    keys, order = (utterance * (outputs + 1) + torch.where(used, labels, outputs)).sort(stable=True)
    return order, torch.searchsorted(keys, torch.arange(size * (outputs + 1), device=targets.device))


def best_path(lattice: Lattice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the best path of each utterance.

    Args:
        lattice: The batch. Its values must have been checked.

    Returns:
        The same as `native.best_path`, on the device of the logits.
    """
    kernel = kernels(lattice.logits)
    logits, dtype = lattice.logits, torch.float64
    length, size, _ = logits.shape
    score = torch.empty(size, dtype=dtype, device=logits.device)
    position = torch.zeros(size, length, dtype=torch.int32, device=logits.device)
    state = torch.full((size, length), -1, dtype=torch.int8, device=logits.device)
    arc = torch.zeros(size, length, dtype=torch.int8, device=logits.device)
    if size == 0:
        return score, position, state, arc
    positions = num_positions(lattice)
    with torch.cuda.device_of(logits):
        graphs = pack(lattice, dtype, scaled=False)
        emitted = emissions(lattice, graphs, dtype, tokens=True)
        flags = tiling(kernel, lattice)
        kernel.best_path[(-(-size // flags["GROUP"]),)](
            emitted.sounds,
            emitted.silence,
            emitted.others,
            emitted.total,
            log_others(lattice, dtype),
            graphs.frames,
            graphs.tokens,
            graphs.first,
            graphs.readable,
            graphs.labels,
            graphs.arcs_m,
            graphs.word_start,
            torch.empty(positions * 12, dtype=dtype, device=logits.device),
            torch.empty(positions * length, dtype=torch.uint8, device=logits.device),
            score,
            position,
            state,
            arc,
            length,
            size,
            positions,
            STARS=num_states(lattice) == 3,
            WORDS=has_words(lattice),
            **flags,
        )
    return score, position, state, arc


def counts(lattice: Lattice) -> tuple[Tensor, Gradients]:
    """Compute expected counts of arcs.

    Args:
        lattice: The batch. Its values must have been checked.

    Returns:
        Log-likelihoods (N,), and the counts of all arcs, in the shapes of their weights; None for weights that are not
        tensors.
    """
    passed = forward(lattice, keep=True)
    return -passed.losses, backward(lattice, passed, None, [False, True, True, True])[1]
