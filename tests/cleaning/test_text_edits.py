"""Edits of probed words reach the written transcript, and leave the rest of it alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.cleaning.text_edits import WordEdit, edit_words, match_words
from wildctc.text.normalisation import Normalizer

written_words = st.one_of(
    st.sampled_from(["a", "Well-known", "—", "Place.", "it's", "«Café»", "U.S.A.", "a/b", "किताब", "...", "x"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=6),
)
texts = st.lists(written_words, max_size=8).map(" ".join)
normalizers = st.builds(Normalizer, st.booleans(), st.booleans())


@st.composite
def edits_of(draw, count: int) -> list[WordEdit]:
    """Edits in order, no word in two of them."""
    edits, position = [], 0
    while position <= count:
        kind = draw(st.sampled_from(["keep", "keep", "insert", "change"]))
        new = tuple(draw(st.lists(st.sampled_from(["neu", "zwei"]), min_size=1, max_size=2)))
        if kind == "insert":
            edits.append(WordEdit(position, position, new))
        if kind == "change" and position < count:
            stop = draw(st.integers(position + 1, count))
            edits.append(WordEdit(position, stop, draw(st.sampled_from([new, ()]))))
            position = stop  # a word stays after it, or two removals would have the same way back
        position += 1
    return edits


def apply(written: str, probed: list[str], edits: list[WordEdit]) -> str | None:
    matched = match_words(written, probed)
    return None if matched is None else " ".join(word.text for word in edit_words(written, matched, probed, edits))


def by_hand(probed: list[str], edits: list[WordEdit]) -> list[str]:
    """The same on a list of words, from right to left."""
    words = list(probed)
    for edit in reversed(edits):
        words[edit.first : edit.stop] = edit.words
    return words


@settings(deadline=None, max_examples=300)
@given(st.data(), texts, normalizers)
def test_the_new_transcript_has_the_edited_words_and_the_way_back_leads_to_the_old_ones(data, written, normalizer):
    probed = normalizer(written).split()
    edits = data.draw(edits_of(len(probed)))
    edited = apply(written, probed, edits)
    if edited is None:  # letters that are invisible only where they stand alone
        assert not all(Normalizer(True, True)(word) for word in written.split())
        return
    expected = by_hand(probed, edits)
    assert Normalizer(True, True)(edited) == Normalizer(True, True)(" ".join(expected))
    back, shift = [], 0
    for edit in edits:
        first = edit.first + shift
        back.append(WordEdit(first, first + len(edit.words), tuple(probed[edit.first : edit.stop])))
        shift += len(edit.words) - (edit.stop - edit.first)
    assert by_hand(expected, back) == probed
    if match_words(edited, expected) is not None:
        restored = apply(edited, expected, back)
        assert Normalizer(True, True)(restored) == Normalizer(True, True)(written)


@settings(deadline=None, max_examples=200)
@given(st.data(), texts)
def test_words_that_no_edit_touches_stay_as_they_are_written(data, written):
    probed = Normalizer(True, True)(written).split()
    matched = match_words(written, probed)
    if matched is None:
        return
    assert apply(written, probed, []) == " ".join(written.split())
    edits = data.draw(edits_of(len(probed)))
    edited = edit_words(written, matched, probed, edits)
    touched = {n for edit in edits for n in range(edit.first, edit.stop)} | {
        e.first for e in edits if e.first == e.stop
    }
    untouched = [word for word, ns in zip(written.split(), matched, strict=True) if not touched & set(ns)]
    kept = iter([word.text for word in edited])
    assert all(word in kept for word in untouched)  # in this order
    sources = [n for word in edited for n in word.sources or ()]
    assert sources == [n for n in range(len(probed)) if not any(e.first <= n < e.stop for e in edits)]


def test_a_part_of_a_written_word_is_edited_by_writing_its_parts():
    written, probed = "The well-known — Place!", ["the", "well", "known", "place"]
    assert apply(written, probed, [WordEdit(2, 3, ("worn",))]) == "The well worn — Place!"
    assert apply(written, probed, [WordEdit(1, 3, ("new",))]) == "The new — Place!"
    assert apply(written, probed, [WordEdit(2, 2, ("un",))]) == "The well un known — Place!"
    assert apply(written, probed, [WordEdit(4, 4, ("now",))]) == "The well-known — Place! now"
    assert apply(written, probed, [WordEdit(0, 4)]) == "—"


@pytest.mark.parametrize("probed", [["the", "place"], ["the", "well", "known", "places"], []])
def test_another_transcript_does_not_match(probed):
    assert match_words("The well-known place", probed) is None
