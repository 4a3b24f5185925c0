"""The optimiser steps of an epoch: from a corpus in memory, or from shards (`shard_steps`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wildctc.distributed import Processes
from wildctc.features.cache import GivesFeatures
from wildctc.features.stats import FeatureStats
from wildctc.training.batches import Batch, Batches, parts_for, plan_batches
from wildctc.training.checkpoints import resumed_parts
from wildctc.training.lost import Lost
from wildctc.training.objective import Objective
from wildctc.training.settings import Config
from wildctc.training.targets import Example

TRAIN_SAMPLE = 100  # training utterances on which the bypass posterior is measured


@dataclass(frozen=True)
class Step:
    """What one optimiser step is made of.

    Attributes:
        count: The utterances of the step, in all processes.
        shares: How many batches, or parts of batches, this process has.
        batches: These.
        ids: Some of the utterances, for messages.
        waited: Seconds that were spent on waiting for the batches already.
        last: Whether it is known to be the last of its epoch.
    """

    count: int
    shares: int
    batches: Iterator[Batch]
    ids: Sequence[str]
    waited: float = 0.0
    last: bool = False


@dataclass(frozen=True)
class Position:
    """Where an epoch stands.

    Attributes:
        epoch: The epoch, from 1.
        step: How many steps of it are done.
        places: Where each stream of shards stands; None at the beginning of an epoch, and without shards.
    """

    epoch: int
    step: int = 0
    places: Any = None


class Steps(Protocol):
    """Gives the steps of a run.

    Attributes:
        per_epoch: How many there are; of shards, about how many.
    """

    @property
    def per_epoch(self) -> int: ...

    def take(self, count: int) -> tuple[Sequence[Example], GivesFeatures]:
        """Take evenly spaced training utterances, on which the model is measured.

        Args:
            count: How many at most.

        Returns:
            Their examples, and what gives their features.
        """
        ...

    def epoch(self, position: Position, stats: FeatureStats, parts: int) -> Iterator[Step]:
        """Go through an epoch.

        Args:
            position: Where to begin.
            stats: Normalise the features.
            parts: Into how many parts each batch is cut; of shards, how many lanes there are.

        Yields:
            The steps. The batches of a step must be taken before the next step.
        """
        ...

    def parts(self, processes: int) -> int:
        """Choose into how many parts the work of a step is cut, which decides what a run computes.

        Args:
            processes: The number of training processes.

        Returns:
            The parts of each batch; of shards, the number of lanes.
        """
        ...

    def resumed_parts(self, state: dict[str, Any], processes: int) -> int:
        """Choose the same for a run that resumes.

        Args:
            state: The state of its checkpoint.
            processes: The number of training processes now.

        Returns:
            The number of parts.
        """
        ...

    def places(self) -> Any:
        """Where the epoch stands, for a checkpoint. All processes must call this.

        Returns:
            What `Position` holds.
        """
        ...


class ExampleSteps:
    """The steps of a corpus whose examples are all in memory.

    Attributes:
        examples: The training examples.
        per_epoch: How many steps an epoch has; epochs differ by a step at most.
        features: Gives features.

    Args:
        examples: The training examples.
        features: Gives features.
        config: The settings.
        frame_rate: Frames of features a second.
        processes: The training processes.
        lost: Records utterances that become unreadable.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        features: GivesFeatures,
        config: Config,
        frame_rate: float,
        processes: Processes,
        lost: Lost,
    ) -> None:
        self.examples, self.features, self.config, self.lost = examples, features, config, lost
        self.processes, self._budget = processes, int(config.data.batch_seconds * frame_rate)
        self.per_epoch = len(self._groups(1))

    def take(self, count: int) -> tuple[Sequence[Example], GivesFeatures]:
        """Take evenly spaced training utterances, on which the model is measured.

        Args:
            count: How many at most.

        Returns:
            Their examples, and what gives their features.
        """
        return self.examples[:: -(-len(self.examples) // count)], self.features

    def _groups(self, epoch: int) -> list[list[list[int]]]:
        """The batches of an epoch, in groups: a group makes one optimiser step."""
        plan = plan_batches([e.frames for e in self.examples], self._budget, self.config.seed, epoch)
        size = self.config.optimizer.accumulate
        return [plan[i : i + size] for i in range(0, len(plan), size)]

    def epoch(self, position: Position, stats: FeatureStats, parts: int) -> Iterator[Step]:
        """Go through an epoch.

        Args:
            position: Where to begin.
            stats: Normalise the features.
            parts: Into how many parts each batch is cut.

        Yields:
            The steps.
        """
        groups = self._groups(position.epoch)
        plan = [batch for group in groups for batch in group]
        start = sum(map(len, groups[: position.step]))
        augment, round = self.config.spec_augment, 2 * position.epoch
        key = (self.config.seed, position.epoch)
        copies = Objective(self.config).copies
        batches = Batches(self.examples, plan, self.features, stats, augment, key, parts, self.lost, round, copies)
        loader = batches.loader(start, self.config.data.workers, self.processes, self.config.optimizer.accumulate)
        for number, group in enumerate(groups[position.step :], start=position.step):
            shares = -(-len(group) * parts // self.processes.size)  # the same number in every process
            ids = [self.examples[i].utterance.id for batch in group for i in batch[:3]]
            mine = (next(loader) for _ in range(shares))
            yield Step(sum(map(len, group)), shares, mine, ids, last=number == len(groups) - 1)

    def parts(self, processes: int) -> int:
        """Choose into how many parts each batch is cut.

        Args:
            processes: The number of training processes.

        Returns:
            The number of parts.
        """
        return parts_for(self.config.optimizer.accumulate, processes)

    def resumed_parts(self, state: dict[str, Any], processes: int) -> int:
        """Keep the number of parts, if the number of processes allows it.

        Args:
            state: The state of the checkpoint.
            processes: The number of training processes now.

        Returns:
            The number of parts.
        """
        return resumed_parts(state, self.config.optimizer.accumulate, processes)

    def places(self) -> None:
        """The number of the step says all.

        Returns:
            None.
        """
