"""Align transcripts to audio: the best path of each transcript through a recogniser's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import torch

from wildctc.corpora.preparation import Rejects
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.lattice.align import wildcard_align
from wildctc.lattice.arcs import Wildcards
from wildctc.recognizer.batch import logits_batches
from wildctc.recognizer.choices import Choice, choose_labels, choose_writings
from wildctc.recognizer.hf_checkpoint import Checkpoint
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.textgrid import Interval, to_textgrid
from wildctc.recognizer.transcription import Transcript, Word
from wildctc.scoring.transcripts import read_transcripts
from wildctc.text.alternatives import Writings, every_word
from wildctc.text.reader import Reader
from wildctc.text.units import name_characters


@dataclass(frozen=True)
class AlignedToken:
    """A token on the audio.

    Attributes:
        text: The token.
        start: Seconds from the start of the utterance at which it, or the ★ in its place, begins.
        end: When it ends.
        bypassed: Whether the path takes ★ in its place.
    """

    text: str
    start: float
    end: float
    bypassed: bool


@dataclass(frozen=True)
class AlignedWord:
    """A word on the audio, from its first letter to its last: a space has no time of its own.

    Attributes:
        text: The word.
        tokens: Its tokens.
    """

    text: str
    tokens: list[AlignedToken]

    @property
    def letters(self) -> list[AlignedToken]:
        return [t for t in self.tokens if t.text.strip()] or self.tokens

    @property
    def start(self) -> float:
        return self.letters[0].start

    @property
    def end(self) -> float:
        return self.letters[-1].end

    @property
    def bypassed(self) -> float:
        """The share of its tokens that were bypassed."""
        return sum(t.bypassed for t in self.letters) / len(self.letters)

    @property
    def marked(self) -> str:
        """The word with bypassed tokens in brackets.

        >>> AlignedWord("abc", [AlignedToken(text, 0.0, 0.1, text in "bc") for text in (" ", "a", "b", "c")]).marked
        'a[bc]'
        """
        parts = []
        for bypassed, group in groupby(self.tokens, key=lambda t: t.bypassed):
            text = "".join(t.text for t in group).strip()
            parts.append(f"[{text or '␣'}]" if bypassed else text)
        return "".join(parts)


@dataclass(frozen=True)
class AlignedUtterance:
    """A transcript on its audio.

    Attributes:
        id: The utterance's id.
        channel: The channel of the audio file; None for all.
        text: The normalised transcript.
        score: The log-weight of the path.
        words: The words.
        unwritten: Start and end of speech that the transcript lacks, for each gap between tokens that has some.
        choices: Places of the transcript that have alternatives: which one was said, and how surely.
        recording: The name of the audio file.
        offset: Second of the file at which the utterance starts.
        duration: Seconds of the utterance.
    """

    id: str
    channel: int | None
    text: str
    score: float
    words: list[AlignedWord]
    unwritten: list[tuple[float, float]]
    recording: str = ""
    offset: float = 0.0
    duration: float = 0.0
    choices: list[Choice] = field(default_factory=list)

    def rows(self) -> list[tuple[float, float, str, str, float]]:
        """List words and ★ in the order of time.

        Returns:
            Start, end, text, text with marks, and the share that was bypassed.
        """
        rows = [(w.start, w.end, w.text, w.marked, w.bypassed) for w in self.words]
        return sorted([*rows, *((start, end, "★", "★", 1.0) for start, end in self.unwritten)], key=lambda row: row[:2])

    def to_text(self) -> str:
        """Format the alignment for a terminal.

        Returns:
            A line about the utterance, then a line with times for each word, then one for each place with alternatives.
        """
        tokens = [t for w in self.words for t in w.tokens]
        head = f"{self.id}: {sum(t.bypassed for t in tokens)} of {len(tokens)} tokens bypassed"
        head += f", {len(self.unwritten)} × unwritten speech" if self.unwritten else ""
        words = [f"{start:8.2f} {end:7.2f}  {marked}" for start, end, _, marked, _ in self.rows()]
        return "\n".join([head, *words, *(f"{'said':>16}  {choice}" for choice in self.choices)])

    def to_ctm(self) -> str:
        """Format the alignment as NIST CTM.

        Returns:
            Lines of id, channel (from 1), start, duration, word, and as confidence the share that was not bypassed.
        """
        return "\n".join(
            f"{self.id} {(self.channel or 0) + 1} {start:.3f} {end - start:.3f} {text} {1 - bypassed:.2f}"
            for start, end, text, _, bypassed in self.rows()
        )

    def to_textgrid(self) -> str:
        """Format the alignment as a TextGrid.

        Returns:
            The tiers words, with marks, and tokens; ★ is speech that the transcript lacks.
        """
        words = [Interval(start, end, marked) for start, end, _, marked, _ in self.rows()]
        tokens = [
            Interval(t.start, t.end, f"[{t.text}]" if t.bypassed else t.text) for w in self.words for t in w.letters
        ]
        return to_textgrid(self.duration, {"words": words, "tokens": tokens})

    def transcript(self) -> Transcript:
        """Convert the alignment to a transcript, for subtitles.

        Returns:
            The words of which a part was not bypassed, with their times.
        """
        words = [Word(w.text, w.start, w.end) for w in self.words if w.bypassed < 1.0]
        return Transcript(self.text, words, self.score, self.duration)

    def to_supervision(self) -> dict[str, Any]:
        """Convert the alignment to a supervision of lhotse.

        Returns:
            The supervision, whose times count from the start of the recording, with its words as `alignment`.
        """
        items = [
            [w.text, round(self.offset + w.start, 3), round(w.end - w.start, 3), round(1 - w.bypassed, 3)]
            for w in self.words
        ]
        row = {"id": self.id, "recording_id": self.recording, "start": self.offset, "duration": self.duration}
        return row | {"channel": self.channel or 0, "text": self.text, "alignment": {"word": items}}

    def to_dict(self) -> dict[str, Any]:
        """Convert the alignment to JSON.

        Returns:
            Its content, with times in seconds.
        """
        words = [
            {"text": w.text, "start": w.start, "end": w.end, "bypassed_share": round(w.bypassed, 3)}
            | {"tokens": [asdict(token) for token in w.tokens]}
            for w in self.words
        ]
        unwritten = [{"start": start, "end": end} for start, end in self.unwritten]
        found = {"id": self.id, "text": self.text, "score": self.score, "words": words, "unwritten": unwritten}
        return found | ({"choices": [choice.to_dict() for choice in self.choices]} if self.choices else {})


def align_utterances(
    model: Recognizer | Checkpoint,
    utterances: Sequence[Utterance],
    wildcards: Wildcards,
    *,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
    reader: Reader | None = None,
) -> list[AlignedUtterance]:
    """Align the utterances of a manifest. Utterances that cannot be aligned are reported and skipped.

    Args:
        model: The recogniser.
        utterances: The manifest's utterances.
        wildcards: The graph.
        cache: A folder of computed features; None computes them.
        workers: Data-loading processes.
        max_bad: The share of utterances that may be skipped.
        reader: Reads the transcripts; None normalises as the model's units do, without variants.

    Returns:
        The alignments, in the manifest's order.

    Raises:
        WildCTCError: No utterance has a text, or too many were skipped.
    """
    rejects = Rejects(max_bad)
    usable = []
    transcripts = read_transcripts(utterances, reader or Reader(model.units.normalizer))
    for utterance in utterances:
        if outside := model.units.missing(every_word(transcripts[utterance.id])):
            rejects.add(UtteranceError(utterance, f"{model.units.outside}: {name_characters(outside)}"))
        else:
            usable.append(utterance)
    if not any(transcripts.values()):
        raise WildCTCError("there is nothing to align: no utterance of the manifest has a text")
    found = {}
    batches = logits_batches(model, usable, rejects, cache=cache, workers=workers, title="aligning")
    for utterance, logits in chain.from_iterable(batches):
        try:
            found[utterance.id] = _align_nearest(model, utterance, transcripts[utterance.id], logits, wildcards)
        except UtteranceError as error:
            rejects.add(error)
    rejects.check(len(utterances))
    return [found[u.id] for u in utterances if u.id in found]


def _align_nearest(
    model: Recognizer | Checkpoint,
    utterance: Utterance,
    transcript: str | Writings,
    logits: torch.Tensor,
    wildcards: Wildcards,
) -> AlignedUtterance:
    """Align the most probable writing. `wildcard_align` is asked for the path of this writing alone."""
    if isinstance(transcript, str):
        return align(model, replace(utterance, text=transcript), logits, wildcards)
    try:
        [chosen] = choose_writings(model.units, [transcript], [logits])
    except WildCTCError as error:
        raise UtteranceError(utterance, f"alternatives: {error}") from None
    if chosen is None:
        raise UtteranceError(utterance, f"transcript too long for its audio in all its writings: {len(logits)} frames")
    found = align(model, replace(utterance, text=chosen.text), logits, wildcards)
    return replace(found, choices=chosen.choices)


def align(
    model: Recognizer | Checkpoint, utterance: Utterance, logits: torch.Tensor, wildcards: Wildcards
) -> AlignedUtterance:
    """Align one utterance.

    Args:
        model: The recogniser.
        utterance: The utterance.
        logits: (T, V), its logits.
        wildcards: The graph.

    Returns:
        The best path.

    Raises:
        UtteranceError: The transcript is too long for its audio.
        WildCTCError: The logits are not numbers.
    """
    units = model.units
    labels = choose_labels(units, utterance.text, logits)
    words = units.words(labels)
    arguments = logits.unsqueeze(1), torch.tensor([labels], dtype=torch.int64), [len(logits)], [len(labels)]
    [path] = wildcard_align(*arguments, wildcards=wildcards, words=torch.tensor([words], dtype=torch.int64))
    if path.score != path.score:
        raise WildCTCError(f"{utterance.id}: the model's outputs are not numbers (NaN): has training diverged?")
    if path.score == -torch.inf:
        reason = f"transcript too long for its audio: {len(labels)} tokens, {len(logits)} frames"
        raise UtteranceError(utterance, reason)
    times = [round(second, 3) for second in model.times(len(logits), utterance.duration)]
    tokens = [
        AlignedToken(units.tokens[span.label].replace("▁", " "), times[span.start], times[span.end], span.bypassed)
        for span in path.tokens
    ]
    aligned = []
    for _, group in groupby(zip(words, labels, tokens, strict=True), key=lambda row: row[0]):
        inside = list(group)
        text = units.decode(label for _, label, _ in inside)
        aligned.append(AlignedWord(text, [token for _, _, token in inside]))
    unwritten = []
    for _, stars in groupby((w for w in path.wildcards if w.kind == "self_loop"), key=lambda star: star.first):
        gap = list(stars)
        unwritten.append((times[gap[0].start], times[gap[-1].end]))
    text = units.normalizer(utterance.text)
    duration = utterance.duration or len(logits) / model.frame_rate
    return AlignedUtterance(
        utterance.id, utterance.channel, text, round(path.score, 4), aligned, unwritten, utterance.audio.stem,
        utterance.start, duration,
    )  # fmt: skip
