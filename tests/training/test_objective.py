"""CR-CTC, InterCTC and label smoothing: the formulas, and runs that use them together with wildcards."""

import math

import pytest
import torch
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.criteria import Criterion
from wildctc.encoders.encoder import make_encoder
from wildctc.features.augment import spec_augment, spec_augment_copies
from wildctc.lattice.functional import wildcard_ctc_loss
from wildctc.tensor_files import load_tensors
from wildctc.training import reports
from wildctc.training.batches import Batch
from wildctc.training.config import apply
from wildctc.training.loop import Trainer
from wildctc.training.noise import CountedArcs
from wildctc.training.objective import Objective, disagreement, far_from_uniform
from wildctc.training.settings import Config

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = "--cr_ctc.weight 0.2 --inter_ctc.layers 1 2 --inter_ctc.weight 0.4 --label_smoothing.weight 0.05"
BLOCKS = "--encoder.blocks 3"


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make_batch(lengths=(9, 7), targets=((1, 2, 3), (2, 2, 0)), sizes=(3, 2), **more):
    words = torch.tensor([[0, 0, 1], [0, 1, -1]])
    x = draw(len(lengths), max(lengths), 4)
    given = {"groups": torch.zeros(len(lengths), dtype=torch.int64)} | more
    return Batch(["a", "b"], x, torch.tensor(lengths), torch.tensor(targets), torch.tensor(sizes), words, [], **given)


def objective(**settings):
    config = Config()
    for key, value in settings.items():
        apply(config, key.replace("__", "."), value, "test")
    return Objective(config)


# ------------------------------------------------------------------------------------------------------ the formulas


def test_the_consistency_loss_is_both_divergences_frame_by_frame():
    log_p, lengths = draw(4, 5, 3).log_softmax(-1), torch.tensor([5, 3, 5, 3])
    wanted = 0.0
    for n in range(2):
        for t in range(int(lengths[n])):
            a, b = log_p[n, t].tolist(), log_p[n + 2, t].tolist()
            wanted += 0.5 * sum(math.exp(q) * (q - p) for p, q in zip(a, b, strict=True))
            wanted += 0.5 * sum(math.exp(p) * (p - q) for p, q in zip(a, b, strict=True))
    assert float(disagreement(log_p, lengths)) == pytest.approx(wanted, rel=1e-12)


def test_each_copy_is_pulled_towards_the_other_which_gets_no_gradient():
    logits = draw(4, 5, 3).requires_grad_()
    disagreement(logits.log_softmax(-1), torch.tensor([5, 3, 5, 3])).backward()
    p = logits.detach().softmax(-1)
    wanted = (p - torch.cat([p[2:], p[:2]])) / 2
    wanted[[1, 3], 3:] = 0
    torch.testing.assert_close(logits.grad, wanted)


def test_label_smoothing_is_the_divergence_from_equal_probabilities():
    log_p, lengths = draw(2, 4, 3).log_softmax(-1), torch.tensor([4, 2])
    rows = [log_p[n, t].tolist() for n in range(2) for t in range(int(lengths[n]))]
    wanted = sum(math.exp(p) * (p + math.log(3)) for row in rows for p in row)
    assert float(far_from_uniform(log_p, lengths)) == pytest.approx(wanted, rel=1e-12)
    assert float(far_from_uniform(torch.zeros(1, 2, 5).log_softmax(-1), torch.tensor([2]))) == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize("name", ["ctc", "otc-tw", "stc"])
def test_the_total_is_the_weighted_sum_of_its_parts(name):
    batch, wildcards = make_batch(), Criterion(name).wildcards
    batch = Batch(**{**vars(batch), "again": batch.x + 1})
    made = objective(
        cr_ctc__weight=0.2, inter_ctc__layers=[1, 2], inter_ctc__weight=0.4, label_smoothing__weight=0.05,
        encoder__blocks=3,
    )  # fmt: skip
    assert (made.blocks, made.copies) == ([1, 2, 3], 2)
    x, x_lengths = made.inputs(batch)
    assert torch.equal(x, torch.cat([batch.x, batch.x + 1]))
    assert x_lengths.tolist() == [9, 7, 9, 7]
    logits = [draw(4, 9, 5, seed=i) for i in range(3)]
    found = made(logits, x_lengths, batch, wildcards)

    def criterion(x):
        given = {"wildcards": wildcards, "words": batch.words, "reduction": "sum"}
        both = [(x[:2], [9, 7]), (x[2:], [9, 7])]
        return sum(float(wildcard_ctc_loss(y.transpose(0, 1), batch.targets, n, [3, 2], **given)) for y, n in both) / 2

    log_p = logits[2].log_softmax(-1)
    smoothing, consistency = float(far_from_uniform(log_p, x_lengths)) / 2, float(disagreement(log_p, x_lengths))
    inter = (criterion(logits[0]) + criterion(logits[1])) / 2
    assert found.values == pytest.approx(
        {
            "train_criterion": criterion(logits[2]),
            "train_inter": inter,
            "train_consistency": consistency,
            "train_smoothing": smoothing,
        }
    )
    wanted = 0.6 * (0.95 * criterion(logits[2]) + 0.05 * smoothing) + 0.4 * inter + 0.2 * consistency
    assert float(found.total) == pytest.approx(wanted, rel=1e-12)


