"""Training from shards: the same bits as from a manifest, after a kill, and in several processes."""

import json
import random
import shutil

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows
from support.training_runs import (
    assert_same_run,
    command,
    in_processes,
    kill_after_checkpoints,
    last,
    load,
    messages,
    numbers,
    plain,
    start,
)

from wildctc.corpora.packing import Packing, pack
from wildctc.distributed import process_group
from wildctc.errors import WildCTCError
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.training.loop import Trainer, train
from wildctc.training.steps import Position

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A recipe, and shards of 8 shuffled utterances in `shards`, of 16 in the order of the manifest in `order`."""
    folder = tmp_path_factory.mktemp("corpus")
    recipe = make_corpus(folder)
    pack(folder / "train.jsonl", folder / "shards", Packing(size=8))
    pack(folder / "train.jsonl", folder / "order", Packing(size=16, seed=None))
    return recipe


def weights(model):
    return load_tensors(model / "model.safetensors")[0]


def same_bits(one, other):
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


SMALL = {"data__train": "shards", "data__window": 16, "training__epochs": 2}


@pytest.mark.slow
def test_a_corpus_that_is_one_window_is_trained_on_as_without_shards_to_the_bit(corpus, tmp_path):
    given = {"training__epochs": 2, "data__speeds": [1.0]}
    whole = train(load(corpus, **given), tmp_path / "whole")
    packed = train(load(corpus, data__train="order", **given), tmp_path / "packed")
    assert same_bits(whole, packed)
    rows = [list(map(numbers, read_rows(tmp_path / run / "metrics.jsonl"))) for run in ("whole", "packed")]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_data_loading_processes_and_where_features_come_from_do_not_change_a_bit(corpus, tmp_path):
    given = SMALL | {"data__streams": 2, "training__epochs": 1}
    kept = train(load(corpus, **given, data__workers=1), tmp_path / "kept")
    computed = train(load(corpus, **given, data__cache=None), tmp_path / "computed")
    assert same_bits(kept, computed)


def test_every_utterance_is_in_an_epoch_once_at_each_speed_and_orders_differ(corpus, tmp_path):
    given = SMALL | {"data__streams": 2, "data__lanes": 2, "data__speeds": [0.9, 1.0]}
    trainer = Trainer(load(corpus, **given), tmp_path / "run")
    orders = []
    for epoch in (1, 2):
        steps = list(steps_of(trainer, epoch))
        orders.append([id for step in steps for batch in step for id in batch])
        assert sorted(orders[-1]) == sorted(2 * [f"train{i}" for i in range(60)])
    assert orders[0] != orders[1]


def steps_of(trainer, epoch, number=0, places=None):
    """The utterances of the batches of each step."""
    for step in trainer.steps.epoch(Position(epoch, number, places), trainer.stats, trainer.parts):
        yield [batch.ids for batch in step.batches]


@pytest.mark.parametrize("given", [{}, {"data__streams": 2}, {"data__lanes": 3}, {"optimizer__accumulate": 2}])
def test_an_epoch_goes_on_from_every_step_as_if_it_had_not_stopped(corpus, tmp_path, given):
    trainer = Trainer(load(corpus, **SMALL | given), tmp_path / "run")
    whole, places = [], []
    for step in steps_of(trainer, 1):
        whole.append(step)
        places.append(json.loads(json.dumps(trainer.steps.places())))
    for done in range(1, len(whole)):
        assert list(steps_of(trainer, 1, done, places[done - 1])) == whole[done:]


@pytest.mark.slow
def test_a_run_killed_in_the_middle_of_epochs_ends_with_identical_weights(corpus, tmp_path):
    given = ("--data.train", "shards", "--data.window", "16", "--data.streams", "2", "--training.epochs", "3")
    whole = start(command(corpus, tmp_path / "whole", *given, "--training.checkpoint_steps", "2"))
    assert "model" in whole.communicate()[0]
    chance, run, kills = random.Random(0), tmp_path / "killed", 0
    for _ in range(3):
        process = start(command(corpus, run, *given, "--training.checkpoint_steps", "2"))
        checkpoint = run / "checkpoints" / "last.safetensors"
        kills += kill_after_checkpoints(process, checkpoint, chance.randint(1, 3), chance.uniform(0, 0.3))
    rest = start(command(corpus, run, *given, "--training.checkpoint_steps", "2"))
    output = rest.communicate()[0]
    assert (rest.returncode, kills) == (0, 3), output
    assert same_bits(tmp_path / "whole/model", run / "model")


def run_in_processes(recipe, run, fields):
    torch.set_num_threads(1)
    train(plain(recipe, **fields), run)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_two_processes_equal_one_with_the_same_lanes(corpus, tmp_path, accumulate):
    fields = SMALL | {"data__lanes": 2, "optimizer__accumulate": accumulate}
    train(plain(corpus, **fields), tmp_path / "one")
    assert in_processes(run_in_processes, corpus, tmp_path / "two", fields) == [True, True]
    assert_same_run(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_a_step_for_which_a_process_has_nothing_left_is_taken_by_all(corpus, tmp_path):
    """Eight shards in three lanes: two lanes have more than the third. With two processes the shares are uneven too."""
    fields = SMALL | {"data__lanes": 3, "training__epochs": 1}
    train(plain(corpus, **fields), tmp_path / "one")
    assert in_processes(run_in_processes, corpus, tmp_path / "two", fields) == [True, True]
    assert_same_run(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_the_number_of_processes_may_change_when_an_epoch_begins_and_not_rise_in_its_middle(corpus, tmp_path):
    config = plain(corpus, **SMALL | {"training__checkpoint_steps": 2})
    take_two_steps(Trainer(config, tmp_path / "run"))
    ends = in_processes(run_in_processes, corpus, tmp_path / "run", SMALL | {"training__checkpoint_steps": 2})
    assert messages(ends) == [
        "the run is in the middle of epoch 1 with 1 lanes: resume it with 1 processes or fewer; at the beginning of an "
        "epoch it can have more"
    ]
    tensors, state = last(tmp_path / "run")
    del state["places"]
    state |= {"epoch": 2, "group": 0, "history": []}
    save_tensors(tmp_path / "run/checkpoints/last.safetensors", tensors, state)
    resumed = in_processes(parts_of, corpus, tmp_path / "run", SMALL | {"training__checkpoint_steps": 2})
    assert resumed == [2, 2]


def take_two_steps(trainer):
    for step in trainer.steps.epoch(Position(trainer.epoch), trainer.stats, trainer.parts):
        trainer._step(step)
        trainer.group += 1
        if trainer.group == 2:
            trainer._save()
            break


def parts_of(recipe, run, fields):
    with process_group() as processes:
        return Trainer(plain(recipe, **fields), run, processes).parts


def test_more_streams_than_shards_are_refused(corpus, tmp_path):
    with pytest.raises(WildCTCError, match=r"8 shards for 9 streams \(3 lanes × 3\): pack the corpus again"):
        Trainer(load(corpus, **SMALL | {"data__lanes": 3, "data__streams": 3}), tmp_path / "run")


@pytest.mark.parametrize(("field", "value"), [("data__also", "more.jsonl"), ("rates__by", "speaker")])
def test_what_needs_all_utterances_is_refused(corpus, tmp_path, field, value):
    with pytest.raises(WildCTCError, match=f"--{field.replace('__', '.')} needs all training utterances in memory"):
        Trainer(load(corpus, criterion="otc-t-em", **SMALL | {field: value}), tmp_path / "run")


def test_too_many_unusable_utterances_end_a_run_and_few_are_named(tmp_path, caplog):
    folder = tmp_path / "corpus"
    recipe = make_corpus(folder)
    rows = read_rows(folder / "train.jsonl")
    rows[3]["text"] = "abcdef " * 30  # too long for its audio
    write_rows(folder / "train.jsonl", rows)
    pack(folder / "train.jsonl", folder / "shards", Packing(size=8))
    with pytest.raises(WildCTCError, match=r"1 of 60 utterances cannot be used.* train3 .*too long for its audio"):
        list(steps_of(Trainer(load(recipe, **SMALL), tmp_path / "run"), 1))
    trainer = Trainer(load(recipe, data__max_bad=0.05, **SMALL), tmp_path / "other")
    assert sum(len(ids) for step in steps_of(trainer, 1) for ids in step) == 59
    assert "skipped: train3 " in caplog.text


def test_shards_of_another_corpus_are_not_resumed(corpus, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus.parent, folder)
    config = load(corpus, data__dir=str(folder), **SMALL)
    take_two_steps(Trainer(config, tmp_path / "run"))
    content = json.loads((folder / "shards/shards.json").read_text())
    content["shards"].pop()
    (folder / "shards/shards.json").write_text(json.dumps(content))
    with pytest.raises(WildCTCError, match="the data has changed since the run started"):
        Trainer(config, tmp_path / "run")


def test_a_damaged_file_of_features_is_named_and_computed_again(corpus, tmp_path):
    config = load(corpus, data__cache=str(tmp_path / "features"), **SMALL)
    first = list(steps_of(Trainer(config, tmp_path / "run"), 1))
    [path, *_] = sorted((tmp_path / "features/packed").rglob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(WildCTCError, match=rf"{path}: damaged: the checksum .* is wrong; remove it, and the same"):
        list(steps_of(Trainer(config, tmp_path / "other"), 1))
    path.unlink()
    assert list(steps_of(Trainer(config, tmp_path / "third"), 1)) == first
