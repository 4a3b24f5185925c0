"""The `weights` column of a manifest in training: it reaches the loss, a run resumes to the same bits, and without it
nothing changes."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows

from wildctc.cli import main
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_ctc_loss
from wildctc.tensor_files import load_tensors
from wildctc.training import reports
from wildctc.training.batches import Batches, collate
from wildctc.training.config import load_recipe
from wildctc.training.data import data_digest
from wildctc.training.loop import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Curves are not looked at here, and drawing them takes two thirds of the time."""
    monkeypatch.setattr(reports, "draw_curves", lambda history: b"")


def weights_of(row) -> list[float]:
    """Different for each word of the corpus, positive and negative; the third utterance in a row has none."""
    number = int(row["id"].removeprefix("train"))
    return [((7 * number + 3 * n) % 11) / 2 - 3.5 for n in range(len(row["text"].split()))]


@pytest.fixture
def recipe(tmp_path):
    """A corpus in which two of three training utterances have weights."""
    recipe = make_corpus(tmp_path / "tones", {"train": 16, "dev": 4})
    rows = read_rows(recipe.parent / "train.jsonl")
    write_rows(
        recipe.parent / "train.jsonl",
        [row | ({"weights": weights_of(row)} if n % 3 else {}) for n, row in enumerate(rows)],
    )
    return recipe


def go(recipe, run, *more, criterion="otc-tw", epochs=2):
    words = f"--training.epochs {epochs} --data.workers 0 --training.checkpoint_steps 2 --criterion {criterion}"
    return main(["train", str(recipe), "--out", str(run), *words.split(), *more])


def model(run) -> bytes:
    return (run / "model/model.safetensors").read_bytes()


def make_trainer(recipe, run, criterion, **settings):
    config = load_recipe(str(recipe))
    config.criterion, config.data.workers = criterion, 0
    for name, value in settings.items():
        setattr(config.data, name, value)
    run.mkdir()
    return Trainer(config, run)


def weighted_loss(logits, lengths, batch, wildcards, texts, column):
    """The loss of a batch, utterance by utterance, with one weight for each arc, by the definition of the column."""
    total = torch.zeros((), dtype=torch.float64)
    for n, id in enumerate(batch.ids):
        words = texts[id].split()
        weights = column.get(id, [0.0] * len(words))
        of_tokens = [w for n, (word, w) in enumerate(zip(words, weights, strict=True)) for _ in word + " " * (n > 0)]
        given = Wildcards(
            None if wildcards.bypass is None else wildcards.bypass + torch.tensor([of_tokens], dtype=torch.float64),
            wildcards.self_loop,
            None if wildcards.word_bypass is None else wildcards.word_bypass + torch.tensor([weights]).double(),
            wildcards.self_loop_at,
        )
        length = int(batch.target_lengths[n])
        assert len(of_tokens) == length
        total = total + wildcard_ctc_loss(
            logits[n, : lengths[n]].unsqueeze(1), batch.targets[n : n + 1, :length], [int(lengths[n])], [length],
            reduction="sum", wildcards=given, words=batch.words[n : n + 1, :length], backend="reference",
        )  # fmt: skip
    return total


@pytest.mark.parametrize("criterion", ["otc-tw", "otc-t", "otc-w-tuned", "btc", "ctc"])
def test_the_loss_of_a_step_is_that_of_one_weight_for_each_arc(recipe, tmp_path, criterion):
    trainer = make_trainer(recipe, tmp_path / "run", criterion)
    trainer.model.eval()  # no dropout
    rows = {row["id"]: row for row in read_rows(recipe.parent / "train.jsonl")}
    column = {id: row["weights"] for id, row in rows.items() if "weights" in row}
    texts = {id: row["text"] for id, row in rows.items()}
    examples = [e for e in trainer.steps.examples if e.utterance.id in ("train0", "train1", "train2", "train4")]
    [batch] = Batches(examples, [range(4)], trainer.cache, trainer.stats).loader()
    with torch.no_grad():
        logits, lengths = trainer.model(batch.x, batch.x_lengths)
    for _ in range(12):  # in the first epoch, wildcards cost so much that no weight matters
        trainer.criterion.step()
    scheduled = trainer.criterion.wildcards
    by_hand = weighted_loss(logits, lengths, batch, scheduled, texts, column)
    assert trainer._backward(batch, 1, last=True)[0] == pytest.approx(float(by_hand), rel=1e-5)
    gradient = next(trainer.model.encoder.parameters()).grad.clone()
    trainer.optimizer.zero_grad()
    without = trainer._backward(replace(batch, weights=None), 1, last=True)[0]
    same = torch.equal(gradient, next(trainer.model.encoder.parameters()).grad)
    assert gradient.abs().sum() > 0
    assert same == (criterion == "ctc")
    assert without == pytest.approx(float(weighted_loss(logits, lengths, batch, scheduled, texts, {})), rel=1e-5)


def test_a_word_that_is_probably_wrong_teaches_less(recipe, tmp_path):
    """The gradient to the logits of a doubted word is smaller than without its weight, that of a sure one larger."""
    trainer = make_trainer(recipe, tmp_path / "run", "otc-w-tuned")
    [example, *_] = [replace(e, weights=None) for e in trainer.steps.examples if max(e.words) == 2]
    logits = torch.randn(60, 1, len(trainer.model.units), generator=torch.Generator().manual_seed(0))

    def size(weight: float) -> float:
        batch = collate([replace(example, weights=[weight] * 3)], [torch.zeros(1, 1)])
        leaf = logits.clone().requires_grad_()
        wildcards = batch.weigh(Wildcards(word_bypass=0.0, self_loop=-2.0, self_loop_at="word"))
        wildcard_ctc_loss(
            leaf, batch.targets, [60], batch.target_lengths, wildcards=wildcards, words=batch.words
        ).backward()
        return float(leaf.grad.norm())

    assert size(5.0) < size(0.0) < size(-5.0)


