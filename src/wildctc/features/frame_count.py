"""How many frames a wave gives, without running the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_CHECKED = (0.3, 0.77, 1.3, 2.9, 7.1)  # seconds around which a rule that was found is compared with the model


@dataclass(frozen=True)
class FrameRule:
    """(samples − kernel) // stride + 1 frames, and none below `least` samples.

    Every chain of convolutions follows such a rule, with or without padding.

    >>> rule = FrameRule.of_convolutions((127, 64), (7, 3), (3, 2))
    >>> rule, rule.frames(16000)
    (FrameRule(kernel=895, stride=384, least=895), 40)

    Attributes:
        kernel: Samples that the first frame covers; fewer, if the wave is padded at its ends.
        stride: Samples from one frame to the next.
        least: The least number of samples that gives a frame.
    """

    kernel: int
    stride: int
    least: int

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames.
        """
        return 0 if samples < self.least else (samples - self.kernel) // self.stride + 1

    @classmethod
    def of_convolutions(cls, *layers: tuple[int, int]) -> FrameRule:
        """Make the rule of convolutions without padding.

        Args:
            *layers: The width and the stride of each, the first one first.

        Returns:
            The rule of all of them, one after another.
        """
        kernel = stride = 1
        for width, step in layers:
            kernel += (width - 1) * stride
            stride *= step
        return cls(kernel, stride, kernel)

    @classmethod
    def find(cls, count: Callable[[int], int], sampling_rate: int) -> FrameRule | None:
        """Find the rule of a model that can only be tried.

        The rule is found by bisection on waves of up to 2 s, and then compared with the model at other lengths.

        Args:
            count: samples → frames, by running the model.
            sampling_rate: Samples a second.

        Returns:
            The rule; None if the model does not follow one.
        """
        few, many = count(sampling_rate), count(2 * sampling_rate)
        if not 0 < few < many:
            return None
        first, last = (_least_samples(count, frames, 2 * sampling_rate) for frames in (few, many))
        stride, rest = divmod(last - first, many - few)
        if rest or stride == 0:
            return None
        rule = cls(first - (few - 1) * stride, stride, _least_samples(count, 1, sampling_rate))
        steps = [round(seconds * sampling_rate) // stride for seconds in _CHECKED]
        sizes = [rule.kernel + step * stride - short for step in steps for short in (0, 1)]
        return rule if all(count(samples) == rule.frames(samples) for samples in sizes if samples > 0) else None


def _least_samples(count: Callable[[int], int], frames: int, most: int) -> int:
    """The least number of samples, up to `most`, that gives so many frames."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if count(middle) >= frames else (middle, high)
    return high
