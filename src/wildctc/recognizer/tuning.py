"""Choose the weight of a language model and the score of a word: the fewest word errors on dev."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from wildctc.errors import WildCTCError
from wildctc.recognizer.decoding import Hypothesis
from wildctc.recognizer.language_model import LanguageModel, merge_texts
from wildctc.scoring.error_rates import wer
from wildctc.text.alternatives import Writings, first_writing

LM_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0)
WORD_SCORES = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class Tuned:
    """The best weights, and the word error rate of all.

    Attributes:
        lm_weight: The best weight.
        word_score: The best score of a word.
        wer: The word error rate on dev with these.
        without: The word error rate on dev without a language model.
        oracle: The word error rate on dev if the nearest text of each beam were chosen.
        rates: (LM_WEIGHTS, WORD_SCORES), all word error rates.
    """

    lm_weight: float
    word_score: float
    wer: float
    without: float
    oracle: float
    rates: np.ndarray


def tune(beams: Iterable[tuple[str | Writings, Sequence[Hypothesis]]], lm: LanguageModel) -> Tuned:
    """Try all pairs of weights.

    Args:
        beams: The reference and the beam of each utterance of dev.
        lm: The language model.

    Returns:
        The weights with the fewest word errors; of equals, the smallest.

    Raises:
        WildCTCError: The references have no words.
    """
    weights, scores = np.array(LM_WEIGHTS)[:, None, None], np.array(WORD_SCORES)[None, :, None]
    errors, oracle, without, reference_words = np.zeros((len(LM_WEIGHTS), len(WORD_SCORES))), 0, 0, 0
    for reference, found in beams:
        reference_words += len(first_writing(reference).split())
        texts = merge_texts(found)
        wrong = np.array([wer([reference], [h.text]).total for h in texts])
        sound = np.array([h.score for h in texts])
        language = np.array([lm.score(h.text) for h in texts])
        length = np.array([len(h.text.split()) for h in texts])
        chosen = (sound + weights * language + scores * length).argmax(axis=-1)
        errors += wrong[chosen]
        oracle += int(wrong.min())
        without += int(wrong[sound.argmax()])
    if not reference_words:
        raise WildCTCError("there is nothing to tune on: no utterance of the manifest has a text")
    size = np.array(LM_WEIGHTS)[:, None] + np.abs(np.array(WORD_SCORES))[None, :]
    row, column = divmod(int(np.lexsort((size.ravel(), errors.ravel()))[0]), len(WORD_SCORES))
    rates = errors / reference_words
    return Tuned(
        LM_WEIGHTS[row], WORD_SCORES[column], float(rates[row, column]),
        without / reference_words, oracle / reference_words, rates,
    )  # fmt: skip
