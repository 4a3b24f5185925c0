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
KNOWN = ("name", "num_bins", "layers", "threads")


class FrontEnd(Protocol):
    """Wave in, frames out. `name` identifies everything that decides the output, and goes into cache keys."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str:
        """Of its weights, wherever they lie; empty if it has none."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a frame: (dim,), or (layers, dim), of which the recogniser learns a weighted sum."""
        ...

    @property
    def frame_rate(self) -> float: ...
    @property
    def sampling_rate(self) -> int: ...

    def frames(self, samples: int) -> int:
        """How many frames a wave of so many samples gives."""
        ...

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """(samples,) float32 → (frames, *shape) float32; no frames at all if the wave is too short for one."""
        ...


class NotFinite(WildCTCError):
    """Features that no training survives."""


def extract(front_end: FrontEnd, wave: np.ndarray) -> np.ndarray:
    """What `front_end.extract` gives, (frames, *shape); raises NotFinite if a number of it is NaN or infinite."""
    features = front_end.extract(wave)
    if not np.isfinite(features).all():
        peak = np.abs(wave).max()
        raise NotFinite(f"features that are not finite: its samples reach {peak:.3g}, where audio stays within 1")
    return features


def make_front_end(config: dict[str, Any]) -> FrontEnd:
    """The front end that a recipe names.

    config: `name` (fbank, moonshine-tiny, moonshine-base, an .onnx or .ort file, hf:NAME for a model of the Hugging
    Face hub, or the folder of one), `num_bins` (fbank only), `layers` (Hugging Face only), `threads` (ONNX only).

    >>> make_front_end({"name": "fbank", "num_bins": 40}).shape
    (40,)
    """
    if unknown := config.keys() - set(KNOWN):
        raise WildCTCError(f"front end: unknown setting {sorted(unknown)[0][:40]!r}; known: {', '.join(KNOWN)}")
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
    """The same front end, to be found from any working directory."""
    name = str(config.get("name", "fbank"))
    path = name.removeprefix("hf:")
    is_path = name not in OURS and os.path.exists(path)
    return config | {"name": os.path.abspath(path)} if is_path else dict(config)
