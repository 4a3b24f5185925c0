"""Settings, batches, the loop, and what it says when something is wrong."""

import errno
import os
import re
import resource
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, make_corpus, read_rows, say, write_rows

from wildctc import Criterion, EntropyDecay
from wildctc.cli import is_out_of_memory, main, out_of_memory_advice
from wildctc.encoders.encoder import make_encoder
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import make_front_end
from wildctc.features.stats import FeatureStats
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits
from wildctc.training.batches import Batches, plan_batches
from wildctc.training.build import encoder_settings
from wildctc.training.config import apply, apply_arguments, load_recipe, parse_yaml, to_yaml, validate
from wildctc.training.data import read_split, usable
from wildctc.training.loop import Trainer, train
from wildctc.training.lr_schedule import learning_rate
from wildctc.training.settings import Config

RECIPES = sorted(p.name.removesuffix(".yaml") for p in (resources.files("wildctc") / "recipes").iterdir())
METRICS = [
    "epoch", "train_loss", "valid_loss", "valid_ctc_loss", "valid_wer", "valid_cer", "valid_deletions", "entropy",
    "entropy_smoothed", "bypass", "self_loop", "word_bypass", "bypass_posterior_train", "bypass_posterior_dev",
    "seconds",
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


def quick(recipe, **fields):
    """The tones recipe without worker processes, with `section__name=value` changed."""
    config = load_recipe(str(recipe))
    config.data.workers = 0
    for key, value in fields.items():
        apply(config, key.replace("__", "."), value, "test")
    return config


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("encoder.block", 4, "x.yaml: no setting is called 'encoder.block'; did you mean 'encoder.blocks'?"),
        ("optimiser.lr", 1, "did you mean 'optimizer.lr'?"),
        ("encoder.blocks", "four", "x.yaml: encoder.blocks must be a whole number, got 'four'"),
        ("encoder.blocks", 4.5, "must be a whole number"),
        ("encoder.blocks", True, "must be a whole number"),
        ("data.lower", "yes", "data.lower must be true or false"),
        ("encoder.kind", "transformer", "must be one of e_branchformer, conformer"),
    ],
)
def test_wrong_setting_is_one_line_with_the_right_name_or_type(key, value, message):
    with pytest.raises(WildCTCError) as caught:
        apply(Config(), key, value, "x.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_that_is_not_yaml_is_one_line():
    for text in ("a: [1", "- 1", "encoder: 3"):
        with pytest.raises(WildCTCError) as caught:
            parse_yaml(text, "x.yaml")
        assert "\n" not in str(caught.value)


def test_command_line_overrides_reach_every_kind_of_field():
    config = Config()
    words = "--criterion otc-tw --encoder.blocks=3 --data.speeds 0.9 1.0 1.1 --optimizer.lr 1e-3 --schedule.bypass -20"
    apply_arguments(config, [*words.split(), "--training.patience", "null", "--data.lower", "true"])
    assert (config.criterion, config.encoder.blocks, config.data.speeds) == ("otc-tw", 3, [0.9, 1.0, 1.1])
    assert (config.optimizer.lr, config.schedule.bypass, config.training.patience) == (1e-3, -20.0, None)
    assert config.data.lower is True
    assert parse_yaml(to_yaml(config), "again") == config


def test_values_that_no_run_could_use_are_refused():
    for key, value in (
        ("data.batch_seconds", 0), ("training.epochs", 0), ("encoder.subsampling", 3), ("encoder.d_model", 0),
        ("seed", -1), ("data.workers", -1), ("optimizer.lr", float("nan")), ("spec_augment.time_masks", -1),
        ("data.max_bad", 1.5), ("data.speeds", [0.9, 0]), ("training.patience", 0),
    ):  # fmt: skip
        config = Config()
        apply(config, key, value, "test")
        with pytest.raises(WildCTCError, match=key):
            validate(config)


@pytest.mark.parametrize("name", RECIPES)
def test_shipped_recipe_is_valid_and_builds_its_encoder(name):
    config = load_recipe(name)
    validate(config)
    encoder = make_encoder(input_dim=80, **encoder_settings(config))
    frames = int(encoder.output_lengths(torch.tensor([1000])))
    assert frames == pytest.approx(1000 / config.encoder.subsampling, abs=4)


@pytest.mark.parametrize(
    ("name", "units", "epochs", "patience", "kind"),
    [
        ("librispeech", "sentencepiece", 30, None, "e_branchformer"),
        ("librispeech-conformer", "sentencepiece", 30, 5, "conformer"),
        ("fleurs", "characters", 30, None, "e_branchformer"),
        ("respin", "characters", 70, None, "e_branchformer"),
    ],
)
def test_paper_recipes_have_the_papers_size(name, units, epochs, patience, kind):
    config = load_recipe(name)
    e, t, o = config.encoder, config.training, config.optimizer
    assert (e.kind, e.blocks, e.d_model, e.heads, e.ff_dim, e.kernel, e.dropout) == (kind, 12, 256, 4, 1024, 31, 0.1)
    assert (config.data.units, t.epochs, t.patience, t.average, t.select_by) == (units, epochs, patience, 10, "loss")
    assert (o.lr, o.weight_decay, o.warmup_steps, o.decay) == (2e-3, 1e-6, 15000, "sqrt")
    assert config.data.speeds == [0.9, 1.0, 1.1]
    assert list(asdict(config.spec_augment).values()) == [5, 2, 27, 5, 0.05]


def test_learning_rate_rises_to_its_peak_and_falls():
    for decay in ("sqrt", "cosine"):
        rates = [learning_rate(step, 2.0, 10, decay, 100) for step in range(1, 101)]
        assert max(rates) == rates[9] == 2.0
        assert all(a < b for a, b in pairwise(rates[:10]))
        assert all(a > b for a, b in pairwise(rates[9:]))
    assert rates[-1] == pytest.approx(0)


# ------------------------------------------------------------------------------------------------------------- batches


def test_epoch_has_every_example_once_within_the_budget_and_its_own_order():
    frames = np.random.default_rng(0).integers(50, 500, 300).tolist()
    plans = [plan_batches(frames, 2000, 7, epoch) for epoch in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    for plan in plans:
        assert sorted(i for batch in plan for i in batch) == list(range(300))
        assert max(max(frames[i] for i in batch) * len(batch) for batch in plan) <= 2000
    padded = sum(max(frames[i] for i in batch) * len(batch) for batch in plans[0])
    assert padded < 1.1 * sum(frames)


def test_example_longer_than_the_budget_has_a_batch_of_its_own():
    assert plan_batches([100, 5000, 100], 1000) == [[0, 2], [1]]


def test_batches_do_not_depend_on_the_worker_or_where_one_starts(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 1})
    trainer = Trainer(quick(recipe, data__batch_seconds=3), tmp_path / "run")
    plan = plan_batches([e.frames for e in trainer.steps.examples], 300, 0, 1)
    config = trainer.config.spec_augment
    batches = Batches(trainer.steps.examples, plan, trainer.cache, trainer.stats, config, (0, 1))
    here = list(batches.loader())
    there = list(batches.loader(start=2, workers=2))
    assert len(there) == len(here) - 2 > 2
    for a, b in zip(here[2:], there, strict=True):
        assert a.ids == b.ids
        assert torch.equal(a.x, b.x)
    other = Batches(trainer.steps.examples, plan, trainer.cache, trainer.stats, config, (0, 2))
    assert not torch.equal(other.batch(0).x, here[0].x)


@pytest.mark.parametrize("workers", [0, 1])
def test_audio_that_vanishes_during_training_is_named_without_a_traceback(tmp_path, workers):
    recipe = make_corpus(tmp_path, {"train": 4, "dev": 1})
    trainer = Trainer(quick(recipe, data__cache=None), tmp_path / "run")
    for audio in tmp_path.glob("*.wav"):
        audio.unlink()
    batches = Batches(trainer.steps.examples, [[0, 1], [2, 3]], trainer.cache, trainer.stats)
    with pytest.raises(WildCTCError, match=r"train0 .*no such file"):
        list(batches.loader(workers=workers))


class Stopped(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["audio", "cache file", "bit"])
def test_a_run_that_loses_audio_or_features_goes_on_to_the_same_bits(tmp_path, caplog, monkeypatch, lost):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})
    settings = {"training__epochs": 2, "training__average": 1}
    train(quick(recipe, **settings), tmp_path / "whole")
    ends = Trainer._end_epoch

    def stops(trainer):
        ends(trainer)
        raise Stopped

    monkeypatch.setattr(Trainer, "_end_epoch", stops)
    with pytest.raises(Stopped):
        train(quick(recipe, **settings), tmp_path / "run")
    monkeypatch.setattr(Trainer, "_end_epoch", ends)
    if lost == "audio":
        for audio in tmp_path.glob("*.wav"):
            audio.unlink()
    for path in (tmp_path / "features").rglob("*.npy"):
        if lost == "cache file":
            path.unlink()
        elif lost == "bit":
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 4
            path.write_bytes(content)
    train(quick(recipe, **settings), tmp_path / "run")
    model = "model/model.safetensors"
    assert (tmp_path / "run" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    assert ("was damaged and is computed anew" in (tmp_path / "run/log.txt").read_text()) == (lost == "bit")


def after_epochs(monkeypatch, acts):
    """Let something happen at the end of epochs: number → what to do."""
    ends = Trainer._end_epoch

    def end_epoch(trainer):
        number = trainer.epoch
        ends(trainer)
        acts.get(number, lambda: None)()

    monkeypatch.setattr(Trainer, "_end_epoch", end_epoch)


def stop():
    raise Stopped


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["kept", "none"])
def test_utterances_lost_on_the_way_are_left_out_the_same_after_a_kill(tmp_path, monkeypatch, cache):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 4})
    settings = {"training__epochs": 3, "training__average": 1, "data__max_bad": 0.25, "data__speeds": [0.9, 1.0]}
    names = ("train3.wav", "dev1.wav")
    contents = {name: (tmp_path / name).read_bytes() for name in names}

    def lose():
        for name in names:
            (tmp_path / name).unlink()
        if cache == "kept":
            shutil.rmtree(tmp_path / "features")

    def config():
        return quick(recipe, **settings, **({"data__cache": None} if cache == "none" else {}))

    def restore():
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)

    with monkeypatch.context() as patch:
        after_epochs(patch, {1: lose})
        train(config(), tmp_path / "whole")
    restore()
    with monkeypatch.context() as patch:
        after_epochs(patch, {1: lose, 2: stop})
        with pytest.raises(Stopped):
            train(config(), tmp_path / "killed")
    restore()  # too late: the run goes on as it would have
    train(config(), tmp_path / "killed")
    for run in ("whole", "killed"):
        log = (tmp_path / run / "log.txt").read_text()
        assert log.count("lost, and skipped from here on: train3 (") == 2  # speeds
        assert log.count("lost, and skipped from here on: dev1 (") == 1
    model = "model/model.safetensors"
    assert (tmp_path / "killed" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    losses = [[m["train_loss"] for m in read_rows(tmp_path / run / "metrics.jsonl")] for run in ("whole", "killed")]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_too_many_utterances_lost_on_the_way_end_the_run_and_are_named(tmp_path, monkeypatch, workers):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})

    def lose():
        for number in (2, 7):
            (tmp_path / f"train{number}.wav").unlink()

    after_epochs(monkeypatch, {1: lose})
    config = quick(recipe, data__cache=None, data__max_bad=0.05, training__epochs=3)
    config.data.workers = workers
    with pytest.raises(WildCTCError, match=r"2 of 20 utterances of train were lost .* the 1 that .* no such file"):
        train(config, tmp_path / "run")


