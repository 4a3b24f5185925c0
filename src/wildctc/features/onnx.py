"""Frozen encoders in ONNX Runtime that take the wave, among them the two that Moonshine's packages carry."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from pathlib import Path

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.frame_count import FrameRule
from wildctc.features.onnx_file import OnnxFile

# name → module and distribution that carry the encoder, and where in the module
MOONSHINE = {
    "moonshine-tiny": ("moonshine_voice", "moonshine-voice==0.0.48", "assets/tiny-en/encoder_model.ort"),
    "moonshine-base": ("moonshine_cpp", "moonshine-cpp==0.1.4", "models/base-en/encoder_model.ort"),
}
_MOONSHINE_RULE = FrameRule.of_convolutions((127, 64), (7, 3), (3, 2))
_MASK_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(bool)": np.bool_,
}


class OnnxFrontEnd:
    """A frozen encoder in ONNX Runtime: raw 16 kHz wave in, features out.

    Its first input takes (1, samples) float32, a second one a mask of the same shape; its first output is (1, frames,
    dim).

    Attributes:
        name: The model's name, or the file's, with its digest.
        digest: Of the file.
        path: The file.
        shape: (dim,), of a frame.
        dim: Numbers in a frame.
        sampling_rate: Of the wave, 16000.
    """

    sampling_rate = 16000

    def __init__(self, model: str | Path, threads: int = 1) -> None:
        """Open the model.

        Args:
            model: A .onnx or .ort file, or an encoder that a package carries: "moonshine-tiny" (moonshine-voice, 288
                dimensions at 41.7 Hz) or "moonshine-base" (moonshine-cpp, 416 dimensions at 41.7 Hz).
            threads: Of ONNX Runtime; with another number the last bits may differ.
        """
        ours = str(model) in MOONSHINE
        self.path = _moonshine_path(str(model)) if ours else Path(model)
        self._file = OnnxFile(self.path, threads)
        self.digest = self._file.digest
        self.name = f"{model if ours else self.path.stem}-{self.digest}"
        self.dim = self._run(np.zeros(self.sampling_rate, np.float32)).shape[1]
        self.shape = (self.dim,)
        if ours:
            self._rule = _MOONSHINE_RULE

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Moonshine's rule is known. That of another file is found by some 60 short runs when it is first needed. Only a
        model that follows no rule is run on silence each time.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames.
        """
        return self._count_by_running(samples) if self._rule is None else self._rule.frames(samples)

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Compute features.

        Args:
            wave: (samples,) float32 at 16 kHz.

        Returns:
            (frames, dim) float32.
        """
        try:
            return self._run(wave)
        except WildCTCError:
            if len(wave) >= self.sampling_rate:
                raise
            return np.empty((0, self.dim), np.float32)  # shorter than a convolution is wide

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        if self._rule is not None:
            return self.sampling_rate / self._rule.stride
        few, many = (self._count_by_running(n * self.sampling_rate) for n in (1, 2))
        return float(many - few)

    @cached_property
    def _rule(self) -> FrameRule | None:
        return FrameRule.find(self._count_by_running, self.sampling_rate)

    def _count_by_running(self, samples: int) -> int:
        return len(self.extract(np.zeros(samples, np.float32)))

    def _run(self, wave: np.ndarray) -> np.ndarray:
        first, *masks = self._file.inputs()
        feed = {first.name: wave[None]}
        for mask in masks:
            feed[mask.name] = np.ones((1, len(wave)), _MASK_TYPES.get(mask.type, np.int64))
        return self._file.run(feed, f"{len(wave)} samples")


def _moonshine_path(name: str) -> Path:
    # Found without importing the package, which would load its own native library.
    module, distribution, place = MOONSHINE[name]
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MissingExtra(distribution, "moonshine")
    path = Path(spec.origin).parent / place
    if not path.is_file():
        raise WildCTCError(f"{name}: the installed package carries no {place}: pip install {distribution}")
    return path
