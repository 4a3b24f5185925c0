"""The batches of an epoch as a function of (seed, epoch).

An epoch's batches are a list that depends on nothing but the seed and the epoch's number, so that a continued run takes
the same list up from the middle: no sampler has a state that could run ahead of what was consumed. Masks are drawn
from (seed, epoch, batch), so they do not depend on which process prepares the batch, or when.

Several training processes have the list of one, and deal it out. A step's batches go round whole where their number
allows it; else each is cut into parts first. Masks are drawn for the whole batch whatever becomes of it, dropout for
each part. So the number of parts, not that of processes, decides what a run computes, and a run that goes on keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from wildctc.corpora.utterance import UtteranceError
from wildctc.distributed import ALONE, Processes, settle_before_fork
from wildctc.errors import WildCTCError
from wildctc.features.augment import spec_augment
from wildctc.features.cache import FeatureCache
from wildctc.features.stats import FeatureStats
from wildctc.lattice.arcs import Wildcards
from wildctc.training.config import SpecAugmentConfig
from wildctc.training.data import Example, one_thread
from wildctc.training.lost import Lost


@dataclass(frozen=True)
class Batch:
    """Padded features x (N, T, F) and targets (N, S), with lengths (N,); `words` as the loss takes them.

    seed: of the batch's dropout. counts: False for utterances that another process has too; their loss is not added.
    lost: what could not be had and is left out, with its speed. missing: how many utterances are left out.
    weights: (N, W) float64, of the words, 0 where there is none; None if no utterance of the batch has any.
    """

    ids: list[str]
    x: torch.Tensor
    x_lengths: torch.Tensor
    targets: torch.Tensor
    target_lengths: torch.Tensor
    words: torch.Tensor
    references: list[list[int]]
    seed: int = 0
    counts: bool = True
    lost: tuple[tuple[UtteranceError, float], ...] = ()
    missing: int = 0
    weights: torch.Tensor | None = None

    def weigh(self, wildcards: Wildcards) -> Wildcards:
        """Add the weights of the words to those of their bypasses.

        Args:
            wildcards: The weights of the epoch, one number for each family of arcs.

        Returns:
            The same, with one weight for each arc if the batch has weights of words: the weight of a word is added to
            its word bypass and to the bypass of each of its tokens.
        """
        bypass, word_bypass = wildcards.bypass, wildcards.word_bypass
        if self.weights is None or (bypass is None and word_bypass is None):
            return wildcards
        if bypass is not None:
            of_tokens = self.weights.gather(1, self.words.clamp(min=0))
            bypass = bypass + torch.where(self.words >= 0, of_tokens, 0.0)
        if word_bypass is not None:
            word_bypass = word_bypass + self.weights
        return replace(wildcards, bypass=bypass, word_bypass=word_bypass)

    def only(self, rows: Sequence[int]) -> Batch:
        """The batch with these of its rows; without any it stays as it is, but does not count."""
        missing = (len(self.ids) - len(rows)) * self.counts
        if not rows:
            return replace(self, counts=False, missing=missing)
        keep = torch.tensor(rows)
        fields = ("x", "x_lengths", "targets", "target_lengths", "words", "weights")
        tensors = {name: tensor[keep] for name in fields if (tensor := getattr(self, name)) is not None}
        ids, references = [self.ids[row] for row in rows], [self.references[row] for row in rows]
        return replace(self, ids=ids, references=references, missing=missing, **tensors)

    def to(self, device: torch.device) -> Batch:
        """The batch on `device`, but for the lengths: they are looked at on the host, which must not wait for them."""
        x, targets, words = (t.to(device, non_blocking=True) for t in (self.x, self.targets, self.words))
        weights = None if self.weights is None else self.weights.to(device, non_blocking=True)
        return replace(self, x=x, targets=targets, words=words, weights=weights)


def seed_of(*numbers: int) -> int:
    """A 32-bit seed from several numbers, such as seed, epoch and batch: near numbers give unrelated seeds.

    >>> seed_of(0, 1, 2) == seed_of(0, 1, 2) != seed_of(0, 2, 1)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def plan_batches(frames: Sequence[int], budget: int, *key: int) -> list[list[int]]:
    """Batches of indices of similar length, at most `budget` padded frames each, in the order that `key` decides.

    Lengths are jittered by a few percent before sorting, so that batches differ from epoch to epoch while padding
    stays small. No key: sorted by length, not shuffled (validation).

    >>> plan_batches([10, 30, 11, 29], 60)
    [[0, 2], [3, 1]]
    """
    lengths = np.asarray(frames, dtype=np.float64)
    rng = np.random.default_rng(key) if key else None
    order = np.argsort(lengths * rng.uniform(0.95, 1.05, len(lengths)) if rng else lengths, kind="stable")
    batches: list[list[int]] = []
    longest = 0
    for index in order.tolist():
        longest = max(longest, frames[index])
        if not batches or longest * (len(batches[-1]) + 1) > budget:
            batches.append([])
            longest = frames[index]
        batches[-1].append(index)
    if rng is not None:
        rng.shuffle(batches)
    return batches


