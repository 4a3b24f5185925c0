"""Where would the time of a transducer loss go? The joiner's softmax beside the lattice, one thread.

    python benchmarks/transducer.py

A transducer has an output distribution at each of T · (U+1) nodes. This times log_softmax, forward and backward, of
that many, and our CTC lattice with token and word wildcards over as many cells, which is what a transducer's lattice
would cost in the same kind of kernel; and the reference implementation, a step in Python for each node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from wildctc import Wildcards, wildcard_ctc_loss
from wildctc.experimental.transducer import wildcard_rnnt_loss
from wildctc.terminal import table

SHAPES = [(100, 30, 500), (250, 50, 500), (100, 120, 32)]  # T, U, C
ROUNDS = 3


def best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def measure(frames: int, tokens: int, outputs: int) -> list[float]:
    """Milliseconds of the softmax, of our CTC lattice and of the reference implementation, forward and backward."""
    joint = torch.randn(1, frames, tokens + 1, outputs, requires_grad=True)
    logits = torch.randn(frames, 1, outputs, requires_grad=True)
    targets, words = torch.randint(1, outputs, (1, tokens)), torch.arange(tokens).unsqueeze(0) // 4
    given: dict[str, Any] = {"words": words, "wildcards": Wildcards(bypass=-3.0, self_loop=-3.0, word_bypass=-3.0)}
    lengths = [frames], [tokens]
    return [
        best(lambda: joint.log_softmax(-1).sum().backward()),
        best(lambda: wildcard_ctc_loss(logits, targets, *lengths, **given).backward()),
        best(lambda: wildcard_rnnt_loss(joint, targets, *lengths, **given).backward()),
    ]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for frames, tokens, outputs in SHAPES:
        times = measure(frames, tokens, outputs)
        shares = [f"{time:,.1f}" for time in times]
        rows.append([f"{frames} × {tokens} × {outputs}", *shares, f"{times[1] / times[0]:.1%}"])
    print(table(("T × U × C", "softmax, ms", "lattice, ms", "reference, ms", "lattice ÷ softmax"), rows))


if __name__ == "__main__":
    main()
