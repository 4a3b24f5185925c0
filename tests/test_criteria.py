"""The criteria and their schedules are the paper's, number by number, and survive a checkpoint."""

import io
import json
import math
import warnings

import pytest
import torch

from wildctc import (
    CRITERIA,
    Criterion,
    EntropyDecay,
    EpochDecay,
    WildcardCTCLoss,
    Wildcards,
    predictive_entropy,
    wildcard_ctc_loss,
)

TABLE = {  # bypass, self-loop, word bypass: first weight and decay, of the epoch criteria
    "ctc": (None, None, None),
    "otc-w": (None, (3.75, 0.999), (-19, 0.975)),
    "otc-w-tuned": (None, (-1, 0.975), (-19, 0.925)),
    "otc-t": ((-25, 0.775), (-5, 0.775), None),
    "otc-tw": ((-25, 0.775), (-5, 0.775), (-19, 0.925)),
    "btc": (None, None, (-19, 0.975)),
}
ENTROPY_TABLE = {"otc-t-h": (-25, -5, None), "otc-tw-h": (-25, -5, -19)}
RATE_TABLE = {
    "otc-t-em": ("token", "unwritten"),
    "otc-w-em": ("unwritten", "word"),
    "otc-tw-em": ("token", "unwritten", "word"),
}
STAR_TABLE = {"w-ctc": ("end", [1.0] * 30), "stc": ("token", [0.5 - 0.4 * 0.5 ** (e / 5) for e in range(30)])}
FINAL = (-0.01, -0.001, -1)


def weights_of(wildcards: Wildcards) -> tuple:
    return wildcards.bypass, wildcards.self_loop, wildcards.word_bypass


def test_the_table_is_complete():
    assert set(CRITERIA) == {*TABLE, *ENTROPY_TABLE, *RATE_TABLE, *STAR_TABLE}


@pytest.mark.parametrize("name", STAR_TABLE)
def test_criteria_with_a_share_for_the_star(name):
    criterion = Criterion(name)
    place, shares = STAR_TABLE[name]
    for share in shares:
        assert criterion.wildcards.self_loop_at == place
        assert weights_of(criterion.wildcards) == (None, 0.0, None)
        assert criterion.wildcards.star == pytest.approx(share, rel=1e-12)
        criterion.step()


def test_the_penalty_of_stc_follows_its_settings():
    criterion = Criterion("stc", star=0.2, star_final=0.8, star_half=2.0, epoch_scale=2.0)
    criterion.step()
    assert criterion.wildcards.star == pytest.approx(0.5)
    with pytest.raises(ValueError, match="star schedule needs star"):
        Criterion("otc-t", schedule="star")
    with pytest.raises(ValueError, match="star_half is 0, must be greater than 0"):
        Criterion("stc", star_half=0)


@pytest.mark.parametrize("name", TABLE)
def test_epoch_criteria(name):
    criterion = Criterion(name)
    assert criterion.wildcards.self_loop_at == ("word" if name in ("otc-w", "otc-w-tuned", "btc") else "token")
    for epoch in range(1, 31):
        assert criterion.epoch == epoch
        for weight, setting in zip(weights_of(criterion.wildcards), TABLE[name], strict=True):
            if setting is None:
                assert weight is None
            else:
                first, tau = setting
                assert weight == pytest.approx(first * tau ** (epoch - 1), rel=1e-12)
        criterion.step()


def test_epoch_decay():
    assert EpochDecay(-25.0, 0.775)(1) == -25.0
    assert EpochDecay(-25.0, 0.775)(10) == pytest.approx(-2.5, abs=0.05)  # before CTC leaves its plateau
    assert EpochDecay(3.75, 0.999)(3) == pytest.approx(3.75 * 0.999**2)


def test_an_epoch_scale_spreads_the_same_curve_over_fewer_epochs():
    criterion = Criterion("otc-t", epoch_scale=2.0)
    seen = []
    for _ in range(4):
        seen.append(criterion.wildcards.bypass)
        criterion.step()
    assert seen == pytest.approx([EpochDecay(-25.0, 0.775)(e) for e in (1, 3, 5, 7)])