def test_a_batch_of_which_all_is_lost_does_not_count(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 8, "dev": 1})
    trainer = Trainer(quick(recipe, data__cache=None, data__max_bad=0.5), tmp_path / "run")
    for number in (0, 1, 2):
        (tmp_path / f"train{number}.wav").unlink()
    plan = [[0, 1], [2, 3]]
    batches = list(
        Batches(trainer.steps.examples, plan, trainer.cache, trainer.stats, lost=trainer.lost["train"]).loader()
    )
    assert [(batch.counts, batch.missing) for batch in batches] == [(False, 2), (True, 1)]
    assert batches[1].ids == ["train3"]
    assert torch.equal(batches[1].x[0, : batches[1].x_lengths[0]], trainer_features(trainer, 3))


def trainer_features(trainer, number):
    example = trainer.steps.examples[number]
    return torch.from_numpy(trainer.stats.normalize(trainer.cache.get(example.utterance, example.speed)))


def test_parts_of_files_that_a_killed_run_left_are_removed(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 8, "dev": 3})
    parts = [tmp_path / "run" / folder / ".x.json.1.part" for folder in ("", "data", "model", "checkpoints")]
    for part in parts:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
    train(quick(recipe, training__epochs=1), tmp_path / "run")
    assert not [part for part in parts if part.exists()]


