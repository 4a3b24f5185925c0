"""Features: filterbank or a frozen pretrained front end, cached on disk, and how they are varied for training.

A front end turns a wave into frames and is never trained, so each utterance goes through it once for every speed; what
comes out is kept on disk. Masking and warping (SpecAugment) act on the frames, whichever front end made them.
"""

import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from .corpora import Utterance, UtteranceError, load_audio, resample
from .errors import MissingExtra, WildCTCError


class FrontEnd(Protocol):
    """Wave in, frames out. `name` identifies everything that decides the output, and goes into cache keys."""

    @property
    def name(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def frame_rate(self) -> float: ...
    @property
    def sampling_rate(self) -> int: ...

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """(samples,) float32 → (frames, dim) float32; no frames at all if the wave is too short for one."""
        ...


def make_front_end(config: dict[str, Any]) -> FrontEnd:
    """The front end that a recipe names.

    config: `name` (fbank, moonshine-tiny, or an .onnx/.ort file), `num_bins` (fbank only), `threads` (ONNX only).

    >>> make_front_end({"name": "fbank", "num_bins": 40}).dim
    40
    """
    if unknown := config.keys() - {"name", "num_bins", "threads"}:
        raise WildCTCError(f"front end: unknown setting {sorted(unknown)[0]!r}; known: name, num_bins, threads")
    name = str(config.get("name", "fbank"))
    if name == "fbank":
        return Fbank(config.get("num_bins", 80))
    if name != "moonshine-tiny" and not name.endswith((".onnx", ".ort")):
        raise WildCTCError(f"no front end {name!r}: give fbank, moonshine-tiny or an .onnx or .ort file")
    return OnnxFrontEnd(name, config.get("threads", 1))


class Fbank:
    """Log mel filterbank as in Kaldi (25 ms Povey windows every 10 ms, reflected at the ends), without dither.

    The numbers are those of lhotse's Fbank, whose import takes seconds.

    >>> Fbank().extract(np.zeros(16000, np.float32)).shape
    (100, 80)
    """

    frame_rate = 100.0

    def __init__(self, num_bins: int = 80, sampling_rate: int = 16000) -> None:
        self.dim, self.sampling_rate = num_bins, sampling_rate
        self.name = f"fbank{num_bins}-{sampling_rate}"
        self._window, self._shift = int(0.025 * sampling_rate), sampling_rate // 100
        self._povey = torch.hann_window(self._window, periodic=False).pow(0.85)
        self._fft = 2 ** (self._window - 1).bit_length()
        self._mel = _mel_filters(num_bins, self._fft, sampling_rate)

    def extract(self, wave: np.ndarray) -> np.ndarray:
        """(samples,) → (round(samples / shift), num_bins) float32."""
        if len(wave) < self._window:
            return np.empty((0, self.dim), np.float32)
        x = self._frames(torch.from_numpy(wave))
        x = x - x.mean(1, keepdim=True)
        x = x - 0.97 * torch.cat((x[:, :1], x[:, :-1]), 1)
        power = torch.fft.rfft(x * self._povey, self._fft).abs().square()
        return (power @ self._mel).clamp_min(torch.finfo(torch.float32).eps).log().numpy()

    def _frames(self, wave: torch.Tensor) -> torch.Tensor:
        frames = (len(wave) + self._shift // 2) // self._shift
        left = (self._window - self._shift) // 2
        right = (frames - 1) * self._shift + self._window - len(wave) - left
        padded = torch.cat((wave[:left].flip(0), wave, wave[len(wave) - max(right, 0) :].flip(0)))
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


class OnnxFrontEnd:
    """A frozen encoder in ONNX Runtime: raw 16 kHz wave in, features out.

    model: a .onnx or .ort file, or "moonshine-tiny" for the encoder that the package moonshine-voice carries (288
    dimensions at 41.7 Hz). Its first input takes (1, samples) float32, a second one a mask of the same shape; its first
    output is (1, frames, dim). threads: of ONNX Runtime; with another number the last bits may differ.
    """

    sampling_rate = 16000

    def __init__(self, model: str | Path, threads: int = 1) -> None:
        self.path = _moonshine_path() if model == "moonshine-tiny" else Path(model)
        self.threads = threads
        try:
            digest = hashlib.sha256(self.path.read_bytes()).hexdigest()[:12]
        except OSError as error:
            raise WildCTCError(f"cannot read the front end {self.path}: {error.strerror}") from None
        self.name = f"{model if self.path != Path(model) else self.path.stem}-{digest}"
        self._opened: tuple[int, Any] | None = None
        self.dim = self._run(np.zeros(self.sampling_rate, np.float32)).shape[1]

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
        few, many = (len(self.extract(np.zeros(n * self.sampling_rate, np.float32))) for n in (1, 2))
        return self.sampling_rate * (many - few) / (self._samples_for(many) - self._samples_for(few))

    def _samples_for(self, frames: int) -> int:
        """The least number of samples that gives so many frames."""
        low, high = 0, 2 * self.sampling_rate
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if len(self.extract(np.zeros(middle, np.float32))) >= frames else (middle, high)
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


def _moonshine_path() -> Path:
    # Found without importing the package, which would load its own native library.
    spec = importlib.util.find_spec("moonshine_voice")
    if spec is None or spec.origin is None:
        raise MissingExtra("moonshine-voice", "moonshine")
    path = Path(spec.origin).parent / "assets" / "tiny-en" / "encoder_model.ort"
    if not path.is_file():
        raise WildCTCError("this moonshine-voice carries no encoder: pip install moonshine-voice==0.0.48")
    return path


class FeatureCache:
    """Features on disk, one file for each utterance and speed, computed when first asked for.

    directory: may be shared by several runs and processes; files are written whole or not at all. They are float16,
    half the size of float32, and what is returned has gone through that rounding the first time too, so that a run that
    computes and a run that reads see the same bits. A file is found by its audio's path, size and time of change, so
    changed audio is computed anew.
    """

    def __init__(self, directory: str | Path, front_end: FrontEnd) -> None:
        self.directory = Path(directory) / front_end.name
        self.front_end = front_end

    def get(self, utterance: Utterance, speed: float = 1.0) -> np.ndarray:
        """(frames, dim) float32 of an utterance spoken `speed` times as fast; UtteranceError if its audio is bad."""
        path = self._path(utterance, speed)
        stored = _read(path)
        if stored is None:
            stored = self._compute(utterance, speed)
            _write(path, stored)
        return stored.astype(np.float32)

    def _path(self, utterance: Utterance, speed: float) -> Path:
        try:
            stat = utterance.audio.stat()
        except OSError:
            raise UtteranceError(utterance, "no such file") from None
        u = utterance
        key = (str(u.audio.absolute()), stat.st_size, stat.st_mtime_ns, u.start, u.duration, u.channel, speed)
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
        return self.directory / name[:2] / f"{name[2:]}.npy"

    def _compute(self, utterance: Utterance, speed: float) -> np.ndarray:
        wave = resample(load_audio(utterance, self.front_end.sampling_rate), speed, 1)
        features = self.front_end.extract(wave)
        if len(features) == 0:
            raise UtteranceError(utterance, f"too short: {len(wave)} samples give no frame of {self.front_end.name}")
        limit = np.finfo(np.float16).max
        return features.clip(-limit, limit).astype(np.float16)


def _read(path: Path) -> np.ndarray | None:
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError):  # not there, or cut short by a crash
        return None


def _write(path: Path, features: np.ndarray) -> None:
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = file.name
            np.save(file, features)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise WildCTCError(f"cannot write to the feature cache {path.parent}: {error.strerror}") from None


@dataclass(frozen=True)
class FeatureStats:
    """Mean and standard deviation of each dimension over the training data, both (dim,) float32.

    >>> stats = FeatureStats.compute([np.array([[0.0, 1.0], [2.0, 1.0]])])
    >>> stats.normalize(np.array([[2.0, 1.0]], np.float32))
    array([[1., 0.]], dtype=float32)
    """

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def compute(cls, features: Iterable[np.ndarray]) -> "FeatureStats":
        """From features, (frames, dim) each."""
        frames, total, squares = 0, np.zeros(1), np.zeros(1)
        for x in features:
            x = x.astype(np.float64)
            frames, total, squares = frames + len(x), total + x.sum(0), squares + np.square(x).sum(0)
        return cls.from_sums(frames, total, squares)

    @classmethod
    def from_sums(cls, frames: int, total: np.ndarray, squares: np.ndarray) -> "FeatureStats":
        """From the number of frames and (dim,) float64 sums of the features and of their squares."""
        if frames == 0:
            raise WildCTCError("no features to compute their mean and variance from")
        mean = total / frames
        # A dimension that never changes carries nothing; the floor keeps it at 0 instead of blowing up rounding errors.
        std = np.sqrt(np.maximum(squares / frames - mean**2, 1e-8))
        return cls(mean.astype(np.float32), std.astype(np.float32))

    def normalize(self, x: np.ndarray) -> np.ndarray:
        """(frames, dim) → the same with mean 0 and variance 1 in each dimension."""
        return (x - self.mean) / self.std


def spec_augment(
    x: torch.Tensor,
    lengths: torch.Tensor,
    generator: torch.Generator,
    *,
    time_warp: int = 5,
    freq_masks: int = 2,
    freq_width: int = 27,
    time_masks: int = 5,
    time_ratio: float = 0.05,
    rows: range | None = None,
) -> torch.Tensor:
    """SpecAugment: warps time, then masks bands of dimensions and stretches of time with 0, the mean.

    x: (N, T, F), normalised. lengths: (N,). generator: on the CPU; it alone decides the outcome, and advances by the
    same amount whatever the lengths. time_warp: frames that a point inside may move. freq_width: dimensions that a mask
    may cover. time_ratio: share of an utterance that one time mask may cover. rows: x holds these N of the rows of a
    batch, range(begin, size of the batch, step), and they get the masks that they have there. Returns a new (N, T, F).

    >>> x = spec_augment(torch.ones(2, 50, 80), torch.tensor([50, 40]), torch.Generator().manual_seed(0))
    >>> x.shape, 0 < x.mean() < 1
    (torch.Size([2, 50, 80]), tensor(True))
    """
    n, frames, dims = x.shape
    lengths = lengths.to(x.device)
    rows = rows or range(n)
    draws = torch.rand(rows.stop, 2 + 2 * freq_masks + 2 * time_masks, generator=generator)[list(rows)].to(x.device)
    warp, bands, stretches = draws.split([2, 2 * freq_masks, 2 * time_masks], dim=1)
    if time_warp > 0:
        x = _warp_time(x, lengths, warp, time_warp)
    whole = torch.full_like(lengths, dims)
    masked = _mask(bands, torch.full_like(lengths, min(freq_width, dims)), whole, dims)[:, None, :]
    masked = masked | _mask(stretches, (lengths * time_ratio).long(), lengths, frames)[:, :, None]
    return x.masked_fill(masked, 0.0)


def _mask(draws: torch.Tensor, widest: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
    """(N, size) True under any of the masks; draws: (N, 2 · masks), for each a width in 0…widest and a place."""
    width_draw, place_draw = draws[:, :, None].chunk(2, dim=1)  # (N, masks, 1)
    width = (width_draw * (widest[:, None, None] + 1)).long()
    begin = (place_draw * (lengths[:, None, None] - width + 1)).long()
    position = torch.arange(size, device=draws.device)
    return ((position >= begin) & (position < begin + width)).any(1)


def _warp_time(x: torch.Tensor, lengths: torch.Tensor, draws: torch.Tensor, window: int) -> torch.Tensor:
    """Moves a point of each utterance by up to `window` frames, stretching one side and squeezing the other.

    Utterances of at most two windows stay as they are, and so does everything past an utterance's end.
    """
    room = (lengths - 2 * window).clamp(min=0)
    centre = window + draws[:, 0] * room
    target = centre + (draws[:, 1] * 2 - 1) * (window - 1)
    time = torch.arange(x.shape[1], device=x.device) + 0.5
    centre, target, end = centre[:, None], target[:, None], lengths[:, None]
    source = torch.where(time < target, time * centre / target, end - (end - time) * (end - centre) / (end - target))
    source = torch.where((room[:, None] > 0) & (time < end), source, time) - 0.5
    source = source.clamp(min=0).minimum(torch.maximum(end, time.ceil().long()[None]) - 1)
    low = source.floor().long()
    high = (low + 1).clamp(max=x.shape[1] - 1)
    share = (source - low)[:, :, None].to(x.dtype)
    rows = torch.arange(len(x), device=x.device)[:, None]
    return torch.lerp(x[rows, low], x[rows, high], share)
