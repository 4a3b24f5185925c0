"""Cutting an alignment: at sentence ends, pauses and differences; never longer than asked."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from wildctc.longform.alignment import AlignedWrittenWord, Difference, LongAlignment
from wildctc.longform.bridges import bridge
from wildctc.longform.formats import subtitles
from wildctc.longform.pieces import all_pieces, solid_pieces
from wildctc.longform.segments import Cutting, Pair, cut
from wildctc.recognizer.textgrid import Interval, to_textgrid
from wildctc.text.alternatives import parse_text


def aligned(words, differences=(), duration=None):
    """Words as (text, start, end) or (text, start, end, read)."""
    rows = [
        AlignedWrittenWord(text, start, end, 1.0, not read or read[0], 0, text.endswith("."))
        for text, start, end, *read in words
    ]
    return LongAlignment("a.wav", "a.txt", duration or rows[-1].end + 1, None, rows, list(differences), 0.0, False)


def steady(count, step=0.5, ends=()):
    return [(f"w{i}." if i in ends else f"w{i}", i * step, i * step + 0.4) for i in range(count)]


@pytest.mark.parametrize("longest", [3.0, 8.0, 20.0])
def test_pieces_cover_all_words_and_none_is_too_long(longest):
    found = aligned(steady(100, ends={9, 44}))
    pieces = solid_pieces(found, longest)
    assert [p.first for p in pieces] == [0, *(p.stop for p in pieces[:-1])]
    assert pieces[-1].stop == 100
    assert max(p.end - p.start for p in pieces) <= longest
    assert all(a.end <= b.start + 1e-9 for a, b in pairwise(pieces))


def test_sentence_ends_are_preferred():
    stops = [p.stop for p in solid_pieces(aligned(steady(50, ends={20})), 20.0)]
    assert stops == [21, 50]


def test_what_does_not_match_is_in_no_piece():
    words = [("a", 0.5, 0.9), ("b", 1.0, 1.4), ("gone", 1.5, 1.5, False), ("c", 3.0, 3.4), ("d", 5.0, 5.4)]
    odd = [Difference(1.6, 2.9, 2, 3, "gone", "heard"), Difference(3.6, 4.8, 4, 4, "", "more")]
    pieces = solid_pieces(aligned(words, odd))
    assert [(p.first, p.stop) for p in pieces] == [(0, 2), (3, 4), (4, 5)]
    for piece in pieces:
        for d in odd:
            assert piece.end <= d.start or piece.start >= d.end


def test_all_pieces_show_unread_text_and_unwritten_speech():
    words = [("a.", 0.5, 0.9), ("gone.", 1.5, 1.5, False), ("c.", 3.0, 3.4)]
    pieces = all_pieces(aligned(words, [Difference(4.0, 50.0, 3, 3, "", "much more")], 60.0))
    assert [(p.first, p.stop) for p in pieces[:3]] == [(0, 1), (1, 2), (2, 3)]
    assert [p.first for p in pieces[3:]] == [3, 3, 3]
    assert max(p.end - p.start for p in pieces) <= 20


def test_a_textgrid_has_no_holes_and_no_overlap():
    grid = to_textgrid(3.0, {"words": [Interval(0.5, 1.0, 'say "a"'), Interval(0.9, 1.2, "b"), Interval(2.0, 2.0, "")]})
    times = [float(line.split("=")[1]) for line in grid.splitlines() if line.startswith("            x")]
    assert times[::2] == [0.0, *times[1:-1:2]]
    assert times[-1] == 3.0
    assert 'text = "say ""a"""' in grid


def test_subtitles_leave_out_what_was_not_read():
    found = aligned([("a.", 0.5, 0.9), ("gone.", 1.5, 1.5, False), ("c.", 3.0, 3.4)])
    assert [line for cue in subtitles(found) for line in cue.lines] == ["a.", "c."]


def test_an_old_subtitle_is_kept_whole_at_the_time_of_what_was_read_of_it():
    words = [
        ("it", 0.2, 0.2, False),
        ("was", 0.5, 0.9),
        ("good.", 1.0, 1.4),
        ("gone.", 1.5, 1.5, False),
        ("so", 3.0, 3.4),
    ]
    found = aligned(words, duration=10.0)
    blocks = [0, 0, 0, 1, 2]
    rows = [replace(word, block=block) for word, block in zip(found.words, blocks, strict=True)]
    shown = subtitles(replace(found, words=rows, subtitles=True))
    assert [cue.lines for cue in shown] == [["it was good."], ["so"]]
    assert [cue.start for cue in shown] == [0.5, 3.0]


DIFFERENT = [
    ("a", 0.5, 0.9),
    ("gone", 1.0, 1.0, False),
    ("b", 2.0, 2.4),
    ("c.", 2.5, 2.9),
    ("d|{e}", 3.0, 3.4),
    ("f", 5, 5.4),
]
ODD = [Difference(1.0, 1.9, 1, 2, "gone", "he|rd"), Difference(3.6, 4.8, 5, 5, "", "one two three")]


def segments(most):
    rows, report = cut(aligned(DIFFERENT, ODD), Pair("x", Path("a.wav"), Path("a.txt")), Cutting(0.1, bridge=most))
    assert (report["words"], report["words_not_read"]) == (6, 1)
    return [(row["text"], row["start"], round(row["start"] + row["duration"], 3)) for row in rows]


def test_a_small_difference_becomes_alternatives_inside_a_segment():
    assert segments(0) == [("a", 0.3, 0.95), ("b c. d|\\{e\\}", 1.95, 3.5), ("f", 4.9, 5.6)]
    assert segments(1) == [("a {gone|he\\|rd} b c. d|\\{e\\}", 0.3, 3.5), ("f", 4.9, 5.6)]
    [(text, *_)] = segments(3)
    assert [slot.alternatives for slot in parse_text(text).slots if len(slot.alternatives) > 1] == [
        (("gone",), ("he|rd",)),
        ((), ("one", "two", "three")),
    ]


def test_a_difference_at_the_edge_of_the_text_is_no_alternative():
    words = [("gone", 0, 0, False), ("b", 2.0, 2.4), ("c", 2.5, 2.9)]
    odd = [Difference(0.5, 1.9, 0, 1, "gone", "here"), Difference(3.0, 3.4, 3, 3, "", "more")]
    found = bridge(aligned(words, odd), 9)
    assert [word.text for word in found.words] == ["gone", "b", "c"]
    assert found.differences == odd
