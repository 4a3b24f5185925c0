"""How well a written word fits its neighbours: n-gram counts of the probed transcripts themselves.

A word that a recogniser misheard is often improbable where it stands ("happy valley national bank"). Counts come from
all transcripts except the one in question, so that an error does not support itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

_START, _END = "<s>", "</s>"
_PSEUDO = 2.0  # how much a shorter context counts beside the counts of a longer one
_UNSEEN = 0.5  # pseudo-count of a word that occurs nowhere else …
_VOCABULARY = 500.0  # … among so many pseudo-words
MOST_WORDS = 5_000_000  # more words do not improve the counts, and take gigabytes

_Contexts = tuple[tuple[str, ...], ...]


class WordContext:
    """Counts of each word with the words beside it.

    >>> context = WordContext(["harper valley bank"] * 9 + ["happy valley bank"])
    >>> happy, valley, bank = context.log_probabilities("happy valley bank")
    >>> happy < valley
    True
    """

    def __init__(self, texts: Iterable[str]) -> None:
        """Count.

        Args:
            texts: The transcripts, normalised; of many, the first `MOST_WORDS` words are counted.
        """
        self._words: Counter[tuple[tuple[str, ...], str]] = Counter()
        self._contexts: Counter[tuple[str, ...]] = Counter()
        self._counted: Counter[str] = Counter()
        total = 0
        for text in texts:
            total += text.count(" ") + 1
            if total > MOST_WORDS:
                break
            self._counted[text] += 1
            self._add(text, 1)

    def log_probabilities(self, text: str) -> list[float]:
        """Score the words of a transcript, by the counts of all others.

        Args:
            text: A transcript, normalised.

        Returns:
            The natural logarithm of each word's probability between its neighbours.
        """
        return [scores[0] for scores in self.compare(text, [[] for _ in _places(text)])]

    def compare(self, text: str, others: list[list[str]]) -> list[list[float]]:
        """Score the words of a transcript, and other words in their places.

        Args:
            text: A transcript, normalised.
            others: For each of its words, words to try in its place.

        Returns:
            For each word, the log-probability of the written word, then those of the others.
        """
        own = self._counted[text] > 0
        if own:
            self._add(text, -1)
        found = [
            [self._log_probability(word, contexts) for word in (written, *tried)]
            for (written, contexts), tried in zip(_places(text), others, strict=True)
        ]
        if own:
            self._add(text, 1)
        return found

    def _add(self, text: str, count: int) -> None:
        for word, contexts in _places(text):
            for context in contexts:
                self._words[context, word] += count
                self._contexts[context] += count

    def _log_probability(self, word: str, contexts: _Contexts) -> float:
        """Longer contexts are mixed with shorter ones, as in a Dirichlet prior; the three longest are averaged."""
        nothing, left, right, both, two_left, two_right = contexts
        alone = (self._words[nothing, word] + _UNSEEN) / (self._contexts[nothing] + _VOCABULARY)
        after, before = self._mixed(word, left, alone), self._mixed(word, right, alone)
        longest = (
            self._mixed(word, both, math.sqrt(after * before)),
            self._mixed(word, two_left, after),
            self._mixed(word, two_right, before),
        )
        return math.log(sum(longest) / 3)

    def _mixed(self, word: str, context: tuple[str, ...], shorter: float) -> float:
        return (self._words[context, word] + _PSEUDO * shorter) / (self._contexts[context] + _PSEUDO)


def _places(text: str) -> Iterator[tuple[str, _Contexts]]:
    """Each word with its contexts: none, one word on its left, on its right, both, two on its left, on its right."""
    words = [_START, _START, *(word for word in text.split(" ") if word), _END, _END]
    for i in range(2, len(words) - 2):
        far_left, left, word, right, far_right = words[i - 2 : i + 3]
        yield (
            word,
            ((), ("l", left), ("r", right), ("lr", left, right), ("ll", far_left, left), ("rr", right, far_right)),
        )
