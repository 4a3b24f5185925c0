"""Run a manifest through a trained recogniser: logits of its utterances, and their transcriptions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from wildctc.audio.sound_files import check_audio, load_audio
from wildctc.corpora.preparation import Rejects
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.distributed import ALONE, Processes
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import FrontEnd, NotFinite, extract
from wildctc.json_lines import check_rows_writable
from wildctc.progress import RealTime, progress
from wildctc.recognizer.language_model import Rescorer, find_texts
from wildctc.recognizer.model import Recognizer
from wildctc.recognizer.partials import Partials, left_out, manifest_digest, texts_digest
from wildctc.recognizer.transcription import align_words
from wildctc.scoring.hypotheses import Decoded, hyp_row, read_hyp_file
from wildctc.scoring.transcripts import read_transcripts
from wildctc.text.alternatives import grammar_text
from wildctc.text.reader import Reader

_log = logging.getLogger(__name__)
_DECIDING = {
    "weights": "another model",
    "beam": "another beam",
    "utterances": "another manifest",
    "rescoring": "another language model, weight or hotword",
    "nbest": "another --nbest",
    "references": "other variants or further transcripts",
    "confidence": "another calibration",
}
BATCH_SECONDS = 120.0  # of padded audio that go through the encoder at once


def decode_manifest(
    model: Recognizer,
    utterances: Sequence[Utterance],
    output: Path,
    *,
    beam: int = 10,
    rescorer: Rescorer | None = None,
    nbest: int = 1,
    processes: Processes = ALONE,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
    reader: Reader | None = None,
) -> tuple[list[Decoded], Rejects]:
    """Decode utterances into a hypothesis file (see `read_hyps`). A call that was stopped resumes.

    The file has a row for each utterance, in the manifest's order. If its audio cannot be used, the row has the reason.

    Args:
        model: The recogniser.
        utterances: The manifest's utterances.
        output: The file to write. Until all is done, the rows are in `output`.*.partial.
        beam: Prefixes kept; 1 is greedy.
        rescorer: Chooses among the beam's texts; None takes the most probable.
        nbest: Texts to write for each utterance.
        processes: The processes that share the work.
        cache: A folder of computed features; None computes them.
        workers: Data-loading processes.
        max_bad: The share of utterances that may be skipped: the limit of the rejects that are returned.
        reader: Reads the references; None normalises as the model's units do, without variants.

    Returns:
        What was decoded, in the manifest's order, and the utterances that were skipped. The caller checks whether these
        are too many.
    """
    check_rows_writable(output)
    reader = reader or Reader(model.units.normalizer)
    references = {id: grammar_text(found) for id, found in read_transcripts(utterances, reader).items()}
    settings = {"weights": model.fingerprint(), "beam": beam, "utterances": manifest_digest(utterances)}
    settings |= {"rescoring": rescorer.settings() if rescorer else None, "nbest": nbest}
    settings |= {"references": texts_digest(references) if _several(utterances, reader) else None}
    sure = model.calibration
    settings["confidence"] = [sure.bias, *sure.weights] if sure else None
    partials = Partials(output, "decode", settings, _DECIDING, processes)
    done = partials.done()
    if done:
        _log.info("%s: resuming, %s of %s utterances are done", output, f"{len(done):,}", f"{len(utterances):,}")
    # Share all utterances first, then remove those that are done: the batches, and with them the last bits, are then
    # the same as in a call that was not stopped.
    mine = [u for u in processes.share(sorted(utterances, key=_by_duration)) if u.id not in done]
    batches = _decode_batches(
        model, mine, beam=beam, rescorer=rescorer, nbest=nbest,
        references=references if any(references.values()) else {}, cache=cache, workers=workers,
    )  # fmt: skip
    partials.append(map(_row, batch) for batch in batches)
    partials.merge(u.id for u in utterances)
    rejects, by_id = Rejects(max_bad), {u.id: u for u in utterances}
    decoded, reasons = read_hyp_file(output)
    for id, reason in reasons.items():
        rejects.add(UtteranceError(by_id[id], reason))
    return decoded, rejects


def decode_utterances(
    model: Recognizer,
    utterances: Sequence[Utterance],
    *,
    beam: int = 10,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
) -> list[Decoded]:
    """Decode utterances by prefix beam search. Those whose audio cannot be used are reported and skipped.

    Args:
        model: The recogniser.
        utterances: The manifest's utterances. References are normalised as the model's units normalise; a manifest
            without any text has none.
        beam: Prefixes kept; 1 is greedy.
        cache: A folder of computed features; None computes them.
        workers: Data-loading processes.
        max_bad: The share of utterances that may be skipped.

    Returns:
        The best transcription of each utterance, in the manifest's order.

    Raises:
        WildCTCError: Too many utterances were skipped.
    """
    rejects = Rejects(max_bad)
    found: dict[str, Decoded] = {}
    read = read_transcripts(utterances, Reader(model.units.normalizer))
    references = {id: grammar_text(text) for id, text in read.items()} if _have_text(utterances) else {}
    batches = _decode_batches(model, utterances, beam=beam, references=references, cache=cache, workers=workers)
    for item in (item for batch in batches for item in batch):
        if isinstance(item, UtteranceError):
            rejects.add(item)
        else:
            found[item.id] = item
    rejects.check(len(utterances))
    return [found[u.id] for u in utterances if u.id in found]


def _decode_batches(
    model: Recognizer,
    utterances: Sequence[Utterance],
    *,
    beam: int = 10,
    rescorer: Rescorer | None = None,
    nbest: int = 1,
    references: Mapping[str, str],
    cache: str | Path | None = None,
    workers: int = 1,
) -> Iterator[list[Decoded | UtteranceError]]:
    """Decode batch by batch, from short to long; an utterance that cannot be decoded gives the reason.

    references: the reference of each utterance, by id; empty if there are none.
    """
    bad = Collected()
    for batch in logits_batches(model, utterances, bad, cache=cache, workers=workers):
        found = [_decode(model, utterance, logits, beam, rescorer, nbest, references) for utterance, logits in batch]
        yield [*bad.take(), *found]
    yield [*bad.take()]


def _decode(
    model: Recognizer,
    utterance: Utterance,
    logits: torch.Tensor,
    beam: int,
    rescorer: Rescorer | None,
    nbest: int,
    references: Mapping[str, str],
) -> Decoded | UtteranceError:
    try:
        found = find_texts(logits, model.units, beam, rescorer, nbest)
    except MissingExtra:
        raise
    except WildCTCError as error:  # logits that are not numbers
        return UtteranceError(utterance, str(error))
    given = (references[utterance.id],) if references else ()
    others = tuple((h.text, h.score) for h in found) if nbest > 1 else ()
    best, sure = found[0], None
    if model.calibration is not None:
        words = align_words(logits, best.ids, model.units)
        sure = tuple(round(model.calibration(word.evidence), 4) for word in words)
    return Decoded(utterance.id, best.text, given, best.score, others, sure)


def _by_duration(utterance: Utterance) -> float:
    return utterance.duration


def _have_text(utterances: Sequence[Utterance]) -> bool:
    return any(u.text for u in utterances)


def _several(utterances: Sequence[Utterance], reader: Reader) -> bool:
    """Whether references depend on more than the manifest's texts, which its digest contains."""
    return reader.variants is not None or any(u.texts for u in utterances)


