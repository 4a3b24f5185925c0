"""Our encoders against a straightforward implementation of the same equations, forward and backward, one thread.

    python benchmarks/encoders.py

Both compute the same numbers from the same weights (checked first, in evaluation mode). The straightforward one works
on the padded batch with masks, (N, C, T) depthwise convolutions, softmax(QKᵀ + rel_shift) and torch's dropout. The two
take turns; a cell is the least CPU time of several turns, since other processes may disturb any one of them.

With --espnet the other one is ESPnet's own encoder, which takes its dependencies: E-Branchformer of 12 blocks of 256, a
batch of 4 x 10 s.
"""

import argparse
import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wildctc.encoders.blocks import Convolution, GatingMLP
from wildctc.encoders.encoder import Encoder, make_encoder
from wildctc.encoders.espnet import from_espnet
from wildctc.encoders.layers import Attention, Dropout, Layout

SMALL = {"d_model": 144, "blocks": 4, "ff_dim": 576, "input_dim": 288, "subsampling": 2, "subsampling_conv": "conv1d"}
LARGE = {"input_dim": 80}


class Plain:
    """The equations as one would first write them, on the weights of one of our encoders."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.config = encoder, encoder.config

    def __call__(self, x: Tensor, x_lengths: Tensor) -> tuple[Tensor, Tensor]:
        encoder, lengths = self.encoder, self.encoder.output_lengths(x_lengths)
        if self.config.subsampling_conv == "conv2d":
            x = x.unsqueeze(1)
            for conv in list(encoder.subsampling.convs)[::2]:
                x = F.relu(F.conv2d(x, conv.weight, conv.bias, conv.stride))
            x = x.transpose(1, 2).flatten(2)
        else:
            x = x.transpose(1, 2)
            for conv in list(encoder.subsampling.convs)[::2]:
                x = F.relu(F.conv1d(x, conv.weight, conv.bias, conv.stride))
            x = x.transpose(1, 2)
        x = self.dropout(encoder.subsampling.out(x) * math.sqrt(self.config.d_model))
        positions = self.dropout(encoder.positions_for(x.size(1)))
        speech = torch.arange(x.size(1)) < lengths[:, None]
        for block in encoder.blocks:
            x = self.block(block, x, positions, speech)
        return encoder.norm(x).masked_fill(~speech.unsqueeze(2), 0), lengths

    def dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.encoder.training)

    def block(self, block: nn.Module, x: Tensor, positions: Tensor, speech: Tensor) -> Tensor:
        x = x + block.ff_scale * self.feed_forward(block.macaron, x)
        attended = self.dropout(self.attention(block.attention, block.attention_norm(x), positions, speech))
        if hasattr(block, "convolution"):
            x = x + attended
            x = x + self.dropout(self.convolution(block.convolution, block.convolution_norm(x), speech))
        else:
            gated = self.dropout(self.gating_mlp(block.mlp, block.mlp_norm(x), speech))
            both = torch.cat([attended, gated], dim=-1)
            x = x + self.dropout(block.merge(both + self.depthwise(block.merge_depthwise, both, speech)))
        x = x + block.ff_scale * self.feed_forward(block.feed_forward, x)
        return block.norm(x)

    def feed_forward(self, layers: nn.Module, x: Tensor) -> Tensor:
        norm, first, _, _, second, _ = layers
        return self.dropout(second(self.dropout(F.silu(first(norm(x))))))

    def attention(self, layer: Attention, x: Tensor, positions: Tensor, speech: Tensor) -> Tensor:
        batch, frames, dim = x.shape
        q, k, v = (t.unflatten(2, (layer.heads, -1)) for t in layer.qkv(x).chunk(3, dim=-1))
        p = layer.position(positions).view(1, -1, layer.heads, dim // layer.heads).transpose(1, 2)
        content = (q + layer.content_bias).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        position = self.rel_shift((q + layer.position_bias).transpose(1, 2) @ p.transpose(2, 3))
        scores = (content + position) / math.sqrt(dim // layer.heads)
        scores = scores.masked_fill(~speech[:, None, None], -torch.inf)
        weights = F.dropout(scores.softmax(-1), self.config.attention_dropout, self.encoder.training)
        y = weights @ v.transpose(1, 2)
        return layer.out(y.transpose(1, 2).reshape(batch, frames, dim))

    @staticmethod
    def rel_shift(x: Tensor) -> Tensor:
        """Transformer-XL's trick: pad a column, view the rows one element longer, drop the first."""
        batch, heads, frames, width = x.shape
        x = F.pad(x, (1, 0)).view(batch, heads, width + 1, frames)
        return x[:, :, 1:].reshape(batch, heads, frames, width)[..., :frames]

    def depthwise(self, conv: nn.Conv1d, x: Tensor, speech: Tensor) -> Tensor:
        x = x.masked_fill(~speech.unsqueeze(2), 0).transpose(1, 2)
        return F.conv1d(x, conv.weight, conv.bias, padding=conv.padding, groups=conv.groups).transpose(1, 2)

    def convolution(self, layer: Convolution, x: Tensor, speech: Tensor) -> Tensor:
        x = self.depthwise(layer.depthwise, F.glu(layer.expand(x)), speech)
        normed = torch.zeros_like(x)
        normed[speech] = layer.norm(x[speech])
        return layer.out(F.silu(normed))

    def gating_mlp(self, layer: GatingMLP, x: Tensor, speech: Tensor) -> Tensor:
        x, gate = F.gelu(layer.expand(x)).chunk(2, dim=-1)
        return layer.out(self.dropout(x * self.depthwise(layer.depthwise, layer.norm(gate), speech)))