class Batches(Dataset[Batch | WildCTCError]):
    """The batches of one epoch, normalised and augmented as (seed, epoch, batch) says.

    parts: into how many each batch is cut. Item i is part i % parts of batch i // parts. lost: where utterances that
    cannot be had are written down, in round `round`; None: such an utterance is an error.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        plan: Sequence[Sequence[int]],
        cache: FeatureCache,
        stats: FeatureStats,
        augment: SpecAugmentConfig | None = None,
        key: tuple[int, ...] = (),
        parts: int = 1,
        lost: Lost | None = None,
        round: int = 0,
    ) -> None:
        self.examples, self.plan, self.cache, self.stats = examples, plan, cache, stats
        self.augment, self.key, self.parts = augment, key, parts
        self.lost, self.round = lost, round
        self.left_out = lost.until(round) if lost else frozenset()

    def __len__(self) -> int:
        return len(self.plan) * self.parts

    def __getitem__(self, index: int) -> Batch | WildCTCError:
        # Returned, not raised: a worker's exception would reach the user as a traceback.
        try:
            return self.batch(index)
        except WildCTCError as error:
            return error

    def batch(self, index: int) -> Batch:
        """Item number `index`. ~index borrows an utterance that does not count; so does a part that would be empty."""
        number, part = divmod(index if index >= 0 else ~index, self.parts)
        size = len(self.plan[number])
        counts = index >= 0 and part < size
        rows = range(part, size, self.parts) if counts else range(0, size, size)
        examples = [self.examples[self.plan[number][row]] for row in rows]
        features, lost = self._features_of(examples)
        # Zeros keep the place of what is left out until masks are drawn, which are then those of the whole batch.
        pairs = zip(examples, features, strict=True)
        filled = [torch.zeros(e.frames, *self.stats.mean.shape) if x is None else x for e, x in pairs]
        seed = seed_of(*self.key, number, 1 + part)
        batch = replace(collate(examples, filled), seed=seed, counts=counts, lost=tuple(lost))
        if self.augment is not None:
            generator = torch.Generator().manual_seed(seed_of(*self.key, number))
            x = spec_augment(batch.x, batch.x_lengths, generator, **asdict(self.augment), rows=rows)
            batch = replace(batch, x=x)
        there = [row for row, x in enumerate(features) if x is not None]
        return batch if len(there) == len(features) else batch.only(there)

    def _features_of(
        self, examples: Sequence[Example]
    ) -> tuple[list[torch.Tensor | None], list[tuple[UtteranceError, float]]]:
        """Features of each example, None for those that are left out, and the reason of those that were not so far."""
        features: list[torch.Tensor | None] = []
        lost = []
        for example in examples:
            features.append(None)
            if (example.utterance.id, example.speed) not in self.left_out:
                try:
                    features[-1] = self._features(example)
                except UtteranceError as error:
                    lost.append((error, example.speed))
        return features, lost

    def _features(self, example: Example) -> torch.Tensor:
        """Normalised features (frames, *shape of a frame)."""
        features = self.cache.get(example.utterance, example.speed)
        if len(features) != example.frames:
            reason = f"{len(features)} frames of features, and {example.frames} when the run began: has it changed?"
            raise UtteranceError(example.utterance, reason)
        return torch.from_numpy(self.stats.normalize(features))

    def loader(
        self, start: int = 0, workers: int = 0, processes: Processes = ALONE, together: int = 1
    ) -> Iterator[Batch]:
        """The batches from number `start` on, or of several processes this one's share of them.

        workers: processes that prepare them. together: batches of an optimiser step, of which each process gets as many
        items as any other.
        """
        if workers:
            settle_before_fork()
        steps = range(start, len(self.plan), together)
        items = [item for step in steps for item in self._share(self.plan[step : step + together], step, processes)]
        # A generator of its own: a loader draws a seed when it starts, which must not disturb the run's dropout.
        loader = DataLoader(
            self, batch_size=None, sampler=items, num_workers=workers,
            prefetch_factor=4 if workers else None, generator=torch.Generator(),
            worker_init_fn=one_thread, pin_memory=torch.cuda.is_available(),
        )  # fmt: skip
        for item in loader:
            if isinstance(item, WildCTCError):
                raise item
            if item.lost and self.lost is None:
                raise item.lost[0][0]
            if item.lost and self.lost is not None:
                self.lost.add(self.round, item.lost)
            yield item

    def _share(self, batches: Sequence[object], first: int, processes: Processes) -> list[int]:
        """This process's items of a step's batches; where they do not go round, one that does not count is the last.

        So every process has as many to go through, and waits for the others as often.
        """
        items = range(first * self.parts, (first + len(batches)) * self.parts)
        mine = list(processes.share(items))
        return mine if len(mine) * processes.size >= len(items) else [*mine, ~items[-1]]


def parts_for(accumulate: int, processes: int) -> int:
    """Into how many parts to cut each batch, so that the parts of `accumulate` batches go round: 1 if they do whole.

    >>> [parts_for(accumulate, 4) for accumulate in (1, 2, 4, 8)]
    [4, 2, 1, 1]
    """
    return processes // math.gcd(accumulate, processes)


def parts_to_go_on(parts: int, accumulate: int, processes: int) -> int:
    """Into how many parts a run that has cut its batches into `parts` cuts them when it goes on with so many processes.

    As before, which draws the same dropout, while each process has a part of a step. More processes than that would
    have nothing to do.

    >>> [parts_to_go_on(4, 1, processes) for processes in (1, 3, 4, 8)]
    [4, 4, 4, 8]
    """
    return parts if parts * accumulate >= processes else parts_for(accumulate, processes)


def collate(examples: Sequence[Example], features: Sequence[torch.Tensor]) -> Batch:
    """Pad features with 0, which is the mean after normalisation, and targets with 0; words with −1."""
    return Batch(
        [e.utterance.id for e in examples],
        torch.nn.utils.rnn.pad_sequence(list(features), batch_first=True),
        torch.tensor([len(x) for x in features]),
        _pad([e.tokens for e in examples], 0),
        torch.tensor([len(e.tokens) for e in examples]),
        _pad([e.words for e in examples], -1),
        [e.tokens for e in examples],
        weights=_weights(examples),
    )


def _weights(examples: Sequence[Example]) -> torch.Tensor | None:
    if all(e.weights is None for e in examples):
        return None
    rows = torch.zeros(len(examples), 1 + max(max(e.words, default=0) for e in examples), dtype=torch.float64)
    for row, e in zip(rows, examples, strict=True):
        if e.weights is not None:
            row[: len(e.weights)] = torch.tensor(e.weights, dtype=torch.float64)
    return rows


def _pad(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    width = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], dtype=torch.int64)
