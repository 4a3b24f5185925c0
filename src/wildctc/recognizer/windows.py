"""The logits of a recording of any length, from overlapping windows.

The encoder sees one window at a time, so its memory does not grow with the recording. Windows begin on the grid of the
logits' frames. Two neighbours are joined in the middle of their overlap, where neither is near its edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from wildctc.audio.recordings import Recording
from wildctc.audio.resampling import resample
from wildctc.audio.sound_files import warn_of_resampling
from wildctc.errors import WildCTCError
from wildctc.features.front_end import FrontEnd, NotFinite, extract
from wildctc.progress import progress

WINDOW = 20.0  # seconds: about what recognisers are trained on
OVERLAP = 5.0  # seconds that two neighbours share; half of it is the least context of a frame
_BATCH = 6  # windows that go through the encoder at once
_BAR = "{desc}: {n:.0f} of {total:.0f} s [{elapsed}<{remaining}]"


class WindowModel(Protocol):
    """What the windows need of a model: a `Recognizer`, or a Hugging Face `Checkpoint`."""

    @property
    def front_end(self) -> FrontEnd:
        """Converts audio to features."""
        ...

    @property
    def frame_rate(self) -> float:
        """Frames of logits per second."""
        ...

    def batch_logits(self, features: Sequence[np.ndarray]) -> list[Tensor]:
        """Compute the logits of a batch.

        Args:
            features: (T, F) of each window.

        Returns:
            (T', V) of each window.
        """
        ...


@dataclass(frozen=True, eq=False)
class LongLogits:
    """The logits of a recording.

    Attributes:
        logits: (T, V), float32 on the CPU.
        rate: Frames per second.
        first: The second at which frame 0 starts.
        duration: Seconds of audio.
    """

    logits: Tensor
    rate: float
    first: float
    duration: float

    def time(self, frame: float) -> float:
        """Find when a frame starts.

        Args:
            frame: Its number; T is the end of the last one.

        Returns:
            Seconds from the start of the recording, to the millisecond.
        """
        return round(min(max(0.0, self.first + frame / self.rate), self.duration), 3)


class _Window(NamedTuple):
    """A window that begins at a frame of the whole recording, of which frames keep:until are used."""

    begin: int
    keep: int
    until: int | None


def long_logits(model: WindowModel, sound: Recording, window: float = WINDOW, overlap: float = OVERLAP) -> LongLogits:
    """Compute the logits of a recording, window by window.

    Args:
        model: The model.
        sound: The recording. If it is no longer than a window, it goes through the encoder whole.
        window: Seconds of a window.
        overlap: Seconds that neighbouring windows share.

    Returns:
        The logits, and the times of their frames.

    Raises:
        WildCTCError: The audio or the model's outputs are not numbers.
    """
    if not 0 < overlap < window:
        raise WildCTCError(f"windows of {window:g} s cannot overlap by {overlap:g} s")
    rate = model.frame_rate
    plan = _plan(sound.duration, rate, window, overlap)
    parts: list[Tensor] = []
    first = 0.0
    waves = _waves(sound, model.front_end.sampling_rate, [w.begin / rate for w in plan], window)
    with progress(total=sound.duration, desc=Path(sound.name).name, bar_format=_BAR, leave=False) as bar:
        for some in _batched(list(plan), waves):
            found = _batch_logits(model, [wave for _, wave in some], sound.name)
            for (part, wave), logits in zip(some, found, strict=True):
                if not parts:  # convolutions lose as much at the start of a window as at its end
                    first = (len(wave) / model.front_end.sampling_rate - len(logits) / rate) / 2
                until = None if part.until is None else part.until - part.begin
                parts.append(logits[part.keep - part.begin : until].clone())
            bar.update(max(0.0, min(sound.duration, some[-1][0].begin / rate + window) - bar.n))
    return LongLogits(torch.cat(parts), rate, first, sound.duration)


def _plan(duration: float, rate: float, window: float, overlap: float) -> list[_Window]:
    """The windows of a recording: all are as long as the first, the last may be shorter by a part of a frame."""
    length, step = round(window * rate), round((window - overlap) * rate)
    last = max(0, int(np.ceil((duration - window) * rate - 1e-6)))
    begins = [*range(0, last, max(1, step)), last]
    if len(begins) > 1 and begins[-1] == begins[-2]:
        begins.pop()
    joins = [(before + length + after) // 2 for before, after in pairwise(begins)]
    return [_Window(*row) for row in zip(begins, [0, *joins], [*joins, None], strict=True)]


def _waves(sound: Recording, rate: int, begins: Sequence[float], window: float) -> Iterator[np.ndarray]:
    """Read the samples of each window, in order; only what a window needs is kept."""
    warn_of_resampling(sound.rate, rate, sound.name)
    blocks = iter(sound.blocks)
    kept, at = np.empty(0, np.float32), 0  # samples, and the number of the first one
    for begin in begins:
        start, stop = round(begin * sound.rate), round((begin + window) * sound.rate)
        while at + len(kept) < stop and (block := next(blocks, None)) is not None:
            kept = np.concatenate((kept, block))
        kept, at = kept[max(0, start - at) :], max(at, start)
        yield resample(kept[: stop - at], sound.rate, rate)


def _batched(plan: list[_Window], waves: Iterator[np.ndarray]) -> Iterator[list[tuple[_Window, np.ndarray]]]:
    batch = []
    for pair in zip(plan, waves, strict=True):
        batch.append(pair)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _batch_logits(model: WindowModel, waves: list[np.ndarray], name: str) -> list[Tensor]:
    try:
        found = model.batch_logits([extract(model.front_end, wave) for wave in waves])
    except NotFinite as error:
        raise WildCTCError(f"{name}: {error}") from None
    if any(logits.isnan().any() for logits in found):
        raise WildCTCError(f"{name}: the model's outputs are not numbers (NaN): has training diverged?")
    return found
