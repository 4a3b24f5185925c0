"""Epochs of plain CTC before a criterion's own, and runs that share them."""

import json

import pytest
import torch
from support.tones import make_corpus

from wildctc.errors import WildCTCError
from wildctc.tensor_files import load_tensors
from wildctc.training.config import load_recipe
from wildctc.training.loop import train
from wildctc.training.settings import Config


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("tones"), {"train": 24, "dev": 8, "test": 4})


def settings(recipe, criterion: str, **schedule: float) -> Config:
    config = load_recipe(str(recipe))
    config.criterion, config.data.workers = criterion, 0
    config.training.epochs, config.training.ctc_epochs, config.training.average = 5, 2, 2
    for name, value in schedule.items():
        setattr(config.schedule, name, value)
    return config


def metrics(run) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run) -> dict[str, torch.Tensor]:
    return load_tensors(run / "model" / "model.safetensors")[0]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_the_schedule_begins_after_the_epochs_of_plain_ctc(recipe, tmp_path):
    train(settings(recipe, "otc-t", epoch_scale=2.0), tmp_path / "run")
    found = metrics(tmp_path / "run")
    assert [m["bypass"] for m in found] == [None, None, *(pytest.approx(-25 * 0.775 ** (2 * i)) for i in range(3))]
    assert all(m["valid_loss"] == m["valid_ctc_loss"] for m in found[:2])
    assert all(m["valid_loss"] < m["valid_ctc_loss"] for m in found[3:])


@pytest.mark.slow
def test_a_branch_has_the_weights_of_a_run_of_its_own(recipe, tmp_path):
    train(settings(recipe, "ctc"), tmp_path / "ctc")
    for criterion in ("otc-t", "otc-tw-h"):
        train(settings(recipe, criterion, h_low=0.2), tmp_path / "alone" / criterion)
        train(settings(recipe, criterion, h_low=0.2), tmp_path / "branch" / criterion, trunk=tmp_path / "ctc")
        alone, branch = weights(tmp_path / "alone" / criterion), weights(tmp_path / "branch" / criterion)
        assert same(alone, branch)
        assert not same(branch, weights(tmp_path / "ctc"))


def test_the_entropy_schedule_knows_the_entropy_of_the_trunk(recipe, tmp_path):
    train(settings(recipe, "otc-t-h", h_low=0.3), tmp_path / "run")
    state = load_tensors(tmp_path / "run" / "checkpoints" / "last.safetensors")[1]
    assert state["criterion"]["h_0"] == metrics(tmp_path / "run")[0]["entropy"]
    assert state["criterion"]["h_bar"] == metrics(tmp_path / "run")[-1]["entropy_smoothed"]


def test_the_epochs_of_plain_ctc_are_not_averaged(recipe, tmp_path):
    train(settings(recipe, "otc-t", bypass=-0.01, epoch_scale=1.0), tmp_path / "run")
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("epoch-*"))
    assert all(name >= "epoch-0003" for name in kept)
    assert len(kept) == 2


def test_a_run_with_other_settings_is_no_trunk(recipe, tmp_path):
    train(settings(recipe, "ctc"), tmp_path / "ctc")
    other = settings(recipe, "otc-t")
    other.seed = 7
    with pytest.raises(WildCTCError, match=r"no trunk for this run: it has other settings \(seed: 0 there, 7 here\)"):
        train(other, tmp_path / "other", trunk=tmp_path / "ctc")
    with pytest.raises(WildCTCError, match="no run with a trunk"):
        train(settings(recipe, "otc-t"), tmp_path / "none", trunk=tmp_path / "nowhere")


def test_only_plain_ctc_is_refused(recipe, tmp_path):
    config = settings(recipe, "otc-t")
    config.training.ctc_epochs = 5
    with pytest.raises(WildCTCError, match="nothing would be trained with the criterion"):
        train(config, tmp_path / "run")
