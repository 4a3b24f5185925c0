"""Cut a long recording into pieces, at pauses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

LONGEST = 20.0  # seconds: about what recognisers are trained on, and attention grows with the square
_SHORTEST = 5.0  # seconds of a piece, except the last; less would split sentences
_PAUSE = 20  # steps of 10 ms over which loudness is averaged
_NEAR = 10**0.3  # 3 dB: a place that is louder than the quietest one by no more than this is quiet too


def cut_at_pauses(blocks: Iterable[np.ndarray], rate: int, longest: float = LONGEST) -> Iterator[np.ndarray]:
    """Cut audio into pieces, at pauses. Audio that is short enough stays whole.

    Args:
        blocks: The samples in order, as arrays (n,) of any length.
        rate: Sampling rate in Hz.
        longest: The most seconds that a piece may have.

    Yields:
        The samples of each piece, (n,). The last piece has at least a second, if the audio has.

    >>> wave = np.ones(90, np.float32)
    >>> [len(piece) for piece in cut_at_pauses([wave, wave], rate=100, longest=60.0)]
    [180]
    """
    limit = int(longest * rate)
    rest = np.empty(0, np.float32)

    def cut() -> np.ndarray:
        nonlocal rest
        end = find_pause(rest[: min(limit, len(rest) - rate)], rate)  # the last piece gets at least a second
        piece, rest = rest[:end], rest[end:]
        return piece

    for block in blocks:
        rest = np.concatenate((rest, block))
        while len(rest) > limit + rate:
            yield cut()
    while len(rest) > limit:
        yield cut()
    yield rest


def find_pause(wave: np.ndarray, rate: int) -> int:
    """Find the longest quiet stretch of a wave, not within its first 5 seconds.

    Args:
        wave: Samples, (n,).
        rate: Sampling rate in Hz.

    Returns:
        The sample in the middle of the stretch.
    """
    step = max(1, rate // 100)
    steps = len(wave) // step
    power = np.square((wave - wave.mean())[: steps * step].reshape(steps, step), dtype=np.float32).mean(1)
    loudness = np.convolve(power, np.full(_PAUSE, 1 / _PAUSE, np.float32), "valid")  # of steps i … i + _PAUSE
    first = min(int(_SHORTEST * 100), len(loudness) // 2)
    quiet = loudness[first:] <= loudness[first:].min() * _NEAR + 1e-10
    edges = np.flatnonzero(np.diff(np.concatenate(([0], quiet.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    middle = (int(starts[longest]) + int(ends[longest]) - 1) // 2
    return (first + middle + _PAUSE // 2) * step
