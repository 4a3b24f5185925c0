"""The loss against torch's own, forward + backward from logits, as ratios measured in one run.

    python benchmarks/loss.py            # about three minutes

Rows are of random logits, and of logits that are drawn to be like a trained model's (benchmarks/peaky.py).

Machines are noisy, and a ratio of two timings taken minutes apart means little: everything that is compared is timed
in turn, round after round, and the least time of each counts. It is processor time, which other processes change least;
only for two threads it is the time that passed.
"""

import argparse
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peaky import Batch, drawn
from torch import Tensor

from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice import _native, native
from wildctc.lattice.arcs import as_lattice

SHAPES = [(400, 100, 64, 8), (500, 80, 200, 8), (250, 30, 5000, 8), (50, 8, 32, 1)]  # T, U, C, N


def random(frames: int, tokens: int, outputs: int, size: int, generator: torch.Generator) -> Batch:
    """Normally distributed logits, and transcripts of words of five tokens."""
    logits = torch.randn(frames, size, outputs, generator=generator)
    targets = torch.randint(1, outputs, (size, tokens), generator=generator)
    words = (torch.arange(tokens) // 5).repeat(size, 1)
    return Batch(logits, targets, torch.full((size,), frames), torch.full((size,), tokens), words)


class Case:
    """The calls that are timed, on one batch."""

    def __init__(self, batch: Batch) -> None:
        self.logits, self.targets, self.words = batch.logits.requires_grad_(), batch.targets, batch.words
        self.lengths = batch.frames, batch.tokens
        self.upstream = torch.randn(self.logits.shape, generator=torch.Generator().manual_seed(1))
        self.wildcards = Wildcards(bypass=-5.0, self_loop=-2.0, word_bypass=-9.0)

    @classmethod
    def of(cls, draw: Callable[..., Batch], *shape: int) -> "Case":
        return cls(draw(*shape, torch.Generator().manual_seed(0)))

    @property
    def positions(self) -> int:
        """Of all frames."""
        return int((self.lengths[0] * (self.lengths[1] + 1)).sum())

    @property
    def shape(self) -> tuple[int, int, int, int]:
        frames, size, outputs = self.logits.shape
        return frames, self.targets.shape[1], outputs, size

    def torch_ctc(self) -> None:
        self.logits.grad = None
        F.ctc_loss(self.logits.log_softmax(-1), self.targets, *self.lengths).backward()

    def log_softmax(self) -> None:
        self.logits.grad = None
        self.logits.log_softmax(-1).backward(self.upstream)

    def wildcard(self) -> None:
        self.logits.grad = None
        arguments = {"wildcards": self.wildcards, "words": self.words}
        wildcard_ctc_loss(self.logits, self.targets, *self.lengths, **arguments).backward()

    def plain(self) -> None:
        self.logits.grad = None
        wildcard_ctc_loss(self.logits, self.targets, *self.lengths).backward()

    def posteriors(self) -> None:
        wildcard_posteriors(self.logits, self.targets, *self.lengths, wildcards=self.wildcards, words=self.words)


def least(
    calls: list[Callable[[], None]], rounds: int, repeat: int = 1, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Seconds of each call, the least of all rounds. Calls take turns, three in a row: the first warms the caches."""
    times = [math.inf] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            for _ in range(3):
                start = clock()
                for _ in range(repeat):
                    call()
                times[i] = min(times[i], (clock() - start) / repeat)
    return times


def against_torch(rounds: int, logits: Path | None) -> None:
    cases = [(name, Case.of(draw, *shape)) for shape in SHAPES for name, draw in (("random", random), ("peaky", drawn))]
    if logits is not None:
        cases.append((logits.stem, Case(Batch(**torch.load(logits, weights_only=True)))))
    print("One thread, ms, forward + backward; the full token+word graph against torch's plain CTC\n")
    print("                          │     torch               │         wildctc               │        │       ratios")
    print("                          │                         │                               │  ns by │")
    print("   T    U     C  N        │     CTC     log_softmax │     CTC  token+word  posterior │  frame │ a/c     c/b")
    print("                          │      a           b      │      d        c          e    │  × U+1 │")
    print(
        "──────────────────────────┼─────────────────────────┼───────────────────────────────┼────────┼───────────────"
    )
    for name, case in cases:
        calls = [case.torch_ctc, case.log_softmax, case.plain, case.wildcard, case.posteriors]
        repeat = 10 if case.positions < 10_000 else 1
        times = least(calls, rounds, repeat)
        ms, (torch_ctc, softmax, _, wild, _) = [1e3 * x for x in times], times
        print(
            "{:4d} {:4d} {:5d} {:2d}".format(*case.shape)
            + f" {name[:6]:6s}│ {ms[0]:7.3f} {ms[1]:11.3f} │ {ms[2]:7.3f} {ms[3]:10.3f} {ms[4]:11.3f} │"
            + f" {1e9 * wild / case.positions:6.1f} │ {torch_ctc / wild:4.1f}× {wild / softmax:5.2f}×",
            flush=True,
        )


def python_part(rounds: int) -> None:
    """What a call of a short utterance takes outside of C++. torch's own backward pass alone is most of that."""
    case = Case.of(random, *SHAPES[-1])
    lattice = as_lattice(case.logits.detach(), case.targets, *case.lengths, 0, case.wildcards, case.words)
    batch, gradient, loss = native.NativeBatch(lattice), torch.empty_like(case.logits), torch.empty(1)

    def compiled() -> None:
        batch.check()
        batch.loss(loss, loss, "none", False, gradient, [None, None, None], 0)

    def nothing() -> None:
        case.logits.grad = None
        _Nothing.apply(case.logits).backward()

    times = least([case.torch_ctc, case.wildcard, compiled, nothing], 4 * rounds, 10)
    torch_ctc, wild, inside, alone = (1e6 * x for x in times)
    print(
        "\nT{}/U{}/C{}/N{}, µs: ".format(*SHAPES[-1])
        + f"torch {torch_ctc:.1f}; wildctc {wild:.1f}, of which C++ {inside:.1f}; "
        + f"an autograd function that does nothing {alone:.1f}"
    )


class _Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.gradient = torch.empty_like(logits)
        return torch.empty(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ctx.gradient


def by_threads(rounds: int) -> None:
    case = Case.of(random, 400, 100, 64, 16)

    def with_threads(threads: int) -> Callable[[], None]:
        def call() -> None:
            torch.set_num_threads(threads)
            case.wildcard()

        return call

    one, two = least([with_threads(1), with_threads(2)], rounds, clock=time.perf_counter)
    torch.set_num_threads(1)
    print(f"\nTwo threads at T400/U100/C64/N16: {one / two:.2f}× one thread")


def growth(rounds: int) -> None:
    """Exponents of time ~ T^a and time ~ U^b, fitted by least squares in logarithms."""
    frames, tokens = [500, 1000, 2000, 4000], [50, 100, 200, 400]
    by_frames = least([Case.of(random, t, 100, 64, 2).wildcard for t in frames], rounds)
    by_tokens = least([Case.of(random, 1000, u, 64, 2).wildcard for u in tokens], rounds)
    print(f"Time grows as T^{slope(frames, by_frames):.2f} and as U^{slope(tokens, by_tokens):.2f}")


def slope(xs: list[int], ys: list[float]) -> float:
    logs = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    mean_x, mean_y = (sum(values) / len(values) for values in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="more for a noisier machine")
    parser.add_argument("--logits", type=Path, metavar="FILE", help="a row for logits that benchmarks/peaky.py wrote")
    options = parser.parse_args()
    rounds = options.rounds
    torch.set_num_threads(1)
    print(
        f"{cpu_name()}, {_native.instruction_set()} kernels, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}\n"
    )
    against_torch(rounds, options.logits)
    python_part(rounds)
    by_threads(rounds)
    growth(rounds)


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
