"""A frozen self-supervised model as front end: what it computes, that it stays frozen, and training through it."""

import hashlib
import json
import logging
import multiprocessing
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.miniatures import tiny_model
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.corpora.utterance import Utterance
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.augment import spec_augment
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import make_front_end
from wildctc.features.hf_front_end import HuggingFaceFrontEnd
from wildctc.features.layer_mix import LayerMix
from wildctc.features.trust import memory
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits
from wildctc.training.config import load_recipe
from wildctc.training.loop import Trainer

transformers = pytest.importorskip("transformers")
ENCODER = {"kind": "conformer", "d_model": 16, "heads": 2, "blocks": 1, "ff_dim": 32, "kernel": 3, "subsampling": 2}
KINDS = {
    "wav2vec2": {"mask_time_prob": 0.9, "hidden_dropout": 0.5, "layerdrop": 0.5},  # none of which may be felt
    "hubert": {"do_normalize": False, "feat_extract_norm": "layer"},
    "wavlm": {"do_stable_layer_norm": True, "feat_extract_norm": "layer"},
}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny_model(folder / kind, kind, **settings) for kind, settings in KINDS.items()}


def noise(samples, seed=0):
    return (np.random.default_rng(seed).normal(size=samples) / 10).astype(np.float32)


def recognizer(name, layers="weighted"):
    units = CharUnits.train(["abc"], Normalizer())
    return Recognizer({"name": str(name), "layers": layers}, ENCODER, units)


# ---------------------------------------------------------------------------------------------------- what is computed


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_those_of_the_model_given_the_wave_as_its_own_settings_say(models, kind):
    found = make_front_end({"name": str(models[kind])}).extract(noise(20000))
    model = transformers.AutoModel.from_pretrained(models[kind]).eval()
    wave = noise(20000)
    if KINDS[kind].get("do_normalize", True):
        wave = (wave - wave.mean()) / np.sqrt(wave.var() + 1e-7)
    with torch.no_grad():
        expected = model(torch.from_numpy(wave)[None], output_hidden_states=True)
    assert found.shape == (62, 3, 16)
    assert found.dtype == np.float32
    for i in range(2):
        np.testing.assert_allclose(found[:, i], expected.hidden_states[i][0], atol=1e-5)
    np.testing.assert_allclose(found[:, 2], expected.last_hidden_state[0], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_layer_alone_is_the_last_of_all(models, kind):
    every, last = (HuggingFaceFrontEnd(models[kind], layers) for layers in ("weighted", "last"))
    assert (every.shape, last.shape) == ((3, 16), (1, 16))
    np.testing.assert_array_equal(every.extract(noise(9000))[:, 2:], last.extract(noise(9000)))
    assert every.name != last.name
    assert every.digest == last.digest


def test_frames_are_counted_without_computing_and_a_blip_has_none(models):
    front_end = HuggingFaceFrontEnd(models["wav2vec2"])
    assert (front_end.frame_rate, front_end.sampling_rate) == (50.0, 16000)
    for samples in (0, 399, 400, 719, 720, 16000, 16079, 16080, 23457):
        assert len(front_end.extract(noise(samples))) == front_end.frames(samples)
    assert [front_end.frames(n) for n in (399, 400, 719, 720)] == [0, 1, 1, 2]


def test_loudness_is_normalised_only_where_the_model_asks_for_it(models):
    for kind, normalised in (("wav2vec2", True), ("hubert", False)):
        front_end = HuggingFaceFrontEnd(models[kind])
        loud, soft = front_end.extract(noise(16000)), front_end.extract(noise(16000) / 8)
        assert np.allclose(loud, soft, atol=1e-3) == normalised


def test_logits_do_not_depend_on_what_else_is_in_the_batch(models):
    model = recognizer(models["wav2vec2"]).eval()
    features = [model.front_end.extract(noise(n, seed=n)) for n in (32000, 9000, 16000)]
    together = model.batch_logits(features)
    for alone, batched in zip((model.batch_logits([x])[0] for x in features), together, strict=True):
        torch.testing.assert_close(alone, batched, atol=1e-5, rtol=0)


def test_the_same_bits_again_in_a_copy_and_after_a_fork(models):
    front_end = HuggingFaceFrontEnd(models["wav2vec2"])
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, (1,)) as pool:
        before = pool.apply(front_end.extract, (noise(8000),))  # each process loads the model
    expected = front_end.extract(noise(8000))
    with multiprocessing.get_context("fork").Pool(1, torch.set_num_threads, (1,)) as pool:
        after = pool.apply(front_end.extract, (noise(8000),))  # the parent has it
    for found in (
        before,
        after,
        front_end.extract(noise(8000)),
        pickle.loads(pickle.dumps(front_end)).extract(noise(8000)),
    ):
        np.testing.assert_array_equal(found, expected)


