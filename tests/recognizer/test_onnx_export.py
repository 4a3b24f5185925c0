"""`wildctc export`: the file gives PyTorch's numbers, and other programs read it."""

import contextlib
import functools
import http.server
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from support.audit_pages import chromium
from support.tones import RATE, make_corpus, read_rows

import wildctc
from wildctc.audio.recordings import read_whole
from wildctc.cli import main
from wildctc.encoders.layers import _relative_to_absolute
from wildctc.errors import WildCTCError
from wildctc.features.stats import FeatureStats
from wildctc.recognizer.decoding import greedy
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.onnx_export import _Collapsed, export_onnx
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory, one_thread):
    """A trained run with 80 bins, as sherpa-onnx computes them, and both exports."""
    folder = tmp_path_factory.mktemp("export")
    recipe = make_corpus(folder)
    words = ["train", str(recipe), "--out", str(folder / "run"), "--features.num_bins", "80"]
    assert main([*words, "--training.epochs", "7", "--data.workers", "0"]) == 0
    assert main(["export", str(folder / "run"), "--onnx", str(folder / "onnx"), "--int8", "--onnx-asr"]) == 0
    assert main(["export", str(folder / "run"), "--onnx", str(folder / "wave"), "--wave"]) == 0
    return folder


def open_onnx(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def waves(folder):
    """Test utterances, and real speech where the environment names it."""
    rows = read_rows(folder / "test.jsonl")
    yield from ((row["text"], soundfile.read(folder / row["audio"], dtype="float32")[0]) for row in rows)
    for name in ("WILDCTC_IBAN", "WILDCTC_HARPER_VALLEY"):
        if os.environ.get(name):
            found = sorted(
                p for p in Path(os.environ[name]).rglob("*") if p.suffix in (".wav", ".flac", ".ogg", ".opus")
            )
            yield None, read_whole(found[0], RATE, None, None)[: 20 * RATE]


@slow
def test_onnx_gives_the_log_probabilities_of_pytorch_on_sound_in_batches_and_alone(trained):
    model, session = wildctc.load(trained / "run"), open_onnx(trained / "onnx" / "model.onnx")
    features = [model.front_end.extract(wave) for _, wave in waves(trained)]
    expected = [logits.log_softmax(-1).numpy() for logits in model.batch_logits(features)]
    for rows in ([0], range(len(features))):
        lengths = np.array([len(features[i]) for i in rows])
        x = np.full((len(lengths), max(lengths), 80), 7.0, np.float32)  # padding is ignored, whatever it holds
        for row, i in zip(x, rows, strict=True):
            row[: len(features[i])] = features[i]
        found, frames = session.run(["log_probs", "log_probs_len"], {"x": x, "x_lens": lengths})
        for row, n, i in zip(found, frames, rows, strict=True):
            np.testing.assert_allclose(row[:n], expected[i], atol=1e-4, rtol=0)


@slow
def test_onnx_from_the_wave_gives_the_log_probabilities_of_pytorch(trained):
    model, session = wildctc.load(trained / "run"), open_onnx(trained / "wave" / "model.onnx")
    for _, wave in waves(trained):
        expected = model.logits(wave, sampling_rate=RATE).log_softmax(-1).numpy()
        found, frames = session.run(None, {"wave": wave[None]})
        assert frames == [len(expected)]
        np.testing.assert_allclose(found[0], expected, atol=1e-4, rtol=0)


@slow
def test_int8_is_smaller_and_hears_almost_the_same(trained):
    exact, small = (trained / "onnx" / name for name in ("model.onnx", "model.int8.onnx"))
    assert small.stat().st_size < exact.stat().st_size
    model = wildctc.load(trained / "run")
    same = total = 0
    for _, wave in waves(trained):
        x = model.front_end.extract(wave)[None]
        feed = {"x": x, "x_lens": np.array([x.shape[1]])}
        one, other = (open_onnx(path).run(None, feed)[0].argmax(-1) for path in (exact, small))
        same, total = same + int((one == other).sum()), total + one.size
    assert same / total > 0.9


@slow
def test_sherpa_onnx_reads_the_export_and_writes_our_greedy_text(trained):
    sherpa_onnx = pytest.importorskip("sherpa_onnx")
    model = wildctc.load(trained / "run")
    recognizer = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(
        model=str(trained / "onnx" / "model.onnx"), tokens=str(trained / "onnx" / "tokens.txt")
    )
    for _, wave in waves(trained):
        stream = recognizer.create_stream()
        stream.accept_waveform(RATE, wave)
        recognizer.decode_stream(stream)
        assert " ".join(stream.result.text.split()) == model.transcribe(wave, sampling_rate=RATE, beam=1).text


@slow
@pytest.mark.parametrize("quantization", [None, "int8"])
def test_onnx_asr_reads_the_export_and_writes_our_greedy_text(trained, quantization):
    onnx_asr = pytest.importorskip("onnx_asr")
    heard = onnx_asr.load_model("kaldi-rnnt", trained / "onnx", quantization=quantization)
    model = wildctc.load(trained / "run")
    texts = [
        (heard.recognize(wave, sample_rate=RATE).strip(), model.transcribe(wave, sampling_rate=RATE, beam=1).text)
        for _, wave in waves(trained)
    ]
    same = sum(found == ours for found, ours in texts)
    assert same >= (1.0 if quantization is None else 0.7) * len(texts)


def test_the_best_outputs_for_onnx_asr_are_the_greedy_text_without_repetitions():
    log_probs = torch.randn(5, 40, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    lengths = torch.tensor([40, 31, 1, 12, 40])
    collapsed, kept = _Collapsed(lambda x, x_lens: (x, x_lens), 4)(log_probs, lengths)
    assert torch.equal(kept, lengths)
    for row, found, length in zip(log_probs, collapsed, lengths.tolist(), strict=True):
        assert [label for label in found[:length].argmax(-1).tolist() if label] == greedy(row[:length])[0]


def test_onnx_asr_needs_its_filterbank(tmp_path):
    with pytest.raises(WildCTCError, match="filterbank of 80 bins; this model has fbank"):
        export_onnx(tiny_model(), tmp_path, onnx_asr=True)
    assert not list(tmp_path.iterdir())


@slow
def test_the_page_of_the_browser_demo_writes_our_greedy_text(trained, tmp_path):
    if "WILDCTC_ONNXRUNTIME_WEB" not in os.environ:
        pytest.skip("WILDCTC_ONNXRUNTIME_WEB does not name the npm package onnxruntime-web")
    shutil.copy(Path(__file__).parents[2] / "examples" / "browser" / "index.html", tmp_path)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "onnxruntime-web").symlink_to(os.environ["WILDCTC_ONNXRUNTIME_WEB"])
    (tmp_path / "model").symlink_to(trained / "wave")
    model, text = wildctc.load(trained / "run"), "document.getElementById('text').value"
    with serving(tmp_path) as address, chromium() as browser:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_function("!document.getElementById('file').disabled")
        for row in read_rows(trained / "test.jsonl"):
            page.evaluate(f"{text} = ''")
            page.set_input_files("#file", trained / row["audio"])
            page.wait_for_function(f"!['', 'Listening …'].includes({text})")
            assert page.evaluate(text) == (model.transcribe(trained / row["audio"], beam=1).text or "(nothing)")
        page.set_input_files("#file", trained / "test.jsonl")
        page.wait_for_function(f"{text}.startsWith('Cannot transcribe: ')")


@contextlib.contextmanager
def serving(folder):
    """A plain file server, as `python -m http.server` is."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_metadata_and_tokens_say_what_the_file_takes(trained):
    found = open_onnx(trained / "onnx" / "model.onnx")
    said = found.get_modelmeta().custom_metadata_map
    config = json.loads((trained / "onnx" / "config.json").read_text())
    assert said == {key: str(value) for key, value in config.items()}
    assert (said["model_type"], said["subsampling_factor"], said["features_size"]) == ("zipformer2_ctc", "2", "80")
    assert [i.name for i in found.get_inputs()] == ["x", "x_lens"]
    lines = (trained / "onnx" / "tokens.txt").read_text().splitlines()
    assert lines[:3] == ["<blk> 0", "▁ 1", "a 2"]


def test_an_export_is_replaced_only_when_asked(trained, capsys):
    before = (trained / "onnx" / "model.onnx").stat().st_mtime_ns
    assert main(["export", str(trained / "run"), "--onnx", str(trained / "onnx")]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (trained / "onnx" / "model.onnx").stat().st_mtime_ns == before


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_scores_by_key_are_the_same_with_strides_and_without(frames, monkeypatch):
    scores = torch.randn(2, 3, frames, 2 * frames - 1)
    by_strides = _relative_to_absolute(scores)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert torch.equal(_relative_to_absolute(scores), by_strides)


def tiny_model():
    settings = {"kind": "e_branchformer", "d_model": 16, "heads": 2, "blocks": 1, "ff_dim": 16, "cgmlp_dim": 16}
    units, stats = CharUnits.train(["ab"], Normalizer()), FeatureStats(np.ones(20, np.float32), np.ones(20, np.float32))
    front_end = {"name": "fbank", "num_bins": 20}
    return Recognizer(front_end, settings | {"subsampling": 4, "subsampling_conv": "conv1d"}, units, stats)


@slow
def test_every_kind_of_encoder_can_be_exported(tmp_path):
    """export_onnx compares the file with PyTorch itself, on shapes that the exporter has not seen."""
    assert export_onnx(tiny_model(), tmp_path) < 1e-4
