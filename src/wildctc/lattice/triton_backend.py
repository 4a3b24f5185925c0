"""The Triton backend: tensors made for its kernels, and the kernels started; nothing comes back to the host.

Between loss and gradient the states of the forward pass are kept; gradients are scaled and rounded where they are made.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wildctc.errors import MissingExtra
from wildctc.lattice.arcs import Lattice, compute_dtype, each_arc, lose_counts
from wildctc.lattice.checks import on_device
from wildctc.lattice.native import Gradients

TILE, INTERPRETED_TILE = (16, 32), (64, 256)  # frames × outputs


class Packed(NamedTuple):
    """The graphs of a batch, all positions one after another, as the kernels take them."""

    frames: Tensor  # (N,) to be read; 0 for an utterance with an impossible length
    tokens: Tensor  # (N,)
    starts: Tensor  # (N,) of each utterance among the targets
    first: Tensor  # (N,) of each utterance among all positions
    readable: Tensor  # (N,) int32: whether lengths and labels are possible
    labels: Tensor  # (P,) int32
    weights: tuple[Tensor, Tensor, Tensor]  # (P,) each: of bypass, self-loop and word bypass into a position
    word_start: Tensor  # (P,) int32
    word_end: Tensor  # (P,) int32
    flags: dict[str, Any]  # of the kernels that go from frame to frame

    @property
    def grid(self) -> tuple[int]:
        return (-(-len(self.tokens) // self.flags["GROUP"]),)


class Passed(NamedTuple):
    """What the forward pass leaves for the way back."""

    likelihood: Tensor  # (N,) relative to the frames' largest logits
    alphas: Tensor  # all utterances' (T + 1, 3 or 2, U + 1), one after another
    top: Tensor  # (N, T) and so on: see triton_kernel.statistics
    total: Tensor
    others: Tensor


def kernels(logits: Tensor) -> Any:
    """The module with the kernels, if they can run on these logits."""
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
    """Of each position: B, N and S, or without wildcards B and N."""
    return 3 if any(lattice.present(i) for i in range(3)) else 2


def num_positions(lattice: Lattice) -> int:
    """Of all utterances together; where targets are padded, with those of the padding."""
    return lattice.targets.numel() + lattice.logits.shape[1]


def _flags(kernel: Any, lattice: Lattice) -> dict[str, Any]:
    """Which arcs there are; how many positions make a block, and how many utterances share one."""
    longest = lattice.targets.shape[-1]
    if lattice.targets.dim() == 1:
        longest = min(longest, max(0, int(lattice.target_lengths.max())))  # where lengths are on the GPU, this waits
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
    """Utterances in a program: enough for a warp; for the interpreter, which takes its time for each program, many."""
    return 64 if kernel.INTERPRETED else max(1, 32 // block)


def pack(lattice: Lattice, dtype: torch.dtype) -> Packed:
    kernel = kernels(lattice.logits)
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
    packed = Packed(
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


def statistics(lattice: Lattice, packed: Packed, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Of each frame, (N, T): its largest logit, and relative to that log-sum-exp of all and of the non-blank ones."""
    import triton.language as tl

    logits = lattice.logits
    length, size, outputs = logits.shape
    found = tuple(torch.empty(size, length, dtype=dtype, device=logits.device) for _ in range(3))
    if length:
        columns = min(1024, 1 << (outputs - 1).bit_length())
        rows = max(1, 2048 // columns)
        kernels(logits).statistics[(-(-length // rows), size)](
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


def log_others(lattice: Lattice, dtype: torch.dtype) -> Tensor:
    """As a tensor: numbers come to a kernel as float32."""
    value = math.log(max(lattice.logits.shape[2] - 1, 1))
    return torch.full((1,), value, dtype=dtype, device=lattice.logits.device)


def forward(lattice: Lattice, keep: bool) -> tuple[Tensor, Passed]:
    """Losses (N,), and what the way back needs if it is to be kept. Values have been checked."""
    dtype, logits = compute_dtype(lattice.logits), lattice.logits
    length, size, _ = logits.shape
    kernel = kernels(logits)
    rows = length + 1 if keep else 2
    likelihood = torch.empty(size, dtype=dtype, device=logits.device)
    alphas = torch.empty(num_positions(lattice) * num_states(lattice) * rows, dtype=dtype, device=logits.device)
    if size == 0:
        empty = likelihood.new_empty(0, length)
        return likelihood, Passed(likelihood.clone(), alphas, empty, empty.clone(), empty.clone())
    with torch.cuda.device_of(logits):
        packed = pack(lattice, dtype)
        top, total, others = statistics(lattice, packed, dtype)
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
            log_others(lattice, dtype),
            lattice.blank,
            KEEP=keep,
            **packed.flags,
        )
    losses = (total.sum(1, dtype=torch.float64) - likelihood).to(dtype)
    return losses, Passed(likelihood, alphas if keep else alphas.new_empty(0), top, total, others)


def backward(
    lattice: Lattice, passed: Passed, factor: Tensor | None, wanted: list[bool]
) -> tuple[Tensor | None, Gradients]:
    """The logits' gradient times a factor (N,), and the expected counts of bypass, self-loop and word bypass arcs."""
    dtype, logits = passed.likelihood.dtype, lattice.logits
    length, size, outputs = logits.shape
    counts = [
        torch.zeros(w.shape, dtype=dtype, device=logits.device) if w is not None and wanted_too else None
        for w, wanted_too in zip(lattice.weights, wanted[1:], strict=True)
    ]
    result = gradient_like(logits) if wanted[0] else None
    if size == 0 or length == 0:
        return result, counts
    kernel, states = kernels(logits), num_states(lattice)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=logits.device)

    with torch.cuda.device_of(logits):
        packed = pack(lattice, dtype)
        # of each token, of blank and of ★
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
            log_others(lattice, dtype),
            lattice.blank,
            OCCUPANCY=wanted[0],
            COUNT_BYPASS=_dimensions(counts[0]),
            COUNT_LOOP=_dimensions(counts[1]),
            COUNT_WORD=_dimensions(counts[2]) if packed.flags["WORDS"] else 0,
            **packed.flags,
        )
        if result is not None:
            rows, columns = INTERPRETED_TILE if kernel.INTERPRETED else TILE
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
    """2 where each arc has a count, 1 where all arcs of an utterance have one together, 0 where nobody wants one."""
    return 0 if counts is None else counts.dim()


def gradient_like(logits: Tensor) -> Tensor:
    """In the logits' own memory order if that has C innermost."""
    gradient = torch.empty_like(logits)
    if gradient.stride(2) == 1:  # of logits that overlap in memory the order is not kept
        return gradient
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _by_label(lattice: Lattice, packed: Packed) -> tuple[Tensor, Tensor]:
    """Tokens in the order of utterance and label, and where those of each (N, C + 1) start.

    So each output finds its tokens and adds them up alone, in a fixed order, where others scatter with atomics.
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
    """What native.best_path returns, on the logits' device."""
    kernels(lattice.logits)
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
        packed = pack(lattice, dtype)
        triton_path.best_path[packed.grid](
            logits,
            *logits.stride(),
            *statistics(lattice, packed, dtype),
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
            log_others(lattice, dtype),
            lattice.blank,
            **packed.flags,
        )
    return score, position, state, arc


def counts(lattice: Lattice) -> tuple[Tensor, Gradients]:
    """Log-likelihoods (N,), and the expected counts of all arcs that have a weight of their own."""
    losses, passed = forward(lattice, keep=True)
    return -losses, backward(lattice, passed, None, [False, True, True, True])[1]
