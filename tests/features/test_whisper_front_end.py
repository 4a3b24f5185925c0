"""Whisper's encoder as front end: the spectrogram it hears, positions for the sound alone, and the ONNX export."""

import json
import multiprocessing
import pickle
import shutil
import sys
import warnings

import numpy as np
import pytest
import torch
from support.miniatures import tiny_whisper
from support.tones import make_corpus

from wildctc.cli import main
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.front_end import make_front_end
from wildctc.features.hf_front_end import HuggingFaceFrontEnd
from wildctc.features.log_mel import LogMel, count_positions, pieces
from wildctc.features.onnx_whisper import OnnxWhisperFrontEnd
from wildctc.recognizer.model import Recognizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = (400, 640, 641, 16000, 23457, 479999, 480000, 480001, 1_000_000)


def noise(samples, seed=0):
    return (np.random.default_rng(seed).normal(size=samples) / 10).astype(np.float32)


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    return tiny_whisper(tmp_path_factory.mktemp("models") / "whisper")


@pytest.fixture(scope="module")
def exported(whisper, tmp_path_factory):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    return export(whisper, tmp_path_factory.mktemp("onnx") / "encoder_model.onnx")


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, mel):
        found = self.encoder(mel, output_attentions=True)
        return found.last_hidden_state, found.attentions[0]  # exports for the web have outputs that nobody needs


def export(folder, path, dynamic=True):
    """Write the encoder as the web's exports are: 30 s of sound, all positions added."""
    model = transformers.WhisperModel.from_pretrained(folder, attn_implementation="eager").eval()
    axes = {"input_features": {0: "batch", 2: "time"}, "last_hidden_state": {1: "positions"}} if dynamic else {}
    mel = torch.zeros(1, model.config.num_mel_bins, 3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Encoder(model), (mel,), path, dynamo=False, opset_version=17, dynamic_axes=axes,
            input_names=["input_features"], output_names=["last_hidden_state", "encoder_attentions.0"],
        )  # fmt: skip
    return path


