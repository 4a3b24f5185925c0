"""Choose a part of the training data: a number of hours, or each sentence once. The same seed gives the same part."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError


@dataclass(frozen=True)
class Subset:
    """Which training utterances are taken.

    Utterances are drawn in an order that depends only on their ids and the seed. So 5 hours are a part of 10 hours, on
    every machine.

    Attributes:
        hours: The most hours to take, at random; None takes all.
        unique_sentences: Whether to take only one utterance of those with the same text, also at random.
        seed: Another seed gives other utterances.

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
        """Choose utterances.

        Args:
            utterances: All of the training data.

        Returns:
            The chosen ones, in their order.
        """
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
