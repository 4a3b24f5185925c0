"""What `find_label_issues` calls an issue, and how it reads to a person."""

import subprocess
import sys

import pytest
import torch

import wildctc
from wildctc.probe.graphs import probe_logits
from wildctc.probe.issues import issues_of, suspicion

TOKENS = "_ adehlorwx"  # "_" is blank


def ids(text: str) -> torch.Tensor:
    return torch.tensor([TOKENS.index(c) for c in text], dtype=torch.int64)


def sharp(frames: str, height: float = 12.0) -> torch.Tensor:
    """(T, C) logits of a model that is sure of each frame."""
    return height * torch.nn.functional.one_hot(ids(frames), len(TOKENS)).float()


def find(frames: str, transcript: str, **options):
    given = sharp(frames).unsqueeze(1), ids(transcript)[None], [len(frames)], [len(transcript)]
    return wildctc.find_label_issues(*given, tokens=TOKENS, **options)


HELLO = "h_e_l_l__oo_ _w_o_r__l_dd"


@pytest.mark.parametrize(
    ("said", "written", "kind", "at", "heard"),
    [
        ("h_aa_l_l__oo_ _w_o_r__l_dd", "hello world", "changed", "hello", "hallo"),
        ("h_e_l_l__oo_ _w_o_x_x_l_dd", "hello world", "changed", "world", "woxxld"),
        ("h_e_l_l__oo_ _w_o_r_l_d_d", "hello world", "changed", "world", "worldd"),
        ("h_e_l_l__oo_ _w_o_l_d_", "hello world", "changed", "world", "wold"),
        ("h_e_l_l__oo_ _w_o_ _r__l_dd", "hello world", "changed", "world", "wo rld"),
        ("h_e_l_l__oow_o_r__l_dd", "hello world", "changed", "hello world", "helloworld"),
        (HELLO, "hello a world", "extra", "a", ""),
        (HELLO, "hello world a", "extra", "a", ""),
        ("h_e_l_l__oo_ _a_x_a_ _w_o_r__l_dd", "hello world", "missing", "", "axa"),
        (HELLO, "", "missing", "", "hello world"),
    ],
)
def test_each_error_is_one_issue_that_says_what_was_heard(said, written, kind, at, heard):
    [issue] = find(said, written)
    assert (issue.kind, issue.written, issue.heard) == (kind, at, heard)
    assert written[issue.begin : issue.stop] == at
    assert 0.5 <= issue.score <= 1


def test_missing_words_are_placed_before_the_word_that_follows_them():
    said = "a_x_ _h_e_l_l__oo_ _d_a_ _w_o_r__l_dd_ _x_e"
    first, middle, last = sorted(find(said, "hello world", frame_rate=10.0), key=lambda issue: issue.begin)
    assert [(i.heard, i.begin, i.stop, i.word) for i in (first, middle, last)] == [
        ("ax", 0, 0, 0), ("da", 6, 6, 1), ("xe", 11, 11, 2),
    ]  # fmt: skip
    assert first.start == 0
    assert said.index("d_a") / 10 >= middle.start
    assert said.index("d_a_") / 10 + 0.3 <= middle.end
    assert last.end == pytest.approx(len(said) / 10)


def test_a_right_transcript_has_no_issue():
    assert find(HELLO, "hello world") == []


def test_the_same_word_twice_is_not_taken_for_words_run_together():
    [issue] = find("a_d_ _a_d_ _x_e", "ad ad ae")
    assert (issue.written, issue.heard, issue.word) == ("ae", "xe", 2)


def test_issues_are_ranked_over_all_utterances_and_named_by_their_ids():
    said = ["h_aa_l_l__oo_ _w_o_r__l_dd", HELLO + "_", HELLO + "_"]
    logits = torch.stack([sharp(s, height) for s, height in zip(said, (12.0, 12.0, 4.0), strict=True)], 1)
    targets = ["hello world", "hello world", "hallo wxxld"]
    found = wildctc.find_label_issues(
        logits,
        torch.cat([ids(t) for t in targets]),
        [len(s) for s in said],
        [len(t) for t in targets],
        tokens=TOKENS,
        ids=["first", "second", "third"],
        least=0.1,
    )
    assert [i.score for i in found] == sorted((i.score for i in found), reverse=True)
    assert next(i for i in found if i.utterance == "first").heard == "hallo"
    assert not [i for i in found if i.utterance == "second"]
    assert {i.written for i in found if i.utterance == "third" and i.score > 0.5} == {"hallo", "wxxld"}


def test_pieces_and_characters_give_the_same_words():
    pieces = ["<blank>", "▁he", "llo", "▁wor", "ld", "▁wa"]
    said = torch.tensor([1, 0, 2, 0, 5, 0, 4, 0])
    logits = 12.0 * torch.nn.functional.one_hot(said, len(pieces)).float().unsqueeze(1)
    [issue] = wildctc.find_label_issues(logits, torch.tensor([[1, 2, 3, 4]]), [8], [4], tokens=pieces)
    assert (issue.kind, issue.written, issue.heard, issue.begin, issue.stop, issue.word) == (
        "changed", "world", "wald", 6, 11, 1,
    )  # fmt: skip


