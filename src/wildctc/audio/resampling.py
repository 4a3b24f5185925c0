"""Change the sampling rate of a wave."""

from fractions import Fraction

import numpy as np

from wildctc.errors import MissingExtra

RESAMPLER = "soxr-hq"  # in the keys of cached features: another method gives other features


def resample(wave: np.ndarray, source: float, target: float) -> np.ndarray:
    """Resample a wave, band-limited, by libsoxr. The result depends on the ratio of the rates only.

    Args:
        wave: Samples, (n,) float32.
        source: The rate of `wave`, in Hz or any other unit. To make a wave 1.1 times as fast, resample from 1.1 to 1.
        target: The rate of the result, in the same unit.

    Returns:
        Samples, (⌈n · target / source⌉,) float32; `wave` itself if the rates are the same.

    >>> len(resample(np.zeros(441, np.float32), 44100, 16000))
    160
    """
    ratio = Fraction(source / target).limit_denominator(1_000_000)
    if ratio == 1:
        return wave
    try:
        import soxr
    except ImportError:
        raise MissingExtra("soxr", "train") from None
    length = -(-len(wave) * ratio.denominator // ratio.numerator)
    # soxr rounds the length; silence after the end makes the result long enough for the last sample
    padded = np.concatenate([wave, np.zeros(2 * ratio.numerator // ratio.denominator + 2, np.float32)])
    found: np.ndarray = soxr.resample(padded, ratio.numerator, ratio.denominator, quality="HQ")[:length]
    return np.ascontiguousarray(found, np.float32)
