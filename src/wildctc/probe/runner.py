"""Probe a manifest batch by batch, in several processes if torchrun started them; a stopped probe resumes.

Results are kept in partial files (`wildctc.recognizer.partials`) until all utterances are done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from wildctc.corpora.preparation import Rejects
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.distributed import Processes
from wildctc.errors import WildCTCError
from wildctc.json_lines import check_rows_writable, read_rows
from wildctc.lattice.feasibility import infeasible
from wildctc.probe.doubt import score_words
from wildctc.probe.graphs import probe_logits
from wildctc.probe.records import FORMAT, ProbedChoice, ProbedToken, ProbedUtterance, ProbedWord, as_row
from wildctc.recognizer.batch import Collected, GivesLogits, logits_batches
from wildctc.recognizer.choices import Chosen, choose_writings
from wildctc.recognizer.frame_times import time_in_audio
from wildctc.recognizer.partials import Partials, left_out, manifest_digest
from wildctc.scoring.error_rates import Errors, wer
from wildctc.scoring.mismatch import HEARS_NOTHING, advise_reading, find_outside, hopeless
from wildctc.scoring.transcripts import read_transcript
from wildctc.text.alternatives import Writings, every_word, grammar_text, has_grammar
from wildctc.text.normalisation import Normalizer
from wildctc.text.reader import Reader
from wildctc.text.segmentation import WritesLabels
from wildctc.text.units import name_characters

_log = logging.getLogger(__name__)
_BATCH = 16  # utterances in one lattice; an interruption loses at most one batch of each process
_OUTSIDE = "characters outside the units: "
# settings that must be the same to resume a probe, and how an error message names another value
_DECIDING = {
    "format": "another version of WildCTC",
    "weights": "another model",
    "self_loop": "another self-loop weight",
    "utterances": "another manifest",
}


class ProbeUnits(WritesLabels, Protocol):
    """What a probe needs of a model's units."""

    def missing(self, text: str, /) -> list[str]:
        """Find the characters that the units cannot write.

        Args:
            text: Any text.

        Returns:
            These characters, each once.
        """
        ...


class ProbeModel(GivesLogits, Protocol):
    """A model that can be probed: a `Recognizer`, or a Hugging Face `Checkpoint`. Label 0 is the blank."""

    @property
    def units(self) -> ProbeUnits:
        """The units that the model writes."""
        ...

    @property
    def frame_rate(self) -> float:
        """Frames of logits per second."""
        ...


class ProbeCounts(NamedTuple):
    """How many utterances of a manifest were probed.

    Attributes:
        now: Utterances that this call worked on; 0 if the file was complete already.
        skipped: Utterances of the whole file that could not be probed.
    """

    now: int
    skipped: int


def probe_manifest(
    model: ProbeModel,
    utterances: Sequence[Utterance],
    output: Path,
    settings: dict[str, Any],
    *,
    processes: Processes,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
    reader: Reader | None = None,
) -> ProbeCounts:
    """Probe utterances and write a probe file (see `read_probe`). A probe that was stopped resumes.

    A file of another model, self-loop weight or manifest is refused.

    Args:
        model: The model.
        utterances: The manifest's utterances.
        output: The file to write. Until all utterances are done, the rows are in `output`.*.partial.
        settings: The file's first row. It must contain `weights` (a fingerprint of the model) and `self_loop`.
        processes: The processes that share the work.
        cache: A folder of computed features; None computes them.
        workers: Data-loading processes.
        max_bad: The share of utterances that may be skipped. More of them are a WildCTCError, but the file is complete.
        reader: Reads the transcripts. None: alternatives in braces and several transcripts, without variants.

    Returns:
        How many utterances were probed now, and how many were skipped.
    """
    utterances, writings = _with_writings(utterances, reader or Reader(Normalizer()))
    settings = {"format": FORMAT, **settings, "count": len(utterances), "utterances": manifest_digest(utterances)}
    partials = Partials(output, "probe", settings, _DECIDING, processes)
    check_rows_writable(output)
    finished = output.exists()
    done = partials.index(output).keys() if finished else partials.done()
    rest = [u for u in utterances if u.id not in done]
    if finished and rest:
        raise WildCTCError(f"{output}: {len(rest)} of {len(utterances)} rows are missing; remove it to probe again")
    if not finished:
        mine = processes.share(sorted(rest, key=lambda u: u.duration))
        batches = _probe_utterances(
            model, mine, writings, self_loop=settings["self_loop"], cache=cache, workers=workers
        )
        partials.append(map(_row, batch) for batch in batches)
        partials.merge((u.id for u in utterances), partials.header)
    if processes.first:
        score_words(output)  # also of a file whose probe was killed just before
    processes.barrier()
    texts = [every_word(writings.get(u.id, u.text)) for u in utterances]
    return _report(model, output, utterances, texts, len(rest), max_bad)


