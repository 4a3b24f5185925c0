"""The best path as frames, tokens and wildcards that agree with each other."""

import itertools
import math
import time

import numpy as np
import pytest
import torch
from support.batches import KINDS, Batch, draw_batch
from support.enumeration import best_sequences, emissions, word_spans

from wildctc import Span, Wildcards, WildcardSpan, wildcard_align, wildcard_ctc_loss
from wildctc.lattice.align import _word_starts


def heard(*labels: int, outputs: int = 5, sharpness: float = 9.0) -> torch.Tensor:
    """(T, 1, C) logits of frames that say these labels."""
    return torch.nn.functional.one_hot(torch.tensor(labels), outputs).double().unsqueeze(1) * sharpness


def align(logits, targets, words=None, backend="auto", symbols=None, **weights):
    words = torch.tensor([words]) if words is not None else None
    return wildcard_align(
        logits,
        torch.tensor([targets]),
        [len(logits)],
        [len(targets)],
        wildcards=Wildcards(**weights),
        words=words,
        backend=backend,
        symbols=symbols,
    )[0]


def test_plain_ctc(backend):
    found = align(heard(0, 1, 1, 0, 2, 0), [1, 2], backend=backend)
    assert found.frames.tolist() == [0, 1, 1, 0, 2, 0]
    assert found.tokens == [Span(0, 1, 1, 3, False), Span(1, 2, 4, 5, False)]
    assert found.wildcards == []


def test_a_bypassed_token(backend):
    found = align(heard(0, 1, 0, 3, 3, 0, 2), [1, 4, 2], backend=backend, bypass=-1.0)
    assert found.frames.tolist() == [0, 1, 0, -1, -1, 0, 2]
    assert found.tokens == [Span(0, 1, 1, 2, False), Span(1, 4, 3, 5, True), Span(2, 2, 6, 7, False)]
    assert found.wildcards == [WildcardSpan("bypass", 3, 5, 1, 1)]


def test_a_bypassed_word_gives_its_span_to_its_tokens(backend):
    found = align(heard(1, 0, 3, 3, 3, 0, 2), [1, 4, 4, 4, 2], [0, 1, 1, 1, 2], backend, word_bypass=-1.0)
    assert found.wildcards == [WildcardSpan("word_bypass", 2, 5, 1, 3)]
    assert found.tokens[1:4] == [Span(u, 4, 2, 5, True) for u in (1, 2, 3)]


def test_word_starts_take_time_in_proportion_to_tokens():
    """100,000 of them, in words of four and a separator: as many as a recording of hours has."""
    words = torch.tensor([[w if u else -1 for w in range(20_000) for u in range(5)]])
    start = time.process_time()
    (found,) = _word_starts(words, torch.tensor([100_000]))
    assert time.process_time() - start < 1
    assert found[:7] == [0, 1, 1, 1, 1, 5, 6]
    assert found[-5:] == [99_995, 99_996, 99_996, 99_996, 99_996]


def test_extra_speech_is_a_self_loop(backend):
    found = align(heard(1, 0, 3, 3, 0, 2), [1, 2], backend=backend, self_loop=-1.0, symbols="-abcd")
    assert found.frames.tolist() == [1, 0, -1, -1, 0, 2]
    assert found.wildcards == [WildcardSpan("self_loop", 2, 4, 1, 0)]
    assert [t.bypassed for t in found.tokens] == [False, False]
    assert str(found) == f"{found.score:.2f}  a 0-1  ★ 2-4  b 5-6"


def test_one_line_of_text(backend):
    found = align(heard(1, 0, 3), [1, 2], backend=backend, bypass=0.0, symbols=["-", "a", "b", "c", "d"])
    assert str(found).endswith("  a 0-1  [b] 2-3")
    assert "\n" not in str(found)
    assert str(align(heard(1, 0, 3), [1, 2], backend=backend, bypass=0.0)).endswith("  1 0-1  [2] 2-3")


def test_ties_go_to_the_token_arc(backend):
    """With one non-blank output ★ costs what the token costs."""
    logits = torch.zeros(3, 1, 2, dtype=torch.float64)
    for weights in ({"bypass": 0.0}, {"word_bypass": 0.0}, {"bypass": 0.0, "word_bypass": 0.0, "self_loop": 0.0}):
        found = align(logits, [1], [0], backend, **weights)
        assert found.wildcards == []
        assert [t.bypassed for t in found.tokens] == [False]