def seconds(*functions: Callable[[], object], turns: int = 3) -> list[float]:
    """The least CPU time of each function over `turns` turns."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(turns + 1):
        for function, its_times in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            if turn:  # the first one warms up
                its_times.append(time.process_time() - start)
    return [min(its_times) for its_times in times]


def compare(kind: str, batch: int, frames: int, **settings: object) -> tuple[float, float]:
    """Seconds of a training step, plain and ours, on a bucket whose rows are 80 to 100% of the longest."""
    torch.manual_seed(0)
    encoder = make_encoder(kind, **settings)  # type: ignore[arg-type]
    plain = Plain(encoder)
    x = torch.randn(batch, frames, encoder.config.input_dim)
    lengths = torch.linspace(0.8 * frames, frames, batch).long()
    encoder.eval()
    with torch.no_grad():
        assert (encoder(x, lengths)[0] - plain(x, lengths)[0]).abs().max() < 1e-4
    encoder.train()

    def step(model: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        encoder.zero_grad(set_to_none=True)
        model(x, lengths)[0].sum().backward()

    slow, fast = seconds(lambda: step(plain), lambda: step(encoder))
    return slow, fast


def compare_parts() -> list[tuple[str, float, float]]:
    """The same for the parts where the two differ, in the small encoder."""
    torch.manual_seed(0)
    encoder = make_encoder("conformer", **SMALL)  # type: ignore[arg-type]
    plain, block = Plain(encoder), encoder.blocks[0]
    lengths, frames = torch.linspace(78, 98, 16).long(), 98
    padded = torch.randn(16, frames, 144, requires_grad=True)
    speech = torch.arange(frames) < lengths[:, None]
    packed = padded[speech].detach().requires_grad_()
    wide = torch.randn(len(packed), 576, requires_grad=True)
    layout = Layout(lengths, frames, packed, keep_padding=False)
    positions, attention, conv = encoder.positions_for(frames), block.attention, block.convolution.depthwise
    rows: list[tuple[str, Callable[[], Tensor], Callable[[], Tensor]]] = [
        (
            "attention",
            lambda: plain.attention(attention, padded, positions, speech),
            lambda: attention(packed, layout, positions),
        ),
        (
            "depthwise convolution",
            lambda: plain.depthwise(conv, padded, speech),
            lambda: layout.pack(conv(layout.unpack(packed))),
        ),
        ("dropout", lambda: F.dropout(wide, 0.1), lambda: Dropout(0.1)(wide)),
    ]
    return [
        (name, *seconds(lambda f=slow: f().sum().backward(), lambda f=fast: f().sum().backward(), turns=10))
        for name, slow, fast in rows
    ]


def compare_espnet(turns: int) -> tuple[float, float]:
    """Seconds of a training step of ESPnet's E-Branchformer and of ours, with the same weights and the same numbers."""
    from espnet2.asr.encoder.e_branchformer_encoder import EBranchformerEncoder

    torch.manual_seed(0)
    config = {"input_size": 80, "output_size": 256, "num_blocks": 12, "attention_heads": 4, "use_ffn": True}
    config |= {"linear_units": 1024, "cgmlp_linear_units": 1024, "cgmlp_conv_kernel": 31, "merge_conv_kernel": 31}
    config |= {"macaron_ffn": True, "rel_pos_type": "latest", "layer_drop_rate": 0.0, "ffn_activation_type": "swish"}
    config |= {"attention_layer_type": "rel_selfattn", "pos_enc_layer_type": "rel_pos", "attention_dropout_rate": 0.1}
    theirs = EBranchformerEncoder(**config)
    x, lengths = torch.randn(4, 1000, 80), torch.linspace(800, 1000, 4).long()
    with torch.no_grad():
        same = from_espnet(config, theirs.state_dict(), pad_like_espnet=True)
        assert (same(x, lengths)[0] - theirs.eval()(x, lengths)[0]).abs().max() < 1e-4
    ours = from_espnet(config, theirs.state_dict())

    def step(model: nn.Module) -> None:
        model.train().zero_grad(set_to_none=True)
        model(x, lengths)[0].sum().backward()

    slow, fast = seconds(lambda: step(theirs), lambda: step(ours), turns=turns)
    return slow, fast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--espnet", action="store_true", help="compare with ESPnet's own encoder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3, help="with --espnet")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.espnet:
        slow, fast = compare_espnet(options.turns)
        print(f"E-Branchformer, 12 x 256, 4 x 1000 frames: ESPnet {slow:.2f} s, ours {fast:.2f} s: {slow / fast:.2f}x")
        return
    print(f"{'':16}{'size':30}{'batch':10}{'plain ms':>10}{'ours ms':>10}{'ratio':>8}")
    for kind in ("conformer", "e_branchformer"):
        extra = {"cgmlp_dim": 576} if kind == "e_branchformer" else {}
        rows = [
            ("d=144, 4 blocks, conv1d / 2", 16, 200, SMALL | extra),
            ("d=256, 12 blocks, conv2d / 4", 4, 400, LARGE),
        ]
        for size, batch, frames, settings in rows:
            slow, fast = compare(kind, batch, frames, **settings)
            shape = f"{batch} x {frames}"
            print(f"{kind:16}{size:30}{shape:10}{1e3 * slow:10.0f}{1e3 * fast:10.0f}{slow / fast:8.2f}", flush=True)
    for name, slow, fast in compare_parts():
        print(f"  {name:54}{1e3 * slow:10.1f}{1e3 * fast:10.1f}{slow / fast:8.2f}")


if __name__ == "__main__":
    main()
