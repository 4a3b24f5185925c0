"""The layers that both encoders share, and their blocks.

Several are written around what torch is slow at on a CPU (measured in benchmarks/encoders.py): depthwise convolution
in its usual order, drawing dropout masks, attention with a bias that needs a gradient.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wildctc.encoders.settings import CONV_WIDTH, STRIDES, ConformerConfig, EBranchformerConfig, EncoderConfig
from wildctc.errors import WildCTCError


class Layout:
    """Where the frames of a batch are: `pack` (N, T, D) -> (M, D) and `unpack` back, padding becoming zeros.

    With `keep_padding` the padding is packed as if it were speech. `key_mask` (N, 1, T), to be added to attention
    scores, is -inf on padding either way; it is None where there is none.
    """

    def __init__(self, lengths: Tensor, frames: int, like: Tensor, *, keep_padding: bool) -> None:
        self.size = (len(lengths), frames)
        self.index: Tensor | None = None
        self.key_mask: Tensor | None = None
        if int(lengths.min()) < frames:
            padding = padding_mask(lengths, frames, like.device)
            self.key_mask = like.new_zeros(self.size).masked_fill_(padding, -torch.inf).unsqueeze(1)
            if not keep_padding:
                self.index = (~padding).flatten().nonzero().squeeze(1)

    def pack(self, x: Tensor) -> Tensor:
        x = x.flatten(0, 1)
        return x if self.index is None else Gather.apply(x, self.index)

    def unpack(self, x: Tensor) -> Tensor:
        if self.index is not None:
            rows = self.size[0] * self.size[1]
            x = x.new_zeros(rows, x.size(1)).index_copy_(0, self.index, x)
        return x.unflatten(0, self.size)


def padding_mask(lengths: Tensor, frames: int, device: torch.device) -> Tensor:
    """(N, frames), True past the length of a row."""
    return torch.arange(frames, device=device) >= lengths.to(device)[:, None]


class Gather(torch.autograd.Function):
    """x[index] for an index without repeats: the gradient is a copy, where torch must add, row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = x.size(0)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, grad.size(1)).index_copy_(0, index, grad), None


