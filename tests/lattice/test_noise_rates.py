"""Noise rates are probabilities: of all ways through the graph together 1, estimated by EM, learned by gradient."""

import itertools
import math

import numpy as np
import pytest
import torch
from support.batches import FAMILIES, KINDS, draw_batch
from support.enumeration import arc_sequences, make_arcs

from wildctc import NoiseRates, Wildcards, infeasible, wildcard_align, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice.noise import noise_counts, normalised_arcs
from wildctc.rate_table import RateTable

NAMES = dict(zip(FAMILIES, ("token", "unwritten", "word"), strict=True))
NOISY = [kind for kind in KINDS if kind != "CTC"]


def draw_rates(rng, batch, kind, per_arc=True):
    """Rates between 2% and 40% for the families of a kind."""
    families, loops = KINDS[kind]
    size, tokens = batch.targets.shape
    num_words = max((max(batch.words_of(n), default=-1) + 1 for n in range(size)), default=0)
    widths = dict(zip(FAMILIES, (tokens, tokens + 1, num_words), strict=True))
    shapes = {family: (size, widths[family]) if per_arc else (size,) for family in families}
    rates = {NAMES[family]: torch.from_numpy(rng.uniform(0.02, 0.4, shape)) for family, shape in shapes.items()}
    return NoiseRates(**rates, self_loop_at=loops)


def drawn(kind, seed, per_arc=True, **sizes):
    rng = np.random.default_rng([NOISY.index(kind), seed])
    sizes = {"size": 4, "frames": 6, "tokens": 3, "outputs": 4} | sizes
    batch = draw_batch(rng, kind, per_arc=False, **sizes)
    return batch, draw_rates(rng, batch, kind, per_arc)


def arguments(batch):
    given = {name: getattr(batch, name) for name in ("logits", "targets", "input_lengths", "target_lengths", "blank")}
    return given | {"words": batch.words}


def normalised(batch, rates):
    return normalised_arcs(rates, batch.targets, torch.tensor(batch.target_lengths), batch.words, torch.float64)


def rate_of(rates, name, n, i):
    return float(getattr(rates, name)[n, i]) if getattr(rates, name) is not None else 0.0


