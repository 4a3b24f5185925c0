"""Measure a model on held-out speech at the end of an epoch, and on a fixed sample of the training speech."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from wildctc.criteria import predictive_entropy
from wildctc.distributed import ALONE, Processes
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.functional import wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice.noise import NoiseRates
from wildctc.lattice.probe_arcs import token_probe_arcs
from wildctc.recognizer.decoding import greedy
from wildctc.recognizer.model import Recognizer
from wildctc.scoring.error_rates import cer, wer
from wildctc.text.alternatives import Writings
from wildctc.training.batches import Batch


@dataclass(frozen=True)
class Evaluation:
    """What was measured. Losses are means over utterances.

    Attributes:
        loss: The criterion's own loss.
        ctc_loss: The plain CTC loss.
        entropy: The predictive entropy; None if the model gives all probability to the blank.
        bypass_posterior: The mean probability that a token is bypassed, on the probe's graph.
        wer: The word error rate, greedy.
        cer: The character error rate, greedy.
        deletions: The share of the references' characters that are deleted, a part of `cer`.
        guessing: An upper bound of the CTC loss of a model whose outputs all have the same probability.
    """

    loss: float
    ctc_loss: float
    entropy: float | None
    bypass_posterior: float
    wer: float
    cer: float
    deletions: float
    guessing: float


@torch.no_grad()
def evaluate(
    model: Recognizer, batches: Iterable[Batch], wildcards: Wildcards | NoiseRates, processes: Processes = ALONE
) -> Evaluation:
    """Measure losses, predictive entropy, bypass posterior and greedy error rates.

    Args:
        model: The model; it stays in eval mode.
        batches: The batches; with several processes, each has its share.
        wildcards: The weights or noise rates of the criterion's own loss.
        processes: The processes.

    Returns:
        The numbers over all batches, the same in every process.
    """
    model.eval()
    loss = ctc_loss = guessing = bypassed = numerator = denominator = utterances = tokens = 0.0
    references: list[str | Writings] = []
    hypotheses: list[str] = []
    for batch in batches:
        logits, lengths = _logits(model, batch)
        frames = logits.transpose(0, 1)
        ctc = float(wildcard_ctc_loss(frames, input_lengths=lengths, reduction="sum", **batch.transcripts))
        ctc_loss += ctc
        loss += _loss(frames, lengths, wildcards, batch) if has_arcs(wildcards) else ctc
        guessing += float(lengths.sum()) * math.log(logits.shape[2])
        bypassed += _bypassed(frames, lengths, batch)
        part = predictive_entropy(frames, lengths)
        numerator, denominator = numerator + float(part[0]), denominator + float(part[1])
        utterances += len(batch.ids)
        tokens += int(batch.target_lengths.sum())
        references += _references(model, batch)
        hypotheses += [model.units.decode(greedy(x[:n])[0]) for x, n in zip(logits, lengths.tolist(), strict=True)]
    words, characters = wer(references, hypotheses), cer(references, hypotheses)
    sums = [loss, ctc_loss, utterances, numerator, denominator, bypassed, tokens]
    sums += [words.total, words.reference, characters.total, characters.deletions, characters.reference, guessing]
    processes.barrier()  # processes finish at different times, above all if features are not cached
    loss, ctc_loss, utterances, numerator, denominator, bypassed, tokens, *errors = processes.sum(sums)
    return Evaluation(
        loss / utterances,
        ctc_loss / utterances,
        numerator / denominator if denominator != 0 else None,
        bypassed / max(1, tokens),
        errors[0] / max(1, errors[1]),
        errors[2] / max(1, errors[4]),
        errors[3] / max(1, errors[4]),
        errors[5] / utterances,
    )


@torch.no_grad()
def bypass_posterior(model: Recognizer, batches: Iterable[Batch], processes: Processes = ALONE) -> float:
    """Measure the mean probability that a token is bypassed, on the probe's graph.

    Args:
        model: The model; it stays in eval mode.
        batches: The batches; with several processes, each has its share.
        processes: The processes.

    Returns:
        The mean over all tokens, the same in every process.
    """
    model.eval()
    total, tokens = 0.0, 0.0
    for batch in batches:
        logits, lengths = _logits(model, batch)
        total += _bypassed(logits.transpose(0, 1), lengths, batch)
        tokens += int(batch.target_lengths.sum())
    total, tokens = processes.sum([total, tokens])
    return total / max(1, tokens)


def has_arcs(wildcards: Wildcards | NoiseRates) -> bool:
    """Check whether a criterion is more than plain CTC.

    Args:
        wildcards: Its weights.

    Returns:
        True if at least one family of arcs is present.
    """
    return any(w is not None for w in (wildcards.bypass, wildcards.self_loop, wildcards.word_bypass))


def _logits(model: Recognizer, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    logits, lengths = model(batch.x, batch.x_lengths)
    return logits.float(), lengths


def _loss(logits: torch.Tensor, lengths: torch.Tensor, wildcards: Wildcards | NoiseRates, batch: Batch) -> float:
    given = {"input_lengths": lengths, **batch.transcripts, "wildcards": batch.weigh(wildcards)}
    return float(wildcard_ctc_loss(logits, reduction="sum", **given))


def _references(model: Recognizer, batch: Batch) -> list[str | Writings]:
    several = batch.writings or [None] * len(batch.ids)
    return [w or model.units.decode(ids) for w, ids in zip(several, batch.references, strict=True)]


def _bypassed(logits: torch.Tensor, lengths: torch.Tensor, batch: Batch) -> float:
    given = {"input_lengths": lengths, **batch.transcripts, "wildcards": token_probe_arcs()}
    bypass = wildcard_posteriors(logits, **given).bypass
    assert bypass is not None  # the probe has the arcs
    return float(bypass.sum())
