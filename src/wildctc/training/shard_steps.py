"""The optimiser steps of a corpus in shards.

A run has lanes, one for each training process unless `data.lanes` says more. The number of lanes decides what a run
computes, not the number of processes. A lane has `data.streams` streams, which have shards of their own and are read by
a data-loading process each. A step takes the same number of batches from each lane; when a lane has none left, the last
steps of the epoch are smaller. The place of each stream is a part of the checkpoint.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wildctc.corpora.preparation import Rejects
from wildctc.distributed import Processes
from wildctc.errors import WildCTCError
from wildctc.features.cache import GivesFeatures
from wildctc.features.stats import FeatureStats
from wildctc.training.batches import Batch, plan_batches
from wildctc.training.shard_windows import How, Item, Place, Source, Stream
from wildctc.training.steps import Position, Step
from wildctc.training.targets import Example

_LOOKED_AT = 64  # shards that samples are taken from
_COPIED = 4  # the same, of shards that must be copied from an address


class ShardSteps:
    """The steps of a corpus in shards.

    Attributes:
        per_epoch: About how many steps an epoch has, which decides a cosine of the learning rate: exactly, if the
            corpus is one window.

    Args:
        source: The shards, and how they are read.
        processes: The training processes.
    """

    def __init__(self, source: Source, processes: Processes) -> None:
        self.source, self.processes, self.config = source, processes, source.config
        self._frames = self.config.data.batch_seconds * source.features.front_end.frame_rate  # of a batch
        self.per_epoch = self._estimate()
        self._places: dict[int, Place] = {}

    def take(self, count: int) -> tuple[Sequence[Example], GivesFeatures]:
        """Take evenly spaced training utterances, on which the model is measured.

        Args:
            count: How many; some of them may be unusable.

        Returns:
            Their examples, and what gives their features.
        """
        return take_sample(self.source, count)

    def _estimate(self) -> int:
        """Steps of an epoch, as the first window promises them."""
        source = self.source
        first = source.windows(range(len(source.shards)))[0]
        frames = [n for number in first for n in source.features.open(number).frames.flatten().tolist() if n]
        seconds = sum(source.shards.shards[number].seconds for number in first)
        batches = len(plan_batches(frames, int(self._frames), self.config.seed, 1))
        return max(1, math.ceil(batches * source.shards.seconds / seconds / self.config.optimizer.accumulate))

    def epoch(self, position: Position, stats: FeatureStats, parts: int) -> Iterator[Step]:
        """Go through an epoch.

        Args:
            position: Where to begin.
            stats: Normalise the features.
            parts: How many lanes there are.

        Yields:
            The steps.

        Raises:
            WildCTCError: Too many utterances cannot be used.
        """
        epoch = _Epoch(self, position, stats, lanes=parts)
        self._places = epoch.places
        number = position.step
        while True:
            begun = time.perf_counter()
            batches = epoch.take()
            waited = time.perf_counter() - begun
            count = int(self.processes.sum([float(sum(len(batch.ids) for batch in batches))])[0])
            if count == 0:
                break
            if self.processes.size > 1:  # every process has as many batches, and waits for the others equally often
                batches += [epoch.filler] * (epoch.most - len(batches))
            number += 1
            ids = [id for batch in batches for id in batch.ids[:3]]
            yield Step(count, len(batches), iter(batches), ids, waited)
        self._places = {}

    def parts(self, processes: int) -> int:
        """Choose the number of lanes.

        Args:
            processes: The number of training processes.

        Returns:
            What `data.lanes` says, or a lane for each process.

        Raises:
            WildCTCError: There are fewer lanes than processes, or fewer shards than streams.
        """
        lanes, each = self.config.data.lanes or processes, self.config.data.streams
        if lanes < processes:
            raise WildCTCError(f"data.lanes {lanes} are fewer than the {processes} processes, some of which would idle")
        if lanes * each > len(self.source.shards):
            raise WildCTCError(
                f"{self.source.shards.address}: {len(self.source.shards)} shards for {lanes * each} streams ({lanes} "
                f"lanes × {each}): pack the corpus again with a smaller --size, or use fewer"
            )
        return lanes

    def resumed_parts(self, state: dict[str, Any], processes: int) -> int:
        """Keep the number of lanes in the middle of an epoch; at its end it may change.

        Args:
            state: The state of the checkpoint.
            processes: The number of training processes now.

        Returns:
            The number of lanes.

        Raises:
            WildCTCError: There are more processes than lanes, in the middle of an epoch.
        """
        if state.get("places") is None:
            return self.parts(processes)
        lanes = int(state["parts"])
        if processes > lanes:
            raise WildCTCError(
                f"the run is in the middle of epoch {state['epoch']} with {lanes} lanes: resume it with {lanes} "
                "processes or fewer; at the beginning of an epoch it can have more"
            )
        return lanes

    def places(self) -> list[Place] | None:
        """Where each stream stands. All processes must call this.

        Returns:
            The places; None at the end of an epoch.
        """
        found = {number: place for part in self.processes.gather(self._places) for number, place in part.items()}
        return [found[number] for number in sorted(found)] or None


class _Epoch:
    """One epoch, as this process sees it.

    Attributes:
        places: Where each stream of this process stands.
        most: How many batches a process has in a step at most.
    """

    def __init__(self, steps: ShardSteps, position: Position, stats: FeatureStats, lanes: int) -> None:
        self.steps, config, processes = steps, steps.config, steps.processes
        together, each = config.optimizer.accumulate, config.data.streams
        self._each_lane = together // math.gcd(together, lanes)  # batches of a step
        cut = lanes // math.gcd(together, lanes)  # so that a step has as much speech whatever the number of lanes
        windows = steps.source.streams(position.epoch, lanes * each)
        key = (config.seed, position.epoch)
        whole = len(windows) == 1 and len(windows[0]) == 1
        budget = int(steps._frames) // cut
        self._streams = {
            number: (windows[number], How(stats, budget, key if whole else (*key, 1 + number)))
            for lane in range(lanes)[processes.rank :: processes.size]
            for number in range(lane * each, (lane + 1) * each)
        }
        self._lanes = [range(lane * each, (lane + 1) * each) for lane in range(lanes)[processes.rank :: processes.size]]
        self.most = -(-lanes // processes.size) * self._each_lane
        begun = position.places or [Place()] * (lanes * each)
        self.places = {number: Place(*begun[number]) for number in self._streams}
        self._iterators = {
            number: self._stream(number, self.places[number]).run(config.data.workers)
            for number in self._streams
            if not self.places[number].ended
        }
        self._filler: Batch | None = None
        shown = 10 if position.epoch == 1 else 0
        self._rejects = Rejects(config.data.max_bad, "--data.max_bad", shown, "--data.audio-root")
        self._total = sum(
            steps.source.shards.shards[n].utterances for own, _ in self._streams.values() for part in own for n in part
        )

    def _stream(self, number: int, place: Place) -> Stream:
        windows, how = self._streams[number]
        return Stream(self.steps.source, windows, how, place)

    def take(self) -> list[Batch]:
        """The batches of this process in the next step; none at the end."""
        found = (self._next(lane) for lane in self._lanes for _ in range(self._each_lane))
        return [batch for batch in found if batch is not None]

    def _next(self, lane: range) -> Batch | None:
        """The next batch of a lane: from the stream that has given the fewest."""
        while left := [number for number in lane if not self.places[number].ended]:
            number = min(left, key=lambda n: (self.places[n].taken, n))
            item = next(self._iterators[number])
            self.places[number] = item.place
            self._report(item)
            if item.batch is not None:
                return item.batch
        return None

    def _report(self, item: Item) -> None:
        for error in item.errors:
            self._rejects.add(error)
        if item.errors:
            self._rejects.check(self._total)

    @property
    def filler(self) -> Batch:
        """A batch that does not count: an utterance of the first window of this process, whenever it is asked for."""
        if self._filler is None:
            item = next(item for number in self._streams for item in self._stream(number, Place()).run(0))
            if item.batch is None:
                raise WildCTCError("a training process has no usable utterance: pack the corpus into more shards")
            self._filler = replace(item.batch.only([0]), counts=False, missing=0)
        return self._filler


def take_sample(source: Source, count: int) -> tuple[list[Example], GivesFeatures]:
    """Take evenly spaced utterances, from a limited number of shards.

    Args:
        source: The shards.
        count: How many utterances; some of them may be unusable.

    Returns:
        Their examples, and what gives their features.
    """
    limit = _LOOKED_AT if source.shards.spool is None else _COPIED
    every = range(len(source.shards))[:: -(-len(source.shards) // limit)]
    sizes = [source.shards.shards[number].utterances for number in every]
    ends = np.cumsum(sizes)
    chosen = np.arange(0, ends[-1], -(-ends[-1] // count))
    shard = np.searchsorted(ends, chosen, side="right")
    rows = [(chosen[shard == i] - (ends[i] - sizes[i])).tolist() for i in range(len(every))]
    some = [i for i in range(len(every)) if rows[i]]
    window = source.open([every[i] for i in some], [rows[i] for i in some])
    speed = 1.0 if 1.0 in window.speeds else window.speeds[0]
    return [example for example in window.examples if example.speed == speed], window