def test_every_speed_part_and_row_of_a_batch_has_the_weights_of_its_words(recipe, tmp_path):
    trainer = make_trainer(recipe, tmp_path / "run", "otc-tw", speeds=[0.9, 1.0])
    rows = {row["id"]: row for row in read_rows(recipe.parent / "train.jsonl")}
    found = 0
    for parts in (1, 3):
        for batch in Batches(
            trainer.steps.examples, [range(8), range(8, 32)], trainer.cache, trainer.stats, parts=parts
        ).loader():
            for part in (batch, batch.only([len(batch.ids) - 1])):
                for n, id in enumerate(part.ids):
                    given = rows[id].get("weights", [])
                    row = [] if part.weights is None else part.weights[n].tolist()
                    assert row[: len(given)] == given
                    assert not any(row[len(given) :])
                    found += bool(given)
    assert found >= 2 * 2 * 10  # ten utterances have weights


def test_a_manifest_without_the_column_has_the_hash_and_the_arcs_of_earlier_releases(tmp_path):
    recipe = make_corpus(tmp_path / "tones", {"train": 6, "dev": 2})
    trainer = make_trainer(recipe, tmp_path / "run", "otc-tw")
    content = [(e.utterance.id, e.speed, e.frames, e.tokens) for e in trainer.steps.examples]
    assert data_digest(trainer.steps.examples) == hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    [batch] = Batches(trainer.steps.examples, [range(6)], trainer.cache, trainer.stats).loader()
    assert batch.weights is None
    assert batch.weigh(trainer.criterion.wildcards) is not None
    assert vars(batch.weigh(trainer.criterion.wildcards)) == vars(trainer.criterion.wildcards)


def test_weights_of_zero_train_the_same_model_and_others_do_not(recipe, tmp_path):
    rows = read_rows(recipe.parent / "train.jsonl")
    zero = [row | {"weights": [0.0] * len(row["text"].split())} for row in rows]
    none = [{k: v for k, v in row.items() if k != "weights"} for row in rows]
    models = []
    for n, changed in enumerate((none, zero, rows)):
        write_rows(recipe.parent / "train.jsonl", changed)
        assert go(recipe, tmp_path / f"run{n}", "--schedule.bypass", "-2", "--schedule.word_bypass", "-3") == 0
        models.append(load_tensors(tmp_path / f"run{n}/model/model.safetensors")[0])
    without, zero, weighted = models
    assert all(torch.equal(without[name], zero[name]) for name in without)
    assert not all(torch.equal(without[name], weighted[name]) for name in without)


def test_a_run_with_weights_resumes_to_the_same_bits_and_refuses_other_weights(recipe, tmp_path, monkeypatch, capfd):
    assert go(recipe, tmp_path / "whole") == 0
    assert (
        "weights of words: 10 training utterances have them; added to bypass and word_bypass" in capfd.readouterr().err
    )
    step, steps = Trainer._step, []

    def stopping(self, *arguments):
        steps.append(self.step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopping)
        assert go(recipe, tmp_path / "stopped") != 0
    rows = read_rows(recipe.parent / "train.jsonl")
    changed = [row | ({"weights": [w + 1 for w in row["weights"]]} if row["id"] == "train1" else {}) for row in rows]
    write_rows(recipe.parent / "train.jsonl", changed)
    assert go(recipe, tmp_path / "stopped") == 2
    assert "the data has changed since the run started" in capfd.readouterr().err
    write_rows(recipe.parent / "train.jsonl", rows)
    assert go(recipe, tmp_path / "stopped") == 0
    assert "resuming from" in capfd.readouterr().err
    assert model(tmp_path / "stopped") == model(tmp_path / "whole")


def test_plain_ctc_ignores_the_weights_and_says_so_once(recipe, tmp_path, capfd):
    assert go(recipe, tmp_path / "with", criterion="ctc") == 0
    said = capfd.readouterr().err
    assert (
        said.count("weights of words are ignored: 10 training utterances have them, but the criterion ctc has no") == 1
    )
    write_rows(
        recipe.parent / "train.jsonl",
        [{k: v for k, v in row.items() if k != "weights"} for row in read_rows(recipe.parent / "train.jsonl")],
    )
    assert go(recipe, tmp_path / "without", criterion="ctc") == 0
    assert "weights of words" not in capfd.readouterr().err
    assert model(tmp_path / "with") == model(tmp_path / "without")


def test_weights_that_cannot_follow_the_units_are_named_and_the_utterance_skipped(recipe, tmp_path, capfd):
    rows = read_rows(recipe.parent / "train.jsonl")
    text = f"{rows[1]['text'].split()[0]} \u3164"  # a letter that nobody sees: no word where it stands alone
    write_rows(recipe.parent / "train.jsonl", [rows[0], rows[1] | {"text": text, "weights": [1.0, 2.0]}, *rows[2:]])
    assert go(recipe, tmp_path / "run", "--data.max_bad", "0.2", epochs=1) == 0
    assert "train1 (" in (said := capfd.readouterr().err)
    assert "weights do not match the transcript: its words cannot be normalised one by one" in said
