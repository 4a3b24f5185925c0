"""Which word each token belongs to, for pieces and for characters."""

import pytest

from wildctc import word_ids


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], []),
        (["▁he", "llo", "▁world"], [0, 0, 1]),
        (["he", "llo", "▁world"], [0, 0, 1]),  # a first piece without the mark starts a word too
        (["▁", "a", "▁", "b"], [0, 0, 1, 1]),
        (["▁a", "▁b", "▁c"], [0, 1, 2]),
        (["a▁", "b"], [0, 0]),  # only a piece that begins with the mark starts a word
    ],
)
def test_a_piece_with_the_mark_begins_a_word(tokens, words):
    assert word_ids(tokens) == words


def test_the_mark_of_a_piece_can_be_another():
    assert word_ids(["##he", "llo", "##w"], start="##") == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "joined", "separate"),
    [
        ("", [], []),
        ("ab", [0, 0], [0, 0]),
        ("ab cd", [0, 0, 1, 1, 1], [0, 0, -1, 1, 1]),
        ("a b c", [0, 1, 1, 2, 2], [0, -1, 1, -1, 2]),
        (" ab", [0, 0, 0], [-1, 0, 0]),
        ("ab ", [0, 0, -1], [0, 0, -1]),
        ("a  b", [0, -1, 1, 1], [0, -1, -1, 1]),
        (" ", [-1], [-1]),
    ],
)
@pytest.mark.parametrize("space", [" ", "|"])
def test_a_space_belongs_to_the_next_word_or_to_none(text, joined, separate, space):
    tokens = list(text.replace(" ", space))
    assert word_ids(tokens, space=space) == joined
    assert word_ids(tokens, space=space, spaces="separator") == separate


def test_characters_and_pieces_give_the_same_words():
    assert word_ids(list("▁ab▁c")) == word_ids(list(" ab c"), space=" ")


def test_an_unknown_value_of_spaces_is_refused():
    with pytest.raises(ValueError, match='spaces must be "next" or "separator", got \'both\''):
        word_ids(list("a b"), space=" ", spaces="both")
