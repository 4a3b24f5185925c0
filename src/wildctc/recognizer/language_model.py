"""Choose among the texts of a beam by more than sound: an n-gram language model, a score for each word, hotwords.

The beam gives texts with their log-probabilities, and `Rescorer` adds to each

    lm_weight · ln P(text) + word_score · words + boost · hotwords in the text + outside · words not in the lexicon

Without a lexicon the vocabulary stays open. A word that the language model lacks gets its probability of <unk>. KenLM,
inside flashlight-text, reads the model.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.recognizer.decoding import DecodesIds, Hypothesis, beam_search, best_hypothesis
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import name_characters

_BINARY = b"mmap lm http://kheafield.com/code"  # how a binary file of KenLM begins


_log = logging.getLogger(__name__)


class WritesTexts(Protocol):
    """Units that know what they can write.

    Attributes:
        normalizer: How texts are normalised.
        outside: What the things are that they cannot write, for messages.
    """

    normalizer: Normalizer
    outside: str

    def missing(self, text: str, /) -> list[str]:
        """List what they cannot write.

        Args:
            text: A text.

        Returns:
            Its characters or words that are outside the units.
        """
        ...


class LanguageModel:
    """An n-gram model over words.

    Attributes:
        path: Its file.
    """

    def __init__(self, path: str | Path) -> None:
        """Read a model.

        Args:
            path: An ARPA file, or a binary file of KenLM's build_binary.

        Raises:
            WildCTCError: There is no such file, or it is not a language model.
        """
        try:
            from flashlight.lib.text.decoder.kenlm import KenLM
            from flashlight.lib.text.dictionary import Dictionary
        except ImportError as error:
            raise MissingExtra("flashlight-text with KenLM", "train") from error

        self.path = Path(path)
        words = Dictionary(_vocabulary(self.path))
        self._words = {words.get_entry(i): i for i in range(words.index_size())}
        try:
            self._model = KenLM(str(self.path), words)
        except (RuntimeError, ValueError) as error:
            raise WildCTCError(f"{path}: KenLM cannot read it: {' '.join(str(error).split())[-200:]}") from None
        self._unknown = self._words["<unk>"]

    def score(self, text: str) -> float:
        """Compute the log-probability of a text.

        Args:
            text: Words between spaces.

        Returns:
            Its natural-log probability, from the beginning of a sentence to its end.
        """
        state, total = self._model.start(False), 0.0
        for word in text.split():
            state, value = self._model.score(state, self._words.get(word, self._unknown))
            total += value
        return (total + self._model.finish(state)[1]) * math.log(10)  # KenLM has logarithms to the base of 10

    @cached_property
    def digest(self) -> str:
        """A short hash of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Rescorer:
    """What a text is worth beside its sound.

    Attributes:
        lm: The language model; None for none.
        lm_weight: Multiplies its log-probability.
        word_score: Is added for each word. A language model prefers few words; this makes up for it.
        hotwords: Words or phrases that are expected, as the model writes them.
        boost: Is added for each time that one of them occurs.
        lexicon: The words that are expected; empty if any word is.
        outside: Is added for each word that the lexicon lacks.
    """

    lm: LanguageModel | None = None
    lm_weight: float = 0.0
    word_score: float = 0.0
    hotwords: tuple[str, ...] = ()
    boost: float = 0.0
    lexicon: frozenset[str] = frozenset()
    outside: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lm_weight", "word_score", "boost", "outside"):
            if not math.isfinite(getattr(self, name)):
                raise WildCTCError(f"{name.replace('_', '-')} must be a number, got {getattr(self, name)}")

    def written_by(self, units: WritesTexts) -> Rescorer:
        """Write hotwords and lexicon as a model does, and warn of hotwords that it cannot write.

        Args:
            units: The units of the model.

        Returns:
            The same with normalised words.
        """
        lexicon = frozenset(word for entry in self.lexicon for word in units.normalizer(entry).split())
        return replace(self, hotwords=writable(self.hotwords, units), lexicon=lexicon)

    def settings(self) -> dict[str, Any]:
        """Give everything that decides the scores.

        Returns:
            An object for JSON.
        """
        lm = self.lm.digest if self.lm else None
        weights = {"lm_weight": self.lm_weight, "word_score": self.word_score, "boost": self.boost}
        found = {"lm": lm, **weights, "hotwords": list(self.hotwords)}
        return found | ({"lexicon": sorted(self.lexicon), "outside": self.outside} if self.lexicon else {})

    def __call__(self, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Score texts anew and sort them.

        Args:
            found: The hypotheses of a beam. Label sequences with the same text are summed.

        Returns:
            A hypothesis for each text, best first.
        """
        return sorted(
            (replace(h, score=h.score + self.bonus(h.text)) for h in merge_texts(found)), key=lambda h: -h.score
        )

    def bonus(self, text: str) -> float:
        """Compute what is added to the log-probability of a text.

        Args:
            text: The text.

        Returns:
            The number.
        """
        lm = self.lm_weight * self.lm.score(text) if self.lm and self.lm_weight else 0.0
        outside = sum(word not in self.lexicon for word in text.split()) if self.lexicon else 0
        total = lm + self.word_score * len(text.split()) + self.boost * self.count_hotwords(text)
        return total + self.outside * outside

    def count_hotwords(self, text: str) -> int:
        """Count how often hotwords occur.

        Args:
            text: The text.

        Returns:
            The number; a hotword inside a longer one does not count.
        """
        return len(self._pattern.findall(text)) if self.hotwords else 0

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.hotwords, key=len, reverse=True)
        return re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, longest_first))})(?!\S)")


def writable(hotwords: Sequence[str], units: WritesTexts) -> tuple[str, ...]:
    """Normalise hotwords as the transcripts of a model, and warn of those that it cannot write.

    Args:
        hotwords: Words or phrases.
        units: The units of the model.

    Returns:
        The words that a text of the model can have.
    """
    found = tuple(dict.fromkeys(text for hotword in hotwords if (text := units.normalizer(hotword))))
    missing = {text: outside for text in found if (outside := units.missing(text))}
    if missing:
        text, outside = next(iter(missing.items()))
        _log.warning(
            "%d of %d hotwords have no effect: the model cannot write them, such as %r (%s); write them as it writes",
            len(missing), len(found), text, f"{units.outside}: {name_characters(outside)}",
        )  # fmt: skip
    return tuple(text for text in found if text not in missing)


def find_texts(
    logits: Tensor, units: DecodesIds, beam: int = 10, rescorer: Rescorer | None = None, nbest: int = 1
) -> list[Hypothesis]:
    """Find the best texts of an utterance.

    Args:
        logits: (T, C).
        units: Convert labels to text.
        beam: Prefixes kept; 1 is greedy, if one text is asked for and no rescorer is given.
        rescorer: Chooses among the beam's texts; None takes the most probable.
        nbest: How many texts.

    Returns:
        At most `nbest` hypotheses, best first.
    """
    if rescorer is None and nbest == 1:
        return [best_hypothesis(logits, units, beam)]
    return (rescorer or Rescorer())(beam_search(logits, units, beam))[:nbest]


def merge_texts(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Sum the probabilities of label sequences that are the same text.

    Args:
        found: Hypotheses, best first.

    Returns:
        One for each text, with the labels of its best sequence.

    >>> half = math.log(0.5)
    >>> [merged] = merge_texts([Hypothesis([1, 2], "a", half), Hypothesis([2], "a", half)])
    >>> merged.ids, round(merged.score, 6) + 0.0
    ([1, 2], 0.0)
    """
    by_text: dict[str, Hypothesis] = {}
    for h in found:
        first = by_text.get(h.text)
        by_text[h.text] = h if first is None else replace(first, score=float(np.logaddexp(first.score, h.score)))
    return list(by_text.values())


def _vocabulary(path: Path) -> list[str]:
    """List the words of a model; flashlight must be told them before it reads the file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WildCTCError(f"cannot read the language model {path}: {error.strerror}") from None
    if content.startswith(_BINARY):
        # build_binary writes the words, each with a zero byte after it, at the end of the file; <unk> is the first.
        start = content.rfind(b"<unk>\0")
        words = content[start:].rstrip(b"\0").split(b"\0") if start >= 0 else []
    else:
        unigrams = content.partition(b"\\1-grams:")[2].partition(b"\n\\")[0]
        words = [fields[1] for line in unigrams.splitlines() if len(fields := line.split()) > 1]
    if not words:
        raise WildCTCError(f"{path}: not an n-gram model in ARPA format, nor a binary file of KenLM with its words")
    return list(dict.fromkeys(["<unk>", *(word.decode("utf-8", "replace") for word in words)]))