def story(path, arcs, rates, n, words, looping):
    """The log-probability of a sequence of arcs, told from left to right."""
    state, total = 0, 0.0
    for arc in [*(arcs[i] for i in path), None]:
        if arc is not None and arc.family == "self_loop":
            total += math.log(rate_of(rates, "unwritten", n, state))
            continue
        if state in looping:
            total += math.log1p(-rate_of(rates, "unwritten", n, state))
        if arc is None:
            return total
        word = words[state]
        begins = word >= 0 and (state == 0 or words[state - 1] != word)
        if arc.family == "word_bypass":
            total += math.log(rate_of(rates, "word", n, word))
        else:
            total += math.log1p(-rate_of(rates, "word", n, word)) if begins else 0.0
            token = rate_of(rates, "token", n, state)
            total += math.log(token) if arc.family == "bypass" else math.log1p(-token)
        state = arc.target
    raise AssertionError("the loop returns")


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("seed", range(5))
def test_each_way_through_the_graph_has_the_probability_of_its_story(kind, seed):
    batch, rates = drawn(kind, seed)
    wildcards, constant = normalised(batch, rates)
    for n, length in enumerate(batch.target_lengths):
        words = batch.words_of(n)
        arcs = make_arcs(batch.labels_of(n), words, set(KINDS[kind][0]), rates.self_loop_at == "word")
        looping = {arc.source for arc in arcs if arc.family == "self_loop"}
        for path in arc_sequences(arcs, length, length + 2):
            weights = [getattr(wildcards, arcs[i].family)[n, arcs[i].index] for i in path if arcs[i].family != "token"]
            wanted = story(path, arcs, rates, n, words, looping)
            assert float(sum(weights) - constant[n]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("seed", range(5))
def test_all_ways_through_the_graph_together_have_probability_one(kind, seed):
    batch, rates = drawn(kind, seed, tokens=6)
    wildcards, constant = normalised(batch, rates)
    for n, length in enumerate(batch.target_lengths):
        arcs = make_arcs(batch.labels_of(n), batch.words_of(n), set(KINDS[kind][0]), rates.self_loop_at == "word")
        mass = [1.0] + [0.0] * length
        for state in range(length + 1):
            for arc in (a for a in arcs if a.source == state):
                weight = 0.0 if arc.family == "token" else float(getattr(wildcards, arc.family)[n, arc.index])
                if arc.family == "self_loop":  # any number of times
                    mass[state] /= 1 - math.exp(weight)
            for arc in (a for a in arcs if a.source == state and a.target > state):
                weight = 0.0 if arc.family == "token" else float(getattr(wildcards, arc.family)[n, arc.index])
                mass[arc.target] += mass[state] * math.exp(weight)
        assert mass[length] * math.exp(-constant[n]) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("kind", NOISY)
def test_the_loss_is_that_of_the_weights_plus_the_constant(kind, backend):
    batch, rates = drawn(kind, 0, frames=12)
    wildcards, constant = normalised(batch, rates)
    given = arguments(batch)
    plain = wildcard_ctc_loss(**given, reduction="none", wildcards=wildcards, backend=backend)
    loss = wildcard_ctc_loss(**given, reduction="none", wildcards=rates, backend=backend)
    torch.testing.assert_close(loss, plain + constant, rtol=0, atol=1e-12)
    for reduction in ("mean", "sum"):
        found = wildcard_ctc_loss(**given, reduction=reduction, zero_infinity=True, wildcards=rates, backend=backend)
        finite = torch.where(loss.isinf(), 0, loss)
        lengths = torch.tensor(batch.target_lengths).clamp(min=1)
        torch.testing.assert_close(found, finite.sum() if reduction == "sum" else (finite / lengths).mean())


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("per_arc", [True, False])
def test_gradients_flow_to_rates_and_logits(kind, per_arc, backend):
    batch, rates = drawn(kind, 1, per_arc, size=2, frames=5, tokens=2, outputs=3, full_lengths=True)
    names = [name for name in NAMES.values() if getattr(rates, name) is not None]
    given = arguments(batch)
    logits = given.pop("logits").requires_grad_()
    odds = [torch.logit(getattr(rates, name)).requires_grad_() for name in names]

    def loss(logits, *odds):
        learned = NoiseRates(
            **{name: x.sigmoid() for name, x in zip(names, odds, strict=True)}, self_loop_at=rates.self_loop_at
        )
        return wildcard_ctc_loss(logits, **given, reduction="sum", wildcards=learned, backend=backend)

    assert torch.autograd.gradcheck(loss, (logits, *odds))


def em_step(batch, rates, table, groups):
    post = wildcard_posteriors(**arguments(batch), wildcards=rates)
    words = torch.where(
        torch.arange(batch.words.shape[1]) < torch.tensor(batch.target_lengths)[:, None], batch.words, -1
    )
    lengths = torch.tensor(batch.target_lengths)
    table.add(groups, noise_counts(post.bypass, post.self_loop, post.word_bypass, words, lengths, rates.self_loop_at))
    table.update()


@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize("num_groups", [1, 3])
def test_em_never_lowers_the_likelihood_and_ends_where_its_gradient_is_zero(kind, num_groups):
    rng = np.random.default_rng(NOISY.index(kind))
    batch = draw_batch(rng, kind, size=12, frames=14, tokens=5, outputs=5, sharpness=3.0, full_lengths=True)
    families, loops = KINDS[kind]
    groups = torch.arange(12) % num_groups
    table = RateTable([NAMES[f] for f in families], 0.05, 1e-9, loops, [str(g) for g in range(num_groups)])
    losses = []
    for _ in range(120):
        rates = table.noise_of(groups)
        losses.append(float(wildcard_ctc_loss(**arguments(batch), reduction="sum", wildcards=rates)))
        em_step(batch, rates, table, groups)
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(losses))
    assert losses[-1] < losses[0]
    odds = {NAMES[f]: torch.logit(getattr(table.noise_of(groups), NAMES[f])).requires_grad_() for f in families}
    learned = NoiseRates(**{name: x.sigmoid() for name, x in odds.items()}, self_loop_at=loops)
    wildcard_ctc_loss(**arguments(batch), reduction="sum", wildcards=learned).backward()
    for name, x in odds.items():
        for group in range(num_groups):
            rate = float(table.rates[list(NAMES.values()).index(name), group])
            inside = 1e-6 < rate < 1 - 1e-6
            assert not inside or abs(float(x.grad[groups == group].sum())) < 1e-2
            assert 0 < rate < 1


