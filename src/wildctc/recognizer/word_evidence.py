"""The words that a model recognises in a manifest, what speaks for them, and which of them are right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from wildctc.corpora.preparation import Rejects
from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.recognizer.batch import logits_batches
from wildctc.recognizer.decoding import best_hypothesis
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.transcription import align_words
from wildctc.scoring.error_rates import levenshtein


def collect(
    model: Recognizer,
    utterances: Sequence[Utterance],
    *,
    beam: int = 10,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recognise utterances with references.

    Args:
        model: The recogniser.
        utterances: The utterances; those without a text are not used.
        beam: Prefixes kept; 1 is greedy.
        cache: A folder of computed features.
        workers: Data-loading processes.
        max_bad: The share of utterances that may be skipped.

    Returns:
        For each word its evidence (words, 3), whether it is right (words,), and the number of its utterance (words,).

    Raises:
        WildCTCError: Too many utterances were skipped, or none has a word.
    """
    rejects, rows = Rejects(max_bad), []
    used = [u for u in utterances if model.units.normalizer(u.text)]
    numbers = {u.id: n for n, u in enumerate(used)}
    batches = logits_batches(model, used, rejects, cache=cache, workers=workers)
    for utterance, logits in chain.from_iterable(batches):
        best = best_hypothesis(logits, model.units, beam)
        words = align_words(logits, best.ids, model.units)
        right = match_words(model.units.normalizer(utterance.text).split(), [word.text for word in words])
        rows += [(word.evidence, same, numbers[utterance.id]) for word, same in zip(words, right, strict=True)]
    rejects.check(len(used))
    if not rows:
        raise WildCTCError("there is nothing to calibrate on: no word was recognised, or no utterance has a text")
    evidence, right_words, utterance_numbers = zip(*rows, strict=True)
    return np.array(evidence), np.array(right_words, float), np.array(utterance_numbers)


def match_words(reference: Sequence[str], heard: Sequence[str]) -> list[bool]:
    """Find which recognised words are right, by the alignment with the fewest errors.

    Args:
        reference: The words that were said.
        heard: The words that were recognised.

    Returns:
        For each recognised word whether it is right.

    >>> match_words("one two three".split(), "one too three four".split())
    [True, False, True, False]
    """
    right = [False] * len(heard)
    for step in levenshtein().opcodes(reference, heard):
        if step.tag == "equal":
            right[step.dest_start : step.dest_end] = [True] * (step.dest_end - step.dest_start)
    return right
