"""The Triton backend: makes the tensors for the kernels and starts them. Nothing is copied to the host.

The states of the forward pass are kept for the gradient. Kernels scale gradients and round them to the type of the
logits.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wildctc.errors import MissingExtra
from wildctc.lattice.arcs import Lattice, compute_dtype, each_arc, lose_counts
from wildctc.lattice.checks import on_device
from wildctc.lattice.native import Gradients, gradient_like

_TILE, _INTERPRETED_TILE = (16, 32), (64, 256)  # frames × outputs


class _Packed(NamedTuple):
    """The graphs of a batch in the form that the kernels read: P positions, those of all utterances in a row."""

    frames: Tensor  # (N,) frames to read; 0 for an utterance with an impossible length
    tokens: Tensor  # (N,)
    starts: Tensor  # (N,) first target of each utterance
    first: Tensor  # (N,) first position of each utterance
    readable: Tensor  # (N,) int32: whether lengths and labels are possible
    labels: Tensor  # (P,) int32
    weights: tuple[Tensor, Tensor, Tensor]  # (P,) each: of the bypass, self-loop and word bypass into a position
    word_start: Tensor  # (P,) int32
    word_end: Tensor  # (P,) int32
    flags: dict[str, Any]  # of the kernels that loop over frames

    @property
    def grid(self) -> tuple[int]:
        return (-(-len(self.tokens) // self.flags["GROUP"]),)


class Passed(NamedTuple):
    """Results of the forward pass that the backward pass needs.

    Attributes:
        likelihood: (N,) log-likelihoods relative to the largest logit of each frame.
        alphas: (T + 1, 3 or 2, U + 1) states of each utterance, flattened, in a row; empty if they were not kept.
        top: (N, T) largest logit of each frame (see `triton_kernel.statistics`).
        total: (N, T) log-sum-exp of all logits, relative to `top`.
        others: (N, T) log-sum-exp of the non-blank logits, relative to `top`.
    """

    likelihood: Tensor
    alphas: Tensor
    top: Tensor
    total: Tensor
    others: Tensor


def _kernels(logits: Tensor) -> Any:
    """Import the kernels, and check that they can run on these logits."""
    try:
        from wildctc.lattice import triton_kernel
    except ModuleNotFoundError as error:
        raise MissingExtra("triton", "gpu") from error
    if logits.device.type != "cuda" and not triton_kernel.INTERPRETED:
        raise ValueError(
            f'backend="triton" needs tensors on a GPU, logits are on {logits.device}'
            " (for tests, TRITON_INTERPRET=1 in the environment runs it on the CPU, slowly)"
        )
    return triton_kernel


def num_states(lattice: Lattice) -> int:
    """Count the states of a position.

    Args:
        lattice: The batch.

    Returns:
        3 (B, N and S), or 2 without wildcards (B and N).
    """
    return 3 if any(lattice.present(i) for i in range(3)) else 2


def num_positions(lattice: Lattice) -> int:
    """Count the positions for which memory is needed.

    Args:
        lattice: The batch.

    Returns:
        The positions of all utterances together, including those of padding.
    """
    return lattice.targets.numel() + lattice.logits.shape[1]


def _flags(kernel: Any, lattice: Lattice) -> dict[str, Any]:
    """Choose the constants of the kernels: which arcs there are, the block of positions, the utterances per program."""
    longest = lattice.targets.shape[-1]
    if lattice.targets.dim() == 1:
        longest = min(longest, max(0, int(lattice.target_lengths.max())))  # waits for the GPU if the lengths are there
    block = 1 << max(3, longest.bit_length())
    group = min(_group(kernel, block), 1 << (lattice.logits.shape[1] - 1).bit_length())
    return {
        "STARS": num_states(lattice) == 3,
        "WORDS": lattice.present(2) and (lattice.word_bypass is None or lattice.word_bypass.shape[-1] > 0),
        "GROUP": group,
        "BLOCK": block,
        "num_warps": max(1, min(16, group * block // 64)),
    }


def _group(kernel: Any, block: int) -> int:
    """Utterances per program: enough for a warp; many for the interpreter, which is slow to start a program."""
    return 64 if kernel.INTERPRETED else max(1, 32 // block)


def _pack(lattice: Lattice, dtype: torch.dtype) -> _Packed:
    kernel = _kernels(lattice.logits)
    logits, targets = lattice.logits, lattice.targets.contiguous()
    device, (length, size, outputs) = logits.device, logits.shape
    flags = _flags(kernel, lattice)
    given = on_device(lattice.target_lengths, device)
    longest = targets.shape[-1]
    counted = given.clamp(0, longest + 1)
    ends = counted.cumsum(0)
    numbers = torch.arange(size, device=device)
    starts = numbers * longest if targets.dim() == 2 else ends - counted
    readable = (given >= 0) & ((given if targets.dim() == 2 else ends) <= longest)
    total = num_positions(lattice)
    packed = _Packed(
        torch.where(readable, on_device(lattice.input_lengths, device).clamp(0, length), 0),
        torch.where(readable, given, 0),
        starts,
        starts.clamp(max=targets.numel()) + numbers,
        readable.to(torch.int32),
        torch.empty(total, dtype=torch.int32, device=device),
        (*(torch.empty(total, dtype=dtype, device=device) for _ in range(3)),),  # type: ignore[arg-type]
        torch.empty(total, dtype=torch.int32, device=device),
        torch.empty(total, dtype=torch.int32, device=device),
        flags,
    )
    weights: list[Any] = []
    for w, value in zip(lattice.weights, lattice.values, strict=True):
        if w is None:
            weights += [torch.full((1,), value, dtype=dtype, device=device), 0, 0, longest + 1]
        else:
            w = each_arc(w.detach(), longest + 1) if w.dim() == 1 else w.detach()
            weights += [w, *w.stride(), w.shape[1]]
    kernel.pack[packed.grid](
        targets,
        lattice.words.contiguous() if lattice.words is not None else None,
        starts,
        packed.first,
        packed.tokens,
        *weights,
        packed.labels,
        *packed.weights,
        packed.word_start,
        packed.word_end,
        packed.readable,
        size,
        outputs,
        lattice.blank,
        LOOPS_AT_WORDS=lattice.loops_at_words and lattice.words is not None,
        **{name: value for name, value in flags.items() if name != "STARS"},
    )
    return packed


def _statistics(lattice: Lattice, packed: _Packed, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Compute for each frame, (N, T): the largest logit, and relative to it log-sum-exp of all and of the non-blank."""
    import triton.language as tl

    logits = lattice.logits
    length, size, outputs = logits.shape
    found = tuple(torch.empty(size, length, dtype=dtype, device=logits.device) for _ in range(3))
    if length:
        columns = min(1024, 1 << (outputs - 1).bit_length())
        rows = max(1, 2048 // columns)
        _kernels(logits).statistics[(-(-length // rows), size)](
            logits,
            *logits.stride(),
            packed.frames,
            *found,
            length,
            outputs,
            lattice.blank,
            DTYPE=tl.float64 if dtype == torch.float64 else tl.float32,
            ROWS=rows,
            COLUMNS=columns,
        )
    return found  # type: ignore[return-value]


def _log_others(lattice: Lattice, dtype: torch.dtype) -> Tensor:
    """log(C − 1) as a tensor, because numbers are passed to kernels as float32."""
    value = math.log(max(lattice.logits.shape[2] - 1, 1))
    return torch.full((1,), value, dtype=dtype, device=lattice.logits.device)


def forward(lattice: Lattice, keep: bool) -> tuple[Tensor, Passed]:
    """Run the forward pass.

    Args:
        lattice: The batch. Its values must have been checked.
        keep: Whether a backward pass follows.

    Returns:
        Losses (N,), and what the backward pass needs.
    """
    dtype, logits = compute_dtype(lattice.logits), lattice.logits
    length, size, _ = logits.shape
    kernel = _kernels(logits)
    rows = length + 1 if keep else 2
    likelihood = torch.empty(size, dtype=dtype, device=logits.device)
    alphas = torch.empty(num_positions(lattice) * num_states(lattice) * rows, dtype=dtype, device=logits.device)
    if size == 0:
        empty = likelihood.new_empty(0, length)
        return likelihood, Passed(likelihood.clone(), alphas, empty, empty.clone(), empty.clone())
    with torch.cuda.device_of(logits):
        packed = _pack(lattice, dtype)
        top, total, others = _statistics(lattice, packed, dtype)
        kernel.forward[packed.grid](
            logits,
            *logits.stride(),
            top,
            others,
            packed.frames,
            packed.tokens,
            packed.first,
            packed.readable,
            packed.labels,
            *packed.weights,
            packed.word_start,
            alphas,
            likelihood,
            length,
            size,
            _log_others(lattice, dtype),
            lattice.blank,
            KEEP=keep,
            **packed.flags,
        )
    losses = (total.sum(1, dtype=torch.float64) - likelihood).to(dtype)
    return losses, Passed(likelihood, alphas if keep else alphas.new_empty(0), top, total, others)


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
    dtype, logits = passed.likelihood.dtype, lattice.logits
    length, size, outputs = logits.shape
    counts = [
        torch.zeros(w.shape, dtype=dtype, device=logits.device) if w is not None and wanted_too else None
        for w, wanted_too in zip(lattice.weights, wanted[1:], strict=True)
    ]
    result = gradient_like(logits, logits.dtype) if wanted[0] else None
    if size == 0 or length == 0:
        return result, counts
    kernel, states = _kernels(logits), num_states(lattice)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    with torch.cuda.device_of(logits):
        packed = _pack(lattice, dtype)
        # occupancies of each token, of blank and of ★
        occupied = (empty(num_positions(lattice) * length), empty(size, length), empty(size, length))
        counted: list[Any] = []
        for c in counts:
            counted += [c, 0 if c is None else c.shape[-1]]
        kernel.backward[packed.grid](
            logits,
            *logits.stride(),
            passed.top,
            passed.others,
            packed.frames,
            packed.tokens,
            packed.first,
            lattice.words.contiguous() if lattice.words is not None else None,
            packed.starts,
            packed.labels,
            *packed.weights,
            packed.word_start,
            packed.word_end,
            passed.alphas,
            passed.likelihood,
            empty(num_positions(lattice) * (states - 1) * 2),
            *(occupied if wanted[0] else (None, None, None)),
            *counted,
            length,
            size,
            _log_others(lattice, dtype),
            lattice.blank,
            OCCUPANCY=wanted[0],
            COUNT_BYPASS=_dimensions(counts[0]),
            COUNT_LOOP=_dimensions(counts[1]),
            COUNT_WORD=_dimensions(counts[2]) if packed.flags["WORDS"] else 0,
            **packed.flags,
        )
        if result is not None:
            rows, columns = _INTERPRETED_TILE if kernel.INTERPRETED else _TILE
            kernel.gradient[(-(-length // rows), -(-outputs // columns), size)](
                logits,
                *logits.stride(),
                passed.top,
                passed.total,
                passed.others,
                packed.frames,
                packed.tokens,
                packed.first,
                packed.starts,
                passed.likelihood,
                factor,
                *occupied,
                *_by_label(lattice, packed),
                result,
                *result.stride()[:2],
                length,
                outputs,
                lattice.blank,
                STARS=states == 3,
                ROWS=rows,
                COLUMNS=columns,
            )
    lose_counts(counts, (passed.total.sum(1) - passed.likelihood).isnan(), lattice.target_lengths)
    return result, counts


def _dimensions(counts: Tensor | None) -> int:
    """2 for a count of each arc, 1 for a count of all arcs of an utterance, 0 for none."""
    return 0 if counts is None else counts.dim()


def _by_label(lattice: Lattice, packed: _Packed) -> tuple[Tensor, Tensor]:
    """Sort tokens by utterance and label, and find where those of each label start, (N, C + 1).

    With these, each output adds up its own tokens in a fixed order. Atomic additions would have no fixed order.
    """
    targets, outputs, size = lattice.targets, lattice.logits.shape[2], lattice.logits.shape[1]
    place = torch.arange(targets.numel(), device=targets.device)
    if targets.dim() == 2:
        utterance = place.div(max(targets.shape[1], 1), rounding_mode="floor")
    else:
        utterance = torch.searchsorted(packed.starts, place, right=True) - 1
    labels = targets.reshape(-1)
    inside = place - packed.starts[utterance] < packed.tokens[utterance]
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
    _kernels(lattice.logits)
    from wildctc.lattice import triton_path

    logits, dtype = lattice.logits, torch.float64
    length, size, _ = logits.shape
    score = torch.empty(size, dtype=dtype, device=logits.device)
    position = torch.zeros(size, length, dtype=torch.int32, device=logits.device)
    state = torch.full((size, length), -1, dtype=torch.int8, device=logits.device)
    arc = torch.zeros(size, length, dtype=torch.int8, device=logits.device)
    if size == 0:
        return score, position, state, arc
    with torch.cuda.device_of(logits):
        packed = _pack(lattice, dtype)
        triton_path.best_path[packed.grid](
            logits,
            *logits.stride(),
            *_statistics(lattice, packed, dtype),
            packed.frames,
            packed.tokens,
            packed.first,
            packed.readable,
            packed.labels,
            *packed.weights,
            packed.word_start,
            torch.empty(num_positions(lattice) * 12, dtype=dtype, device=logits.device),
            torch.empty(num_positions(lattice) * length, dtype=torch.uint8, device=logits.device),
            score,
            position,
            state,
            arc,
            length,
            size,
            _log_others(lattice, dtype),
            lattice.blank,
            **packed.flags,
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
    losses, passed = forward(lattice, keep=True)
    return -losses, backward(lattice, passed, None, [False, True, True, True])[1]