class Dropout(nn.Dropout):
    """Dropout that on a CPU takes 16 random bits an element, four to a draw: several times faster than torch's."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not self.training or self.p == 0:
            return super().forward(x)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        keep = torch.empty(x.shape, dtype=x.dtype)
        torch.ge(draws[: x.numel()].view(x.shape), round(self.p * 2**16) - 2**15, out=keep)
        keep.mul_(1 / (1 - self.p))
        return x.mul_(keep) if self.inplace else x * keep


class Attention(nn.Module):
    """Self-attention with relative positions: score(i, j) = (q_i + u)·k_j + (q_i + v)·p_{i-j}, scaled."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        dim, self.heads = config.d_model, config.heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.position = nn.Linear(dim, dim, bias=False)
        self.content_bias = nn.Parameter(torch.empty(self.heads, dim // self.heads))
        self.position_bias = nn.Parameter(torch.empty(self.heads, dim // self.heads))
        self.dropout = Dropout(config.attention_dropout)
        self.out = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.content_bias)
        nn.init.xavier_uniform_(self.position_bias)

    def forward(self, x: Tensor, layout: Layout, positions: Tensor) -> Tensor:
        """x (M, D), positions (2T-1, D) for keys T-1 frames before to T-1 after -> (M, D)."""
        # Heads come first, so that one matrix product per head meets the positions, which all utterances share.
        qkv = layout.unpack(self.qkv(x)).unflatten(2, (3, self.heads, -1)).permute(2, 3, 0, 1, 4)
        q, k, v = qkv.unbind(0)  # (H, N, T, d)
        scale = q.size(-1) ** -0.5
        q = q * scale
        by_content = q + (self.content_bias * scale)[:, None, None]
        by_position = q + (self.position_bias * scale)[:, None, None]
        p = self.position(positions).unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (H, d, 2T-1)
        scores = torch.bmm(by_position.flatten(1, 2), p).unflatten(1, layout.size)
        bias = relative_to_absolute(scores)
        if layout.key_mask is not None:
            bias = bias + layout.key_mask
        y = self.attend(by_content, k, v, bias)
        return self.out(layout.pack(y.permute(1, 2, 0, 3).flatten(2)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        if q.device.type != "cpu" or not torch.is_grad_enabled():
            dropout = self.dropout.p if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=1.0)
        # For a bias that needs a gradient torch has no fused kernel on a CPU; its fallback does this, only slower.
        size, (q, k, v, bias) = q.shape, (t.flatten(0, 1) for t in (q, k, v, bias))
        weights = torch.baddbmm(bias, q, k.transpose(1, 2)).softmax(-1)
        return torch.bmm(self.dropout(weights), v).view(size)


def relative_to_absolute(x: Tensor) -> Tensor:
    """(H, N, T, 2T-1) by distance -> (H, N, T, T) by key: row i starts at column T-1-i. A view, nothing is copied."""
    heads, batch, frames, width = x.shape
    x = x.contiguous()
    size, strides = (heads, batch, frames, frames), (batch * frames * width, frames * width, width - 1, 1)
    return x.as_strided(size, strides, x.storage_offset() + frames - 1)


class DepthwiseConv(nn.Conv1d):
    """A convolution along time for each channel by itself, (N, T, C) -> (N, T, C)."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(channels, channels, kernel, padding=kernel // 2, groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        # As a 2-d convolution of height 1 in channels-last order it needs no transposes, several times faster on a CPU.
        image = x.unsqueeze(1).permute(0, 3, 1, 2)
        y = F.conv2d(
            image, self.weight.unsqueeze(2), self.bias, padding=(0, self.kernel_size[0] // 2), groups=self.groups
        )
        return y.permute(0, 2, 3, 1).squeeze(1)


def layer_norm(dim: int) -> nn.LayerNorm:
    return nn.LayerNorm(dim, eps=1e-12)  # ESPnet's


def feed_forward(config: EncoderConfig) -> nn.Sequential:
    return nn.Sequential(
        layer_norm(config.d_model),
        nn.Linear(config.d_model, config.ff_dim),
        nn.SiLU(),
        Dropout(config.dropout, inplace=True),
        nn.Linear(config.ff_dim, config.d_model),
        Dropout(config.dropout, inplace=True),
    )


class Convolution(nn.Module):
    """Gated pointwise convolution, depthwise convolution, batch norm, pointwise convolution."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        dim = config.d_model
        self.expand = nn.Linear(dim, 2 * dim)
        self.depthwise = DepthwiseConv(dim, config.kernel)
        self.norm = nn.BatchNorm1d(dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        x = layout.unpack(F.glu(self.expand(x)))
        return self.out(F.silu(self.norm(layout.pack(self.depthwise(x)))))


class ConformerBlock(nn.Module):
    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        dim = config.d_model
        self.ff_scale = 0.5 if config.macaron else 1.0
        self.macaron = feed_forward(config) if config.macaron else None
        self.attention_norm = layer_norm(dim)
        self.attention = Attention(config)
        self.convolution_norm = layer_norm(dim)
        self.convolution = Convolution(config)
        self.feed_forward = feed_forward(config)
        self.norm = layer_norm(dim)
        self.dropout = Dropout(config.dropout, inplace=True)

    def forward(self, x: Tensor, layout: Layout, positions: Tensor) -> Tensor:
        if self.macaron is not None:
            x = torch.add(x, self.macaron(x), alpha=self.ff_scale)
        x = x + self.dropout(self.attention(self.attention_norm(x), layout, positions))
        x = x + self.dropout(self.convolution(self.convolution_norm(x), layout))
        x = torch.add(x, self.feed_forward(x), alpha=self.ff_scale)
        return self.norm(x)


class GatingMLP(nn.Module):
    """cgMLP: half of the channels, convolved along time, gate the other half."""

    def __init__(self, config: EBranchformerConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.d_model, config.cgmlp_dim)
        self.norm = layer_norm(config.cgmlp_dim // 2)
        self.depthwise = DepthwiseConv(config.cgmlp_dim // 2, config.kernel)
        self.dropout = Dropout(config.dropout, inplace=True)
        self.out = nn.Linear(config.cgmlp_dim // 2, config.d_model)
        if not self.depthwise.weight.is_meta:  # which has no numbers, and would make torch import for two seconds
            nn.init.normal_(self.depthwise.weight, std=1e-6)  # starts as a gate that is open, as the cgMLP paper has it
        nn.init.ones_(self.depthwise.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        x, gate = F.gelu(self.expand(x)).chunk(2, dim=-1)
        gate = layout.pack(self.depthwise(layout.unpack(self.norm(gate))))
        return self.out(self.dropout(x * gate))


class EBranchformerBlock(nn.Module):
    def __init__(self, config: EBranchformerConfig) -> None:
        super().__init__()
        dim = config.d_model
        self.ff_scale = 0.5 if config.macaron else 1.0
        self.macaron = feed_forward(config) if config.macaron else None
        self.attention_norm = layer_norm(dim)
        self.attention = Attention(config)
        self.mlp_norm = layer_norm(dim)
        self.mlp = GatingMLP(config)
        self.merge_depthwise = DepthwiseConv(2 * dim, config.merge_kernel)
        self.merge = nn.Linear(2 * dim, dim)
        self.feed_forward = feed_forward(config)
        self.norm = layer_norm(dim)
        self.dropout = Dropout(config.dropout, inplace=True)

    def forward(self, x: Tensor, layout: Layout, positions: Tensor) -> Tensor:
        if self.macaron is not None:
            x = torch.add(x, self.macaron(x), alpha=self.ff_scale)
        attended = self.dropout(self.attention(self.attention_norm(x), layout, positions))
        gated = self.dropout(self.mlp(self.mlp_norm(x), layout))
        both = torch.cat([attended, gated], dim=-1)
        merged = both + layout.pack(self.merge_depthwise(layout.unpack(both)))
        x = x + self.dropout(self.merge(merged))
        x = torch.add(x, self.feed_forward(x), alpha=self.ff_scale)
        return self.norm(x)


class WindowConv(nn.Conv1d):
    """A convolution along time, (N, T, C) -> (N, T', D), as one matrix product over windows: no transposes."""

    def forward(self, x: Tensor) -> Tensor:
        (stride,) = self.stride
        end = stride * (conv_length(x.size(1), stride) - 1) + 1
        windows = torch.cat([x[:, i : i + end : stride] for i in range(CONV_WIDTH)], dim=-1)
        return F.linear(windows, self.weight.transpose(1, 2).flatten(1), self.bias)


class Subsampling(nn.Module):
    """(N, T, F) -> (N, T', D). Convolutions without padding: a frame that is kept has only seen frames of its row."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        dim, features, strides = config.d_model, config.input_dim, STRIDES[config.subsampling]
        self.picture = bool(strides) and config.subsampling_conv == "conv2d"
        conv, channels = (nn.Conv2d, 1) if self.picture else (WindowConv, features)
        self.convs = nn.Sequential()
        for stride in strides:
            self.convs.extend([conv(channels, dim, CONV_WIDTH, stride), nn.ReLU()])
            channels, features = dim, conv_length(features, stride)
        if not strides:
            layers = (nn.Linear(config.input_dim, dim), nn.LayerNorm(dim), Dropout(config.dropout))
            self.out: nn.Module = nn.Sequential(*layers)
        elif self.picture and features < 1:
            raise WildCTCError(f"input_dim {config.input_dim} is too small for conv2d; set subsampling_conv: conv1d")
        else:
            self.out = nn.Linear(dim * features if self.picture else dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        if self.picture:
            return self.out(self.convs(x.unsqueeze(1)).transpose(1, 2).flatten(2))
        return self.out(self.convs(x))


def conv_length(length: Any, stride: int) -> Any:
    """Frames left of `length` (an int or a tensor of them) by a convolution without padding."""
    return (length - CONV_WIDTH) // stride + 1