def test_plain_ctc_is_that_of_pytorch_and_has_no_parts():
    batch, logits = make_batch(), draw(2, 9, 5)
    found = objective()([logits], batch.x_lengths, batch, Criterion("ctc").wildcards)
    log_p = logits.log_softmax(-1).transpose(0, 1)
    wanted = torch.nn.functional.ctc_loss(log_p, batch.targets, [9, 7], [3, 2], reduction="sum")
    assert float(found.total) == pytest.approx(float(wanted))
    assert found.values == {}


def test_noise_rates_are_counted_once_by_the_last_block_whatever_is_added():
    logits = draw(2, 9, 5)
    counted = []
    for made in (
        objective(),
        objective(cr_ctc__weight=0.2, inter_ctc__layers=[1], label_smoothing__weight=0.1, encoder__blocks=2),
    ):
        table = Criterion("otc-tw-em").rates
        assert table is not None
        batch = make_batch()
        arcs = CountedArcs(table, batch)
        copies = [x.repeat(made.copies, 1, 1).requires_grad_() for x in [-logits, logits][-len(made.blocks) :]]
        found = made(copies, batch.x_lengths.repeat(made.copies), batch, table.noise(), arcs)
        (found.total / 2).backward()
        arcs.count(2 / made.criterion_share)
        counted.append((table.events.clone(), table.chances.clone()))
    torch.testing.assert_close(counted[0], counted[1])
    assert counted[0][1].sum() > 0


def test_inner_blocks_are_those_of_a_shallower_encoder():
    encoder = make_encoder("conformer", input_dim=20, d_model=16, ff_dim=32, blocks=3, subsampling=2).eval()
    x, lengths = torch.randn(2, 30, 20), torch.tensor([30, 21])
    found, n = encoder.after_blocks(x, lengths, [1, 3])
    whole, m = encoder(x, lengths)
    assert torch.equal(found[1], whole)
    assert torch.equal(n, m)
    encoder.blocks = encoder.blocks[:1]
    assert torch.equal(found[0], encoder(x, lengths)[0])


def test_copies_are_warped_alike_and_masked_differently():
    x, lengths = draw(3, 60, 8).float(), torch.tensor([60, 50, 40])
    settings = {"time_warp": 5, "freq_masks": 1, "freq_width": 3, "time_masks": 2, "time_ratio": 0.1}
    one, other = spec_augment_copies(x, lengths, torch.Generator().manual_seed(1), 2, **settings)
    assert torch.equal(one, spec_augment(x, lengths, torch.Generator().manual_seed(1), **settings))
    both = (one != 0) & (other != 0)
    assert torch.equal(one[both], other[both])
    assert not torch.equal(one, other)
    (warped,) = spec_augment_copies(
        x, lengths, torch.Generator().manual_seed(1), 1, **settings | {"freq_width": 0, "time_ratio": 0.0}
    )
    assert torch.equal(one[both], warped[both])
    assert 0.3 < both.float().mean() < 0.9
    part = spec_augment_copies(
        x[1:2], lengths[1:2], torch.Generator().manual_seed(1), 2, **settings, rows=range(1, 3, 2)
    )
    assert torch.equal(part[1][0, :50], other[1, :50])


# ---------------------------------------------------------------------------------------------------------- in a run


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "draw_curves", lambda history: b"")
    return make_corpus(tmp_path / "tones", {"train": 12, "dev": 4})


def go(recipe, run, *more, epochs=2):
    words = f"--training.epochs {epochs} --data.workers 0 --training.checkpoint_steps 2 {BLOCKS}"
    return main(["train", str(recipe), "--out", str(run), *words.split(), *" ".join(more).split()])


