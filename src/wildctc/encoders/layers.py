"""The layers that both encoders share.

Several avoid operations at which torch is slow on a CPU (measured in benchmarks/encoders.py): depthwise convolution in
its usual memory order, drawing dropout masks, attention with a bias that needs a gradient.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wildctc.encoders.settings import CONV_WIDTH, STRIDES, BaseEncoderConfig
from wildctc.errors import WildCTCError


class Layout:
    """Which frames of a batch are padding.

    Attributes:
        size: (N, T).
        index: (M,) the places of the M frames that are packed, in the flattened batch; None if all are.
        key_mask: (N, 1, T), to be added to attention scores: -inf for padding, else 0. None without padding.
    """

    def __init__(self, lengths: Tensor, frames: int, like: Tensor, *, keep_padding: bool) -> None:
        """Find the padding of a batch.

        Args:
            lengths: (N,) frames of each row.
            frames: T, the frames of the batch.
            like: A tensor with the type and device of the batch.
            keep_padding: Whether padding is packed as if it were speech.
        """
        self.size = (len(lengths), frames)
        self.index: Tensor | None = None
        self.key_mask: Tensor | None = None
        if int(lengths.min()) < frames:
            padding = padding_mask(lengths, frames, like.device)
            self.key_mask = like.new_zeros(self.size).masked_fill_(padding, -torch.inf).unsqueeze(1)
            if not keep_padding:
                self.index = (~padding).flatten().nonzero().squeeze(1)

    def pack(self, x: Tensor) -> Tensor:
        """Remove padding.

        Args:
            x: (N, T, D).

        Returns:
            (M, D), the frames of all rows.
        """
        x = x.flatten(0, 1)
        return x if self.index is None else _Gather.apply(x, self.index)

    def unpack(self, x: Tensor) -> Tensor:
        """Add padding again.

        Args:
            x: (M, D).

        Returns:
            (N, T, D), 0 in padding.
        """
        if self.index is not None:
            rows = self.size[0] * self.size[1]
            x = x.new_zeros(rows, x.size(1)).index_copy_(0, self.index, x)
        return x.unflatten(0, self.size)


def padding_mask(lengths: Tensor, frames: int, device: torch.device) -> Tensor:
    """Mark the padding of a batch.

    Args:
        lengths: (N,) frames of each row.
        frames: T, the frames of the batch.
        device: Where the result should be.

    Returns:
        (N, T) bool, True after the end of a row.
    """
    return torch.arange(frames, device=device) >= lengths.to(device)[:, None]


class _Gather(torch.autograd.Function):
    """x[index] for an index without repeats: the gradient is copied, where torch would add row by row."""

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
    """Dropout that uses 16 random bits per element on a CPU, four from each draw: several times faster than torch's."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements in training.

        Args:
            x: Of any shape.

        Returns:
            The same shape; x itself, changed, if the layer is in-place.
        """
        if x.device.type != "cpu" or not self.training or self.p == 0:
            return super().forward(x)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        keep = torch.empty(x.shape, dtype=x.dtype)
        torch.ge(draws[: x.numel()].view(x.shape), round(self.p * 2**16) - 2**15, out=keep)
        keep.mul_(1 / (1 - self.p))
        return x.mul_(keep) if self.inplace else x * keep


class Attention(nn.Module):
    """Self-attention with relative positions: score(i, j) = (q_i + u)·k_j + (q_i + v)·p_{i-j}, scaled."""

    def __init__(self, config: BaseEncoderConfig) -> None:
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
        """Attend to all frames of the same row.

        Args:
            x: (M, D) packed frames.
            layout: Where they are in the batch.
            positions: (2T-1, D) encodings of distances, from T-1 to -(T-1).

        Returns:
            (M, D).
        """
        # heads are the first dimension, so that positions, which all utterances share, take one matrix product per head
        qkv = layout.unpack(self.qkv(x)).unflatten(2, (3, self.heads, -1)).permute(2, 3, 0, 1, 4)
        q, k, v = qkv.unbind(0)  # (H, N, T, d)
        scale = q.size(-1) ** -0.5
        q = q * scale
        by_content = q + (self.content_bias * scale)[:, None, None]
        by_position = q + (self.position_bias * scale)[:, None, None]
        p = self.position(positions).unflatten(1, (self.heads, -1)).permute(1, 2, 0)  # (H, d, 2T-1)
        scores = torch.bmm(by_position.flatten(1, 2), p).unflatten(1, layout.size)
        bias = _relative_to_absolute(scores)
        if layout.key_mask is not None:
            bias = bias + layout.key_mask
        y = self._attend(by_content, k, v, bias)
        return self.out(layout.pack(y.permute(1, 2, 0, 3).flatten(2)))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        if q.device.type != "cpu" or not torch.is_grad_enabled():
            dropout = self.dropout.p if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=1.0)
        # torch has no fused kernel on a CPU for a bias that needs a gradient; its fallback does the same, but slower
        size, (q, k, v, bias) = q.shape, (t.flatten(0, 1) for t in (q, k, v, bias))
        weights = torch.baddbmm(bias, q, k.transpose(1, 2)).softmax(-1)
        return torch.bmm(self.dropout(weights), v).view(size)


def _relative_to_absolute(x: Tensor) -> Tensor:
    """View scores by distance, (H, N, T, 2T-1), as scores by key, (H, N, T, T): row i starts at column T-1-i."""
    heads, batch, frames, width = x.shape
    if torch.compiler.is_exporting():  # ONNX has no strides: the same by a column of zeros, which shifts the rows
        return F.pad(x, (1, 0)).flatten(2)[:, :, frames:].reshape(x.shape)[..., :frames]
    x = x.contiguous()
    size, strides = (heads, batch, frames, frames), (batch * frames * width, frames * width, width - 1, 1)
    return x.as_strided(size, strides, x.storage_offset() + frames - 1)


class DepthwiseConv(nn.Conv1d):
    """A convolution along time, separately for each channel."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(channels, channels, kernel, padding=kernel // 2, groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve along time.

        Args:
            x: (N, T, C).

        Returns:
            (N, T, C).
        """
        # a 2-d convolution of height 1 in channels-last order needs no transposes: several times faster on a CPU
        image = x.unsqueeze(1).permute(0, 3, 1, 2)
        y = F.conv2d(
            image, self.weight.unsqueeze(2), self.bias, padding=(0, self.kernel_size[0] // 2), groups=self.groups
        )
        return y.permute(0, 2, 3, 1).squeeze(1)


def layer_norm(dim: int) -> nn.LayerNorm:
    """Make a layer norm with ESPnet's epsilon.

    Args:
        dim: The width of its input.

    Returns:
        The layer.
    """
    return nn.LayerNorm(dim, eps=1e-12)


class _WindowConv(nn.Conv1d):
    """A convolution along time, (N, T, C) -> (N, T', D), as one matrix product over windows, without transposes."""

    def forward(self, x: Tensor) -> Tensor:
        (stride,) = self.stride
        end = stride * (conv_length(x.size(1), stride) - 1) + 1
        windows = torch.cat([x[:, i : i + end : stride] for i in range(CONV_WIDTH)], dim=-1)
        return F.linear(windows, self.weight.transpose(1, 2).flatten(1), self.bias)


class Subsampling(nn.Module):
    """Reduces the frame rate. Its convolutions have no padding, so a frame depends on frames of its own row only."""

    def __init__(self, config: BaseEncoderConfig) -> None:
        super().__init__()
        dim, features, strides = config.d_model, config.input_dim, STRIDES[config.subsampling]
        self.picture = bool(strides) and config.subsampling_conv == "conv2d"
        conv, channels = (nn.Conv2d, 1) if self.picture else (_WindowConv, features)
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
        """Subsample features.

        Args:
            x: (N, T, F).

        Returns:
            (N, T', D).
        """
        if self.picture:
            return self.out(self.convs(x.unsqueeze(1)).transpose(1, 2).flatten(2))
        return self.out(self.convs(x))


def conv_length(length: Any, stride: int) -> Any:
    """Count the output frames of a convolution without padding.

    Args:
        length: Frames of the input, an int or a tensor.
        stride: Of the convolution, whose width is CONV_WIDTH.

    Returns:
        Frames of the output, of the type of `length`.
    """
    return (length - CONV_WIDTH) // stride + 1
