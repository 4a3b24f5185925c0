"""Hugging Face's Trainer with a wildcard criterion: real runs of a tiny wav2vec 2.0, without a network."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.tones import say, sentence

pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from support.tiny_hf import make_checkpoint  # noqa: E402

import wildctc  # noqa: E402
from wildctc.errors import MissingExtra, WildCTCError  # noqa: E402
from wildctc.integrations import huggingface  # noqa: E402
from wildctc.integrations.huggingface import LabelWords, WildcardCTCTrainer  # noqa: E402

transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("hf"))


def utterances(folder: Path, size: int, seed: int = 0) -> list[dict]:
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(size):
        text = sentence(rng)
        wave = processor.feature_extractor(say(text, rng), sampling_rate=16000).input_values[0]
        rows.append({"input_values": wave, "labels": processor.tokenizer(text).input_ids})
    return rows


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    """Unequal lengths, padded: waves with 0, labels with −100."""
    waves = [torch.as_tensor(row["input_values"], dtype=torch.float32) for row in rows]
    labels = [torch.as_tensor(row["labels"]) for row in rows]
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones(len(wave), dtype=torch.long) for wave in waves], True)
    return {"input_values": pad(waves, True), "attention_mask": mask, "labels": pad(labels, True, -100)}


def make_trainer(folder: Path, out: Path, criterion="otc-tw", *, model=None, train=None, dev=None, **settings):
    arguments = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "learning_rate": 1e-3, "report_to": "none"}
    arguments |= {"use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "remove_unused_columns": False}
    return WildcardCTCTrainer(
        model=model if model is not None else transformers.AutoModelForCTC.from_pretrained(folder),
        args=transformers.TrainingArguments(output_dir=str(out), **(arguments | settings)),
        data_collator=collate,
        train_dataset=train if train is not None else utterances(folder, 8),
        eval_dataset=dev if dev is not None else utterances(folder, 3, seed=1),
        processing_class=transformers.AutoProcessor.from_pretrained(folder),
        criterion=criterion,
    )


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_with_ctc_the_loss_is_the_models_own(folder, tmp_path, reduction, zero_infinity):
    batch = collate(utterances(folder, 5))
    assert len(set(batch["attention_mask"].sum(1).tolist())) > 1
    assert len(set((batch["labels"] >= 0).sum(1).tolist())) > 1
    settings = {"ctc_loss_reduction": reduction, "ctc_zero_infinity": zero_infinity}
    model = transformers.AutoModelForCTC.from_pretrained(folder, **settings).eval()
    if zero_infinity:  # one utterance with more labels than frames
        batch["attention_mask"][0, 400:] = 0
    trainer = make_trainer(folder, tmp_path, "ctc", model=model)
    own = model(**batch).loss
    loss, outputs = trainer.compute_loss(model, dict(batch), return_outputs=True)
    assert loss.isfinite()
    assert torch.allclose(loss, own, rtol=1e-5)
    assert outputs.logits.shape[0] == 5
    parameters = [p for p in model.parameters() if p.requires_grad]
    wanted = torch.autograd.grad(own, parameters, allow_unused=True)
    for found, expected in zip(torch.autograd.grad(loss, parameters, allow_unused=True), wanted, strict=True):
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()) + 1e-6)


def tiny_model(kind: str, vocabulary: int = 9):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(1)
    if kind == "parakeet":
        encoder = sizes | {"num_mel_bins": 16, "subsampling_conv_channels": 4, "conv_kernel_size": 3}
        config = transformers.ParakeetCTCConfig(vocab_size=vocabulary, encoder_config=encoder, pad_token_id=8)
        return transformers.ParakeetForCTC(config)
    if kind == "wav2vec2-bert":
        sizes |= {"feature_projection_input_dim": 16, "add_adapter": True, "num_adapter_layers": 1}
        sizes |= {"output_hidden_size": 16}
    else:
        sizes |= {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_conv_pos_embeddings": 4}
        sizes |= {"num_conv_pos_embedding_groups": 2}
    config = transformers.AutoConfig.for_model(kind, vocab_size=vocabulary, pad_token_id=8, **sizes)
    return transformers.AutoModelForCTC.from_config(config)


@pytest.mark.parametrize("kind", ["hubert", "wavlm", "wav2vec2-conformer", "wav2vec2-bert", "parakeet"])
def test_other_models_too(folder, tmp_path, kind):
    model = tiny_model(kind).eval()
    name, shape = (
        ("input_features", (3, 200, 16)) if kind in ("wav2vec2-bert", "parakeet") else ("input_values", (3, 900))
    )
    mask = torch.ones(shape[:2], dtype=torch.long)
    mask[1, shape[1] - 50 :] = 0
    mask[2, shape[1] - 100 :] = 0
    labels = torch.tensor([[1, 2, 2, 3], [4, 5, -100, -100], [6, 1, 3, 8]])  # 8 is the blank: padding as well
    batch = {
        name: torch.randn(shape, generator=torch.Generator().manual_seed(0)),
        "attention_mask": mask,
        "labels": labels,
    }
    trainer = make_trainer(folder, tmp_path, "ctc", model=model)
    with torch.no_grad():
        own, found = model(**batch).loss, trainer.compute_loss(model, batch)
    assert own.isfinite()
    torch.testing.assert_close(found, own, rtol=1e-5, atol=1e-5)
    del batch["attention_mask"]
    if kind != "parakeet":  # which needs it for a loss of its own
        with torch.no_grad():
            torch.testing.assert_close(trainer.compute_loss(model, batch), model(**batch).loss, rtol=1e-5, atol=1e-5)


def test_the_logits_are_not_copied(folder, tmp_path, monkeypatch):
    seen = []

    def loss(logits, *args, **kwargs):
        seen.append(logits)
        return wildctc.wildcard_ctc_loss(logits, *args, **kwargs)

    monkeypatch.setattr(huggingface, "wildcard_ctc_loss", loss)
    trainer = make_trainer(folder, tmp_path)
    _, outputs = trainer.compute_loss(trainer.model, collate(utterances(folder, 2)), return_outputs=True)
    assert seen[0].data_ptr() == outputs.logits.data_ptr()
    assert seen[0].shape == outputs.logits.transpose(0, 1).shape


@pytest.mark.slow
def test_a_run_learns_and_steps_its_schedule(folder, tmp_path):
    rows = utterances(folder, 16)
    trainer = make_trainer(
        folder, tmp_path, wildctc.Criterion("otc-tw"), train=rows, num_train_epochs=6, logging_steps=1
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4])
    weights = [entry["wildctc/bypass"] for entry in trainer.state.log_history if "wildctc/bypass" in entry]
    assert weights == pytest.approx([-25 * 0.775**epoch for epoch in range(1, 7)])
    assert trainer.criterion.epoch == 7


def test_the_entropy_is_that_of_the_whole_held_out_set(folder, tmp_path):
    dev = utterances(folder, 5, seed=2)
    trainer = make_trainer(folder, tmp_path, "otc-t-h", dev=dev, per_device_eval_batch_size=2)
    model = trainer.model.eval()
    top = bottom = 0.0
    for row in dev:  # one by one, without padding
        batch = collate([row])
        logits = model(batch["input_values"], attention_mask=batch["attention_mask"]).logits.transpose(0, 1)
        numerator, denominator = wildctc.predictive_entropy(logits, [len(logits)], model.config.pad_token_id)
        top, bottom = top + float(numerator), bottom + float(denominator)
    model.train()
    state = torch.get_rng_state()
    assert trainer.held_out_entropy() == pytest.approx(top / bottom, rel=1e-3)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    trainer.eval_dataset = {"first": dev[:2], "second": dev[2:]}
    assert trainer.held_out_entropy() == pytest.approx(top / bottom, rel=1e-3)


def test_an_entropy_schedule_follows_each_epochs_end(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, wildctc.Criterion("otc-tw-h", h_low=0.5), num_train_epochs=3)
    trainer.train()
    found = [entry["wildctc/entropy"] for entry in trainer.state.log_history if "wildctc/entropy" in entry]
    assert len(found) == 3
    criterion = wildctc.Criterion("otc-tw-h", h_low=0.5)
    for entropy in found:
        criterion.step(entropy)
    assert trainer.criterion.state_dict() == pytest.approx(criterion.state_dict())
    assert trainer.held_out_entropy() == pytest.approx(found[-1])


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "stop"), [("epoch", 2), ("steps", 2), ("steps", 3)])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(folder, tmp_path, strategy, stop):
    """From the checkpoint at an epoch's end, made before or after Trainer calls it that, and from inside an epoch."""
    settings = {"save_strategy": strategy, "eval_strategy": strategy, "save_steps": 1, "eval_steps": 1}
    settings |= {"num_train_epochs": 3}
    criterion = {"name": "otc-tw-h", "h_low": 0.5}
    whole = make_trainer(folder, tmp_path, wildctc.Criterion(**criterion), **settings)
    whole.train()
    checkpoint = tmp_path / f"checkpoint-{stop}"
    kept = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]["wildctc"]
    assert kept["criterion"] == "otc-tw-h"
    assert kept["state"]["epoch"] == stop // 2 + 1  # an epoch has two steps
    again = make_trainer(folder, tmp_path / "again", wildctc.Criterion(**criterion), **settings)
    again.train(resume_from_checkpoint=str(checkpoint))
    assert again.criterion.state_dict() == whole.criterion.state_dict()
    for name, parameter in whole.model.named_parameters():
        assert torch.equal(parameter, again.model.get_parameter(name)), name
    for key in ("eval_loss", "wildctc/bypass"):
        histories = [[e[key] for e in t.state.log_history if key in e] for t in (whole, again)]
        assert histories[0] == histories[1]