def test_one_huge_sample_is_named_and_left_out(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})
    wave, _ = soundfile.read(tmp_path / "train7.wav", dtype="float32")
    wave[1000] = 1e30
    soundfile.write(tmp_path / "train7.wav", wave, RATE, subtype="FLOAT")
    train(quick(recipe, data__max_bad=0.05, training__epochs=1), tmp_path / "run")
    log = (tmp_path / "run/log.txt").read_text()
    assert "train7.wav): features that are not finite: its samples reach 1e+30, where audio stays within 1" in log
    assert "19 training utterances" in log


# ------------------------------------------------------------------------------------------------------------- the loop


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the tones recipe with a wildcard criterion, by worker processes."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = make_corpus(folder / "corpus")
    config = load_recipe(str(recipe))
    config.criterion = "otc-tw"
    config.training.epochs = 6
    torch.set_num_threads(1)
    train(config, folder / "run")
    return folder / "run"


def test_run_learns_and_writes_exactly_the_promised_metrics(trained):
    history = read_rows(trained / "metrics.jsonl")
    assert [list(m) for m in history] == [METRICS] * 6
    assert [m["epoch"] for m in history] == list(range(1, 7))
    assert history[-1]["valid_wer"] < 0.3
    assert history[-1]["valid_ctc_loss"] < 0.3 * history[0]["valid_ctc_loss"]
    assert history[-1]["entropy"] < history[0]["entropy"] <= 1
    assert [m["bypass"] for m in history[:3]] == pytest.approx([-25, -25 * 0.775, -25 * 0.775**2])
    assert [m["word_bypass"] for m in history[:2]] == pytest.approx([-19, -19 * 0.925])
    assert 0 <= history[-1]["bypass_posterior_dev"] < history[0]["bypass_posterior_dev"] < 1


