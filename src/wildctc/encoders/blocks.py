"""The blocks of both encoders: Conformer and E-Branchformer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wildctc.encoders.layers import Attention, DepthwiseConv, Dropout, Layout, layer_norm
from wildctc.encoders.settings import BaseEncoderConfig, ConformerConfig, EBranchformerConfig


def _feed_forward(config: BaseEncoderConfig) -> nn.Sequential:
    """Make the feed-forward part of a block, its norm included."""
    return nn.Sequential(
        layer_norm(config.d_model),
        nn.Linear(config.d_model, config.ff_dim),
        nn.SiLU(),
        Dropout(config.dropout, inplace=True),
        nn.Linear(config.ff_dim, config.d_model),
        Dropout(config.dropout, inplace=True),
    )


class Convolution(nn.Module):
    """The convolution of a Conformer: gated pointwise, depthwise, batch norm, pointwise."""

    def __init__(self, config: BaseEncoderConfig) -> None:
        super().__init__()
        dim = config.d_model
        self.expand = nn.Linear(dim, 2 * dim)
        self.depthwise = DepthwiseConv(dim, config.kernel)
        self.norm = nn.BatchNorm1d(dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Convolve along time.

        Args:
            x: (M, D) packed frames.
            layout: Where they are in the batch.

        Returns:
            (M, D).
        """
        x = layout.unpack(F.glu(self.expand(x)))
        return self.out(F.silu(self.norm(layout.pack(self.depthwise(x)))))


class ConformerBlock(nn.Module):
    """Feed-forward, attention, convolution, feed-forward, each added to its input; then a norm."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        dim = config.d_model
        self.ff_scale = 0.5 if config.macaron else 1.0
        self.macaron = _feed_forward(config) if config.macaron else None
        self.attention_norm = layer_norm(dim)
        self.attention = Attention(config)
        self.convolution_norm = layer_norm(dim)
        self.convolution = Convolution(config)
        self.feed_forward = _feed_forward(config)
        self.norm = layer_norm(dim)
        self.dropout = Dropout(config.dropout, inplace=True)

    def forward(self, x: Tensor, layout: Layout, positions: Tensor) -> Tensor:
        """Run the block.

        Args:
            x: (M, D) packed frames.
            layout: Where they are in the batch.
            positions: (2T-1, D) encodings of distances.

        Returns:
            (M, D).
        """
        if self.macaron is not None:
            x = torch.add(x, self.macaron(x), alpha=self.ff_scale)
        x = x + self.dropout(self.attention(self.attention_norm(x), layout, positions))
        x = x + self.dropout(self.convolution(self.convolution_norm(x), layout))
        x = torch.add(x, self.feed_forward(x), alpha=self.ff_scale)
        return self.norm(x)


class GatingMLP(nn.Module):
    """The cgMLP of an E-Branchformer: one half of the channels, convolved along time, gates the other half."""

    def __init__(self, config: EBranchformerConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.d_model, config.cgmlp_dim)
        self.norm = layer_norm(config.cgmlp_dim // 2)
        self.depthwise = DepthwiseConv(config.cgmlp_dim // 2, config.kernel)
        self.dropout = Dropout(config.dropout, inplace=True)
        self.out = nn.Linear(config.cgmlp_dim // 2, config.d_model)
        if not self.depthwise.weight.is_meta:  # no numbers to initialise; torch would import modules for two seconds
            nn.init.normal_(self.depthwise.weight, std=1e-6)  # an open gate at first, as in the cgMLP paper
        nn.init.ones_(self.depthwise.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Gate frames by their neighbours.

        Args:
            x: (M, D) packed frames.
            layout: Where they are in the batch.

        Returns:
            (M, D).
        """
        x, gate = F.gelu(self.expand(x)).chunk(2, dim=-1)
        gate = layout.pack(self.depthwise(layout.unpack(self.norm(gate))))
        return self.out(self.dropout(x * gate))


class EBranchformerBlock(nn.Module):
    """Feed-forward, then attention and cgMLP in parallel, merged, then feed-forward and a norm."""

    def __init__(self, config: EBranchformerConfig) -> None:
        super().__init__()
        dim = config.d_model
        self.ff_scale = 0.5 if config.macaron else 1.0
        self.macaron = _feed_forward(config) if config.macaron else None
        self.attention_norm = layer_norm(dim)
        self.attention = Attention(config)
        self.mlp_norm = layer_norm(dim)
        self.mlp = GatingMLP(config)
        self.merge_depthwise = DepthwiseConv(2 * dim, config.merge_kernel)
        self.merge = nn.Linear(2 * dim, dim)
        self.feed_forward = _feed_forward(config)
        self.norm = layer_norm(dim)
        self.dropout = Dropout(config.dropout, inplace=True)

    def forward(self, x: Tensor, layout: Layout, positions: Tensor) -> Tensor:
        """Run the block.

        Args:
            x: (M, D) packed frames.
            layout: Where they are in the batch.
            positions: (2T-1, D) encodings of distances.

        Returns:
            (M, D).
        """
        if self.macaron is not None:
            x = torch.add(x, self.macaron(x), alpha=self.ff_scale)
        attended = self.dropout(self.attention(self.attention_norm(x), layout, positions))
        gated = self.dropout(self.mlp(self.mlp_norm(x), layout))
        both = torch.cat([attended, gated], dim=-1)
        merged = both + layout.pack(self.merge_depthwise(layout.unpack(both)))
        x = x + self.dropout(self.merge(merged))
        x = torch.add(x, self.feed_forward(x), alpha=self.ff_scale)
        return self.norm(x)
