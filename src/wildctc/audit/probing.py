"""Probing a manifest: batch by batch, in several processes if torchrun started them, going on where it was stopped.

Each process appends what it has done to a partial file of its own beside the output. When all are done the first one
puts the rows together in the manifest's order; only then is the output there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import torch

from wildctc.audit.probe import probe_logits
from wildctc.audit.probed import ProbedToken, ProbedUtterance, ProbedWord, as_row, check_settings, header_line, row_line
from wildctc.corpora import Rejects, Utterance, UtteranceError
from wildctc.distributed import Processes
from wildctc.errors import WildCTCError
from wildctc.files import as_bytes, check_writable, writing
from wildctc.inference import GivesLogits, utterance_logits
from wildctc.lattice.feasibility import infeasible
from wildctc.text import describe

BATCH = 16  # utterances in a lattice, and the most that are lost when the work is interrupted
DECIDING = {"weights": "another model", "self_loop": "another self-loop weight", "utterances": "another manifest"}


class WritesText(Protocol):
    """What probing asks of a model's units."""

    tokens: list[str]

    def encode(self, text: str, /) -> list[int]: ...
    def missing(self, text: str, /) -> list[str]: ...


class Model(GivesLogits, Protocol):
    """What can be probed: a `Recognizer`, or a `Checkpoint` of Hugging Face. Label 0 is blank."""

    @property
    def units(self) -> WritesText: ...
    @property
    def frame_rate(self) -> float:
        """Frames of logits a second."""
        ...


class Probed(NamedTuple):
    """What became of a manifest: utterances done by this call, and all that are left out."""

    now: int
    left_out: int


def probe_manifest(
    model: Model,
    utterances: Sequence[Utterance],
    output: Path,
    settings: dict[str, Any],
    *,
    processes: Processes,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
) -> Probed:
    """Probe `utterances` into `output` (see `read_probe`), doing only what an earlier call has not done.

    settings: the file's first row, `weights` (a fingerprint of the model) and `self_loop` among them. A file of another
    model, self-loop weight or manifest is refused. More than `max_bad` of the utterances left out is an error, but the
    file is whole all the same.
    """
    settings = {**settings, "count": len(utterances), "utterances": _digest(utterances)}
    check_writable(output)
    finished = output.exists()
    done = {row for path in ([output] if finished else _partials(output)) for row in _rows(path, settings)}
    processes.barrier()  # nobody writes before everybody has read
    rest = [u for u in utterances if u.id not in done]
    if finished and rest:
        raise WildCTCError(f"{output}: {len(rest)} of {len(utterances)} rows are gone; remove it to probe again")
    if not finished:
        mine = processes.share(sorted(rest, key=lambda u: u.duration))
        _append(model, mine, output.with_name(f"{output.name}.{processes.rank}.partial"), settings, cache, workers)
        processes.barrier()
        if processes.first:
            _merge(output, utterances, settings)
        processes.barrier()
    return _report(output, utterances, settings, len(rest), max_bad)


def probe_utterances(
    model: Model,
    utterances: Sequence[Utterance],
    *,
    self_loop: float | None = 0.0,
    cache: str | Path | None = None,
    workers: int = 1,
) -> Iterator[list[ProbedUtterance | UtteranceError]]:
    """Probe utterances batch by batch, from short to long; one that cannot be probed gives the reason why.

    An empty transcript can be probed: all speech is then unwritten.
    """
    bad, usable = _Collected(), []
    for utterance in utterances:
        if outside := model.units.missing(utterance.text):
            bad.add(UtteranceError(utterance, f"characters outside the units: {describe(outside)}"))
        else:
            usable.append(utterance)
    batch: list[tuple[Utterance, torch.Tensor]] = []
    for pair in utterance_logits(model, usable, bad, cache=cache, workers=workers, title="probing"):
        batch.append(pair)
        if len(batch) == BATCH:
            yield [*bad.take(), *_probe_batch(model, batch, self_loop)]
            batch = []
    yield [*bad.take(), *_probe_batch(model, batch, self_loop)]


class _Collected(Rejects):
    """Keeps what is wrong until it is asked for; it is reported when all is done."""

    def add(self, error: UtteranceError) -> None:
        self.errors[str(error)] = error

    def take(self) -> list[UtteranceError]:
        found, self.errors = list(self.errors.values()), {}
        return found