def _probe_utterances(
    model: ProbeModel,
    utterances: Sequence[Utterance],
    writings: Mapping[str, Writings],
    *,
    self_loop: float | None,
    cache: str | Path | None,
    workers: int,
) -> Iterator[list[ProbedUtterance | UtteranceError]]:
    """Probe utterances batch by batch, from short to long; one that cannot be probed gives an error with the reason.

    An empty transcript can be probed: all speech is then unwritten. Of one with several writings, the most probable is
    probed.
    """
    bad, usable = Collected(), []
    for utterance in utterances:
        if outside := model.units.missing(every_word(writings.get(utterance.id, utterance.text))):
            bad.add(UtteranceError(utterance, f"{_OUTSIDE}{name_characters(outside)}"))
        else:
            usable.append(utterance)
    batch: list[tuple[Utterance, torch.Tensor]] = []
    batches = logits_batches(model, usable, bad, cache=cache, workers=workers, title="probing")
    for pair in chain.from_iterable(batches):
        batch.append(pair)
        if len(batch) == _BATCH:
            yield [*bad.take(), *_probe_nearest(model, batch, writings, self_loop)]
            batch = []
    yield [*bad.take(), *_probe_nearest(model, batch, writings, self_loop)]


def _with_writings(utterances: Sequence[Utterance], reader: Reader) -> tuple[list[Utterance], dict[str, Writings]]:
    """The utterances with all their writings in the text, and the writings of those that have several."""
    found, several = [], {}
    for utterance in utterances:
        if utterance.texts or reader.variants is not None or has_grammar(utterance.text):
            transcript = read_transcript(utterance, reader)
            if isinstance(transcript, Writings):
                several[utterance.id] = transcript
                utterance = replace(utterance, text=grammar_text(transcript))
            elif utterance.texts or has_grammar(utterance.text):
                utterance = replace(utterance, text=transcript)
        found.append(utterance)
    return found, several


def _probe_nearest(
    model: ProbeModel,
    batch: list[tuple[Utterance, torch.Tensor]],
    writings: Mapping[str, Writings],
    self_loop: float | None,
) -> list[ProbedUtterance | UtteranceError]:
    """Choose the most probable writing of each utterance, and probe it."""
    several = [(u, logits) for u, logits in batch if u.id in writings]
    bad: list[ProbedUtterance | UtteranceError] = []
    chosen: dict[str, Chosen] = {}
    for utterance, logits in several:
        try:
            [found] = choose_writings(model.units, [writings[utterance.id]], [logits])
            if found is None:
                raise WildCTCError("transcript too long for its audio in all its writings")
            chosen[utterance.id] = found
        except WildCTCError as error:
            bad.append(UtteranceError(utterance, str(error)))
    lost = {error.id for error in bad if isinstance(error, UtteranceError)}
    texts = {id: found.text for id, found in chosen.items()}
    left = [(replace(u, text=texts.get(u.id, u.text)), logits) for u, logits in batch if u.id not in lost]
    probed = _probe_batch(model, left, self_loop)
    return [*bad, *(_with_choices(found, chosen) for found in probed)]


