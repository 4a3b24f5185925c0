"""Frozen models of the Hugging Face hub: wav2vec 2.0, XLS-R, HuBERT, WavLM and relatives, and Whisper's encoder.

One utterance at a time, so that no padding can touch the result, and without gradients. The model is no part of the
recogniser: its weights are neither trained nor saved with it.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.hf_kinds import WaveModel, WhisperModel

_SETTINGS = ("config.json", "*processor_config.json")


class HuggingFaceFrontEnd:
    """Hidden layers of a frozen model. The wave is prepared as the model's own settings say.

    Attributes:
        name: The kind of model, its digest and which layers.
        digest: Of the files that decide what the model computes.
        shape: (layers, dim), of a frame.
        sampling_rate: Of the wave.
        frame_rate: Frames a second.
        source: The model as it was given.
        folder: Where it is.
        layers: "weighted" or "last".
    """

    def __init__(self, model: str | Path, layers: Literal["weighted", "last"] = "weighted") -> None:
        """Read a model's settings; its weights are loaded when they are first used.

        Args:
            model: `hf:NAME` on the hub (downloaded once, then found without a network), or a folder with config.json,
                preprocessor_config.json and the weights.
            layers: "weighted" gives all layers, the input of the first among them, as (layers + 1, dim) a frame;
                "last" gives (1, dim).
        """
        if layers not in ("weighted", "last"):
            raise WildCTCError(f"features.layers must be weighted or last, got {str(layers)[:40]!r}")
        self.source, self.layers = str(model), layers
        self.folder = _find_folder(self.source)
        config, self._kind = self._read_settings()
        self.shape = (config.num_hidden_layers + 1 if layers == "weighted" else 1, config.hidden_size)
        self.sampling_rate, self.frame_rate = self._kind.sampling_rate, self._kind.frame_rate
        self.digest = _digest(tuple((path, path.stat().st_mtime_ns) for path in _files(self.folder)))
        self.name = f"{config.model_type}-{self.digest}-{layers}"
        self._loaded: tuple[torch.device, Any] | None = None

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames.
        """
        return self._kind.frames(samples)

    @torch.inference_mode()
    def extract(self, wave: np.ndarray) -> np.ndarray:
        """Compute features.

        Args:
            wave: (samples,) float32.

        Returns:
            (frames, layers, dim) float32.
        """
        frames = self.frames(len(wave))
        if frames == 0:
            return np.empty((0, *self.shape), np.float32)
        device = _device()
        layers = self._kind.layers(self._model(device), wave, device, every=self.layers == "weighted")
        if any(layer.shape != (1, frames, self.shape[1]) for layer in layers) or len(layers) != self.shape[0]:
            shapes = sorted({tuple(layer.shape[1:]) for layer in layers})
            raise WildCTCError(f"front end {self.source}: {len(layers)} layers of {shapes}, not {frames} frames each")
        return torch.cat(layers).transpose(0, 1).cpu().numpy()

    def _read_settings(self) -> tuple[Any, WaveModel | WhisperModel]:
        """The model's configuration, and its kind."""
        transformers = _transformers()
        try:
            config = transformers.AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
            prepare = transformers.AutoFeatureExtractor.from_pretrained(self.folder, trust_remote_code=False)
        except Exception as error:  # transformers raises what its parsing happens to meet
            raise WildCTCError(f"front end {self.source}: {_first_line(error)}") from None
        if isinstance(prepare, transformers.Wav2Vec2FeatureExtractor) and hasattr(config, "conv_stride"):
            return config, WaveModel(config, prepare)
        if isinstance(prepare, transformers.WhisperFeatureExtractor) and config.model_type == "whisper":
            try:
                return config, WhisperModel(config, prepare)
            except WildCTCError as error:
                raise WildCTCError(f"front end {self.source}: {error}") from None
        raise WildCTCError(
            f"front end {self.source}: a model of the kind {config.model_type!r} is not supported; "
            "take wav2vec 2.0, XLS-R, HuBERT, WavLM or another that hears the wave as they do, or Whisper"
        )

    def _model(self, device: torch.device) -> Any:
        # Loaded when first used: most processes need only the settings. A fork shares what its parent had loaded.
        if self._loaded is None or self._loaded[0] != device:
            transformers = _transformers()
            try:
                with _quiet(transformers):
                    model, report = transformers.AutoModel.from_pretrained(
                        self.folder, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
                    )
            except Exception as error:  # safetensors' and torch's own classes among others
                raise WildCTCError(f"front end {self.source}: {_first_line(error)}") from None
            if missing := sorted(filter(self._kind.needs, report["missing_keys"])):
                raise WildCTCError(f"front end {self.source}: no weights for {missing[0]} ({len(missing)} are missing)")
            self._loaded = device, self._kind.keep(model).eval().requires_grad_(False).to(device)
        return self._loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}


def _find_folder(source: str) -> Path:
    """Find the folder of a model; what is not there yet is downloaded.

    Args:
        source: `hf:NAME`, or a path.

    Returns:
        The folder.
    """
    path = Path(source.removeprefix("hf:"))
    if os.path.isdir(path) or not source.startswith("hf:"):
        if not _files(path):
            raise WildCTCError(
                f"front end {path}: no Hugging Face model there: "
                "it would be config.json, preprocessor_config.json and weights"
            )
        return path
    _transformers()
    from huggingface_hub import HfApi, snapshot_download

    name = source.removeprefix("hf:")
    try:
        with contextlib.suppress(OSError, ValueError):
            folder = Path(snapshot_download(name, allow_patterns=list(_SETTINGS), local_files_only=True))
            if _files(folder):
                return folder
        files = [file.rfilename for file in HfApi().model_info(name, timeout=10).siblings or []]
        safe = any(file.startswith("model") and file.endswith(".safetensors") for file in files)
        weights = "model*.safetensors*" if safe else "pytorch_model*.bin*"
        return Path(snapshot_download(name, allow_patterns=[*_SETTINGS, weights]))
    except Exception as error:  # the classes of whatever HTTP library the hub's package uses
        raise WildCTCError(
            f"front end {source[:200]}: not downloaded yet, and cannot be fetched from the Hugging Face hub "
            f"({_first_line(error)[:200]}); check name and connection, or give the folder of a downloaded model"
        ) from None


def _files(folder: Path) -> list[Path]:
    """The files of a model that decide what it computes; none if some are missing."""
    weights = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    found = [*(sorted(folder.glob(name)) for name in _SETTINGS), weights]
    return [path for paths in found for path in paths] if all(found) else []


@lru_cache
def _digest(files: tuple[tuple[Path, int], ...]) -> str:
    """Of the files' contents; the times of change are there for the cache."""
    digest = hashlib.sha256()
    for path, _ in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


def _device() -> torch.device:
    """The GPU where there is one, but not in a data-loading process, which cannot use it after a fork."""
    in_worker = torch.utils.data.get_worker_info() is not None
    return torch.device("cuda" if torch.cuda.is_available() and not in_worker else "cpu")


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No bar and no list of the pretraining head's weights, which are rightly left unused."""
    log = transformers.utils.logging
    before, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(before)
        if bar:
            log.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf") from None
    return transformers
