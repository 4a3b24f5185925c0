"""A run that is made longer: its first epochs stay, and the others do not depend on when they were asked for."""

import json

import pytest
import torch
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.tensor_files import load_tensors
from wildctc.training import reports
from wildctc.training.config import load_recipe
from wildctc.training.loop import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Curves are not looked at here, and drawing them takes two thirds of the time."""
    monkeypatch.setattr(reports, "draw_curves", lambda history: b"")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("tones"), {"train": 16, "dev": 4})


@pytest.fixture
def go(recipe):
    def go(run, epochs, decay="cosine", *more):
        words = f"--training.epochs {epochs} --optimizer.decay {decay} --data.workers 0 --training.checkpoint_steps 4"
        return main(["train", str(recipe), "--out", str(run), "--criterion", "otc-tw", *words.split(), *more])

    return go


def stop_at(step: int, monkeypatch) -> None:
    """Make a run end as if interrupted when it comes to a step."""
    original = Trainer._step

    def stopping(self, *arguments):
        if self.step + 1 == step:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", stopping)


def numbers(run) -> list[dict]:
    return [{k: v for k, v in m.items() if k != "seconds"} for m in read_rows(run / "metrics.jsonl")]


def state(run) -> dict[str, torch.Tensor]:
    """Weights and moments at the end, and the model."""
    last, model = (load_tensors(run / name)[0] for name in ("checkpoints/last.safetensors", "model/model.safetensors"))
    return last | {f"averaged.{name}": tensor for name, tensor in model.items()}


def same(one, other) -> bool:
    a, b = state(one), state(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_without_an_end_in_the_learning_rate_it_is_the_longer_run_to_the_bit(go, tmp_path):
    assert go(tmp_path / "long", 4, "sqrt") == go(tmp_path / "made", 2, "sqrt") == go(tmp_path / "made", 4, "sqrt") == 0
    assert same(tmp_path / "long", tmp_path / "made")
    assert numbers(tmp_path / "long") == numbers(tmp_path / "made")


def test_epochs_up_to_the_old_end_stay_and_the_rest_does_not_depend_on_when_one_asks(go, tmp_path, monkeypatch):
    asked_after, asked_before, killed = (tmp_path / name for name in ("after", "before", "killed"))
    assert go(asked_after, 2) == 0
    short = numbers(asked_after)
    assert go(asked_after, 4) == 0
    assert numbers(asked_after)[:2] == short
    assert len(numbers(asked_after)) == 4
    steps = Trainer(load_recipe(str(asked_after / "config.yaml")), asked_after).steps.per_epoch

    with monkeypatch.context() as patch:  # asked for within the second epoch
        stop_at(steps + 2, patch)
        assert go(asked_before, 2) != 0
    assert go(asked_before, 4) == 0
    assert same(asked_after, asked_before)
    assert numbers(asked_after) == numbers(asked_before)

    assert go(killed, 2) == 0
    with monkeypatch.context() as patch:  # in the middle of the new epochs
        stop_at(2 * steps + 2, patch)
        assert go(killed, 4) != 0
    assert go(killed, 4) == 0
    assert same(asked_after, killed)


def test_it_is_said_and_kept_and_cannot_be_taken_back(go, tmp_path, capfd):
    run = tmp_path / "run"
    assert go(run, 1) == go(run, 2) == go(run, 3) == 0
    log = (run / "log.txt").read_text()
    assert "extended from 1 to 2 epochs: from epoch 2 on the learning rate rises again from 0" in log
    assert json.loads((run / "data/lengths.json").read_text()) == [1, 2]
    assert "for 3 epochs" in (run / "model/README.md").read_text()
    assert "extended after 1, 2" in (run / "model/README.md").read_text()
    capfd.readouterr()
    assert go(run, 2) == 2
    assert "training.epochs: 3 there, 2 here" in capfd.readouterr().err
    assert go(run, 4, "cosine", "--optimizer.lr", "0.5") == 2  # other settings are refused as ever
    assert "training.epochs" not in capfd.readouterr().err
    assert go(run, 3) == 0
    assert "the run is finished" in capfd.readouterr().err


def test_a_run_that_begins_anew_has_forgotten_earlier_ends(go, tmp_path):
    assert go(tmp_path / "run", 1) == go(tmp_path / "run", 2) == go(tmp_path / "new", 2) == 0
    for path in (tmp_path / "run/checkpoints").iterdir():
        path.unlink()
    (tmp_path / "run/model/model.safetensors").unlink()
    assert go(tmp_path / "run", 2) == 0
    assert same(tmp_path / "run", tmp_path / "new")