def paper_weight(w1: float, w_inf: float, h_0: float, smooth: float, h_low=0.01, kappa=1.3, eps=1e-4) -> float:
    def reciprocal(h: float) -> float:
        return 1 / (h + eps)

    progress = (reciprocal(smooth) - reciprocal(h_0)) / (reciprocal(h_low) - reciprocal(h_0))
    beta = min(1.0, max(0.0, progress)) ** kappa
    return -(abs(w1) ** (1 - beta)) * abs(w_inf) ** beta


@pytest.mark.parametrize("name", ENTROPY_TABLE)
def test_entropy_criteria_follow_the_papers_equations(name):
    criterion = Criterion(name)
    entropies = [0.9, 0.5, 0.2, 0.05, 0.3, 0.02, 0.01, 0.004, 0.001, 0.001, 0.001, 0.6]
    smooth = entropies[0]
    assert weights_of(criterion.wildcards) == pytest.approx(ENTROPY_TABLE[name])
    for epoch, entropy in enumerate(entropies, start=1):
        criterion.step(entropy)
        smooth = entropy if epoch == 1 else 0.3 * entropy + 0.7 * smooth
        for weight, first, final in zip(weights_of(criterion.wildcards), ENTROPY_TABLE[name], FINAL, strict=True):
            if first is None:
                assert weight is None
            else:
                assert weight == pytest.approx(paper_weight(first, final, entropies[0], smooth), rel=1e-9)
    assert criterion.epoch == len(entropies) + 1


def test_the_first_two_epochs_use_the_first_weights():
    criterion = Criterion("otc-tw-h")
    first = weights_of(criterion.wildcards)
    criterion.step(0.7)
    assert weights_of(criterion.wildcards) == first
    criterion.step(0.1)
    assert criterion.wildcards.bypass > first[0]


@pytest.mark.parametrize(("entropy", "weight"), [(0.20, -22), (0.10, -18), (0.05, -10), (0.02, -1.1)])
def test_the_scale_of_the_relaxation(entropy, weight):
    """The specification's figures, with H_0 = 1 (an untrained model) and the smoothed entropy at the value."""
    decay = EntropyDecay(alpha=1.0)
    decay.update(1.0)
    decay.update(entropy)
    assert decay.weight(-25.0, -0.01) == pytest.approx(weight, rel=0.05)


def test_weights_become_stricter_when_entropy_rises():
    decay = EntropyDecay(alpha=1.0)
    betas = [decay.update(h) for h in (0.5, 0.05, 0.1, 0.01, 0.9)]
    assert betas[1] > betas[2] > betas[0] == 0
    assert betas[3] == 1
    assert betas[4] == 0


def test_no_entropy_yet():
    assert EntropyDecay().weight(-25.0, -0.01) == -25.0