def test_the_smoothed_entropy_that_h_low_is_chosen_by_is_there_for_any_criterion(trained):
    history = read_rows(trained / "metrics.jsonl")  # of a criterion that does not follow it
    decay = EntropyDecay()
    for m in history:
        decay.update(m["entropy"])
        assert m["entropy_smoothed"] == decay.smooth
    assert history[0]["entropy_smoothed"] == history[0]["entropy"] > history[-1]["entropy_smoothed"]


def test_run_folder_holds_what_people_look_at(trained):
    root = ElementTree.parse(trained / "curves.svg").getroot()
    assert root.tag.endswith("svg")
    text = (trained / "curves.svg").read_text()
    for title in ("train loss", "valid ctc loss", "validation error", "word bypass", "entropy", "bypass posterior dev"):
        assert f"<!-- {title}" in text, title
    assert list((trained / "tensorboard").glob("events.*"))
    assert parse_yaml((trained / "config.yaml").read_text(), "config").criterion == "otc-tw"
    log = (trained / "log.txt").read_text()
    assert "share of the steps' time: loss" in log
    assert "epoch 6:" in log
    names = sorted(p.name for p in (trained / "model").iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "units.json"]
    assert "otc-tw" in (trained / "model/README.md").read_text()


def test_model_folder_is_enough_and_holds_the_average_of_the_best(trained):
    from wildctc.tensor_files import load_tensors

    rows = read_rows(trained / "metrics.jsonl")  # several have no error at all
    best = sorted(rows, key=lambda m: (m["valid_cer"] + m["valid_deletions"], m["valid_ctc_loss"]))[:2]
    kept = sorted(p.name for p in (trained / "checkpoints").glob("epoch-*"))
    assert kept == sorted(f"epoch-{m['epoch']:04d}.safetensors" for m in best)
    first, second = (load_tensors(trained / "checkpoints" / name)[0] for name in kept)
    model = Recognizer.load(trained)
    expected = (first["output.weight"].double() + second["output.weight"].double()) / 2
    assert torch.equal(model.output.weight, expected.float())
    assert not model.training


