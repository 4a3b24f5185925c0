"""From audio to a transcript with the times of its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch

from wildctc.audio.recordings import Recording
from wildctc.errors import WildCTCError
from wildctc.features.front_end import FrontEnd, NotFinite, extract
from wildctc.lattice.align import wildcard_align
from wildctc.recognizer.decoding import best_hypothesis
from wildctc.text.units import Units


@dataclass(frozen=True)
class Word:
    """A word and when it was said, in seconds from the beginning of the audio.

    A CTC model marks sounds rather than their extent: a word begins with its first letter and ends with its last.
    """

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript:
    """What was said in so many seconds of audio. score: natural-log probability of the text."""

    text: str = ""
    words: list[Word] = field(default_factory=list)
    score: float = 0.0
    duration: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON; times are rounded to milliseconds."""
        words = [asdict(w) | {"start": round(w.start, 3), "end": round(w.end, 3)} for w in self.words]
        return {"text": self.text, "duration": round(self.duration, 3), "score": round(self.score, 4), "words": words}


class Transcriber(Protocol):
    """What transcription asks of a model: `Recognizer` has it."""

    @property
    def front_end(self) -> FrontEnd: ...
    @property
    def units(self) -> Units: ...
    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]: ...
    def times(self, frames: int, duration: float) -> list[float]: ...


def transcribe_pieces(model: Transcriber, sound: Recording, beam: int = 10) -> Iterator[Transcript]:
    """The transcript of each piece of a sound, cut at pauses; words have their times in the whole."""
    for start, end, wave in sound.pieces(model.front_end.sampling_rate):
        try:
            [logits] = model.batch_logits([extract(model.front_end, wave)])
        except NotFinite as error:
            raise WildCTCError(f"{sound.name}: {error}") from None
        best = best_hypothesis(logits, model.units, beam)
        times = [start + second for second in model.times(len(logits), end - start)]
        words = time_words(logits, best.ids, model.units, times)
        yield Transcript(best.text, words, best.score, end - start)


def join(pieces: Iterable[Transcript]) -> Transcript:
    """Consecutive pieces as one transcript.

    >>> join([Transcript("good", [], -1.0, 2.0), Transcript(), Transcript("night", [], -0.5, 1.0)])
    Transcript(text='good night', words=[], score=-1.5, duration=3.0)
    """
    found = list(pieces)
    text = " ".join(piece.text for piece in found if piece.text)
    words = [word for piece in found for word in piece.words]
    return Transcript(text, words, sum(p.score for p in found), sum(p.duration for p in found))


def time_words(logits: torch.Tensor, ids: list[int], units: Units, times: Sequence[float]) -> list[Word]:
    """The words of label ids on the best path through logits (T, V); times: of its frames, and the end of the last."""
    if not ids:
        return []
    [path] = wildcard_align(logits.unsqueeze(1), torch.tensor([ids]), [len(logits)], [len(ids)])
    words = []
    for _, group in groupby(zip(units.words(ids), path.tokens, strict=True), key=lambda pair: pair[0]):
        spans = [span for _, span in group]
        said = [span for span in spans if units.decode([span.label])]  # a space has no time of its own
        if said:
            text = units.decode([span.label for span in spans])
            words.append(Word(text, times[said[0].start], times[said[-1].end]))
    return words
