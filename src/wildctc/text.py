"""Text: which word each token belongs to."""

from collections.abc import Sequence
from typing import Literal


def word_ids(
    tokens: Sequence[str], *, start: str = "▁", space: str | None = None, spaces: Literal["next", "separator"] = "next"
) -> list[int]:
    """The word of each token, counted from 0; −1 for a token in no word: the `words` argument of the loss.

    tokens: the transcript's token strings. Without `space` they are SentencePiece pieces: one that begins with
    `start` begins a word, and so does the first. With `space` (" " or "|") they are characters, and the space is
    the first token of the word that it precedes (`spaces="next"`, which gives characters and pieces the same
    graph) or belongs to no word (`spaces="separator"`). A trailing space has no word to precede: −1.

    >>> word_ids(["▁he", "llo", "▁world"])
    [0, 0, 1]
    >>> word_ids(list("ab cd"), space=" ")
    [0, 0, 1, 1, 1]
    >>> word_ids(list("ab cd"), space=" ", spaces="separator")
    [0, 0, -1, 1, 1]
    """
    if spaces not in ("next", "separator"):
        raise ValueError(f'spaces must be "next" or "separator", got {spaces!r}')
    if space is None:
        return _pieces(tokens, start)
    return _characters(tokens, space, spaces == "next")


def _pieces(tokens: Sequence[str], start: str) -> list[int]:
    words, word = [], -1
    for token in tokens:
        if word < 0 or token.startswith(start):
            word += 1
        words.append(word)
    return words


def _characters(tokens: Sequence[str], space: str, space_joins_next: bool) -> list[int]:
    words: list[int] = []
    word, in_word = -1, False
    for i, token in enumerate(tokens):
        if token != space:
            if not in_word:
                word, in_word = word + 1, True
            words.append(word)
            continue
        in_word = space_joins_next and i + 1 < len(tokens) and tokens[i + 1] != space
        if in_word:
            word += 1
        words.append(word if in_word else -1)
    return words
