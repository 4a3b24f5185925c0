"""When a frame of logits was said."""

from __future__ import annotations


def time_in_audio(second: float, covered: float, duration: float) -> float:
    """Convert a time in the frames of logits to a time in the audio.

    Convolutions lose as much audio at the start as at the end, so the frames are in the middle of the audio.

    Args:
        second: Seconds from the start of the first frame.
        covered: Seconds that all frames cover: their number divided by the frame rate.
        duration: Seconds of audio.

    Returns:
        Seconds from the start of the audio, between 0 and `duration`.

    >>> [time_in_audio(second, 1.5, 2.0) for second in (0.0, 1.5)]
    [0.25, 1.75]
    """
    return min(max(0.0, (duration - covered) / 2 + second), duration)
