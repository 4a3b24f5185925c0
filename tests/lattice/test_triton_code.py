"""What the Triton kernels are compiled to for GPUs, on a machine that has none (see `benchmarks/gpu_code.py`)."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from support.batches import FAMILIES, draw_batch

from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice import triton_backend
from wildctc.lattice.arcs import as_lattice

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_code.py"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="not for the interpreter's process"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def gpu_code() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_code", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_code"] = module
    spec.loader.exec_module(module)
    return module


def text_of(kernel) -> str:
    return kernel.asm.get("ptx") or kernel.asm["amdgcn"]


def everything(kind: str, size: int, tokens: int, dtype: torch.dtype) -> None:
    """Starts every kernel: the loss, gradients to logits and weights, posteriors, the best path."""
    batch = draw_batch(np.random.default_rng(1), kind, size=size, frames=9, tokens=tokens, outputs=6, full_lengths=True)
    batch = batch.with_logits(batch.logits.to(dtype).requires_grad_())
    wildcard_ctc_loss(**batch.arguments(), reduction="sum", backend="triton").backward()
    if kind != "CTC":
        wildcard_posteriors(**batch.arguments(), backend="triton")
        shared = Wildcards(*(torch.tensor(-1.0, requires_grad=True) for _ in FAMILIES))
        wildcard_ctc_loss(**{**batch.arguments(), "wildcards": shared}, reduction="sum", backend="triton").backward()
    triton_backend.best_path(as_lattice(**batch.arguments()))


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(
    ("kind", "size", "tokens", "dtype"), [("TW", 3, 70, torch.float16), ("CTC", 1, 1, torch.bfloat16)]
)
def test_every_launch_compiles_without_a_gpu_and_has_no_atomics(kind, size, tokens, dtype, target, gpu_code):
    """The interpreter lets pass what the compiler does not: a variable whose shape changes in a loop, for one."""
    with gpu_code.compiling(target) as compiled:
        everything(kind, size, tokens, dtype)
        first = {name: len(each) for name, each in compiled.items()}
        everything(kind, size, tokens, dtype)  # a NaN among a module's constants would be refused now
    unused = {"sweep_in_tiles"} | ({"add_counts"} if kind == "CTC" else set())
    assert {name for name, count in first.items() if count == 0} == unused
    assert {name: len(each) for name, each in compiled.items()} == {name: 2 * count for name, count in first.items()}
    for kernels in compiled.values():
        for kernel in kernels:
            assert "atom." not in text_of(kernel)
            assert "atomic" not in text_of(kernel)


def test_batches_of_other_sizes_are_not_compiled_again(gpu_code):
    rng = np.random.default_rng(1)
    with gpu_code.compiling("sm_80") as compiled:
        for size, frames, tokens in [(4, 50, 12), (16, 64, 15), (5, 33, 14)]:
            batch = draw_batch(rng, "T", size=size, frames=frames, tokens=tokens, outputs=32, per_arc=False)
            batch.logits = batch.logits.float().requires_grad_()
            wildcard_ctc_loss(**batch.arguments(), backend="triton").backward()
    used = {name: len(set(map(id, kernels))) for name, kernels in compiled.items() if kernels}
    assert used == dict.fromkeys(used, 1)
    assert len(used) == 5


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_plain_ctc_needs_no_barrier_no_shared_memory_and_spills_nothing(target, gpu_code):
    frame = gpu_code.measure(target, "CTC", 120)
    assert (frame.sweep, frame.warps, frame.barriers, frame.spilled, frame.shared) == ("registers", 1, 0, 0, 0)
    assert frame.cycles <= {"sm_80": 350, "gfx942": 900}[target]


@pytest.mark.parametrize(("target", "tokens"), [("sm_80", 60), ("sm_80", 20_000), ("gfx1100", 20_000)])
def test_with_words_there_is_one_barrier_a_frame_for_any_number_of_tokens(target, tokens, gpu_code):
    frame = gpu_code.measure(target, "TW", tokens)
    assert frame.barriers == 1
    assert frame.spilled == 0
    if tokens == 20_000:
        assert frame.warps > 1
        assert frame.sweep == "memory"


def test_barriers_order_all_memory_on_amd_too(gpu_code):
    """There a barrier alone orders no memory: it needs fences around it, and not of shared memory only."""
    (kernel,) = gpu_code.launches("gfx942", "TW", 500, only="sweep")["sweep_in_tiles"]
    assert kernel.metadata.num_warps > 1
    lines = [re.sub(r", !dbg.*", "", line.strip()) for line in kernel.asm["llir"].splitlines()]
    barriers = [i for i, line in enumerate(lines) if "@llvm.amdgcn.s.barrier()" in line and "call" in line]
    assert len(barriers) == 3
    for i in barriers:
        assert lines[i - 1] == 'fence syncscope("workgroup") release'
        assert lines[i + 1] == 'fence syncscope("workgroup") acquire'
    assert "tgsplit" not in kernel.asm["llir"]


def test_a_batch_of_100_000_utterances_fits_the_grid(gpu_code, monkeypatch):
    grids = []
    monkeypatch.setattr(gpu_code.Compiling, "__getitem__", lambda self, grid: lambda *a, **o: grids.append(grid))
    size = 100_000
    lengths = torch.full((size,), 4), torch.full((size,), 2)
    logits = torch.zeros(4, size, 3, dtype=torch.float16, requires_grad=True)
    with gpu_code.compiling("sm_80"):
        wildcard_ctc_loss(logits, torch.ones(size, 2, dtype=torch.int64), *lengths, backend="triton").backward()
    assert len(grids) == 5
    for grid in grids:
        assert max(grid[1:], default=0) <= 65_535
        assert grid[0] < 2**31
    assert max(grid[0] for grid in grids) >= size
