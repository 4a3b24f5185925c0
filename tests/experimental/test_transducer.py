"""The transducer's lattice equals the list of all its paths."""

import math

import numpy as np
import pytest
import torch

from wildctc import Wildcards
from wildctc.experimental.transducer import wildcard_rnnt_loss

SHAPES = [(1, 0, 2), (2, 1, 3), (3, 3, 3), (2, 4, 4), (4, 2, 3)]  # T, U, C
FAMILIES = [(), ("bypass",), ("self_loop",), ("word_bypass",), ("bypass", "self_loop", "word_bypass")]


def all_paths(logits, targets, words, weights, at_words):
    """−log of the sum over all paths: each is walked from its first node to its last, on its own."""
    probabilities = torch.softmax(logits, -1).numpy()
    frames, positions, outputs = probabilities.shape
    tokens = positions - 1
    star = probabilities[..., 1:].sum(-1) / (outputs - 1)
    spans = {}  # start of a word → its end and number
    for u, word in enumerate(words):
        if word >= 0:
            start, _, _ = next((s for s in spans.values() if s[2] == word), (u, u, word))
            spans[start] = (start, u + 1, word)
    edges = {0, tokens, *spans, *(end for _, end, _ in spans.values())}
    todo, total = [(0, 0, 1.0)], 0.0
    while todo:
        t, u, mass = todo.pop()
        moves = [(t + 1, u, probabilities[t, u, 0])]
        if weights["self_loop"] is not None and (u in edges or not at_words):
            moves.append((t + 1, u, star[t, u] * math.exp(weights["self_loop"][u])))
        if u < tokens:
            moves.append((t, u + 1, probabilities[t, u, targets[u]]))
            if weights["bypass"] is not None:
                moves.append((t, u + 1, star[t, u] * math.exp(weights["bypass"][u])))
        if weights["word_bypass"] is not None and u in spans:
            _, end, word = spans[u]
            moves.append((t, end, star[t, u] * math.exp(weights["word_bypass"][word])))
        for next_t, next_u, probability in moves:
            if next_t < frames:
                todo.append((next_t, next_u, mass * probability))
            elif next_u == tokens:
                total += mass * probability
    return -math.log(total) if total else math.inf


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("families", FAMILIES, ids="+".join)
def test_the_loss_is_the_sum_over_all_paths(shape, families):
    frames, tokens, outputs = shape
    rng = np.random.default_rng([*shape, len(families)])
    for at_words in (False, True):
        size = 4
        lengths = rng.integers(1, frames + 1, size), rng.integers(0, tokens + 1, size)
        logits = torch.tensor(rng.normal(0, 2, (size, frames, tokens + 1, outputs)))
        targets = torch.tensor(rng.integers(1, outputs, (size, tokens)))
        words = torch.tensor([[u // 2 if u != 2 else -1 for u in range(tokens)]] * size).reshape(size, tokens)
        sizes = {"bypass": tokens, "self_loop": tokens + 1, "word_bypass": tokens // 2 + 1}
        weights = {
            name: torch.tensor(rng.normal(-1, 1, (size, wide))) if name in families else None
            for name, wide in sizes.items()
        }
        wildcards = Wildcards(**weights, self_loop_at="word" if at_words else "token")
        losses = wildcard_rnnt_loss(logits, targets, *lengths, reduction="none", wildcards=wildcards, words=words)
        for n in range(size):
            t, u = (int(x[n]) for x in lengths)
            rows = {name: None if w is None else w[n].tolist() for name, w in weights.items()}
            wanted = all_paths(logits[n, :t, : u + 1], targets[n, :u].tolist(), words[n, :u].tolist(), rows, at_words)
            assert float(losses[n]) == pytest.approx(wanted, abs=1e-10)


def test_gradients_are_those_of_finite_differences():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, 3, dtype=torch.float64, requires_grad=True)
    bypass = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    targets, words = torch.tensor([[1, 2, 2], [2, 1, 1]]), torch.tensor([[0, 0, 1], [0, 1, 1]])

    def loss(x, weight):
        wildcards = Wildcards(bypass=weight, self_loop=-1.0, word_bypass=-2.0)
        return wildcard_rnnt_loss(x, targets, [3, 2], [3, 2], wildcards=wildcards, words=words)

    assert torch.autograd.gradcheck(loss, (logits, bypass))


def test_a_wrong_token_costs_less_with_a_bypass():
    heard = torch.full((1, 3, 3, 4), -4.0, dtype=torch.float64)
    heard[..., 0] = 0.0
    heard[0, 0, 0, 1] = heard[0, 1, 1, 2] = 4.0
    right, wrong = torch.tensor([[1, 2]]), torch.tensor([[1, 3]])
    plain = [float(wildcard_rnnt_loss(heard, t, [3], [2])) for t in (right, wrong)]
    tolerant = [float(wildcard_rnnt_loss(heard, t, [3], [2], wildcards=Wildcards(bypass=0.0))) for t in (right, wrong)]
    assert plain[1] - plain[0] > 3 * (tolerant[1] - tolerant[0]) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_lengths": [0]}, "input_lengths must be 1 numbers from 1 to 2"),
        ({"target_lengths": [2]}, "target_lengths must be 1 numbers from 0 to 1"),
        ({"targets": torch.tensor([[0]])}, "utterance 0: label 0 is 0"),
        ({"targets": torch.tensor([[1, 1]])}, r"targets must be \(N, U\) = \(1, 1\)"),
        ({"blank": 3}, "blank is 3"),
        ({"wildcards": Wildcards(word_bypass=-1.0)}, "word_bypass needs words"),
        ({"reduction": "max"}, "reduction must be"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = {
        "logits": torch.zeros(1, 2, 2, 3), "targets": torch.tensor([[1]]), "input_lengths": [2], "target_lengths": [1],
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        wildcard_rnnt_loss(**arguments | change)
