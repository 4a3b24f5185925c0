"""The methods that long_audio.py compares. Each takes the logits of a recording and the sentences of its text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from wildctc.audio.recordings import Recording
from wildctc.lattice.align import wildcard_align
from wildctc.longform.alignment import LongAlignment, Prices, align_text
from wildctc.longform.written import as_spoken, parse_text
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.windows import LongLogits

METHODS = ("wildctc", "forced", "star", "ctc-segmentation")


class Found(NamedTuple):
    """What a method found.

    `sentences`: of each the start, the end, and how sure the method is that it was read. `unwritten`: stretches with
    speech that is not in the text; None if the method does not say so.
    """

    sentences: list[tuple[float, float, float]]
    unwritten: list[tuple[float, float]] | None = None


def find(method: str, model: Recognizer, logits: LongLogits, sentences: list[str], prices: Prices) -> Found:
    if method == "wildctc":
        return by_wildcards(aligned(model, logits, sentences, prices), sentences)
    if method == "ctc-segmentation":
        return by_ctc_segmentation(model, logits, sentences)
    return by_plain_ctc(model, logits, sentences, star=method == "star")


def aligned(model: Recognizer, logits: LongLogits, sentences: list[str], prices: Prices) -> LongAlignment:
    text = parse_text("\n".join(f"{sentence}." for sentence in sentences))
    sound = Recording(16000, logits.duration, [])
    return align_text(model.units, sound, logits, text, as_spoken(text, model.units), prices=prices)


def by_wildcards(found: LongAlignment, sentences: list[str]) -> Found:
    rows = []
    at = 0
    for sentence in sentences:
        words = found.words[at : at + len(sentence.split())]
        at += len(words)
        read = [w for w in words if w.read]
        share = sum(len(w.text) for w in read) / sum(len(w.text) for w in words)
        rows.append((read[0].start, read[-1].end, share) if read else (0.0, 0.0, 0.0))
    return Found(rows, [(d.start, d.end) for d in found.differences if d.heard])


def by_plain_ctc(model: Recognizer, logits: LongLogits, sentences: list[str], star: bool) -> Found:
    """Plain CTC; with `star`, a token between sentences that has the log-probability 0 in each frame."""
    scores, labels, places = logits.logits.log_softmax(1), [], []
    if star:
        scores = torch.cat((scores, torch.zeros(len(scores), 1)), 1)
    for sentence in sentences:
        labels += [scores.shape[1] - 1] if star else model.units.encode(" ") if labels else []
        mine = model.units.encode(sentence)
        places.append((len(labels), len(labels) + len(mine)))
        labels += mine
    labels += [scores.shape[1] - 1] if star else []
    [path] = wildcard_align(scores.unsqueeze(1), torch.tensor([labels]), [len(scores)], [len(labels)])
    found = []
    for begin, stop in places:
        spans = path.tokens[begin:stop]
        first, last = spans[0].start, spans[-1].end
        frames = path.frames[first:last]
        score = scores[torch.arange(first, last), frames].mean()
        found.append((logits.time(first), logits.time(last), float(score)))
    return Found(found)


def by_ctc_segmentation(model: Recognizer, logits: LongLogits, sentences: list[str]) -> Found:
    import ctc_segmentation as package

    config = package.CtcSegmentationParameters(index_duration=1 / logits.rate, blank=0, char_list=model.units.tokens)
    tokens = [np.array(model.units.encode(sentence)) for sentence in sentences]
    matrix, begins = package.prepare_token_list(config, tokens)
    timings, probabilities, _ = package.ctc_segmentation(config, logits.logits.log_softmax(1).numpy(), matrix)
    segments = package.determine_utterance_segments(config, begins, probabilities, timings, sentences)
    return Found([(start + logits.first, end + logits.first, float(score)) for start, end, score in segments])
