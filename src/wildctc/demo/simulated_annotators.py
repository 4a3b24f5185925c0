"""Simulate people who write down what they hear: each has spelling habits, and all make occasional slips."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wildctc.demo.sentences import VARIANTS

Kind = Literal["right", "variant", "slip", "wrong"]
_HABIT = 0.9  # how often annotators use their own spelling of a word
_SLIPS = 0.03  # of the words of a transcript
_ENDINGS = ("ing", "ed", "es", "s")


@dataclass(frozen=True)
class Written:
    """A word as it was said and as it was written.

    Attributes:
        spoken: The word that was said.
        written: The word in the transcript.
        kind: right, another accepted spelling, a slip of the annotator, or wrong on purpose.
    """

    spoken: str
    written: str
    kind: Kind


class Annotator:
    """One person: a preferred spelling for each word that has several.

    >>> ann = Annotator("ann", seed=4)
    >>> " ".join(word.written for word in ann.write("a grey theatre in the harbour", random.Random(1)))
    'a gray theatre in the harbor'
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        rng = random.Random(f"habits {name} {seed}")
        british = rng.random()  # the share of words that this person spells in the British way
        self.habits = {
            word: word if rng.random() < british else rng.choice(others) for word, others in VARIANTS.items()
        }

    def write(self, sentence: str, rng: random.Random) -> list[Written]:
        """Write down a sentence.

        Args:
            sentence: What was said.
            rng: Draws exceptions from habits, and slips.

        Returns:
            The words as this annotator writes them.
        """
        return [self._word(word, rng) for word in sentence.split()]

    def _word(self, word: str, rng: random.Random) -> Written:
        spelling = word
        if word in VARIANTS:
            spelling = self.habits[word] if rng.random() < _HABIT else rng.choice((word, *VARIANTS[word]))
        slipped = slip(spelling, rng) if rng.random() < _SLIPS else spelling
        if slipped not in (word, *VARIANTS.get(word, ())):
            return Written(word, slipped, "slip")
        return Written(word, slipped, "right" if slipped == word else "variant")


def slip(word: str, rng: random.Random) -> str:
    """Drop an inflection or a letter of a word, or double a letter.

    Args:
        word: The word.
        rng: Draws the slip.

    Returns:
        The word with the slip.

    >>> sorted({slip("painted", random.Random(i)) for i in range(20)})[:3]
    ['paint', 'paintd', 'painte']
    """
    ending = next((e for e in _ENDINGS if word.endswith(e) and len(word) - len(e) >= 3), None)
    if ending and rng.random() < 0.5:
        return word.removesuffix(ending)
    place = rng.randrange(len(word))
    if len(word) > 2 and rng.random() < 0.5:
        return word[:place] + word[place + 1 :]
    return word[:place] + word[place] + word[place:]


def spoil(transcripts: Sequence[list[Written]], share: float, rng: random.Random) -> list[list[Written]]:
    """Replace random words by other words; a third of these is garbled.

    Args:
        transcripts: The words of each transcript.
        share: The share of all words to replace.
        rng: Draws words and replacements.

    Returns:
        New transcripts; the replaced words have the kind "wrong".
    """
    spoiled = [list(words) for words in transcripts]
    places = [(i, j) for i, words in enumerate(spoiled) for j in range(len(words))]
    vocabulary = sorted({word.spoken for words in transcripts for word in words})
    for i, j in rng.sample(places, round(share * len(places))):
        word = spoiled[i][j]
        other = rng.choice([w for w in vocabulary if w not in (word.spoken, word.written)])
        spoiled[i][j] = replace(word, written=garble(other, rng) if rng.random() < 1 / 3 else other, kind="wrong")
    return spoiled


def garble(word: str, rng: random.Random) -> str:
    """Make nonsense of about a word's length.

    Args:
        word: The word.
        rng: Draws the letters.

    Returns:
        The nonsense.

    >>> garble("window", random.Random(0))
    'zovobi'
    """
    pairs = (rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(max(2, (len(word) + 1) // 2)))
    return "".join(pairs)
