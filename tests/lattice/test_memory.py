"""Beyond logits and gradient: at most 24 bytes × T × (U + 1) for each utterance in flight."""

import subprocess
import sys

import pytest

# Peak resident memory of a process that has run a small batch, and then a large one whose logits are one expanded row:
# what the process grows by is the engine's own.
GROWTH = """
import resource, sys
import torch
from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors
torch.set_num_threads(1)
frames, tokens, size = map(int, sys.argv[1:])

def run(frames, tokens, size):
    weight = torch.full((size, tokens), -1.0, requires_grad=True)
    logits = torch.zeros(1, 1, 64).expand(frames, size, 64)
    targets = (torch.arange(tokens) % 60 + 1).expand(size, tokens)
    wildcards = Wildcards(bypass=weight, self_loop=-1.0, word_bypass=-1.0)
    arguments = logits, targets, [frames] * size, [tokens] * size
    words = (torch.arange(tokens) // 5).expand(size, tokens)
    wildcard_ctc_loss(*arguments, wildcards=wildcards, words=words).backward()

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(20, 5, 2)
before = peak()
run(frames, tokens, size)
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize(("frames", "tokens", "size"), [(2000, 200, 8), (8000, 400, 1), (20000, 16, 1), (20000, 32, 1)])
def test_what_a_process_grows_by(frames, tokens, size):
    """One thread works on one utterance at a time, however many are in the batch."""
    command = [sys.executable, "-c", GROWTH, str(frames), str(tokens), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) <= 24 * frames * (tokens + 1)
