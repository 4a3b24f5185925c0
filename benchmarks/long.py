"""Time and memory of long recordings: best path, best path in a band, and posteriors, each in a process of its own.

    python benchmarks/long.py                   # about three minutes
    python benchmarks/long.py --hours           # also a longer one: about five minutes more

The recording is made up: frames that say 90% of the words of a random text, with peaks as sharp as a CTC model's.
"""

import argparse
import resource
import subprocess
import sys
import time

import torch
from loss import cpu_name

from wildctc import Wildcards, wildcard_align, wildcard_posteriors

OUTPUTS, WORD = 40, 6
WEIGHTS = Wildcards(bypass=-8.0, self_loop=-4.0, word_bypass=-20.0, self_loop_at="word")
USUAL = [(6_000, 5_000), (60_000, 50_000), (180_000, 50_000)]
HOURS = [(200_000, 100_000)]


def recording(frames: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (T, C), targets (U,) and words (U,)."""
    generator = torch.Generator().manual_seed(0)
    targets, words = torch.randint(2, OUTPUTS, (tokens,), generator=generator), torch.arange(tokens) // WORD
    said = torch.rand(tokens // WORD + 1, generator=generator)[words] > 0.1
    at = torch.linspace(0, frames - 1, tokens + 2)[1:-1].long()[said]
    logits = torch.randn(frames, OUTPUTS, generator=generator)
    logits[:, 0] += 6
    logits[at, 0] -= 6
    logits[at, targets[said]] += 8
    return logits, targets, words


def measure(call: str, frames: int, tokens: int) -> str:
    """A line of the table. The peak is what the process grows by, results included."""
    torch.set_num_threads(1)
    logits, targets, words = recording(frames, tokens)
    given = (logits, targets, frames, tokens)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    how = ""
    if call == "posteriors":
        wildcard_posteriors(*given, wildcards=WEIGHTS, words=words)
    else:
        [path] = wildcard_align(*given, wildcards=WEIGHTS, words=words, band=500 if call == "band" else None)
        how = "exact" if path.band is None else f"band of {path.band}"
        how += f", score {path.score:.3f}"
    seconds = time.process_time() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    cell = 1e9 * seconds / frames / tokens
    return f"{frames:7d} {tokens:7d}  {call:10s} {seconds:7.1f} s {cell:6.2f} ns {peak:6.2f} GB  {how}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", action="store_true", help="also 200,000 frames and 100,000 tokens")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(arguments.one[0], *map(int, arguments.one[1:])))
        return
    print(f"{cpu_name()}, one thread, {time.strftime('%Y-%m-%d')}\n")
    print(f"{'T':>7s} {'U':>7s}  {'call':10s} {'time':>9s} {'a cell':>9s} {'memory':>9s}")
    for shape in USUAL + HOURS * arguments.hours:
        for call in ("align", "band", "posteriors"):
            command = [sys.executable, __file__, "--one", call, *map(str, shape)]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
