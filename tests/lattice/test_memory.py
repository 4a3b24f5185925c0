"""Beyond logits and gradient: at most 24 bytes × T × (U + 1), or 152 × T, for each utterance in flight."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # each test starts a process

# Peak resident memory of a process that has run a small batch, and then a large one whose logits are one expanded row:
# what the process grows by is the engine's own.
GROWTH = """
import resource, sys
import torch
from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors
torch.set_num_threads(1)
frames, tokens, size = map(int, sys.argv[1:4])
dtype, number = getattr(torch, sys.argv[4]), float(sys.argv[5])

def run(frames, tokens, size):
    weight = torch.full((size, tokens + 1), number, requires_grad=True)
    logits = torch.zeros(1, 1, 64, dtype=dtype).expand(frames, size, 64)
    targets = (torch.arange(tokens) % 60 + 1).expand(size, tokens)
    wildcards = Wildcards(bypass=-1.0, self_loop=weight, word_bypass=-1.0)
    arguments = logits, targets, [frames] * size, [tokens] * size
    words = (torch.arange(tokens) // 5).expand(size, tokens)
    wildcard_ctc_loss(*arguments, wildcards=wildcards, words=words).backward()

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(20, 5, 2)
before = peak()
run(frames, tokens, size)
print(peak() - before)
"""


ONE_NUMBER = """
import resource, sys
import torch
from wildctc import Wildcards, wildcard_ctc_loss
torch.set_num_threads(1)

def run(size, tokens):
    weight = torch.tensor(-2.0, requires_grad=True)
    targets, words = torch.ones(size, tokens).long(), torch.arange(tokens).repeat(size, 1)
    if sys.argv[1] == "concatenated":
        targets, words = targets.flatten(), words.flatten()
    given = {"wildcards": Wildcards(weight, weight, weight), "words": words}
    lengths = [tokens] * size, [tokens] * size
    wildcard_ctc_loss(torch.zeros(tokens, size, 3), targets, *lengths, **given).backward()

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(8, 20)
before = peak()
run(512, 100)
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("targets", ["padded", "concatenated"])
def test_one_number_in_a_tensor_takes_no_place_for_each_arc(targets):
    """512 utterances of 100 tokens: 2 MB for logits, targets and words. Expanded to all arcs, a weight had 200 MB."""
    command = [sys.executable, "-c", ONE_NUMBER, targets]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) <= 20e6


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize(("frames", "tokens", "size"), [(2000, 200, 8), (8000, 400, 1), (20000, 16, 1), (20000, 32, 1)])
def test_what_a_process_grows_by(frames, tokens, size):
    """One thread works on one utterance at a time, however many are in the batch."""
    assert growth(frames, tokens, size, "float32", -1.0) <= 24 * frames * (tokens + 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_what_a_process_grows_by_for_a_few_tokens(tokens, dtype):
    """A reward, so that float32 takes the wide format too."""
    assert growth(150_000, tokens, 1, dtype, 0.1) <= max(152, 24 * (tokens + 1)) * 150_000


def growth(*arguments) -> int:
    command = [sys.executable, "-c", GROWTH, *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