def test_an_entropy_that_starts_below_h_low_is_said_aloud():
    decay = EntropyDecay()
    with pytest.warns(UserWarning, match=r"0\.008.* h_low = 0\.01.*fully relaxed"):
        assert decay.update(0.008) == 1.0
    assert decay.weight(-25.0, -0.01) == pytest.approx(-0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EntropyDecay().update(0.5)


@pytest.mark.filterwarnings("ignore:held-out entropy is NaN")
def test_no_measurement_keeps_the_last_value():
    decay = EntropyDecay()
    assert decay.update(math.nan) == 0.0
    decay.update(0.5)
    before = decay.update(0.02)
    assert decay.update(math.nan) == before > 0
    top, bottom = predictive_entropy(torch.tensor([[[0.0, -math.inf, -math.inf]]]), [1])
    assert decay.update(float(top / bottom)) == before


@pytest.mark.parametrize("entropy", [-0.1, -math.inf, math.inf, 1.01])
def test_an_impossible_entropy_is_refused(entropy):
    with pytest.raises(ValueError, match=r"entropy is .*, must be between 0 and 1"):
        EntropyDecay().update(entropy)


@pytest.mark.parametrize("change", [{"bypass": 1.0}, {"self_loop": 3.75}, {"bypass_final": 0.0}, {"word_bypass": 0.0}])
def test_an_entropy_schedule_refuses_positive_weights(change):
    with pytest.raises(ValueError, match="an entropy schedule needs negative weights"):
        Criterion("otc-tw-h", **change)


def test_overrides():
    assert Criterion("otc-tw", bypass=-20.0).wildcards.bypass == -20.0
    assert Criterion("otc-tw", word_bypass=None).wildcards.word_bypass is None
    assert Criterion("otc-tw-h", h_low=0.1).entropy_decay.h_low == 0.1
    with pytest.raises(ValueError, match=r"criterion otc-t: no setting 'bypas'; there are .*bypass"):
        Criterion("otc-t", bypas=-1.0)
    with pytest.raises(ValueError, match=r"no criterion is called 'otc-x'; there are ctc, "):
        Criterion("otc-x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "foo"}, "schedule is 'foo', must be one of none, epoch, entropy"),
        ({"self_loop_at": "ends"}, "self_loop_at is 'ends', must be one of token, word, end"),
        ({"bypass_tau": 0.0}, "bypass_tau is 0.0, must be greater than 0 and at most 1"),
        ({"word_bypass_tau": 1.5}, "word_bypass_tau is 1.5, must be greater than 0 and at most 1"),
        ({"alpha": 0}, "alpha is 0, must be greater than 0 and at most 1"),
        ({"h_low": 1.0}, "h_low is 1.0, must be between 0 and 1"),
        ({"kappa": -1.0}, "kappa is -1.0, must be greater than 0"),
        ({"eps": -1e-4}, "eps is -0.0001, must be at least 0"),
        ({"epoch_scale": 0.0}, "epoch_scale is 0.0, must be greater than 0"),
        ({"bypass": "-5"}, "bypass is '-5', must be a number"),
        ({"self_loop": math.nan}, "self_loop is nan, must be finite"),
        ({"bypass_final": None}, "bypass_final is None, must be a number"),
        ({"kappa": True}, "kappa is True, must be a number"),
    ],
)
@pytest.mark.parametrize("name", ["otc-tw", "otc-tw-h"])
def test_a_setting_out_of_range_is_refused_when_the_criterion_is_made(name, change, message):
    with pytest.raises(ValueError, match=message):
        Criterion(name, **change)


def test_schedules_alone_check_their_settings_too():
    with pytest.raises(ValueError, match=r"tau is 2\.0"):
        EpochDecay(-5.0, 2.0)
    with pytest.raises(ValueError, match="h_low is 0"):
        EntropyDecay(h_low=0)


def test_without_a_schedule_the_first_weights_stay():
    criterion = Criterion("otc-tw", schedule="none")
    for _ in range(3):
        assert weights_of(criterion.wildcards) == (-25.0, -5.0, -19.0)
        criterion.step()


def test_what_a_criterion_needs():
    assert [name for name in CRITERIA if Criterion(name).needs_entropy] == list(ENTROPY_TABLE)
    without = {"ctc", "otc-t", "otc-t-h", "otc-t-em", "w-ctc", "stc"}
    assert {name for name in CRITERIA if not Criterion(name).needs_words} == without
    with pytest.raises(ValueError, match="criterion otc-t-h follows the held-out entropy"):
        Criterion("otc-t-h").step()


# ------------------------------------------------------------------------------------------------ the entropy itself


def entropy_by_definition(logits: torch.Tensor, lengths: list[int], blank: int) -> tuple[float, float]:
    """Σ ω_t H_t / log(V−1) and Σ ω_t, output by output."""
    frames = [logits[t, n].double().softmax(0) for n, length in enumerate(lengths) for t in range(length)]
    top = bottom = 0.0
    for p in frames:
        others = [x.item() for v, x in enumerate(p) if v != blank]
        mass = sum(others)
        top += -mass * sum(x / mass * math.log(x / mass) for x in others if x > 0)
        bottom += mass
    return top / math.log(logits.shape[2] - 1), bottom


@pytest.mark.parametrize("blank", [0, 2, 5])
@pytest.mark.parametrize("sharpness", [0.1, 3.0, 20.0])
def test_predictive_entropy_by_definition(blank, sharpness):
    logits = torch.randn(12, 3, 6, generator=torch.Generator().manual_seed(blank)) * sharpness
    found = predictive_entropy(logits, [12, 5, 0], blank)
    wanted = entropy_by_definition(logits, [12, 5, 0], blank)
    assert [x.item() for x in found] == pytest.approx(wanted, rel=1e-5)
    assert all(x.dtype == torch.float64 and x.dim() == 0 for x in found)