# -------------------------------------------------------------------------------------------------- the spectrogram


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("samples", [1, 400, 16000, 16001, 123457, 480000])
def test_the_spectrogram_is_the_beginning_of_the_one_that_transformers_pads_to_30_s(samples, mels):
    wave = noise(samples)
    found = LogMel(mels)(wave)
    padded = transformers.WhisperFeatureExtractor(feature_size=mels)(wave, sampling_rate=16000, return_tensors="np")
    expected = padded.input_features[0][:, : found.shape[1]]
    assert found.shape == (mels, 2 * -(-samples // 320))
    assert found.dtype == torch.float32
    some = slice(None, 2999)  # without any padding, the last frame of theirs reflects the end
    np.testing.assert_allclose(found.numpy()[:, some], expected[:, some], atol=1e-5)
    assert samples == 1 or expected.std() > 0.05


def test_the_spectrogram_does_not_depend_on_the_number_of_threads():
    wave, threads, found = noise(160000), torch.get_num_threads(), []
    try:
        for n in (1, 2, 1):
            torch.set_num_threads(n)
            found.append(LogMel()(wave))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("samples", [*LENGTHS, 3_333_333])
def test_pieces_of_a_long_wave_are_of_nearly_equal_length_and_lose_nothing(samples):
    wave = np.arange(samples, dtype=np.float32)
    found = list(pieces(wave))
    np.testing.assert_array_equal(np.concatenate(found), wave)
    positions = [-(-len(piece) // 320) for piece in found]
    assert sum(positions) == count_positions(samples)
    assert max(positions) <= 1500
    assert len(found) == -(-count_positions(samples) // 1500)
    assert max(positions) - min(positions) <= len(found)
    assert list(pieces(wave[:399])) == []


# ------------------------------------------------------------------------------------------------------ Hugging Face


def test_30_s_have_the_layers_that_the_model_itself_computes(whisper):
    wave = noise(480000)
    wave[-400:] = 0  # no sound at the end, which theirs would reflect
    found = make_front_end({"name": str(whisper)}).extract(wave)
    model = transformers.WhisperModel.from_pretrained(whisper).eval()
    mel = transformers.WhisperFeatureExtractor()(wave, sampling_rate=16000, return_tensors="pt").input_features
    with torch.no_grad():
        expected = model.get_encoder()(mel, output_hidden_states=True)
    assert found.shape == (1500, 3, 16)
    assert found.dtype == np.float32
    for layer in range(2):
        np.testing.assert_allclose(found[:, layer], expected.hidden_states[layer][0], atol=1e-5)
    np.testing.assert_allclose(found[:, 2], expected.last_hidden_state[0], atol=1e-5)
    assert np.abs(found[:, 2] - found[:, 1]).max() > 0.1


def test_short_sound_has_the_layers_of_a_model_with_so_few_positions(whisper):
    wave, positions = noise(23457), 74
    full = transformers.WhisperModel.from_pretrained(whisper).state_dict()
    full["encoder.embed_positions.weight"] = full["encoder.embed_positions.weight"][:positions]
    config = transformers.WhisperConfig.from_pretrained(whisper, max_source_positions=positions)
    short = transformers.WhisperModel(config).eval()
    short.load_state_dict(full)
    with torch.no_grad():
        expected = short.get_encoder()(LogMel()(wave)[None], output_hidden_states=True)
    found = HuggingFaceFrontEnd(whisper).extract(wave)
    assert found.shape == (positions, 3, 16)
    np.testing.assert_allclose(found[:, 0], expected.hidden_states[0][0], atol=1e-5)
    np.testing.assert_allclose(found[:, 2], expected.last_hidden_state[0], atol=1e-5)


def test_the_last_layer_alone_is_the_last_of_all_whisper_layers(whisper):
    every, last = (HuggingFaceFrontEnd(whisper, layers) for layers in ("weighted", "last"))
    assert (every.shape, last.shape) == ((3, 16), (1, 16))
    assert (every.frame_rate, every.sampling_rate) == (50.0, 16000)
    np.testing.assert_array_equal(every.extract(noise(9000))[:, 2:], last.extract(noise(9000)))
    assert every.name == f"whisper-{every.digest}-weighted"


def test_hugging_face_frames_are_counted_without_running_the_model(whisper, monkeypatch):
    front_end = HuggingFaceFrontEnd(whisper, "last")
    expected = [len(front_end.extract(noise(samples))) for samples in (0, 399, *LENGTHS)]
    monkeypatch.setattr(front_end, "_model", None)
    assert [front_end.frames(samples) for samples in (0, 399, *LENGTHS)] == expected
    assert expected[:4] == [0, 0, 2, 2]


def test_whisper_gives_the_same_bits_after_other_lengths_in_a_copy_and_after_a_fork(whisper):
    front_end = HuggingFaceFrontEnd(whisper)
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, (1,)) as pool:
        expected = pool.apply(front_end.extract, (noise(8000),))
    front_end.extract(noise(30000))
    for again in (front_end, pickle.loads(pickle.dumps(front_end))):
        np.testing.assert_array_equal(again.extract(noise(8000)), expected)


def test_only_the_encoder_of_whisper_is_kept_and_only_its_weights_are_needed(whisper, tmp_path):
    from safetensors.torch import load_file, save_file

    front_end = HuggingFaceFrontEnd(whisper)
    assert sum(p.numel() for p in front_end._model(torch.device("cpu")).parameters()) < 34_000
    weights = load_file(whisper / "model.safetensors")
    for name, dropped in (("encoder only", "model.decoder"), ("broken", "model.encoder.layers.1.fc1")):
        folder = shutil.copytree(whisper, tmp_path / name)
        rest = {key: weight for key, weight in weights.items() if not key.startswith(dropped)}
        assert len(rest) < len(weights)
        save_file(rest, folder / "model.safetensors", {"format": "pt"})
    found = HuggingFaceFrontEnd(tmp_path / "encoder only").extract(noise(8000))
    np.testing.assert_array_equal(found, front_end.extract(noise(8000)))
    with pytest.raises(WildCTCError, match=r"broken: no weights for encoder\.layers\.1\.fc1\.bias \(2 are missing\)"):
        HuggingFaceFrontEnd(tmp_path / "broken").extract(noise(8000))


def test_a_whisper_with_128_mels_is_understood_and_another_spectrogram_is_refused(whisper, tmp_path):
    assert HuggingFaceFrontEnd(tiny_whisper(tmp_path / "large", num_mel_bins=128)).extract(noise(8000)).shape[0] == 25
    folder = shutil.copytree(whisper, tmp_path / "other")
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(settings | {"hop_length": 320}))
    with pytest.raises(WildCTCError, match=r"front end .*other: its spectrogram .* is \(16000, 400, 320, 80\); supp"):
        HuggingFaceFrontEnd(folder)


# -------------------------------------------------------------------------------------------------------------- ONNX


@pytest.mark.parametrize("samples", [400, 16000, 23457, 480000, 500_001])
def test_the_export_hears_what_the_model_of_hugging_face_hears(whisper, exported, samples):
    before = exported.read_bytes()
    found = make_front_end({"name": str(exported)})
    assert isinstance(found, OnnxWhisperFrontEnd)
    expected = HuggingFaceFrontEnd(whisper, "last").extract(noise(samples))[:, 0]
    np.testing.assert_allclose(found.extract(noise(samples)), expected, atol=1e-4)
    assert (found.shape, found.frame_rate, found.sampling_rate) == ((16,), 50.0, 16000)
    assert found.name == f"encoder_model-{found.digest}"
    assert exported.read_bytes() == before


def test_export_frames_are_counted_without_running_the_model(exported, monkeypatch):
    front_end = OnnxWhisperFrontEnd(exported)
    sizes = (0, 399, *LENGTHS)
    expected = [len(front_end.extract(noise(samples))) for samples in sizes]
    monkeypatch.setattr(front_end, "_file", None)
    assert [front_end.frames(samples) for samples in sizes] == expected


def test_the_export_gives_the_same_bits_in_a_copy_and_in_another_process(exported):
    front_end = OnnxWhisperFrontEnd(exported)
    expected = front_end.extract(noise(8000))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(front_end)).extract(noise(8000)), expected)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(front_end.extract, (noise(8000),)), expected)


