"""Without wildcards the loss is torch's CTC loss, called in every way that torch's can be."""

import numpy as np
import pytest
import torch
from support.batches import draw_batch
from torch.nn.functional import ctc_loss

from wildctc import WildcardCTCLoss, wildcard_ctc_loss


def batch_of(seed: int, **shape):
    return draw_batch(
        np.random.default_rng(seed), "CTC", **{"size": 5, "frames": 30, "tokens": 9, "outputs": 7, **shape}
    )


def torch_loss(logits, targets, input_lengths, target_lengths, blank, **options):
    log_p = logits.log_softmax(-1)
    return ctc_loss(log_p, targets, torch.tensor(input_lengths), torch.tensor(target_lengths), blank, **options)


def gradient(loss: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss.sum(), logits)[0]


def check_equal(batch, backend, reduction, zero_infinity=True, dtype=torch.float64):
    logits = batch.logits.to(dtype, copy=True).requires_grad_()
    targets = batch.targets.clone()
    for n, length in enumerate(batch.target_lengths):
        targets[n, length:] = 1 - min(batch.blank, 1)  # torch reads what stands in the padding
    rest = (batch.input_lengths, batch.target_lengths, batch.blank)
    options = {"reduction": reduction, "zero_infinity": zero_infinity}
    wanted = torch_loss(logits.double(), targets, *rest, **options)  # torch's own float32 is off by 2e-5
    found = wildcard_ctc_loss(logits, batch.targets, *rest, **options, backend=backend)
    assert found.dtype == dtype
    torch.testing.assert_close(found, wanted.to(dtype))
    torch.testing.assert_close(gradient(found, logits), gradient(wanted, logits))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(6))
def test_value_and_gradient(seed, dtype, reduction, backend):
    rng = np.random.default_rng(seed)
    shape = {
        "frames": int(rng.integers(1, 80)),
        "tokens": int(rng.integers(1, 20)),
        "outputs": int(rng.integers(2, 12)),
    }
    check_equal(batch_of(seed, **shape), backend, reduction, dtype=dtype)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_without_zero_infinity(reduction, backend):
    batch = batch_of(1, full_lengths=True)
    check_equal(batch, backend, reduction, zero_infinity=False)
    batch.input_lengths[2] = 4  # fewer frames than tokens
    logits = batch.logits.requires_grad_()
    loss = wildcard_ctc_loss(**batch.arguments(), reduction=reduction, backend=backend)
    assert (loss[2] if reduction == "none" else loss) == torch.inf
    assert not gradient(loss, logits)[:, 2].any()  # where torch's is NaN


def test_every_form_of_targets_and_lengths(backend):
    batch = batch_of(2)
    wanted = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend=backend)
    rows = [batch.targets[n, :length] for n, length in enumerate(batch.target_lengths)]
    for targets in (batch.targets, torch.cat(rows), batch.targets.int(), torch.cat(rows).to(torch.int32)):
        for lengths in (list, tuple, torch.tensor, lambda x: torch.tensor(x, dtype=torch.int32)):
            found = wildcard_ctc_loss(
                batch.logits,
                targets,
                lengths(batch.input_lengths),
                lengths(batch.target_lengths),
                batch.blank,
                "none",
                backend=backend,
            )
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_one_utterance_without_a_batch_dimension(reduction, backend):
    batch = batch_of(3, size=1, full_lengths=True)
    logits = batch.logits[:, 0].clone().requires_grad_()
    wanted = torch_loss(logits, batch.targets[0], 30, 9, batch.blank, reduction=reduction)
    wanted_gradient = gradient(wanted, logits)
    for lengths in [(30, 9), ([30], [9]), (torch.tensor(30), torch.tensor(9)), (torch.tensor([30]), torch.tensor([9]))]:
        found = wildcard_ctc_loss(
            logits, batch.targets[0], *lengths, blank=batch.blank, reduction=reduction, backend=backend
        )
        assert found.shape == wanted.shape == ()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(gradient(found, logits), wanted_gradient)


def test_log_probabilities_are_fine_too(backend):
    batch = batch_of(4)
    log_p = batch.with_logits(batch.logits.log_softmax(2))
    torch.testing.assert_close(
        wildcard_ctc_loss(**log_p.arguments(), reduction="none", backend=backend),
        wildcard_ctc_loss(**batch.arguments(), reduction="none", backend=backend),
    )


def test_the_module_is_a_drop_in_for_torchs(backend):
    batch = batch_of(5, full_lengths=True)
    lengths = torch.tensor(batch.input_lengths), torch.tensor(batch.target_lengths)
    theirs = torch.nn.CTCLoss(batch.blank, "sum", True)(batch.logits.log_softmax(2), batch.targets, *lengths)
    ours = WildcardCTCLoss(batch.blank, "sum", True, backend=backend)(batch.logits, batch.targets, *lengths)
    torch.testing.assert_close(ours, theirs)


def test_the_losses_gradient_is_scaled_by_what_comes_after(backend):
    batch = batch_of(6, full_lengths=True)
    logits = batch.logits.requires_grad_()
    loss = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend=backend)
    factors = torch.tensor([1.0, -2.0, 0.0, 3.5, 0.5], dtype=torch.float64)
    plain = gradient(loss, logits)
    loss = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend=backend)
    torch.testing.assert_close(gradient(loss * factors, logits), plain * factors.view(1, -1, 1))
