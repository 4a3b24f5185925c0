"""Whoever follows the advice of a collapse warning gets stricter wildcards, in every epoch to come."""

import logging
import re

import pytest
import torch

from wildctc import Criterion
from wildctc.training.batches import Batch
from wildctc.training.build import make_criterion
from wildctc.training.config import apply_arguments
from wildctc.training.divergence import DivergenceWatch, stricter
from wildctc.training.settings import Config

FAMILIES = ("word_bypass", "bypass", "self_loop")
EPOCHS = 40


def criterion_at(epoch: int, words: str, ctc_epochs: int = 0) -> Criterion:
    """The criterion of these settings in an epoch of a run; the entropy falls from epoch to epoch, the same for all."""
    config = Config()
    apply_arguments(config, words.split())
    criterion = make_criterion(config)
    for e in range(1, epoch):
        entropy = 0.5 * 0.8**e
        if e > max(ctc_epochs, config.training.ctc_epochs):
            criterion.step(entropy)
        else:
            criterion.entropy_decay.update(entropy)
    return criterion


def weights_by_epoch(words: str) -> dict[str, list[float]]:
    """Each family's weight in each epoch; −inf in epochs of plain CTC, which have no arcs."""
    config = Config()
    apply_arguments(config, words.split())
    plain = config.training.ctc_epochs
    cards = [criterion_at(epoch, words).wildcards for epoch in range(1, EPOCHS)]
    found = {name: [getattr(c, name) for c in cards] for name in FAMILIES}
    return {
        name: [float("-inf") if epoch < plain else w for epoch, w in enumerate(weights)]
        for name, weights in found.items()
        if weights[0] is not None
    }


def collapsed(length: int = 60) -> tuple[torch.Tensor, torch.Tensor, Batch]:
    """Four written words of five letters, and a model that is sure of others: any cheap wildcard explains it best."""
    logits = torch.zeros(length, 1, 8)
    logits[:, :, 1:6] = -40
    lengths, targets = torch.tensor([length]), torch.tensor([[1, 2, 3, 4, 5] * 4])
    words = torch.arange(4).repeat_interleave(5)[None]
    return logits, lengths, Batch(["a"], torch.zeros(1, length, 1), lengths, targets, torch.tensor([20]), words, [[]])


def warning_of(criterion: Criterion, caplog, ctc_epochs: int = 0) -> str:
    logger = logging.getLogger("wildctc.training.divergence")
    logger.addHandler(caplog.handler)
    try:
        watch = DivergenceWatch(criterion, ctc_epochs)
        for step in (20, 40):
            watch.arcs(step, *collapsed())
    finally:
        logger.removeHandler(caplog.handler)
    [said] = {record.getMessage() for record in caplog.records}
    return said


@pytest.mark.parametrize(
    ("words", "epoch"),
    [
        ("--criterion otc-w-tuned", 21),  # −19 has become −4: the weight that relaxed is not the one that is set
        ("--criterion otc-tw --schedule.epoch_scale 3", 8),
        ("--criterion otc-tw --schedule.word_bypass -0.5", 1),
        ("--criterion otc-t", 12),
        ("--criterion otc-t --schedule.bypass -2", 3),
        ("--criterion btc --schedule.word_bypass -2 --schedule.word_bypass_tau 1", 5),
        ("--criterion otc-t-h --schedule.h_low 0.3", 6),
        ("--criterion otc-tw-h --schedule.h_low 0.2 --schedule.word_bypass -3", 8),
    ],
)
def test_following_any_option_of_the_warning_makes_every_later_weight_stricter(words, epoch, caplog):
    criterion = criterion_at(epoch, words)
    said = warning_of(criterion, caplog)
    advised = re.findall(r"--(?:schedule|training)\.\w+ \S+", said)
    assert advised, said
    before = weights_by_epoch(words)
    for option in advised:
        after = weights_by_epoch(f"{words} {option}")
        for name in before:
            pairs = list(zip(before[name], after[name], strict=True))[epoch - 1 :]
            assert all(new <= old for old, new in pairs), (option, name)
        assert any(after[name][epoch - 1] < before[name][epoch - 1] for name in before), option


def test_warning_says_the_weight_now_and_the_first(caplog):
    said = warning_of(criterion_at(21, "--criterion otc-w-tuned"), caplog)
    assert "word_bypass is -4, in the criterion's first epoch -19" in said
    assert "--training.ctc_epochs 4 or --schedule.epoch_scale 0.5" in said
    assert "another --out" in said


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--criterion otc-tw --schedule.bypass -0.5 --schedule.word_bypass -19", "bypass"),  # 5 tokens: −2.5
        ("--criterion otc-tw --schedule.bypass -2 --schedule.word_bypass -12", "bypass"),
        ("--criterion otc-tw --schedule.bypass -25 --schedule.word_bypass -2", "word_bypass"),
        ("--criterion otc-tw --schedule.bypass -25 --schedule.word_bypass -12", "word_bypass"),
        ("--criterion otc-t --schedule.bypass -1", "bypass"),
    ],
)
def test_warning_names_the_arcs_that_are_cheap(words, name, caplog):
    assert f"; {name} is" in warning_of(criterion_at(1, words), caplog)


def test_ways_out_go_from_the_published_weight_over_a_slower_schedule_to_a_stronger_weight():
    at = criterion_at
    assert stricter(at(5, "--criterion otc-tw --schedule.word_bypass -5"), "word_bypass") == {"word_bypass": -19}
    assert stricter(at(5, "--criterion otc-tw --schedule.epoch_scale 3"), "word_bypass") == {"epoch_scale": 1.5}
    assert stricter(at(1, "--criterion otc-tw"), "word_bypass") == {"word_bypass": -25}
    assert stricter(at(1, "--criterion otc-tw --schedule.word_bypass -25"), "word_bypass") == {"word_bypass": -30}
    assert stricter(at(1, "--criterion otc-w"), "self_loop") == {"self_loop": -1}
