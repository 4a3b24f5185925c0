"""A run's folder says how far training has come, and its metrics are read in one way."""

import pytest

from wildctc.errors import WildCTCError
from wildctc.training import run_folder
from wildctc.training.config import load_recipe, to_yaml


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


def test_an_empty_folder_is_no_run(tmp_path):
    questions = (run_folder.has_checkpoint, run_folder.has_trunk, run_folder.is_trained, run_folder.is_unfinished)
    assert not any(question(tmp_path) for question in questions)
    assert run_folder.read_metrics(tmp_path) == []
    with pytest.raises(WildCTCError, match=r"no config\.yaml in it.*give a run's folder"):
        run_folder.read_settings(tmp_path)


@pytest.mark.parametrize("name", [run_folder.LAST, run_folder.PREVIOUS])
def test_either_checkpoint_can_be_resumed(tmp_path, name):
    put(run_folder.checkpoint_folder(tmp_path) / name)
    assert run_folder.has_checkpoint(tmp_path)
    assert run_folder.is_unfinished(tmp_path)
    put(tmp_path / "model/model.safetensors")
    assert run_folder.is_trained(tmp_path)
    assert not run_folder.is_unfinished(tmp_path)


def test_a_trunk_alone_is_not_a_run_to_resume(tmp_path):
    put(run_folder.checkpoint_folder(tmp_path) / run_folder.TRUNK)
    assert run_folder.has_trunk(tmp_path)
    assert not run_folder.has_checkpoint(tmp_path)


def test_metrics_are_read_in_order_and_a_bad_line_is_named(tmp_path):
    path = tmp_path / run_folder.METRICS
    path.write_text('{"epoch": 1, "entropy": null}\n{"epoch": 2, "entropy": 0.5}\n')
    assert [epoch["entropy"] for epoch in run_folder.read_metrics(tmp_path)] == [None, 0.5]
    path.write_text('{"epoch": 1}\n[2]\n')
    with pytest.raises(WildCTCError, match=r"metrics\.jsonl:2: not a JSON object"):
        run_folder.read_metrics(tmp_path)


def test_settings_are_those_that_training_wrote(tmp_path):
    config = load_recipe("iban")
    (tmp_path / run_folder.CONFIG).write_text(to_yaml(config))
    assert run_folder.read_settings(tmp_path) == config
