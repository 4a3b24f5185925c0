"""A recogniser as one ONNX file, from features or from the wave to log-probabilities.

The names of inputs and outputs, the metadata and tokens.txt are those of icefall's CTC models, which sherpa-onnx reads
as `zipformer2_ctc`. It computes the same filterbank as `features.fbank`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wildctc.encoders.encoder import sinusoids
from wildctc.encoders.layers import Layout, padding_mask
from wildctc.encoders.settings import MIN_FRAMES
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.fbank import Fbank
from wildctc.files import make_folder, write_atomically, write_text
from wildctc.recognizer.model import Recognizer
from wildctc.text.units import Units

MOST_DIFFERENCE = 1e-4  # of a log-probability, between PyTorch and ONNX Runtime
MODEL, INT8, TOKENS = "model.onnx", "model.int8.onnx", "tokens.txt"
ONNX_ASR = "onnx-asr"  # the folder of the files for onnx-asr
# The example that is traced. At each stride a frame is left over: from a length without rest, the exporter concludes
# that no length has one, and other lengths then fail. `_compare` tries lengths with every rest.
_FRAMES = 62
_BLANK, _SPACE = "<blk>", "▁"  # how icefall writes them


class _DenseLayout(Layout):
    """Padding is computed like speech and set to 0: packing would need shapes that depend on numbers."""

    def __init__(self, padding: Tensor, like: Tensor) -> None:
        self.size = (like.size(0), like.size(1))
        self.padding = padding.unsqueeze(2)
        self.key_mask = torch.zeros_like(padding, dtype=like.dtype).masked_fill(padding, -torch.inf).unsqueeze(1)

    def pack(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1)

    def unpack(self, x: Tensor) -> Tensor:
        return x.unflatten(0, self.size).masked_fill(self.padding, 0)


class _FromFeatures(nn.Module):
    """(N, T, F) features and (N,) lengths → (N, T', V) log-probabilities and (N,) lengths."""

    def __init__(self, model: Recognizer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, x_lens: Tensor) -> tuple[Tensor, Tensor]:
        model, encoder = self.model, self.model.encoder
        x = model.mix((x - model.mean) / model.std)
        x = x.masked_fill(padding_mask(x_lens, x.size(1), x.device).unsqueeze(2), 0)
        h, lengths = encoder.subsampling(x), encoder.output_lengths(x_lens)
        layout = _DenseLayout(padding_mask(lengths, h.size(1), h.device), h)
        positions = sinusoids(h.size(1), encoder.output_dim)
        h = layout.pack(h) * math.sqrt(encoder.output_dim)
        for block in encoder.blocks:
            h = block(h, layout, positions)
        return model.output(layout.unpack(encoder.norm(h))).log_softmax(-1), lengths


class _FromWave(nn.Module):
    """(1, samples) → (1, T', V) log-probabilities and (1,) their length."""

    def __init__(self, model: Recognizer, front_end: Fbank) -> None:
        super().__init__()
        self.front_end, self.rest = front_end, _FromFeatures(model)

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        x = self.front_end.compute(wave[0]).unsqueeze(0)
        return self.rest(x, torch.full((1,), x.size(1), dtype=torch.int64))


class _Collapsed(nn.Module):
    """`_FromFeatures`, but a frame that repeats the token of the frame before is blank: onnx-asr merges none.

    onnx-asr has no CTC model on this filterbank. It has icefall's transducers, whose greedy search takes the best
    output of each frame. With these outputs that is the greedy search of CTC.
    """

    blank: Tensor

    def __init__(self, inner: _FromFeatures, outputs: int) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("blank", torch.full((outputs,), -100.0).index_fill(0, torch.tensor([0]), 0.0))

    def forward(self, x: Tensor, x_lens: Tensor) -> tuple[Tensor, Tensor]:
        log_probs, lengths = self.inner(x, x_lens)
        best = log_probs.argmax(-1)
        again = (best[:, 1:] == best[:, :-1]) & (best[:, 1:] != 0)
        again = torch.cat([torch.zeros_like(best[:, :1], dtype=torch.bool), again], 1)
        return torch.where(again.unsqueeze(2), self.blank, log_probs), lengths


class _NoPredictor(nn.Module):
    """The predictor of a transducer that does not look at the text: (1, 2) tokens → (1, 1) zeros."""

    def forward(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y[:, :1], dtype=torch.float32)


class _Sum(nn.Module):
    """The joiner of a transducer: (1, V) and (1, 1) → (1, V)."""

    def forward(self, encoder_out: Tensor, decoder_out: Tensor) -> Tensor:
        return encoder_out + decoder_out


def export_onnx(
    model: Recognizer,
    folder: str | Path,
    *,
    wave: bool = False,
    int8: bool = False,
    onnx_asr: bool = False,
    overwrite: bool = False,
) -> float:
    """Write model.onnx, tokens.txt and config.json, and compare the file with PyTorch.

    Args:
        model: The recogniser, on the CPU.
        folder: The folder to write; it is made if needed.
        wave: Whether the input is the wave of one utterance; only a filterbank can be exported.
        int8: Whether to write model.int8.onnx too, with quantised weights.
        onnx_asr: Whether to write a folder with the files that onnx-asr reads too.
        overwrite: Whether to replace an export.

    Returns:
        The largest difference between log-probabilities of PyTorch and of ONNX Runtime, on noise.

    Raises:
        WildCTCError: There is an export already, the front end cannot be exported, or the results differ.
    """
    _check_installed()
    folder = Path(folder)
    if (folder / MODEL).exists() and not overwrite:
        raise WildCTCError(f"{folder / MODEL} exists: give another folder, or --overwrite to replace it")
    if wave and not isinstance(model.front_end, Fbank):
        raise WildCTCError(
            f"--wave: the front end {model.front_end.name} is a model of its own; without --wave, "
            "the file begins with its features"
        )
    if onnx_asr and not (isinstance(model.front_end, Fbank) and model.front_end.shape == (80,)):
        raise WildCTCError(
            f"--onnx-asr: onnx-asr computes Kaldi's filterbank of 80 bins; this model has {model.front_end.name}"
        )
    content = _to_onnx(model.eval(), wave)
    difference = _compare(model, content, wave)
    if difference > MOST_DIFFERENCE:
        raise WildCTCError(
            f"ONNX Runtime differs from PyTorch by {difference:.2g}, which is above {MOST_DIFFERENCE:g}: "
            "nothing was written; please report this with the versions of torch, onnx and onnxruntime"
        )
    small = _quantised(content) if int8 else None
    tokens = _tokens(model.units)
    others = _for_onnx_asr(model, int8) if onnx_asr else {}
    make_folder(folder)
    write_text(folder / TOKENS, tokens)
    write_text(folder / "config.json", json.dumps(_metadata(model, wave), indent=2, ensure_ascii=False) + "\n")
    write_atomically(folder / MODEL, content)
    if small is not None:
        write_atomically(folder / INT8, small)
    if others:
        make_folder(folder / ONNX_ASR)
        write_text(folder / ONNX_ASR / TOKENS, tokens)
    for name, each in others.items():
        write_atomically(folder / ONNX_ASR / name, each)
    return difference


def _for_onnx_asr(model: Recognizer, int8: bool) -> dict[str, bytes]:
    """The model as a transducer of icefall, by file name."""
    dim, outputs = torch.export.Dim, len(model.units)
    rows, frames = dim("N", min=1), dim("T", min=MIN_FRAMES[model.encoder.config.subsampling])
    encoder = _Collapsed(_FromFeatures(model), outputs).eval()
    example = torch.randn(3, _FRAMES, *model.front_end.shape), torch.tensor([_FRAMES, 45, 33])
    shapes = {"x": {0: rows, 1: frames}, "x_lens": {0: rows}}
    frame = torch.zeros(1, outputs), torch.zeros(1, 1)
    names = ["encoder_out", "encoder_out_lens"]
    parts = {
        "encoder": _exported(encoder, example, shapes, ["x", "x_lens"], names),
        "decoder": _exported(_NoPredictor(), (torch.zeros(1, 2, dtype=torch.int64),), None, ["y"], ["decoder_out"]),
        "joiner": _exported(_Sum(), frame, None, ["encoder_out", "decoder_out"], ["logit"]),
    }
    found = {f"{name}.onnx": proto.SerializeToString() for name, proto in parts.items()}
    if int8:
        small = {"encoder.int8.onnx": _quantised(found["encoder.onnx"])}
        found |= small | {f"{name}.int8.onnx": found[f"{name}.onnx"] for name in ("decoder", "joiner")}
    return found


def _tokens(units: Units) -> str:
    """The text of tokens.txt: a token and its id on each line."""
    names = {0: _BLANK} | {i: _SPACE for i, token in enumerate(units.tokens) if token == " "}
    for i, token in enumerate(units.tokens):
        if i not in names and (not token or token != "".join(token.split())):
            raise WildCTCError(f"tokens.txt cannot hold unit {i}, {token!r}, which has a space within")
    return "".join(f"{names.get(i, token)} {i}\n" for i, token in enumerate(units.tokens))


def _metadata(model: Recognizer, wave: bool) -> dict[str, Any]:
    front_end = model.front_end
    return {
        "model_type": "zipformer2_ctc",  # the name under which sherpa-onnx has CTC models with these inputs
        "version": "1",
        "model_author": "WildCTC",
        "comment": "from the wave" if wave else f"from features of {front_end.name}",
        "vocab_size": len(model.units.tokens),
        "sample_rate": front_end.sampling_rate,
        "features": front_end.name,
        "features_size": int(math.prod(front_end.shape)),
        "feature_rate": float(front_end.frame_rate),
        "subsampling_factor": int(model.encoder.config.subsampling),
        "input": "wave" if wave else "features",
    }


def _to_onnx(model: Recognizer, wave: bool) -> bytes:
    """Export with dynamic shapes and put the metadata in."""
    proto = _exported(*_network(model, wave), ["log_probs", "log_probs_len"])
    batch, frames, _ = proto.graph.output[0].type.tensor_type.shape.dim
    frames.dim_param = "T_out"  # the exporter writes a formula
    if not wave:
        batch.dim_param = "N"
    for key, value in _metadata(model, wave).items():
        proto.metadata_props.add(key=key, value=str(value))
    content: bytes = proto.SerializeToString()
    return content


def _exported(network: nn.Module, example: Any, shapes: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The ONNX model of a network."""
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            network, example, dynamo=True, dynamic_shapes=shapes, input_names=inputs, output_names=outputs,
            verbose=False,
        )  # fmt: skip
    assert program is not None
    proto = program.model_proto
    del proto.graph.value_info[:]  # shapes in between, some of them wrong after the exporter's optimiser
    return proto


def _network(model: Recognizer, wave: bool) -> tuple[nn.Module, tuple[Tensor, ...], Any, list[str]]:
    """What is exported, an example of its input, its dynamic shapes and the names of its inputs."""
    dim, front_end = torch.export.Dim, model.front_end
    if wave:
        assert isinstance(front_end, Fbank)
        least = _least_samples(model)
        shapes: Any = {"wave": {1: dim("samples", min=least)}}
        shift = front_end.sampling_rate // 100
        return _FromWave(model, front_end).eval(), (torch.randn(1, _FRAMES * shift + shift // 3),), shapes, ["wave"]
    least = MIN_FRAMES[model.encoder.config.subsampling]
    rows, frames = dim("N", min=1), dim("T", min=least)
    example = torch.randn(3, _FRAMES, *front_end.shape), torch.tensor([_FRAMES, 45, 33])
    return _FromFeatures(model).eval(), example, {"x": {0: rows, 1: frames}, "x_lens": {0: rows}}, ["x", "x_lens"]


def _least_samples(model: Recognizer) -> int:
    """The shortest wave that gives a frame of the encoder."""
    least, rate = MIN_FRAMES[model.encoder.config.subsampling], model.front_end.sampling_rate
    return next(n for n in range(0, 2 * rate, rate // 100) if model.front_end.frames(n) > least)


def _compare(model: Recognizer, content: bytes, wave: bool) -> float:
    """The largest difference to PyTorch, over batches of other shapes than the example's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    noise, worst = np.random.default_rng(0), 0.0
    rate = model.front_end.sampling_rate
    for lengths in ([200], [97, 161, 11], [202], [203]):
        if wave:
            sound = 0.1 * noise.standard_normal((1, rate * lengths[0] // 99)).astype(np.float32)
            features, feed = [model.front_end.extract(sound[0])], {"wave": sound}
        else:
            shape = model.front_end.shape
            mean, std = model.stats.mean, model.stats.std
            features = [(mean + std * noise.standard_normal((n, *shape))).astype(np.float32) for n in lengths]
            x = np.zeros((len(lengths), max(lengths), *shape), np.float32)
            for row, each in zip(x, features, strict=True):
                row[: len(each)] = each
            feed = {"x": x, "x_lens": np.array(lengths)}
        found, frames = session.run(None, feed)
        for logits, row, length in zip(model.batch_logits(features), found, frames, strict=True):
            if len(logits) != length:
                return math.inf
            worst = max(worst, float(np.abs(logits.log_softmax(-1).numpy() - row[:length]).max()))
    return worst


def _quantised(content: bytes) -> bytes:
    """The same model with 8-bit weights of matrix products."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as scratch, _quiet():
        path = Path(scratch) / INT8
        quantize_dynamic(onnx.load_from_string(content), path, weight_type=QuantType.QInt8)
        return path.read_bytes()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's remarks are about its own libraries: no user can act on them."""
    names = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root")
    before = [logging.getLogger(name).level for name in names]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in zip(names, before, strict=True):
                logging.getLogger(name).setLevel(level)


def _check_installed() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, "export") from None
