"""Change the sampling rate of a wave."""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch


def resample(wave: np.ndarray, source: float, target: float) -> np.ndarray:
    """Resample a wave, band-limited. The result depends on the ratio of the rates only.

    Args:
        wave: Samples, (n,) float32.
        source: The rate of `wave`, in Hz or any other unit. To make a wave 1.1 times as fast, resample from 1.1 to 1.
        target: The rate of the result, in the same unit.

    Returns:
        Samples, (⌈n · target / source⌉,) float32; `wave` itself if the rates are the same.

    >>> len(resample(np.zeros(441, np.float32), 44100, 16000))
    160
    """
    ratio = _ratio(source, target)
    if ratio == 1:
        return wave
    kernels, width = _sinc_kernels(ratio.numerator, ratio.denominator)
    padded = torch.nn.functional.pad(torch.from_numpy(wave), (width, width + ratio.numerator))
    phases = torch.nn.functional.conv1d(padded[None, None], kernels, stride=ratio.numerator)  # (1, denominator, blocks)
    length = math.ceil(len(wave) / ratio)
    return phases[0].T.reshape(-1)[:length].contiguous().numpy()


def resampled_length(samples: int, source: float, target: float) -> int:
    """Count the samples that `resample` returns.

    Args:
        samples: The length of the wave.
        source: The rate of the wave.
        target: The rate of the result.

    Returns:
        The number of samples.

    >>> resampled_length(441, 44100, 16000)
    160
    """
    return math.ceil(samples / _ratio(source, target))


def _ratio(source: float, target: float) -> Fraction:
    return Fraction(source / target).limit_denominator(1000)  # keeps the filters few; the error is below 0.1%


@lru_cache(maxsize=8)
def _sinc_kernels(source: int, target: int, zeros: int = 6, rolloff: float = 0.99) -> tuple[torch.Tensor, int]:
    """Filters (target, 1, taps), a windowed sinc for each output phase, and the samples that they need at each end.

    The window is a Hann window; the cut-off is just below the lower of the two Nyquist frequencies.
    """
    cutoff = min(source, target) * rolloff
    width = math.ceil(zeros * source / cutoff)
    times = torch.arange(-width, width + source, dtype=torch.float64) / source
    times = times - torch.arange(target, dtype=torch.float64)[:, None] / target
    times = (times * cutoff).clamp(-zeros, zeros)
    kernels = torch.sinc(times) * torch.cos(times * math.pi / zeros / 2) ** 2 * cutoff / source
    return kernels.float()[:, None], width
