"""Transcribe audio, with the times of words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from wildctc.audio.recordings import Recording
from wildctc.errors import WildCTCError
from wildctc.features.front_end import FrontEnd, NotFinite, extract
from wildctc.lattice.align import wildcard_align
from wildctc.recognizer.confidence import Calibration, gather_evidence
from wildctc.recognizer.language_model import Rescorer, find_texts


@dataclass(frozen=True)
class Word:
    """A word and its time.

    A CTC model marks sounds, not their extent: a word begins with its first letter and ends with its last.

    Attributes:
        text: The word.
        start: Seconds from the start of the audio.
        end: Seconds from the start of the audio.
        confidence: The probability that it is right; None if the model was not calibrated.
    """

    text: str
    start: float
    end: float
    confidence: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert the word to JSON.

        Returns:
            Its content; times are rounded to milliseconds, and there is a confidence only if it is known.
        """
        row = asdict(self) | {"start": round(self.start, 3), "end": round(self.end, 3)}
        known = row.pop("confidence")
        return row if known is None else row | {"confidence": round(known, 4)}


@dataclass(frozen=True)
class Transcript:
    """What was said in a piece of audio.

    Attributes:
        text: The text.
        words: Its words with their times.
        score: The natural-log probability of the text.
        duration: Seconds of audio.
    """

    text: str = ""
    words: list[Word] = field(default_factory=list)
    score: float = 0.0
    duration: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Convert the transcript to JSON.

        Returns:
            Its content; times are rounded to milliseconds.
        """
        words = [word.to_dict() for word in self.words]
        return {"text": self.text, "duration": round(self.duration, 3), "score": round(self.score, 4), "words": words}


class WritingUnits(Protocol):
    """What transcription needs of a model's units."""

    def decode(self, ids: Iterable[int], /) -> str:
        """Convert labels into text.

        Args:
            ids: Labels; blanks are skipped.

        Returns:
            The text.
        """
        ...

    def words(self, ids: Iterable[int], /) -> list[int]:
        """Find the word of each label.

        Args:
            ids: Labels.

        Returns:
            For each label the number of its word; −1 for none.
        """
        ...


class Transcriber(Protocol):
    """What transcription needs of a model. `Recognizer` has it."""

    @property
    def front_end(self) -> FrontEnd:
        """Converts audio to features."""
        ...

    @property
    def units(self) -> WritingUnits:
        """What the model writes."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """How sure it may be of its words."""
        ...

    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Compute the logits of a batch.

        Args:
            features: (T, F) of each utterance, from the front end, not normalised.

        Returns:
            (T', V) of each utterance.
        """
        ...

    def times(self, frames: int, duration: float) -> list[float]:
        """Compute when each frame of logits starts, and when the last one ends.

        Args:
            frames: The number of frames.
            duration: Seconds of audio.

        Returns:
            frames + 1 times in seconds.
        """
        ...


def transcribe_pieces(
    model: Transcriber, sound: Recording, beam: int = 10, rescorer: Rescorer | None = None
) -> Iterator[Transcript]:
    """Transcribe a recording piece by piece. It is cut at pauses.

    Args:
        model: The recogniser.
        sound: The recording.
        beam: Prefixes kept; 1 is greedy.
        rescorer: Chooses among the beam's texts; None takes the most probable.

    Yields:
        The transcript of each piece. The times of words count from the start of the recording.

    Raises:
        WildCTCError: The samples or features are not finite.
    """
    for start, end, wave in sound.pieces(model.front_end.sampling_rate):
        try:
            [logits] = model.batch_logits([extract(model.front_end, wave)])
        except NotFinite as error:
            raise WildCTCError(f"{sound.name}: {error}") from None
        [best] = find_texts(logits, model.units, beam, rescorer)
        times = [start + second for second in model.times(len(logits), end - start)]
        words = time_words(logits, best.ids, model.units, times, model.calibration)
        yield Transcript(best.text, words, best.score, end - start)


def join(pieces: Iterable[Transcript]) -> Transcript:
    """Join consecutive pieces.

    Args:
        pieces: Their transcripts.

    Returns:
        One transcript.

    >>> join([Transcript("good", [], -1.0, 2.0), Transcript(), Transcript("night", [], -0.5, 1.0)])
    Transcript(text='good night', words=[], score=-1.5, duration=3.0)
    """
    found = list(pieces)
    text = " ".join(piece.text for piece in found if piece.text)
    words = [word for piece in found for word in piece.words]
    return Transcript(text, words, sum(p.score for p in found), sum(p.duration for p in found))


def time_words(
    logits: torch.Tensor,
    ids: list[int],
    units: WritingUnits,
    times: Sequence[float],
    calibration: Calibration | None = None,
) -> list[Word]:
    """Find the times of words on the best path.

    Args:
        logits: (T, V).
        ids: The labels of the text.
        units: Convert labels to text and words.
        times: T + 1 seconds: when each frame starts, and when the last one ends.
        calibration: Gives words their confidence; None gives none.

    Returns:
        The words with their times.
    """
    return [
        Word(word.text, times[word.start], times[word.end], calibration(word.evidence) if calibration else None)
        for word in align_words(logits, ids, units)
    ]


class WordOnPath(NamedTuple):
    """A word on the best path.

    Attributes:
        text: The word.
        start: Its first frame.
        end: The frame after its last one.
        evidence: What speaks for it; see `confidence`.
    """

    text: str
    start: int
    end: int
    evidence: list[float]


def align_words(logits: torch.Tensor, ids: list[int], units: WritingUnits) -> list[WordOnPath]:
    """Find the frames of words on the best path.

    Args:
        logits: (T, V).
        ids: The labels of the text.
        units: Convert labels to text and words.

    Returns:
        The words.
    """
    if not ids:
        return []
    [path] = wildcard_align(logits.unsqueeze(1), torch.tensor([ids]), [len(logits)], [len(ids)])
    log_probs, words = logits.detach().float().log_softmax(-1).cpu().numpy(), []
    for _, group in groupby(zip(units.words(ids), path.tokens, strict=True), key=lambda pair: pair[0]):
        spans = [span for _, span in group]
        said = [span for span in spans if units.decode([span.label])]  # a space has no time of its own
        if said:
            text = units.decode([span.label for span in spans])
            evidence = gather_evidence(log_probs, [(span.label, span.start, span.end) for span in said])
            words.append(WordOnPath(text, said[0].start, said[-1].end, evidence))
    return words
