"""What happens at the edges: nothing to align, nothing possible, extreme and broken numbers."""

import math

import numpy as np
import pytest
import torch
from support.batches import KINDS, draw_batch

from wildctc import Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors

ALL = Wildcards(bypass=-2.0, self_loop=-3.0, word_bypass=-1.0)
EVERY_DTYPE = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def batch_of(kind: str = "TW", **shape):
    shape = {"size": 3, "frames": 20, "tokens": 6, "outputs": 8, "per_arc": False, "full_lengths": True, **shape}
    return draw_batch(np.random.default_rng(11), kind, **shape)


def loss_and_gradient(batch, backend, reduction="none", **options):
    logits = batch.logits.detach().requires_grad_()
    loss = wildcard_ctc_loss(**batch.with_logits(logits).arguments(), reduction=reduction, backend=backend, **options)
    return loss.detach(), torch.autograd.grad(loss.sum(), logits)[0]


def test_no_tokens(backend):
    logits = torch.randn(6, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    empty = torch.zeros(1, 0, dtype=torch.int64)
    plain = wildcard_ctc_loss(logits, empty, [6], [0], reduction="none", backend=backend)
    torch.testing.assert_close(plain, -logits.log_softmax(2)[:, 0, 0].sum().reshape(1))
    wild = wildcard_ctc_loss(logits, empty, [6], [0], reduction="none", wildcards=ALL, words=empty, backend=backend)
    assert wild < plain
    (alignment,) = wildcard_align(logits, empty, [6], [0], wildcards=ALL, words=empty, backend=backend)
    assert alignment.tokens == []


@pytest.mark.parametrize("frames", [0, 3])
def test_no_frames(frames, backend):
    """T = U = 0 has loss 0, T = 0 alone none that is finite, whether the tensor or only the utterance is empty."""
    logits = torch.zeros(frames, 2, 4, requires_grad=True)
    targets = torch.tensor([[1], [0]])
    arguments = {"targets": targets, "input_lengths": [0, 0], "target_lengths": [1, 0]}
    for wildcards in (None, Wildcards(bypass=0.0, self_loop=0.0)):
        loss = wildcard_ctc_loss(logits, **arguments, reduction="none", wildcards=wildcards, backend=backend)
        assert loss.tolist() == [math.inf, 0.0]
        loss[1].backward()
        assert not logits.grad.any()
    post = wildcard_posteriors(logits, **arguments, wildcards=Wildcards(bypass=0.0, self_loop=0.0), backend=backend)
    assert post.log_likelihood.tolist() == [-math.inf, 0.0]
    assert not post.bypass.any()
    assert not post.self_loop.any()


def test_no_utterances(backend):
    logits, targets = torch.zeros(5, 0, 4), torch.zeros(0, 3, dtype=torch.int64)
    arguments = {"wildcards": ALL, "words": targets, "backend": backend}
    assert wildcard_ctc_loss(logits, targets, [], [], reduction="none", **arguments).shape == (0,)
    assert wildcard_ctc_loss(logits, targets, [], [], reduction="sum", **arguments) == 0
    assert wildcard_ctc_loss(logits, targets, [], [], reduction="mean", **arguments).isnan()  # as torch's mean
    assert wildcard_align(logits, targets, [], [], **arguments) == []
    assert wildcard_posteriors(logits, targets, [], [], **arguments).bypass.shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_blank_with_probability_one(dtype, backend):
    """★ keeps its value and its gradient where 1 − P(blank) rounds to 0."""
    logits = torch.zeros(4, 1, 5, dtype=dtype)
    logits[:, :, 0] = 500
    logits[:, :, 2] = 1
    logits.requires_grad_()
    targets = torch.tensor([[1, 2]])
    loss = wildcard_ctc_loss(
        logits, targets, [4], [2], reduction="sum", wildcards=Wildcards(bypass=0.0), backend=backend
    )
    loss.backward()
    assert 900 < loss.item() < 1000
    assert logits.grad.isfinite().all()
    assert logits.grad.sum(2).abs().max() < 1e-5
    # two tokens or ★ are expected somewhere; logarithms near 1000 in float32, as Triton's kernels keep, have 6e-5
    tolerance = 1e-4 if backend == "triton" and dtype == torch.float32 else 1e-5
    assert logits.grad[:, 0, 1:].sum().item() == pytest.approx(-2, abs=tolerance)


def test_some_outputs_impossible(backend):
    batch = batch_of()
    label = int(batch.targets[0, 0])
    other = next(v for v in range(8) if v != batch.blank and v not in batch.targets[0].tolist())
    batch.logits[:, 0, other] = -torch.inf  # of no use to this utterance
    batch.logits[:, 1, batch.blank] = -torch.inf
    batch.logits[:, 2, :] = -torch.inf
    batch.logits[:, 2, label] = 0.0
    loss, gradient = loss_and_gradient(batch, backend)
    assert not loss.isnan().any()
    assert gradient.isfinite().all()
    assert not gradient[:, 0, other].any()
    assert not gradient[:, 1, batch.blank].any()


def test_every_non_blank_output_impossible(backend):
    batch = batch_of("T", tokens=1)
    batch.logits[:] = -torch.inf
    batch.logits[:, :, batch.blank] = 0.0
    loss, gradient = loss_and_gradient(batch, backend)
    assert (loss == torch.inf).all()
    assert not gradient.any()
    batch.target_lengths = [0, 0, 0]
    loss, gradient = loss_and_gradient(batch, backend)
    assert not loss.any()
    assert not gradient.any()


@pytest.mark.parametrize("value", [math.nan, math.inf, "all -inf"])
def test_broken_logits_poison_their_utterance_alone(value, backend):
    batch = batch_of()
    good_loss, good_gradient = loss_and_gradient(batch, backend)
    if value == "all -inf":
        batch.logits[7, 1] = -torch.inf
    else:
        batch.logits[7, 1, 3] = value
    loss, gradient = loss_and_gradient(batch, backend)
    assert loss.isnan().tolist() == [False, True, False]
    assert torch.equal(loss[::2], good_loss[::2])
    torch.testing.assert_close(gradient[:, ::2], good_gradient[:, ::2], rtol=1e-12, atol=1e-12)
    assert wildcard_ctc_loss(**batch.arguments(), zero_infinity=True, backend=backend).isnan()
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    assert post.log_likelihood.isnan().tolist() == [False, True, False]
    assert post.bypass[::2].isfinite().all()
    for family in (post.bypass, post.self_loop, post.skipped):
        assert family[1].isnan().all()
    assert [math.isnan(a.score) for a in wildcard_align(**batch.arguments(), backend=backend)] == [False, True, False]


def test_the_weights_of_an_utterance_without_a_likelihood_have_no_gradient(backend):
    batch = batch_of("T")
    batch.target_lengths = [6, 4, 6]
    batch.logits[7, 1, 3] = math.nan
    weights = [torch.zeros(3, width, requires_grad=True) for width in (6, 7)]
    batch.wildcards = Wildcards(*weights)
    wildcard_ctc_loss(**batch.arguments(), backend=backend).backward()
    for weight, used in zip(weights, (4, 5), strict=True):
        assert weight.grad[1, :used].isnan().all()
        assert not weight.grad[1, used:].any()
        assert weight.grad[::2].isfinite().all()


def test_padding_of_weights_has_gradient_zero_whatever_stands_there(backend):
    batch = batch_of("T")
    batch.target_lengths = [6, 4, 0]
    weights = [torch.zeros(3, width) for width in (6, 7)]
    weights[0][1, 4:] = weights[1][2, 1:] = math.nan
    weights[0][2] = weights[1][1, 5:] = math.inf
    batch.wildcards = Wildcards(*(w.requires_grad_() for w in weights))
    wildcard_ctc_loss(**batch.arguments(), backend=backend).backward()
    assert all(w.grad.isfinite().all() for w in weights)
    assert not weights[0].grad[1, 4:].any()
    assert not weights[1].grad[2, 1:].any()


def test_what_stands_past_the_lengths_is_ignored(backend):
    batch = batch_of()
    batch.input_lengths, batch.target_lengths = [20, 16, 12], [6, 4, 0]
    clean_loss, clean_gradient = loss_and_gradient(batch, backend)
    for n in range(3):
        batch.logits[batch.input_lengths[n] :, n] = math.nan
    for padding in (0, -1, -100, 10**12):
        for n, length in enumerate(batch.target_lengths):
            batch.targets[n, length:] = padding
            batch.words[n, length:] = padding
        loss, gradient = loss_and_gradient(batch, backend)
        assert torch.equal(loss, clean_loss)
        assert torch.equal(gradient, clean_gradient)
        for n, length in enumerate(batch.input_lengths):
            assert not gradient[length:, n].any()
            assert gradient[:length, n].any()


def test_infeasible(backend):
    batch = batch_of("T")
    batch.input_lengths[1] = 5  # for six tokens
    loss, gradient = loss_and_gradient(batch, backend)
    assert loss[1] == torch.inf
    assert not gradient[:, 1].any()
    assert gradient[:, 0].any()
    zeroed, gradient = loss_and_gradient(batch, backend, zero_infinity=True)
    assert zeroed.tolist() == [loss[0].item(), 0.0, loss[2].item()]
    assert not gradient[:, 1].any()
    mean, gradient = loss_and_gradient(batch, backend, reduction="mean", zero_infinity=True)
    assert mean.item() == pytest.approx((loss[0] + loss[2]).item() / 6 / 3)
    assert not gradient[:, 1].any()
    post = wildcard_posteriors(**batch.arguments(), backend=backend)
    assert post.log_likelihood[1] == -torch.inf
    assert not post.bypass[1].any()
    assert not post.self_loop[1].any()
    alignment = wildcard_align(**batch.arguments(), backend=backend)[1]
    assert alignment.score == -math.inf
    assert alignment.tokens == alignment.wildcards == []
    assert len(alignment.frames) == 0


def test_a_loss_may_be_negative(backend):
    batch = batch_of("self-loop only")
    batch.wildcards = Wildcards(self_loop=6.0)
    loss, gradient = loss_and_gradient(batch, backend)
    assert (loss < 0).all()
    assert gradient.isfinite().all()
    zeroed, _ = loss_and_gradient(batch, backend, zero_infinity=True)
    assert torch.equal(zeroed, loss)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_a_spread_of_1000(kind, dtype, backend):
    batch = batch_of(kind, sharpness=1.0)
    batch = batch.with_logits(((batch.logits > 0) * 1000.0 - 500.0).to(dtype))
    loss, gradient = loss_and_gradient(batch, backend)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert gradient.abs().max() <= 1.01


@pytest.mark.slow
@pytest.mark.parametrize("sharpness", [0.5, 5.0, 300.0])
def test_twenty_thousand_frames(sharpness):
    """Against torch in float64, whose logarithms of a likelihood of e^-1e7 leave it seven digits in the gradient."""
    rng = np.random.default_rng(5)
    batch = draw_batch(rng, "CTC", size=1, frames=20_000, tokens=100, outputs=9, sharpness=sharpness, full_lengths=True)
    batch = batch.with_logits(batch.logits.float())
    exact = batch.logits.double().requires_grad_()
    lengths = torch.tensor(batch.input_lengths), torch.tensor(batch.target_lengths)
    wanted = torch.nn.functional.ctc_loss(exact.log_softmax(2), batch.targets, *lengths, batch.blank, reduction="none")
    (wanted_gradient,) = torch.autograd.grad(wanted.sum(), exact)
    for dtype, loss_tolerance, tolerance in [(torch.float64, 1e-11, 1e-6), (torch.float32, 2e-6, 2e-3)]:
        sized = batch.with_logits(batch.logits.to(dtype))
        loss, gradient = loss_and_gradient(sized, "native")
        torch.testing.assert_close(loss.double(), wanted.detach(), rtol=loss_tolerance, atol=0)
        torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=0, atol=tolerance)
        sized.wildcards = Wildcards(bypass=-3.0, self_loop=-3.0)
        loss, gradient = loss_and_gradient(sized, "native")
        assert (loss.double() < wanted).all()
        assert gradient.isfinite().all()
        assert gradient.sum(2).abs().max() < 1e-4  # a softmax's gradient adds up to 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_float32_inside(dtype, backend):
    batch = batch_of().with_logits(batch_of().logits.to(dtype))
    loss, gradient = loss_and_gradient(batch, backend)
    wanted, wanted_gradient = loss_and_gradient(batch.with_logits(batch.logits.float()), backend)
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, wanted_gradient.to(dtype), rtol=1e-2, atol=1e-6)


