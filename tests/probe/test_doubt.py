"""The doubt of a word: all evidence together, from the probe file as a whole."""

import copy
import json

import pytest
from support.probes import SCRIPTS, probed, write

from wildctc.probe.context import WordContext
from wildctc.probe.doubt import COEFFICIENTS, VERSION, WITHOUT_ALIGNMENT, add_doubts, evidence, score_words
from wildctc.probe.issues import issues_of
from wildctc.probe.records import read_probe

BANK = ["welcome to harper valley national bank", "this is harper valley national bank", "harper valley bank"] * 5


def doubts(utterance, texts):
    add_doubts([utterance], WordContext([*texts, utterance.text]))
    return [word.doubt for word in utterance.words]


def test_a_word_that_was_heard_otherwise_is_doubted_most():
    found = doubts(probed("a", "this is happy valley national bank", {2: "harper"}), BANK)
    assert found[2] > 0.5 > 0.1 > max(found[:2] + found[3:])


def test_a_word_that_does_not_fit_its_neighbours_is_doubted_more_than_one_that_does():
    wrong = doubts(probed("a", "this is happy valley national bank"), BANK)
    right = doubts(probed("a", "this is harper valley national bank"), BANK)
    assert wrong[2] > 2 * right[2]


def test_a_transcript_does_not_support_itself():
    alone = WordContext(["happy valley"]).log_probabilities("happy valley")
    unseen = WordContext([]).log_probabilities("happy valley")
    assert alone == unseen
    twice = WordContext(["happy valley"] * 2).log_probabilities("happy valley")
    assert all(a > b for a, b in zip(twice, alone, strict=True))


def test_counts_are_the_same_after_a_comparison():
    context = WordContext(BANK)
    first = context.compare(BANK[0], [["a"]] * 6)
    assert context.compare(BANK[0], [["a"]] * 6) == first


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_a_doubt_for_each_word(name):
    utterance = copy.deepcopy(SCRIPTS[name])
    found = doubts(utterance, [])
    assert all(0 < doubt < 1 for doubt in found)
    assert all(set(kinds) == set(WITHOUT_ALIGNMENT) for kinds in evidence(utterance, WordContext([])))


def aligned(utterance, misfits=None):
    for i, token in enumerate(utterance.tokens):
        token.misfit = (misfits or {}).get(i, 0.1)
    return utterance


def test_a_word_that_fits_its_frames_badly_is_doubted_more():
    text = "this is harper valley"
    good, bad = (doubts(aligned(probed("a", text), m), BANK) for m in ({}, {9: 8.0}))
    assert bad[2] > 3 * good[2]
    assert bad[:2] + bad[3:] == good[:2] + good[3:]


def test_an_aligned_utterance_has_all_kinds_of_evidence_even_if_it_was_hardly_heard():
    for utterance in (aligned(probed("a", "harper valley")), aligned(probed("b", "harper valley", {0: "", 1: ""}))):
        assert all(set(kinds) == set(COEFFICIENTS) for kinds in evidence(utterance, WordContext([])))


def test_a_probe_file_gets_doubts_once_and_keeps_what_was_skipped(tmp_path):
    path = write(tmp_path, [probed(f"u{i}", text, {2: "happy"} if i == 0 else {}) for i, text in enumerate(BANK)])
    with path.open("a") as file:
        file.write(json.dumps({"id": "lost", "left_out": "no such file"}) + "\n")
    score_words(path)
    settings, utterances = read_probe(path)
    assert settings["doubt"] == VERSION
    assert settings["left_out"] == {"lost": "no such file"}
    assert all(word.doubt is not None for u in utterances for word in u.words)
    once = path.read_bytes()
    score_words(path)
    assert path.read_bytes() == once


def test_an_issue_has_the_doubt_of_its_worst_word(tmp_path):
    path = write(tmp_path, [probed("a", "this is happy valley", {2: "harper"}), probed("b", "harper valley")])
    score_words(path)
    first = read_probe(path)[1][0]
    [issue] = issues_of(first)
    assert issue.score == first.words[2].doubt


def test_an_empty_transcript_has_no_words_to_doubt():
    assert doubts(probed("a", ""), []) == []