def test_evaluation_uses_the_weights_of_the_epoch_just_trained(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, "otc-t", num_train_epochs=1, eval_strategy="epoch")
    trainer.train()
    [found] = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    fresh = make_trainer(folder, tmp_path, "otc-t", model=trainer.model)
    assert fresh.evaluate()["eval_loss"] == pytest.approx(found)
    assert trainer.criterion.epoch == 2


def test_training_again_begins_the_schedule_again(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, "otc-t")
    trainer.train()
    trainer.train()
    assert trainer.criterion.epoch == 3


def test_an_epoch_that_the_last_step_cuts_off_does_not_count(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, "otc-t", max_steps=3)
    trainer.train()
    assert trainer.criterion.epoch == 2


def test_accumulated_gradients_are_those_of_the_whole_batch(folder, tmp_path):
    """With `mean`, and equally long utterances: to this model padding matters. Trainer alone would add the parts up."""
    rows = utterances(folder, 4)
    for row in rows:
        row["labels"], row["input_values"] = row["labels"][:2], row["input_values"][:3000]
    found = []
    for size, parts in ((4, 1), (2, 2)):
        model = transformers.AutoModelForCTC.from_pretrained(folder, ctc_loss_reduction="mean")
        settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": parts, "num_train_epochs": 1}
        trainer = make_trainer(
            folder, tmp_path, "otc-t", model=without_noise(model), train=rows, **settings, optim="sgd"
        )
        trainer.train()
        found.append(trainer.model.lm_head.weight.detach())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def without_noise(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.apply_spec_augment, model.config.layerdrop = False, 0.0
    return model


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_mixed_precision_and_half_models_need_no_cast(folder, tmp_path, dtype):
    model = transformers.AutoModelForCTC.from_pretrained(folder, dtype=dtype or torch.float32)
    trainer = make_trainer(folder, tmp_path, "otc-tw-h", model=model, bf16=dtype is None, num_train_epochs=1)
    if dtype is torch.float16:  # the optimizer of a model in float16 cannot be trusted: one step, forth and back
        batch = collate(utterances(folder, 2))
        batch["input_values"] = batch["input_values"].to(dtype)
        loss = trainer.compute_loss(model.train(), batch)
        loss.backward()
        assert model.lm_head.weight.grad.isfinite().all()
        return
    if dtype is not None:
        trainer.data_collator = lambda rows: {
            k: v.to(dtype) if k == "input_values" else v for k, v in collate(rows).items()
        }
    before = model.lm_head.weight.detach().clone()
    trainer.train()
    assert not torch.equal(model.lm_head.weight, before)
    assert all(math.isfinite(e["train_loss"]) for e in trainer.state.log_history if "train_loss" in e)
    assert 0 < trainer.criterion.entropy_decay.first < 1


def test_logits_in_bfloat16_under_autocast(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, "otc-tw")
    batch = collate(utterances(folder, 2))
    single = trainer.compute_loss(trainer.model.eval(), batch)
    with torch.autocast("cpu", torch.bfloat16):
        loss, outputs = trainer.compute_loss(trainer.model, batch, return_outputs=True)
    assert outputs.logits.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, single, rtol=0.05, atol=0.0)