def test_a_bar_is_the_space_of_vocabularies_that_have_it():
    tokens = TOKENS.replace(" ", "|")
    [issue] = wildctc.find_label_issues(
        sharp("h_aa_l_l__oo_ _w_o_r__l_dd"), ids("hello world"), [26], [11], tokens=tokens
    )
    assert (issue.written, issue.heard) == ("hello", "hallo")


def test_a_transcript_too_long_for_its_frames_has_no_issues_but_is_infeasible():
    assert find("h_e", "hello world") == []
    assert wildctc.infeasible(ids("hello world"), [3], [11])


def test_wrong_number_of_ids_is_an_error():
    with pytest.raises(ValueError, match="each of the 1 utterances, got 2"):
        find(HELLO, "hello world", ids=["a", "b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": TOKENS[:-1]}, "tokens must name each of the 11 outputs, got 10"),
        ({"targets": torch.tensor([[1, 11]])}, "utterance 0: target 1 is 11, must be between 0 and C - 1 = 10"),
        ({"targets": torch.tensor([1, 2, 3])}, "target_lengths add up to 2, but there are 3 concatenated targets"),
        ({"frame_rate": 0.0}, r"frame_rate must be greater than 0, got 0\.0"),
    ],
)
def test_what_cannot_be_named_is_an_error(options, message):
    given = {"targets": torch.tensor([[2, 3]]), "tokens": TOKENS} | options
    with pytest.raises(ValueError, match=message):
        wildctc.find_label_issues(sharp(HELLO).unsqueeze(1), given.pop("targets"), [len(HELLO)], [2], **given)


def test_a_tokenizer_may_have_more_tokens_than_the_model_has_outputs():
    given = sharp(HELLO), ids("hello world"), [len(HELLO)], [11]
    assert wildctc.find_label_issues(*given, tokens=[*TOKENS, "<s>"]) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_diverged_does_not_make_all_transcripts_right(value):
    logits = torch.stack([sharp(HELLO)] * 2, 1)
    logits[20, 1, 3] = value
    given = torch.stack([ids("hello world")] * 2), [len(HELLO)] * 2, [11, 11]
    with pytest.raises(ValueError, match=r"utterance b: its logits are not numbers"):
        wildctc.find_label_issues(logits, *given, tokens=TOKENS, ids=["a", "b"])
    shorter = given[0], [len(HELLO), 20], [11, 11]  # what lies beyond the utterance does not count
    wildctc.find_label_issues(logits, *shorter, tokens=TOKENS)


def test_suspicion_ranks_a_worse_transcript_higher():
    def utterance(written):
        [found] = probe_logits(sharp(HELLO), ids(written), [len(HELLO)], [len(written)], tokens=TOKENS)
        return found

    right, wrong, worse = (utterance(text) for text in ("hello world", "hallo world", "hallo wxxld a"))
    assert suspicion(right) < suspicion(wrong) < suspicion(worse)
    assert [i.score for i in issues_of(worse)] == sorted((i.score for i in issues_of(worse)), reverse=True)


def test_it_needs_torch_and_numpy_only():
    code = """
import sys
for name in ("soundfile", "rapidfuzz", "yaml", "safetensors", "sentencepiece", "flashlight", "matplotlib", "regex"):
    sys.modules[name] = None
import torch, wildctc
wildctc.find_label_issues(torch.randn(9, 1, 4), torch.tensor([[1, 2]]), [9], [2], tokens="_ ab")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input_lengths": [9.7]}, ValueError, "input_lengths must be integers, got torch.float32"),
        ({"target_lengths": torch.tensor([5.0])}, ValueError, "target_lengths must be integers, got torch.float32"),
        (
            {"targets": ids("hello")[None].float()},
            ValueError,
            "targets must be a tensor of integers, got torch.float32",
        ),
        ({"targets": [[1, 2, 3, 4, 5]]}, ValueError, "targets must be a tensor of integers, got <class 'list'>"),
        ({"tokens": dict(enumerate(TOKENS))}, TypeError, "tokens must be a list or a string"),
        ({"logits": sharp("h_e_l_l__oo").unsqueeze(1).numpy()}, TypeError, "logits must be a tensor, got ndarray"),
    ],
)
def test_what_cannot_be_right_is_refused_and_not_rounded(change, error, message):
    given = {"logits": sharp("h_e_l_l__oo").unsqueeze(1), "targets": ids("hello")[None], "tokens": TOKENS}
    with pytest.raises(error, match=message):
        wildctc.find_label_issues(**{**given, "input_lengths": [11], "target_lengths": [5], **change})


def test_a_frame_without_any_possible_output_is_refused():
    logits = sharp("h_e_l_l__oo").unsqueeze(1)
    logits[3] = -torch.inf
    with pytest.raises(ValueError, match="utterance 0: its logits are not numbers"):
        wildctc.find_label_issues(logits, ids("hello")[None], [11], [5], tokens=TOKENS)
