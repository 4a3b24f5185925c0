"""The encoder: subsampling, a stack of blocks, and the lengths of their outputs."""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

import torch
from torch import Tensor, nn

from wildctc.encoders.blocks import ConformerBlock, EBranchformerBlock
from wildctc.encoders.layers import Dropout, Layout, Subsampling, conv_length, layer_norm, padding_mask
from wildctc.encoders.settings import CONV_WIDTH, MIN_FRAMES, STRIDES, ConformerConfig, EBranchformerConfig
from wildctc.errors import WildCTCError


class Encoder(nn.Module):
    """A stack of blocks over subsampled features; see `make_encoder`.

    Attributes:
        config: The settings.
        pad_like_espnet: Whether it pads as ESPnet does: lengths come from a strided mask (an output frame counts if the
            *first* of its input frames is not padding), convolutions and batch statistics treat padding as speech, and
            only attention ignores padded keys. Outputs then depend on how far the batch is padded, and are not 0 after
            the end of a row.
        positions: (2T-1, D) encodings of distances between frames, for T frames or more.
    """

    positions: Tensor

    def __init__(self, config: ConformerConfig | EBranchformerConfig, pad_like_espnet: bool = False) -> None:
        """Make an encoder with fresh weights.

        Args:
            config: The settings, whose class decides the kind of blocks.
            pad_like_espnet: Whether to pad as ESPnet does.
        """
        super().__init__()
        self.config = config
        self.pad_like_espnet = pad_like_espnet
        self.subsampling = Subsampling(config)
        self.dropout = Dropout(config.dropout)
        block = ConformerBlock if isinstance(config, ConformerConfig) else EBranchformerBlock
        self.blocks = nn.ModuleList(block(config) for _ in range(config.blocks))  # type: ignore[arg-type]
        self.norm = layer_norm(config.d_model)
        # on the device "meta" only the shapes of the weights matter; see `Recognizer.load`
        positions = torch.empty(0) if self.norm.weight.is_meta else sinusoids(512, config.d_model)
        self.register_buffer("positions", positions, persistent=False)

    @property
    def output_dim(self) -> int:
        """D, the width of the encoded frames."""
        return self.config.d_model

    def output_lengths(self, lengths: Tensor) -> Tensor:
        """Count the encoded frames.

        Args:
            lengths: (N,) frames of the inputs.

        Returns:
            (N,) frames of the outputs; 0 if an input is too short.

        >>> make_encoder("conformer", input_dim=80, blocks=1).output_lengths(torch.tensor([100, 7, 6]))
        tensor([24,  1,  0])
        """
        padded = int(lengths.max()) if self.pad_like_espnet else 0
        for stride in STRIDES[self.config.subsampling]:
            if self.pad_like_espnet:
                lengths = (lengths.clamp(max=padded - CONV_WIDTH + 1) + stride - 1) // stride
                padded = conv_length(padded, stride)
            else:
                lengths = conv_length(lengths, stride)
        return lengths.clamp(min=0)

    def forward(self, x: Tensor, x_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode a batch.

        Args:
            x: (N, T, F) features.
            x_lengths: (N,) frames of each row.

        Returns:
            (N, T', D) encoded frames, 0 after the end of each row; and (N,) the lengths of the rows.

        Raises:
            WildCTCError: Shapes or lengths do not fit the encoder.
        """
        (encoded,), y_lengths = self.after_blocks(x, x_lengths, [len(self.blocks)])
        return encoded, y_lengths

    def after_blocks(self, x: Tensor, x_lengths: Tensor, numbers: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """Encode a batch, and give what several blocks make of it. The last norm of the encoder is applied to each.

        Args:
            x: (N, T, F) features.
            x_lengths: (N,) frames of each row.
            numbers: The blocks, from 1, in ascending order.

        Returns:
            (N, T', D) for each of these blocks, 0 after the end of each row; and (N,) the lengths of the rows.

        Raises:
            WildCTCError: Shapes or lengths do not fit the encoder.
        """
        self._check(x, x_lengths)
        y_lengths = self.output_lengths(x_lengths)
        x = x[:, : int(x_lengths.max())]  # cut off padding that no row needs
        if not self.pad_like_espnet and int(x_lengths.min()) < x.size(1):
            x = x.masked_fill(padding_mask(x_lengths, x.size(1), x.device).unsqueeze(2), 0)  # padding may be NaN
        layout = Layout(y_lengths, int(y_lengths.max()), x, keep_padding=self.pad_like_espnet)
        positions = self.dropout(self.positions_for(layout.size[1]))
        # under autocast the residual stream keeps the precision of the input
        h = layout.pack(self.subsampling(x)).to(x.dtype) * math.sqrt(self.config.d_model)
        h = self.dropout(h)
        found = []
        for number, block in enumerate(self.blocks, start=1):
            h = block(h, layout, positions)
            if number in numbers:
                found.append(layout.unpack(self.norm(h)))
        return found, y_lengths

    def positions_for(self, frames: int) -> Tensor:
        """Look up the encodings of distances, in a table that grows with the longest utterance.

        Args:
            frames: T, the number of frames.

        Returns:
            (2T-1, D): for distances T-1, …, 0, …, -(T-1).
        """
        if frames > (self.positions.size(0) + 1) // 2:
            self.positions = sinusoids(2 * frames, self.config.d_model).to(self.positions)
        middle = self.positions.size(0) // 2
        return self.positions[middle - frames + 1 : middle + frames]

    def _check(self, x: Tensor, lengths: Tensor) -> None:
        dim, shortest = self.config.input_dim, MIN_FRAMES[self.config.subsampling]
        if x.dim() != 3 or x.size(2) != dim:
            raise WildCTCError(f"the encoder takes features (N, T, {dim}), got {tuple(x.shape)}")
        if lengths.shape != x.shape[:1] or not len(lengths):
            raise WildCTCError(f"x_lengths must hold one length for each of {x.size(0)} rows: {tuple(lengths.shape)}")
        for row, length in enumerate(lengths.tolist()):
            if length > x.size(1):
                raise WildCTCError(f"row {row} of the batch: length {length} exceeds the {x.size(1)} frames given")
            if length < shortest:
                raise WildCTCError(
                    f"row {row} of the batch: {length} frames are too few for subsampling by "
                    f"{self.config.subsampling}, which needs {shortest}; drop the utterance"
                )


def sinusoids(frames: int, dim: int) -> Tensor:
    """Compute the encodings of distances.

    Args:
        frames: T, the number of frames.
        dim: The width of an encoding.

    Returns:
        (2T-1, dim), for the distances T-1, …, 0, …, -(T-1). Even columns are sines, odd ones cosines.
    """
    distance = torch.arange(frames - 1, -frames, -1, dtype=torch.float32)[:, None]
    angle = distance * torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * -(math.log(10000.0) / dim))
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def make_encoder(kind: Literal["conformer", "e_branchformer"], **settings: Any) -> Encoder:
    """Make an encoder with fresh weights.

    Args:
        kind: The kind of blocks.
        **settings: Fields of `ConformerConfig` or `EBranchformerConfig`; `input_dim` is required.

    Returns:
        The encoder.

    Raises:
        WildCTCError: The kind or a setting is unknown, or a value is not possible.

    >>> encoder = make_encoder("conformer", input_dim=80, d_model=16, ff_dim=32, blocks=2)
    >>> y, y_lengths = encoder(torch.randn(2, 60, 80), torch.tensor([60, 45]))
    >>> y.shape, y_lengths.tolist()
    (torch.Size([2, 14, 16]), [14, 10])
    """
    configs: dict[str, type[ConformerConfig] | type[EBranchformerConfig]]
    configs = {"conformer": ConformerConfig, "e_branchformer": EBranchformerConfig}
    if not isinstance(kind, str) or kind not in configs:
        raise WildCTCError(f"unknown encoder {str(kind)[:40]!r}; choose one of {', '.join(configs)}")
    known = [field.name for field in fields(configs[kind])]
    for name in settings:
        if name not in known:
            raise WildCTCError(f"{kind} has no setting {name[:40]!r}; it has {', '.join(known)}")
    return Encoder(configs[kind](**settings))
