"""The loss inside PyTorch: derivatives, operators, torch.compile, deterministic mode."""

import numpy as np
import pytest
import torch
from support.batches import KINDS, Batch, draw_batch
from torch.autograd import forward_ad

from wildctc import Wildcards, find_label_issues, wildcard_align, wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice import ops
from wildctc.lattice.arcs import as_lattice


def batch_of(kind: str, **shape) -> Batch:
    shape = {"size": 3, "frames": 20, "tokens": 4, "outputs": 4, **shape}
    return draw_batch(np.random.default_rng(7), kind, **shape)


def weight_tensors(batch: Batch) -> list[torch.Tensor]:
    w = batch.wildcards
    return [x for x in (w.bypass, w.self_loop, w.word_bypass) if x is not None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_gradcheck_of_logits_and_weights(kind, reduction, backend):
    batch = batch_of(kind, size=2, frames=6, tokens=3)
    batch.input_lengths, batch.target_lengths = [6, 5], [3, 2]
    batch.targets = torch.tensor([[1, 1, 2], [2, 1, 1]])  # a repeated label
    batch.blank = 0
    batch.words = torch.tensor([[0, 0, 1], [-1, 0, 0]])
    families, loops = KINDS[kind]
    generator = torch.Generator().manual_seed(1)
    widths = {"bypass": 3, "self_loop": 4, "word_bypass": 2}
    weights = [torch.randn(2, widths[f], dtype=torch.float64, generator=generator) - 1 for f in families]
    inputs = [x.clone().requires_grad_() for x in (batch.logits, *weights)]

    def loss(logits, *given):
        batch.wildcards = Wildcards(**dict(zip(families, given, strict=True)), self_loop_at=loops)
        return wildcard_ctc_loss(**batch.with_logits(logits).arguments(), reduction=reduction, backend=backend)

    assert torch.autograd.gradcheck(loss, inputs, atol=1e-7)


@pytest.mark.parametrize("kind", ["CTC", "W", "TW"])
@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_opcheck(kind, reduction):
    batch = batch_of(kind)
    batch.logits.requires_grad_()
    for weight in weight_tensors(batch):
        weight.requires_grad_()
    lattice = as_lattice(**batch.arguments())
    torch.library.opcheck(ops.loss_op, (*lattice, reduction, False, [True] + [w is not None for w in lattice.weights]))


def step(logits, targets, input_lengths, target_lengths, words, bypass, self_loop):
    """A training step's end: a layer, then the loss, with one family of learned weights."""
    hidden = (logits * 1.5).tanh() * 4
    wildcards = Wildcards(bypass=bypass, self_loop=self_loop, word_bypass=-2.0)
    return wildcard_ctc_loss(hidden, targets, input_lengths, target_lengths, wildcards=wildcards, words=words)


def step_inputs(frames: int, size: int) -> tuple:
    batch = batch_of("TW", frames=frames, size=size, full_lengths=True, outputs=6)
    batch.targets = batch.targets.clamp(min=0) % 5 + 1  # blank is 0 here
    logits = batch.logits.float().requires_grad_()
    lengths = torch.tensor(batch.input_lengths), torch.tensor(batch.target_lengths)
    self_loop = torch.full((size, 5), -1.5, requires_grad=True)
    return logits, batch.targets, *lengths, batch.words, -3.0, self_loop


def run(function, inputs) -> list[torch.Tensor]:
    loss = function(*inputs)
    return [loss.detach(), *torch.autograd.grad(loss, [inputs[0], inputs[-1]])]


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "dynamic"), [("aot_eager", False), ("aot_eager", True), ("inductor", False)])
def test_a_compiled_step_without_graph_breaks_gives_the_same(compiler, dynamic):
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend=compiler, dynamic=dynamic)
    for frames, size in [(20, 3), (33, 3), (40, 4)] if dynamic else [(20, 3)]:
        inputs = step_inputs(frames, size)
        for found, wanted in zip(run(compiled, inputs), run(step, inputs), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.slow
def test_a_compiled_step_follows_a_schedule():
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for bypass in (-3.0, -2.5, -2.0):  # numbers that change are symbolic from the second on
        inputs = list(step_inputs(20, 3))
        inputs[5] = bypass
        torch.testing.assert_close(compiled(*inputs), step(*inputs))


@pytest.mark.slow
def test_a_weight_in_a_tensor_changes_without_recompilation():
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    for bypass in (-3.0, -2.5, -2.0):
        inputs = list(step_inputs(20, 3))
        inputs[5] = torch.tensor(bypass)
        found = compiled(*inputs)
        inputs[5] = bypass
        torch.testing.assert_close(found, step(*inputs))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_a_compiled_step_still_refuses_bad_labels():
    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    inputs = list(step_inputs(20, 3))
    inputs[1] = inputs[1].clone()
    inputs[1][1, 0] = 6
    with pytest.raises(Exception, match=r"utterance 1: target 0 is 6, must be between 0 and C - 1 = 5"):
        compiled(*inputs)


def test_deterministic_mode():
    torch.use_deterministic_algorithms(True)
    try:
        for kind in KINDS:
            batch = batch_of(kind)
            batch.logits.requires_grad_()
            wildcard_ctc_loss(**batch.arguments(), zero_infinity=True).backward()
            assert batch.logits.grad.isfinite().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_no_gradient_is_computed_where_none_is_wanted(backend):
    batch = batch_of("TW", full_lengths=True)
    with torch.no_grad():
        assert not wildcard_ctc_loss(**batch.arguments(), backend=backend).requires_grad
    bypass = batch.wildcards.bypass.requires_grad_()
    loss = wildcard_ctc_loss(**batch.arguments(), zero_infinity=True, backend=backend)
    (gradient,) = torch.autograd.grad(loss, [bypass])  # the logits need none
    assert gradient.shape == bypass.shape
    assert gradient.any()


def test_a_graph_that_is_kept_gives_its_gradients_twice(backend):
    batch = batch_of("TW", full_lengths=True)
    batch.logits.requires_grad_()
    bypass = batch.wildcards.bypass.requires_grad_()
    loss = wildcard_ctc_loss(**batch.arguments(), reduction="sum", zero_infinity=True, backend=backend)
    first = [x.clone() for x in torch.autograd.grad(loss, [batch.logits, bypass], retain_graph=True)]
    second = torch.autograd.grad(loss, [batch.logits, bypass], retain_graph=True)
    for x in second:
        x.mul_(7)  # nobody else may be holding them
    third = torch.autograd.grad(3 * loss, [batch.logits, bypass])
    for one, seven, three in zip(first, second, third, strict=True):
        torch.testing.assert_close(seven, 7 * one)
        torch.testing.assert_close(three, 3 * one)


def test_accumulation_over_several_losses(backend):
    batch = batch_of("TW", full_lengths=True)
    batch.logits.requires_grad_()
    one = torch.autograd.grad(wildcard_ctc_loss(**batch.arguments(), backend=backend), batch.logits)[0]
    for _ in range(2):
        wildcard_ctc_loss(**batch.arguments(), backend=backend).backward()
    torch.testing.assert_close(batch.logits.grad, 2 * one)


@pytest.mark.slow
def test_a_compiled_step_on_the_reference_backend_has_no_graph_break_either():
    logits, targets, *rest, bypass, self_loop = step_inputs(6, 2)
    wildcards = Wildcards(bypass=bypass, self_loop=self_loop, word_bypass=-2.0)

    def loss(logits, targets, input_lengths, target_lengths, words):
        lengths = input_lengths, target_lengths
        return wildcard_ctc_loss(logits, targets, *lengths, wildcards=wildcards, words=words, backend="reference")

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, targets, *rest), loss(logits, targets, *rest))
    with pytest.raises(ValueError, match="utterance 1"):
        compiled(logits, torch.tensor([[1] * targets.shape[1], [99] * targets.shape[1]]), *rest)


