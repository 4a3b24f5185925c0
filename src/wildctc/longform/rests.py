"""Rests: frames that are put into the pauses of a recording, where text that was not read takes no time.

A word bypass covers at least one frame, and two of them need a blank between. So a paragraph that was not read would
take the frames of the words beside it. In a rest, blank and ★ are equally probable and nothing else is possible: what
was read passes through it at the price of blank, and a word that was not read pays the weight of its bypass, not a
frame of speech. A rest adds the same to the score of every path.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

BLANK = 0
PAUSE = 0.2  # seconds of blank that make a pause
_IN_A_ROW = 3  # full rests: text that was not read is longer than a sentence
_IMPOSSIBLE = -40.0  # logit of a token in a rest


def find_pauses(logits: Tensor, rate: float, shortest: float = PAUSE) -> list[tuple[int, int]]:
    """Find where a model writes nothing.

    Args:
        logits: (T, V).
        rate: Frames per second.
        shortest: The least seconds of a pause.

    Returns:
        The first frame of each pause, and the frame after its last.

    >>> find_pauses(torch.tensor([[0.0, 9], [9, 0], [9, 0], [0, 9], [9, 0]]), rate=1.0, shortest=2.0)
    [(1, 3)]
    """
    quiet = (logits.argmax(1) == BLANK).numpy().astype(np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], quiet, [0]))))
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(start, end) for start, end in pairs if end - start >= shortest * rate]


def add_rests(logits: Tensor, at: Sequence[int], words: Sequence[int]) -> tuple[Tensor, np.ndarray]:
    """Put rests between frames.

    Args:
        logits: (T, V).
        at: The frames before which a rest is put, ascending.
        words: How many words that were not read fit into each of these rests.

    Returns:
        (T', V + 1) logits, whose last column is ★ in a rest, and (T' + 1,) the frame that each of these stands for.
    """
    frames, outputs = logits.shape
    before = np.zeros(frames + 1, np.int64)  # frames of rests before each frame, and at the end
    np.add.at(before, np.asarray(at, np.int64), 2 * np.asarray(words, np.int64) + 1)
    origin = np.repeat(np.arange(frames + 1), before + 1)
    real = np.cumsum(before + 1) - 1
    found = torch.full((len(origin) - 1, outputs + 1), _IMPOSSIBLE)
    found[:, BLANK] = found[:, outputs] = 0.0
    there = torch.from_numpy(real[:-1])
    found[there, :outputs] = logits
    found[there, outputs] = -torch.inf
    return found, origin


def find_crowded(bypasses: Sequence[int], at: Sequence[int], words: np.ndarray) -> np.ndarray:
    """Find rests that are too small: several in a row are full of words that were not read.

    Args:
        bypasses: The frames at which words that were not read begin, among those that `add_rests` returned.
        at: The frames before which there are rests.
        words: How many words fit into each of them.

    Returns:
        For each rest whether it is one of these, or beside them.

    >>> find_crowded([0, 2, 4, 8, 10, 12, 14, 20], at=[0, 2, 3, 9], words=np.full(4, 2)).tolist()
    [False, False, False, False]
    >>> find_crowded([0, 2, 7, 9, 13, 15], at=[0, 2, 3, 9, 10, 11], words=np.full(6, 2)).tolist()
    [True, True, True, True, True, False]
    """
    sizes = 2 * words + 1
    begins = np.asarray(at) + np.cumsum(sizes) - sizes
    starts = np.asarray(bypasses, np.int64)
    mine = np.searchsorted(begins, starts, side="right") - 1
    mine = mine[starts < begins[mine] + sizes[mine]]
    full = np.bincount(mine, minlength=len(words)) >= words
    row = np.convolve(full, np.ones(_IN_A_ROW))[_IN_A_ROW - 1 :] == _IN_A_ROW  # that begin here
    return np.asarray(np.convolve(row, np.ones(_IN_A_ROW + 4))[2:][: len(words)] > 0)
