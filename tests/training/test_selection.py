"""The best epochs: one rule for all criteria, which notices a model that deletes."""

import json
from pathlib import Path

import pytest
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.training.config import apply, differences, flatten, load_recipe, shipped_recipes
from wildctc.training.selection import best_epochs
from wildctc.training.settings import Config

RULE = "cer+deletions"
ROOT = Path(__file__).parents[2]
RESULTS, CHOOSING = ROOT / "results/small", (ROOT / "docs/choosing.md").read_text()
# Their published tables were selected so, and stay what they are.
PUBLISHED = {"iban-compare": "wer"} | dict.fromkeys(
    ("librispeech", "librispeech-conformer", "fleurs", "respin"), "loss"
)


def epoch(number, cer, deletions, **more):
    return {"epoch": number, "valid_cer": cer, "valid_deletions": deletions, "valid_ctc_loss": 50.0, **more}


def test_losses_that_move_with_the_wildcards_do_not_choose():
    """A wildcard run whose dev errors fall to the end: its own loss falls at once, plain CTC's rises."""
    history = [
        epoch(e, 0.5 - e / 20, 0.1, valid_ctc_loss=40.0 + e, valid_loss=1.0 + abs(e - 2), valid_wer=0.9 - e / 20)
        for e in range(1, 7)
    ]
    assert sorted(best_epochs(history, RULE, 0, 3)) == [4, 5, 6]
    assert sorted(best_epochs(history, "ctc_loss", 0, 3)) == [1, 2, 3]


def test_a_model_that_deletes_what_it_is_unsure_of_is_not_the_best():
    plain, deletes = epoch(1, 0.160, 0.05, valid_wer=0.57), epoch(2, 0.158, 0.08, valid_wer=0.54)
    assert best_epochs([plain, deletes], RULE, 0, 1) == [1]
    assert best_epochs([plain, deletes], "wer", 0, 1) == [2]
    collapsed = epoch(3, 1.0, 1.0, valid_wer=1.0)
    assert best_epochs([plain, deletes, collapsed], RULE, 0, 3) == [1, 2, 3]


def test_epochs_of_blanks_get_better_with_their_loss():
    history = [epoch(e, 1.0, 1.0, valid_ctc_loss=100.0 - e) for e in range(1, 5)]
    assert best_epochs(history, RULE, 0, 1) == [4]
    assert best_epochs([m | {"valid_wer": 1.0} for m in history], "wer", 0, 1) == [1]  # as it always was


def test_epochs_of_plain_ctc_count_only_while_there_is_no_other():
    history = [epoch(1, 0.1, 0.0), epoch(2, 0.3, 0.1)]
    assert best_epochs(history, RULE, 1, 2) == [2]
    assert best_epochs(history[:1], RULE, 1, 2) == [1]


@pytest.mark.parametrize("name", shipped_recipes())
def test_all_recipes_have_one_rule_but_those_of_published_tables(name):
    assert Config().training.select_by == RULE
    assert load_recipe(name).training.select_by == PUBLISHED.get(name, RULE)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*tc*-seed*.json")), ids=lambda path: path.stem)
def test_kept_results_of_small_are_those_of_the_recipe_and_the_rule(path):
    kept = json.loads(path.read_text())
    config = Config()
    for key, value in flatten(kept["settings"]).items():
        apply(config, key, value, path.name)
    changed = {line.partition(":")[0] for line in differences(config, load_recipe("small"))}
    assert changed <= {"criterion", "seed"}
    t = config.training
    assert sorted(best_epochs(kept["metrics"], t.select_by, t.ctc_epochs, t.average)) == kept["averaged_epochs"]
    rate = f"{100 * kept['scores']['test']['characters']['rate']:.2f}%"
    assert f"| `{config.criterion}` |" in CHOOSING
    assert config.seed or rate in CHOOSING


def test_run_begun_before_the_rule_goes_on_by_its_own_and_is_refused_by_another(tmp_path, capfd, one_thread):
    recipe, run = make_corpus(tmp_path / "corpus", {"train": 12, "dev": 3}), tmp_path / "run"
    words = ["train", str(recipe), "--out", str(run), "--data.workers", "0", "--training.epochs", "2"]
    old = ["--training.select_by", "ctc_loss", "--training.ctc_epochs", "1"]
    assert main([*words, *old]) == 0
    trunk, last = (run / "checkpoints" / name for name in ("trunk.safetensors", "last.safetensors"))
    tensors, state = load_tensors(trunk)  # after epoch 1
    for name in ("valid_cer", "valid_deletions"):
        del state["history"][0][name]
    save_tensors(last, tensors, state)
    assert main([*words, *old[2:]]) == 2
    assert (
        "(training.select_by: ctc_loss there, cer+deletions here): repeat its settings, or choose"
        in capfd.readouterr().err
    )
    assert main([*words, *old]) == 0
    assert ["valid_cer" in m for m in read_rows(run / "metrics.jsonl")] == [False, True]
