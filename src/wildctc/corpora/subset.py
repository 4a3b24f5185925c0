"""A part of the training data: so many hours of it, each sentence once, the same for everybody with the same seed."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError


@dataclass(frozen=True)
class Subset:
    """Which training utterances are taken.

    hours: a random choice of at most so many; None: all. unique_sentences: of those with the same text one, also at
    random. seed: another one chooses others. Utterances are drawn in an order that depends on their ids and the seed
    alone, so that 5 hours are a part of 10, on every machine.

    >>> from pathlib import Path
    >>> spoken = [Utterance(f"u{i}", Path("a.wav"), f"text {i % 3}", duration=1800) for i in range(9)]
    >>> len(Subset(hours=2).of(spoken)), len(Subset(unique_sentences=True).of(spoken))
    (4, 3)
    """

    hours: float | None = None
    unique_sentences: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hours is not None and not self.hours > 0:
            raise WildCTCError(f"--hours must be greater than 0, got {self.hours:g}")

    def of(self, utterances: Sequence[Utterance]) -> list[Utterance]:
        """The chosen ones, in the order in which they were given."""
        taken: set[str] = set()
        texts: set[str] = set()
        seconds = 0.0
        for utterance in sorted(utterances, key=self._place):
            if self.unique_sentences and utterance.text in texts:
                continue
            seconds += utterance.duration
            if self.hours is not None and seconds > self.hours * 3600:
                break
            texts.add(utterance.text)
            taken.add(utterance.id)
        return [utterance for utterance in utterances if utterance.id in taken]

    def _place(self, utterance: Utterance) -> bytes:
        return hashlib.sha256(f"{self.seed} {utterance.id}".encode()).digest()