def test_units_that_do_not_match_the_weights_are_refused(trained, tmp_path):
    model = Recognizer.load(trained)
    model.save(tmp_path)
    CharUnits.train(["abcdef g"], Normalizer()).save(tmp_path)
    with pytest.raises(WildCTCError, match="units do not match the weights"):
        Recognizer.load(tmp_path)


def test_too_little_audio_for_a_frame_gives_no_logits(trained):
    model = Recognizer.load(trained)
    long, short = np.zeros((50, 40), np.float32), np.zeros((3, 40), np.float32)
    assert [len(x) for x in model.batch_logits([short, long])] == [0, len(model.batch_logits([long])[0])]
    assert model.batch_logits([]) == []


def test_accumulated_batches_give_the_step_of_one_large_batch(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 12, "dev": 2})
    weights = []
    for seconds, accumulate in ((1000, 1), (4, 100)):
        config = quick(recipe, data__batch_seconds=seconds, optimizer__accumulate=accumulate, encoder__dropout=0)
        config.encoder.kind = "e_branchformer"  # a Conformer's batch norm sees smaller batches
        for name in asdict(config.spec_augment):
            setattr(config.spec_augment, name, 0)
        config = replace(config, training=replace(config.training, epochs=1))
        config.optimizer.warmup_steps = 1
        trainer = Trainer(config, tmp_path / f"run{accumulate}")
        before = trainer.model.output.weight.detach().clone()
        trainer.run()
        assert trainer.step == 1
        weights.append(trainer.model.output.weight.detach() - before)
    assert weights[0].abs().max() > 1e-4
    # Adam's first step is the sign of the gradient: where one is all but 0 the sign is chance.
    assert (weights[0] - weights[1]).abs().gt(1e-5).float().mean() < 0.01


def test_training_in_bfloat16_learns(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 30, "dev": 4})
    train(quick(recipe, training__precision="bfloat16", training__epochs=3), tmp_path / "run")
    history = read_rows(tmp_path / "run/metrics.jsonl")
    assert history[-1]["train_loss"] < history[0]["train_loss"]


def test_run_stops_early_when_patience_runs_out(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 6, "dev": 2})
    config = quick(recipe, training__patience=2, training__epochs=30, optimizer__lr=1e-30)  # nothing gets better
    config.encoder.kind = "e_branchformer"  # a Conformer's batch norm learns without a learning rate
    train(config, tmp_path / "run")
    assert [m["epoch"] for m in read_rows(tmp_path / "run/metrics.jsonl")] == [1, 2, 3]


