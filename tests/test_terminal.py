"""Text lines up on a terminal and is cut to its width, whatever its script."""

import sys

import pytest

from wildctc.errors import MissingExtra
from wildctc.terminal import cut_to_width, display_width, name_some, table

FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("", 0),
        ("rumah", 5),
        ("日本語", 6),
        ("한국어", 6),
        ("e\u0301te\u0301", 3),
        ("हिंदी", 4),  # two of its marks stand beside their letters
        ("மொழி", 4),
        ("ภาษาไทย", 7),
        ("ذهب\u200e", 3),
        ("🙂", 2),
        (FAMILY, 2),  # three pictures, joined into one
    ],
)
def test_a_text_takes_the_cells_that_a_terminal_gives_it(text, cells):
    assert display_width(text) == cells


def test_a_table_lines_up_in_all_scripts():
    rows = [["日本語", "1%"], ["हिंदी", "100%"], ["மொழி", "20%"], [FAMILY, "3%"], ["x", "4%"]]
    assert table(["name", "rate"], rows).split("\n") == [
        "name    rate",
        "────────────",
        "日本語    1%",
        "हिंदी    100%",
        "மொழி     20%",
        f"{FAMILY}        3%",
        "x         4%",
    ]


def test_a_long_word_is_cut_to_the_width_and_marks_stay_with_their_letters():
    text = f"கொ{FAMILY}日本e\u0301" * 5
    pieces = list(cut_to_width(text, 4))
    assert "".join(pieces) == text
    assert max(map(display_width, pieces)) == 4
    assert not any(piece.startswith(("\u0bca", "\u200d", "\u0301")) for piece in pieces)
    assert list(cut_to_width("日", 1)) == ["日"]


def test_a_message_names_three_utterances_and_counts_the_rest():
    assert name_some(["a"]) == "utterance a"
    assert name_some(list("abcd")) == "utterances a, b, c and 1 more"


def test_without_wcwidth_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "wcwidth", None)
    with pytest.raises(MissingExtra, match=r"wcwidth is not installed; the extra train brings it"):
        display_width("a")
