"""The log-mel spectrogram that Whisper hears."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

SAMPLING_RATE = 16000
WINDOW, HOP = 400, 160  # samples
_STEP = 2 * HOP  # samples from one position of the encoder to the next: its second convolution has a stride of 2
POSITION_RATE = SAMPLING_RATE / _STEP
_POSITIONS = 1500  # of a Whisper encoder: 30 s


def count_positions(samples: int) -> int:
    """Count the positions that a wave takes in the encoder, 50 a second.

    >>> count_positions(399), count_positions(400), count_positions(16000), count_positions(16001)
    (0, 2, 50, 51)

    Args:
        samples: The length of the wave.

    Returns:
        The number of positions; 0 for a wave that is shorter than a window.
    """
    return 0 if samples < WINDOW else -(-samples // _STEP)


def pieces(wave: np.ndarray, most: int = _POSITIONS) -> Iterator[np.ndarray]:
    """Split a wave that is longer than the encoder takes into pieces of nearly equal length.

    Args:
        wave: (samples,).
        most: Positions that the encoder takes.

    Yields:
        The pieces, (samples,) each. Together they have as many positions as the wave.
    """
    positions = count_positions(len(wave))
    number = -(-positions // most)
    length = -(-positions // number) * _STEP if number else 1
    for begin in range(0, len(wave) if number else 0, length):
        yield wave[begin : begin + length]


class LogMel:
    """Whisper's log-mel spectrogram, of the wave alone: without the silence that Whisper pads it with to 30 s.

    The numbers are those of the beginning of the padded spectrogram.

    >>> LogMel()(np.zeros(16000, np.float32)).shape
    torch.Size([80, 100])
    """

    def __init__(self, mels: int = 80) -> None:
        """Make the filters.

        Args:
            mels: Their number: 80, or 128 in the latest large models.
        """
        self._filters = _slaney_filters(mels)
        self._hann = torch.hann_window(WINDOW)

    def __call__(self, wave: np.ndarray) -> Tensor:
        """Compute the spectrogram.

        Args:
            wave: (samples,) float32 at 16 kHz, at least one.

        Returns:
            (mels, frames) float32, two frames for each position of the encoder.
        """
        frames = 2 * -(-len(wave) // _STEP)
        behind = torch.zeros((frames - 1) * HOP + WINDOW - WINDOW // 2 - len(wave))
        x = torch.cat((torch.from_numpy(wave), behind))
        x = torch.cat((x[1 : WINDOW // 2 + 1].flip(0), x))  # reflected at the beginning, as in Whisper
        power = torch.fft.rfft(x.unfold(0, WINDOW, HOP) * self._hann).abs().square()
        log = (power @ self._filters).clamp_min(1e-10).log10()
        return ((torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0).T.contiguous()


def _slaney_filters(mels: int) -> Tensor:
    """(WINDOW // 2 + 1, mels) triangles of equal area, from 0 to 8000 Hz: linear below 1000 Hz, logarithmic above."""
    step = np.log(6.4) / 27
    top = 15 + np.log(SAMPLING_RATE / 2 / 1000) / step
    mel = np.linspace(0, top, mels + 2)
    hertz = np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(step * (mel - 15)))
    left, centre, right = hertz[:-2], hertz[1:-1], hertz[2:]
    points = np.linspace(0, SAMPLING_RATE / 2, WINDOW // 2 + 1)[:, None]
    filters = np.minimum((points - left) / (centre - left), (right - points) / (right - centre)).clip(min=0)
    return torch.from_numpy(filters * 2 / (right - left)).float()