def test_deterministic_mode_is_satisfied(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, "otc-tw-h", num_train_epochs=1)
    torch.use_deterministic_algorithms(True)
    try:
        trainer.train()
    finally:
        torch.use_deterministic_algorithms(False)
    assert trainer.criterion.epoch == 2


def test_words_come_from_the_tokenizer(folder):
    processor = transformers.AutoProcessor.from_pretrained(folder)
    rows = [processor.tokenizer(text).input_ids for text in ("ab cd", "fee")]
    labels = torch.tensor([rows[0], [*rows[1], -100, -100]])
    assert LabelWords(processor)(labels, labels >= 0).tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    assert LabelWords(processor.tokenizer)(labels, labels >= 0).tolist() == [0, 0, 1, 1, 1, 0, 0, 0]


def test_a_batch_without_a_word_has_a_loss(folder, tmp_path):
    """Nothing but silence: all labels are padding."""
    batch = collate(utterances(folder, 2))
    batch["labels"][:] = -100
    trainer = make_trainer(folder, tmp_path, "otc-tw")
    assert trainer.compute_loss(trainer.model, batch).isfinite()


def word_level(vocabulary: dict[str, int]):
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>")


def test_words_of_pieces():
    tokenizer = word_level({token: i for i, token in enumerate(["<pad>", "<unk>", "▁ab", "c", "▁d"])})
    labels = torch.tensor([[2, 3, 4, 4], [3, 2, 0, 0]])
    assert LabelWords(tokenizer)(labels, labels > 0).tolist() == [0, 0, 1, 2, 0, 1]


