"""Which words are wrong: reference over hypothesis, lined up, with the kind of each error below."""

import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

from wildctc.scoring.error_rates import Score, UtteranceScore, levenshtein
from wildctc.terminal import display_width

_MARGINS = ("  ref", "  hyp", "     ")  # of the three lines of a block


def list_errors(score: Score, limit: int | None = None, width: int = 100) -> str:
    """List the utterances with word errors, most errors first.

    Args:
        score: The errors of a test set.
        limit: The most utterances to list; None: all.
        width: The most terminal cells in a line. A longer utterance continues in further blocks of lines.

    Returns:
        The lines, with an empty one between utterances.

    >>> from wildctc.scoring.error_rates import score
    >>> from wildctc.scoring.hypotheses import Decoded
    >>> print(list_errors(score([Decoded("u1", "orang datai ari rumah nya", ("urang ka datai ari rumah",))])))
    u1: 3 errors in 5 words (1 substituted, 1 inserted, 1 deleted)
      ref  urang  ka  datai  ari  rumah  ***
      hyp  orang  **  datai  ari  rumah  nya
           S      D                      I
    """
    wrong = sorted((u for u in score.utterances if u.words.total), key=lambda u: -u.words.total)
    return "\n\n".join(_list_utterance(u, width) for u in wrong[:limit])


def edit_script(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[str, str | None, str | None]]:
    """Find a shortest sequence of edits from a reference to a hypothesis.

    Args:
        reference: Its tokens: words, or the characters of a string.
        hypothesis: Its tokens.

    Returns:
        (kind, token of the reference, token of the hypothesis) of each step. The kind is "=", "S" (substitution), "I"
        (insertion: the reference is None) or "D" (deletion: the hypothesis is None).

    >>> edit_script("urang ka datai".split(), "orang datai".split())
    [('S', 'urang', 'orang'), ('D', 'ka', None), ('=', 'datai', 'datai')]
    """
    kinds = {"equal": "=", "replace": "S", "insert": "I", "delete": "D"}
    steps: list[tuple[str, str | None, str | None]] = []
    for code in levenshtein().opcodes(reference, hypothesis):
        left, right = reference[code.src_start : code.src_end], hypothesis[code.dest_start : code.dest_end]
        steps += [(kinds[code.tag], r, h) for r, h in zip_longest(left, right)]  # one side is empty, or both equal
    return steps


def _list_utterance(utterance: UtteranceScore, width: int) -> str:
    e = utterance.words
    kinds = f"{e.substitutions} substituted, {e.insertions} inserted, {e.deletions} deleted"
    title = f"{utterance.id}: {e.total} error{'s' * (e.total > 1)} in {e.reference} words ({kinds})"
    blocks = [[[margin] for margin in _MARGINS]]
    start = used = display_width(_MARGINS[0])
    for kind, reference, hypothesis in edit_script(utterance.reference.split(), utterance.text.split()):
        cells = [reference or "*" * display_width(hypothesis or ""), hypothesis or "*" * display_width(reference or "")]
        column = _padded([*cells, kind.replace("=", "")])
        wide = 2 + display_width(column[0])
        if used + wide > width and used > start:
            blocks.append([[margin] for margin in _MARGINS])
            used = start
        for line, cell in zip(blocks[-1], column, strict=True):
            line.append(cell)
        used += wide
    return "\n".join([title, *("\n".join("  ".join(line).rstrip() for line in block) for block in blocks)])


def _padded(cells: Sequence[str]) -> list[str]:
    """Pad cells to one width. A left-to-right mark after a right-to-left word keeps the columns in order."""
    width = max(map(display_width, cells))
    return [cell + _mark(cell) + " " * (width - display_width(cell)) for cell in cells]


def _mark(cell: str) -> str:
    return "\u200e" if any(unicodedata.bidirectional(char) in ("R", "AL") for char in cell) else ""
