"""Noise rates in training: the group of each utterance, the arcs of a batch, and the counts of all processes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from wildctc.distributed import Processes
from wildctc.errors import WildCTCError
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_ctc_loss
from wildctc.lattice.graph_noise import graph_noise_counts, normalised_graph_arcs
from wildctc.lattice.noise import NoiseCounts, NoiseRates, noise_counts, normalised_arcs
from wildctc.rate_table import FAMILIES, RateTable
from wildctc.recognizer.model import Recognizer
from wildctc.training.batches import Batch
from wildctc.training.run_folder import Metrics
from wildctc.training.targets import Example

_log = logging.getLogger(__name__)
_NOWHERE = "(none)"  # the group of utterances without the field
RATES_SAMPLE = 1000  # training utterances on which the first rates are measured
_HIGH = 0.3  # where rates begin that must unlearn errors, and where the first EM step of the others comes from
PERCENT = {family: f"{family}_rate_percent" for family in FAMILIES}  # names in the metrics of an epoch


def group_examples(examples: Sequence[Example], by: str) -> tuple[list[Example], list[str]]:
    """Group training examples by a field of their manifest.

    Args:
        examples: The examples.
        by: "speaker", "language" or the name of another field.

    Returns:
        The examples with the numbers of their groups, and the names of the groups, sorted.

    Raises:
        WildCTCError: No utterance has the field.
    """
    values = [e.utterance.group(by) or _NOWHERE for e in examples]
    counts = Counter(values)
    if counts[_NOWHERE] == len(examples):
        found = sorted({name for e in examples for name, _ in e.utterance.fields})
        found += [name for name in ("language", "speaker") if any(getattr(e.utterance, name) for e in examples)]
        raise WildCTCError(
            f"--rates.by {by}: no training utterance has this field; they have {', '.join(found) or 'none'} "
            "(fields of a manifest pass through `wildctc prepare`)"
        )
    names = sorted(counts)
    _log.info("noise rates by %s: %d groups%s", by, len(names), _lacking(counts[_NOWHERE], by))
    numbers = {name: i for i, name in enumerate(names)}
    return [replace(e, group=numbers[value]) for e, value in zip(examples, values, strict=True)], names


def _lacking(count: int, by: str) -> str:
    return f"; {count} utterances without a {by} are one of them, {_NOWHERE}" if count else ""


class CountedArcs:
    """The arcs of a batch with noise rates. The gradients of their weights are the expected counts of an EM step.

    Attributes:
        arcs: One weight for each arc, as arguments of the loss.
        constant: What the losses of the batch gain together.

    Args:
        table: The rates; it gets the counts.
        batch: The batch.
    """

    def __init__(self, table: RateTable, batch: Batch) -> None:
        self._table, self._batch = table, batch
        rates = table.noise_of(batch.groups)
        added: torch.Tensor | None = None
        if batch.graphs is None:
            wildcards, constant = normalised_arcs(
                rates, batch.targets, batch.target_lengths, batch.words, torch.float32
            )
        else:
            arcs = normalised_graph_arcs(rates, batch.graphs, torch.float32, batch.targets.device)
            wildcards = Wildcards(arcs.bypass, arcs.self_loop, arcs.word_bypass)
            added, constant = arcs.arc_weights, arcs.constant
        self._weights = [
            weight.requires_grad_() if isinstance(weight, torch.Tensor) else None
            for weight in (wildcards.bypass, wildcards.self_loop, wildcards.word_bypass, added)
        ]
        self.arcs: dict[str, Any] = {"wildcards": wildcards} | ({} if added is None else {"arc_weights": added})
        self.constant = float(constant.sum())

    @property
    def fixed(self) -> dict[str, Any]:
        """The same arguments, but gradients do not flow to them, so that they do not count."""
        bypass, self_loop, word_bypass, added = (None if w is None else w.detach() for w in self._weights)
        arcs = {"wildcards": Wildcards(bypass, self_loop, word_bypass, self.arcs["wildcards"].self_loop_at)}
        return arcs | ({} if added is None else {"arc_weights": added})

    def count(self, scale: float) -> None:
        """Add the counts of the batch to the table, after the backward pass.

        Args:
            scale: What the loss of the batch, a sum over utterances, was divided by.
        """
        found = [None if w is None or w.grad is None else -scale * w.grad.double() for w in self._weights]
        self._table.add(self._batch.groups, self._counts(*found))

    def _counts(
        self,
        bypass: torch.Tensor | None,
        self_loop: torch.Tensor | None,
        word_bypass: torch.Tensor | None,
        token: torch.Tensor | None,
    ) -> NoiseCounts:
        batch, at = self._batch, self._table.self_loop_at
        if batch.graphs is None:
            return noise_counts(bypass, self_loop, word_bypass, batch.words, batch.target_lengths, at)
        assert token is not None
        return graph_noise_counts(token, bypass, self_loop, word_bypass, batch.graphs, at)


def first_rates(model: Recognizer, table: RateTable, batches: Iterable[Batch], processes: Processes) -> torch.Tensor:
    """Choose the rates of the first epoch after plain CTC.

    Plain CTC has learned some of the errors, so EM that begins low stays low. A high rate lets the model unlearn them.
    That of words does no harm. Those of tokens and of unwritten speech, if high for an epoch, teach the model to leave
    letters out. So these begin where one EM step with the fixed model takes them from a high rate.

    Args:
        model: The model, as plain CTC has trained it; it stays in eval mode.
        table: Which rates there are, and their prior.
        batches: A sample of the training utterances; with several processes, each has its share.
        processes: The processes.

    Returns:
        (3,) float64, the rates of the corpus; NaN for an absent family.
    """
    found = RateTable(table.families, _HIGH, table.prior, table.self_loop_at)
    model.eval()
    for batch in batches:
        with torch.no_grad():
            logits, lengths = model(batch.x, batch.x_lengths)
        counted = CountedArcs(found, replace(batch, groups=torch.zeros_like(batch.groups)))
        frames, given = logits.float().transpose(0, 1), batch.transcripts | counted.arcs
        wildcard_ctc_loss(frames, input_lengths=lengths, reduction="sum", **given).backward()
        counted.count(1.0)
    share_counts(found, processes, everywhere=True)
    found.update()
    first = found.corpus.clamp(max=_HIGH)  # a model that knows little doubts nearly everything
    first[FAMILIES.index("word" if "word" in table.families else "token")] = _HIGH
    shown = zip(FAMILIES, first.tolist(), strict=True)
    _log.info("noise rates begin at %s", ", ".join(f"{rate:.2%} ({name})" for name, rate in shown if rate == rate))
    return first


def share_counts(table: RateTable, processes: Processes, everywhere: bool) -> None:
    """Sum the counts of all processes.

    Args:
        table: The table of this process.
        processes: The processes.
        everywhere: Whether all processes get the sum; otherwise the first one does, and the others begin to count anew.
    """
    if processes.size == 1:
        return
    shape, size = table.events.shape, table.events.numel()
    total = processes.sum([*table.events.flatten().tolist(), *table.chances.flatten().tolist()])
    kept = float(everywhere or processes.first)
    table.events = kept * torch.tensor(total[:size], dtype=torch.float64).reshape(shape)
    table.chances = kept * torch.tensor(total[size:], dtype=torch.float64).reshape(shape)


def percentages(wildcards: Wildcards | NoiseRates) -> Metrics:
    """Give the rates of an epoch for its metrics.

    Args:
        wildcards: What the epoch was trained with.

    Returns:
        A percentage for each family, None for one that is absent; in an epoch of plain CTC all are None.
    """
    rates = {family: getattr(wildcards, family, None) for family in FAMILIES}
    return {PERCENT[family]: None if rate is None else 100 * rate for family, rate in rates.items()}
