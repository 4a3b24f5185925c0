"""A budget of memory changes nothing but memory; what does not fit is refused; a band finds the same path."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.batches import KINDS, draw_batch

from wildctc import TranscriptGraph, Wildcards, wildcard_align, wildcard_ctc_loss, wildcard_posteriors
from wildctc.errors import NotEnoughMemory, WildCTCError
from wildctc.lattice.memory import free_memory, memory_bytes


def budgets_that_fit(call):
    """What a call returns with ever smaller budgets, until one is refused."""
    results = []
    amount = 32_000_000
    while True:
        try:
            results.append(call(amount))
        except NotEnoughMemory:
            return results
        amount = amount * 2 // 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_gradient_and_posteriors_are_those_without_a_budget(kind, dtype):
    batch = draw_batch(np.random.default_rng(1), kind, size=2, frames=900, tokens=70, outputs=9, full_lengths=True)
    batch = batch.with_logits((3 * batch.logits).to(dtype).requires_grad_())

    def call(memory):
        loss = wildcard_ctc_loss(**batch.arguments(), reduction="sum", memory=memory)
        (gradient,) = torch.autograd.grad(loss, batch.logits)
        found = wildcard_posteriors(**batch.arguments(), memory=memory)
        return loss.detach(), gradient, [x for x in (found.bypass, found.self_loop, found.word_bypass) if x is not None]

    loss, gradient, posteriors = call(None)
    results = budgets_that_fit(call)
    assert len(results) > 3
    for ours, our_gradient, ours_each in results:
        assert torch.equal(ours, loss)
        assert torch.equal(our_gradient, gradient)
        for a, b in zip(ours_each, posteriors, strict=True):  # counts of stretches are added in another order
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_path_is_the_one_without_a_budget(kind):
    batch = draw_batch(np.random.default_rng(2), kind, size=2, frames=1500, tokens=500, outputs=9, sharpness=3.0)
    batch.input_lengths = [1500, 1203]
    wanted = wildcard_align(**batch.arguments())
    results = budgets_that_fit(lambda memory: wildcard_align(**batch.arguments(), memory=memory))
    assert len(results) > 5
    for found in results:
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.score == theirs.score
            assert torch.equal(ours.frames, theirs.frames)
            assert ours.tokens == theirs.tokens
            assert ours.wildcards == theirs.wildcards


def long_words(tokens: int) -> torch.Tensor:
    """Words of 1, 700 and 5 tokens, and some tokens in none: longer than a block of the engine, and than a vector."""
    lengths = [1, 700, 5, 5, 1, 1, 40]
    words = [w for w, length in enumerate(lengths) for _ in range(length)]
    return torch.tensor([(words + [-1] * 20 + [7] * tokens)[:tokens]])


@pytest.mark.parametrize("memory", [None, "1.2MB"])
@pytest.mark.parametrize("word_bypass", [None, -30.0])
def test_words_longer_than_a_block_are_those_of_the_reference(word_bypass, memory):
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(1, 4, (1, 1100), generator=generator)  # many repeats
    logits = 2 * torch.randn(900, 1, 4, generator=generator, dtype=torch.float64)
    arguments = (logits, targets, [900], [1100])
    weights = Wildcards(bypass=-3.0, self_loop=-2.0, word_bypass=word_bypass)
    words = long_words(1100)
    ours = wildcard_align(*arguments, wildcards=weights, words=words, memory=memory)[0]
    theirs = wildcard_align(*arguments, wildcards=weights, words=words, backend="reference")[0]
    assert ours.score == pytest.approx(theirs.score, abs=1e-6)
    assert torch.equal(ours.frames, theirs.frames)
    assert word_bypass is None or any(w.last - w.first == 699 for w in ours.wildcards)


def test_threads_share_the_budget():
    batch = draw_batch(np.random.default_rng(5), "TW", size=4, frames=900, tokens=70, outputs=9, full_lengths=True)
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        given = {**batch.arguments(), "memory": "1.5MB"}
        results.append((wildcard_ctc_loss(**given, reduction="none"), [a.score for a in wildcard_align(**given)]))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("function", [wildcard_ctc_loss, wildcard_posteriors, wildcard_align])
def test_what_cannot_fit_is_refused_in_one_line_that_says_what_it_needs(function):
    logits = torch.zeros(1, 1, 40).expand(200_000, 2, 40)  # of which one row has memory
    targets = torch.ones(2, 100_000, dtype=torch.int64)
    logits, wildcards = logits.requires_grad_(function is wildcard_ctc_loss), Wildcards(bypass=-1.0)
    with pytest.raises(NotEnoughMemory) as error:
        function(logits, targets, [5, 200_000], [3, 100_000], wildcards=wildcards, memory="10 MB")
    assert isinstance(error.value, WildCTCError)
    assert isinstance(error.value, MemoryError)
    text = str(error.value)
    assert text.startswith("utterance 1: ")
    assert "200000 frames and 100000 tokens needs at least " in text
    assert "the budget is 10.0 MB" in text
    assert "\n" not in text


def small() -> dict:
    return {
        "logits": torch.zeros(30, 1, 4),
        "targets": torch.ones(1, 9).long(),
        "input_lengths": 30,
        "target_lengths": 9,
    }


def test_the_environment_variable_is_the_budget_unless_one_is_given(monkeypatch):
    monkeypatch.setenv("WILDCTC_MEMORY", "1kB")
    with pytest.raises(NotEnoughMemory, match=r"the budget is 1\.0 kB; set memory= or WILDCTC_MEMORY"):
        wildcard_align(**small())
    with pytest.raises(NotEnoughMemory):
        wildcard_ctc_loss(**small())
    assert wildcard_align(**small(), memory="1MB")[0].score < 0
    monkeypatch.setenv("WILDCTC_MEMORY", "much")
    with pytest.raises(ValueError, match="the environment variable WILDCTC_MEMORY is 'much', must be"):
        wildcard_align(**small())


def test_amounts_of_memory():
    assert memory_bytes(None) == 0
    assert [memory_bytes(x) for x in (5, "5", "5 kB", "5M", "0.5GiB", "2gb")] == [
        5,
        5,
        5000,
        5 * 10**6,
        2**29,
        2 * 10**9,
    ]
    for wrong in (0, -1, 1.5, True, "", "GB", "-1GB", "4 GB free", "0"):
        with pytest.raises(ValueError, match="must be a number of bytes or a text"):
            memory_bytes(wrong)
    assert sys.platform != "linux" or free_memory() > 10**6


def spoken(jump: bool, seed: int = 0) -> dict:
    """A recording that says 90% of its text. With a jump, the text lacks 300 tokens, and the audio 600 frames."""
    generator = torch.Generator().manual_seed(seed)
    frames, tokens, outputs = 4000, 1200, 20
    targets, words = torch.randint(2, outputs, (tokens,), generator=generator), torch.arange(tokens) // 6
    said = torch.rand(tokens // 6, generator=generator)[words] > 0.1
    at = torch.linspace(0, frames - 1, tokens + 2)[1:-1].long()[said]
    logits = torch.randn(frames, outputs, generator=generator, dtype=torch.float64)
    logits[:, 0] += 6
    logits[at, 0] -= 6
    logits[at, targets[said]] += 8
    if jump:
        keep = torch.cat([torch.arange(400), torch.arange(700, tokens)])
        targets, words = targets[keep], words[keep].unique(return_inverse=True)[1]
        logits = torch.cat([logits[:2900], logits[3500:]])
    lengths = {"input_lengths": len(logits), "target_lengths": len(targets)}
    weights = Wildcards(bypass=-8.0, self_loop=-4.0, word_bypass=-20.0, self_loop_at="word")
    return {"logits": logits, "targets": targets, **lengths, "wildcards": weights, "words": words}


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("band", [1, 20, 150])
def test_a_band_finds_the_best_path_and_says_its_width(jump, band):
    given = spoken(jump)
    exact = wildcard_align(**given)[0]
    found = wildcard_align(**given, band=band)[0]
    assert exact.band is None
    assert band < found.band < 1200
    assert found.score == exact.score
    assert found.tokens == exact.tokens
    assert found.wildcards == exact.wildcards
    assert torch.equal(found.frames, exact.frames)


def test_a_band_that_holds_all_positions_is_no_band():
    assert wildcard_align(**spoken(True), band=5000)[0].band is None
    found = wildcard_align(**{**spoken(False), "logits": torch.zeros(4000, 20)}, band=30)[0]  # nothing to follow
    assert found.band is None


def test_a_band_widens_where_the_path_is_not_along_the_guide():
    """Frames that hardly say the tokens: the guide has few places, and the most likely labels are wrong."""
    given = spoken(False)
    given["logits"] = given["logits"] + 3 * torch.randn(4000, 20, generator=torch.Generator().manual_seed(1))
    exact, found = wildcard_align(**given)[0], wildcard_align(**given, band=1)[0]
    assert found.band is None or found.band > 1
    assert found.tokens == exact.tokens


def test_a_band_of_batches_and_edge_cases():
    batch = draw_batch(np.random.default_rng(7), "TW", size=12, frames=14, tokens=5, outputs=4)
    batch.logits[0, 3] = math.nan
    for ours, theirs in zip(
        wildcard_align(**batch.arguments(), band=1), wildcard_align(**batch.arguments()), strict=True
    ):
        assert ours.score == theirs.score or (math.isnan(ours.score) and math.isnan(theirs.score))
    empty = wildcard_align(torch.zeros(3, 4), torch.zeros(0).long(), 3, 0, band=1)[0]
    assert empty.score == pytest.approx(3 * math.log(1 / 4))
    assert wildcard_align(torch.zeros(0, 0, 4), torch.zeros(0, 0).long(), [], [], band=1) == []
    impossible = wildcard_align(torch.zeros(3, 4), torch.ones(3).long(), 3, 3, band=1)[0]
    assert (impossible.score, impossible.band) == (-math.inf, None)


def test_a_band_that_makes_no_sense():
    for wrong in (0, -5, 1.5, "wide"):
        with pytest.raises(ValueError, match="must be a number of tokens, at least 1"):
            wildcard_align(**small(), band=wrong)
    with pytest.raises(ValueError, match="band needs the native backend, this is reference"):
        wildcard_align(**small(), band=5, backend="reference")


PEAK = """
import resource, sys
import torch
from wildctc import Wildcards, wildcard_align, wildcard_posteriors
torch.set_num_threads(1)

