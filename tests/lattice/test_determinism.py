"""The same bits on every run, with any number of threads, after a fork; the same numbers on every instruction set."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.batches import draw_batch

from wildctc import wildcard_align, wildcard_ctc_loss, wildcard_posteriors


def work(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Loss, gradients and posteriors of a batch that is worth several threads."""
    batch = draw_batch(np.random.default_rng(2), "TW", size=12, frames=300, tokens=60, outputs=40, full_lengths=True)
    batch.input_lengths = [300 - 11 * n for n in range(12)]
    logits = batch.logits.to(dtype).requires_grad_()
    weights = [batch.wildcards.bypass, batch.wildcards.self_loop, batch.wildcards.word_bypass]
    for weight in weights:
        weight.requires_grad_()
    batch = batch.with_logits(logits)
    loss = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend="native")
    mean = wildcard_ctc_loss(**batch.arguments(), reduction="mean", backend="native")
    results = [loss, mean, *torch.autograd.grad(mean, [logits, *weights])]
    post = wildcard_posteriors(**batch.arguments(), backend="native")
    scores = [a.score for a in wildcard_align(**batch.arguments(), backend="native")]
    return [x.detach() for x in (*results, post.skipped, post.self_loop, torch.tensor(scores))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bit_identical_across_runs_and_thread_counts(dtype):
    wanted = work(dtype)
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        for found, first in zip(work(dtype), wanted, strict=True):
            assert torch.equal(found, first)


def test_an_utterance_has_the_same_bits_in_any_batch():
    batch = draw_batch(np.random.default_rng(4), "TW", size=6, frames=90, tokens=20, outputs=11, per_arc=False)
    whole = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend="native")
    for n in range(6):
        alone = {
            **batch.arguments(),
            "logits": batch.logits[:, n : n + 1],
            "targets": batch.targets[n : n + 1],
            "words": batch.words[n : n + 1],
            "input_lengths": batch.input_lengths[n : n + 1],
            "target_lengths": batch.target_lengths[n : n + 1],
        }
        assert torch.equal(wildcard_ctc_loss(**alone, reduction="none", backend="native"), whole[n : n + 1])


STEP = """
import os, resource, sys
import torch
from wildctc import Wildcards, wildcard_ctc_loss
logits = torch.randn(400, 8, 50, generator=torch.Generator().manual_seed(1)).requires_grad_()
targets = (torch.arange(60) % 49 + 1).repeat(8, 1)
wildcards = Wildcards(bypass=-2.0, self_loop=-1.0)

def step(threads):  # the engine alone: torch's own OpenMP threads survive no fork, and abort where none can be started
    torch.set_num_threads(threads)
    loss = wildcard_ctc_loss(logits, targets, [400] * 8, [60] * 8, wildcards=wildcards)
    return loss.item(), torch.autograd.grad(loss, logits)[0].numpy().tobytes()

wanted = step(int(sys.argv[1]))
"""
FORK = """
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if step(2) == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0
assert step(2) == wanted
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_works_after_a_fork():
    subprocess.run([sys.executable, "-c", STEP + FORK, "2"], check=True, timeout=60)


# Address space for the given number of further threads, each with a stack of 256 MB
FEWER = """
pages = int(open("/proc/self/statm").read().split()[0])
room = (128 + 256 * int(sys.argv[2])) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, resource.RLIM_INFINITY))
assert step(5) == wanted
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("others", [0, 1])
def test_fewer_threads_are_enough_where_no_more_can_be_started(others):
    python = [sys.executable, "-c", STEP + FEWER, "1", str(others)]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -s 262144 && exec "$@"', "sh", *python], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


SAVE = """
import sys
import torch
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/lattice"]
from test_determinism import work
from wildctc.lattice import _native
torch.set_num_threads(1)
torch.save([_native.instruction_set(), work(torch.float32), work(torch.float64)], sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_other_instruction_sets_give_the_same_numbers(isa, tmp_path):
    file = tmp_path / "results.pt"
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-c", SAVE, str(tests), str(file)]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, "WILDCTC_ISA": isa})
    name, single, double = torch.load(file)
    assert name in ("portable", isa)  # a machine without AVX2 has nothing else
    assert isa != "portable" or name == "portable"
    for found, wanted in zip(single, work(torch.float32), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=5e-5)
    for found, wanted in zip(double, work(torch.float64), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
