"""Transcript graphs against chains, forward + backward from logits, as ratios measured in one run.

    python benchmarks/graphs.py            # about a minute

One thread, the full token+word graph. Everything is timed in turn, as in loss.py, but in processor time, because the
machine may be shared.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from loss import cpu_name, slope

from wildctc import TranscriptGraph, Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice import _native

FRAMES, OUTPUTS, SIZE = 400, 64, 8
WILDCARDS = Wildcards(bypass=-5.0, self_loop=-2.0, word_bypass=-9.0)


def labels(generator: torch.Generator, count: int) -> list[int]:
    return torch.randint(1, OUTPUTS, (count,), generator=generator).tolist()


def spelled(words: int, tokens: int, every: int, ways: int = 2) -> list[TranscriptGraph]:
    """Graphs of words of some tokens; each `every`-th word has several spellings (0: none has)."""
    graphs = []
    for n in range(SIZE):
        generator = torch.Generator().manual_seed(n)
        counts = [ways if every and i % every == 0 else 1 for i in range(words)]
        graphs.append(TranscriptGraph.from_slots([[labels(generator, tokens) for _ in range(c)] for c in counts]))
    return graphs


def whole(ways: int) -> list[TranscriptGraph]:
    """The union of whole transcripts of 100 tokens."""
    generator = torch.Generator().manual_seed(0)
    words = [[u // 5 for u in range(100)]] * ways
    return [
        TranscriptGraph.from_sequences([labels(generator, 100) for _ in range(ways)], words=words) for _ in range(SIZE)
    ]


class Case:
    """One kind of transcripts, and the calls that are timed."""

    def __init__(self, graphs: list[TranscriptGraph], frames: int = FRAMES) -> None:
        self.graphs, self.lengths = graphs, [frames] * len(graphs)
        generator = torch.Generator().manual_seed(0)
        self.logits = torch.randn(frames, len(graphs), OUTPUTS, generator=generator).requires_grad_()

    def loss(self, wildcards: Wildcards | None = WILDCARDS) -> None:
        self.logits.grad = None
        wildcard_ctc_loss(self.logits, self.graphs, self.lengths, wildcards=wildcards).backward()

    def plain(self) -> None:
        self.loss(None)

    def posteriors(self) -> None:
        wildcard_posteriors(self.logits, self.graphs, self.lengths, wildcards=WILDCARDS)

    def align(self) -> None:
        wildcard_align(self.logits.detach(), self.graphs, self.lengths, wildcards=WILDCARDS)

    @property
    def arcs(self) -> int:
        return len(self.graphs[0].arcs)


def least(calls: list[Callable[[], None]], rounds: int) -> list[float]:
    """Processor seconds of each call, the least of all rounds. Calls take turns, three in a row."""
    times = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            for _ in range(3):
                start = time.process_time()
                call()
                times[i] = min(times[i], time.process_time() - start)
    return times


def against_the_chain(rounds: int) -> None:
    chain = spelled(20, 5, 0)
    rows = [
        ("20 words of 5 tokens: a chain", Case(chain)),
        ("  one word in five has two spellings", Case(spelled(20, 5, 5))),
        ("50 words of 2 tokens: a chain", Case(spelled(50, 2, 0))),
        ("  one word in five has two spellings", Case(spelled(50, 2, 5))),
        ("7 chains, and 1 with spellings", Case([*chain[:7], spelled(20, 5, 5)[7]])),
        ("40 slots of 3 alternatives of 1 token", Case(spelled(40, 1, 1, 3))),
        ("40 slots of 3 alternatives of 3 tokens", Case(spelled(40, 3, 1, 3))),
        ("3 whole transcripts", Case(whole(3))),
    ]
    print(f"One thread, {SIZE} utterances of {FRAMES} frames, {OUTPUTS} outputs; ms of processor time\n")
    print(
        "                                         │      │ token+word graph │    plain CTC     │ posteriors │ best path"
    )
    print(
        "                                         │ arcs │    ms  to chain  │    ms  to chain  │         ms │        ms"
    )
    print(
        "─────────────────────────────────────────┼──────┼──────────────────┼──────────────────┼────────────┼──────────"
    )
    calls = [call for _, case in rows for call in (case.loss, case.plain, case.posteriors)]
    times = least(calls, rounds)
    paths = least([case.align for _, case in rows], max(1, rounds // 6))
    for i, (name, case) in enumerate(rows):
        wild, plain, posterior = times[3 * i : 3 * i + 3]
        print(
            f"{name:40s} │ {case.arcs:4d} │ {1e3 * wild:6.2f} {wild / times[0]:8.2f}× │"
            f" {1e3 * plain:6.2f} {plain / times[1]:8.2f}× │ {1e3 * posterior:10.2f} │ {1e3 * paths[i]:9.1f}"
        )


def growth(rounds: int) -> None:
    """How time grows with slots and with alternatives: with their arcs, not with their 3^40 paths."""
    slots, ways = [20, 40, 80, 160], [2, 4, 8, 16]
    by_slots = least([Case(spelled(n, 1, 1, 3)).loss for n in slots], rounds)
    by_ways = least([Case(spelled(40, 1, 1, n)).loss for n in ways], rounds)
    print(
        f"\nTime grows as slots^{slope(slots, by_slots):.2f} (3 alternatives), alternatives^{slope(ways, by_ways):.2f}"
    )


def memory() -> None:
    """What a process grows by, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True)
    print(done.stdout.strip())


def measure_memory() -> None:
    torch.set_num_threads(1)

    def run(slots: int, frames: int) -> int:
        graph = spelled(slots, 3, 1, 3)[0]
        logits = torch.zeros(1).expand(frames, 1, OUTPUTS)
        bypass = torch.full((1, len(graph.arcs)), -5.0, requires_grad=True)
        wildcard_ctc_loss(logits, [graph], [frames], wildcards=Wildcards(bypass, -2.0, -9.0)).backward()
        return len(graph.arcs)

    run(2, 8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arcs, frames = run(100, 6000), 6000
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        f"{arcs} arcs, {frames} frames: {grown / 1e6:.0f} MB, {grown / frames / (arcs + 1):.1f} bytes a frame and arc"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="more for a noisier machine")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        return measure_memory()
    torch.set_num_threads(1)
    print(
        f"{cpu_name()}, {_native.instruction_set()} kernels, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}\n"
    )
    against_the_chain(options.rounds)
    growth(max(1, options.rounds // 2))
    memory()


if __name__ == "__main__":
    main()
