"""The listing of errors: shortest edits, lined up in every script, and within the width."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hyp_files import decoded

from wildctc.scoring.error_listing import edit_script, list_errors
from wildctc.scoring.error_rates import score, wer
from wildctc.scoring.hypotheses import Decoded
from wildctc.terminal import display_width
from wildctc.text.normalisation import Normalizer

sentences = st.lists(st.sampled_from(["a", "b", "ab", "ba", "c"]), max_size=8).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(sentences, sentences)
def test_an_edit_script_has_both_sides_and_its_edits_are_those_counted(reference, hypothesis):
    columns = edit_script(reference.split(), hypothesis.split())
    assert [r for _, r, _ in columns if r is not None] == reference.split()
    assert [h for _, _, h in columns if h is not None] == hypothesis.split()
    for kind, r, h in columns:
        assert kind == ("I" if r is None else "D" if h is None else "=" if r == h else "S")
    kinds = [kind for kind, _, _ in columns]
    counted = wer([reference], [hypothesis])
    assert (kinds.count("S"), kinds.count("I"), kinds.count("D")) == (
        counted.substitutions,
        counted.insertions,
        counted.deletions,
    )


def column_starts(line):
    """Terminal columns at which words start."""
    return [display_width(line[: match.start()]) for match in re.finditer("[^ ]+", line)]


@pytest.mark.parametrize(
    ("reference", "hypothesis"),
    [
        ("urang ka datai ari rumah", "orang datai ari rumah panjai nya"),
        ("今日 も 日本語 へ 行った", "今日 は 日本 へ 行く ね"),
        ("मैं हिंदी बोलती हूँ", "मैं हिन्दी बोलता हूँ जी"),
        ("ذهب ولد إلى مدرسة كبيرة", "ذهب الولد إلى المدرسة"),
        ("e\u0301te\u0301 🙂 ok", "ete 🙂🙂 ok"),
        ("", "a b"),
        ("a b", ""),
    ],
)
def test_listing_lines_up_reference_hypothesis_and_marks(reference, hypothesis):
    title, ref, hyp, marks = list_errors(score([Decoded("u", hypothesis, (reference,))]), width=200).split("\n")
    assert title.startswith("u: ")
    starts = column_starts(ref)
    assert starts == column_starts(hyp)
    assert set(column_starts(marks)) <= set(starts)
    columns = edit_script(Normalizer()(reference).split(), Normalizer()(hypothesis).split())
    assert marks.split() == [kind for kind, _, _ in columns if kind != "="]
    assert len(starts) == 1 + len(columns)


def test_listing_wraps_at_the_width_and_loses_nothing():
    reference = " ".join(f"word{i}" for i in range(40))
    text = list_errors(score([Decoded("u", reference + " more", (reference,))]), width=60)
    lines = text.split("\n")[1:]
    assert max(map(display_width, lines)) <= 60
    assert [word for line in lines[0::3] for word in line.split()[1:] if "*" not in word] == reference.split()


def test_listing_shows_the_most_errors_first_and_only_errors():
    result = score(decoded("a b c d", "a b c", "x y", "a"))
    assert [line.split(":")[0] for line in list_errors(result).split("\n") if line.startswith("u")] == [
        "u2",
        "u3",
        "u1",
    ]
    assert list_errors(result, limit=1).count("\n") == 3
    assert list_errors(score(decoded("a b c d"))) == ""
