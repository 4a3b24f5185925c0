"""The loss against torch's own, forward + backward from logits, as ratios measured in one run.

    python benchmarks/loss.py            # about two minutes

Machines are noisy, and a ratio of two timings taken minutes apart means little: everything that is compared is timed
in turn, round after round, and the least time of each counts.
"""

import argparse
import math
import platform
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice import _native

SHAPES = [(400, 100, 64, 8), (500, 80, 200, 8), (250, 30, 5000, 8), (50, 8, 32, 1)]  # T, U, C, N


class Case:
    """Random logits and transcripts of words of five tokens."""

    def __init__(self, frames: int, tokens: int, outputs: int, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logits = torch.randn(frames, size, outputs, generator=generator).requires_grad_()
        self.targets = torch.randint(1, outputs, (size, tokens), generator=generator)
        self.lengths = torch.full((size,), frames), torch.full((size,), tokens)
        self.words = (torch.arange(tokens) // 5).repeat(size, 1)
        self.upstream = torch.randn(self.logits.shape, generator=generator)
        self.wildcards = Wildcards(bypass=-5.0, self_loop=-2.0, word_bypass=-9.0)

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


def least(calls: list[Callable[[], None]], rounds: int, repeat: int = 1) -> list[float]:
    """Seconds of each call, the least of all rounds. Calls take turns, three in a row: the first warms the caches."""
    times = [math.inf] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            for _ in range(3):
                start = time.perf_counter()
                for _ in range(repeat):
                    call()
                times[i] = min(times[i], (time.perf_counter() - start) / repeat)
    return times


def against_torch(rounds: int) -> None:
    print("One thread, ms, forward + backward; the full token+word graph against torch's plain CTC\n")
    print("                   │     torch               │         wildctc               │          ratios")
    print("   T    U     C  N │     CTC     log_softmax │     CTC  token+word  posterior │ a/c     b/c    c/d    e/c")
    print("                   │      a           b      │      d        c          e    │")
    print("───────────────────┼─────────────────────────┼───────────────────────────────┼─────────────────────────────")
    for shape in SHAPES:
        case = Case(*shape)
        calls = [case.torch_ctc, case.log_softmax, case.plain, case.wildcard, case.posteriors]
        repeat = 50 if shape[0] * shape[3] < 100 else 1
        torch_ctc, softmax, plain, wild, post = least(calls, rounds, repeat)
        ms = [1e3 * x for x in (torch_ctc, softmax, plain, wild, post)]
        print(
            "{:4d} {:4d} {:5d} {:2d} │".format(*shape)
            + f" {ms[0]:9.3f} {ms[1]:13.3f} │ {ms[2]:8.3f} {ms[3]:10.3f} {ms[4]:10.3f} │"
            + f" {torch_ctc / wild:4.1f}× {softmax / wild:5.2f}× {wild / plain:5.2f}× {post / wild:5.2f}×"
        )


def by_threads(rounds: int) -> None:
    case = Case(400, 100, 64, 16)

    def with_threads(threads: int) -> Callable[[], None]:
        def call() -> None:
            torch.set_num_threads(threads)
            case.wildcard()

        return call

    one, two = least([with_threads(1), with_threads(2)], rounds)
    torch.set_num_threads(1)
    print(f"\nTwo threads at T400/U100/C64/N16: {one / two:.2f}× one thread")


def growth(rounds: int) -> None:
    """Exponents of time ~ T^a and time ~ U^b, fitted by least squares in logarithms."""
    frames, tokens = [500, 1000, 2000, 4000], [50, 100, 200, 400]
    by_frames = least([Case(t, 100, 64, 2).wildcard for t in frames], rounds)
    by_tokens = least([Case(1000, u, 64, 2).wildcard for u in tokens], rounds)
    print(f"Time grows as T^{slope(frames, by_frames):.2f} and as U^{slope(tokens, by_tokens):.2f}")


def slope(xs: list[int], ys: list[float]) -> float:
    logs = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    mean_x, mean_y = (sum(values) / len(values) for values in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="more for a noisier machine")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        f"{cpu_name()}, {_native.instruction_set()} kernels, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}\n"
    )
    against_torch(rounds)
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