def test_what_is_missing_is_said_in_a_line(folder, tmp_path):
    with pytest.raises(WildCTCError, match="give eval_dataset"):
        WildcardCTCTrainer(
            model=transformers.AutoModelForCTC.from_pretrained(folder),
            args=transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none"),
            criterion="otc-t-h",
        )
    with pytest.raises(WildCTCError, match="give processing_class="):
        LabelWords(None)
    with pytest.raises(WildCTCError, match="vocabulary has neither"):
        LabelWords(word_level({"<pad>": 0, "<unk>": 1, "a": 2}))
    trainer = make_trainer(folder, tmp_path, "otc-t")
    trainer.model.config.pad_token_id = None
    with pytest.raises(WildCTCError, match="no pad_token_id"):
        trainer.compute_loss(trainer.model, collate(utterances(folder, 1)))


def test_a_checkpoint_of_another_criterion_is_refused(folder, tmp_path):
    make_trainer(folder, tmp_path, "otc-t", save_strategy="epoch", num_train_epochs=1).train()
    with pytest.raises(WildCTCError, match="trained with otc-t, not with otc-tw"):
        make_trainer(folder, tmp_path / "again", "otc-tw").train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_checkpoint_of_another_trainer_starts_the_schedule_anew(folder, tmp_path):
    trainer = make_trainer(folder, tmp_path, "otc-t", save_strategy="epoch", num_train_epochs=1)
    trainer.train()
    path = tmp_path / "checkpoint-2/trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["wildctc"]
    path.write_text(json.dumps(state))
    again = make_trainer(folder, tmp_path / "again", "otc-t", num_train_epochs=2)
    with pytest.warns(UserWarning, match="starts with its first epoch"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.criterion.epoch == 2


def test_without_transformers_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.delitem(sys.modules, "wildctc.integrations.huggingface")
    with pytest.raises(MissingExtra, match=r"accelerate is not installed; .* pip install '\.\[hf\]'"):
        import wildctc.integrations.huggingface  # noqa: F401