def test_speeds_are_copies_of_the_training_data_only(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 5, "dev": 3})
    trainer = Trainer(quick(recipe, data__speeds=[0.9, 1.0, 1.1]), tmp_path / "run")
    assert len(trainer.steps.examples) == 15
    assert len(trainer.dev) == 3
    slow, normal, fast = (e.frames for e in trainer.steps.examples[:3])
    assert slow > normal > fast


# --------------------------------------------------------------------------------------------------- what goes wrong


def break_corpus(folder):
    """Six bad training utterances of different kinds; returns what must be said of each."""
    rows = read_rows(folder / "train.jsonl")
    rng = np.random.default_rng(1)
    (folder / "empty.wav").write_bytes(b"")
    (folder / "noise.wav").write_bytes(b"this is not audio at all, whatever its name says")
    soundfile.write(folder / "nan.wav", np.full(RATE, np.nan, np.float32), RATE, subtype="FLOAT")
    whole = (folder / "train0.wav").read_bytes()
    (folder / "cut.wav").write_bytes(whole[: len(whole) // 3])
    soundfile.write(folder / "short.wav", say("ab", rng), RATE)
    bad = [
        {"id": "bad-missing", "audio": "missing.wav", "text": "abc"},
        {"id": "bad-empty", "audio": "empty.wav", "text": "abc"},
        {"id": "bad-noise", "audio": "noise.wav", "text": "abc"},
        {"id": "bad-nan", "audio": "nan.wav", "text": "abc"},
        {"id": "bad-cut", "audio": "cut.wav", "text": rows[0]["text"]},
        {"id": "bad-text", "audio": "train1.wav", "text": " "},
        {"id": "bad-long", "audio": "short.wav", "text": "abcdef abcdef abcdef abcdef"},
    ]
    write_rows(folder / "train.jsonl", rows + bad)
    return [row["id"] for row in bad]


def test_bad_utterances_are_reported_once_each_and_the_run_goes_on(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})
    bad = break_corpus(tmp_path)
    config = quick(recipe, data__max_bad=0.5, training__epochs=1)
    train(config, tmp_path / "run")
    log = (tmp_path / "run/log.txt").read_text()
    for name in bad:
        assert sum(f"{name} (" in line for line in log.splitlines()) == 1, name
    assert "transcript too long for its audio" in log
    assert "20 training utterances" in log


def test_too_many_bad_utterances_stop_the_run_before_the_first_step(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})
    break_corpus(tmp_path)
    with pytest.raises(WildCTCError, match=r"7 of 27 utterances cannot be used, more than the limit of 1\.00%"):
        train(quick(recipe), tmp_path / "run")
    assert not (tmp_path / "run/checkpoints").exists()


def test_audio_that_was_not_there_is_used_when_it_is(tmp_path):
    recipe = make_corpus(tmp_path / "corpus", {"train": 8, "dev": 4, "test": 1})
    away = tmp_path / "away"
    away.mkdir()
    for path in (tmp_path / "corpus").glob("*.wav"):
        path.rename(away / path.name)
    with pytest.raises(WildCTCError, match=r"8 of 8 utterances cannot be used, .*: no such file"):
        train(quick(recipe, training__epochs=1), tmp_path / "run")
    for path in away.iterdir():
        path.rename(tmp_path / "corpus" / path.name)
    assert train(quick(recipe, training__epochs=1), tmp_path / "run").is_dir()


def test_characters_outside_the_units_are_named(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 5, "dev": 4})
    rows = read_rows(tmp_path / "dev.jsonl")
    write_rows(tmp_path / "dev.jsonl", [rows[0] | {"text": "añb"}, *rows[1:]])
    with pytest.raises(WildCTCError, match=r"dev0 .*characters outside the units: ñ \(U\+00F1\)"):
        train(quick(recipe), tmp_path / "run")


