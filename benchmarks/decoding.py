"""How much faster than real time is decoding, on one core, without and with a language model?

    python benchmarks/decoding.py

Random logits as sharp as a trained model's: each frame has one label well above the rest, three in four of them blank,
and one frame in ten is in doubt between two. Twenty frames a second: pretrained features after subsampling by 2. The
language model is a 2-gram of the words that greedy decoding finds, so that some words are known and some are not.
"""

import tempfile
import time
from collections import Counter
from itertools import pairwise
from math import log10
from pathlib import Path

import torch

from wildctc.recognizer.decoding import best_hypothesis
from wildctc.recognizer.language_model import LanguageModel, Rescorer, find_texts

FRAME_RATE = 20
SECONDS = 12.0
UTTERANCES = 20


class Letters:
    """Every eighth label is a space."""

    def decode(self, ids):
        return " ".join("".join(" " if i % 8 == 0 else chr(0x4E00 + i) for i in ids).split())


def bigrams(texts: list[str], folder: Path) -> LanguageModel:
    """A 2-gram of half of the texts, with the shares of its words and pairs (and rough weights for backing off)."""
    sentences = [["<s>", *text.split(), "</s>"] for text in texts[::2]]
    words, pairs = Counter(w for s in sentences for w in s), Counter(p for s in sentences for p in pairwise(s))
    lines = ["\\data\\", f"ngram 1={len(words) + 1}", f"ngram 2={len(pairs)}", "", "\\1-grams:", "-4\t<unk>"]
    lines += [f"{log10(n / words.total()):.4f}\t{word}\t-0.5" for word, n in words.items()]
    lines += [
        "",
        "\\2-grams:",
        *(f"{log10(n / words[a]):.4f}\t{a} {b}" for (a, b), n in pairs.items()),
        "",
        "\\end\\",
        "",
    ]
    (folder / "lm.arpa").write_text("\n".join(lines))
    return LanguageModel(folder / "lm.arpa")


def trained_looking_logits(utterances: int, frames: int, labels: int, seed: int = 0) -> torch.Tensor:
    """(N, T, C)"""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(utterances, frames, labels, generator=generator)
    label = torch.randint(1, labels, (utterances, frames, 1), generator=generator)
    blank = torch.rand(label.shape, generator=generator) < 0.75
    logits.scatter_(2, label.masked_fill(blank, 0), 10.0)
    doubt = torch.rand(label.shape, generator=generator) < 0.1
    rival = torch.randint(1, labels, label.shape, generator=generator)
    return logits.scatter(2, rival, torch.where(doubt, 9.5, logits.gather(2, rival)))


def main() -> None:
    torch.set_num_threads(1)
    frames = int(SECONDS * FRAME_RATE)
    print(f"{UTTERANCES} utterances of {SECONDS:.0f} s at {FRAME_RATE} frames/s, one thread\n")
    print("labels  search           ms/utterance  real-time factor  × real time")
    for labels in (40, 200):
        logits = trained_looking_logits(UTTERANCES, frames, labels)
        texts = [best_hypothesis(utterance, Letters(), 1).text for utterance in logits]
        with tempfile.TemporaryDirectory() as folder:
            rescorer = Rescorer(bigrams(texts, Path(folder)), lm_weight=0.8, word_score=1.0)
        for beam, chooses in ((1, None), (10, None), (50, None), (10, rescorer), (50, rescorer)):
            find_texts(logits[0], Letters(), beam, chooses)  # imports and warm caches are not decoding
            start = time.process_time()
            for utterance in logits:
                find_texts(utterance, Letters(), beam, chooses)
            seconds = (time.process_time() - start) / UTTERANCES
            name = ("greedy" if beam == 1 else f"beam {beam}") + (", 2-gram" if chooses else "")
            factor = seconds / SECONDS
            print(f"{labels:6d}  {name:15s}  {1000 * seconds:12.2f}  {factor:16.5f}  {1 / factor:11,.0f}")


if __name__ == "__main__":
    main()