def test_an_export_that_does_not_say_how_many_mels_it_takes_is_tried(exported, tmp_path):
    import onnx

    for mels in (80, 128):
        path = tmp_path / f"{mels}.onnx"
        export(tiny_whisper(tmp_path / str(mels), num_mel_bins=mels), path)
        model = onnx.load(path)
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "feature_size"
        onnx.save(model, path)
        assert OnnxWhisperFrontEnd(path).extract(noise(8000)).shape == (25, 16)


def test_a_spectrogram_model_that_is_no_whisper_or_takes_30_s_only_is_one_clear_line(whisper, exported, tmp_path):
    import onnx

    model = onnx.load(exported)
    [table] = [array.name for array in model.graph.initializer if 1500 in array.dims]
    [add] = [node for node in model.graph.node if table in node.input]
    add.op_type = "Sub"
    onnx.save(model, tmp_path / "other.onnx")
    export(whisper, tmp_path / "fixed.onnx", dynamic=False)
    for name, message in {"other": "adds no table of positions", "fixed": "does not take 16000 samples"}.items():
        with pytest.raises(WildCTCError, match=rf"front end .*{name}\.onnx:? .*{message}"):
            make_front_end({"name": str(tmp_path / f"{name}.onnx")})


def test_the_extra_that_changes_an_export_is_named(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"onnx is not installed; .* pip install '\.\[whisper\]'"):
        make_front_end({"name": str(exported)})


# ---------------------------------------------------------------------------------------------------- training with it


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hugging face", "onnx"])
def test_a_run_trains_on_whisper_and_is_decoded(whisper, exported, tmp_path, kind):
    make_corpus(tmp_path, {"train": 12, "dev": 3, "test": 3})
    name = str(whisper if kind == "hugging face" else exported)
    words = ["train", str(tmp_path / "recipe.yaml"), "--features.name", name, "--training.epochs", "1"]
    assert main([*words, "--encoder.subsampling", "1", "--data.workers", "0", "--out", str(tmp_path / "run")]) == 0
    assert Recognizer.load(tmp_path / "run").mean.shape == ((3, 16) if kind == "hugging face" else (16,))
    assert main(["decode", str(tmp_path / "run"), str(tmp_path / "test.jsonl"), "--workers", "1"]) == 0
