"""Random batches for the engine's tests."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wildctc import Wildcards

FAMILIES = ("bypass", "self_loop", "word_bypass")
KINDS: dict[str, tuple[tuple[str, ...], str]] = {  # which arcs there are, and where self-loops stand
    "CTC": ((), "token"),
    "W": (("self_loop", "word_bypass"), "word"),
    "T": (("bypass", "self_loop"), "token"),
    "TW": (FAMILIES, "token"),
    "TW, loops at words": (FAMILIES, "word"),
    "BTC": (("word_bypass",), "word"),
    "bypass only": (("bypass",), "token"),
    "self-loop only": (("self_loop",), "token"),
}
PADDING = (0, -1, -100)


@dataclass
class Batch:
    """The arguments of the public functions."""

    logits: Tensor  # (T, N, C)
    targets: Tensor  # (N, S)
    input_lengths: list[int]
    target_lengths: list[int]
    blank: int
    wildcards: Wildcards
    words: Tensor  # (N, S)

    def with_logits(self, logits: Tensor) -> "Batch":
        return replace(self, logits=logits)

    def arguments(self) -> dict[str, Any]:
        needs_words = self.wildcards.word_bypass is not None or self.wildcards.self_loop_at == "word"
        return {**vars(self), "words": self.words if needs_words else None}

    def labels_of(self, n: int) -> list[int]:
        return self.targets[n, : self.target_lengths[n]].tolist()

    def words_of(self, n: int) -> list[int]:
        return self.words[n, : self.target_lengths[n]].tolist()

    def weights_of(self, n: int) -> dict[str, np.ndarray]:
        """family → weight of each arc of utterance n, for the families that are present"""
        widths = (self.target_lengths[n], self.target_lengths[n] + 1, max(self.words_of(n), default=-1) + 1)
        found = {}
        for family, width in zip(FAMILIES, widths, strict=True):
            weight = getattr(self.wildcards, family)
            if isinstance(weight, Tensor):
                found[family] = weight.detach().double()[n, :width].numpy()
            elif weight is not None:
                found[family] = np.full(width, float(weight))
        return found


def draw_words(rng: np.random.Generator, length: int) -> list[int]:
    """Words of one to a few tokens, some tokens in none."""
    words: list[int] = []
    next_word = 0
    for u in range(length):
        if rng.random() < 0.2:
            words.append(-1)
        elif u and words[-1] >= 0 and rng.random() < 0.5:
            words.append(words[-1])
        else:
            words.append(next_word)
            next_word += 1
    return words


def draw_weights(rng: np.random.Generator, shape: tuple[int, int], absent: float = 0.15) -> Tensor:
    """Mostly negative, some positive, some −inf."""
    weights = rng.normal(-1.0, 2.0, shape)
    weights[rng.random(shape) < absent] = -np.inf
    return torch.from_numpy(weights)


def draw_batch(
    rng: np.random.Generator,
    kind: str,
    *,
    size: int,
    frames: int,
    tokens: int,
    outputs: int,
    per_arc: bool = True,
    sharpness: float = 2.0,
    full_lengths: bool = False,
) -> Batch:
    """float64 logits (frames, size, outputs); lengths from 0 to the largest unless full_lengths."""
    families, loops = KINDS[kind]
    blank = int(rng.integers(outputs))
    logits = rng.normal(0.0, 1.0, (frames, size, outputs)) * sharpness
    input_lengths = [frames if full_lengths else int(rng.integers(frames + 1)) for _ in range(size)]
    target_lengths = [tokens if full_lengths else int(rng.integers(tokens + 1)) for _ in range(size)]
    targets = rng.choice(PADDING, (size, tokens))
    words = rng.choice(PADDING, (size, tokens))
    for n, length in enumerate(target_lengths):
        targets[n, :length] = rng.choice([v for v in range(outputs) if v != blank], length)
        words[n, :length] = draw_words(rng, length)
    num_words = max((words[n, :u].max(initial=-1) + 1 for n, u in enumerate(target_lengths)), default=0)
    widths = dict(zip(FAMILIES, (tokens, tokens + 1, int(num_words)), strict=True))
    weights = {
        family: draw_weights(rng, (size, widths[family])) if per_arc else float(rng.normal(-1.0, 2.0))
        for family in families
    }
    return Batch(
        torch.from_numpy(logits),
        torch.from_numpy(targets),
        input_lengths,
        target_lengths,
        blank,
        Wildcards(**weights, self_loop_at=loops),
        torch.from_numpy(words),
    )
