"""A window of shards: the examples that are shuffled and bucketed together.

An epoch puts the shards into an order that is drawn from (seed, epoch), deals them to streams, and cuts each stream
into windows of consecutive shards. A window is to training what a small corpus is: its utterances are checked, grouped
by length and shuffled by the same functions. A corpus that is one window is therefore trained on as if it had no
shards, to the bit. Only one window of a stream is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from wildctc.claims import one_thread
from wildctc.corpora.shards import Shards
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.distributed import settle_before_fork
from wildctc.errors import WildCTCError
from wildctc.features.packed import OpenShard, ShardFeatures
from wildctc.features.stats import FeatureStats
from wildctc.recognizer.batch import Collected
from wildctc.scoring.transcripts import read_transcripts
from wildctc.text.reader import Reader
from wildctc.text.units import Units
from wildctc.training.batches import Batch, Batches, plan_batches
from wildctc.training.objective import Objective
from wildctc.training.settings import Config
from wildctc.training.targets import Example, make_target, too_long


class Place(NamedTuple):
    """Where a stream stands in an epoch.

    Attributes:
        window: The window.
        batch: The next batch of the window.
        taken: How many batches were taken from the stream.
        ended: Whether none are left.
    """

    window: int = 0
    batch: int = 0
    taken: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Window:
    """The usable utterances of some shards.

    Attributes:
        examples: The examples, by utterance, then by speed.
        errors: What is wrong with the other utterances.
        where: Of each utterance, the features of its shard and its number in it.
        speeds: The speeds.
    """

    examples: list[Example]
    errors: list[UtteranceError]
    where: dict[str, tuple[OpenShard, int]] = field(repr=False)
    speeds: tuple[float, ...] = (1.0,)

    def get(self, utterance: Utterance, speed: float = 1.0) -> np.ndarray:
        """Read the features of an utterance.

        Args:
            utterance: One of the window.
            speed: How many times as fast it is played.

        Returns:
            (frames, *shape of a frame) float32.
        """
        features, row = self.where[utterance.id]
        return features.get(utterance, row, self.speeds.index(speed))


@dataclass(frozen=True)
class Source:
    """What windows are made of.

    Attributes:
        shards: The shards.
        features: Their features.
        units: The units.
        reader: Reads transcripts.
        output_lengths: Frames of features (N,) → frames of logits (N,).
        config: The settings.
    """

    shards: Shards
    features: ShardFeatures
    units: Units
    reader: Reader
    output_lengths: Callable[[torch.Tensor], torch.Tensor]
    config: Config

    def open(self, numbers: Sequence[int], rows: Sequence[range | Sequence[int]] | None = None) -> Window:
        """Read some shards.

        Args:
            numbers: Of the shards.
            rows: Of each shard, which utterances; None: all.

        Returns:
            Their usable utterances.
        """
        where: dict[str, tuple[OpenShard, int]] = {}
        utterances: list[Utterance] = []
        for i, number in enumerate(numbers):
            found = self.shards.read(number, audio=self.features.folder is None)
            features = self.features.open(number)
            for row in range(len(found)) if rows is None else rows[i]:
                if found[row].duration <= self.config.data.max_duration:
                    utterances.append(found[row])
                    where[found[row].id] = features, row
        examples, errors = self._examples(utterances, where)
        return Window(examples, errors, where, self.features.speeds)

    def _examples(
        self, utterances: list[Utterance], where: dict[str, tuple[OpenShard, int]]
    ) -> tuple[list[Example], list[UtteranceError]]:
        bad = Collected()
        speeds = self.features.speeds
        transcripts = read_transcripts(utterances, self.reader)
        targets: dict[str, Example] = {}
        frames: dict[str, list[int]] = {}
        for utterance in utterances:
            features, row = where[utterance.id]
            frames[utterance.id] = features.frames[row].tolist()
            try:
                if min(frames[utterance.id]) == 0:
                    raise UtteranceError(utterance, f"too short, or not finite: no features of {self._front_end}")
                targets[utterance.id] = make_target(utterance, transcripts[utterance.id], self.units)
            except UtteranceError as error:
                bad.add(error)
        heard = [u for u in utterances if u.id in targets]
        short = too_long(heard, targets, frames, speeds, self.output_lengths, bad) if heard else set()
        examples = [
            replace(targets[u.id], speed=speed, frames=n)
            for u in heard
            if u.id not in short
            for speed, n in zip(speeds, frames[u.id], strict=True)
        ]
        return examples, bad.take()

    @property
    def _front_end(self) -> str:
        return self.features.front_end.name

    def windows(self, numbers: Sequence[int]) -> list[list[int]]:
        """Cut a list of shards into windows.

        Args:
            numbers: The shards, in their order.

        Returns:
            The shards of each window: as many as it takes to have `data.window` utterances.
        """
        found: list[list[int]] = []
        size = self.config.data.window
        for number in numbers:
            if not found or size >= self.config.data.window:
                found.append([])
                size = 0
            found[-1].append(number)
            size += self.shards.shards[number].utterances
        return found

    def streams(self, epoch: int, count: int) -> list[list[list[int]]]:
        """Deal the shards of an epoch to streams.

        Args:
            epoch: The epoch.
            count: How many streams there are.

        Returns:
            The windows of each stream.
        """
        order = list(range(len(self.shards)))
        if count > 1 or len(self.windows(order)) > 1:
            order = np.random.default_rng((self.config.seed, epoch)).permutation(len(order)).tolist()
        return [self.windows(order[number::count]) for number in range(count)]


@dataclass(frozen=True)
class Item:
    """What a stream gives.

    Attributes:
        place: Where the stream stands after it.
        batch: The batch; None at the end.
        errors: Utterances that cannot be used, of a window that was opened for this item.
    """

    place: Place
    batch: Batch | None = None
    errors: Sequence[UtteranceError] = ()


@dataclass(frozen=True)
class How:
    """What the batches of a stream depend on, besides its windows.

    Attributes:
        stats: Normalise the features.
        budget: The most frames of a batch, with padding.
        key: Seed and epoch; and the number of the stream, from 1, unless the epoch is one window.
    """

    stats: FeatureStats
    budget: int
    key: tuple[int, ...]


class Stream(IterableDataset[Item | WildCTCError]):
    """The batches of a stream in an epoch.

    Args:
        source: What windows are made of.
        windows: The shards of each window.
        how: What the batches depend on.
        place: Where to begin.
    """

    def __init__(self, source: Source, windows: Sequence[Sequence[int]], how: How, place: Place) -> None:
        self.source, self.windows, self.how, self.place = source, windows, how, place

    def __iter__(self) -> Iterator[Item | WildCTCError]:
        try:
            yield from self._items()
        except WildCTCError as error:  # returned, because an exception in a worker would be a traceback
            yield error

    def _items(self) -> Iterator[Item]:
        taken, errors = self.place.taken, list[UtteranceError]()
        for number in range(self.place.window, len(self.windows)):
            window = self.source.open(self.windows[number])
            first = self.place.batch if number == self.place.window else 0
            errors += window.errors
            key = self.how.key if len(self.how.key) == 2 else (*self.how.key, 1 + number)
            plan = plan_batches([e.frames for e in window.examples], self.how.budget, *key)
            config = self.source.config
            batches = Batches(
                window.examples, plan, window, self.how.stats, config.spec_augment, key, copies=Objective(config).copies
            )
            for position in range(first, len(plan)):
                batch = batches.batch(position)
                if batch.lost:
                    raise batch.lost[0][0]
                taken += 1
                yield Item(Place(number, position + 1, taken), batch, errors)
                errors = []
            del window, batches
            for shard in self.windows[number]:
                self.source.shards.done(shard)
        yield Item(Place(len(self.windows), 0, taken, True), None, errors)

    def run(self, workers: int) -> Iterator[Item]:
        """Go through the stream, in a data-loading process if there are any.

        Args:
            workers: 0: in this process.

        Yields:
            The items.

        Raises:
            WildCTCError: A shard cannot be read.
        """
        if workers:
            settle_before_fork()
        loader: Any = DataLoader(
            self, batch_size=None, num_workers=min(1, workers), prefetch_factor=4 if workers else None,
            generator=torch.Generator(), worker_init_fn=one_thread, pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        for item in loader:
            if isinstance(item, WildCTCError):
                raise item
            yield item