def test_predictive_entropy_is_between_0_and_1():
    top, bottom = predictive_entropy(torch.zeros(4, 2, 7), torch.tensor([4, 2]))
    assert (top / bottom).item() == pytest.approx(1)
    one_label = torch.full((4, 1, 7), -1e4)
    one_label[:, :, 3] = 0
    top, bottom = predictive_entropy(one_label, [4])
    assert top == 0
    assert bottom == 4


def test_predictive_entropy_adds_up_over_batches():
    logits = torch.randn(9, 4, 6, generator=torch.Generator().manual_seed(1))
    lengths = [9, 3, 5, 7]
    parts = [predictive_entropy(logits[:, i : i + 2], lengths[i : i + 2]) for i in (0, 2)]
    whole = predictive_entropy(logits, lengths)
    for i in (0, 1):
        torch.testing.assert_close(parts[0][i] + parts[1][i], whole[i])


def test_predictive_entropy_at_the_edges():
    logits = torch.zeros(3, 1, 4)
    logits[2] = math.nan  # padding
    top, bottom = predictive_entropy(logits, [2])
    assert (top / bottom).item() == pytest.approx(1)
    logits[:2, :, 1:] = -math.inf  # nothing but blank
    assert [x.item() for x in predictive_entropy(logits, [2])] == [0.0, 0.0]
    half = torch.randn(3, 1, 4, requires_grad=True).half()
    assert not predictive_entropy(half, [3])[0].requires_grad
    with pytest.raises(ValueError, match="at least two non-blank outputs, logits have C = 2"):
        predictive_entropy(torch.zeros(3, 1, 2), [3])


@pytest.mark.parametrize("value", [math.nan, math.inf, "all -inf"])
def test_the_entropy_of_a_diverged_model_is_not_a_number_and_is_said_aloud(value):
    logits = torch.zeros(3, 2, 4)
    logits[1, 1] = -math.inf
    if value != "all -inf":
        logits[1, 1, 2] = value
    top, bottom = predictive_entropy(logits, [3, 3])
    assert top.isnan()
    assert bottom.isnan()
    criterion = Criterion("otc-t-h")
    with pytest.warns(UserWarning, match=r"entropy is NaN, so the wildcard weights stay .*diverged"):
        criterion.step(float(top / bottom))
    assert criterion.wildcards.bypass == -25.0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"logits": torch.zeros(3)}, ValueError, r"logits must be floating point, \(T, N, C\)"),
        ({"logits": [[[0.0] * 4]]}, TypeError, "logits must be a tensor, got list"),
        ({"blank": 4}, ValueError, "blank is 4, must be between 0 and C - 1 = 3"),
        ({"blank": -1}, ValueError, "blank is -1, must be between 0 and C - 1 = 3"),
        ({"input_lengths": [4, 3]}, ValueError, "utterance 0: input_length is 4, must be between 0 and T = 3"),
        ({"input_lengths": [3, -1]}, ValueError, "utterance 1: input_length is -1, must be between 0 and T = 3"),
        ({"input_lengths": [3]}, ValueError, "input_lengths must hold one length for each of N = 2 utterances"),
        ({"input_lengths": [3.0, 2.5]}, ValueError, "input_lengths must be integers, got torch.float32"),
    ],
)
def test_predictive_entropy_refuses_what_the_loss_refuses(change, error, message):
    with pytest.raises(error, match=message):
        predictive_entropy(**{"logits": torch.zeros(3, 2, 4), "input_lengths": [3, 2], **change})


def test_predictive_entropy_of_one_utterance_without_a_batch_dimension():
    logits = torch.randn(3, 1, 4, generator=torch.Generator().manual_seed(1))
    assert predictive_entropy(logits[:, 0], 2) == predictive_entropy(logits, [2])


def test_predictive_entropy_where_blank_is_almost_certain():
    """ω = e^-80 is far below float32's resolution of 1 − P(blank)."""
    logits = torch.tensor([[[80.0, 0.0, 1.0, 2.0]]])
    top, bottom = predictive_entropy(logits, [1])
    wanted = entropy_by_definition(logits - torch.tensor([80.0, 0.0, 0.0, 0.0]), [1], 0)
    assert (top / bottom).item() == pytest.approx(wanted[0] / wanted[1], rel=1e-4)