@pytest.mark.parametrize("criterion", ["otc-tw", "stc", "otc-tw-em"])
def test_all_parts_train_together_with_wildcards_and_a_killed_run_resumes_to_the_same_bits(
    recipe, tmp_path, monkeypatch, criterion
):
    options = (ALL, "--criterion", criterion)
    assert go(recipe, tmp_path / "whole", *options) == 0
    step, steps = Trainer._step, []

    def stopping(self, *arguments):
        steps.append(self.step)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopping)
        assert go(recipe, tmp_path / "stopped", *options) != 0
    kept = load_tensors(tmp_path / "stopped/checkpoints/last.safetensors")[1]
    assert all(kept["part_sums"].values())
    assert go(recipe, tmp_path / "stopped", *options) == 0
    first, second = (tmp_path / name / "model/model.safetensors" for name in ("whole", "stopped"))
    assert first.read_bytes() == second.read_bytes()
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("whole", "stopped")]
    for a, b in zip(*rows, strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}
        wanted = 0.6 * (0.95 * a["train_criterion"] + 0.05 * a["train_smoothing"]) + 0.4 * a["train_inter"]
        assert a["train_loss"] == pytest.approx(wanted + 0.2 * a["train_consistency"])
        assert a["train_consistency"] > 0
    if criterion == "stc":
        assert [row["star"] for row in rows[0]] == pytest.approx([0.1, 0.5 - 0.4 * 0.5**0.2])
    card = (tmp_path / "whole/model/README.md").read_text()
    assert f"`{criterion}` + CR-CTC 0.2 + InterCTC 0.4 after block 1, 2 + label smoothing 0.05\n" in card


def test_a_run_without_parts_is_what_it_was_and_a_trunk_must_have_the_same_parts(recipe, tmp_path, capfd):
    plain = "--training.ctc_epochs 1"
    assert go(recipe, tmp_path / "ctc", plain) == 0
    assert not [name for name in read_rows(tmp_path / "ctc/metrics.jsonl")[0] if name.startswith("train_c")]
    assert go(recipe, tmp_path / "cr", plain, "--cr_ctc.weight 0.2") == 0
    trunk = f"--criterion otc-tw --trunk {tmp_path / 'ctc'}"
    assert go(recipe, tmp_path / "no", plain, "--cr_ctc.weight 0.2", trunk) == 2
    assert "cr_ctc.weight: 0.0 there, 0.2 here" in capfd.readouterr().err
    trunk = f"--criterion otc-tw --trunk {tmp_path / 'cr'}"
    assert go(recipe, tmp_path / "yes", plain, "--cr_ctc.weight 0.2", trunk) == 0
    one, other = (read_rows(tmp_path / name / "metrics.jsonl")[0] for name in ("cr", "yes"))
    assert one == other


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--inter_ctc.layers 3", "inter_ctc.layers must be ascending and from 1 to encoder.blocks − 1 = 2, got 3"),
        ("--inter_ctc.layers 2 1", "got 2 1"),
        ("--inter_ctc.layers 0 1", "got 0 1"),
        ("--inter_ctc.weight 1", "inter_ctc.weight is a share of the loss, less than 1, got 1.0"),
        ("--label_smoothing.weight 1.5", "label_smoothing.weight is a share of the loss, less than 1, got 1.5"),
        ("--cr_ctc.weight -1", "cr_ctc.weight must be at least 0"),
        ("--crctc.weight 0.2", "did you mean 'cr_ctc.weight'?"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(recipe, tmp_path, capfd, options, said):
    assert go(recipe, tmp_path / "run", options) == 2
    err = capfd.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_dry_run_counts_both_copies(recipe, tmp_path, capsys):
    assert go(recipe, tmp_path / "run", ALL, "--dry-run") == 0
    assert "nothing was written" in capsys.readouterr().out


def test_curves_show_the_parts(recipe, tmp_path):
    parts = {"train_criterion": 3.0, "train_consistency": 1.0}
    row = {"epoch": 1, "train_loss": 3.2, **parts, "valid_loss": 3.0, "valid_ctc_loss": 3.0, "star": 0.1}
    svg = ORIGINAL([row, row | {"epoch": 2}]).decode()
    for name in ("train criterion", "train consistency", "star"):
        assert f"<!-- {name} -->" in svg
    assert "<!-- train inter -->" not in svg


ORIGINAL = reports.draw_curves
