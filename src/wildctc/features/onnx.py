"""Frozen encoders in ONNX Runtime, among them the two that Moonshine's packages carry."""

import hashlib
import importlib.util
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wildctc.errors import MissingExtra, WildCTCError

MOST_THREADS = 256
# name → module and distribution that carry the encoder, and where in the module
MOONSHINE = {
    "moonshine-tiny": ("moonshine_voice", "moonshine-voice==0.0.48", "assets/tiny-en/encoder_model.ort"),
    "moonshine-base": ("moonshine_cpp", "moonshine-cpp==0.1.4", "models/base-en/encoder_model.ort"),
}


class OnnxFrontEnd:
    """A frozen encoder in ONNX Runtime: raw 16 kHz wave in, features out.

    model: a .onnx or .ort file, or an encoder that a package carries: "moonshine-tiny" (moonshine-voice, 288 dimensions
    at 41.7 Hz) or "moonshine-base" (moonshine-cpp, 416 dimensions at 41.7 Hz). Its first input takes (1, samples)
    float32, a second one a mask of the same shape; its first output is (1, frames, dim). threads: of ONNX Runtime; with
    another number the last bits may differ.
    """

    sampling_rate = 16000

    def __init__(self, model: str | Path, threads: int = 1) -> None:
        self.path = _moonshine_path(str(model)) if model in MOONSHINE else Path(model)
        if not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
            raise WildCTCError(f"front end: threads must be from 1 to {MOST_THREADS}, got {str(threads)[:40]}")
        self.threads = threads
        try:
            self.digest = hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]
        except OSError as error:
            raise WildCTCError(f"cannot read the front end {self.path}: {error.strerror}") from None
        self.name = f"{model if self.path != Path(model) else self.path.stem}-{self.digest}"
        self._opened: tuple[int, Any] | None = None
        self.dim = self._run(np.zeros(self.sampling_rate, np.float32)).shape[1]
        self.shape = (self.dim,)

    def frames(self, samples: int) -> int:
        """How many frames a wave of so many samples gives: found by trying."""
        return len(self.extract(np.zeros(samples, np.float32)))

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """(samples,) at 16 kHz → (frames, dim) float32."""
        try:
            return self._run(wave)
        except WildCTCError:
            if len(wave) >= self.sampling_rate:
                raise
            return np.empty((0, self.dim), np.float32)  # shorter than a convolution is wide

    @cached_property
    def frame_rate(self) -> float:
        """Frames a second: how many samples it takes for one more frame, found by trying."""
        few, many = (self.frames(n * self.sampling_rate) for n in (1, 2))
        return self.sampling_rate * (many - few) / (self._samples_for(many) - self._samples_for(few))

    def _samples_for(self, frames: int) -> int:
        """The least number of samples that gives so many frames."""
        low, high = 0, 2 * self.sampling_rate
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.frames(middle) >= frames else (middle, high)
        return high

    def _run(self, wave: np.ndarray) -> np.ndarray:
        session = self._session()
        inputs = session.get_inputs()
        feed = {inputs[0].name: wave[None]}
        for mask in inputs[1:]:
            feed[mask.name] = np.ones((1, len(wave)), _MASK_TYPES.get(mask.type, np.int64))
        try:
            output = session.run([session.get_outputs()[0].name], feed)[0]
        except Exception as error:  # onnxruntime's own classes, which derive from nothing narrower
            raise WildCTCError(f"front end {self.path}: does not take {len(wave)} samples: {error}") from None
        if output.ndim != 3 or output.shape[0] != 1:
            raise WildCTCError(f"front end {self.path}: its output is {output.shape}, not (1, frames, dim)")
        return np.asarray(output[0], np.float32)

    def _session(self) -> Any:
        # Opened in each process: a session does not survive a fork, nor can it be pickled.
        if self._opened is None or self._opened[0] != os.getpid():
            onnxruntime = _onnxruntime()
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
            options.log_severity_level = 4
            try:
                session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # as above
                raise WildCTCError(f"front end {self.path} is not an ONNX model: {error}") from None
            self._opened = os.getpid(), session
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


_MASK_TYPES = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(float)": np.float32,
    "tensor(bool)": np.bool_,
}


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "moonshine") from None
    return onnxruntime


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
