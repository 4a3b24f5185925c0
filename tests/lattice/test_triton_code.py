"""What the Triton kernels are compiled to for GPUs, on a machine that has none: as `benchmarks/gpu_code.py` reports it."""

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
    """The interpreter lets pass what the compiler does not: a variable whose shape changes in a loop, for one; or what
    it accepts in a first launch only: it takes a NaN among a module's constants for one that was changed meanwhile."""
    with gpu_code.compiling(target) as compiled:
        everything(kind, size, tokens, dtype)
        first = {name: len(each) for name, each in compiled.items()}
        everything(kind, size, tokens, dtype)
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


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1100"])
def test_plain_ctc_needs_no_barrier_no_shared_memory_and_spills_nothing(target, gpu_code):
    frame = gpu_code.measure(target, "CTC", 120)
    assert (frame.sweep, frame.warps, frame.barriers, frame.spilled, frame.shared) == ("registers", 1, 0, 0, 0)
    assert frame.cycles <= {"sm_80": 400, "gfx942": 1600, "gfx1100": 700}[target]


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("tokens", [120, 20_000])
def test_with_words_there_is_one_barrier_a_frame_for_any_number_of_tokens(target, tokens, gpu_code):
    frame = gpu_code.measure(target, "TW", tokens)
    assert frame.barriers == 1
    assert frame.spilled == 0
    if tokens == 20_000:
        assert frame.warps > 1
        assert frame.sweep == "memory"


def test_barriers_wait_for_memory_where_several_warps_share_it(gpu_code):
    """On AMD a barrier alone orders no global memory: each wave must have waited for its own stores."""
    for target in ("gfx942", "gfx1100"):
        compiled = gpu_code.launches(target, "TW", 500)
        for name in ("sweep_in_tiles", "posteriors"):
            (kernel,) = compiled[name]
            assert kernel.metadata.num_warps > 1
            lines = [line.split("//")[0].split(";")[0].strip() for line in text_of(kernel).splitlines()]
            lines = [line for line in lines if line and not line.startswith(".")]
            barriers = [i for i, line in enumerate(lines) if line.startswith("s_barrier")]
            assert barriers
            for i in barriers:
                before = " ".join(lines[max(0, i - 12) : i])
                assert re.search(r"s_waitcnt.*(vmcnt\(0\)|vscnt)|s_waitcnt_vscnt", before), (target, name, before)


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