def test_a_second_derivative_is_refused_and_not_taken_for_zero():
    batch = batch_of("TW", full_lengths=True)
    batch.logits.requires_grad_()
    bypass = batch.wildcards.bypass.requires_grad_()

    class Subclass(torch.Tensor):  # goes through the operator of torch.library
        pass

    for logits in (batch.logits, batch.logits.as_subclass(Subclass)):
        loss = wildcard_ctc_loss(**batch.with_logits(logits).arguments(), zero_infinity=True, backend="native")
        for gradient in torch.autograd.grad(loss, [batch.logits, bypass], create_graph=True):
            with pytest.raises(NotImplementedError, match='backend="reference"'):
                gradient.square().sum().backward()


def test_the_gradient_is_the_same_where_the_backward_pass_is_recorded():
    batch = batch_of("TW", full_lengths=True)
    batch.logits.requires_grad_()
    given = {**batch.arguments(), "zero_infinity": True, "backend": "native"}
    (wanted,) = torch.autograd.grad(wildcard_ctc_loss(**given), batch.logits)
    wildcard_ctc_loss(**given).backward(create_graph=True)
    assert torch.equal(batch.logits.grad, wanted)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_forward_mode_is_refused_and_not_lost(requires_grad):
    batch = batch_of("TW", full_lengths=True)
    logits = batch.logits.requires_grad_(requires_grad)
    with forward_ad.dual_level():
        dual = batch.with_logits(forward_ad.make_dual(logits, torch.ones_like(logits)))
        with pytest.raises(NotImplementedError, match='backend="reference"'):
            wildcard_ctc_loss(**dual.arguments(), backend="native")
        loss = wildcard_ctc_loss(**dual.arguments(), reduction="sum", zero_infinity=True, backend="reference")
        assert forward_ad.unpack_dual(loss).tangent.abs() < 1e-6  # a softmax does not see what is added to all logits


