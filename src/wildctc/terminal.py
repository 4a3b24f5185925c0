"""What people read on a terminal: tables that line up, lines that fit, and short lists of names."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from wildctc.errors import MissingExtra

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # tab and newline stay


def printable(text: str) -> str:
    r"""Write control characters as \x1b: texts come from files of others, and a terminal would obey them.

    Half a surrogate pair, which no terminal can take, is written as \ud800.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb

    Args:
        text: Lines for a terminal.

    Returns:
        The lines, without control characters other than tab and newline.
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def name_some(ids: Sequence[str]) -> str:
    """Name the first three of some utterances, for a message.

    Args:
        ids: Ids of the utterances, at least one.

    Returns:
        Text such as "utterances a, b, c and 4 more".
    """
    more = f" and {len(ids) - 3:,} more" if len(ids) > 3 else ""
    return f"utterance{'s' * (len(ids) > 1)} {', '.join(ids[:3])}{more}"


def display_width(text: str) -> int:
    """Count the terminal cells of a text: 0 for an accent or a joiner, 2 for a wide character (East Asian, emoji).

    >>> display_width("abc"), display_width("日本"), display_width("e\\u0301"), display_width("हिन्दी")
    (3, 4, 1, 4)

    Args:
        text: One line.

    Returns:
        The number of cells.
    """
    return int(_wcwidth().width(text))


def cut_to_width(text: str, width: int) -> Iterator[str]:
    """Cut a text that has no spaces into pieces that fit, never between a letter and its marks.

    >>> list(cut_to_width("日本語", 4))
    ['日本', '語']

    Args:
        text: One word.
        width: The most cells that a piece may take.

    Yields:
        The pieces, as long as possible; joined, they are the text.
    """
    piece = ""
    for letter in _wcwidth().iter_graphemes(text):
        if piece and display_width(piece + letter) > width:
            yield piece
            piece = ""
        piece += letter
    yield piece


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Line up columns: the first to the left, the others to the right.

    >>> print(table(["name", "n"], [["日本", "1"], ["x", "20"]]))
    name   n
    ────────
    日本   1
    x     20

    Args:
        header: The title of each column.
        rows: The cells of each row, as many as there are titles.

    Returns:
        The lines of the table, without a newline at the end.
    """
    widths = [max(map(display_width, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        padding = [" " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [row[0] + padding[0], *(pad + cell for pad, cell in zip(padding[1:], row[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _wcwidth() -> Any:
    try:
        import wcwidth
    except ImportError:
        raise MissingExtra("wcwidth", "train") from None
    return wcwidth