def _row(found: Decoded | UtteranceError) -> dict[str, Any]:
    return left_out(found) if isinstance(found, UtteranceError) else hyp_row(found)


class GivesLogits(Protocol):
    """A model with a front end: a `Recognizer`, or a checkpoint of another library."""

    @property
    def front_end(self) -> FrontEnd:
        """Converts audio to features."""
        ...

    def batch_logits(self, features: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """Compute the logits of a batch.

        Args:
            features: (T, F) of each utterance, from the front end, not normalised.

        Returns:
            (T', V) of each utterance, float32 on the CPU.
        """
        ...


def logits_batches(
    model: GivesLogits,
    utterances: Sequence[Utterance],
    rejects: Rejects,
    *,
    cache: str | Path | None = None,
    workers: int = 1,
    title: str = "decoding",
) -> Iterator[list[tuple[Utterance, torch.Tensor]]]:
    """Compute logits under a progress bar, shortest utterances first.

    Args:
        model: The model.
        utterances: The utterances.
        rejects: Gets the utterances whose audio cannot be used.
        cache: A folder of computed features; None computes them.
        workers: Data-loading processes.
        title: What the progress bar shows.

    Yields:
        The batches that went through the encoder: each utterance with its logits (T', V).
    """
    order = sorted(utterances, key=_by_duration)
    loader = DataLoader(
        _Features(order, model.front_end, cache),
        batch_size=None, num_workers=workers, collate_fn=_as_it_is, generator=torch.Generator(),
    )  # fmt: skip
    with progress(total=len(order), desc=title, unit="utt", leave=False) as bar:
        rate = RealTime(bar)
        for batch in _batches(order, loader, model.front_end.frame_rate, rejects):
            logits = model.batch_logits([x for _, x in batch])
            yield [(utterance, found) for (utterance, _), found in zip(batch, logits, strict=True)]
            rate.add(sum(len(x) for _, x in batch) / model.front_end.frame_rate)
            bar.update(len(batch))


class Collected(Rejects):
    """Collects rejected utterances without reporting them. The caller reports them when all is done."""

    def add(self, error: UtteranceError) -> None:
        """Keep an error.

        Args:
            error: Which utterance is rejected, and why.
        """
        self.errors[str(error)] = error

    def take(self) -> list[UtteranceError]:
        """Take the errors that were added since the last call.

        Returns:
            The errors.
        """
        found, self.errors = list(self.errors.values()), {}
        return found


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
        if isinstance(x, WildCTCError):  # not about one utterance, such as a cache that cannot be written
            raise x
        longest = max(longest, len(x))
        if batch and longest * (len(batch) + 1) > BATCH_SECONDS * frame_rate:
            yield batch
            batch, longest = [], len(x)
        batch.append((utterance, x))
    if batch:
        yield batch


class _Features(Dataset[np.ndarray | WildCTCError]):
    """Item i is the features (frames, dim) of utterance i, or the error about its audio."""

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
            return extract(self.front_end, load_audio(utterance, self.front_end.sampling_rate))
        except NotFinite as error:
            return UtteranceError(utterance, str(error))
        except WildCTCError as error:  # returned, because an exception in a worker would be a traceback
            return error