def test_gradients_of_half_precision_are_rounded_to_nearest():
    for dtype in (torch.float16, torch.bfloat16):
        batch = batch_of(frames=200, outputs=50)
        batch = batch.with_logits(batch.logits.to(dtype))
        _, gradient = loss_and_gradient(batch, "native")
        _, wanted = loss_and_gradient(batch.with_logits(batch.logits.float()), "native")
        assert torch.equal(gradient, wanted.to(dtype))


@pytest.mark.parametrize("scale", [2.0**10, 2.0**16])
def test_loss_scaling_saves_small_gradients_of_half_precision(scale, backend):
    """What torch.amp.GradScaler is for: its first scale is 2^16, which float16 itself cannot hold."""
    batch = batch_of(size=16, frames=60, tokens=20, outputs=200)
    batch = batch.with_logits(batch.logits.half())
    logits = batch.logits.detach().requires_grad_()
    loss = wildcard_ctc_loss(**batch.with_logits(logits).arguments(), backend=backend)
    (loss * scale).backward()
    _, wanted = loss_and_gradient(batch.with_logits(batch.logits.float()), backend, reduction="mean")
    torch.testing.assert_close(logits.grad.float(), wanted * scale, rtol=2e-3, atol=1e-7)


def test_non_contiguous_logits(backend):
    batch = batch_of()
    loss, gradient = loss_and_gradient(batch, backend)
    for view in (
        batch.logits.transpose(0, 1).contiguous().transpose(0, 1),
        batch.logits.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        torch.stack([batch.logits] * 2, 3).flatten(2)[:, :, ::2],
    ):
        assert not view.is_contiguous()
        found, found_gradient = loss_and_gradient(batch.with_logits(view), backend)
        torch.testing.assert_close(found, loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(found_gradient, gradient, rtol=1e-10, atol=1e-12)


def test_logits_that_overlap_in_memory(backend):
    row = torch.randn(80, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    batch = batch_of(size=2, frames=20)
    for strides in ((1, 1, 1), (2, 1, 1), (1, 3, 1), (0, 8, 1)):
        view = row.as_strided((20, 2, 8), strides)
        loss, gradient = loss_and_gradient(batch.with_logits(view), backend)
        wanted, wanted_gradient = loss_and_gradient(batch.with_logits(view.clone()), backend)
        torch.testing.assert_close(loss, wanted)
        torch.testing.assert_close(gradient, wanted_gradient)


def test_logits_and_weights_whose_sign_is_to_be_turned(backend):
    """The imaginary part of a conjugate: its memory holds the negative of what it says."""
    batch = batch_of("T")
    batch.wildcards = Wildcards(bypass=torch.randn(3, 6, dtype=torch.complex128).conj().imag)
    lazy = torch.complex(torch.zeros_like(batch.logits), -batch.logits).conj().imag
    assert lazy.is_neg()
    found = loss_and_gradient(batch.with_logits(lazy), backend)
    batch.wildcards = Wildcards(bypass=batch.wildcards.bypass.resolve_neg())
    torch.testing.assert_close(found, loss_and_gradient(batch, backend))


def test_an_expanded_frame_receives_the_sum_of_its_gradients(backend):
    row = torch.zeros(1, 1, 4, requires_grad=True)
    loss = wildcard_ctc_loss(row.expand(6, 2, 4), torch.tensor([[1, 2], [3, 3]]), [6, 6], [2, 2], backend=backend)
    loss.backward()
    assert row.grad.shape == (1, 1, 4)
    assert row.grad.sum().abs() < 1e-5
    assert row.grad.any()


def test_logits_are_not_written_to(backend):
    batch = batch_of()
    before = batch.logits.clone()
    loss_and_gradient(batch, backend)
    assert torch.equal(batch.logits, before)


def test_masked_outputs(backend):
    """−1e9 for an output that is switched off, as is the habit elsewhere, works like −inf where it is not needed."""
    batch = batch_of()
    unused = next(v for v in range(8) if v != batch.blank and not (batch.targets == v).any())
    results = []
    for value in (-1e9, -math.inf):
        batch.logits[:, :, unused] = value
        results.append(loss_and_gradient(batch.with_logits(batch.logits.float()), backend))
    torch.testing.assert_close(results[0], results[1])


def largest_weight(frames: int, dtype: torch.dtype) -> float:
    """A path of T frames takes ⌈T/2⌉ wildcards at most, and exponents have room for 2^26 (float64: 2^58) in all."""
    room = 2.0**58 if dtype == torch.float64 else 2.0**26
    return math.log(2) * min((room - 3 * (frames + 64)) / ((frames + 1) // 2), 2.0**51)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("frames", [1, 2, 25, 12_000])
def test_the_largest_weight(frames, dtype, backend):
    """Above it a weight is refused; with it the loss is right, and what has no path has none."""
    if frames > 100 and backend != "native":
        pytest.skip("slow, and of the same limit")
    limit, loops = largest_weight(frames, dtype), (frames + 1) // 2
    logits = torch.zeros(frames, 2, 3, dtype=dtype)
    logits[:, 1, 1] = -math.inf  # the token of the second utterance
    arguments = {"targets": torch.tensor([[1], [1]]), "input_lengths": [frames] * 2, "target_lengths": [0, 1]}
    options = {"wildcards": Wildcards(self_loop=limit * (1 - 1e-12)), "backend": backend}
    found = wildcard_ctc_loss(logits.requires_grad_(), **arguments, reduction="none", **options)
    # the best paths alone count: ★ and blank in turn, and of an even number of frames one that can be anywhere
    paths = 1 if frames % 2 else frames + 1
    wanted = frames * math.log(3) - loops * limit - math.log(paths)
    assert found.tolist() == [pytest.approx(wanted, rel=1e-6 if found.dtype == torch.float32 else 1e-11), math.inf]
    found[0].backward()
    assert logits.grad.isfinite().all()
    post = wildcard_posteriors(logits, **arguments, **options)
    assert post.self_loop[0].sum().item() == pytest.approx(loops, rel=1e-5)
    assert not post.self_loop[1].any()
    inside = "float64" if dtype == torch.float64 else "float32"
    message = (
        rf"utterance 0: self_loop weight 0 is \d+\.\d*, must be .* most {int(limit)} \(for {frames} frames in {inside}"
    )
    for function in (wildcard_ctc_loss, wildcard_posteriors, wildcard_align):
        with pytest.raises(ValueError, match=message):
            function(logits, **arguments, wildcards=Wildcards(self_loop=limit * (1 + 1e-12)), backend=backend)
