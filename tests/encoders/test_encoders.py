"""The encoders: ESPnet's numbers, independence of padding, gradients, errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wildctc.encoders.encoder import Encoder, make_encoder
from wildctc.encoders.espnet import from_espnet
from wildctc.encoders.layers import Attention, DepthwiseConv, Dropout, Layout
from wildctc.errors import WildCTCError

KINDS = ["conformer", "e_branchformer"]
SMALL = {"input_dim": 24, "d_model": 16, "heads": 2, "blocks": 2, "ff_dim": 32, "kernel": 7}
SUBSAMPLINGS = [(1, "conv2d"), (2, "conv2d"), (4, "conv2d"), (2, "conv1d"), (4, "conv1d")]


pytestmark = pytest.mark.usefixtures("one_thread")


def small(kind: str, **changes: object) -> Encoder:
    torch.manual_seed(1)
    if kind == "e_branchformer":
        changes = {"cgmlp_dim": 48, "merge_kernel": 5} | changes
    encoder = make_encoder(kind, **(SMALL | changes))  # type: ignore[arg-type]
    for parameter in encoder.parameters():  # so that no bias is 0, no gate open and no norm the identity
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder


def golden(kind: str) -> tuple[dict, dict[str, Tensor], dict[str, Tensor]]:
    with np.load(Path(__file__).parents[1] / "golden" / f"espnet_{kind}.npz") as z:
        weights = {name[3:]: torch.from_numpy(z[name]) for name in z.files if name.startswith("sd.")}
        data = {name: torch.from_numpy(z[name]) for name in ("x", "x_lengths", "y", "y_lengths")}
        return json.loads(bytes(z["config"])), weights, data


@pytest.mark.parametrize("grad", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("kind", KINDS)
def test_reproduces_espnet_when_padding_like_espnet(kind: str, grad: bool) -> None:
    config, weights, data = golden(kind)
    encoder = from_espnet(config, weights, pad_like_espnet=True)
    with torch.set_grad_enabled(grad):  # two ways through attention
        y, y_lengths = encoder(data["x"], data["x_lengths"])
    assert torch.equal(y_lengths, data["y_lengths"])
    torch.testing.assert_close(y.detach(), data["y"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_espnet_weights_give_espnets_output_of_each_utterance_alone(kind: str) -> None:
    """ESPnet's output of the longest row is untouched by padding; ours of every row is what the switch gives alone."""
    config, weights, data = golden(kind)
    ours, theirs = from_espnet(config, weights), from_espnet(config, weights, pad_like_espnet=True)
    y, y_lengths = ours(data["x"], data["x_lengths"])
    assert y_lengths.tolist() == [14, 11, 7]
    torch.testing.assert_close(y[0], data["y"][0], atol=1e-5, rtol=0)
    for n, length in enumerate(data["x_lengths"].tolist()):
        alone, _ = theirs(data["x"][n : n + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(y[n, : y_lengths[n]], alone[0], atol=1e-5, rtol=0)


def test_espnet_weights_of_a_whole_model_load_by_their_prefix() -> None:
    config, weights, data = golden("conformer")
    whole = {f"encoder.{name}": tensor for name, tensor in weights.items()} | {"ctc.ctc_lo.bias": torch.zeros(5)}
    y, _ = from_espnet(config, whole, pad_like_espnet=True)(data["x"], data["x_lengths"])
    torch.testing.assert_close(y.detach(), data["y"], atol=1e-5, rtol=0)


def test_espnet_settings_that_we_do_not_have_are_refused() -> None:
    config, weights, _ = golden("e_branchformer")
    with pytest.raises(WildCTCError, match="rel_pos_type 'legacy' is not supported; 'latest' is"):
        from_espnet(config | {"rel_pos_type": "legacy"}, weights)
    with pytest.raises(WildCTCError, match="input_layer 'conv2d8'"):
        from_espnet(config | {"input_layer": "conv2d8"}, weights)
    with pytest.raises(WildCTCError, match=r"nothing for blocks\.2"):
        from_espnet(config | {"num_blocks": 3}, weights)
    with pytest.raises(WildCTCError, match=r"macaron\.1\.weight is \(32, 16\), the configuration says \(64, 16\)"):
        from_espnet(config | {"linear_units": 64}, weights)


@pytest.mark.parametrize(("subsampling", "conv"), SUBSAMPLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_do_not_depend_on_batch_or_padding(kind: str, subsampling: int, conv: str) -> None:
    encoder = small(kind, subsampling=subsampling, subsampling_conv=conv).eval()
    lengths = torch.tensor([9, 40, 7, 33, 8])
    rows = [torch.randn(length, 24) for length in lengths.tolist()]

    def gradients(*batches: tuple[Tensor, Tensor]) -> list[Tensor]:
        encoder.zero_grad()
        for x, x_lengths in batches:
            encoder(x, x_lengths)[0].square().sum().backward()
        return [parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None]

    x = torch.full((5, 50, 24), torch.nan)  # padding beyond the batch too, and nothing of it may be read
    for n, row in enumerate(rows):
        x[n, : len(row)] = row
    y, y_lengths = encoder(x, lengths)
    assert y.shape == (5, int(encoder.output_lengths(torch.tensor([40]))), 16)
    for n, row in enumerate(rows):
        alone, alone_length = encoder(row[None], lengths[n : n + 1])
        assert alone_length == y_lengths[n] == alone.size(1)
        torch.testing.assert_close(y[n, : y_lengths[n]], alone[0], atol=2e-5, rtol=1e-4)
        assert not y[n, y_lengths[n] :].any()
    together, one_by_one = gradients((x, lengths)), gradients(*((row[None], torch.tensor([len(row)])) for row in rows))
    assert len(together) == len(list(encoder.parameters()))
    for a, b in zip(together, one_by_one, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4 * float(b.abs().max()) + 1e-6, rtol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=st.lists(st.integers(7, 60), min_size=1, max_size=6), extra=st.integers(0, 20), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_row_of_any_batch_is_as_if_alone(kind: str, lengths: list[int], extra: int, seed: int) -> None:
    encoder = small(kind).eval()
    torch.manual_seed(seed)
    x = 100 * torch.randn(len(lengths), max(lengths) + extra, 24)  # whatever lies in the padding
    with torch.no_grad():
        y, y_lengths = encoder(x, torch.tensor(lengths))
        for n, length in enumerate(lengths):
            alone, _ = encoder(x[n : n + 1, :length], torch.tensor([length]))
            torch.testing.assert_close(y[n, : y_lengths[n]], alone[0], atol=1e-4, rtol=1e-3)


def test_batch_statistics_leave_padding_out() -> None:
    encoder = small("conformer")
    seen = []
    encoder.blocks[1].convolution.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoder(torch.randn(2, 40, 24), torch.tensor([40, 20]))
    assert seen[0].shape == (9 + 4, 16)
    mean = seen[0].detach().mean(0)
    torch.testing.assert_close(encoder.blocks[1].convolution.norm.running_mean, 0.1 * mean)


@pytest.mark.parametrize("kind", KINDS)
def test_training_reaches_every_parameter_and_reruns_are_bit_identical(kind: str) -> None:
    def train() -> tuple[Tensor, list[Tensor]]:
        encoder = small(kind)
        torch.manual_seed(2)
        y, _ = encoder(torch.randn(3, 40, 24), torch.tensor([40, 35, 20]))
        y.square().sum().backward()
        return y, [parameter.grad for parameter in encoder.parameters()]

    (y, gradients), (again, gradients_again) = train(), train()
    assert torch.equal(y, again)
    for gradient, gradient_again in zip(gradients, gradients_again, strict=True):
        assert gradient.abs().sum() > 0
        assert torch.equal(gradient, gradient_again)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_bfloat16_autocast_trains_and_stays_close(kind: str, training: bool) -> None:
    encoder = small(kind, dropout=0.1 if training else 0.0, attention_dropout=0.1 if training else 0.0).train(training)
    x, lengths = torch.randn(3, 40, 24), torch.tensor([40, 35, 20])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = encoder(x, lengths)
        y.float().square().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())
    if not training:
        exact, _ = encoder(x, lengths)
        assert (y.float() - exact).norm() < 0.05 * exact.norm()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert (encoder(x, lengths)[0].float() - exact).norm() < 0.05 * exact.norm()


def test_attention_is_softmax_of_content_and_distance_scores() -> None:
    """The equation of relative attention, pair by pair, on a batch of one head and one row."""
    encoder = small("conformer", heads=1, blocks=1, subsampling=1)
    attention: Attention = encoder.blocks[0].attention.eval()
    x, frames = torch.randn(6, 16), 6
    layout = Layout(torch.tensor([frames]), frames, x, keep_padding=False)
    y = attention(x, layout, encoder.positions_for(frames))
    q, k, v = attention.qkv(x).chunk(3, dim=1)
    scores = torch.empty(frames, frames)
    for i in range(frames):
        for j in range(frames):
            angle = (i - j) * 10000 ** (-torch.arange(0, 16, 2) / 16)
            p = attention.position(torch.stack([angle.sin(), angle.cos()], dim=1).flatten())
            content, position = (q[i] + attention.content_bias) @ k[j], (q[i] + attention.position_bias) @ p
            scores[i, j] = (content + position) / 4
    torch.testing.assert_close(y, attention.out(scores.softmax(1) @ v), atol=1e-5, rtol=1e-5)


def test_utterances_longer_than_the_table_of_positions_extend_it() -> None:
    encoder = small("conformer", blocks=1, subsampling=1).eval()
    x = torch.randn(1, 600, 24)
    before = encoder(x[:, :20], torch.tensor([20]))[0]
    assert encoder(x, torch.tensor([600]))[0].shape == (1, 600, 16)
    assert torch.equal(encoder(x[:, :20], torch.tensor([20]))[0], before)
    assert "positions" not in encoder.state_dict()


def test_depthwise_convolution_equals_conv1d() -> None:
    torch.manual_seed(0)
    conv, x = DepthwiseConv(6, 5), torch.randn(3, 11, 6)
    expected = torch.nn.functional.conv1d(x.transpose(1, 2), conv.weight, conv.bias, padding=2, groups=6)
    torch.testing.assert_close(conv(x), expected.transpose(1, 2))


def test_dropout_drops_at_its_rate_independently_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    dropout, x = Dropout(0.1), torch.ones(1001, 999, requires_grad=True)
    y = dropout(x)
    dropped = y == 0
    assert abs(float(dropped.float().mean()) - 0.1) < 0.002
    assert abs(float(y.detach().mean()) - 1) < 0.002
    for lag in range(1, 9):  # four elements come from one draw
        both = (dropped.flatten()[lag:] & dropped.flatten()[:-lag]).float().mean()
        assert abs(float(both) - 0.01) < 0.0006
    for column in range(4):
        assert abs(float(dropped.flatten()[column::4].float().mean()) - 0.1) < 0.003
    y.sum().backward()
    assert torch.equal(x.grad == 0, dropped)
    assert dropout.eval()(x) is x


@pytest.mark.parametrize(("subsampling", "shortest"), [(1, 1), (2, 7), (4, 7)])
def test_too_short_input_is_an_error_that_names_the_row(subsampling: int, shortest: int) -> None:
    encoder = small("e_branchformer", subsampling=subsampling).eval()
    x = torch.randn(3, 20, 24)
    y, y_lengths = encoder(x, torch.tensor([20, shortest, 20]))
    assert y_lengths[1] == 1
    assert torch.isfinite(y).all()
    for length in {0, shortest - 1}:
        with pytest.raises(WildCTCError, match=f"row 1 of the batch: {length} frames are too few .* needs {shortest}"):
            encoder(x, torch.tensor([20, length, 3]))
    assert encoder.output_lengths(torch.tensor([20, shortest - 1, 0]))[1:].tolist() == [0, 0]


def test_wrong_shapes_and_settings_are_errors_in_one_line() -> None:
    encoder = small("conformer")
    with pytest.raises(WildCTCError, match=r"features \(N, T, 24\), got \(2, 20, 23\)"):
        encoder(torch.randn(2, 20, 23), torch.tensor([20, 20]))
    with pytest.raises(WildCTCError, match="row 1 of the batch: length 21 exceeds the 20 frames"):
        encoder(torch.randn(2, 20, 24), torch.tensor([20, 21]))
    with pytest.raises(WildCTCError, match="one length for each of 2 rows"):
        encoder(torch.randn(2, 20, 24), torch.tensor([20]))
    with pytest.raises(WildCTCError, match="unknown encoder 'transformer'; choose one of conformer, e_branchformer"):
        make_encoder("transformer", input_dim=80)  # type: ignore[arg-type]
    with pytest.raises(WildCTCError, match="conformer has no setting 'cgmlp_dim'"):
        make_encoder("conformer", input_dim=80, cgmlp_dim=512)
    for wrong in ({"heads": 3}, {"kernel": 30}, {"subsampling": 3}, {"dropout": 1.0}, {"subsampling_conv": "conv3d"}):
        with pytest.raises(WildCTCError, match=next(iter(wrong))):
            make_encoder("conformer", input_dim=80, d_model=256, **wrong)
    with pytest.raises(WildCTCError, match="conv1d"):
        make_encoder("conformer", input_dim=6)


def test_defaults_are_those_of_the_papers_experiments() -> None:
    """Specification §8, and so the size of the paper's encoders."""
    config = make_encoder("e_branchformer", input_dim=80, blocks=1).config
    assert (config.d_model, config.heads, config.ff_dim, config.cgmlp_dim) == (256, 4, 1024, 1024)
    assert (config.kernel, config.merge_kernel, config.macaron, config.dropout) == (31, 31, True, 0.1)
    assert config.subsampling == 4
    assert type(config).__dataclass_fields__["blocks"].default == 12
