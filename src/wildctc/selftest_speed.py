"""Time and memory of the loss and its gradient beside those of others: the second table of `wildctc selftest`."""

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.backends import Backend
from wildctc.lattice.functional import wildcard_ctc_loss
from wildctc.progress import progress


class Shape(NamedTuple):
    """The size of a batch.

    Attributes:
        frames: T.
        tokens: U.
        outputs: C.
        utterances: N.
    """

    frames: int
    tokens: int
    outputs: int
    utterances: int


_ON_CPU = (Shape(100, 20, 5000, 2), Shape(400, 60, 100, 8))
_ON_GPU = (
    Shape(50, 8, 32, 1),
    Shape(400, 100, 64, 1),
    Shape(400, 100, 64, 32),
    Shape(400, 100, 64, 512),
    Shape(250, 30, 5000, 32),
    Shape(800, 120, 500, 32),
    Shape(1500, 60, 200, 32),
    Shape(1500, 200, 200, 32),
    Shape(4000, 1000, 100, 4),
)
_OURS = {"CTC": Wildcards(), "T": Wildcards(-2.0, -2.0), "TW": Wildcards(-2.0, -2.0, -2.0)}
_ROUNDS = 15


@dataclass(frozen=True)
class Speed:
    """One line of the table.

    Attributes:
        name: whose loss.
        shape: of the batch.
        milliseconds: median of loss and gradient, from logits; None if it cannot run.
        megabytes: what it takes beyond the logits; None if nobody knows.
        ratio: how many times as fast as torch's own kernels.
        note: why it cannot run.
    """

    name: str
    shape: Shape
    milliseconds: float | None = None
    megabytes: float | None = None
    ratio: float | None = None
    note: str = ""

    def cells(self) -> list[str]:
        """Write the line.

        Returns:
            The cells of the table.
        """
        time_taken = self.note if self.milliseconds is None else f"{self.milliseconds:.2f}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return [self.name, *map(str, self.shape), time_taken, ratio, _or_unknown(self.megabytes, self.milliseconds)]


HEADER = ["loss and gradient", "T", "U", "C", "N", "ms", "times as fast", "MB beyond logits"]


def _or_unknown(megabytes: float | None, milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return "?" if megabytes is None else f"{megabytes:.1f}"


def measure_speed(device: torch.device, backend: Backend) -> list[Speed]:
    """Measure ours and others' on batches of several sizes.

    Args:
        device: where to run.
        backend: ours there.

    Returns:
        A line for each loss and size; also for what cannot run, with the reason.
    """
    shapes = _ON_CPU if device.type == "cpu" else _ON_GPU
    found: list[Speed] = []
    for shape in progress(shapes, desc="speed"):
        torchs = None
        for name, run, logits in _contestants(shape, device, backend):
            if isinstance(run, str):
                found.append(Speed(name, shape, note=run))
                continue
            try:
                milliseconds, peak = _measure(run, logits)
            except (RuntimeError, ValueError, TypeError, AttributeError) as error:  # of others' code, or no memory left
                found.append(Speed(name, shape, note=(str(error).strip().splitlines() or ["failed"])[0][:60]))
                continue
            torchs = torchs or milliseconds  # the first is torch's
            found.append(Speed(name, shape, milliseconds, peak, torchs / milliseconds))
    return found


def _contestants(
    shape: Shape, device: torch.device, backend: Backend
) -> Iterator[tuple[str, Callable[[], None] | str, Tensor]]:
    """Name, what computes loss and gradient or why nothing does, and the logits. All utterances have full length."""
    frames, tokens, outputs, size = shape
    generator = torch.Generator().manual_seed(1)
    logits = (2 * torch.randn(frames, size, outputs, generator=generator)).to(device).requires_grad_()
    targets = torch.randint(1, outputs, (size, tokens), generator=generator)
    words = torch.arange(tokens).div(5, rounding_mode="floor").expand(size, tokens).to(device)
    on_device = targets.to(device)
    lengths = torch.full((size,), frames, device=device), torch.full((size,), tokens, device=device)

    def torchs() -> None:
        ctc_loss(logits.log_softmax(2), on_device, *lengths).backward()

    yield "torch.nn.functional.ctc_loss", torchs, logits
    if device.type == "cuda":
        yield "the same, cuDNN", _cudnn(logits, targets, shape), logits
        yield "k2.ctc_loss", _k2(logits, targets, shape), logits
    for kind, wildcards in _OURS.items():

        def ours(wildcards: Wildcards = wildcards) -> None:
            wildcard_ctc_loss(logits, on_device, *lengths, wildcards=wildcards, words=words, backend=backend).backward()

        yield f"{backend}, {kind}", ours, logits


def _cudnn(logits: Tensor, targets: Tensor, shape: Shape) -> Callable[[], None] | str:
    """torch takes cuDNN's loss for concatenated int32 targets on the host, if it can; `_use_cudnn_ctc_loss` says so."""
    flat = targets.reshape(-1).int()
    ones = torch.ones(shape.utterances, dtype=torch.int32)
    lengths = ones * shape.frames, ones * shape.tokens
    try:
        usable = torch._use_cudnn_ctc_loss(logits.detach(), flat, lengths[0].tolist(), lengths[1].tolist(), 0)
    except (AttributeError, TypeError, RuntimeError) as error:
        return f"unknown: {str(error).splitlines()[0]:.40}"
    if not usable:
        return "not usable"

    def run() -> None:
        ctc_loss(logits.log_softmax(2), flat, *lengths).backward()

    return run


def _k2(logits: Tensor, targets: Tensor, shape: Shape) -> Callable[[], None] | str:
    """As icefall computes it: graphs of the batch, and the forward-backward over a dense FSA."""
    if find_spec("k2") is None:
        return "not installed"
    import k2

    labels = targets.tolist()
    segments = torch.tensor([[n, 0, shape.frames] for n in range(shape.utterances)], dtype=torch.int32)

    def run() -> None:
        graph = k2.ctc_graph(labels, modified=False, device=logits.device)
        dense = k2.DenseFsaVec(logits.log_softmax(2).transpose(0, 1).contiguous(), segments)
        k2.ctc_loss(graph, dense, output_beam=10.0, reduction="sum").backward()

    return run


def _measure(run: Callable[[], None], logits: Tensor) -> tuple[float, float | None]:
    """Milliseconds, the median; and megabytes."""
    cuda = logits.device.type == "cuda"
    times = []
    for _ in range(_ROUNDS if cuda else 6):
        logits.grad = None
        if cuda:
            torch.cuda.synchronize(logits.device)
        began = time.perf_counter()
        run()
        if cuda:
            torch.cuda.synchronize(logits.device)
        times.append(1000 * (time.perf_counter() - began))
    logits.grad = None
    peak = _peak_cuda(run, logits.device) if cuda else _peak_cpu(run)
    logits.grad = None
    return statistics.median(times[2:]), None if peak is None else peak / 1e6


def _peak_cuda(run: Callable[[], None], device: torch.device) -> int:
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    return torch.cuda.max_memory_allocated(device) - before


def _peak_cpu(run: Callable[[], None]) -> int | None:
    """By how much resident memory grew. Only Linux lets a process reset its peak and give free memory back."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):  # another system, or another C library
        return None
    before = status("VmRSS")
    run()
    return max(0, status("VmHWM") - before)


def as_json(lines: list[Speed]) -> list[dict[str, Any]]:
    """Write lines for the JSON file.

    Args:
        lines: What was measured.

    Returns:
        A dictionary for each.
    """
    return [{**vars(line), "shape": line.shape._asdict()} for line in lines]