def _with_choices(
    found: ProbedUtterance | UtteranceError, chosen: Mapping[str, Chosen]
) -> ProbedUtterance | UtteranceError:
    if isinstance(found, UtteranceError) or found.id not in chosen:
        return found
    return replace(found, choices=[ProbedChoice(**choice.to_dict()) for choice in chosen[found.id].choices])


def _probe_batch(
    model: ProbeModel, batch: list[tuple[Utterance, torch.Tensor]], self_loop: float | None
) -> list[ProbedUtterance | UtteranceError]:
    if not batch:
        return []
    rows = [model.units.encode(utterance.text) for utterance, _ in batch]
    for utterance, logits in batch:
        if logits.isnan().any():
            raise WildCTCError(f"{utterance.id}: the model's outputs are not numbers (NaN): has training diverged?")
    probed = probe_logits(
        torch.nn.utils.rnn.pad_sequence([logits for _, logits in batch]),
        torch.tensor([label for row in rows for label in row], dtype=torch.int64),
        [len(logits) for _, logits in batch],
        [len(row) for row in rows],
        tokens=model.units.tokens,
        self_loop=self_loop,
        frame_rate=model.frame_rate,
    )
    return [
        _named(utterance, result) if result else UtteranceError(utterance, _too_long(row, len(logits)))
        for (utterance, logits), row, result in zip(batch, rows, probed, strict=True)
    ]


def _named(utterance: Utterance, probed: ProbedUtterance) -> ProbedUtterance:
    duration = utterance.duration or probed.duration
    units: list[ProbedToken | ProbedWord] = [*probed.tokens, *probed.words]
    for unit in units:
        unit.start, unit.end = (time_in_audio(time, probed.duration, duration) for time in (unit.start, unit.end))
    return replace(
        probed,
        id=utterance.id,
        audio=str(utterance.audio),
        offset=utterance.start,
        duration=duration,
        channel=utterance.channel,
        speaker=utterance.speaker,
    )


def _too_long(row: list[int], frames: int) -> str:
    short = infeasible(torch.tensor([row], dtype=torch.int64), [frames], [len(row)])
    needed = short[0].needed if short else len(row)
    return f"transcript too long for its audio: needs {needed} frames, has {frames}"


def _row(found: ProbedUtterance | UtteranceError) -> dict[str, Any]:
    return left_out(found) if isinstance(found, UtteranceError) else as_row(found)


def _report(
    model: ProbeModel, output: Path, utterances: Sequence[Utterance], texts: list[str], now: int, max_bad: float
) -> ProbeCounts:
    """Report the utterances that were skipped, by this call or an earlier one, and a model that recognises nothing."""
    rejects = Rejects(max_bad)
    by_id, words = {u.id: u for u in utterances}, Errors()
    for _, row in read_rows(output):
        if "left_out" not in row:
            words += wer([row.get("text", "")], [row.get("heard", "")]) if "probe" not in row else Errors()
            continue
        error = UtteranceError(by_id[row["id"]], row["left_out"])
        if error.reason.startswith(_OUTSIDE):
            rejects.errors[str(error)] = error  # reported below, once for all of them
        else:
            rejects.add(error)
    _report_outside(model.units.missing, texts)
    if hopeless(words):
        _log.warning("WER %.1f%%: %s", 100 * words.rate, HEARS_NOTHING)
    rejects.check(len(utterances))
    return ProbeCounts(now, len(rejects.errors))


def _report_outside(missing: Callable[[str], list[str]], texts: list[str]) -> None:
    outside = find_outside(texts, missing)
    if not outside.texts:
        return
    option, left = advise_reading(texts, missing)
    advice = (
        f"{option} would skip {left:,}; give another -o with it" if option else "no option helps: correct the manifest"
    )
    _log.warning(
        "skipped: %s of %s transcripts have characters outside the units: %s; %s",
        f"{outside.texts:,}", f"{len(texts):,}", outside, advice,
    )  # fmt: skip