def test_half_precision_weights_are_computed_in_float32(models, tmp_path):
    model = transformers.AutoModel.from_pretrained(models["hubert"]).half()
    model.save_pretrained(tmp_path)
    shutil.copy(models["hubert"] / "preprocessor_config.json", tmp_path)
    exact, rounded = (HuggingFaceFrontEnd(path).extract(noise(8000)) for path in (models["hubert"], tmp_path))
    assert 0 < np.abs(exact - rounded).max() < 0.05


# ------------------------------------------------------------------------------------------------------ it stays frozen


def test_no_weight_of_the_frozen_model_is_trained_or_saved(models, tmp_path):
    model = recognizer(models["wav2vec2"]).train()
    x = torch.from_numpy(model.front_end.extract(noise(16000)))[None]
    logits, _ = model(x, torch.tensor([x.shape[1]]))
    logits.square().sum().backward()
    names = set(model.state_dict())
    assert not x.requires_grad
    assert {"mix.weights", "mix.projection.weight", "mean", "std"} < names
    assert not [name for name in names if "front_end" in name or "wav2vec" in name]
    assert model.mix.weights.grad.abs().sum() > 0
    frozen = model.front_end._model(torch.device("cpu"))
    assert not frozen.training
    assert not [p for p in frozen.parameters() if p.requires_grad or p.grad is not None]
    assert model.mean.shape == (3, 16)
    model.save(tmp_path / "model")
    assert (tmp_path / "model/model.safetensors").stat().st_size < 100_000


def test_layers_begin_with_equal_weights():
    torch.manual_seed(0)
    mix, x = LayerMix(3, 16), torch.randn(2, 5, 3, 16)
    torch.testing.assert_close(mix(x), mix.projection(x.mean(2)))


def test_augmentation_treats_all_layers_alike():
    x, lengths = torch.randn(4, 60, 3, 16), torch.tensor([60, 50, 30, 9])
    options = {"freq_width": 4, "time_ratio": 0.2}
    whole = spec_augment(x, lengths, torch.Generator().manual_seed(1), **options)
    assert not torch.equal(whole, x)
    for layer in range(3):
        alone = spec_augment(x[:, :, layer], lengths, torch.Generator().manual_seed(1), **options)
        torch.testing.assert_close(whole[:, :, layer], alone)


# ------------------------------------------------------------------------------------------------------------- the disk


def spoken(folder, seconds=1.0):
    make_corpus(folder, {"train": 4})
    return [Utterance(row["id"], folder / row["audio"], duration=seconds) for row in read_rows(folder / "train.jsonl")]


def test_size_is_said_before_and_what_is_too_large_is_refused_with_the_ways_out(models, tmp_path, caplog):
    utterances = spoken(tmp_path)
    cache = FeatureCache(tmp_path / "cache", HuggingFaceFrontEnd(models["wav2vec2"]))
    wanted = [(u, speed) for u in utterances for speed in (0.5, 1.0)]
    with caplog.at_level(logging.INFO, logger="wildctc.features.cache"):
        caplog.handler.setLevel(logging.INFO)
        cache.check_room(wanted, limit_gb=1.0)
    size = 4 * 3 * 50 * 3 * 16 * 2  # utterances, seconds at both speeds, frames, layers, dimensions, bytes
    assert f"50 frames a second × 3 × 16 × 2 bytes = {size / 1e6:.3g} MB" in caplog.text
    with pytest.raises(WildCTCError) as caught:
        cache.check_room(wanted, limit_gb=1e-5)
    for part in ("0.0576 MB", "cache_limit_gb allows 1e-05 GB", "last (0.0192 MB)", "--data.cache null"):
        assert part in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_what_is_in_the_cache_needs_no_more_room(models, tmp_path, monkeypatch):
    utterances = [(u, 1.0) for u in spoken(tmp_path, seconds=0.2)]
    cache = FeatureCache(tmp_path / "cache", HuggingFaceFrontEnd(models["wav2vec2"]))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(WildCTCError, match=r"in .*cache.*, and 0 MB are free: set .*another --data\.cache"):
        cache.check_room(utterances, 1.0)
    for utterance, speed in utterances:
        cache.get(utterance, speed)
    cache.check_room(utterances, limit_gb=1e-9)