# ------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("name", CRITERIA)
def test_a_criterion_goes_on_where_it_was(name):
    one, other = Criterion(name), Criterion(name)
    for entropy in (0.5, 0.03, 0.02):
        if one.rates is not None:
            one.rates.events += 20.0
            one.rates.chances += 1000.0
        one.step(entropy)
    state = one.state_dict()
    assert all(isinstance(value, (int, float)) for key, value in state.items() if key != "rates")
    assert ("rates" in state) == (name in RATE_TABLE)
    assert json.loads(json.dumps(state.get("rates"))) == state.get("rates")
    other.load_state_dict(state)
    for entropy in (0.02, 0.1):
        assert weights_of(one.wildcards) == weights_of(other.wildcards)
        assert one.epoch == other.epoch
        one.step(entropy)
        other.step(entropy)


def test_a_new_criterion_can_be_saved_too():
    other = Criterion("otc-tw-h")
    other.step(0.3)
    other.load_state_dict(Criterion("otc-tw-h").state_dict())
    assert other.epoch == 1
    assert other.wildcards.bypass == -25.0
    other.step(0.5)
    assert other.entropy_decay.first == 0.5


@pytest.mark.parametrize("name", ["ctc", "otc-tw", "otc-tw-h"])
def test_the_modules_state_holds_the_schedule(name):
    loss = WildcardCTCLoss(wildcards=name)
    for entropy in (0.5, 0.02):
        loss.criterion.step(entropy)
    file = io.BytesIO()
    torch.save(torch.nn.Sequential(torch.nn.Linear(2, 2), loss).state_dict(), file)
    file.seek(0)
    fresh = WildcardCTCLoss(wildcards=name)
    torch.nn.Sequential(torch.nn.Linear(2, 2), fresh).load_state_dict(torch.load(file, weights_only=True))
    assert fresh.criterion.epoch == 3
    assert weights_of(fresh.wildcards) == weights_of(loss.wildcards)


def test_a_state_of_another_kind_of_loss_is_refused():
    with pytest.raises(Exception, match="criterion does not match"):
        WildcardCTCLoss().load_state_dict(WildcardCTCLoss(wildcards="otc-t").state_dict())


def test_a_state_of_another_criterion_is_refused():
    with pytest.raises(
        Exception, match="the state_dict's criterion is otc-t, which does not match this loss, otc-tw-h"
    ):
        WildcardCTCLoss(wildcards="otc-tw-h").load_state_dict(WildcardCTCLoss(wildcards="otc-t").state_dict())


def test_a_state_without_the_criterions_name_is_taken():
    loss = WildcardCTCLoss(wildcards="otc-t")
    loss.load_state_dict({"_extra_state": torch.tensor([3.0, math.nan, math.nan], dtype=torch.float64)})
    assert loss.criterion.epoch == 3


def test_a_checkpoint_made_with_torchs_loss_is_loaded():
    class Model(torch.nn.Module):
        def __init__(self, loss):
            super().__init__()
            self.layer, self.loss = torch.nn.Linear(2, 2), loss

    state = Model(torch.nn.CTCLoss()).state_dict()
    Model(WildcardCTCLoss()).load_state_dict(state)
    WildcardCTCLoss().load_state_dict({})
    with pytest.raises(RuntimeError, match=r"Missing key.*loss._extra_state"):
        Model(WildcardCTCLoss(wildcards="otc-t")).load_state_dict(state)


def test_learned_weights_are_parameters_of_the_module():
    loss = WildcardCTCLoss(wildcards=Wildcards(bypass=torch.nn.Parameter(torch.tensor(-3.0)), self_loop=-1.0))
    assert [name for name, _ in loss.named_parameters()] == ["bypass"]
    copy = WildcardCTCLoss(wildcards=Wildcards(bypass=torch.nn.Parameter(torch.tensor(0.0)), self_loop=-1.0))
    copy.load_state_dict(loss.state_dict())
    assert copy.wildcards.bypass == -3.0
    assert copy.double().wildcards.bypass.dtype == torch.float64
    copy(torch.zeros(4, 1, 3), torch.tensor([[1, 2]]), [4], [2]).backward()
    assert copy.bypass.grad < 0


