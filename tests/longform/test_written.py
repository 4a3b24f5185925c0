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


def test_subtitles_without_empty_lines_between_them_and_with_empty_lines_inside():
    close = "1\n00:00:01 --> 00:00:02\nOne\n2\n0:00:03,5 --> 0:00:04,5  X1:40\n1984\n\nthree\n\n3\n"
    found = parse_text(close + "00:00:05,0 --> 00:00:06,0\nx")
    assert [(word.text, word.block) for word in found.words] == [("One", 0), ("1984", 1), ("three", 1), ("x", 2)]
    assert texts("WEBVTT\n\n00:01.000 --> 00:02.000\na\n\nSTYLE\n::cue {}\n\n2\n00:03.000 --> 00:04.000\nb") == [
        "a",
        "b",
    ]


def test_subtitles_that_overlap_are_ordered_by_their_beginning():
    out_of_order = "1\n00:00:05,000 --> 00:00:09,000\nlater\n\n2\n00:00:01,000 --> 00:00:07,000\nfirst\n"
    assert [(word.text, word.block) for word in parse_text(out_of_order).words] == [("first", 0), ("later", 1)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-16-le"])
def test_encodings_are_told_by_their_mark_or_by_the_option(tmp_path, encoding):
    (tmp_path / "old.srt").write_bytes(SRT.replace("Good", "Gœd").replace("\n", "\r\n").encode(encoding))
    given = encoding if encoding in ("cp1252", "utf-16-le") else None
    assert [word.text for word in read_text(tmp_path / "old.srt", given).words] == ["Gœd", "night,", "Ann.", "Bye"]


def test_paragraphs_and_sentences():
    found = parse_text("One two.\nThree\nfour! “Five?” six\n\n\nSeven 3.5 eight")
    assert not found.subtitles
    assert [w.text for w in found.words if w.ends_sentence] == ["two.", "four!", "“Five?”", "six", "eight"]
    assert sorted({w.block for w in found.words}) == [0, 1]


def test_without_punctuation_a_line_is_a_sentence():
    assert [w.text for w in parse_text("a b\nc d\n").words if w.ends_sentence] == ["b", "d"]


def test_files_that_are_no_text_are_refused(tmp_path):
    latin = "é".encode("latin-1")
    for name, content, reason in (
        ("empty", b" \n\n", "no text"),
        ("latin", latin, "not UTF-8 .byte 0.; give its encoding, such as --encoding cp1252"),
        ("a.wav", b"RIFF\0\0", "the audio comes first"),
        ("b.mp3", b"\xff\xfb\0\0", "the audio comes first"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WildCTCError, match=reason):
            read_text(tmp_path / name)
    with pytest.raises(WildCTCError, match="cannot be read"):
        read_text(tmp_path / "nowhere")
    with pytest.raises(WildCTCError, match="no such encoding"):
        read_text(tmp_path / "latin", "cp12345")
    with pytest.raises(WildCTCError, match="not UTF-16"):
        read_text(tmp_path / "latin", "utf-16")


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
    with pytest.raises(WildCTCError, match=r"another script\?; --romanize"):
        as_spoken(text, units)
    assert as_spoken(text, units, romanizer()).texts == ["privet", "mir"]
