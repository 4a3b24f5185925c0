"""Mean and variance of features."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wildctc.errors import WildCTCError


@dataclass(frozen=True)
class FeatureStats:
    """Mean and standard deviation of each dimension over the training data.

    >>> stats = FeatureStats.compute([np.array([[0.0, 1.0], [2.0, 1.0]])])
    >>> stats.normalize(np.array([[2.0, 1.0]], np.float32))
    array([[1., 0.]], dtype=float32)

    Attributes:
        mean: float32, of the shape of a frame.
        std: The same.
    """

    mean: np.ndarray
    std: np.ndarray

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and (self.std > 0).all()):
            raise WildCTCError(
                "the mean and deviation of the features are not finite and positive: a front end that gives such "
                "numbers, or a damaged file"
            )

    @classmethod
    def compute(cls, features: Iterable[np.ndarray]) -> "FeatureStats":
        """Compute them from features.

        Args:
            features: (frames, *shape of a frame) for each utterance.

        Returns:
            The statistics.
        """
        frames, total, squares = 0, np.zeros(1), np.zeros(1)
        for x in features:
            x = x.astype(np.float64)
            frames, total, squares = frames + len(x), total + x.sum(0), squares + np.square(x).sum(0)
        return cls.from_sums(frames, total, squares)

    @classmethod
    def from_sums(cls, frames: int, total: np.ndarray, squares: np.ndarray) -> "FeatureStats":
        """Compute them from sums.

        Args:
            frames: The number of frames.
            total: float64, the sum of the features.
            squares: float64, the sum of their squares.

        Returns:
            The statistics.
        """
        if frames == 0:
            raise WildCTCError("no features to compute their mean and variance from")
        mean = total / frames
        # A dimension that never changes carries nothing; the floor keeps it at 0 instead of blowing up rounding errors.
        with np.errstate(invalid="ignore"):  # it is refused below
            std = np.sqrt(np.maximum(squares / frames - mean**2, 1e-8))
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def normalize(self, x: np.ndarray) -> np.ndarray:
        """Normalise features.

        Args:
            x: (frames, *shape of a frame).

        Returns:
            The same with mean 0 and variance 1 in each dimension.
        """
        return (x - self.mean) / self.std
