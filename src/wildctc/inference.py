"""A manifest through a trained recogniser: logits of its utterances, and their transcriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from wildctc.corpora import Rejects, Utterance, UtteranceError, check_audio, load_audio
from wildctc.decoding import best_hypothesis
from wildctc.errors import WildCTCError
from wildctc.features import FeatureCache, FrontEnd
from wildctc.progress import progress
from wildctc.recognizer import Recognizer
from wildctc.scoring import Decoded

BATCH_SECONDS = 120.0  # of padded audio that go through the encoder at once


def decode_utterances(
    model: Recognizer,
    utterances: Sequence[Utterance],
    *,
    beam: int = 10,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
) -> list[Decoded]:
    """The best transcription of each utterance, in the manifest's order, by prefix beam search (beam 1: greedy).

    References are normalised as the model's units normalise; a manifest without any text has none. Utterances whose
    audio cannot be used are reported and left out; more than `max_bad` of them are an error. cache: a folder of
    features, as in training.
    """
    rejects = Rejects(max_bad)
    found: dict[str, Decoded] = {}
    transcribed = any(u.text for u in utterances)
    for utterance, logits in utterance_logits(model, utterances, rejects, cache=cache, workers=workers):
        best = best_hypothesis(logits, model.units, beam)
        references = (model.units.normalizer(utterance.text),) if transcribed else ()
        found[utterance.id] = Decoded(utterance.id, best.text, references, best.score)
    rejects.check(len(utterances))
    return [found[u.id] for u in utterances if u.id in found]


class GivesLogits(Protocol):
    """A recogniser, or another model with a front end of its own."""

    @property
    def front_end(self) -> FrontEnd: ...
    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]: ...


def utterance_logits(
    model: GivesLogits,
    utterances: Sequence[Utterance],
    rejects: Rejects,
    *,
    cache: str | Path | None = None,
    workers: int = 1,
    title: str = "decoding",
) -> Iterator[tuple[Utterance, torch.Tensor]]:
    """Each utterance with its logits (T', V), shortest first, under a progress bar; bad audio goes to `rejects`."""
    order = sorted(utterances, key=lambda u: u.duration)
    loader = DataLoader(
        _Features(order, model.front_end, cache),
        batch_size=None, num_workers=workers, collate_fn=_as_it_is, generator=torch.Generator(),
    )  # fmt: skip
    with progress(total=len(order), desc=title, unit="utt", leave=False) as bar:
        for batch in _batches(order, loader, model.front_end.frame_rate, rejects):
            for utterance, logits in zip((u for u, _ in batch), model.batch_logits([x for _, x in batch]), strict=True):
                yield utterance, logits
                bar.update()


def _as_it_is(item: Any) -> Any:
    return item  # a loader would make tensors of arrays


def _batches(
    utterances: Sequence[Utterance],
    features: DataLoader[np.ndarray | WildCTCError],
    frame_rate: float,
    rejects: Rejects,
) -> Iterator[list[tuple[Utterance, np.ndarray]]]:
    batch: list[tuple[Utterance, np.ndarray]] = []
    longest = 0
    for utterance, x in zip(utterances, features, strict=True):
        if isinstance(x, UtteranceError):
            rejects.add(x)
            continue
        if isinstance(x, WildCTCError):  # not one utterance's fault: a cache that cannot be written
            raise x
        longest = max(longest, len(x))
        if batch and longest * (len(batch) + 1) > BATCH_SECONDS * frame_rate:
            yield batch
            batch, longest = [], len(x)
        batch.append((utterance, x))
    if batch:
        yield batch


class _Features(Dataset[np.ndarray | WildCTCError]):
    """Item i: the features of utterance i (frames, dim), or what is wrong with its audio."""

    def __init__(self, utterances: Sequence[Utterance], front_end: FrontEnd, cache: str | Path | None) -> None:
        self.utterances, self.front_end = utterances, front_end
        self.cache = None if cache is None else FeatureCache(cache, front_end)

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, index: int) -> np.ndarray | WildCTCError:
        utterance = self.utterances[index]
        try:
            if utterance.duration == 0:  # the manifest does not say how much audio there should be; the header may
                check_audio(utterance)
            if self.cache is not None:
                return self.cache.get(utterance)
            return self.front_end.extract(load_audio(utterance, self.front_end.sampling_rate))
        except WildCTCError as error:  # returned, since a worker's exception would reach the user as a traceback
            return error