def _probe_batch(
    model: Model, batch: list[tuple[Utterance, torch.Tensor]], self_loop: float | None
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
    # Convolutions lose as much of the audio at its beginning as at its end, so the frames lie in its middle.
    shift = (duration - probed.duration) / 2
    units: list[ProbedToken | ProbedWord] = [*probed.tokens, *probed.words]
    for unit in units:
        unit.start, unit.end = (min(max(0.0, time + shift), duration) for time in (unit.start, unit.end))
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


def _append(
    model: Model,
    utterances: Sequence[Utterance],
    part: Path,
    settings: dict[str, Any],
    cache: str | Path | None,
    workers: int,
) -> None:
    batches = probe_utterances(model, utterances, self_loop=settings["self_loop"], cache=cache, workers=workers)
    with writing(part), open(part, "a+b") as file:
        _take(file, part)
        if _cut_off_half_a_row(file) == 0:
            file.write(as_bytes(header_line(settings)))
        for batch in batches:
            file.write(as_bytes("".join(row_line(_row(found)) for found in batch)))
            file.flush()


def _take(file: IO[bytes], part: Path) -> None:
    """Keep a second command from writing the same rows."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WildCTCError(f"{part}: another process is writing it; wait for it or stop it") from None


def _row(found: ProbedUtterance | UtteranceError) -> dict[str, Any]:
    return {"id": found.id, "left_out": found.reason} if isinstance(found, UtteranceError) else as_row(found)


def _cut_off_half_a_row(file: IO[bytes]) -> int:
    """Remove what a killed process left after the last newline; returns the size that remains."""
    file.seek(0)
    size = 0
    for line in file:
        size += len(line) if line.endswith(b"\n") else 0
    file.truncate(size)
    return size


def _partials(output: Path) -> list[Path]:
    return sorted(output.parent.glob(f"{output.name}.*.partial"))


def _rows(path: Path, settings: dict[str, Any]) -> dict[str, tuple[int, bool]]:
    """For each utterance in a probe file or a partial one: where its row begins, and whether it was left out."""
    found: dict[str, tuple[int, bool]] = {}
    position = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):  # half a row
                break
            if position == 0:
                _check(path, check_settings(_parse(line, path), path), settings)
            else:
                row = _parse(line, path)
                found[row.get("id", "")] = (position, "left_out" in row)
            position += len(line)
    return found


def _parse(line: bytes, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        raise WildCTCError(f"{path}: not a probe, or damaged; remove it to probe again") from None


def _check(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    for name, what in DECIDING.items():
        if there.get(name) != here[name]:
            raise WildCTCError(f"{path} was made with {what}; remove it, or write elsewhere with -o")


def _digest(utterances: Sequence[Utterance]) -> str:
    content = [(u.id, u.start, u.duration, u.channel, u.text) for u in utterances]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _merge(output: Path, utterances: Sequence[Utterance], settings: dict[str, Any]) -> None:
    """Put the partial files together, in the manifest's order; row by row, since all may not fit into memory."""
    parts = _partials(output)
    places = {name: (part, where) for part in parts for name, (where, _) in _rows(part, settings).items()}
    temporary = output.with_name(f".{output.name}.part")
    with writing(output):
        files = {part: open(part, "rb") for part in parts}  # noqa: SIM115 (closed below)
        with open(temporary, "wb") as out:
            out.write(as_bytes(header_line(settings)))
            for utterance in utterances:
                part, where = places[utterance.id]
                files[part].seek(where)
                out.write(files[part].readline())
            out.flush()
            os.fsync(out.fileno())
        for file in files.values():
            file.close()
        os.replace(temporary, output)
        for part in parts:
            part.unlink()


def _report(
    output: Path, utterances: Sequence[Utterance], settings: dict[str, Any], now: int, max_bad: float
) -> Probed:
    """Say which utterances are left out, whenever that was found."""
    rejects = Rejects(max_bad)
    by_id = {u.id: u for u in utterances}
    with open(output, "rb") as file:
        for name, (where, left_out) in _rows(output, settings).items():
            if left_out:
                file.seek(where)
                rejects.add(UtteranceError(by_id[name], _parse(file.readline(), output)["left_out"]))
    rejects.check(len(utterances))
    return Probed(now, len(rejects.errors))
