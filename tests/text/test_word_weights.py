"""Weights of words reach the normalised words, whatever the units."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits, SentencePieceUnits
from wildctc.text.word_weights import follow_words

TEXT = "Well-known «cafés» — don't panic!"
WEIGHTS = [1.0, 2.0, 3.0, 4.0, 5.0]
normalizers = st.builds(Normalizer, st.booleans(), st.booleans(), st.booleans())


def test_parts_of_a_word_have_its_weight_and_words_of_punctuation_lose_theirs():
    assert follow_words(WEIGHTS, TEXT, Normalizer()) == WEIGHTS
    assert follow_words(WEIGHTS, TEXT, Normalizer(True, True)) == [1.0, 1.0, 2.0, 4.0, 5.0]


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30), normalizers)
def test_every_normalised_word_has_one_weight_that_a_written_word_had(text, normalizer):
    weights = [float(n) for n in range(len(text.split()))]
    try:
        found = follow_words(weights, text, normalizer)
    except ValueError:  # letters that are invisible only where they stand alone
        assert not all(normalizer(word) for word in text.split())
        return
    assert len(found) == len(normalizer(text).split())
    assert found == sorted(found)
    assert set(found) <= set(weights)


NORMALIZER = Normalizer(lower=True, strip_punctuation=True)
TEXTS = [TEXT, "panic known well cafés don't"]


@pytest.mark.parametrize("units", [CharUnits.train(TEXTS, NORMALIZER), SentencePieceUnits.train(TEXTS, NORMALIZER, 30)])
def test_a_word_has_the_same_weight_in_characters_and_in_pieces(units):
    labels = units.encode(TEXT)
    words, weights = units.words(labels), follow_words(WEIGHTS, TEXT, NORMALIZER)
    found = {
        units.decode(label for label, word in zip(labels, words, strict=True) if word == number): weight
        for number, weight in enumerate(weights)
    }
    assert found == {"well": 1.0, "known": 1.0, "cafés": 2.0, "don't": 4.0, "panic": 5.0}


def test_too_many_or_too_few_weights_are_refused():
    with pytest.raises(ValueError, match="1 weights for 2 words"):
        follow_words([1.0], "a b", Normalizer())
