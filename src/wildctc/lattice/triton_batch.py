"""The tensors that the Triton kernels read: graphs by position, and emissions. Nothing is copied to the host."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wildctc.errors import MissingExtra
from wildctc.lattice.arcs import Lattice, each_arc
from wildctc.lattice.checks import on_device

TILE = 512  # positions
# positions of a lane, at most: what the registers of a thread hold without spilling (see docs/gpu.md)
_MOST_PLAIN, _MOST_WITH_WILDCARDS = 8, 4


class Graphs(NamedTuple):
    """The graphs of a batch: P positions, those of all utterances in a row.

    Attributes:
        frames: (N,) frames to read; 0 for an utterance with an impossible length.
        tokens: (N,) tokens; 0 for an utterance with an impossible length.
        starts: (N,) first target of each utterance.
        first: (N,) first position of each utterance.
        readable: (N,) int32: whether lengths and labels are possible.
        labels: (P,) int32 label of the token that leads to a position.
        arcs_m: (3, P) mantissas of the weights of bypass, self-loop and word bypass into a position; or logarithms.
        arcs_e: (3, P) their exponents; empty for logarithms.
        word_start: (P,) int32 where the word that ends here starts; −1 for none.
        word_end: (P,) int32 where the word that starts here ends; −1 for none.
    """

    frames: Tensor
    tokens: Tensor
    starts: Tensor
    first: Tensor
    readable: Tensor
    labels: Tensor
    arcs_m: Tensor
    arcs_e: Tensor
    word_start: Tensor
    word_end: Tensor


class Emissions(NamedTuple):
    """What the frames say, relative to their largest logit.

    Attributes:
        top: (N, T) that logit.
        total: (N, T) log-sum-exp of all logits.
        others: (N, T) log-sum-exp of the non-blank logits.
        silence: (N, T) the logit of the blank.
        sounds: (P · T,) the logit of each token (see `triton_graph`); empty for the best path.
    """

    top: Tensor
    total: Tensor
    others: Tensor
    silence: Tensor
    sounds: Tensor


def kernels(logits: Tensor) -> Any:
    """Import the kernels, and check that they can run on these logits.

    Args:
        logits: On any device.

    Returns:
        The modules of the kernels, by name.
    """
    try:
        from wildctc.lattice import triton_kernels
    except ModuleNotFoundError as error:
        raise MissingExtra("triton", "gpu") from error
    if logits.device.type != "cuda" and not triton_kernels.INTERPRETED:
        raise ValueError(
            f'backend="triton" needs tensors on a GPU, logits are on {logits.device}'
            " (for tests, TRITON_INTERPRET=1 in the environment runs it on the CPU, slowly)"
        )
    return triton_kernels


def exponent_dtype(dtype: torch.dtype) -> torch.dtype:
    """Choose the type of exponents.

    Args:
        dtype: The type of mantissas.

    Returns:
        int64 for float64, otherwise int32.
    """
    return torch.int64 if dtype == torch.float64 else torch.int32


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


def longest_transcript(lattice: Lattice) -> int:
    """Find a bound of the number of tokens. Waits for the GPU if targets are concatenated and their lengths are there.

    Args:
        lattice: The batch.

    Returns:
        The width of padded targets, or the largest length.
    """
    width = lattice.targets.shape[-1]
    if lattice.targets.dim() == 2 or width == 0 or lattice.target_lengths.numel() == 0:
        return width
    return min(width, max(0, int(lattice.target_lengths.max())))


def has_words(lattice: Lattice) -> bool:
    """Tell whether there are word arcs.

    Args:
        lattice: The batch.

    Returns:
        False also where a tensor has weights for no word.
    """
    return lattice.present(2) and (lattice.word_bypass is None or lattice.word_bypass.shape[-1] > 0)


def power_above(n: int) -> int:
    """Find a size for a block.

    Args:
        n: At least 1.

    Returns:
        The least power of 2 that is not less than n.
    """
    return 1 << (n - 1).bit_length()


def tiling(kernel: Any, lattice: Lattice) -> dict[str, int]:
    """Choose how the positions are spread over a program.

    Args:
        kernel: The kernels.
        lattice: The batch.

    Returns:
        GROUP, the utterances of a program, TILE, its positions at a time, and num_warps.
    """
    tile = min(max(8, power_above(longest_transcript(lattice) + 1)), TILE)
    # on a GPU enough utterances for a warp; many for the interpreter, which is slow to start a program
    group = min(64 if kernel.INTERPRETED else max(1, 32 // tile), power_above(max(lattice.logits.shape[1], 1)))
    # one position for each thread: where threads have several, Triton may give loads and stores different layouts, and
    # then exchanges numbers between threads, with a barrier each
    width = 32 if kernel.INTERPRETED else kernel.warp_size()
    return {"GROUP": group, "TILE": tile, "num_warps": max(1, min(16, group * tile // width))}


def lanes(kernel: Any, lattice: Lattice) -> dict[str, int] | None:
    """Choose how the positions are spread over the registers of a warp.

    Args:
        kernel: The kernels.
        lattice: The batch.

    Returns:
        GROUP, the utterances of a program, LANES, its threads for each, EACH, the positions of a thread, and num_warps;
        None if there are too many positions.
    """
    positions = max(8, power_above(longest_transcript(lattice) + 1))
    width = 32 if kernel.INTERPRETED else kernel.warp_size()
    each = max(1, positions // width)
    most = _MOST_PLAIN if num_states(lattice) == 2 else _MOST_WITH_WILDCARDS
    if each > most // (2 if lattice.logits.dtype == torch.float64 else 1):
        return None
    of_an_utterance = positions // each
    group = min(64 if kernel.INTERPRETED else width // of_an_utterance, power_above(max(lattice.logits.shape[1], 1)))
    return {"GROUP": group, "LANES": of_an_utterance, "EACH": each, "num_warps": 1}


def pack(lattice: Lattice, dtype: torch.dtype, scaled: bool) -> Graphs:
    """Store the graphs by position.

    Args:
        lattice: The batch.
        dtype: Of the weights.
        scaled: Whether weights are stored with exponents, as the loss needs them; or as logarithms.

    Returns:
        The graphs.
    """
    logits, targets = lattice.logits, lattice.targets.contiguous()
    device, (length, size, outputs) = logits.device, logits.shape
    given = on_device(lattice.target_lengths, device)
    longest = targets.shape[-1]
    counted = given.clamp(0, longest + 1)
    ends = counted.cumsum(0)
    numbers = torch.arange(size, device=device)
    starts = numbers * longest if targets.dim() == 2 else ends - counted
    readable = (given >= 0) & ((given if targets.dim() == 2 else ends) <= longest)
    total = num_positions(lattice)
    graphs = Graphs(
        torch.where(readable, on_device(lattice.input_lengths, device).clamp(0, length), 0),
        torch.where(readable, given, 0),
        starts,
        starts.clamp(max=targets.numel()) + numbers,
        readable.to(torch.int32),
        torch.zeros(total, dtype=torch.int32, device=device),
        torch.zeros(3, total, dtype=dtype, device=device),
        torch.zeros(3, total if scaled else 0, dtype=exponent_dtype(dtype), device=device),
        torch.zeros(total, dtype=torch.int32, device=device),
        torch.full((total,), -1, dtype=torch.int32, device=device),
    )
    weights: list[Any] = []
    for w, value in zip(lattice.weights, lattice.values, strict=True):
        if w is None:
            # numbers are passed to kernels as float32
            weights += [torch.full((1,), value, dtype=torch.float64, device=device), 0, 0, longest + 1]
        else:
            w = each_arc(w.detach(), longest + 1) if w.dim() == 1 else w.detach()
            weights += [w, *w.stride(), w.shape[1]]
    kernel = kernels(logits)
    if size == 0:
        return graphs
    flags = tiling(kernel, lattice)
    kernel.pack[(-(-size // flags["GROUP"]),)](
        targets,
        lattice.words.contiguous() if lattice.words is not None else None,
        starts,
        graphs.first,
        graphs.tokens,
        *weights,
        graphs.labels,
        graphs.arcs_m,
        graphs.arcs_e,
        graphs.word_start,
        graphs.word_end,
        graphs.readable,
        total,
        size,
        outputs,
        lattice.blank,
        WORDS=has_words(lattice),
        LOOPS_AT_WORDS=lattice.loops_at_words and lattice.words is not None,
        SCALED=scaled,
        **flags,
    )
    return graphs


def emissions(lattice: Lattice, graphs: Graphs, dtype: torch.dtype, tokens: bool) -> Emissions:
    """Read the logits once: the softmax of each frame, and the logits that the recursion needs.

    Args:
        lattice: The batch.
        graphs: Its graphs.
        dtype: Of the results.
        tokens: Whether the logits of tokens are wanted.

    Returns:
        The emissions.
    """
    logits = lattice.logits
    length, size, outputs = logits.shape
    shape = (size, length)
    top, total, others, silence = (torch.empty(shape, dtype=dtype, device=logits.device) for _ in range(4))
    sounds = torch.empty(num_positions(lattice) * length if tokens else 0, dtype=dtype, device=logits.device)
    if length and size:
        columns = min(1024, power_above(outputs))
        rows = max(1, 2048 // columns)
        tiles = -(-length // rows)
        kernels(logits).emissions[(size * tiles,)](
            logits,
            *logits.stride(),
            lattice.blank * logits.stride(2),
            graphs.frames,
            graphs.tokens,
            graphs.first,
            graphs.labels,
            top,
            total,
            others,
            silence,
            sounds,
            length,
            outputs,
            tiles,
            lattice.blank,
            TOKENS=tokens,
            ROWS=rows,
            COLUMNS=columns,
            PLACES=min(2048 // rows, power_above(longest_transcript(lattice) + 1)),
        )
    return Emissions(top, total, others, silence, sounds)


def log_others(lattice: Lattice, dtype: torch.dtype) -> Tensor:
    """Compute log(C − 1), what ★ loses as a mean, as a tensor: numbers are passed to kernels as float32.

    Args:
        lattice: The batch.
        dtype: Of the result.

    Returns:
        (1,).
    """
    value = math.log(max(lattice.logits.shape[2] - 1, 1))
    return torch.full((1,), value, dtype=dtype, device=lattice.logits.device)
