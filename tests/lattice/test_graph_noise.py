"""Noise rates on graphs: what they are on a chain, counts that are the derivatives, EM that never lowers likelihood."""

import numpy as np
import pytest
import torch
from support.graph_enumeration import draw_graph

from wildctc import NoiseRates, TranscriptGraph, WildcardCTCLoss, wildcard_align, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice.graph_noise import graph_noise_counts
from wildctc.rate_table import RateTable

FAMILIES = ("token", "unwritten", "word")
SIZE, FRAMES, OUTPUTS = 4, 9, 5


def drawn(seed):
    """Logits and four graphs; the first has slots, one of them optional."""
    rng = np.random.default_rng(seed)
    slots = [[[1, 2], [3]], [[], [2, 4]], [[1], [1, 3], [4]]]
    graphs = [TranscriptGraph.from_slots(slots), *(draw_graph(rng, OUTPUTS) for _ in range(SIZE - 1))]
    return torch.from_numpy(2 * rng.normal(size=(FRAMES, SIZE, OUTPUTS))), graphs, [FRAMES] * SIZE


def rates_of(values, at="token", families=FAMILIES):
    return NoiseRates(**{f: v for f, v in zip(FAMILIES, values, strict=True) if f in families}, self_loop_at=at)


@pytest.mark.parametrize("at", ["token", "word"])
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_has_the_same_rates_as_a_transcript(seed, at):
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(FRAMES, 2, OUTPUTS)))
    labels, words = [[1, 2, 2, 3], [4, 1]], [[0, 0, 1, 1], [0, 1]]
    chains = [TranscriptGraph.from_labels(*pair) for pair in zip(labels, words, strict=True)]
    rates = rates_of((0.1, 0.05, 0.2), at)
    given = {"wildcards": rates, "reduction": "none"}
    wanted = wildcard_ctc_loss(logits, chains, [FRAMES] * 2, **given)
    found = wildcard_ctc_loss(logits, chains, [FRAMES] * 2, arc_weights=torch.zeros(2, 4).double(), **given)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    zeros = torch.zeros(2, 4).double()
    posts = [wildcard_posteriors(logits, chains, [FRAMES] * 2, wildcards=rates, arc_weights=w) for w in (None, zeros)]
    for name in ("bypass", "self_loop", "word_bypass", "token", "log_likelihood"):
        torch.testing.assert_close(*(getattr(post, name) for post in posts), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(posts[0].log_likelihood, -wanted)
    paths = [wildcard_align(logits, chains, [FRAMES] * 2, wildcards=rates, arc_weights=w) for w in (None, zeros)]
    for one, other in zip(*paths, strict=True):
        assert one.score == pytest.approx(other.score)
        assert one.tokens == other.tokens


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("at", ["token", "word"])
@pytest.mark.parametrize("families", [("token",), ("unwritten",), ("word",), FAMILIES])
def test_counts_are_the_derivatives_by_the_rates(families, at, backend):
    # of a proper mixture: d log-likelihood ÷ d logit of a rate = events − rate × opportunities
    logits, graphs, lengths = drawn(7)
    start = torch.tensor([[0.1, 0.05, 0.2]], dtype=torch.float64).expand(SIZE, 3).logit().requires_grad_()
    values = start.sigmoid().unbind(1)
    loss = wildcard_ctc_loss(
        logits, graphs, lengths, reduction="sum", wildcards=rates_of(values, at, families), backend=backend
    )
    (gradient,) = torch.autograd.grad(loss, start)
    rates = rates_of((0.1, 0.05, 0.2), at, families)
    post = wildcard_posteriors(logits, graphs, lengths, wildcards=rates, backend=backend)
    counts = graph_noise_counts(post.token, post.bypass, post.self_loop, post.word_bypass, graphs, at)
    for i, (family, pair) in enumerate(zip(FAMILIES, counts, strict=True)):
        assert (pair is not None) == (family in families)
        if pair is not None:
            events, chances = pair
            torch.testing.assert_close(-gradient[:, i], events - getattr(rates, family) * chances, rtol=1e-8, atol=1e-9)


def test_gradients_to_rates_of_each_arc_are_right():
    logits, graphs, lengths = drawn(3)
    widths = [max(len(g.arcs) for g in graphs), 1, max(g.num_words for g in graphs)]
    starts = [torch.full((SIZE, w) if w > 1 else (SIZE,), -2.0).double().requires_grad_() for w in widths]

    def losses(*given):
        rates = NoiseRates(*(x.sigmoid() for x in given))
        return wildcard_ctc_loss(logits, graphs, lengths, reduction="none", wildcards=rates)

    assert torch.autograd.gradcheck(losses, starts)


@pytest.mark.parametrize("at", ["token", "word"])
def test_em_never_lowers_the_likelihood_and_ends_inside(at):
    logits, graphs, lengths = drawn(11)
    table = RateTable(FAMILIES, start=0.1, prior=0.0, self_loop_at=at)
    likelihoods = []
    for _ in range(30):
        post = wildcard_posteriors(logits, graphs, lengths, wildcards=table.noise())
        likelihoods.append(float(post.log_likelihood.sum()))
        counts = graph_noise_counts(post.token, post.bypass, post.self_loop, post.word_bypass, graphs, at)
        table.add(torch.zeros(SIZE, dtype=torch.int64), counts)
        table.update()
    assert np.diff(likelihoods).min() > -1e-9
    assert likelihoods[-1] > likelihoods[0] + 0.1
    assert ((table.corpus > 0) & (table.corpus < 1)).all()


def test_the_loss_module_takes_graphs_and_counts_their_noise():
    logits, graphs, lengths = drawn(5)
    loss = WildcardCTCLoss(wildcards="otc-tw-em")
    loss.criterion.step()
    while not loss.criterion.wildcards.word:
        loss.criterion.step()
    found = loss(logits, graphs, lengths)
    wanted = wildcard_ctc_loss(logits, graphs, lengths, wildcards=loss.wildcards)
    torch.testing.assert_close(found, wanted)
    before = loss.wildcards.word
    loss.criterion.step()
    assert loss.wildcards.word != before


def test_a_rate_of_each_state_is_refused():
    logits, graphs, lengths = drawn(1)
    states = max(g.num_states for g in graphs)
    rates = NoiseRates(unwritten=torch.full((SIZE, states), 0.1))
    with pytest.raises(ValueError, match=r"the unwritten rate must be a number or a tensor \(\), \(4,\) or \(4, 1\)"):
        wildcard_ctc_loss(logits, graphs, lengths, wildcards=rates)