def test_a_small_group_stays_near_the_corpus_and_a_large_one_has_its_own_rate():
    table = RateTable(["word"], 1e-3, 100.0, "word", ["small", "large", "right"])
    table.events[2] = torch.tensor([5.0, 2000.0, 0.0]).double()
    table.chances[2] = torch.tensor([10.0, 10_000.0, 20_000.0]).double()
    table.update()
    small, large, right = table.rates[2].tolist()
    assert float(table.corpus[2]) == pytest.approx(0.067, abs=0.001)
    assert small < 0.12
    assert large == pytest.approx(0.2, abs=0.005)
    assert right < 0.001


def test_the_state_of_a_table_is_restored_to_the_bit():
    table = RateTable(["token", "word"], groups=["a", "b"])
    table.events += torch.rand(3, 2, generator=torch.Generator().manual_seed(0)).double()
    table.chances += 7
    table.update()
    again = RateTable(["token", "word"], groups=["a", "b"])
    again.load_state_dict(table.state_dict())
    for name in ("corpus", "rates", "events", "chances", "last"):
        torch.testing.assert_close(getattr(again, name), getattr(table, name), rtol=0, atol=0, equal_nan=True)
    with pytest.raises(ValueError, match="2 other groups; there are 1"):
        RateTable(["token", "word"]).load_state_dict(table.state_dict())


def test_posteriors_alignment_and_feasibility_take_rates():
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor([1, 0, 1]), 4).double()
    post = wildcard_posteriors(logits, torch.tensor([1, 2]), 3, 2, wildcards=NoiseRates(token=0.05))
    assert post.bypass.tolist() == pytest.approx([0.02, 0.98], abs=0.03)
    found = wildcard_align(logits.unsqueeze(1), torch.tensor([[1, 2]]), [3], [2], wildcards=NoiseRates(token=0.05))
    assert [span.bypassed for span in found[0].tokens] == [False, True]
    assert infeasible(torch.tensor([[1, 1, 2]]), [3], [3], wildcards=NoiseRates(token=0.05)) == []


def test_one_utterance_without_a_batch_dimension_and_concatenated_targets():
    batch, rates = drawn("TW", 3, per_arc=False, full_lengths=True)
    one = NoiseRates(*(float(getattr(rates, name)[0]) for name in NAMES.values()))
    given = arguments(batch)
    whole = wildcard_ctc_loss(**given, reduction="none", wildcards=one)
    alone = wildcard_ctc_loss(
        batch.logits[:, 0], batch.targets[0], 6, 3, batch.blank, "none", wildcards=one, words=batch.words[0]
    )
    torch.testing.assert_close(alone, whole[0], rtol=0, atol=1e-12)
    flat = given | {"targets": batch.targets.flatten(), "words": batch.words.flatten()}
    torch.testing.assert_close(wildcard_ctc_loss(**flat, reduction="none", wildcards=one), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"token": 0.0}, "the token rate is 0.0, must be greater than 0 and less than 1, or None"),
        ({"word": 1}, "the word rate is 1, must be"),
        ({"unwritten": "much"}, "the unwritten rate is 'much'"),
        ({"token": math.nan}, "the token rate is nan"),
        ({"token": torch.tensor([1, 2])}, "the token rate must be floating point, got torch.int64"),
        ({"token": torch.tensor(1.5)}, "the token rate has values that are not greater than 0 and less than 1"),
        ({"token": torch.rand(3)}, r"the token rate must be a number or a tensor \(\), \(1,\) or \(1, 2\), got \(3,\)"),
        ({"word": 0.1}, "need words"),
        ({"self_loop_at": "frame"}, "self_loop_at must be"),
    ],
)
def test_rates_that_make_no_sense_are_refused(rates, message):
    with pytest.raises(ValueError, match=message):
        wildcard_ctc_loss(torch.zeros(4, 1, 3), torch.tensor([[1, 2]]), [4], [2], wildcards=NoiseRates(**rates))


def test_a_higher_weight_is_always_better_but_a_higher_rate_is_not():
    """Why rates can be learned: their loss has its minimum inside, that of weights has none."""
    batch, _ = drawn("T", 0, frames=14, tokens=4, full_lengths=True, size=8)
    given = arguments(batch) | {"words": None}
    raised = [
        float(wildcard_ctc_loss(**given, reduction="sum", wildcards=Wildcards(bypass=w))) for w in (-4.0, 0.0, 4.0)
    ]
    assert raised == sorted(raised, reverse=True)
    by_rate = [
        float(wildcard_ctc_loss(**given, reduction="sum", wildcards=NoiseRates(token=r))) for r in (1e-6, 0.5, 1 - 1e-6)
    ]
    assert by_rate[1] < min(by_rate[0], by_rate[2])
