"""The batches of an epoch, as a function of (seed, epoch).

The list of an epoch's batches depends only on the seed and the number of the epoch. A resumed run continues the same
list from the middle, and no sampler has a state that could get out of step. Masks are drawn from (seed, epoch, batch),
so they do not depend on which process prepares the batch, or when.

Several training processes share the list of one. If the number of a step's batches allows it, whole batches are shared;
otherwise each batch is cut into parts first. Masks are always drawn for the whole batch, and dropout for each part. The
number of parts therefore decides what a run computes, not the number of processes, and a resumed run keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from wildctc.claims import one_thread
from wildctc.corpora.utterance import UtteranceError
from wildctc.distributed import ALONE, Processes, settle_before_fork
from wildctc.errors import WildCTCError
from wildctc.features.augment import spec_augment_copies
from wildctc.features.cache import GivesFeatures
from wildctc.features.stats import FeatureStats
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.noise import NoiseRates
from wildctc.lattice.transcripts import TranscriptGraph
from wildctc.text.alternatives import Writings
from wildctc.training.lost import Lost
from wildctc.training.settings import SpecAugmentConfig
from wildctc.training.targets import Example


@dataclass(frozen=True)
class Batch:
    """A padded batch of N utterances.

    Attributes:
        ids: The utterances.
        x: (N, T, F) normalised features.
        x_lengths: (N,) frames.
        targets: (N, S) labels.
        target_lengths: (N,) labels of each target.
        words: (N, S) the word of each label, −1 for none.
        references: The labels of each target, without padding.
        seed: The seed of the batch's dropout.
        counts: False for utterances that another process has too: their loss is not added.
        lost: Utterances whose features could not be read, with their speed; they are not in the batch.
        missing: How many utterances are not in the batch.
        weights: (N, W) float64, of the words, 0 for none; None if no utterance of the batch has any.
        groups: (N,) the group of each utterance, whose noise rates it has; on the CPU.
        graphs: The graph of each transcript; None if no utterance of the batch has alternatives.
        writings: All writings of each utterance, None for one that has no alternatives.
        again: x with other masks, for CR-CTC; None without.
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
    groups: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    graphs: list[TranscriptGraph] | None = None
    writings: tuple[Writings | None, ...] = ()
    again: torch.Tensor | None = None

    @property
    def transcripts(self) -> dict[str, Any]:
        """The arguments of the loss that describe the transcripts."""
        if self.graphs is not None:
            return {"targets": self.graphs}
        return {"targets": self.targets, "target_lengths": self.target_lengths, "words": self.words}

    def weigh(self, wildcards: Wildcards | NoiseRates) -> Wildcards | NoiseRates:
        """Add the weights of the words to those of their bypasses.

        Args:
            wildcards: The weights of the epoch, one number for each family of arcs. Noise rates stay as they are.

        Returns:
            The same, with one weight for each arc if the batch has weights of words: the weight of a word is added to
            its word bypass and to the bypass of each of its tokens.
        """
        if isinstance(wildcards, NoiseRates):
            return wildcards
        bypass, word_bypass = wildcards.bypass, wildcards.word_bypass
        if self.weights is None or (bypass is None and word_bypass is None):
            return wildcards
        words, weights = self.words, self.weights
        if self.graphs is not None:  # a weight for each arc of a graph
            words = _pad([[arc.word for arc in graph.arcs] for graph in self.graphs], -1).to(words.device)
            more = max(graph.num_words for graph in self.graphs) - weights.shape[1]
            weights = torch.nn.functional.pad(weights, (0, max(0, more)))
        if bypass is not None:
            of_tokens = weights.gather(1, words.clamp(min=0))
            bypass = bypass + torch.where(words >= 0, of_tokens, 0.0)
        if word_bypass is not None:
            word_bypass = word_bypass + weights
        return replace(wildcards, bypass=bypass, word_bypass=word_bypass)

    def only(self, rows: Sequence[int]) -> Batch:
        """Select rows.

        Args:
            rows: The rows to keep.

        Returns:
            The batch with these rows. Without rows it stays as it is, but does not count.
        """
        missing = (len(self.ids) - len(rows)) * self.counts
        if not rows:
            return replace(self, counts=False, missing=missing)
        keep = torch.tensor(rows)
        fields = ("x", "again", "x_lengths", "targets", "target_lengths", "words", "weights", "groups")
        tensors = {name: tensor[keep] for name in fields if (tensor := getattr(self, name)) is not None}
        ids, references = [self.ids[row] for row in rows], [self.references[row] for row in rows]
        writings = tuple(self.writings[row] for row in rows) if self.writings else ()
        graphs = None if self.graphs is None else [self.graphs[row] for row in rows]
        few: dict[str, Any] = {"ids": ids, "references": references, "writings": writings, "graphs": graphs}
        return replace(self, missing=missing, **few, **tensors)

    def to(self, device: torch.device) -> Batch:
        """Copy the tensors to a device, except the lengths: the host reads them and must not wait for the copy.

        Args:
            device: The device.

        Returns:
            The batch on the device.
        """
        x, targets, words = (t.to(device, non_blocking=True) for t in (self.x, self.targets, self.words))
        weights, again = (None if t is None else t.to(device, non_blocking=True) for t in (self.weights, self.again))
        return replace(self, x=x, targets=targets, words=words, weights=weights, again=again)


