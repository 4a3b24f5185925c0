"""The schedule inside Lightning: real runs of the example's model."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch

import wildctc
from wildctc.errors import MissingExtra

lightning = pytest.importorskip("lightning")

from wildctc.integrations.lightning import WildcardSchedule  # noqa: E402

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("lightning_example", ROOT / "examples/lightning_example.py")
assert spec is not None
assert spec.loader is not None
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def fit(folder, epochs, model=None, resume=None, package=lightning, **settings):
    """A run of the example: four batches of training speech, two of held-out speech."""
    torch.manual_seed(0)
    model = model if model is not None else example.Recogniser()
    schedule = WildcardSchedule(model.loss.criterion)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    trainer = package.Trainer(
        default_root_dir=folder,
        max_epochs=epochs,
        callbacks=[schedule, *settings.pop("callbacks", [])],
        **quiet,
        **settings,
    )
    loaders = [torch.utils.data.DataLoader(example.speech(size), batch_size=4) for size in (16, 8)]
    trainer.fit(model, *loaders, ckpt_path=resume)
    return model, trainer, loaders


def entropy(model, loader) -> float:
    top = bottom = 0.0
    with torch.no_grad():
        for features, lengths, *_ in loader:
            numerator, denominator = wildctc.predictive_entropy(model.encoder(features).transpose(0, 1), lengths)
            top, bottom = top + float(numerator), bottom + float(denominator)
    return top / bottom


def test_the_schedule_follows_the_entropy_of_the_validation_set(tmp_path):
    model, trainer, (_, held_out) = fit(tmp_path, 2, enable_checkpointing=False)
    assert model.loss.criterion.epoch == 3
    assert float(trainer.callback_metrics["wildctc/entropy"]) == pytest.approx(entropy(model, held_out), rel=1e-5)
    decay = model.loss.criterion.entropy_decay
    assert 0 < decay.first < 1
    assert decay.smooth != decay.first
    assert float(trainer.callback_metrics["wildctc/bypass"]) == pytest.approx(model.loss.criterion.wildcards.bypass)


def test_an_epoch_schedule_needs_no_validation(tmp_path):
    model, *_ = fit(tmp_path, 2, example.Recogniser("otc-t"), limit_val_batches=0, enable_checkpointing=False)
    assert model.loss.criterion.epoch == 3
    assert model.loss.criterion.wildcards.bypass == pytest.approx(-25 * 0.775**2)


def test_epochs_without_validation_keep_the_weights(tmp_path):
    model, *_ = fit(tmp_path, 1, limit_val_batches=0, enable_checkpointing=False)
    assert math.isnan(model.loss.criterion.state_dict()["h_0"])
    assert model.loss.criterion.wildcards.bypass == -25.0


@pytest.mark.parametrize("at_end", [True, False])
def test_a_resumed_run_has_the_schedule_of_one_that_was_not_interrupted(tmp_path, at_end):
    """From checkpoints of the epoch's end, and of its validation, before the schedule has stepped."""
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=at_end, enable_version_counter=False
    )
    whole, *_ = fit(tmp_path, 3, callbacks=[save])
    again, *_ = fit(tmp_path, 3, resume=tmp_path / "epoch=0.ckpt", enable_checkpointing=False)
    assert again.loss.criterion.epoch == 4
    assert again.loss.criterion.state_dict() == pytest.approx(whole.loss.criterion.state_dict())
    torch.testing.assert_close(again.encoder.weight, whole.encoder.weight)


def test_pytorch_lightning_takes_the_callback_too(tmp_path):
    """The older package, whose classes are others."""
    package = pytest.importorskip("pytorch_lightning")

    class Recogniser(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Linear(40, 20)
            self.loss = wildctc.WildcardCTCLoss(wildcards="otc-t-h")

        training_step = example.Recogniser.training_step
        validation_step = example.Recogniser.validation_step
        configure_optimizers = example.Recogniser.configure_optimizers

    model, *_ = fit(tmp_path, 1, Recogniser(), package=package, enable_checkpointing=False)
    assert model.loss.criterion.epoch == 2
    assert 0 < model.loss.criterion.entropy_decay.first < 1


def test_a_validation_step_without_logits_is_refused(tmp_path):
    class Silent(example.Recogniser):
        def validation_step(self, batch, index):
            return None

    with pytest.raises(ValueError, match="must return a dictionary with logits and input_lengths"):
        fit(tmp_path, 1, Silent(), enable_checkpointing=False, num_sanity_val_steps=0)


def test_the_example_is_short():
    lines = (ROOT / "examples/lightning_example.py").read_text().splitlines()
    ours = [line for line in lines if any(word in line for word in ("wildctc", "Wildcard", "criterion", "logits"))]
    assert len(ours) <= 30


def test_without_lightning_one_line_names_the_extra(monkeypatch):
    for name in ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "wildctc.integrations.lightning")
    with pytest.raises(MissingExtra, match=r"pip install '\.\[lightning\]'"):
        import wildctc.integrations.lightning  # noqa: F401
