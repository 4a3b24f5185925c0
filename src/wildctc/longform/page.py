"""The audit page of a long alignment: its pieces are probed as utterances, and shown with their sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from wildctc.audit.report import AuditReport, write_report
from wildctc.files import make_folder
from wildctc.longform.alignment import LongAlignment
from wildctc.longform.pieces import Piece, all_pieces
from wildctc.longform.written import SpokenText
from wildctc.probe.doubt import score_words
from wildctc.probe.graphs import probe_logits
from wildctc.probe.records import ProbedToken, ProbedUtterance, ProbedWord, write_probe
from wildctc.recognizer.windows import LongLogits

_SHORTEST = 0.3  # seconds of speech beside the text that get an utterance of their own


def write_page(
    folder: Path,
    found: LongAlignment,
    logits: LongLogits,
    spoken: SpokenText,
    tokens: list[str],
    settings: dict[str, Any],
) -> AuditReport:
    """Probe the pieces of an alignment, and write FOLDER with the page and FOLDER/probe.jsonl.

    Args:
        folder: A new or empty folder, or one with an earlier report.
        found: The alignment.
        logits: Of its recording.
        spoken: The text in the model's units.
        tokens: label → string.
        settings: What the probe file says about the model.

    Returns:
        What was written.
    """
    utterances = list(_probed(found, logits, spoken, tokens))
    probe = make_folder(folder.parent) / f"{folder.name}.probe.jsonl"
    about = settings | {"self_loop": 0.0, "frame_rate": logits.rate, "count": len(utterances)}
    write_probe(probe, about, utterances)
    score_words(probe)
    return write_report(probe, folder)


def _probed(
    found: LongAlignment, logits: LongLogits, spoken: SpokenText, tokens: list[str]
) -> Iterator[ProbedUtterance]:
    name = Path(found.audio).stem
    for number, piece in enumerate(all_pieces(found)):
        if piece.first == piece.stop and piece.end - piece.start < _SHORTEST:
            continue
        first, last = (round((second - logits.first) * logits.rate) for second in (piece.start, piece.end))
        first = max(0, first)
        labels = _labels(piece, spoken, tokens)
        part = logits.logits[first : max(last, first)]
        [probed] = probe_logits(
            part.unsqueeze(1), torch.tensor([labels], dtype=torch.int64), [len(part)], [len(labels)],
            tokens=tokens, frame_rate=logits.rate,
        ) if len(part) else [None]  # fmt: skip
        if probed is None:  # a sentence that was not read has no time
            continue
        shift = logits.time(first) - piece.start
        units: list[ProbedToken | ProbedWord] = [*probed.tokens, *probed.words]
        duration = round(piece.end - piece.start, 3)
        for unit in units:
            unit.start, unit.end = (min(max(0.0, at + shift), duration) for at in (unit.start, unit.end))
        audio = str(Path(found.audio).resolve())
        yield replace(
            probed, id=f"{name}-{number:05d}", audio=audio, offset=piece.start, duration=duration, channel=found.channel
        )


def _labels(piece: Piece, spoken: SpokenText, tokens: list[str]) -> list[int]:
    labels = [
        label
        for label, word in zip(spoken.labels, spoken.words, strict=True)
        if word >= 0 and piece.first <= spoken.written[word] < piece.stop
    ]
    return labels[1:] if labels and tokens[labels[0]] == " " else labels