def run(frames, tokens):
    logits = torch.zeros(1, 1, 40).expand(frames, 1, 40)
    words = (torch.arange(tokens) // 6)[None]
    weights = Wildcards(bypass=-3.0, self_loop=-2.0, word_bypass=-9.0)
    call = {"align": wildcard_align, "posteriors": wildcard_posteriors}[sys.argv[1]]
    given = {"wildcards": weights, "words": words, "memory": sys.argv[2]}
    call(logits, (torch.arange(tokens) % 30 + 1)[None], [frames], [tokens], **given)

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run(200, 50)
before = peak()
run(12000, 3000)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss is in kilobytes on Linux only")
@pytest.mark.parametrize("call", ["align", "posteriors"])
def test_a_process_grows_by_the_budget_and_its_results(call):
    """A byte a cell of the lattice would be 108 MB; the states of all frames, 860 MB."""
    command = [sys.executable, "-c", PEAK, call, "30MB"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    results = 12e6 if call == "align" else 1e6  # a line of the path for each frame, as Python objects
    assert int(done.stdout) <= 30e6 + results


def test_the_best_path_of_a_graph_is_the_one_without_a_budget():
    rng = np.random.default_rng(4)
    slots = [[rng.integers(1, 9, int(rng.integers(1, 4))).tolist() for _ in range(1 + i % 3)] for i in range(60)]
    graphs = [TranscriptGraph.from_slots(slots), TranscriptGraph.from_slots(slots[:7])]
    logits = torch.from_numpy(3 * rng.normal(size=(1500, 2, 9)))
    wildcards = Wildcards(bypass=-3.0, self_loop=-4.0, word_bypass=-5.0)

    def call(memory):
        return wildcard_align(logits, graphs, [1500, 1203], wildcards=wildcards, memory=memory)

    wanted = call(None)
    results = budgets_that_fit(call)
    assert len(results) > 5
    for found in results:
        for ours, theirs in zip(found, wanted, strict=True):
            assert ours.score == theirs.score
            assert torch.equal(ours.frames, theirs.frames)
            assert (ours.tokens, ours.wildcards, ours.alternatives) == (
                theirs.tokens,
                theirs.wildcards,
                theirs.alternatives,
            )
    with pytest.raises(NotEnoughMemory, match=r"utterance 0: the best path of 1500 frames and \d+ tokens needs"):
        call("20kB")
