"""A recogniser: front end, normalisation, encoder and output layer, as one thing that can be saved and loaded.

The front end is frozen and runs outside of torch (its features are cached during training); everything that has
weights is in the module, the per-dimension statistics of the features included.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from wildctc.encoders import make_encoder
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features import FeatureStats, LayerMix, make_front_end, with_absolute_path
from wildctc.features.layers import DIM
from wildctc.files import load_tensors, make_folder, save_tensors, write_text
from wildctc.sound import Audio, open_sound, read_whole
from wildctc.text import Units, load_units

if TYPE_CHECKING:
    from wildctc.transcribing import Transcript

FORMAT = 1  # of the model folder


class Recognizer(nn.Module):
    """Features → logits over the units.

    front_end: what `features.make_front_end` takes. encoder: `kind` and the fields of `encoders.make_encoder`
    without `input_dim`, which the front end decides. stats: None until they are known.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self, front_end: dict[str, Any], encoder: dict[str, Any], units: Units, stats: FeatureStats | None = None
    ) -> None:
        super().__init__()
        self.front_end_config, self.encoder_config, self.units = dict(front_end), dict(encoder), units
        self.front_end = make_front_end(self.front_end_config)
        *layers, dim = self.front_end.shape
        self.register_buffer("mean", torch.zeros(*layers, dim))
        self.register_buffer("std", torch.ones(*layers, dim))
        if stats is not None:
            self.set_stats(stats)
        self.mix = LayerMix(layers[0], dim) if layers else nn.Identity()
        self.encoder = make_encoder(input_dim=DIM if layers else dim, **self.encoder_config)
        self.output = nn.Linear(self.encoder.output_dim, len(units.tokens))

    @property
    def stats(self) -> FeatureStats:
        """The statistics that features are normalised with."""
        return FeatureStats(self.mean.cpu().numpy(), self.std.cpu().numpy())

    def set_stats(self, stats: FeatureStats) -> None:
        """Use other statistics."""
        self.mean.copy_(torch.from_numpy(stats.mean))
        self.std.copy_(torch.from_numpy(stats.std))

    @property
    def frame_rate(self) -> float:
        """Logit frames a second."""
        return float(self.front_end.frame_rate) / int(self.encoder_config.get("subsampling", 4))

    def times(self, frames: int, duration: float) -> list[float]:
        """When each logit frame of audio of `duration` seconds begins, and when the last one ends: frames + 1 seconds.

        Convolutions lose as much of the audio at its beginning as at its end.
        """
        first = (duration - frames / self.frame_rate) / 2
        return [min(max(0.0, first + frame / self.frame_rate), duration) for frame in range(frames + 1)]

    def output_lengths(self, lengths: torch.Tensor) -> torch.Tensor:
        """Frames after the encoder for so many frames of features."""
        return self.encoder.output_lengths(lengths)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (N, T', V) and their lengths (N,) from normalised features x (N, T, F) with lengths (N,).

        x is (N, T, layers, F) if the front end gives layers.
        """
        y, y_lengths = self.encoder(self.mix(x), lengths)
        return self.output(y), y_lengths

    def transcribe(
        self, audio: Audio, *, sampling_rate: int | None = None, channel: int | None = None, beam: int = 10
    ) -> Transcript:
        """Text, words with their times, and score of a file or of an array of samples, however long.

        sampling_rate: of an array. channel: counted from 0; None: the mean of all. beam: prefixes kept; 1 is greedy.
        """
        from wildctc.transcribing import join, transcribe_pieces

        return join(transcribe_pieces(self, open_sound(audio, sampling_rate, channel), beam))

    def logits(self, audio: Audio, *, sampling_rate: int | None = None, channel: int | None = None) -> torch.Tensor:
        """Logits (T', V), float32 on the CPU, of one utterance, `frame_rate` frames a second; audio as in `transcribe`.

        The audio is not cut, as that of `transcribe` is: memory grows with the square of its length.
        """
        wave = read_whole(audio, self.front_end.sampling_rate, sampling_rate, channel)
        return self.batch_logits([self.front_end.extract(wave)])[0]

    @torch.inference_mode()
    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Logits (T', V), float32 on the CPU, of each utterance from raw front-end features (T, F).

        Features too few for a single frame of the encoder give none (T' = 0).
        """
        device, stats = self.mean.device, self.stats
        found = [torch.empty(0, len(self.units.tokens))] * len(features)
        lengths = torch.tensor([len(f) for f in features], dtype=torch.int64)
        long_enough = self.output_lengths(lengths).nonzero().flatten().tolist() if len(features) else []
        if not long_enough:
            return found
        x = [torch.from_numpy(stats.normalize(features[i])) for i in long_enough]
        training = self.training
        self.eval()  # without dropout, in the middle of training too
        try:
            y, y_lengths = self(nn.utils.rnn.pad_sequence(x, batch_first=True).to(device), lengths[long_enough])
        finally:
            self.train(training)
        for i, row, n in zip(long_enough, y, y_lengths.tolist(), strict=True):
            found[i] = row[:n].float().cpu()
        return found

    def save(self, folder: str | Path, card: str = "") -> None:
        """Write all that inference needs: weights and statistics, configuration, units, and `card` as README.md."""
        folder = make_folder(Path(folder))
        self.units.save(folder)
        config = {
            "format": FORMAT,
            "front_end": with_absolute_path(self.front_end_config),
            "front_end_digest": self.front_end.digest,
            "encoder": self.encoder_config,
            "units": self.units.fingerprint(),
        }
        write_text(folder / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
        if card:
            write_text(folder / "README.md", card)
        # Last: a folder with weights is complete.
        save_tensors(folder / "model.safetensors", self.state_dict(), {"units": self.units.fingerprint()})

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Recognizer:
        """The recogniser in a model folder, or in the `model/` of a run's folder; in eval mode, on the CPU."""
        folder = find_model(Path(folder))
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            _, _, fingerprint = (config[field] for field in ("front_end", "encoder", "units"))
        except (OSError, ValueError, TypeError) as error:
            raise WildCTCError(f"{folder / 'config.json'}: cannot be read ({error})") from None
        except KeyError as error:
            raise WildCTCError(f"{folder / 'config.json'}: no {error} in it: not written by WildCTC?") from None
        units = load_units(folder)
        weights, state = load_tensors(folder / "model.safetensors")
        if not units.fingerprint() == fingerprint == state.get("units"):
            raise WildCTCError(f"{folder}: the units do not match the weights (units.json was changed or replaced)")
        model = cls._from_config(folder, config, units)
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise WildCTCError(
                f"{folder}: the weights do not fit config.json: {' '.join(str(error).split())}"
            ) from None
        return model.eval()

    @classmethod
    def _from_config(cls, folder: Path, config: dict[str, Any], units: Units) -> Recognizer:
        try:
            model = cls(config["front_end"], config["encoder"], units)
        except MissingExtra:
            raise
        except WildCTCError as error:
            raise WildCTCError(f"{error}; it is named in {folder / 'config.json'}") from None
        if config.get("front_end_digest", model.front_end.digest) != model.front_end.digest:
            raise WildCTCError(
                f"{folder}: was trained with other weights than {config['front_end']['name']} has now; "
                f"put those back, or correct front_end.name in {folder / 'config.json'}"
            )
        return model


def find_model(folder: Path) -> Path:
    """The model folder itself, or the one inside a run's folder."""
    for candidate in (folder / "model", folder):
        if (candidate / "model.safetensors").is_file():
            return candidate
    if (folder / "checkpoints").is_dir():
        raise WildCTCError(f"{folder}: the run has no model/ yet; run the same `wildctc train` again to finish it")
    raise WildCTCError(f"{folder}: no model here (expected model.safetensors or model/model.safetensors)")