def test_same_utterances_are_dropped_for_every_criterion(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})
    break_corpus(tmp_path)
    kept = []
    for criterion in ("ctc", "otc-tw"):
        config = quick(recipe, data__max_bad=0.5)
        config.criterion = criterion
        kept.append([e.utterance.id for e in Trainer(config, tmp_path / criterion).steps.examples])
    assert kept[0] == kept[1]


def test_manifest_with_several_splits_gives_each_its_own(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 5, "dev": 3})
    rows = [r | {"split": s} for s in ("train", "dev") for r in read_rows(tmp_path / f"{s}.jsonl")]
    write_rows(tmp_path / "all.jsonl", rows)
    config = quick(recipe, data__train="all.jsonl", data__dev="all.jsonl")
    assert [len(read_split(config.data, s)) for s in ("train", "dev")] == [5, 3]


def test_scan_is_not_repeated_for_the_same_data(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 5, "dev": 1})
    data = quick(recipe).data
    utterances = read_split(data, "train")
    units = CharUnits.train([u.text for u in utterances], Normalizer())
    cache = FeatureCache(tmp_path / "cache", make_front_end({"name": "fbank", "num_bins": 40}))
    arguments = (utterances, units, cache, data, [1.0], lambda n: n // 2, tmp_path / "train.json")
    first = usable(*arguments)
    for audio in tmp_path.glob("*.wav"):
        audio.unlink()
    assert usable(*arguments) == first


def test_loss_that_is_not_finite_stops_at_once_and_is_named(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 3})
    config = quick(recipe, optimizer__lr=1e30, optimizer__warmup_steps=1, training__epochs=20)
    config.criterion = "otc-tw"
    with pytest.raises(WildCTCError, match=r"training has diverged: .*--optimizer\.lr.*word_bypass"):
        train(config, tmp_path / "run")


def test_a_huge_loss_at_the_end_is_no_success(tmp_path, capfd):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 4})
    words = ["train", str(recipe), "--out", str(tmp_path / "run"), "--data.workers", "0", "--training.epochs", "2"]
    rate = ["--optimizer.lr", "100", "--optimizer.warmup_steps", "1"]
    for _ in range(2):  # the second time there is nothing left to train
        assert main([*words, *rate]) != 0
        assert re.search(
            r"diverged: the model's CTC loss on dev is \d\.\d+e\+06, .* lower --optimizer\.lr", capfd.readouterr().err
        )
    assert not (tmp_path / "run/model").exists()
    assert read_rows(tmp_path / "run/metrics.jsonl")[-1]["valid_ctc_loss"] > 1e6


def test_a_model_that_writes_nothing_is_said_to_be_hopeless(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 20, "dev": 4})
    train(quick(recipe, optimizer__lr=1e-6, training__epochs=1), tmp_path / "run")
    assert "the model gets almost nothing right: dev CER" in (tmp_path / "run/log.txt").read_text()


@pytest.mark.parametrize(
    ("criterion", "weights", "named"),
    [
        ("otc-tw", {"schedule__word_bypass": -0.01, "schedule__bypass": -25}, "word_bypass"),
        ("otc-w", {}, "self_loop"),  # as published: with seven labels, a self-loop gains more than it costs
    ],
)
def test_collapse_to_wildcards_is_named_within_50_steps_and_ends_the_run(tmp_path, criterion, weights, named):
    recipe = make_corpus(tmp_path, {"train": 60, "dev": 3})
    config = quick(recipe, training__epochs=50, **weights)
    config.criterion = criterion
    with pytest.raises(WildCTCError, match=rf"has collapsed to wildcards.*--schedule\.{named} -"):
        train(config, tmp_path / "run")
    said = re.findall(r"step (\d+): training is collapsing.* (--schedule\.\w+)", (tmp_path / "run/log.txt").read_text())
    assert int(said[0][0]) <= 50
    assert said[0][1] == f"--schedule.{named}"
    assert len(read_rows(tmp_path / "run/metrics.jsonl")) < 10


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["otc-w-tuned", "otc-tw", "btc"])
def test_published_settings_that_hold_are_not_mistaken_for_a_collapse(tmp_path, criterion):
    recipe = make_corpus(tmp_path, {"train": 60, "dev": 3})
    config = quick(recipe)
    config.criterion = criterion
    train(config, tmp_path / "run")
    assert read_rows(tmp_path / "run/metrics.jsonl")[-1]["valid_wer"] < 0.9
    assert "collaps" not in (tmp_path / "run/log.txt").read_text()


