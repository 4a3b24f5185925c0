"""Utterances that a run loses on its way: their audio is missing or damaged, and their features are not in the cache.

The run continues without them, up to a limit. A lost utterance is recorded with the round in which it was first
missing, and is skipped from then on, even if its audio is back: a run that was killed therefore repeats what it did.
Each process writes its own file, and reads the files of all when a round begins.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wildctc.corpora.utterance import UtteranceError
from wildctc.errors import WildCTCError
from wildctc.files import write_text

_log = logging.getLogger(__name__)


class Lost:
    """The lost utterances of a split.

    A round is the training of an epoch (2 · epoch) or its validation (2 · epoch + 1). It has each utterance once at
    each speed.

    Args:
        folder: Where the records are kept.
        split: "train" or "dev".
        total: How many utterances the split has.
        limit: The share of utterances that may be lost; never all of them.
        rank: The number of this process.
    """

    def __init__(self, folder: Path, split: str, total: int, limit: float, rank: int = 0) -> None:
        """Of `total` utterances at most the share `limit` may be lost, and never all; rank: of this process."""
        self.folder, self.split, self.total = folder, split, total
        self.budget = min(int(limit * total), total - 1)
        self.mine = folder / f"lost-{split}-{rank}.json"

    def until(self, round: int) -> frozenset[tuple[str, float]]:
        """Read what was lost so far.

        Args:
            round: The last round that counts.

        Returns:
            Utterance ids and speeds.
        """
        rows = [row for path in self.folder.glob(f"lost-{self.split}-*.json") for row in _read(path)]
        return frozenset((row["id"], row["speed"]) for row in rows if row["round"] <= round)

    def add(self, round: int, found: Sequence[tuple[UtteranceError, float]]) -> None:
        """Record lost utterances, and warn about them.

        Args:
            round: The round.
            found: The error and the speed of each.

        Raises:
            WildCTCError: More than the limit are lost.
        """
        rows = _read(self.mine)
        rows += [{"id": e.id, "speed": speed, "round": round, "reason": e.reason} for e, speed in found]
        lost = len({id for id, _ in self.until(round)} | {row["id"] for row in rows})
        if lost > self.budget:
            raise WildCTCError(
                f"{lost} of {self.total} utterances of {self.split} were lost since the run started, more than the "
                f"{self.budget} that --data.max_bad allows; the last: {found[-1][0]}. "
                "Repair them and resume, or allow more"
            )
        write_text(self.mine, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
        for error, _ in found:
            _log.warning("lost, and skipped from here on: %s", error)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise WildCTCError(f"{path}: damaged ({error}); without it the run cannot be repeated exactly") from None
