"""How much faster than real time is decoding, on one core? `python benchmarks/decoding.py`

Random logits as sharp as a trained model's: each frame has one label well above the rest, three in four of them blank,
and one frame in ten is in doubt between two. Twenty frames a second: pretrained features after subsampling by 2.
"""

import time

import torch

from wildctc.recognizer.decoding import best_hypothesis

FRAME_RATE = 20
SECONDS = 12.0
UTTERANCES = 20


class Letters:
    def decode(self, ids):
        return "".join(map(chr, ids))


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
    print("labels  search        ms/utterance  real-time factor  × real time")
    for labels in (40, 200):
        logits = trained_looking_logits(UTTERANCES, frames, labels)
        for beam in (1, 10, 50):
            best_hypothesis(logits[0], Letters(), beam)  # imports and warm caches are not decoding
            start = time.perf_counter()
            for utterance in logits:
                best_hypothesis(utterance, Letters(), beam)
            seconds = (time.perf_counter() - start) / UTTERANCES
            name = "greedy" if beam == 1 else f"beam {beam}"
            factor = seconds / SECONDS
            print(f"{labels:6d}  {name:12s}  {1000 * seconds:12.2f}  {factor:16.5f}  {1 / factor:11,.0f}")


if __name__ == "__main__":
    main()