def seed_of(*numbers: int) -> int:
    """Make a 32-bit seed from several numbers. Similar numbers give unrelated seeds.

    Args:
        numbers: Such as seed, epoch and batch.

    Returns:
        The seed.

    >>> seed_of(0, 1, 2) == seed_of(0, 1, 2) != seed_of(0, 2, 1)
    True
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def plan_batches(frames: Sequence[int], budget: int, *key: int) -> list[list[int]]:
    """Group utterances of similar length into batches.

    Lengths are changed by a few percent at random before sorting, so that batches differ from epoch to epoch while
    padding stays small.

    Args:
        frames: The frames of each utterance.
        budget: The most frames of a batch, with padding.
        key: Decides the jitter and the order of the batches. Without a key, batches are sorted by length (validation).

    Returns:
        The indices of the utterances in each batch.

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
    """The batches of one epoch, normalised and augmented. Item i is part i % parts of batch i // parts.

    Args:
        examples: The utterances.
        plan: The indices of the utterances in each batch.
        cache: Gives features.
        stats: Normalise features.
        augment: SpecAugment; None for none.
        key: Seed and epoch, for masks and dropout.
        parts: Into how many parts each batch is cut.
        lost: Records utterances whose features cannot be read; None makes them an error.
        round: The round in which they are recorded.
        copies: 2 for CR-CTC: each batch has its features twice, with different masks.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        plan: Sequence[Sequence[int]],
        cache: GivesFeatures,
        stats: FeatureStats,
        augment: SpecAugmentConfig | None = None,
        key: tuple[int, ...] = (),
        parts: int = 1,
        lost: Lost | None = None,
        round: int = 0,
        copies: int = 1,
    ) -> None:
        self.examples, self.plan, self.cache, self.stats = examples, plan, cache, stats
        self.augment, self.key, self.parts = augment, key, parts
        self.lost, self.round, self.copies = lost, round, copies
        self.left_out = lost.until(round) if lost else frozenset()

    def __len__(self) -> int:
        return len(self.plan) * self.parts

    def __getitem__(self, index: int) -> Batch | WildCTCError:
        # Return the error: an exception that is raised in a worker would reach the user as a traceback.
        try:
            return self.batch(index)
        except WildCTCError as error:
            return error

    def batch(self, index: int) -> Batch:
        """Make an item.

        Args:
            index: The number of the item. ~index borrows one utterance that does not count; so does a part that would
                be empty.

        Returns:
            The batch, or the part of it.
        """
        number, part = divmod(index if index >= 0 else ~index, self.parts)
        size = len(self.plan[number])
        counts = index >= 0 and part < size
        rows = range(part, size, self.parts) if counts else range(0, size, size)
        examples = [self.examples[self.plan[number][row]] for row in rows]
        features, lost = self._features_of(examples)
        # Fill skipped utterances with zeros until masks are drawn, so that masks are those of the whole batch.
        pairs = zip(examples, features, strict=True)
        filled = [torch.zeros(e.frames, *self.stats.mean.shape) if x is None else x for e, x in pairs]
        seed = seed_of(*self.key, number, 1 + part)
        batch = replace(collate(examples, filled), seed=seed, counts=counts, lost=tuple(lost))
        if self.augment is not None:
            generator = torch.Generator().manual_seed(seed_of(*self.key, number))
            given = asdict(self.augment) | {"rows": rows}
            x, *again = spec_augment_copies(batch.x, batch.x_lengths, generator, self.copies, **given)
            batch = replace(batch, x=x, again=again[0] if again else None)
        there = [row for row, x in enumerate(features) if x is not None]
        return batch if len(there) == len(features) else batch.only(there)

    def _features_of(
        self, examples: Sequence[Example]
    ) -> tuple[list[torch.Tensor | None], list[tuple[UtteranceError, float]]]:
        """Features of each example, None for a skipped one, and the errors of those that were not skipped before."""
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
            reason = f"{len(features)} frames of features, but {example.frames} when the run started: has it changed?"
            raise UtteranceError(example.utterance, reason)
        return torch.from_numpy(self.stats.normalize(features))

    def loader(
        self, start: int = 0, workers: int = 0, processes: Processes = ALONE, together: int = 1
    ) -> Iterator[Batch]:
        """Iterate over the batches, in data-loading processes if there are any.

        Args:
            start: The first batch.
            workers: Data-loading processes.
            processes: Training processes: each gets its share.
            together: Batches of an optimiser step. Each training process gets the same number of items for a step.

        Yields:
            The batches, or parts of them, of this process.

        Raises:
            WildCTCError: Features cannot be read.
        """
        if workers:
            settle_before_fork()
        steps = range(start, len(self.plan), together)
        items = [item for step in steps for item in self._share(self.plan[step : step + together], step, processes)]
        # A loader draws a seed when it starts. Its own generator keeps this from changing the run's dropout.
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
        """This process's items of a step. If they cannot be shared evenly, the last one does not count.

        Every process then has the same number of items, and waits for the others equally often.
        """
        items = range(first * self.parts, (first + len(batches)) * self.parts)
        mine = list(processes.share(items))
        return mine if len(mine) * processes.size >= len(items) else [*mine, ~items[-1]]


def parts_for(accumulate: int, processes: int) -> int:
    """Compute into how many parts each batch is cut, so that a step can be shared evenly.

    Args:
        accumulate: Batches of an optimiser step.
        processes: Training processes.

    Returns:
        The number of parts; 1 if whole batches can be shared.

    >>> [parts_for(accumulate, 4) for accumulate in (1, 2, 4, 8)]
    [4, 2, 1, 1]
    """
    return processes // math.gcd(accumulate, processes)


def parts_to_resume(parts: int, accumulate: int, processes: int) -> int:
    """Compute into how many parts a resumed run cuts its batches.

    The number stays the same, so that dropout is the same, as long as each process has a part of a step. With more
    processes some would have nothing to do.

    Args:
        parts: The number of parts before.
        accumulate: Batches of an optimiser step.
        processes: Training processes now.

    Returns:
        The number of parts.

    >>> [parts_to_resume(4, 1, processes) for processes in (1, 3, 4, 8)]
    [4, 4, 4, 8]
    """
    return parts if parts * accumulate >= processes else parts_for(accumulate, processes)


def collate(examples: Sequence[Example], features: Sequence[torch.Tensor]) -> Batch:
    """Pad utterances to a batch: features with 0, which is the mean after normalisation, targets with 0, words with −1.

    Args:
        examples: The utterances.
        features: (frames, …) of each, normalised.

    Returns:
        The batch.
    """
    return Batch(
        [e.utterance.id for e in examples],
        torch.nn.utils.rnn.pad_sequence(list(features), batch_first=True),
        torch.tensor([len(x) for x in features]),
        _pad([e.tokens for e in examples], 0),
        torch.tensor([len(e.tokens) for e in examples]),
        _pad([e.words for e in examples], -1),
        [e.tokens for e in examples],
        weights=_weights(examples),
        groups=torch.tensor([e.group for e in examples]),
        graphs=_graphs(examples),
        writings=tuple(e.writings for e in examples),
    )


def _graphs(examples: Sequence[Example]) -> list[TranscriptGraph] | None:
    if all(e.graph is None for e in examples):
        return None
    return [TranscriptGraph.from_labels(e.tokens, e.words) if e.graph is None else e.graph for e in examples]


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
