"""Log mel filterbank."""

from typing import Any

import numpy as np
import torch

from wildctc.errors import WildCTCError


class Fbank:
    """Log mel filterbank as in Kaldi (25 ms Povey windows every 10 ms, reflected at the ends), without dither.

    The numbers are those of lhotse's Fbank, whose import takes seconds.

    >>> Fbank().extract(np.zeros(16000, np.float32)).shape
    (100, 80)

    Attributes:
        name: With the number of bins and the sampling rate.
        digest: Empty: there are no weights.
        shape: (num_bins,), of a frame.
        dim: Numbers in a frame.
        sampling_rate: Of the wave.
        frame_rate: Frames a second, 100.
    """

    frame_rate = 100.0
    digest = ""

    def __init__(self, num_bins: int = 80, sampling_rate: int = 16000) -> None:
        """Make the filters.

        Args:
            num_bins: Filters.
            sampling_rate: Of the wave.
        """
        self.dim, self.sampling_rate = num_bins, sampling_rate
        self.shape = (num_bins,)
        self.name = f"fbank{num_bins}-{sampling_rate}"
        self._window, self._shift = int(0.025 * sampling_rate), sampling_rate // 100
        self._povey = torch.hann_window(self._window, periodic=False).pow(0.85)
        self._fft = 2 ** (self._window - 1).bit_length()
        points = self._fft // 2 + 1
        if not isinstance(num_bins, int) or isinstance(num_bins, bool) or not 1 <= num_bins <= points:
            raise WildCTCError(
                f"num_bins must be a whole number from 1 to {points}, the points of the spectrum, "
                f"got {str(num_bins)[:40]}"
            )
        self._mel = _mel_filters(num_bins, self._fft, sampling_rate)

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames.
        """
        return (samples + self._shift // 2) // self._shift if samples >= self._window else 0

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Compute features.

        Args:
            wave: (samples,) float32.

        Returns:
            (round(samples / shift), num_bins) float32; no frames if the wave is shorter than a window.
        """
        if len(wave) < self._window:
            return np.empty((0, self.dim), np.float32)
        return self.compute(torch.from_numpy(wave)).numpy()

    def compute(self, wave: torch.Tensor) -> torch.Tensor:
        """Compute features in torch, which `wildctc export` exports.

        Args:
            wave: (samples,) float32, a window or longer.

        Returns:
            (round(samples / shift), num_bins) float32.
        """
        x = self._frames(wave)
        x = x - x.mean(1, keepdim=True)
        x = x - 0.97 * torch.cat((x[:, :1], x[:, :-1]), 1)
        power = torch.fft.rfft(x * self._povey, self._fft).abs().square()
        return (power @ self._mel).clamp_min(torch.finfo(torch.float32).eps).log()

    def _frames(self, wave: torch.Tensor) -> torch.Tensor:
        samples = wave.size(0)  # len(wave) would be a constant in an exported model
        frames = self.frames(samples)
        left = (self._window - self._shift) // 2
        right = (frames - 1) * self._shift + self._window - samples - left
        padded = torch.cat((wave[:left].flip(0), wave, wave[samples - max(right, 0) :].flip(0)))
        return padded.unfold(0, self._window, self._shift)[:frames]


def _mel_filters(
    bins: int, fft: int, sampling_rate: int, low: float = 20.0, below_nyquist: float = 400.0
) -> torch.Tensor:
    """(fft // 2 + 1, bins) triangles, evenly spaced in mel and linear in mel, as Kaldi has them."""

    def mel(hertz: np.ndarray | float) -> Any:
        return 1127.0 * np.log1p(np.asarray(hertz) / 700.0)

    corners = np.linspace(mel(low), mel(sampling_rate / 2 - below_nyquist), bins + 2)
    left, centre, right = corners[:-2], corners[1:-1], corners[2:]
    points = mel(np.arange(fft // 2 + 1) * sampling_rate / fft)[:, None]
    filters = np.minimum((points - left) / (centre - left), (right - points) / (right - centre)).clip(min=0)
    filters[-1] = 0  # Kaldi leaves the Nyquist bin out
    return torch.from_numpy(filters).float()