def test_unknown_criterion_is_one_line(tmp_path):
    recipe = make_corpus(tmp_path, {"train": 2, "dev": 1})
    config = quick(recipe)
    config.criterion = "otc-x"
    with pytest.raises(WildCTCError, match=r"otc-x.*otc-tw-h"):
        train(config, tmp_path / "run")


def test_recognizer_normalises_as_in_training():
    units = CharUnits.train(["ab"], Normalizer())
    stats = FeatureStats(np.full(40, 2.0, np.float32), np.full(40, 4.0, np.float32))
    encoder = {"kind": "conformer", "d_model": 16, "heads": 2, "blocks": 1, "ff_dim": 32, "kernel": 7, "subsampling": 2}
    model = Recognizer({"name": "fbank", "num_bins": 40}, encoder, units, stats).eval()
    x = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
    expected, _ = model(torch.from_numpy((x - 2) / 4)[None], torch.tensor([30]))
    assert torch.allclose(model.batch_logits([x])[0], expected[0], atol=1e-6)
    assert Criterion("ctc").wildcards.bypass is None


@pytest.mark.slow
def test_iban_recipe_trains_on_real_speech_and_the_loss_takes_next_to_no_time(tmp_path):
    if "WILDCTC_IBAN" not in os.environ:
        pytest.skip("set WILDCTC_IBAN to the folder of the Iban corpus")
    source = Path(os.environ["WILDCTC_IBAN"])
    rows = [r | {"audio": str(source / r["audio"])} for r in read_rows(source / "manifest.jsonl")]
    short = [r for r in rows if 2 < r["duration"] < 4]
    for split, number in (("train", 40), ("dev", 4)):
        write_rows(tmp_path / f"{split}.jsonl", [r for r in short if r["split"] == split][:number])
    config = load_recipe("iban")
    words = f"--data.dir {tmp_path} --data.cache {tmp_path}/features --data.train train.jsonl --data.dev dev.jsonl"
    apply_arguments(
        config, [*words.split(), "--training.epochs", "2", "--data.max_bad", "0.1", "--optimizer.warmup_steps", "5"]
    )
    train(config, tmp_path / "run")
    first, second = read_rows(tmp_path / "run/metrics.jsonl")
    assert second["valid_ctc_loss"] < first["valid_ctc_loss"]
    shares = re.findall(r"loss ([\d.]+)%, waiting", (tmp_path / "run/log.txt").read_text())
    assert float(shares[0]) < 2


@pytest.fixture
def little_memory():
    """This process may take 400 MB more than it has."""
    limit = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 400_000_000, limit[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory it has")
def test_a_run_without_enough_memory_says_so_in_one_line(tmp_path, capfd, little_memory):
    recipe = make_corpus(tmp_path, {"train": 3, "dev": 1})
    words = ["train", str(recipe), "--out", str(tmp_path / "run"), "--data.workers", "0", "--encoder.d_model", "16384"]
    assert main(words) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert re.match(r"wildctc: out of memory \(\d+ bytes were requested at once\): .*--data\.batch_seconds", last)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Caught MemoryError in DataLoader worker process 0."),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 8 GiB"),
    ],
)
def test_every_way_to_run_out_of_memory_is_known(error):
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    advice = out_of_memory_advice(error, ["decode"])
    assert "fewer --workers" in advice
    assert ("2.50 GiB" in advice) == isinstance(error, torch.OutOfMemoryError)
