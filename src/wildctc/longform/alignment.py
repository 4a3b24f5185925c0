"""Align a long recording with a text that is roughly right.

The text is one transcript graph: word bypasses for text that was not read, self-loops at word ends for speech that is
not in the text. The best path gives the times; posteriors of the same graph, in stretches between pauses, give the
confidence of each word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wildctc.audio.recordings import Recording
from wildctc.errors import WildCTCError
from wildctc.lattice.align import Alignment, wildcard_align
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_posteriors
from wildctc.longform.rests import BLANK, add_rests, find_crowded, find_pauses
from wildctc.longform.written import SpellingUnits, SpokenText, WrittenText
from wildctc.recognizer.decoding import greedy
from wildctc.recognizer.windows import LongLogits

_STRETCH = 30.0  # seconds whose posteriors are computed together, or a little more
_LEAST_HEARD = 3  # letters that count as speech beside the text: fewer are the model's own slips
_WORDS_IN_REST = 8
_ATTEMPTS, _LARGER = 4, 8  # how often a path is looked for, and how much larger its crowded rests are each time
_MOST_CELLS = 4e9  # frames × tokens of an exact best path: about 20 s of one core
_BAND = 500  # tokens on either side of the guide, in longer recordings


@dataclass(frozen=True)
class Prices:
    """What the wildcards of an alignment cost, in nats. They do not depend on the number of a model's units.

    The defaults were chosen on dev speakers of Harper Valley, by benchmarks/long_audio.py.

    Attributes:
        between: Of a sound that is not in the text, between two sentences.
        inside: Of a sound that is not in the text, inside a sentence. It is dearer, so that a sentence stays together.
        word: Of a word that was not read.
    """

    between: float = 0.2
    inside: float = 4.0
    word: float = 16.0

    def wildcards(self, outputs: int, inside: Sequence[bool]) -> Wildcards:
        """Convert prices to weights: ★ has the mean of the non-blank probabilities, and a price is about their sum.

        Args:
            outputs: How many outputs the logits have, the blank included.
            inside: For each token, whether the place before it is inside a sentence; and for the end.

        Returns:
            The weights.
        """
        whole = math.log(outputs - 1)
        loops = whole - torch.where(torch.tensor([list(inside)]), self.inside, self.between)
        return Wildcards(word_bypass=whole - self.word, self_loop=loops, self_loop_at="word")


PRICES = Prices()


@dataclass(frozen=True)
class AlignedWrittenWord:
    """A word of the text on the recording.

    Attributes:
        text: As it is written.
        start: Seconds from the start of the recording. Of a word that was not read, the place where it is missing.
        end: Seconds, too.
        confidence: The probability that it was read; None if the model cannot write it.
        read: Whether it was read, by the best path.
        block: The number of its paragraph or subtitle.
        ends_sentence: Whether a sentence ends after it.
    """

    text: str
    start: float
    end: float
    confidence: float | None
    read: bool
    block: int
    ends_sentence: bool


@dataclass(frozen=True)
class Difference:
    """A place where text and speech differ.

    Attributes:
        start: Second at which the last word before it ends, or unwritten speech begins.
        end: Second at which it ends.
        first: The first word of the text that was not read.
        stop: The word after the last one that was not read; equal to `first` if there is only speech.
        written: These words.
        heard: What the model heard there.
    """

    start: float
    end: float
    first: int
    stop: int
    written: str
    heard: str

    @property
    def kind(self) -> str:
        """ "not read", "not written", or "differs" if there are both text and speech."""
        return "not written" if not self.written else "differs" if self.heard else "not read"


@dataclass(frozen=True, eq=False)
class LongAlignment:
    """A text on its recording.

    Attributes:
        audio: The file.
        text: The text's file.
        duration: Seconds of audio.
        channel: The channel of the file; None for the mean of all.
        words: All words of the text.
        differences: Where text and speech differ, in order.
        score: The log-weight of the best path.
        subtitles: Whether the blocks of the text are subtitles.
        band: None if the path is the best of all; else to how many letters on either side of a guide it was kept.
    """

    audio: str
    text: str
    duration: float
    channel: int | None
    words: list[AlignedWrittenWord]
    differences: list[Difference]
    score: float
    subtitles: bool
    band: int | None = None

    @property
    def found(self) -> float:
        """The share of the text that was found in the audio, by letters of words that were read beyond doubt."""
        sure = sum(len(w.text) for w in self.words if w.read and (w.confidence or 0.0) >= 0.5)
        return sure / max(1, sum(len(w.text) for w in self.words if any(map(str.isalnum, w.text))))

    @property
    def unwritten(self) -> float:
        """Seconds with speech that is not in the text."""
        return sum(d.end - d.start for d in self.differences if d.heard)


class _Path(NamedTuple):
    """The best path of a text through the logits with their rests."""

    logits: Tensor
    origin: np.ndarray
    best: Alignment
    inside: list[bool]  # for each token, whether the place before it is inside a sentence; and for the end


def align_text(
    units: SpellingUnits,
    sound: Recording,
    found: LongLogits,
    text: WrittenText,
    spoken: SpokenText,
    *,
    channel: int | None = None,
    prices: Prices = PRICES,
) -> LongAlignment:
    """Align a text with the logits of its recording.

    Args:
        units: What the model writes.
        sound: The recording.
        found: Its logits.
        text: The text.
        spoken: The text in the model's units.
        channel: The channel of the recording.
        prices: What the wildcards cost.

    Returns:
        The alignment.

    Raises:
        WildCTCError: The text has no path: it is far too long.
    """
    path = _best_path(found, text, spoken, prices)
    read, frames = _word_frames(path, spoken, units)
    confidences = _confidences(path, spoken, found.rate, prices)
    words = _words(text, spoken, read, frames, confidences, found)
    differences = list(_differences(path, spoken, text, words, read, frames, found, units))
    return LongAlignment(
        sound.name, text.name, found.duration, channel, words, differences, path.best.score, text.subtitles,
        path.best.band,
    )  # fmt: skip


def _best_path(found: LongLogits, text: WrittenText, spoken: SpokenText, prices: Prices) -> _Path:
    """The best path with small rests; where a whole chapter was not read, again with larger ones there."""
    pauses = find_pauses(found.logits, found.rate)
    at = sorted({0, *((start + end) // 2 for start, end in pauses), len(found.logits)})
    needed = math.ceil(1.2 * len(spoken.texts) / len(at))  # so that even a text with no word in the audio has a path
    words = np.full(len(at), max(_WORDS_IN_REST, needed))
    inside = _inside_sentences(text, spoken)
    for _ in range(_ATTEMPTS):
        logits, origin = add_rests(found.logits, at, words.tolist())
        best = _align(logits, inside, spoken, prices)
        if not best.tokens:
            raise WildCTCError(
                f"the text is too long for its audio: {len(spoken.texts):,} words, {found.duration:,.0f} s; "
                "is it the text of this recording?"
            )
        crowded = find_crowded([star.start for star in best.wildcards if star.kind == "word_bypass"], at, words)
        words[crowded] *= _LARGER
        if not crowded.any() or 2 * words[crowded].sum() > len(logits):
            break
    return _Path(logits, origin, best, inside)


def _align(logits: Tensor, inside: list[bool], spoken: SpokenText, prices: Prices) -> Alignment:
    [best] = wildcard_align(
        logits.unsqueeze(1), torch.tensor([spoken.labels]), [len(logits)], [len(spoken.labels)], BLANK,
        wildcards=prices.wildcards(logits.shape[1], inside), words=torch.tensor([spoken.words]),
        band=_BAND if len(logits) * len(spoken.labels) > _MOST_CELLS else None,
    )  # fmt: skip
    return best


def _inside_sentences(text: WrittenText, spoken: SpokenText) -> list[bool]:
    """For each token, whether the place before it is inside a sentence; and for the end."""
    owners = [spoken.written[word] if word >= 0 else -1 for word in spoken.words]
    ends = [word.ends_sentence or after.block != word.block for word, after in pairwise(text.words)]
    sentences = np.cumsum([0, *ends]).tolist()
    mine = [sentences[owner] if owner >= 0 else -1 for owner in owners]
    return [False, *(a == b for a, b in pairwise(mine)), False]


def _word_frames(path: _Path, spoken: SpokenText, units: SpellingUnits) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Which words were read, and the frames of each from its first letter to its last."""
    read = np.ones(len(spoken.texts), bool)
    frames: list[tuple[int, int]] = []
    silent = {label for label in set(spoken.labels) if not units.decode([label])}  # a space has no time of its own
    rows = [row for row in zip(spoken.words, path.best.tokens, strict=True) if row[0] >= 0]
    for word, group in groupby(rows, key=lambda row: row[0]):
        spans = [span for _, span in group]
        letters = [span for span in spans if span.label not in silent] or spans
        read[word] = not spans[0].bypassed
        frames.append((int(path.origin[letters[0].start]), int(path.origin[letters[-1].end])))
    return read, frames


