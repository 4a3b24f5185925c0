"""A recogniser: front end, normalisation, encoder and output layer, saved and loaded together.

The front end is frozen and runs outside of torch; training caches its features. Everything with weights is in the
module, and so are the statistics of the features.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from wildctc.audio.recordings import Audio, open_recording, read_whole
from wildctc.encoders.encoder import make_encoder
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.front_end import extract, make_front_end, with_absolute_path
from wildctc.features.layer_mix import DIM, LayerMix
from wildctc.features.stats import FeatureStats
from wildctc.features.trust import check_trusted
from wildctc.files import make_folder, write_text
from wildctc.recognizer.confidence import Calibration
from wildctc.recognizer.frame_times import time_in_audio
from wildctc.recognizer.hub import hub_card, upload
from wildctc.recognizer.model_folder import (
    MODEL_FORMAT,
    Tensors,
    check_shapes,
    check_weights,
    read_header,
    read_model_config,
)
from wildctc.recognizer.transcription import Transcript, join, transcribe_pieces
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.text.units import Units, load_units


class _Network(nn.Module):
    """Everything with weights: statistics, mix of layers, encoder and output layer.

    Args:
        shape: The shape of a frame of features.
        encoder: The arguments of `make_encoder`, as in `Recognizer`.
        outputs: How many units there are.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, shape: Sequence[int], encoder: dict[str, Any], outputs: int) -> None:
        super().__init__()
        *layers, dim = shape
        self.register_buffer("mean", torch.zeros(*layers, dim))
        self.register_buffer("std", torch.ones(*layers, dim))
        self.mix = LayerMix(layers[0], dim) if layers else nn.Identity()
        self.encoder = make_encoder(input_dim=DIM if layers else dim, **encoder)
        self.output = nn.Linear(self.encoder.output_dim, outputs)