def small_loss(logits, bypass, targets=None, words=None, backend="reference"):
    batch = batch_of("TW", size=2, frames=5, tokens=2, full_lengths=True)
    targets, words = (batch.targets, batch.words) if targets is None else (targets, words)
    wildcards = Wildcards(bypass=bypass, self_loop=-1.0, word_bypass=-2.0)
    lengths = batch.input_lengths, batch.target_lengths
    return wildcard_ctc_loss(
        logits, targets, *lengths, batch.blank, reduction="sum", wildcards=wildcards, words=words, backend=backend
    )


def test_torch_func_transforms_the_reference():
    batch = batch_of("TW", size=2, frames=5, tokens=2, full_lengths=True)
    logits, bypass = batch.logits, torch.tensor([[-1.0, -2.0], [0.5, -3.0]], dtype=torch.float64)
    inputs = logits.clone().requires_grad_(), bypass.clone().requires_grad_()
    wanted = torch.autograd.grad(small_loss(*inputs), inputs)
    torch.testing.assert_close(torch.func.grad(small_loss, (0, 1))(logits, bypass), wanted)
    tangents = torch.randn_like(logits), torch.randn_like(bypass)
    _, slope = torch.func.jvp(small_loss, (logits, bypass), tangents)
    torch.testing.assert_close(slope, sum((g * d).sum() for g, d in zip(wanted, tangents, strict=True)))
    second = torch.autograd.functional.hessian(lambda x: small_loss(x, bypass), logits)
    torch.testing.assert_close(torch.func.hessian(small_loss)(logits, bypass), second)
    several = (
        torch.stack([logits, -logits]),
        torch.stack([bypass, bypass - 1]),
        torch.stack([batch.targets, batch.targets.flip(1)]),
        torch.stack([batch.words, torch.tensor([[0, 0], [-1, 0]])]),
    )
    found = torch.func.vmap(torch.func.grad(small_loss))(*several)
    for i, gradient in enumerate(found):
        torch.testing.assert_close(gradient, torch.func.grad(small_loss)(*(x[i] for x in several)))
    # one number for all arcs, and another
    losses = torch.func.vmap(small_loss, (None, 0))(logits, torch.tensor([-1.0, -2.0]))
    torch.testing.assert_close(losses[1], small_loss(logits, -2.0))


def test_torch_func_of_the_reference_still_refuses_bad_values():
    logits = batch_of("TW", size=2, frames=5, tokens=2).logits
    weights = torch.zeros(2, 2, 2)
    weights[1, 1, 0] = torch.nan
    with pytest.raises(ValueError, match="utterance 1: bypass weight 0 is NaN"):
        torch.func.vmap(small_loss, (None, 0))(logits, weights)
    with pytest.raises(ValueError, match="utterance 0: target 1 is 9"):
        torch.func.grad(small_loss)(logits, -1.0, torch.tensor([[1, 9], [1, 2]]), torch.zeros(2, 2).long())


def test_torch_func_of_native_code_is_refused_and_told_the_way():
    logits = batch_of("TW", size=2, frames=5, tokens=2).logits
    for transform in (torch.func.grad, torch.func.vmap):
        given = logits if transform is torch.func.grad else logits.unsqueeze(0)
        with pytest.raises(NotImplementedError, match='backend="reference"'):
            transform(lambda x: small_loss(x, -1.0, backend="native"))(given)


@pytest.mark.parametrize("function", [wildcard_posteriors, wildcard_align])
def test_torch_func_of_what_has_no_derivative_is_refused_by_name(function, backend):
    batch = batch_of("T", size=2, frames=5, tokens=2)

    def inside(logits):
        function(**batch.with_logits(logits).arguments(), backend=backend)
        return logits.sum()

    for transform, given in ((torch.func.grad, batch.logits), (torch.func.vmap, batch.logits.unsqueeze(0))):
        with pytest.raises(NotImplementedError, match=f"{function.__name__} cannot be transformed by torch.func"):
            transform(inside)(given)


@pytest.mark.slow
def test_what_is_not_compiled_gives_the_same_inside_a_compiled_function():
    logits, targets, *lengths, _, _, _ = step_inputs(20, 3)
    given = {"wildcards": Wildcards(bypass=-2.0, self_loop=-1.0)}

    def posteriors(logits):
        return wildcard_posteriors(logits * 2, targets, *lengths, **given).bypass * 2

    def score(logits):
        return wildcard_align(logits * 2, targets, *lengths, **given)[0].score

    def issues(logits):
        return find_label_issues(logits * 2, targets, *lengths, tokens="-abcde")

    for function in (posteriors, score, issues):
        torch.compiler.reset()
        found, wanted = torch.compile(function, backend="aot_eager")(logits), function(logits)
        assert torch.equal(found, wanted) if function is posteriors else found == wanted
