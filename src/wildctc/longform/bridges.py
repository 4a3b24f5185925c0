"""Keep a small difference inside a segment: its text then has what is written and what was heard, as alternatives."""

from __future__ import annotations

from dataclasses import replace

from wildctc.longform.alignment import AlignedWrittenWord, Difference, LongAlignment, texts_of
from wildctc.text.alternatives import escape


def bridge(found: LongAlignment, most: int) -> LongAlignment:
    r"""Write the words of an alignment as a transcript with alternatives, in which small differences are one word.

    A difference is small if it has at most `most` words on either side, and the words beside it were read. The word
    that takes its place is {written|heard}, with the time of the difference and without a confidence.

    Args:
        found: The alignment.
        most: How many words; 0 changes only braces, which become \{ and \}.

    Returns:
        The alignment with these words, and without the differences that they stand for.
    """
    small = {d.first: d for d in found.differences if _is_small(found, d, most)}
    words: list[AlignedWrittenWord] = []
    at: list[int] = []  # of each word its new number; of those that became one, that of the one
    stop = 0
    for number, word in enumerate(found.words):
        if number in small:
            words.append(_join(found, small[number]))
            stop = small[number].stop
        if number >= stop:
            words.append(replace(word, text=escape(word.text)))
        at.append(len(words) - 1)
    at.append(len(words))
    left = [replace(d, first=at[d.first], stop=at[d.stop]) for d in found.differences if small.get(d.first) != d]
    return replace(found, words=words, differences=left)


def _is_small(found: LongAlignment, difference: Difference, most: int) -> bool:
    first, stop = difference.first, difference.stop
    beside = 0 < first <= stop < len(found.words) and found.words[first - 1].read and found.words[stop].read
    return beside and max(stop - first, len(difference.heard.split())) <= most


def _join(found: LongAlignment, difference: Difference) -> AlignedWrittenWord:
    """One word for both sides of a difference."""
    before, written = found.words[difference.first - 1], found.words[difference.first : difference.stop]
    sides = [escape(text).replace("|", "\\|") for text in (texts_of(written), difference.heard)]
    last = written[-1] if written else replace(before, ends_sentence=False)
    return AlignedWrittenWord(
        "{" + "|".join(sides) + "}", difference.start, difference.end, None, True, last.block, last.ends_sentence
    )
