"""`probe_logits`: its numbers, its times, and what was heard at each token and word."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc import Wildcards, wildcard_posteriors, word_ids
from wildctc.probe.graphs import forced_misfits, probe_logits

TOKENS = "_ abcdef"


def batch(seed: int = 0, size: int = 3, frames: int = 30, spread: float = 3.0):
    """Random logits with random transcripts of words, and their lengths."""
    generator = torch.Generator().manual_seed(seed)
    texts = ["ab cd", "fade", "a be cab ed"][:size]
    targets = torch.cat([torch.tensor([TOKENS.index(c) for c in text]) for text in texts])
    logits = spread * torch.randn(frames, size, len(TOKENS), generator=generator)
    return texts, logits, targets, [frames, frames - 5, frames - 2][:size], [len(text) for text in texts]


@pytest.mark.parametrize("self_loop", [0.0, -2.0, None])
def test_tokens_are_probed_on_the_graph_of_tokens_and_words_on_that_of_words(self_loop):
    texts, *given = batch()
    found = probe_logits(*given, tokens=TOKENS, self_loop=self_loop)
    words = torch.tensor([w for text in texts for w in word_ids(text, space=" ")])
    by_token = wildcard_posteriors(*given, wildcards=Wildcards(bypass=0.0, self_loop=self_loop))
    graph = Wildcards(word_bypass=0.0, self_loop=self_loop, self_loop_at="word")
    by_word = wildcard_posteriors(*given, wildcards=graph, words=words)
    for n, (text, utterance) in enumerate(zip(texts, found, strict=True)):
        assert utterance.text == text
        assert [t.bypass for t in utterance.tokens] == pytest.approx(by_token.bypass[n, : len(text)].tolist())
        assert [w.bypass for w in utterance.words] == pytest.approx(
            by_word.word_bypass[n, : len(text.split())].tolist()
        )
        gaps = [0.0] * (len(text) + 1) if self_loop is None else by_token.self_loop[n, : len(text) + 1].tolist()
        assert utterance.gaps == pytest.approx(gaps)


def test_padding_and_neighbours_change_nothing():
    _, logits, targets, frames, lengths = batch()
    together = probe_logits(logits, targets, frames, lengths, tokens=TOKENS)
    for n, part in enumerate(targets.split(lengths)):
        [alone] = probe_logits(logits[: frames[n], n], part, [frames[n]], [lengths[n]], tokens=TOKENS)
        assert vars(alone) | {"id": str(n)} == vars(together[n])
    padded = torch.nn.utils.rnn.pad_sequence(targets.split(lengths), batch_first=True, padding_value=7)
    assert probe_logits(logits, padded, frames, lengths, tokens=TOKENS) == together


@settings(deadline=None, max_examples=60)
@given(
    text=st.text(" abcdef", max_size=12).map(lambda text: " ".join(text.split())),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.5, 3.0, 20.0]),
)
def test_tokens_words_gaps_and_times_of_an_utterance_agree(text, seed, spread):
    logits = spread * torch.randn(24, len(TOKENS), generator=torch.Generator().manual_seed(seed))
    targets = torch.tensor([TOKENS.index(c) for c in text], dtype=torch.int64)
    [found] = probe_logits(logits, targets, [24], [len(text)], tokens=TOKENS, frame_rate=10.0)
    assert [t.text for t in found.tokens] == list(text)
    assert [w.text for w in found.words] == text.split()
    heard = [part for k, t in enumerate(found.tokens) for part in (found.between[k], t.heard)]
    assert "".join([*heard, found.between[-1]]) == found.heard == " ".join(found.heard.split())
    assert all(0 <= unit.bypass <= 1 for unit in [*found.tokens, *found.words])
    assert len(found.gaps) == len(found.between) == len(text) + 1
    times = [time for t in found.tokens for time in (t.start, t.end)]
    assert times == sorted(times)
    assert all(-1e-9 <= time <= 2.4 + 1e-9 for time in times)
    for word in found.words:
        assert text[word.begin : word.stop] == word.text
        assert found.tokens[word.last].stop == word.stop
        assert found.tokens[word.first].begin == word.begin - (found.tokens[word.first].text == " ")
        assert not word.heard or f" {word.heard} " in f" {found.heard} "


def test_pieces_are_written_with_spaces_except_before_the_first_word():
    pieces = ["<blank>", "▁he", "llo", "▁wor", "ld"]
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor([1, 2, 0, 3, 4]), 5).float()
    [found] = probe_logits(logits, torch.tensor([1, 2, 3, 4]), [5], [4], tokens=pieces)
    assert [(t.text, t.begin, t.stop) for t in found.tokens] == [
        ("he", 0, 2), ("llo", 2, 5), (" wor", 5, 9), ("ld", 9, 11),
    ]  # fmt: skip
    assert [(w.text, w.begin, w.stop, w.first, w.last, w.heard) for w in found.words] == [
        ("hello", 0, 5, 0, 1, "hello"), ("world", 6, 11, 2, 3, "world"),
    ]  # fmt: skip


def test_letters_beside_a_changed_token_are_heard_as_part_of_it():
    def heard(said, written):
        frames = torch.tensor([TOKENS.index(c) for c in said])
        logits = 12.0 * torch.nn.functional.one_hot(frames, len(TOKENS)).float()
        targets = torch.tensor([TOKENS.index(c) for c in written])
        [found] = probe_logits(logits, targets, [len(said)], [len(written)], tokens=TOKENS)
        return [t.heard for t in found.tokens], found.between

    assert heard("f_a_d_e_", "fade") == (list("fade"), [""] * 5)
    assert heard("f_e_d_e_", "fade") == (list("fede"), [""] * 5)
    assert heard("f_c_e_d_e_", "fade") == (["f", "ce", "d", "e"], [""] * 5)
    assert heard("f_a_b_d_e_", "fade") == (list("fade"), ["", "", "b", "", ""])
    assert heard("f_a_e_ _b", "fade b")[0] == ["f", "a", "", "e", " ", "b"]


def test_an_utterance_without_a_path_gives_none():
    _, logits, targets, frames, lengths = batch()
    found = probe_logits(logits, targets, [frames[0], 3, frames[2]], lengths, tokens=TOKENS)
    assert [utterance is None for utterance in found] == [False, True, False]


def test_a_misfit_is_the_mean_of_what_a_forced_alignment_pays_for_a_token():
    p = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.6, 0.3], [0.9, 0.05, 0.05], [0.5, 0.25, 0.25], [0.9, 0.05, 0.05]])
    logits = torch.stack([p.log(), p.log()], 1)
    found = forced_misfits(logits, torch.tensor([[1, 2], [1, 1]]), [5, 2], [2, 2])
    first = -(math.log(0.8) + math.log(0.6)) / 2
    assert found[0] == pytest.approx([first, -math.log(0.25)], abs=1e-6)
    assert found[1] == []  # two equal tokens need three frames