@pytest.mark.parametrize(
    "wildcards", [None, Wildcards(bypass=-3.0, word_bypass=-2.0), "otc-tw", Criterion("otc-w"), "btc", "otc-t-h"]
)
def test_the_module_is_the_function_with_the_weights_in_force(wildcards):
    logits = torch.randn(8, 2, 5, generator=torch.Generator().manual_seed(3))
    targets, words = torch.tensor([[1, 2, 3], [4, 1, 0]]), torch.tensor([[0, 0, 1], [0, 1, 0]])
    loss = WildcardCTCLoss(reduction="sum", wildcards=wildcards)
    for _ in range(2):
        wanted = wildcard_ctc_loss(
            logits, targets, [8, 7], [3, 2], reduction="sum", wildcards=loss.wildcards, words=words
        )
        assert torch.equal(loss(logits, targets, [8, 7], [3, 2], words), wanted)
        if loss.criterion is not None:
            loss.criterion.step(0.5)
    assert (loss.criterion is None) == (wildcards is None or isinstance(wildcards, Wildcards))


# ------------------------------------------------------------------------------------------------------- noise rates


def noisy_batch():
    """Ten utterances of which one in five is written wrongly; the logits are sure of what was said."""
    said = torch.tensor([[1, 2, 3]] * 10)
    frames = torch.stack([said[:, 0], said[:, 0] * 0, said[:, 1], said[:, 1] * 0, said[:, 2], said[:, 2] * 0])
    logits = 8.0 * torch.nn.functional.one_hot(frames, 6).double()
    written = said.clone()
    written[:2, 1] = 5
    return logits, written, [6] * 10, [3] * 10


def test_the_loss_counts_in_training_and_its_criterion_estimates_the_rate():
    loss = WildcardCTCLoss(wildcards=Criterion("otc-t-em", prior=0.01))
    batch = noisy_batch()
    losses = []
    for _ in range(20):
        losses.append(float(loss(*batch)))
        loss.criterion.step()
    assert losses == sorted(losses, reverse=True)
    assert loss.criterion.wildcards.token == pytest.approx(2 / 30, abs=0.02)  # two of thirty tokens
    loss.eval()
    loss(*batch)
    assert not loss.criterion.rates.events.any()  # nothing is counted in evaluation


def test_noise_rates_are_part_of_the_state_of_the_loss():
    one, other = (WildcardCTCLoss(wildcards="otc-tw-em") for _ in range(2))
    words = torch.zeros(10, 3, dtype=torch.int64)
    one(*noisy_batch(), words)
    one.criterion.step(loss=3.0)
    one(*noisy_batch(), words)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert str(other.criterion.state_dict()) == str(one.criterion.state_dict())
    with pytest.raises(ValueError, match="criterion is otc-tw-em, which does not match this loss, otc-t-em"):
        WildcardCTCLoss(wildcards="otc-t-em").load_state_dict(one.state_dict())


def counted(criterion, share):
    criterion.rates.events[0], criterion.rates.chances[0] = share * 1000, 1000.0
    return criterion


def test_rates_that_run_away_are_held_and_reported():
    criterion = Criterion("otc-t-em")
    assert counted(criterion, 0.6).step(loss=5.0) is None  # the held-out loss of the first epoch cannot rise
    rate = criterion.wildcards.token
    held = counted(criterion, 0.7).step(loss=5.5)
    assert held == "70% of the tokens were bypassed, and the held-out CTC loss rose from 5 to 5.5"
    assert criterion.wildcards.token == rate
    assert counted(criterion, 0.7).step(loss=5.2) is None  # it falls again
    assert criterion.wildcards.token > rate
    assert counted(criterion, 0.2).step(loss=9.0) is None  # it rises, but few tokens are bypassed


def test_rates_wait_until_the_model_can_judge():
    criterion = Criterion("otc-w-em")
    assert "held-out character error rate of 80%" in counted(criterion, 0.2).step(cer=0.8)
    assert criterion.wildcards.word == pytest.approx(0.001)
    assert criterion.step(cer=0.2) is None


def test_a_setting_of_the_other_kind_of_criterion_is_refused():
    with pytest.raises(ValueError, match="otc-t-em has noise rates: the setting 'bypass' has no effect"):
        Criterion("otc-t-em", bypass=-5.0)
    with pytest.raises(ValueError, match="otc-t has weights and no noise rates: the setting 'prior' has no effect"):
        Criterion("otc-t", prior=5.0)
    with pytest.raises(ValueError, match="criteria with noise rates are called otc-…-em"):
        Criterion("otc-t", schedule="rates")
    with pytest.raises(ValueError, match="has no noise rates, so it has none for groups"):
        Criterion("otc-t").group_by(["a"])