class Recognizer(_Network):
    """Features → logits over the units.

    front_end: what `features.make_front_end` takes. encoder: `kind` and the fields of `encoders.make_encoder`
    without `input_dim`, which the front end decides. stats: None until they are known.
    """

    def __init__(
        self, front_end: dict[str, Any], encoder: dict[str, Any], units: Units, stats: FeatureStats | None = None
    ) -> None:
        made = make_front_end(front_end)
        super().__init__(made.shape, encoder, len(units.tokens))
        self.front_end_config, self.encoder_config = dict(front_end), dict(encoder)
        self.front_end, self.units = made, units
        self.calibration: Calibration | None = None  # how sure it may be of its words; `wildctc calibrate` makes it
        if stats is not None:
            self.set_stats(stats)

    @property
    def stats(self) -> FeatureStats:
        """The statistics that features are normalised with."""
        return FeatureStats(self.mean.cpu().numpy(), self.std.cpu().numpy())

    def set_stats(self, stats: FeatureStats) -> None:
        """Replace the statistics that features are normalised with.

        Args:
            stats: Mean and standard deviation of each dimension.
        """
        self.mean.copy_(torch.from_numpy(stats.mean))
        self.std.copy_(torch.from_numpy(stats.std))

    @property
    def frame_rate(self) -> float:
        """Logit frames a second."""
        return float(self.front_end.frame_rate) / int(self.encoder_config.get("subsampling", 4))

    def times(self, frames: int, duration: float) -> list[float]:
        """Compute when each frame of logits starts, and when the last one ends.

        Args:
            frames: The number of frames.
            duration: Seconds of audio.

        Returns:
            frames + 1 times, in seconds from the start of the audio.
        """
        rate = self.frame_rate
        return [time_in_audio(frame / rate, frames / rate, duration) for frame in range(frames + 1)]

    def output_lengths(self, lengths: torch.Tensor) -> torch.Tensor:
        """Compute how many frames the encoder makes.

        Args:
            lengths: (N,) frames of features.

        Returns:
            (N,) frames of logits.
        """
        return self.encoder.output_lengths(lengths)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute logits.

        Args:
            x: (N, T, F) normalised features; (N, T, layers, F) if the front end gives layers.
            lengths: (N,) frames of each utterance.

        Returns:
            Logits (N, T', V), and their lengths (N,).
        """
        y, y_lengths = self.encoder(self.mix(x), lengths)
        return self.output(y), y_lengths

    def logits_after(
        self, x: torch.Tensor, lengths: torch.Tensor, blocks: Sequence[int]
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Compute logits from several blocks of the encoder, by the same output layer.

        Args:
            x: As for `forward`.
            lengths: (N,) frames of each utterance.
            blocks: The blocks, from 1, in ascending order; the last one of the encoder gives the logits of `forward`.

        Returns:
            Logits (N, T', V) of each of these blocks, and their lengths (N,).
        """
        encoded, y_lengths = self.encoder.after_blocks(self.mix(x), lengths, blocks)
        return [self.output(y) for y in encoded], y_lengths

    def transcribe(
        self, audio: Audio, *, sampling_rate: int | None = None, channel: int | None = None, beam: int = 10
    ) -> Transcript:
        """Transcribe audio of any length.

        Args:
            audio: A file, or an array of samples.
            sampling_rate: Samples per second of an array.
            channel: The channel, from 0; None takes the mean of all.
            beam: Prefixes kept; 1 is greedy.

        Returns:
            The text, its words with their times, and its score.
        """
        return join(transcribe_pieces(self, open_recording(audio, sampling_rate, channel), beam))

    def logits(self, audio: Audio, *, sampling_rate: int | None = None, channel: int | None = None) -> torch.Tensor:
        """Compute the logits of one utterance.

        The audio is not cut at pauses, so memory grows with the square of its length.

        Args:
            audio: A file, or an array of samples.
            sampling_rate: Samples per second of an array.
            channel: The channel, from 0; None takes the mean of all.

        Returns:
            (T', V), float32 on the CPU, with `frame_rate` frames per second.
        """
        wave = read_whole(audio, self.front_end.sampling_rate, sampling_rate, channel)
        return self.batch_logits([extract(self.front_end, wave)])[0]

    @torch.inference_mode()
    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Compute the logits of a batch, without dropout.

        Args:
            features: (T, F) of each utterance, from the front end, not normalised.

        Returns:
            (T', V) of each utterance, float32 on the CPU. T' = 0 if the features are too few for a frame of the
            encoder.
        """
        device, stats = self.mean.device, self.stats
        found = [torch.empty(0, len(self.units.tokens))] * len(features)
        lengths = torch.tensor([len(f) for f in features], dtype=torch.int64)
        long_enough = self.output_lengths(lengths).nonzero().flatten().tolist() if len(features) else []
        if not long_enough:
            return found
        x = [torch.from_numpy(stats.normalize(features[i])) for i in long_enough]
        training = self.training
        self.eval()  # no dropout, even if this is called during training
        try:
            y, y_lengths = self(nn.utils.rnn.pad_sequence(x, batch_first=True).to(device), lengths[long_enough])
        finally:
            self.train(training)
        for i, row, n in zip(long_enough, y, y_lengths.tolist(), strict=True):
            found[i] = row[:n].float().cpu()
        return found

    def fingerprint(self) -> str:
        """Hash the weights and the units: everything that decides what is recognised, given the features.

        Returns:
            16 hexadecimal digits.
        """
        digest = hashlib.sha256(self.units.fingerprint().encode())
        for name, tensor in self.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()[:16]

    def save(self, folder: str | Path, card: str = "") -> None:
        """Write everything that inference needs: weights and statistics, configuration and units.

        Args:
            folder: The model folder to write.
            card: A description for README.md; "" writes none.
        """
        folder = make_folder(Path(folder))
        self.describe(folder)
        if card:
            write_text(folder / "README.md", card)
        if self.calibration is not None:
            self.calibration.save(folder)
        # Last: a folder with weights is complete.
        save_tensors(folder / "model.safetensors", self.state_dict(), {"units": self.units.fingerprint()})

    def push_to_hub(
        self, name: str, *, card: str = "", private: bool = False, token: str | None = None, endpoint: str | None = None
    ) -> str:
        """Publish the model on the Hugging Face hub; `wildctc.load(name)` reads it from there.

        Args:
            name: user/model. It is made if needed.
            card: A description for README.md; "" writes a short one.
            private: Whether a new repository is private.
            token: For writing; None takes the one of `hf auth login`.
            endpoint: The address of another hub.

        Returns:
            The address of the model.

        Raises:
            WildCTCError: Its front end is a file of this machine, or the hub does not take it.
        """
        front_end = str(with_absolute_path(self.front_end_config).get("name", "fbank"))
        if os.path.isabs(front_end):
            raise WildCTCError(f"its front end is {front_end}, which nobody else has: publish that first, as hf:NAME")
        with tempfile.TemporaryDirectory() as folder:
            self.save(folder, card or hub_card(name, self.front_end.name, len(self.units)))
            return upload(Path(folder), name, private=private, token=token, endpoint=endpoint)

    def describe(self, folder: Path) -> None:
        """Write what a model folder has beside the weights: configuration and units.

        Args:
            folder: The model folder.
        """
        self.units.save(folder)
        config = {
            "format": MODEL_FORMAT,
            "front_end": with_absolute_path(self.front_end_config),
            "front_end_digest": self.front_end.digest,
            "encoder": self.encoder_config,
            "units": self.units.fingerprint(),
        }
        write_text(folder / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")

    @staticmethod
    def description(folder: Path) -> list[Path]:
        """List the files that `describe` writes.

        Args:
            folder: The model folder.

        Returns:
            The paths; the last file exists only for SentencePiece units.
        """
        return [folder / name for name in ("config.json", "units.json", "spm.model")]

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, trust_front_end: bool = False) -> Recognizer:
        """Load a recogniser.

        The folder may come from a stranger: nothing in it is executed, and nothing is built that is larger than its
        weights.

        Args:
            folder: A model folder, or a run's folder.
            trust_front_end: Allow a front end that is not part of WildCTC, but a file, a folder or a model of the
                Hugging Face hub that config.json names. A front end that was used for training on this machine is
                always allowed.

        Returns:
            The recogniser, in eval mode, on the CPU.

        Raises:
            WildCTCError: There is no model, it is damaged, or its front end is not trusted.
        """
        folder = find_model(Path(folder))
        config, units = read_model_config(folder), load_units(folder)
        tensors, state = read_header(folder / "model.safetensors")
        if not units.fingerprint() == config["units"] == state.get("units"):
            raise WildCTCError(f"{folder}: the units do not match the weights (units.json was changed or replaced)")
        check_trusted(config["front_end"], folder / "config.json", trust_front_end)
        model = cls._from_config(folder, config, units, tensors)
        weights, _ = load_tensors(folder / "model.safetensors")
        check_weights(folder, weights)
        model.load_state_dict(weights)
        model.calibration = Calibration.load(folder)
        return model.eval()

    @classmethod
    def _from_config(cls, folder: Path, config: dict[str, Any], units: Units, tensors: Tensors) -> Recognizer:
        """Build the model only if the tensors in the file are those that the configuration needs."""
        front_end, encoder = config["front_end"], config["encoder"]
        try:
            shape = make_front_end(front_end).shape
            one = _in_outline(shape, encoder | {"blocks": 1}, len(units.tokens))
            # The number of blocks is checked as any other setting, but they are not made yet.
            settings = one.encoder.config
            blocks = replace(settings, blocks=encoder.get("blocks", type(settings).blocks)).blocks
        except MissingExtra:
            raise
        except WildCTCError as error:
            raise WildCTCError(f"{error}; it is named in {folder / 'config.json'}") from None
        check_shapes(folder, tensors, one.state_dict(), blocks)
        model = cls(front_end, encoder, units)
        if config.get("front_end_digest", model.front_end.digest) != model.front_end.digest:
            raise WildCTCError(
                f"{folder}: was trained with other weights than {front_end.get('name')} has now; "
                f"put those back, or correct front_end.name in {folder / 'config.json'}"
            )
        return model


def _in_outline(shape: Sequence[int], encoder: dict[str, Any], outputs: int) -> _Network:
    """Build the network with shapes, but without memory for its weights."""
    try:
        with torch.device("meta"):
            return _Network(shape, encoder, outputs)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise WildCTCError(f"features of the shape {tuple(shape)} fit no network: {str(error)[:100]}") from None


def find_model(folder: Path) -> Path:
    """Find the model in a folder.

    Args:
        folder: A model folder, or a run's folder.

    Returns:
        The model folder.

    Raises:
        WildCTCError: There is no model.
    """
    for candidate in (folder / "model", folder):
        if (candidate / "model.safetensors").is_file():
            return candidate
    if (folder / "checkpoints").is_dir():
        raise WildCTCError(
            f"{folder}: the run has no model/ yet; run the same `wildctc train` again to finish it "
            "(`wildctc decode` takes its last checkpoint)"
        )
    raise WildCTCError(f"{folder}: no model here (expected model.safetensors or model/model.safetensors)")
