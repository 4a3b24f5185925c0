"""Error counts against jiwer, and the score of a test set."""

import json
import logging
import sys

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hyp_files import decoded

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.scoring.error_rates import Errors, cer, levenshtein, score, wer
from wildctc.scoring.hypotheses import Decoded
from wildctc.text.normalisation import Normalizer

sentences = st.lists(st.sampled_from(["a", "b", "ab", "ba", "c"]), max_size=8).map(" ".join)


# ---------------------------------------------------------------------------------------------------------- counting


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5))
def test_rates_are_those_of_jiwer(pairs):
    references, hypotheses = map(list, zip(*pairs, strict=True))
    words, characters = wer(references, hypotheses), cer(references, hypotheses)
    assert words.rate == pytest.approx(jiwer.wer(references, hypotheses))
    assert characters.rate == pytest.approx(jiwer.cer(references, hypotheses))
    assert words.reference == sum(len(r.split()) for r in references)
    # Whatever the tie-break, insertions less deletions is the difference in length.
    assert words.insertions - words.deletions == sum(len(h.split()) - len(r.split()) for r, h in pairs)


def test_an_empty_reference_counts_insertions_and_no_words():
    assert wer([""], [""]).rate == 0.0
    assert wer([""], ["a b"]) == Errors(insertions=2)
    assert wer([""], ["a b"]).rate == 2.0  # no words to divide by: divided by one, as jiwer does
    assert wer(["", "x y z w"], ["a", "x y z w"]).rate == 0.25
    assert cer([""], ["ab"]).rate == 2.0


def test_the_nearest_of_several_references_counts():
    assert wer([["a b c", "a b d", "x"]], ["a b d"]).total == 0
    assert wer(["p q", ["a b c d", "a b"]], ["p q", "a b c"]).reference == 6  # as near as each other: the first
    assert wer([["b b", "a a a"]], ["a a c"]) == Errors(substitutions=1, reference=3)
    assert wer([["xaz", "abz"]], ["abc"]) == Errors(substitutions=1, reference=1)
    assert cer([["xaz", "abz"]], ["abc"]) == Errors(substitutions=1, reference=3)  # same words: fewer characters


def test_texts_are_normalised_before_they_are_compared():
    assert wer(["cafe\u0301  au lait"], [" café au lait"]).total == 0
    assert wer(["Hello, World!"], ["hello world"]).total == 2
    assert wer(["Hello, World!"], ["hello world"], Normalizer(lower=True, strip_punctuation=True)).total == 0


def test_characters_are_code_points_and_the_space_is_one():
    assert cer(["ab cd"], ["abcd"]) == Errors(deletions=1, reference=5)
    assert cer(["हिंदी"], ["हिंद"]) == Errors(deletions=1, reference=5)


def test_missing_rapidfuzz_names_the_extra(monkeypatch):
    levenshtein.cache_clear()
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(MissingExtra, match=r"rapidfuzz.*extra train"):
        wer(["a"], ["b"])


# ----------------------------------------------------------------------------------------------------------- scoring


def test_score_sums_utterances_and_its_json_says_the_same():
    result = score(decoded("a b c d", "a x c", "a b c d e"))
    assert result.words == Errors(substitutions=1, insertions=1, deletions=1, reference=12)
    assert result.wer == 0.25
    fields = json.loads(result.to_json())
    assert fields["wer"] == 0.25
    assert fields["cer"] == result.cer == result.characters.total / 21
    assert fields["words"]["errors"] == 3
    assert [u["words"]["errors"] for u in fields["utterances"]] == [0, 2, 1]
    assert "25.00%" in str(result)
    assert "3 utterances, 2 of them (66.7%) with errors" in str(result)


def test_given_references_replace_those_of_the_hypotheses():
    assert score(decoded("a b", "c"), {"u0": ["a b"], "u1": ["x", "c"]}).wer == 0.0


@pytest.mark.parametrize(
    ("items", "references", "message"),
    [
        ([], None, "nothing to score"),
        ([Decoded("u", "a", ("a",)), Decoded("u", "b", ("a",))], None, "utterance u decoded more than once"),
        ([Decoded(f"u{i}", "a") for i in range(5)], None, "no reference for utterances u0, u1, u2 and 2 more"),
        ([Decoded("u", "a", ("a",))], {"v": ["a"]}, "no reference for utterance u"),
    ],
)
def test_an_utterance_that_cannot_be_scored_is_named(items, references, message):
    with pytest.raises(WildCTCError, match=message):
        score(items, references)


def test_references_without_a_hypothesis_are_skipped_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("wildctc"), "propagate", True)
    assert score([Decoded("u", "a")], {"u": ["a"], "v": ["b"]}).words.reference == 1
    assert "not counted, since there is no hypothesis: utterance v" in caplog.text
