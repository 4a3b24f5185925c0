"""The settings of an encoder."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from wildctc.errors import WildCTCError

STRIDES: dict[int, tuple[int, ...]] = {1: (), 2: (2, 1), 4: (2, 2)}
CONV_WIDTH = 3
_LARGEST = 1_000_000  # of any setting
MIN_FRAMES = {1: 1, 2: 7, 4: 7}  # the shortest input that gives one frame


@dataclass(frozen=True, kw_only=True)
class BaseEncoderConfig:
    """Settings of both encoders.

    Attributes:
        input_dim: The number of features per frame.
        d_model: The width of the blocks; even, and a multiple of `heads`.
        heads: The number of attention heads.
        blocks: The number of blocks.
        ff_dim: The width of the feed-forward layers.
        kernel: The width of the depthwise convolution, odd.
        macaron: Whether a block begins with a feed-forward layer too, both with half weight.
        dropout: The rate of dropout.
        attention_dropout: The rate of dropout of attention weights.
        subsampling: The divisor of the frame rate. 1 is a linear layer; 2 and 4 are two convolutions of width 3.
        subsampling_conv: "conv2d" treats the features as an image, for filterbanks. "conv1d" mixes all features at
            once, for features of a pretrained model, whose order has no meaning; it is many times cheaper.
    """

    input_dim: int
    d_model: int = 256
    heads: int = 4
    blocks: int = 12
    ff_dim: int = 1024
    kernel: int = 31
    macaron: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    subsampling: Literal[1, 2, 4] = 4
    subsampling_conv: Literal["conv2d", "conv1d"] = "conv2d"

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_number(field.name, field.type, getattr(self, field.name))
        if self.d_model % self.heads or self.d_model % 2:
            raise WildCTCError(f"d_model {self.d_model} must be even and a multiple of heads {self.heads}")
        if self.kernel % 2 == 0:
            raise WildCTCError(f"kernel {self.kernel} must be odd, so that each frame is in the middle of its window")
        if self.subsampling not in STRIDES:
            raise WildCTCError(f"subsampling {self.subsampling} is not one of {', '.join(map(str, STRIDES))}")
        if self.subsampling_conv not in ("conv2d", "conv1d"):
            raise WildCTCError(f"subsampling_conv {str(self.subsampling_conv)[:40]!r} is not one of conv2d, conv1d")
        for rate in (self.dropout, self.attention_dropout):
            if not 0 <= rate < 1:
                raise WildCTCError(f"dropout {rate} is not in [0, 1)")


def _check_number(name: str, kind: Any, value: Any) -> None:
    """Refuse values of a wrong type and absurd sizes: settings may come from a file of a stranger."""
    shown = str(value)[:40]
    if kind is int or name == "subsampling":
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _LARGEST:
            raise WildCTCError(f"{name} must be a whole number from 1 to {_LARGEST:,}, got {shown}")
    elif kind is float and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise WildCTCError(f"{name} must be a number, got {shown}")
    elif kind is bool and not isinstance(value, bool):
        raise WildCTCError(f"{name} must be true or false, got {shown}")


@dataclass(frozen=True, kw_only=True)
class ConformerConfig(BaseEncoderConfig):
    """Settings of a Conformer, whose blocks are feed-forward, attention, convolution, feed-forward."""


@dataclass(frozen=True, kw_only=True)
class EBranchformerConfig(BaseEncoderConfig):
    """Settings of an E-Branchformer: attention and a gating MLP (cgMLP) in parallel, merged by a convolution.

    Attributes:
        cgmlp_dim: The width of the cgMLP, even.
        merge_kernel: The width of the convolution that merges both, odd.
    """

    cgmlp_dim: int = 1024
    merge_kernel: int = 31

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.merge_kernel % 2 == 0 or self.cgmlp_dim % 2:
            raise WildCTCError(f"merge_kernel {self.merge_kernel} must be odd, cgmlp_dim {self.cgmlp_dim} even")
