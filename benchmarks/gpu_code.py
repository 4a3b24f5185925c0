"""What the Triton kernels are compiled to, for GPUs that this machine need not have; and what a frame should cost.

    python benchmarks/gpu_code.py [--targets sm_80 gfx942 gfx1100] [--tokens 30 120 …] [--kinds CTC TW] [--json FILE]

Triton compiles the kernels that the loss and its gradient would start, with the shapes that they would get. Read from
the machine code: registers, bytes that are spilled, shared memory, and the instructions and barriers in the loop over
frames of the sweep, all its branches together. Estimated from them: the cycles of a frame, by the numbers in `MODEL`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from wildctc import Wildcards, wildcard_ctc_loss
from wildctc.lattice import triton_backend, triton_batch, triton_kernels
from wildctc.progress import progress

TARGETS = {"sm_80": ("cuda", 80, 32), "gfx942": ("hip", "gfx942", 64), "gfx1100": ("hip", "gfx1100", 32)}
KINDS = {"CTC": Wildcards(), "T": Wildcards(-2.0, -2.0), "TW": Wildcards(-2.0, -2.0, -2.0)}
TOKENS = (30, 120, 500, 20_000)


@dataclass(frozen=True)
class Model:
    """What a GPU is taken to be; from vendors' and others' published measurements, none of it measured here.

    Attributes:
        issue: cycles between two instructions of a warp.
        chain: cycles of a frame whose instructions would cost nothing: each waits for the one before it.
        load: cycles until a number that another warp has just stored is there, in the L2 cache.
        barrier: cycles of a barrier.
        registers: of a compute unit, 32 bits each, for one lane of a warp of each of its four parts.
    """

    issue: float
    chain: int
    load: int
    barrier: int
    registers: int


MODEL = {
    "sm_80": Model(1.0, 130, 250, 30, 512),
    "gfx942": Model(4.0, 250, 500, 30, 512),
    "gfx1100": Model(1.0, 200, 350, 30, 1536),
}


class Compiling:
    """Replaces a kernel: a launch compiles it, with its arguments, for a GPU that this machine need not have."""

    def __init__(self, name: str, compiled: dict[str, list[Any]], skipped: bool) -> None:
        self.kernel, self.compiled, self.skipped = getattr(triton_kernels, name), compiled.setdefault(name, []), skipped

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **options: Any) -> None:
            if not self.skipped:
                self.compiled.append(self.kernel.warmup(*args, grid=grid, **options))

        return launch


@contextmanager
def compiling(target: str, only: str = "") -> Iterator[dict[str, list[Any]]]:
    """Let every launch compile instead.

    Args:
        target: A name in `TARGETS`.
        only: How the names of the kernels that are compiled start; others do nothing.

    Yields:
        The kernels that are compiled, by name.
    """
    gpu, found = GPUTarget(*TARGETS[target]), {}
    names = [name for name in triton_kernels.__all__ if name not in ("INTERPRETED", "warp_size")]
    stand_in = SimpleNamespace(
        **{name: Compiling(name, found, not name.startswith(only)) for name in names},
        INTERPRETED=False,
        warp_size=lambda: gpu.warp_size,
    )
    before = driver._active, triton_backend.kernels, triton_batch.kernels
    calls = {"get_current_target": lambda: gpu, "get_current_device": lambda: target}
    driver._active = SimpleNamespace(**calls, get_current_stream=lambda device: 0)
    triton_backend.kernels = triton_batch.kernels = lambda logits: stand_in
    try:
        yield found
    finally:
        driver._active, triton_backend.kernels, triton_batch.kernels = before


@dataclass(frozen=True)
class Code:
    """The machine code of a kernel.

    Attributes:
        instructions: where each stands and what it is.
        loops: first and last place of each loop.
        registers: of a thread.
        spilled: bytes of a thread.
        shared: bytes of shared memory.
    """

    instructions: list[tuple[int, str]]
    loops: list[tuple[int, int]]
    registers: int
    spilled: int
    shared: int

    def between(self, first: int, last: int) -> list[str]:
        return [what for place, what in self.instructions if first <= place <= last]

    def outer_loops(self) -> list[tuple[int, int]]:
        """The loops that are in no other loop, in the order of the code."""
        inside = [a for a in self.loops if any(b != a and b[0] <= a[0] and a[1] <= b[1] for b in self.loops)]
        return sorted(loop for loop in set(self.loops) if loop not in inside)


def read_code(kernel: Any) -> Code:
    """Read what a kernel was compiled to.

    Args:
        kernel: As Triton compiles it.

    Returns:
        Its code.
    """
    if "amdgcn" in kernel.asm:
        text = kernel.asm["amdgcn"]
        numbers = {name: int(re.search(rf"\.{name}:\s+(\d+)", text)[1]) for name in _AMD}  # type: ignore[index]
        registers, spilled, shared = (numbers[name] for name in _AMD)
        branch, place_of = r"s_c?branch\w*\s+(\.L\w+)", r"^(\.L\w+):"
        instruction = r"^\s+([a-z]\w+)\s"
    else:
        tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(kernel.asm["cubin"])
            file.flush()
            text, usage = (
                subprocess.run([tools / tool, option, file.name], capture_output=True, text=True, check=True).stdout
                for tool, option in (("nvdisasm", "-c"), ("cuobjdump", "-res-usage"))
            )
        registers, spilled = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))  # type: ignore[index]
        shared = kernel.metadata.shared
        branch, place_of = r"BRA\s+`\((\.L_x_\d+)\)", r"^(\.L_x_\d+):"
        instruction = r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9.]+)"
    lines = text.splitlines()
    places = {found[1]: i for i, line in enumerate(lines) if (found := re.match(place_of, line))}
    jumps = [(i, places[found[1]]) for i, line in enumerate(lines) if (found := re.search(branch, line))]
    instructions = [(i, found[1]) for i, line in enumerate(lines) if (found := re.match(instruction, line))]
    return Code(
        [(i, what) for i, what in instructions if what not in ("NOP", "s_nop", "s_delay_alu")],
        [(to, at) for at, to in jumps if to < at and at - to > 3],
        registers,
        spilled,
        shared,
    )


_AMD = ("vgpr_count", "private_segment_fixed_size", "group_segment_fixed_size")


@dataclass(frozen=True)
class Frame:
    """What one frame of a sweep costs.

    Attributes:
        sweep: where the states are: "registers" or "memory".
        warps: of a program.
        instructions: of a warp, for alphas and for betas; those of a tile as often as there are tiles.
        barriers: in a frame.
        registers: of a thread.
        spilled: bytes of a thread.
        shared: bytes of a program.
        occupancy: warps that fit into one of the four parts of a compute unit.
        cycles: estimated, of the slower of alphas and betas.
    """

    sweep: str
    warps: int
    instructions: tuple[int, int]
    barriers: int
    registers: int
    spilled: int
    shared: int
    occupancy: int
    cycles: int


def launches(target: str, kind: str, tokens: int, only: str = "") -> dict[str, list[Any]]:
    """Compile what the loss and its gradient start.

    Args:
        target: A name in `TARGETS`.
        kind: A name in `KINDS`.
        tokens: The length of the transcript.
        only: As for `compiling`.

    Returns:
        The kernels by name.
    """
    targets = torch.arange(tokens).remainder(9).add(1).unsqueeze(0)
    logits = torch.zeros(40, 1, 500, requires_grad=True)
    given = (logits, targets, torch.tensor([40]), torch.tensor([tokens]))
    with compiling(target, only) as found:
        words = torch.arange(tokens).div(5, rounding_mode="floor").unsqueeze(0) if kind == "TW" else None
        wildcard_ctc_loss(*given, wildcards=KINDS[kind], words=words, reduction="sum", backend="triton").backward()
    return found


def frame_of(kernel: Any, target: str, tokens: int, sweep: str, words: bool) -> Frame:
    """Estimate what a frame costs.

    Args:
        kernel: A sweep.
        target: A name in `TARGETS`.
        tokens: The length of the transcript.
        sweep: "registers" or "memory".
        words: Whether there are word arcs.

    Returns:
        The costs.
    """
    code, model, warps = read_code(kernel), MODEL[target], kernel.metadata.num_warps
    frames = sorted(sorted(code.outer_loops(), key=lambda loop: loop[0] - loop[1])[:2])
    tiles = (
        -(-(tokens + 1) // min(max(8, triton_batch.power_above(tokens + 1)), triton_batch.TILE))
        if sweep == "memory"
        else 1
    )
    counts = []
    for loop in frames:
        inner = [a for a in code.loops if loop[0] <= a[0] and a[1] <= loop[1] and a != loop]
        of_tile = max((len(code.between(*a)) for a in inner), default=0)
        counts.append(len(code.between(*loop)) + (tiles - 1) * of_tile)
    barriers = [sum(what.startswith(("BAR", "s_barrier")) for what in code.between(*loop)) for loop in frames]
    each = warps / 4 if warps > 4 else 1
    rounds = 1 if sweep == "memory" or words else 0
    cycles = max(max(counts) * each * model.issue, model.chain) + max(barriers) * model.barrier + rounds * model.load
    return Frame(
        sweep, warps, (counts[0], counts[-1]), max(barriers), code.registers, code.spilled, code.shared,
        min(16, model.registers // max(code.registers, 1)), round(cycles),
    )  # fmt: skip


def measure(target: str, kind: str, tokens: int) -> Frame:
    """Compile the sweep for a transcript, and estimate.

    Args:
        target: A name in `TARGETS`.
        kind: A name in `KINDS`.
        tokens: The length of the transcript.

    Returns:
        What a frame costs.
    """
    found = launches(target, kind, tokens, only="sweep")
    in_registers = found["sweep_in_registers"]
    (kernel,) = in_registers or found["sweep_in_tiles"]
    return frame_of(kernel, target, tokens, "registers" if in_registers else "memory", kind == "TW")


def table(rows: list[tuple[str, str, int, Frame]]) -> str:
    """Write a Markdown table.

    Args:
        rows: Target, kind, tokens and costs.

    Returns:
        The table.
    """
    lines = [
        "| GPU | graph | U | states in | warps | instructions α, β | barriers "
        "| registers | spilled | shared | warps that fit | cycles |",
        "|" + "---|" * 12,
    ]
    for target, kind, tokens, f in rows:
        lines.append(
            f"| {target} | {kind} | {tokens:,} | {f.sweep} | {f.warps} "
            f"| {f.instructions[0]:,}, {f.instructions[1]:,} | {f.barriers} | {f.registers} | {f.spilled} | {f.shared} | {f.occupancy} | {f.cycles:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["CTC", "TW"])
    parser.add_argument("--tokens", nargs="+", type=int, default=list(TOKENS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = [(a, b, c) for a in options.targets for b in options.kinds for c in options.tokens]
    rows = [(*case, measure(*case)) for case in progress(cases, desc="compiling")]
    print(table(rows))
    if options.json:
        found = [{"target": a, "graph": b, "tokens": c, **asdict(d)} for a, b, c, d in rows]
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
