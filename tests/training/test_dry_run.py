"""`wildctc train --dry-run`: what a run would be, without one."""

import re

import pytest
from support.tones import make_corpus

from wildctc.cli import main
from wildctc.recognizer.model import Recognizer
from wildctc.tensor_files import load_tensors

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("tones"), {"train": 12, "dev": 3})


def rehearsed(recipe, capfd, *words) -> str:
    assert main(["train", str(recipe), "--data.workers", "0", "--dry-run", *words]) == 0
    return capfd.readouterr().out


def files(folder) -> dict[str, float]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_settings_come_with_the_recipes_and_nothing_is_written(recipe, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = files(recipe.parent)
    said = rehearsed(recipe, capfd, "--out", "run", "--training.epochs", "7", "--criterion", "otc-tw")
    assert files(recipe.parent) == before
    assert not list(tmp_path.iterdir())
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in said.partition("\n\n")[0].splitlines()}
    assert rows["training.epochs"] == f"7 command line; 5 in recipe {recipe}"
    assert rows["encoder.blocks"] == f"1 recipe {recipe}"
    assert rows["training.patience"] == "null default"
    assert "wildcards: in epochs 1 … 7: bypass -25 … -5.42, self_loop -5 … -1.08, word_bypass -19 … -11.9" in said


def test_size_and_number_of_steps_are_those_of_the_run(recipe, tmp_path, capfd):
    words = ["--data.batch_seconds", "6", "--optimizer.accumulate", "2", "--training.epochs", "2"]
    said = rehearsed(recipe, capfd, *words)
    assert main(["train", str(recipe), "--out", str(tmp_path / "run"), "--data.workers", "0", *words]) == 0
    model = Recognizer.load(tmp_path / "run")
    weights = sum(p.numel() for p in model.parameters())
    assert f"{weights / 1e6:.2f} million weights" in said
    steps = int(re.search(r"steps: (\d+) in an epoch", said)[1])
    assert "data: 12 training utterances" in said
    assert "12 training utterances" in (tmp_path / "run/log.txt").read_text()
    assert abs(load_tensors(tmp_path / "run/checkpoints/last.safetensors")[1]["step"] - 2 * steps) <= 2


def test_time_is_features_and_epochs_and_a_trunk_saves_its_own(recipe, capfd):
    words = ["--training.epochs", "5", "--training.ctc_epochs", "3"]
    assert re.search(r"time: .+ for features .+ \+ 5 epochs × .+ = .+, if", rehearsed(recipe, capfd, *words))
    assert "+ 2 epochs ×" in rehearsed(recipe, capfd, *words, "--trunk", "runs/ctc")


def test_mistakes_are_refused_as_in_training(recipe, capfd):
    assert main(["train", str(recipe), "--dry-run", "--data.dir", "nowhere"]) == 2
    assert "no manifest nowhere" in capfd.readouterr().err
    assert main(["train", str(recipe), "--dry-run", "--criterion", "otc"]) == 2
    assert "no criterion is called 'otc'" in capfd.readouterr().err
