"""Checks that the loss is right on a device, and measures its speed: what `wildctc selftest` prints.

The table can be pasted into an issue: it contains no path, name or address.
"""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.lattice.align import wildcard_align
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.backends import HAS_TRITON, Backend
from wildctc.lattice.functional import wildcard_ctc_loss, wildcard_posteriors
from wildctc.progress import progress
from wildctc.selftest_speed import HEADER, Speed, as_json, measure_speed
from wildctc.version import __version__

_GRAPHS = ("CTC", "T", "W", "TW")
_LIMITS = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
_LIMIT_LONG = 2e-4  # float32, a thousand frames


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes:
        name: what is checked.
        found: the measured value, as it is printed.
        limit: the value that it must not exceed, or must have.
        passed: whether it is within the limit.
    """

    name: str
    found: str
    limit: str
    passed: bool


@dataclass(frozen=True)
class SelftestResult:
    """The result of all checks; `print(result)` shows the tables.

    Attributes:
        about: versions and device, one line.
        checks: one for each check.
        speed: time and memory, ours and others'.
    """

    about: str
    checks: list[Check]
    speed: list[Speed]

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        rows = [[c.name, c.found, c.limit, "ok" if c.passed else "FAILED"] for c in self.checks]
        checks = _markdown(["check", "found", "limit", ""], rows)
        speed = _markdown(HEADER, [line.cells() for line in self.speed])
        return f"{self.about}\n\n{checks}\n\n{speed}\n\n{'passed' if self.passed else 'FAILED'}"

    def as_json(self) -> dict[str, Any]:
        """Collect everything for a file.

        Returns:
            What `json.dumps` takes.
        """
        checks = [vars(check) for check in self.checks]
        return {"about": self.about, "passed": self.passed, "checks": checks, "speed": as_json(self.speed)}


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def selftest_device(name: str | None) -> torch.device:
    """Find the device to check.

    Args:
        name: "cpu", "cuda" or "cuda:1"; None means the GPU if there is one, otherwise the CPU.

    Returns:
        The device.

    Raises:
        WildCTCError: the device does not exist, or Triton is missing on a GPU.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise WildCTCError(f"--device {name}: must be cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise WildCTCError(f"--device {device}: torch sees {torch.cuda.device_count()} GPUs")
    if device.type == "cuda" and not HAS_TRITON:
        raise MissingExtra("triton", "gpu")
    return device


def selftest(device: torch.device) -> SelftestResult:
    """Run every check, then measure time and memory of loss and gradient. Takes a few minutes on a GPU.

    Args:
        device: where the loss is computed.

    Returns:
        The checks and the measurements.
    """
    backend: Backend = "native" if device.type == "cpu" else "triton"
    # On a GPU each case compiles its own kernels, so half precision is checked on one graph only: with all arcs.
    cases = [(kind, dtype) for kind in _GRAPHS for dtype in _LIMITS if kind == "TW" or dtype.itemsize > 2]
    tests = [
        *((lambda kind=kind, dtype=dtype: _check_parity(kind, dtype, backend, device)) for kind, dtype in cases),
        lambda: _check_parity("TW", torch.float32, backend, device, frames=1000, tokens=150),
        lambda: _check_best_path(backend, device),
        lambda: _check_determinism(backend, device),
    ]
    if device.type == "cuda":
        tests += [
            lambda: _check_parity("CTC", torch.float32, backend, device, frames=1000, tokens=150),
            lambda: _check_parity("T", torch.float32, backend, device, frames=1300, tokens=1100, size=2),
            lambda: _check_parity("TW", torch.float32, backend, device, frames=6, tokens=3, size=70_000),
            lambda: _check_no_synchronisation(backend, device),
            lambda: _check_graph_capture(backend, device),
        ]
    checks = [test() for test in progress(tests, desc="checks")]
    return SelftestResult(_about(device, backend), checks, measure_speed(device, backend))


def _about(device: torch.device, backend: str) -> str:
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    return (
        f"wildctc {__version__}, backend {backend} on {device.type} ({where}), torch {torch.__version__}, "
        f"triton {triton}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )


def _batch(
    kind: str,
    dtype: torch.dtype,
    device: torch.device,
    size: int = 4,
    frames: int = 50,
    tokens: int = 12,
    outputs: int = 20,
) -> dict[str, Any]:
    """The arguments of the loss: unequal lengths, words of three tokens, a weight for each arc."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = [(normal(size, width) - 2).to(device) for width in (tokens, tokens + 1, tokens // 3 + 1)]
    bypass, self_loop, word_bypass = weights
    wildcards = {
        "CTC": Wildcards(),
        "T": Wildcards(bypass, self_loop),
        "W": Wildcards(None, self_loop, word_bypass, self_loop_at="word"),
        "TW": Wildcards(bypass, self_loop, word_bypass),
    }[kind]
    shrink = torch.arange(size)
    return {
        "logits": (2 * normal(frames, size, outputs)).to(device, dtype),
        "targets": torch.randint(1, outputs, (size, tokens), generator=generator).to(device),
        "input_lengths": (frames - frames // 10 * shrink).clamp(min=frames // 2).to(device),
        "target_lengths": (tokens - shrink).clamp(min=1).to(device),
        "words": torch.arange(tokens).div(3, rounding_mode="floor").expand(size, tokens).to(device),
        "wildcards": wildcards,
    }


def _step(given: dict[str, Any], backend: Backend) -> list[Tensor]:
    """The losses, their gradient with respect to the logits, and the posteriors that the graph has."""
    logits = given["logits"].detach().requires_grad_()
    loss = wildcard_ctc_loss(**{**given, "logits": logits}, reduction="none", backend=backend)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    post = wildcard_posteriors(**given, backend=backend)
    return [loss.detach(), gradient, *(p for p in (post.bypass, post.self_loop, post.word_bypass) if p is not None)]


def _check_parity(kind: str, dtype: torch.dtype, backend: Backend, device: torch.device, **shape: int) -> Check:
    """The largest difference from the reference in float64. Losses are compared relative to their size."""
    given = _batch(kind, dtype, device, **shape)
    exact = _step({**given, "logits": given["logits"].double()}, "reference")
    found = _step(given, backend)
    differences = [float(((found[0] - exact[0]) / exact[0]).abs().max())]
    differences += [
        float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in zip(found[1:], exact[1:], strict=True)
    ]
    limit = _LIMIT_LONG if shape.get("frames", 0) >= 1000 else _LIMITS[dtype]
    name = f"{kind}, {str(dtype).removeprefix('torch.')}" + "".join(f", {v} {k}" for k, v in shape.items())
    worst = max(differences) if all(d == d for d in differences) else float("nan")
    return Check(f"equals the reference: {name}", f"{worst:.1e}", f"{limit:.0e}", worst <= limit)


def _check_best_path(backend: Backend, device: torch.device) -> Check:
    given = _batch("TW", torch.float32, device)
    found, wanted = (wildcard_align(**given, backend=b) for b in (backend, "reference"))
    worst = max(abs(a.score - b.score) for a, b in zip(found, wanted, strict=True))
    return Check("best path: score as the reference's", f"{worst:.1e}", "1e-09", worst <= 1e-9)


def _check_determinism(backend: Backend, device: torch.device, runs: int = 5) -> Check:
    given = _batch("TW", torch.float32, device, size=8, frames=200, tokens=60)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (_step(given, backend) for _ in range(runs))
    finally:
        torch.use_deterministic_algorithms(before)
    same = all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    return Check(f"{runs} runs give the same bits", "yes" if same else "no", "yes", same)


def _check_graph_capture(backend: Backend, device: torch.device) -> Check:
    """A step in a CUDA graph must give the same bits again, and follow the logits when they change."""
    given = _batch("TW", torch.float32, device)
    logits = given["logits"].requires_grad_()

    def step() -> Tensor:
        logits.grad = None
        loss = wildcard_ctc_loss(**given, backend=backend)
        loss.backward()
        return loss.detach()

    try:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            step()  # compiles the kernels
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        logits.grad = None
        with torch.cuda.graph(graph):
            captured = step()
        gradient = logits.grad
        with torch.no_grad():
            logits.mul_(0.5)
        graph.replay()
        replayed = [captured.clone(), gradient.clone()]
        again = [step(), logits.grad]
        found = "yes" if all(torch.equal(a, b) for a, b in zip(replayed, again, strict=True)) else "no"
    except RuntimeError as error:
        found = str(error).splitlines()[0]
    return Check("a CUDA graph of a step gives the same bits", found, "yes", found == "yes")


def _check_no_synchronisation(backend: Backend, device: torch.device) -> Check:
    """torch raises an error for any operation that makes the host wait for the GPU."""
    given = _batch("TW", torch.float32, device)
    given["logits"].requires_grad_()
    wildcard_ctc_loss(**given, backend=backend).backward()  # compiles the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        wildcard_ctc_loss(**given, backend=backend).backward()
        found = "yes"
    except RuntimeError as error:
        found = str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return Check("the host never waits", found, "yes", found == "yes")
