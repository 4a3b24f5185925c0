"""The text of a recording as it comes: paragraphs, subtitles, punctuation, characters that the model cannot write."""

import pytest

from wildctc.errors import WildCTCError
from wildctc.longform.written import as_spoken, parse_text, read_text, romanizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

SRT = """1
00:00:01,000 --> 00:00:02,500
<i>Good</i> night,
Ann.

2
00:00:03,000 --> 00:00:04,000
{\\an8}Bye
"""
VTT = """WEBVTT

NOTE made by hand

cue-1
00:01.000 --> 00:02.000 align:start
<v Ann>A &lt; b

00:03.000 --> 00:04.000
c
"""


def texts(content):
    return [word.text for word in parse_text(content).words]


def test_subtitles_give_their_text_only():
    srt = parse_text(SRT.replace("\n", "\r\n"))
    assert srt.subtitles
    assert [word.text for word in srt.words] == ["Good", "night,", "Ann.", "Bye"]
    assert [word.block for word in srt.words] == [0, 0, 0, 1]
    assert texts(VTT) == ["A", "<", "b", "c"]


def test_paragraphs_and_sentences():
    found = parse_text("One two.\nThree\nfour! “Five?” six\n\n\nSeven 3.5 eight")
    assert not found.subtitles
    assert [w.text for w in found.words if w.ends_sentence] == ["two.", "four!", "“Five?”", "six", "eight"]
    assert sorted({w.block for w in found.words}) == [0, 1]


def test_without_punctuation_a_line_is_a_sentence():
    assert [w.text for w in parse_text("a b\nc d\n").words if w.ends_sentence] == ["b", "d"]


def test_files_that_are_no_text_are_refused(tmp_path):
    for name, content, reason in (("empty", b" \n\n", "no text"), ("latin", "é".encode("latin-1"), "not UTF-8")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WildCTCError, match=reason):
            read_text(tmp_path / name)
    with pytest.raises(WildCTCError, match="cannot be read"):
        read_text(tmp_path / "nowhere")


def test_case_punctuation_and_unknown_characters_are_left_to_the_output():
    units = CharUnits(["<blank>", " ", *"abcdef'"], Normalizer(lower=True, strip_punctuation=True))
    text = parse_text("Bad—Cafe, — 1984 “D'ee” xyz fxa.")
    spoken = as_spoken(text, units)
    assert spoken.texts == ["bad", "cafe", "d'ee", "fa"]
    assert [text.words[i].text for i in spoken.written] == ["Bad—Cafe,", "Bad—Cafe,", "“D'ee”", "fxa."]
    assert [text.words[i].text for i in spoken.unwritable] == ["1984", "xyz"]
    assert max(spoken.words) + 1 == len(spoken.texts)


def test_capitals_accents_and_punctuation_that_the_model_lacks():
    units = CharUnits(["<blank>", " ", *"abcdef"], Normalizer())
    assert as_spoken(parse_text("Bád—CAFE, fed."), units).texts == ["bad", "cafe", "fed"]


@pytest.mark.slow  # uroman reads its tables
def test_another_script_is_an_error_and_can_be_romanised():
    units = CharUnits(["<blank>", " ", *"abcdefghijklmnopqrstuvwxyz"], Normalizer(lower=True, strip_punctuation=True))
    text = parse_text("Привет, мир!")
    with pytest.raises(WildCTCError, match="another script"):
        as_spoken(text, units)
    pytest.importorskip("uroman")
    assert as_spoken(text, units, romanizer()).texts == ["privet", "mir"]
