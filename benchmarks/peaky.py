"""The logits of a trained model, for benchmarks/loss.py, and logits that are drawn to be like them.

    python benchmarks/peaky.py runs/ctc data/mine/train.jsonl.gz -o peaky.pt
    python benchmarks/loss.py --logits peaky.pt

A trained model is sure of most frames. That decides how many positions of the lattice matter, so random logits alone
say little about training. Shown are the numbers by which `drawn` was fitted, of the model and of what is drawn.
"""

import argparse
import io
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from wildctc.corpora.manifest import load_manifest
from wildctc.files import write_atomically
from wildctc.recognizer.batch import Collected, logits_batches
from wildctc.recognizer.model import Recognizer, find_model


class Batch(NamedTuple):
    """What the loss takes: logits (T, N, C), targets and words (N, S), lengths (N,) of both."""

    logits: Tensor
    targets: Tensor
    frames: Tensor
    tokens: Tensor
    words: Tensor


def drawn(frames: int, tokens: int, outputs: int, size: int, generator: torch.Generator) -> Batch:
    """Logits like those of a trained model: two frames for each token, one token in twenty heard as another."""
    targets = torch.randint(1, outputs, (size, tokens), generator=generator)
    others = torch.randint(1, outputs, targets.shape, generator=generator)
    heard = torch.where(torch.rand(targets.shape, generator=generator) < 0.05, others, targets)
    words = (torch.arange(tokens) // 5).repeat(size, 1)
    logits = 2.8 * torch.randn(frames, size, outputs, generator=generator)
    above = 13.5 - 3 * torch.empty(frames, size).exponential_(generator=generator)
    logits[..., 0] = logits[..., 1:].amax(-1) + above.clamp(min=1)
    for n in range(size):
        begins = torch.randperm(frames // 2, generator=generator)[:tokens].sort().values * 2
        for at in (begins, begins + 1):
            logits[at, n, 0] = logits[at, n, 1:].amax(-1)
            logits[at, n, heard[n]] = logits[at, n, 0] + 0.5 + 12 * torch.rand(tokens, generator=generator)
    return Batch(logits, targets, torch.full((size,), frames), torch.full((size,), tokens), words)


def collected(run: Path, manifest: Path, cache: Path | None, size: int, seconds: float) -> Batch:
    """The logits of utterances of about some seconds, and their transcripts."""
    model = Recognizer.load(find_model(run))
    nearest = sorted(load_manifest(manifest), key=lambda u: abs(u.duration - seconds))[:size]
    found = [pair for batch in logits_batches(model, nearest, Collected(), cache=cache) for pair in batch]
    labels = [model.units.encode(utterance.text) for utterance, _ in found]
    words = [model.units.words(row) for row in labels]
    pad = torch.nn.utils.rnn.pad_sequence
    return Batch(
        pad([x for _, x in found]).contiguous(),
        pad([torch.tensor(row) for row in labels], batch_first=True),
        torch.tensor([len(x) for _, x in found]),
        torch.tensor([len(row) for row in labels]),
        pad([torch.tensor(row) for row in words], batch_first=True, padding_value=-1),
    )


def describe(name: str, batch: Batch) -> None:
    """Print how sure the logits are."""
    rows = torch.cat([batch.logits[:length, n] for n, length in enumerate(batch.frames.tolist())])
    best, rest = rows[:, 0], rows[:, 1:]
    above = best - rest.amax(1)
    said, silent = above[above < 0], above[above >= 0]
    first, second = rows[above < 0].topk(2, 1).values.T
    print(f"{name}: {tuple(batch.logits.shape)}; frames for each token {len(said) / int(batch.tokens.sum()):.2f}")
    for what, x in (
        ("blank above the rest, where it is the best", silent),
        ("a token above the rest, where it is", first - second),
        ("standard deviation of the rest in a frame", rest[above >= 0].std(1)),
    ):
        shown = "  ".join(f"{q:5.1f}" for q in x.quantile(torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])).tolist())
        print(f"  {what:44s} {shown}   (5, 25, 50, 75, 95%)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("manifest", type=Path, metavar="MANIFEST")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="features that training computed")
    parser.add_argument("--size", type=int, default=8, help="utterances")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long they are, about")
    options = parser.parse_args()
    torch.set_num_threads(1)
    batch = collected(options.run, options.manifest, options.cache, options.size, options.seconds)
    content = io.BytesIO()
    torch.save(batch._asdict(), content)
    write_atomically(options.output, content.getvalue())
    describe("the model", batch)
    frames, size, outputs = batch.logits.shape
    tokens = int(batch.tokens.float().mean())
    describe("drawn", drawn(frames, tokens, outputs, size, torch.Generator().manual_seed(0)))


if __name__ == "__main__":
    main()
