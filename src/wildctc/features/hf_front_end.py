"""Frozen models of the Hugging Face hub that hear the wave itself: wav2vec 2.0, XLS-R, HuBERT, WavLM and relatives.

One utterance at a time, so that no padding can touch the result, and without gradients. The model is no part of the
recogniser: its weights are neither trained nor saved with it.
"""

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from wildctc.errors import MissingExtra, WildCTCError

SETTINGS = ("config.json", "*processor_config.json")
UNUSED = {"masked_spec_embed"}  # weights that only pretraining needs


class HuggingFaceFrontEnd:
    """Hidden layers of a frozen model.

    model: `hf:NAME` on the hub (downloaded once, then found without a network), or a folder with config.json,
    preprocessor_config.json and the weights. layers: "weighted" gives all layers, the input of the first among them,
    as (layers + 1, dim) a frame; "last" gives (1, dim). The wave is normalised as the model's own settings say.
    """

    def __init__(self, model: str | Path, layers: Literal["weighted", "last"] = "weighted") -> None:
        if layers not in ("weighted", "last"):
            raise WildCTCError(f"features.layers must be weighted or last, got {str(layers)[:40]!r}")
        self.source, self.layers = str(model), layers
        self.folder = find_folder(self.source)
        config, self._prepare = self._read_settings()
        self.kernels, self.strides = tuple(config.conv_kernel), tuple(config.conv_stride)
        self.shape = (config.num_hidden_layers + 1 if layers == "weighted" else 1, config.hidden_size)
        self.sampling_rate: int = self._prepare.sampling_rate
        self.frame_rate = self.sampling_rate / math.prod(self.strides)
        self.digest = _digest(tuple((path, path.stat().st_mtime_ns) for path in _files(self.folder)))
        self.name = f"{config.model_type}-{self.digest}-{layers}"
        self._loaded: tuple[torch.device, Any] | None = None

    def frames(self, samples: int) -> int:
        """How many frames a wave of so many samples gives."""
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            samples = max(0, (samples - kernel) // stride + 1)
        return samples

    @torch.inference_mode()
    def extract(self, wave: np.ndarray) -> np.ndarray:
        """(samples,) → (frames, layers, dim) float32."""
        frames = self.frames(len(wave))
        if frames == 0:
            return np.empty((0, *self.shape), np.float32)
        device = _device()
        x = self._prepare(wave, sampling_rate=self.sampling_rate, return_tensors="pt").input_values.to(device)
        found = self._model(device)(x, output_hidden_states=self.layers == "weighted")
        # The last layer's entry among the hidden states is not normalised in every kind of model.
        layers = [*found.hidden_states[:-1], found.last_hidden_state] if self.layers == "weighted" else [found[0]]
        if any(layer.shape != (1, frames, self.shape[1]) for layer in layers) or len(layers) != self.shape[0]:
            shapes = sorted({tuple(layer.shape[1:]) for layer in layers})
            raise WildCTCError(f"front end {self.source}: {len(layers)} layers of {shapes}, not {frames} frames each")
        return torch.cat(layers).transpose(0, 1).cpu().numpy()

    def _read_settings(self) -> tuple[Any, Any]:
        """The model's configuration and what prepares a wave for it."""
        transformers = _transformers()
        try:
            config = transformers.AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
            prepare = transformers.AutoFeatureExtractor.from_pretrained(self.folder, trust_remote_code=False)
        except Exception as error:  # transformers raises what its parsing happens to meet
            raise WildCTCError(f"front end {self.source}: {_first_line(error)}") from None
        hears_the_wave = isinstance(prepare, transformers.Wav2Vec2FeatureExtractor) and hasattr(config, "conv_stride")
        if not hears_the_wave:
            raise WildCTCError(
                f"front end {self.source}: a model of the kind {config.model_type!r} is not supported; "
                "take wav2vec 2.0, XLS-R, HuBERT, WavLM or another that hears the wave as they do"
            )
        return config, prepare

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
            if missing := sorted(set(report["missing_keys"]) - UNUSED):
                raise WildCTCError(f"front end {self.source}: no weights for {missing[0]} ({len(missing)} are missing)")
            self._loaded = device, model.eval().requires_grad_(False).to(device)
        return self._loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}


def find_folder(source: str) -> Path:
    """The folder of a model that is given by `hf:NAME` or by its path; what is not there yet is downloaded."""
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
            folder = Path(snapshot_download(name, allow_patterns=list(SETTINGS), local_files_only=True))
            if _files(folder):
                return folder
        files = [file.rfilename for file in HfApi().model_info(name, timeout=10).siblings or []]
        safe = any(file.startswith("model") and file.endswith(".safetensors") for file in files)
        weights = "model*.safetensors*" if safe else "pytorch_model*.bin*"
        return Path(snapshot_download(name, allow_patterns=[*SETTINGS, weights]))
    except Exception as error:  # the classes of whatever HTTP library the hub's package uses
        raise WildCTCError(
            f"front end {source[:200]}: not downloaded yet, and cannot be fetched from the Hugging Face hub "
            f"({_first_line(error)[:200]}); check name and connection, or give the folder of a downloaded model"
        ) from None


def _files(folder: Path) -> list[Path]:
    """The files of a model that decide what it computes; none if some are missing."""
    weights = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    found = [*(sorted(folder.glob(name)) for name in SETTINGS), weights]
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