def _confidences(path: _Path, spoken: SpokenText, rate: float, prices: Prices) -> list[float]:
    """The probability of each word that it was read, computed in stretches between pauses of the best path."""
    found: list[float] = []
    for (begin, first), (end, stop) in pairwise(_cuts(path, spoken, rate)):
        labels, words = spoken.labels[first:stop], spoken.words[first:stop]
        if labels:
            lowest = words[0]
            posteriors = wildcard_posteriors(
                path.logits[begin:end].unsqueeze(1), torch.tensor([labels]), [end - begin], [len(labels)], BLANK,
                wildcards=prices.wildcards(path.logits.shape[1], path.inside[first : stop + 1]),
                words=torch.tensor([[word - lowest if word >= 0 else word for word in words]]),
            )  # fmt: skip
            assert posteriors.word_bypass is not None
            bypass = posteriors.word_bypass[0, : words[-1] + 1 - lowest].clamp(0.0, 1.0)
            found += [round(1.0 - p, 4) for p in bypass.tolist()]
    return found


def _cuts(path: _Path, spoken: SpokenText, rate: float) -> Iterator[tuple[int, int]]:
    """Places on the best path where it is silent between two words: the frame, and the tokens that are done there."""
    silent = path.best.frames.numpy() == BLANK
    done = np.searchsorted(np.array([span.end for span in path.best.tokens]), np.arange(len(silent)), side="right")
    words = np.array([-1, *spoken.words, -1])
    between = silent & (words[done] != words[done + 1])  # of the tokens before and after
    resting = np.append(np.diff(path.origin) == 0, False)[: len(silent)]
    yield 0, 0
    last = 0
    for frame in np.flatnonzero(between).tolist():
        seconds = (frame - last) / rate
        if seconds >= 2 * _STRETCH or (seconds >= _STRETCH and resting[frame]):
            yield frame, int(done[frame])
            last = frame
    yield len(silent), len(spoken.labels)