def coarse_batch(kind: str, outputs: int) -> Batch:
    """Logits and weights of few values, so that many paths have the same score."""
    rng = np.random.default_rng(outputs)
    batch = draw_batch(rng, kind, size=12, frames=5, tokens=3, outputs=outputs)
    batch.input_lengths = [max(2, length) for length in batch.input_lengths]
    logits = rng.integers(0, 2, batch.logits.shape) * 1.0
    logits[:, :8] = rng.integers(0, 2, (5, 8, 1))  # says nothing
    logits[:, 4:8, batch.blank] += rng.choice([0.0, 0.3], (5, 4))  # all but blank are the same
    for family in KINDS[kind][0]:
        weight = getattr(batch.wildcards, family)
        weight.copy_(torch.from_numpy(rng.choice([0.0, 0.0, 0.0, -0.5, 0.3], weight.shape)))
    return batch.with_logits(torch.from_numpy(logits))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "CTC"])
def test_of_paths_that_tie_the_one_with_the_most_tokens_and_then_the_fewest_wildcards(kind, backend):
    ties = 0
    for outputs in (2, 3, 4):
        batch = coarse_batch(kind, outputs)
        found = wildcard_align(**batch.arguments(), backend=backend)
        specified = wildcard_align(**batch.arguments(), backend="reference")
        for n, alignment in enumerate(found):
            logits = batch.logits[: batch.input_lengths[n], n].numpy()
            given = batch.labels_of(n), batch.words_of(n), batch.weights_of(n), batch.wildcards.self_loop_at == "word"
            tied = best_sequences(logits, *given, batch.blank)
            assert torch.equal(alignment.frames, specified[n].frames)
            if tied:
                ties += len({tokens for tokens, _ in tied}) > 1
                tokens = sum(not token.bypassed for token in alignment.tokens)
                assert (tokens, -len(alignment.wildcards)) == max((tokens, -stars) for tokens, stars in tied)
    assert ties >= 8 or kind == "self-loop only"  # whose paths all have all tokens


def test_the_larger_of_parallel_arcs(backend):
    logits = heard(3, 3)
    for bypass, word, kind in [(-1.0, -2.0, "bypass"), (-2.0, -1.0, "word_bypass")]:
        found = align(logits, [1], [0], backend, bypass=bypass, word_bypass=word)
        assert [w.kind for w in found.wildcards] == [kind]


@pytest.mark.parametrize("kind", KINDS)
def test_spans_and_frames_tell_the_same_path(kind, backend):
    batch = draw_batch(np.random.default_rng(9), kind, size=30, frames=14, tokens=5, outputs=4, sharpness=3.0)
    losses = wildcard_ctc_loss(**batch.arguments(), reduction="none", backend=backend)
    for n, found in enumerate(wildcard_align(**batch.arguments(), backend=backend)):
        if losses[n] == math.inf:
            assert found.score == -math.inf
            continue
        assert found.score <= -losses[n] + 1e-9
        labels, words, length = batch.labels_of(n), batch.words_of(n), batch.input_lengths[n]
        assert len(found.frames) == length
        assert [t.index for t in found.tokens] == list(range(len(labels)))
        assert [t.label for t in found.tokens] == labels
        # the spans, drawn on blank paper, give the frames
        frames = [batch.blank] * length
        for token in found.tokens:
            assert token.start < token.end
            if not token.bypassed:
                frames[token.start : token.end] = [token.label] * (token.end - token.start)
        for star in found.wildcards:
            frames[star.start : star.end] = [-1] * (star.end - star.start)
        assert found.frames.tolist() == frames
        # and the arcs' weights plus the frames' scores give the score
        score = path_score(batch, n, found, word_spans(words))
        assert score == pytest.approx(found.score, abs=1e-9)
        assert collapses(found.frames.tolist(), batch.blank) == arcs_in_order(found)


def path_score(batch, n, found, spans) -> float:
    weights = batch.weights_of(n)
    scores = emissions(batch.logits[: len(found.frames), n].numpy(), batch.blank)
    total = sum(scores[t, label] for t, label in enumerate(found.frames.tolist()))  # −1 is the last column, ★
    for star in found.wildcards:
        if star.kind == "word_bypass":
            word = batch.words_of(n)[star.first]
            assert spans[word] == (star.first, star.last + 1)
            total += weights["word_bypass"][word]
        elif star.kind == "bypass":
            assert star.first == star.last
            total += weights["bypass"][star.first]
        else:
            assert star.last == star.first - 1
            total += weights["self_loop"][star.first]
    return float(total)


def collapses(frames: list[int], blank: int) -> list[int]:
    return [label for label, _ in itertools.groupby(frames) if label != blank]


def arcs_in_order(found) -> list[int]:
    arcs = [(t.start, t.label) for t in found.tokens if not t.bypassed] + [(w.start, -1) for w in found.wildcards]
    return [label for _, label in sorted(arcs)]
