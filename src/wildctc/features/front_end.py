"""What a front end is, and the one that a recipe names."""

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wildctc.errors import WildCTCError
from wildctc.features.fbank import Fbank
from wildctc.features.hf_front_end import HuggingFaceFrontEnd
from wildctc.features.onnx import MOONSHINE, OnnxFrontEnd
from wildctc.features.onnx_whisper import OnnxWhisperFrontEnd, takes_log_mel

OURS = ("fbank", *MOONSHINE)  # no file or download that somebody else could name
_KNOWN = ("name", "num_bins", "layers", "threads")


class FrontEnd(Protocol):
    """Wave in, frames out."""

    @property
    def name(self) -> str:
        """Identifies everything that decides the output; cache keys contain it."""
        ...

    @property
    def digest(self) -> str:
        """Of its weights, wherever they lie; empty if it has none."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a frame: (dim,), or (layers, dim), of which the recogniser learns a weighted sum."""
        ...

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        ...

    @property
    def sampling_rate(self) -> int:
        """Of the wave."""
        ...

    def frames(self, samples: int) -> int:
        """Count the frames of a wave, without running a model.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames.
        """
        ...

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Compute features.

        Args:
            wave: (samples,) float32.

        Returns:
            (frames, *shape) float32; no frames at all if the wave is too short for one.
        """
        ...


class NotFinite(WildCTCError):
    """Features that no training survives."""


def extract(front_end: FrontEnd, wave: np.ndarray) -> np.ndarray:
    """Compute features and check them.

    Args:
        front_end: What computes them.
        wave: (samples,) float32.

    Returns:
        (frames, *shape) float32.

    Raises:
        NotFinite: A number is NaN or infinite.
    """
    features = front_end.extract(wave)
    if not np.isfinite(features).all():
        peak = np.abs(wave).max()
        raise NotFinite(f"features that are not finite: its samples reach {peak:.3g}, where audio stays within 1")
    return features


def make_front_end(config: dict[str, Any]) -> FrontEnd:
    """Make the front end that a recipe names.

    >>> make_front_end({"name": "fbank", "num_bins": 40}).shape
    (40,)

    Args:
        config: `name` (fbank, moonshine-tiny, moonshine-base, an .onnx or .ort file, hf:NAME for a model of the Hugging
            Face hub, or the folder of one), `num_bins` (fbank only), `layers` (Hugging Face only), `threads` (ONNX
            only).

    Returns:
        The front end.
    """
    if unknown := config.keys() - set(_KNOWN):
        raise WildCTCError(f"front end: unknown setting {sorted(unknown)[0][:40]!r}; known: {', '.join(_KNOWN)}")
    name = str(config.get("name", "fbank"))
    if name == "fbank":
        return Fbank(config.get("num_bins", 80))
    if name in MOONSHINE or name.endswith((".onnx", ".ort")):
        whisper = name not in MOONSHINE and takes_log_mel(Path(name))
        return (OnnxWhisperFrontEnd if whisper else OnnxFrontEnd)(name, config.get("threads", 1))
    if name.startswith("hf:") or os.path.isdir(name):
        return HuggingFaceFrontEnd(name, config.get("layers", "weighted"))
    raise WildCTCError(
        f"no front end {name[:200]!r}: give {', '.join(OURS)}, an .onnx or .ort file, hf:NAME of a model on the "
        "Hugging Face hub, or a folder with such a model, which must exist"
    )


def with_absolute_path(config: dict[str, Any]) -> dict[str, Any]:
    """Make a front end's path absolute, so that it is found from any working directory.

    Args:
        config: What `make_front_end` takes.

    Returns:
        The same with an absolute path, if it names a path.
    """
    name = str(config.get("name", "fbank"))
    path = name.removeprefix("hf:")
    is_path = name not in OURS and os.path.exists(path)
    return config | {"name": os.path.abspath(path)} if is_path else dict(config)