def test_without_a_cache_the_numbers_are_the_same_and_nothing_is_written(models, tmp_path):
    [first, *_] = spoken(tmp_path, seconds=0.2)
    front_end = HuggingFaceFrontEnd(models["wav2vec2"])
    none, kept = FeatureCache(None, front_end), FeatureCache(tmp_path / "cache", front_end)
    for speed in (0.9, 1.0):
        np.testing.assert_array_equal(none.get(first, speed), kept.get(first, speed))
        assert none.frames(first, speed) == kept.frames(first, speed) == len(kept.get(first, speed))
    none.check_room([(first, 1.0)], limit_gb=1e-9)
    assert len(list(tmp_path.rglob("*.npy"))) == 2


# ----------------------------------------------------------------------------------------------------- training with it


def settings(corpus, model, *more):
    words = ["--features.name", str(model), "--training.epochs", "3", "--encoder.subsampling", "1", *more]
    return ["train", str(corpus / "recipe.yaml"), *words, "--data.workers", "0"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tones")
    make_corpus(folder, {"train": 40, "dev": 6, "test": 6})
    return folder


@pytest.fixture(scope="module")
def trained(corpus, models, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "weighted"
    assert main([*settings(corpus, models["wav2vec2"]), "--data.speeds", "0.9", "1.0", "--out", str(run)]) == 0
    return run


def weights_of(run):
    return (run / "model/model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_learns_which_layers_count_and_is_decoded(trained, corpus, models):
    losses = [row["valid_loss"] for row in read_rows(trained / "metrics.jsonl")]
    assert losses[-1] < losses[0] / 1.2
    model = Recognizer.load(trained)
    assert model.mix.weights.abs().max() > 0.01
    assert model.mean.abs().sum() > 0
    assert main(["decode", str(trained), str(corpus / "test.jsonl"), "--workers", "1"]) == 0
    assert len(read_rows(trained / "hyp/test.jsonl")) == 6
    config = json.loads((trained / "model/config.json").read_text())
    assert config["front_end"]["name"] == str(models["wav2vec2"])


@pytest.mark.slow
def test_who_has_trained_with_a_front_end_is_not_asked_again_and_everybody_else_is(
    trained, models, tmp_path, monkeypatch
):
    assert str(models["wav2vec2"]) in memory().read_text().splitlines()
    shutil.copytree(trained / "model", tmp_path / "copy")
    Recognizer.load(tmp_path / "copy")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody else"))
    for folder in (
        trained,
        tmp_path / "copy",
    ):  # a run's folder is no more trusted than a model's: anybody can make one
        with pytest.raises(WildCTCError, match=r"names the front end '.*wav2vec2', .* give --trust-front-end"):
            Recognizer.load(folder)
        Recognizer.load(folder, trust_front_end=True)
    assert not memory().exists()  # a yes is for once


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_weights_with_and_without_a_cache(
    trained, corpus, models, tmp_path, monkeypatch
):
    step = Trainer._step
    words = [*settings(corpus, models["wav2vec2"]), "--data.speeds", "0.9", "1.0", "--out", str(tmp_path / "run")]

    def interrupted(self, *rest):
        if self.step == 12:
            raise KeyboardInterrupt
        return step(self, *rest)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    assert main(words) == 130
    monkeypatch.setattr(Trainer, "_step", step)
    monkeypatch.chdir(tmp_path)
    files = len(list((corpus / "features").rglob("*.npy")))
    assert main([*words, "--data.cache", "null"]) == 0
    assert weights_of(tmp_path / "run") == weights_of(trained)
    assert len(list((corpus / "features").rglob("*.npy"))) == files


@pytest.mark.slow
def test_worker_processes_and_a_relative_of_wav2vec2_train_too(corpus, models, tmp_path):
    words = [*settings(corpus, models["wavlm"], "--features.layers", "last"), "--out", str(tmp_path / "run")]
    assert main([*words, "--data.workers", "2", "--training.epochs", "1"]) == 0
    assert Recognizer.load(tmp_path / "run").mean.shape == (1, 16)


def test_a_model_that_moved_is_found_again_and_others_are_not_taken_for_it(models, tmp_path, monkeypatch):
    shutil.copytree(models["hubert"], tmp_path / "front")
    monkeypatch.chdir(tmp_path)
    recognizer("front").save("saved")
    monkeypatch.chdir("/")
    path = tmp_path / "saved/config.json"
    config = json.loads(path.read_text())
    assert config["front_end"]["name"] == str(tmp_path / "front")  # it was given relative to where the run was
    before = Recognizer.load(tmp_path / "saved", trust_front_end=True).batch_logits([np.ones((40, 3, 16), np.float32)])[
        0
    ]
    (tmp_path / "front").rename(tmp_path / "moved")
    with pytest.raises(WildCTCError, match=r"no front end '.*front'.* must exist; it is named in .*config\.json"):
        Recognizer.load(tmp_path / "saved", trust_front_end=True)
    config["front_end"]["name"] = str(tmp_path / "moved")
    path.write_text(json.dumps(config))
    after = Recognizer.load(tmp_path / "saved", trust_front_end=True).batch_logits([np.ones((40, 3, 16), np.float32)])[
        0
    ]
    assert torch.equal(before, after)
    config["front_end"]["name"] = str(models["wav2vec2"])
    path.write_text(json.dumps(config))
    with pytest.raises(WildCTCError, match=r"saved: was trained with other weights than .*wav2vec2 has now"):
        Recognizer.load(tmp_path / "saved", trust_front_end=True)


# ------------------------------------------------------------------------------------------------------ what is refused


def copy(source, folder, change=None):
    shutil.copytree(source, folder)
    if change:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | change))
    return folder


def test_a_folder_that_holds_no_usable_model_is_one_clear_line(models, tmp_path):
    source = models["hubert"]
    (tmp_path / "empty").mkdir()
    copy(source, tmp_path / "prep").joinpath("preprocessor_config.json").unlink()
    copy(source, tmp_path / "other").joinpath("config.json").write_text('{"model_type": "bert"}')
    copy(source, tmp_path / "deeper", {"num_hidden_layers": 3})
    copy(source, tmp_path / "cut").joinpath("model.safetensors").write_bytes(b"cut")
    copy(source, tmp_path / "text").joinpath("config.json").write_text("{")
    for name, message in {
        "empty": "empty: no Hugging Face model there",
        "prep": "prep: no Hugging Face model there: it would be config.json, preprocessor_config.json and weights",
        "other": "other: a model of the kind 'bert' is not supported; take wav2vec 2.0",
        "deeper": r"deeper: no weights for encoder\.layers\.2",
        "cut": "cut: ",
        "text": "text: ",
    }.items():
        with pytest.raises(WildCTCError, match=message) as caught:
            HuggingFaceFrontEnd(tmp_path / name).extract(noise(16000))
        assert "\n" not in str(caught.value)
    with pytest.raises(WildCTCError, match=r"features\.layers must be weighted or last, got 'first'"):
        HuggingFaceFrontEnd(source, "first")


def test_the_missing_extra_is_named(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in (str(models["hubert"]), "hf:facebook/hubert-base-ls960"):
        with pytest.raises(MissingExtra, match=r"transformers is not installed; .* pip install '\.\[hf\]'"):
            make_front_end({"name": name})


def downloaded(home: Path, model: Path, name: str) -> None:
    """The hub's cache as its own package leaves it behind."""
    folder, commit = home / "hub" / f"models--{name.replace('/', '--')}", "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "blobs").mkdir()
    for file in model.iterdir():
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, folder / "blobs" / digest)
        (folder / "snapshots" / commit / file.name).symlink_to(folder / "blobs" / digest)


def in_a_process(name, home, **environment):
    code = f"from wildctc.features.front_end import make_front_end; print(make_front_end({{'name': {name!r}}}).name)"
    env = {"HF_HOME": str(home), "PATH": "/usr/bin:/bin", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_name_of_the_hub_is_found_where_it_was_downloaded_without_a_network(models, tmp_path):
    downloaded(tmp_path / "home", models["wav2vec2"], "me/tiny")
    # An address that nothing listens on: whoever asks the hub fails.
    done = in_a_process("hf:me/tiny", tmp_path / "home", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.stdout.strip() == HuggingFaceFrontEnd(models["wav2vec2"]).name, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_an_unknown_name_without_a_network_is_one_clear_line(tmp_path, environment):
    done = in_a_process("hf:nobody/nothing", tmp_path, **environment)
    *_, last = done.stderr.strip().splitlines()
    assert "front end hf:nobody/nothing: not downloaded yet, and cannot be fetched from the Hugging Face hub" in last, (
        done
    )
    assert "give the folder of a downloaded model" in last
    assert "Retrying" not in done.stderr


def test_recipes_name_front_ends_that_are_understood():
    for recipe in ("librispeech", "librispeech-conformer", "fleurs"):
        config = load_recipe(recipe)
        assert config.features.name.startswith("hf:facebook/wav2vec2-")
        assert (config.features.layers, config.encoder.subsampling) == ("weighted", 2)
