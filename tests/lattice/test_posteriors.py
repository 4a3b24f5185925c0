"""Arc posteriors: their shapes, what they add up to, and the gradients that they are (values: test_brute_force.py)."""

import itertools

import numpy as np
import pytest
import torch
from support.batches import FAMILIES, KINDS, draw_batch

from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors


def batch_of(kind="TW", **shape):
    shape = {"size": 6, "frames": 18, "tokens": 6, "outputs": 5, **shape}
    return draw_batch(np.random.default_rng(13), kind, **shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("per_arc", [True, False])
def test_shapes_absent_families_and_padding(kind, per_arc, backend):
    batch = batch_of(kind, per_arc=per_arc)
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    num_words = max(max(batch.words_of(n), default=-1) + 1 for n in range(6))
    widths = {"bypass": 6, "self_loop": 7, "word_bypass": num_words}
    for family in FAMILIES:
        found = getattr(post, family)
        if family not in KINDS[kind][0]:
            assert found is None
            continue
        assert found.shape == (6, widths[family])
        assert found.dtype == torch.float64
        assert (found >= 0).all()
        assert family == "self_loop" or (found <= 1 + 1e-9).all()
        for n, row in enumerate(found):
            assert not row[len(batch.weights_of(n)[family]) :].any()
    assert post.skipped.shape == (6, 6)
    assert post.log_likelihood.shape == (6,)


@pytest.mark.parametrize("kind", ["CTC", "T", "BTC", "TW"])
def test_skipped_is_bypass_and_word_bypass(kind, backend):
    batch = batch_of(kind)
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    for n in range(6):
        for u in range(6):
            wanted, inside = 0.0, u < batch.target_lengths[n]
            if post.bypass is not None:
                wanted += post.bypass[n, u].item()
            if post.word_bypass is not None and inside and batch.words_of(n)[u] >= 0:
                wanted += post.word_bypass[n, batch.words_of(n)[u]].item()
            assert post.skipped[n, u].item() == pytest.approx(wanted, abs=1e-12)
            assert inside or post.skipped[n, u] == 0


def test_log_likelihood_is_minus_the_loss(backend):
    batch = batch_of()
    loss = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend=backend)
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    torch.testing.assert_close(post.log_likelihood, -loss, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_gradient_to_a_weight_is_minus_its_posterior(reduction, backend):
    batch = batch_of()
    weights = [getattr(batch.wildcards, family).requires_grad_() for family in FAMILIES]
    loss = wildcard_ctc_loss(**batch.arguments(), reduction=reduction, zero_infinity=True, backend=backend)
    gradients = torch.autograd.grad(loss.sum(), weights)
    factor = torch.ones(6, 1, dtype=torch.float64)
    if reduction == "mean":
        factor = 1 / (6 * torch.tensor(batch.target_lengths, dtype=torch.float64).clamp(min=1)).unsqueeze(1)
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    for family, gradient in zip(FAMILIES, gradients, strict=True):
        torch.testing.assert_close(gradient, -getattr(post, family) * factor, rtol=1e-9, atol=1e-12)


def test_an_absent_arc_has_posterior_and_gradient_zero(backend):
    batch = batch_of(full_lengths=True)
    bypass = torch.full((6, 6), -1.0)
    bypass[:, 2] = -torch.inf
    bypass.requires_grad_()
    batch.wildcards = Wildcards(bypass=bypass)
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    assert not post.bypass[:, 2].any()
    assert post.bypass[:, 1].all()
    wildcard_ctc_loss(**batch.arguments(), backend=backend).backward()
    assert not bypass.grad[:, 2].any()
    assert bypass.grad.isfinite().all()


def test_a_self_loop_can_be_expected_more_than_once(backend):
    logits = torch.zeros(30, 1, 3)
    post = wildcard_posteriors(
        logits, torch.tensor([[1]]), [30], [1], wildcards=Wildcards(self_loop=3.0), backend=backend
    )
    assert post.self_loop.sum() > 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dtype_and_no_graph(dtype, backend):
    batch = batch_of()
    batch = batch.with_logits(batch.logits.to(dtype).requires_grad_())
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    assert post.bypass.dtype == post.log_likelihood.dtype == torch.float32
    assert not post.bypass.requires_grad


def test_one_utterance_without_a_batch_dimension(backend):
    batch = batch_of(size=1, full_lengths=True, per_arc=False)
    whole = wildcard_posteriors(**batch.arguments(), backend=backend)
    one = wildcard_posteriors(
        batch.logits[:, 0],
        batch.targets[0],
        18,
        6,
        batch.blank,
        wildcards=batch.wildcards,
        words=batch.words[0],
        backend=backend,
    )
    assert one.skipped.shape == (6,)
    assert torch.equal(one.skipped, whole.skipped[0])
    assert torch.equal(one.self_loop, whole.self_loop[0])


@pytest.mark.parametrize("bypass", [-1.0, torch.tensor(-1.0), torch.full((2, 3), -1.0)])
def test_concatenated_targets_give_the_same(bypass, backend):
    logits = torch.randn(9, 2, 5, generator=torch.Generator().manual_seed(2))
    wildcards = Wildcards(bypass=bypass, word_bypass=-2.0)
    padded = wildcard_posteriors(
        logits,
        torch.tensor([[1, 2, 3], [4, 4, -1]]),
        [9, 8],
        [3, 2],
        wildcards=wildcards,
        words=torch.tensor([[0, 0, 1], [0, 1, -1]]),
        backend=backend,
    )
    flat = wildcard_posteriors(
        logits,
        torch.tensor([1, 2, 3, 4, 4]),
        [9, 8],
        [3, 2],
        wildcards=wildcards,
        words=torch.tensor([0, 0, 1, 0, 1]),
        backend=backend,
    )
    assert torch.equal(flat.bypass, padded.bypass)
    assert torch.equal(flat.skipped, padded.skipped)
    assert torch.equal(flat.word_bypass, padded.word_bypass)


def test_a_weight_can_be_learned(backend):
    """One number for a whole family, from a model that never says the second token."""
    logits = torch.zeros(6, 1, 4)
    logits[:2, :, 1] = logits[2:4, :, 0] = logits[4:, :, 3] = 6.0
    weight = torch.nn.Parameter(torch.tensor(-6.0))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    losses = []
    for _ in range(8):
        loss = wildcard_ctc_loss(
            logits, torch.tensor([[1, 2]]), [6], [2], wildcards=Wildcards(bypass=weight), backend=backend
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    assert weight.item() > -5


@pytest.mark.parametrize("concatenated", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_one_number_in_a_tensor_gathers_the_gradients_of_all_arcs(reduction, concatenated, backend):
    batch = batch_of(size=4)
    batch.input_lengths, batch.target_lengths = [18, 17, 15, 16], [6, 4, 0, 5]
    batch.words = torch.tensor([[0, 0, 1, 1, 2, 2], [0, -1, 7, 7, 0, 0], [0] * 6, [0, 1, 2, 3, 4, 0]])
    batch.targets = (torch.arange(24).reshape(4, 6) % 4 + batch.blank + 1) % 5
    if concatenated:
        inside = torch.arange(6) < torch.tensor(batch.target_lengths).unsqueeze(1)
        batch.targets, batch.words = batch.targets[inside], batch.words[inside]
    upstream = torch.tensor([1.0, 2.0, 0.0, -3.0]) if reduction == "none" else torch.tensor(1.0)

    def loss_and_gradients(*shapes):
        numbers = zip((-1.0, -2.0, 0.5), shapes, strict=True)
        weights = [torch.full(shape, w, dtype=torch.float64, requires_grad=True) for w, shape in numbers]
        given = {**batch.arguments(), "wildcards": Wildcards(*weights)}
        loss = wildcard_ctc_loss(**given, reduction=reduction, backend=backend)
        return loss.detach(), torch.autograd.grad((loss * upstream).sum(), weights)

    loss, found = loss_and_gradients((), (), ())
    wanted_loss, wanted = loss_and_gradients((4, 6), (4, 7), (4, 8))
    torch.testing.assert_close(loss, wanted_loss)
    for one, each in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, each.sum())


def test_one_number_in_a_tensor_holds_for_words_of_any_number(backend):
    batch = batch_of(size=1, full_lengths=True)
    batch.words = torch.tensor([[0, 0, 5, 5, 10**13, 10**13]])
    losses = []
    for weight in (-1.0, torch.tensor(-1.0, requires_grad=True)):
        batch.wildcards = Wildcards(word_bypass=weight)
        losses.append(wildcard_ctc_loss(**batch.arguments(), backend=backend))
    torch.testing.assert_close(losses[0], losses[1].detach())
    losses[1].backward()
    assert -3 <= weight.grad * 6 < 0  # the mean divides by six tokens; three words can be bypassed


def test_posteriors_are_the_same_in_inference_mode(backend):
    batch = batch_of(full_lengths=True)
    wanted = wildcard_posteriors(**batch.arguments(), backend=backend)
    with torch.inference_mode():
        batch = batch.with_logits(batch.logits.clone())  # made in it
        found = wildcard_posteriors(**batch.arguments(), backend=backend)
    assert torch.equal(found.skipped, wanted.skipped)
    assert wanted.skipped.any()
