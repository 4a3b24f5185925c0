"""Where does the time of a probe go? `python benchmarks/probe.py`

A model of the iban recipe's size on utterances as long as Iban's (9.5 s, 138 characters), one thread. Its weights are
random, so the lattice gets logits as sharp as a trained model's instead, with one error in ten characters. Parts:

  front end  the frozen model that makes the features (only if moonshine-voice is installed); not needed when cached
  encoder    features to logits
  lattice    two forward-backwards and a best path
  text       what was heard, laid beside the transcript
  file       the row of the probe file
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from wildctc.encoders.encoder import make_encoder
from wildctc.errors import WildCTCError
from wildctc.features.front_end import make_front_end
from wildctc.probe import graphs as probe
from wildctc.probe.records import as_row
from wildctc.recognizer.partials import row_line
from wildctc.training.build import encoder_settings
from wildctc.training.config import load_recipe

SECONDS, CHARACTERS, BATCH, LABELS, DIM, ROUNDS = 9.5, 138, 12, 28, 288, 9
FRAME_RATE = 41.7
TOKENS = ["<blank>", " ", *"abcdefghijklmnopqrstuvwxyz"]


def sharp_logits(targets: torch.Tensor, frames: int, generator: torch.Generator) -> torch.Tensor:
    """(frames, N, LABELS): each target's characters at even places, one in ten of them another, blank elsewhere."""
    logits = torch.randn(frames, len(targets), LABELS, generator=generator)
    logits[:, :, 0] += 10
    at = torch.linspace(0, frames - 1, CHARACTERS).long()
    wrong = torch.rand(targets.shape, generator=generator) < 0.1
    heard = torch.where(wrong, torch.randint(1, LABELS, targets.shape, generator=generator), targets)
    for n, row in enumerate(heard):
        logits[at, n, 0] -= 10
        logits[at, n, row] += 10
    return logits


def timed(function: Callable[[], Any]) -> float:
    """Milliseconds an utterance, the median of several rounds."""
    function()
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        rounds.append(time.perf_counter() - start)
    return 1000 * float(np.median(rounds)) / BATCH


def measure() -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    config = load_recipe("iban")
    encoder = make_encoder(input_dim=DIM, **encoder_settings(config)).eval()
    output = torch.nn.Linear(encoder.output_dim, LABELS)
    features = torch.randn(BATCH, int(SECONDS * FRAME_RATE), DIM, generator=generator)
    lengths = torch.full((BATCH,), features.shape[1])
    targets = torch.randint(1, LABELS, (BATCH, CHARACTERS), generator=generator)
    logits = sharp_logits(targets, int(encoder.output_lengths(lengths)[0]), generator)
    given = logits, targets, [len(logits)] * BATCH, [CHARACTERS] * BATCH
    words = torch.tensor([probe.Spelling(TOKENS).words(row) for row in targets.tolist()])
    spent: dict[str, float] = {}
    with torch.inference_mode():
        try:
            front_end, wave = make_front_end({"name": "moonshine-tiny"}), np.zeros(int(16000 * SECONDS), np.float32)
            spent["front end"] = timed(lambda: front_end.extract(wave)) * BATCH
        except WildCTCError:
            pass
        spent["encoder"] = timed(lambda: output(encoder(features, lengths)[0]))
        whole = timed(lambda: probe.probe_logits(*given, tokens=TOKENS, frame_rate=FRAME_RATE / 2))
        spent["lattice"] = timed(lambda: probe.run_graphs(*given, 0, words, 0.0))
        spent["text"] = whole - spent["lattice"]
        found = probe.probe_logits(*given, tokens=TOKENS, frame_rate=FRAME_RATE / 2)
        spent["file"] = timed(lambda: [row_line(as_row(utterance)) for utterance in found if utterance])
    return spent


def main() -> None:
    torch.set_num_threads(1)
    spent = measure()
    cached = {name: value for name, value in spent.items() if name != "front end"}
    print(f"{SECONDS} s, {CHARACTERS} characters, {LABELS} outputs, batches of {BATCH}, one thread\n")
    print("part       ms/utterance  share  share with cached features")
    for name, value in spent.items():
        share = f"{value / sum(cached.values()):26.1%}" if name in cached else ""
        print(f"{name:9s}  {value:12.2f}  {value / sum(spent.values()):5.1%}  {share}".rstrip())


if __name__ == "__main__":
    main()