def _words(
    text: WrittenText,
    spoken: SpokenText,
    read: np.ndarray,
    frames: list[tuple[int, int]],
    confidences: list[float],
    found: LongLogits,
) -> list[AlignedWrittenWord]:
    """The words as they are written. One of several parts, such as well-known, was read if most of its letters were."""
    parts: dict[int, list[int]] = {}
    for part, number in enumerate(spoken.written):
        parts.setdefault(number, []).append(part)
    words: list[AlignedWrittenWord] = []
    for number, word in enumerate(text.words):
        mine = parts.get(number, [])
        if not mine:  # a dash, or a number that the model cannot write
            at = words[-1].end if words else 0.0
            words.append(AlignedWrittenWord(word.text, at, at, None, False, word.block, word.ends_sentence))
            continue
        sizes = [len(spoken.texts[part]) for part in mine]
        there = sum(size for part, size in zip(mine, sizes, strict=True) if read[part]) * 2 >= sum(sizes)
        said = [part for part in mine if read[part]] if there else mine
        start, end = (found.time(frame) for frame in (frames[said[0]][0], frames[said[-1]][1]))
        sure = sum(confidences[part] * size for part, size in zip(mine, sizes, strict=True)) / sum(sizes)
        words.append(AlignedWrittenWord(word.text, start, end, round(sure, 4), there, word.block, word.ends_sentence))
    return _beside_their_block(words)


def _beside_their_block(words: list[AlignedWrittenWord]) -> list[AlignedWrittenWord]:
    """Give words that have no time of their own, and begin a block, the time of its next word: not that of the last."""
    leading: list[bool] = []
    for k, word in enumerate(words):
        begins = k == 0 or words[k - 1].block != word.block
        leading.append(word.confidence is None and (begins or leading[-1]))
    for k in reversed(range(len(words) - 1)):
        if leading[k] and words[k + 1].block == words[k].block:
            words[k] = replace(words[k], start=words[k + 1].start, end=words[k + 1].start)
    return words


def _differences(
    path: _Path,
    spoken: SpokenText,
    text: WrittenText,
    words: list[AlignedWrittenWord],
    read: np.ndarray,
    frames: list[tuple[int, int]],
    found: LongLogits,
    units: SpellingUnits,
) -> Iterator[Difference]:
    """Between two words that were read, one after the other: the text and the speech that the path has there."""
    loops = {star.first for star in path.best.wildcards if star.kind == "self_loop"}
    begins = np.searchsorted(np.maximum.accumulate(np.array(spoken.words)), np.arange(len(read) + 1))
    spoke = [part for part in range(len(read)) if read[part]]
    for before, after in pairwise([-1, *spoke, len(read)]):
        unread = range(before + 1, after)
        if not unread and int(begins[after]) not in loops:
            continue
        first = frames[before][1] if before >= 0 else 0
        last = frames[after][0] if after < len(read) else len(found.logits)
        heard, start, end = _heard(found, first, last, units)
        if not unread and len(heard.replace(" ", "")) < _LEAST_HEARD:
            continue
        begin = spoken.written[before + 1] if unread else spoken.written[before] + 1 if before >= 0 else 0
        stop = spoken.written[after - 1] + 1 if unread else begin
        written = " ".join(word.text for word in text.words[begin:stop])
        yield Difference(found.time(start), found.time(max(start, end)), begin, stop, written, heard)


def _heard(found: LongLogits, first: int, last: int, units: SpellingUnits) -> tuple[str, int, int]:
    """What the model wrote between two frames, and from where to where; if nothing, the whole stretch."""
    if last <= first:
        return "", first, first
    piece = found.logits[first:last]
    text = units.decode(greedy(piece, BLANK)[0])
    sounds = (piece.argmax(1) != BLANK).nonzero().flatten()
    if not text or not len(sounds):
        return "", first, last
    return text, first + int(sounds[0]), first + int(sounds[-1]) + 1


def texts_of(words: Sequence[AlignedWrittenWord]) -> str:
    """Join words.

    Args:
        words: The words.

    Returns:
        Their text as it is written.
    """
    return " ".join(word.text for word in words)
