"""The two kinds of Hugging Face models that can be a front end: those that hear the wave, and Whisper's encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wildctc.errors import WildCTCError
from wildctc.features.frame_count import FrameRule
from wildctc.features.log_mel import HOP, POSITION_RATE, SAMPLING_RATE, WINDOW, LogMel, count_positions, pieces

_ONLY_IN_PRETRAINING = {"masked_spec_embed"}


class WaveModel:
    """wav2vec 2.0, XLS-R, HuBERT, WavLM and relatives: convolutions over the wave, then transformer layers.

    Attributes:
        sampling_rate: Of the wave.
        frame_rate: Frames a second.
    """

    def __init__(self, config: Any, prepare: Any) -> None:
        """Read how the model hears.

        Args:
            config: The model's configuration.
            prepare: Its feature extractor, which normalises the wave if the model wants it.
        """
        self._prepare = prepare
        self._rule = FrameRule.of_convolutions(*zip(config.conv_kernel, config.conv_stride, strict=True))
        self.sampling_rate: int = prepare.sampling_rate
        self.frame_rate = self.sampling_rate / self._rule.stride

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames.
        """
        return self._rule.frames(samples)

    def keep(self, model: Any) -> nn.Module:
        """Take the part of a model that computes features.

        Args:
            model: The model that was loaded.

        Returns:
            All of it.
        """
        whole: nn.Module = model
        return whole

    def needs(self, weight: str) -> bool:
        """Tell whether a weight counts.

        Args:
            weight: Its name.

        Returns:
            Whether features cannot be computed without it.
        """
        return weight not in _ONLY_IN_PRETRAINING

    def layers(self, model: Any, wave: np.ndarray, device: torch.device, every: bool) -> list[Tensor]:
        """Compute the layers of a wave.

        Args:
            model: What `keep` returned.
            wave: (samples,) float32, long enough for a frame.
            device: Where the model is.
            every: Whether all layers are wanted, the input of the first among them; otherwise the last.

        Returns:
            (1, frames, dim) for each layer.
        """
        x = self._prepare(wave, sampling_rate=self.sampling_rate, return_tensors="pt").input_values.to(device)
        return _layers(model(x, output_hidden_states=every), every)


class WhisperModel:
    """Whisper's encoder, which hears a log-mel spectrogram: of the sound alone, without the padding to 30 s.

    Longer sound is heard in pieces.

    Attributes:
        sampling_rate: Of the wave, 16000.
        frame_rate: Frames a second, 50.
    """

    sampling_rate = SAMPLING_RATE
    frame_rate = POSITION_RATE

    def __init__(self, config: Any, prepare: Any) -> None:
        """Read how the model hears.

        Args:
            config: The model's configuration.
            prepare: Its feature extractor; its settings must be those of the published models.
        """
        settings = (prepare.sampling_rate, prepare.n_fft, prepare.hop_length, prepare.feature_size)
        if settings != (SAMPLING_RATE, WINDOW, HOP, config.num_mel_bins):
            raise WildCTCError(
                f"its spectrogram (sampling_rate, n_fft, hop_length, feature_size) is {settings}; "
                f"supported is {(SAMPLING_RATE, WINDOW, HOP, config.num_mel_bins)}"
            )
        self._log_mel = LogMel(config.num_mel_bins)
        self._most: int = config.max_source_positions

    def frames(self, samples: int) -> int:
        """Count the frames of a wave.

        Args:
            samples: The length of the wave.

        Returns:
            The number of frames, one for every 320 samples.
        """
        return count_positions(samples)

    def keep(self, model: Any) -> nn.Module:
        """Take the part of a model that computes features.

        Args:
            model: The model that was loaded.

        Returns:
            Its encoder.
        """
        encoder: nn.Module = model.get_encoder()
        return encoder

    def needs(self, weight: str) -> bool:
        """Tell whether a weight counts.

        Args:
            weight: Its name.

        Returns:
            Whether features cannot be computed without it.
        """
        return weight.startswith("encoder.")

    def layers(self, model: Any, wave: np.ndarray, device: torch.device, every: bool) -> list[Tensor]:
        """Compute the layers of a wave.

        Args:
            model: What `keep` returned.
            wave: (samples,) float32, long enough for a frame.
            device: Where the model is.
            every: Whether all layers are wanted, the input of the first among them; otherwise the last.

        Returns:
            (1, frames, dim) for each layer.
        """
        found = [
            self._encode(model, self._log_mel(piece)[None].to(device), every) for piece in pieces(wave, self._most)
        ]
        return [torch.cat(parts, 1) for parts in zip(*found, strict=True)]

    def _encode(self, encoder: Any, mel: Tensor, every: bool) -> list[Tensor]:
        # The encoder takes exactly as much as it has positions for: it gets fewer positions for the time of this call.
        table, positions = encoder.embed_positions, mel.shape[2] // 2
        encoder.embed_positions = nn.Embedding(positions, table.embedding_dim, _weight=table.weight[:positions])
        encoder.config.max_source_positions = positions
        try:
            return _layers(encoder(mel, output_hidden_states=every), every)
        finally:
            encoder.embed_positions, encoder.config.max_source_positions = table, self._most


def _layers(found: Any, every: bool) -> list[Tensor]:
    # The last layer's entry among the hidden states is not normalised in every kind of model.
    return [*found.hidden_states[:-1], found.last_hidden_state] if every else [found.last_hidden_state]
