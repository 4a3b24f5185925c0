"""Normalisation loses nothing that belongs to a word."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.errors import WildCTCError
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import BLANK, CharUnits

PLAIN = Normalizer()
STRIP = Normalizer(lower=True, strip_punctuation=True)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("e\u0301te\u0301", "été"),  # composed
        (" a\t b\u00a0\u3000c\n", "a b c"),
        ("MiXed, Case!", "MiXed, Case!"),
        ("", ""),
        ("\ufeffa\u200bb\u00ad \u202bc\u202c\u2060\u200e\x00\x7f", "ab c"),
        ("e\u200b\u0301", "é"),  # composed over what stood between
    ],
)
def test_texts_are_always_composed_with_single_spaces_and_nothing_invisible(text, normalised):
    assert PLAIN(text) == normalised


def test_invisible_characters_stay_on_request():
    text = "\ufeffa\u200bb \u202bc\u202c"
    assert Normalizer(keep_invisible=True)(text) == text
    assert "\u200b" in CharUnits.train([text], Normalizer(keep_invisible=True)).tokens
    assert CharUnits.train([text], PLAIN).tokens == [BLANK, " ", "a", "b", "c"]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "text", ["\u200b", " \u200c \u200d", "\u202e\u202c\ufeff", "\u3164\ufe0f\u2800", "\x00", "\u200f\u034f"]
)
def test_a_text_without_visible_characters_is_empty(text, keep):
    assert Normalizer(keep_invisible=keep)(text) == ""


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("می‌خواهم", "می‌خواهم"),  # ZWNJ inside a Persian word
        ("अवन् क्‍ष", "अवन् क्‍ष"),  # ZWJ changes the conjunct
        ("അവന്‍", "അവന്‍"),  # an old-style chillu ends in ZWJ
        ("ශ්‍රී", "ශ්‍රී"),
        ("می‌‌خواهم", "می‌خواهم"),  # a second one does nothing
        ("\u200cمی \u200dx", "می x"),  # nor does one before a word
        ("Auf\u200clage e\u0301\u200dx", "Auflage éx"),  # nor one in a script that does not join
    ],
)
def test_joiners_stay_where_a_script_needs_them(text, normalised):
    assert PLAIN(text) == unicodedata.normalize("NFC", normalised)
    assert Normalizer(strip_punctuation=True)(text) == unicodedata.normalize("NFC", normalised)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("Don’t 'quote' the dogs' O’Neill rock'n'roll", "don't quote the dogs o'neill rock'n'roll"),
        ("well-known—fact_name and/or", "well known fact name and or"),
        ("U.S.A. has 10,000 «things» (3.5%)", "usa has 10000 things 35"),
        ("$5 + 3 = 8", "$5 + 3 = 8"),  # symbols are read aloud, punctuation is not
        ("वह गया।मैं आया॥", "वह गया मैं आया"),  # a danda without a space still parts words
        ("क्‍ष क्ष", "क्‍ष क्ष"),  # ZWJ changes the conjunct
        ("അവന്‍", "അവന്‍"),  # an old-style chillu ends in ZWJ
        ("می‌خواهم؟بله", "می‌خواهم بله"),  # ZWNJ inside a Persian word
        ("السَّلامُ، عَلَيْكُم", "السَّلامُ عَلَيْكُم"),  # vowel marks stay
        ("Ինչպե՞ս ես։", "ինչպես ես"),  # the Armenian question mark stands inside its word
        ("\u200fשלום\u200e \ufeffa\u00adb", "שלום ab"),  # marks of direction, byte order and soft hyphens are invisible
        ("நான் தமிழ்!", "நான் தமிழ்"),
        ("ሰላም፡ዓለም።", "ሰላም ዓለም"),
        ("ΟΔΟΣ", "οδο\u03c2"),  # the final sigma
        ("... !!", ""),
    ],
)
def test_stripping_punctuation_keeps_what_belongs_to_words(text, normalised):
    assert STRIP(text) == unicodedata.normalize("NFC", normalised)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.one_of(st.text(), st.text("aİéک\u0301\u064fक्\u200b\u200c\u200d.'’- ")),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_normalising_twice_changes_nothing(text, lower, strip, keep):
    normalizer = Normalizer(lower, strip, keep)
    once = normalizer(text)
    assert normalizer(once) == once
    assert unicodedata.is_normalized("NFC", once)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text())
def test_stripping_never_removes_letters_marks_or_digits(text):
    def kept(text):
        # Sorted: marks that come together over a removed character are put in canonical order.
        return sorted(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c)[0] in "LMN")

    assert kept(Normalizer(strip_punctuation=True)(text)) == kept(text)


def test_normalizer_survives_its_dictionary_and_refuses_unknown_fields():
    keep = Normalizer(keep_invisible=True)
    assert Normalizer.from_dict(STRIP.to_dict()) == STRIP
    assert Normalizer.from_dict(keep.to_dict()) == keep
    assert STRIP.to_dict() == {"lower": True, "strip_punctuation": True}  # as in models of an earlier version
    with pytest.raises(WildCTCError, match="upper"):
        Normalizer.from_dict({"upper": True})
