"""The word of each token, which word-level wildcards need."""

from collections.abc import Sequence
from typing import Literal


def word_ids(
    tokens: Sequence[str], *, start: str = "▁", space: str | None = None, spaces: Literal["next", "separator"] = "next"
) -> list[int]:
    """Find the word of each token, for the `words` argument of the loss.

    Args:
        tokens: The token strings of one transcript: SentencePiece pieces, or characters if `space` is given.
        start: What a piece that begins a word begins with. The first piece begins a word in any case.
        space: The token that stands between words, " " or "|", if tokens are characters.
        spaces: "next": a space is the first token of the next word, which gives characters and pieces the same graph; a
            space at the end is in no word. "separator": a space is in no word.

    Returns:
        For each token the number of its word, counted from 0, or −1 for a token in no word.

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
