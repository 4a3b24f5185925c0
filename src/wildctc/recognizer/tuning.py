"""Choose the weights of a language model, of words and of hotwords: the fewest word errors on dev."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from wildctc.errors import WildCTCError
from wildctc.recognizer.decoding import Hypothesis
from wildctc.recognizer.language_model import LanguageModel, Rescorer, merge_texts
from wildctc.scoring.error_rates import wer
from wildctc.text.alternatives import Writings, first_writing

LM_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0)
WORD_SCORES = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
BOOSTS = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True)
class Tuned:
    """The best weights, and the word error rate of all.

    Attributes:
        lm_weight: The best weight.
        word_score: The best score of a word.
        boost: The best boost of hotwords; 0 without hotwords.
        wer: The word error rate on dev with these.
        without: The word error rate on dev without a language model.
        oracle: The word error rate on dev if the nearest text of each beam were chosen.
        rates: (language model weights, word scores, boosts), all word error rates.
    """

    lm_weight: float
    word_score: float
    boost: float
    wer: float
    without: float
    oracle: float
    rates: np.ndarray


def tune(
    beams: Iterable[tuple[str | Writings, Sequence[Hypothesis]]],
    lm: LanguageModel | None,
    hotwords: tuple[str, ...] = (),
) -> Tuned:
    """Try all combinations of weights.

    Args:
        beams: The reference and the beam of each utterance of dev.
        lm: The language model; None for none.
        hotwords: Words or phrases that are expected.

    Returns:
        The weights with the fewest word errors; of equals, the smallest.

    Raises:
        WildCTCError: The references have no words.
    """
    axes = [np.array(LM_WEIGHTS if lm else (0.0,)), np.array(WORD_SCORES), np.array(BOOSTS if hotwords else (0.0,))]
    weights, scores, boosts = (axis[..., None] for axis in np.meshgrid(*axes, indexing="ij"))
    errors, oracle, without, reference_words = np.zeros(weights.shape[:-1]), 0, 0, 0
    count = Rescorer(hotwords=hotwords).count_hotwords
    for reference, found in beams:
        reference_words += len(first_writing(reference).split())
        texts = merge_texts(found)
        wrong = np.array([wer([reference], [h.text]).total for h in texts])
        sound = np.array([h.score for h in texts])
        language = np.array([lm.score(h.text) if lm else 0.0 for h in texts])
        length = np.array([len(h.text.split()) for h in texts])
        expected = np.array([count(h.text) for h in texts])
        chosen = (sound + weights * language + scores * length + boosts * expected).argmax(axis=-1)
        errors += wrong[chosen]
        oracle += int(wrong.min())
        without += int(wrong[sound.argmax()])
    if not reference_words:
        raise WildCTCError("there is nothing to tune on: no utterance of the manifest has a text")
    size = (np.abs(weights) + np.abs(scores) + np.abs(boosts))[..., 0]
    best = np.unravel_index(int(np.lexsort((size.ravel(), errors.ravel()))[0]), errors.shape)
    lm_weight, word_score, boost = (float(axis[i]) for axis, i in zip(axes, best, strict=True))
    rates = errors / reference_words
    return Tuned(
        lm_weight, word_score, boost, float(rates[best]), without / reference_words, oracle / reference_words, rates
    )
