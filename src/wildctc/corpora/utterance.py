"""One utterance of a corpus, and what is wrong with one that cannot be used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Utterance:
    """A part of an audio file, and what was said in it.

    Attributes:
        id: Unique in its manifest.
        audio: The file.
        text: The transcript; it may have alternatives in braces (`wildctc.text.alternatives`).
        speaker: The name of the speaker, if it is known.
        duration: Seconds from `start`. 0 if neither the manifest nor the file says it; the utterance is then the whole
            file from `start` on.
        start: Seconds from the start of the file.
        channel: From 0; None for the mean of all channels.
        split: train, dev or test, if it is known; while a corpus is read, the name of the subset.
        language: The language, if it is known.
        weights: One number for each word of `text`, which training adds to the weights of the word's bypasses, or None.
        fields: Further fields of the manifest, such as the annotator: names and short values.
        texts: Several transcripts of the utterance, which stand in the place of `text` where alternatives are read.
        annotators: Who wrote each of the `texts`; none if it is not known.
    """

    id: str
    audio: Path
    text: str = ""
    speaker: str | None = None
    duration: float = 0.0
    start: float = 0.0
    channel: int | None = None
    split: str | None = None
    language: str | None = None
    weights: tuple[float, ...] | None = None
    fields: tuple[tuple[str, str], ...] = ()
    texts: tuple[str, ...] = ()
    annotators: tuple[str, ...] = ()

    def group(self, by: str) -> str | None:
        """Find the value of a field that utterances are grouped by.

        Args:
            by: "speaker", "language", or the name of a further field.

        Returns:
            The value; None if there is none.
        """
        return getattr(self, by) if by in ("speaker", "language") else dict(self.fields).get(by)


class UtteranceError(WildCTCError):
    """An utterance that cannot be used.

    Attributes:
        id: Of the utterance.
        path: Its audio file, or the file and line that describe it.
        reason: What is wrong. Words before a colon name the kind of error; details of this utterance follow the colon.
    """

    def __init__(self, utterance: Utterance, reason: str) -> None:
        super().__init__(f"{utterance.id} ({utterance.audio}): {reason}")
        self.id, self.path, self.reason = utterance.id, utterance.audio, reason

    @property
    def kind(self) -> str:
        """The kind of error, by which errors are counted."""
        return self.reason.partition(":")[0]

    def __reduce__(self) -> Any:  # a data-loading worker pickles it for its parent
        return UtteranceError, (Utterance(self.id, self.path), self.reason)


def bad_row(error: RowError, id: object = None) -> UtteranceError:
    """Turn a line that cannot be used into an utterance that cannot be used.

    Args:
        error: What is wrong with the line.
        id: The id of its utterance, if it is known.

    Returns:
        The error of the utterance.
    """
    place = Path(f"{error.path}:{error.line}")
    return UtteranceError(Utterance(f"line {error.line}" if id is None else str(id), place), error.reason)
