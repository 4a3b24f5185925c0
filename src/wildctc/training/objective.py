"""What a run minimises: the criterion's loss, and what CR-CTC, InterCTC and label smoothing add to it.

Specification §11 defines the parts. All of them are sums over utterances and frames, as the criterion's loss is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_ctc_loss
from wildctc.lattice.noise import NoiseRates
from wildctc.recognizer.model import Recognizer
from wildctc.training.batches import Batch
from wildctc.training.noise import CountedArcs
from wildctc.training.settings import Config

PARTS = ("train_criterion", "train_inter", "train_consistency", "train_smoothing")  # names in the metrics of an epoch


class TrainedNetwork(nn.Module):
    """A recogniser as it is trained: it gives the logits of all blocks that have a loss.

    Args:
        model: The recogniser.
        blocks: The blocks, from 1; the last one of the encoder is among them.
    """

    def __init__(self, model: Recognizer, blocks: Sequence[int]) -> None:
        super().__init__()
        self.model, self.blocks = model, blocks

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], Tensor]:
        """Compute logits.

        Args:
            x: (N, T, F) normalised features.
            lengths: (N,) frames of each utterance.

        Returns:
            Logits (N, T', V) of each block, and their lengths (N,).
        """
        return self.model.logits_after(x, lengths, self.blocks)


@dataclass(frozen=True)
class Parts:
    """The parts of a batch's loss, sums over its utterances.

    Attributes:
        total: What is minimised.
        values: The parts by their names in the metrics; empty if the criterion's loss is all there is.
    """

    total: Tensor
    values: dict[str, float]


class Objective:
    """Adds up the loss of a batch.

    Attributes:
        copies: Copies of each batch that the network sees.
        blocks: The blocks of the encoder whose logits it needs, from 1.
        criterion_share: What the criterion's loss of the last block counts.
        names: The parts that it has, as the metrics call them.

    Args:
        config: The settings of the run.
    """

    def __init__(self, config: Config) -> None:
        self.consistency, self.smoothing = config.cr_ctc.weight, config.label_smoothing.weight
        inner = config.inter_ctc.layers or []
        self.inner = config.inter_ctc.weight if inner else 0.0
        self.copies = 2 if self.consistency else 1
        self.blocks = [*inner, config.encoder.blocks]
        self.criterion_share = (1 - self.inner) * (1 - self.smoothing)
        has = (True, self.inner, self.consistency, self.smoothing)
        self.names = [name for name, there in zip(PARTS, has, strict=True) if there] if any(has[1:]) else []

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Collect what the network sees.

        Args:
            batch: A batch of N utterances.

        Returns:
            (copies · N, T, F) features and (copies · N,) their lengths.
        """
        if batch.again is None:
            return batch.x, batch.x_lengths
        return torch.cat([batch.x, batch.again]), batch.x_lengths.repeat(2)

    def __call__(
        self,
        logits: Sequence[Tensor],
        lengths: Tensor,
        batch: Batch,
        wildcards: Wildcards | NoiseRates,
        arcs: CountedArcs | None = None,
    ) -> Parts:
        """Compute the loss of a batch.

        Args:
            logits: (copies · N, T', V) of each block, float32.
            lengths: (copies · N,) frames.
            batch: The batch.
            wildcards: The weights of the epoch.
            arcs: The arcs of the batch with noise rates, which the last block's loss counts; None for weights.

        Returns:
            The loss and its parts.
        """
        weighted = {"wildcards": batch.weigh(wildcards)} if arcs is None else arcs.arcs
        last = self._criterion(logits[-1], lengths, batch, weighted, arcs)
        if not self.names:
            return Parts(last, {})
        fixed = weighted if arcs is None else arcs.fixed
        nothing = torch.zeros((), device=last.device)
        inner = [self._criterion(x, lengths, batch, fixed, arcs) for x in logits[:-1]]
        inter = torch.stack(inner).mean() if inner else nothing
        log_p = logits[-1].log_softmax(-1)
        smoothing = far_from_uniform(log_p, lengths) / self.copies if self.smoothing else nothing
        consistency = disagreement(log_p, lengths) if self.consistency else nothing
        total = (1 - self.inner) * ((1 - self.smoothing) * last + self.smoothing * smoothing)
        total = total + self.inner * inter + self.consistency * consistency
        found = zip(PARTS, (last, inter, consistency, smoothing), strict=True)
        return Parts(total, {name: float(x.detach()) for name, x in found if name in self.names})

    def _criterion(
        self, logits: Tensor, lengths: Tensor, batch: Batch, weighted: dict[str, Any], arcs: CountedArcs | None
    ) -> Tensor:
        """The criterion's loss, a sum over utterances and the mean of the copies."""
        transcripts = batch.transcripts | weighted
        losses = [
            wildcard_ctc_loss(x.transpose(0, 1), input_lengths=n, reduction="sum", **transcripts)
            for x, n in zip(logits.chunk(self.copies), lengths.chunk(self.copies), strict=True)
        ]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean()
        return loss + (0.0 if arcs is None else arcs.constant)


def disagreement(log_p: Tensor, lengths: Tensor) -> Tensor:
    """Compute the consistency loss of CR-CTC: how much two copies of a batch differ, frame by frame.

    It is the mean of both Kullback–Leibler divergences. Each pulls one copy towards the other, which gets no gradient.

    Args:
        log_p: (2N, T, V) log-probabilities; rows n and N + n are copies of one utterance.
        lengths: (2N,) frames.

    Returns:
        The sum over frames and utterances, ().
    """
    one, other = log_p.detach().chunk(2)
    towards = torch.cat([other, one])
    divergence = torch.nn.functional.kl_div(log_p, towards, reduction="none", log_target=True).sum(-1)
    return _inside(divergence, lengths).sum() / 2


def far_from_uniform(log_p: Tensor, lengths: Tensor) -> Tensor:
    """Compute the loss of label smoothing: the divergence of the outputs of each frame from equal probabilities.

    Args:
        log_p: (N, T, V) log-probabilities.
        lengths: (N,) frames.

    Returns:
        The sum over frames and utterances of Σ P log P + log V, ().
    """
    divergence = (log_p.exp() * log_p).sum(-1) + math.log(log_p.shape[-1])
    return _inside(divergence, lengths).sum()


def _inside(values: Tensor, lengths: Tensor) -> Tensor:
    """(N, T) values, 0 after the end of each row."""
    frames = torch.arange(values.shape[1], device=values.device)
    return torch.where(frames < lengths.to(values.device).unsqueeze(1), values, 0)
