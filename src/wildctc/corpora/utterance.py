"""One utterance of a corpus, and what is wrong with one that cannot be used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.json_lines import RowError


@dataclass(frozen=True)
class Utterance:
    """A stretch of one audio file and what was said in it.

    duration: seconds from `start`; 0 if neither the manifest nor the file tells, and then all of the file from `start`.
    channel: counted from 0; None: the mean of all, which for a file with one channel is that channel.
    weights: one number for each word of `text`, which training adds to the weights of the word's bypasses; None: none.
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


class UtteranceError(WildCTCError):
    """An utterance that cannot be used: `id`, `path` and `reason` say which and why.

    What differs from one utterance to the next comes after a colon in the reason (`kind`: the words before it), so that
    many errors can be counted by kind.
    """

    def __init__(self, utterance: Utterance, reason: str) -> None:
        super().__init__(f"{utterance.id} ({utterance.audio}): {reason}")
        self.id, self.path, self.reason = utterance.id, utterance.audio, reason

    @property
    def kind(self) -> str:
        return self.reason.partition(":")[0]

    def __reduce__(self) -> Any:  # a data-loading worker hands it to its parent
        return UtteranceError, (Utterance(self.id, self.path), self.reason)


def bad_row(error: RowError, id: object = None) -> UtteranceError:
    """A line of a corpus that gives no utterance: an utterance that cannot be used. id: the line's, if it has one."""
    place = Path(f"{error.path}:{error.line}")
    return UtteranceError(Utterance(f"line {error.line}" if id is None else str(id), place), error.reason)
