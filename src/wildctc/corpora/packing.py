"""`wildctc pack`: write a corpus in shards.

First the manifest is read once and divided into jobs, files of rows in OUT/rows. Then several processes, also on
several machines, make shards out of them side by side. At the end one process writes `shards.json`. A call that was
stopped continues; the same manifest gives the same bytes, whoever makes which shard.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wildctc.claims import once, work_through
from wildctc.corpora.manifest import move_audio_of, read_utterances
from wildctc.corpora.preparation import Rejects
from wildctc.corpora.rewriting import plain_row
from wildctc.corpora.shard_files import write_shard
from wildctc.corpora.shards import FORMAT, LIST, Shard
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, remove_parts, write_text, writing
from wildctc.json_lines import row_line
from wildctc.progress import progress

_log = logging.getLogger(__name__)
SIZE = 1000  # utterances in a shard
_JOB = 20  # shards that a job makes: its rows are in memory together
_ROWS = "rows"


@dataclass(frozen=True)
class Packing:
    """How a corpus is packed.

    Attributes:
        size: Utterances in a shard.
        seed: Decides the order of the utterances; None keeps that of the manifest.
        flac: Write uncompressed audio as FLAC, which has the same samples.
        link: Leave the audio where it is; the shards are tables only.
        decode: Decode all audio, to find what is damaged.
        max_bad: The share of utterances that may be unusable.
    """

    size: int = SIZE
    seed: int | None = 0
    flac: bool = False
    link: bool = False
    decode: bool = True
    max_bad: float = 0.01

    def __post_init__(self) -> None:
        if self.size < 1:
            raise WildCTCError(f"--size must be at least 1, got {self.size}")


def pack(
    manifest: str | Path,
    folder: str | Path,
    packing: Packing = Packing(),
    *,
    split: str | None = None,
    audio_root: str | Path | None = None,
    workers: int = 0,
) -> list[Shard]:
    """Write the shards of a manifest. Several calls may do so side by side, on machines that share the folder.

    Args:
        manifest: The manifest.
        folder: The folder to write.
        packing: How it is packed.
        split: Only utterances of this split.
        audio_root: The folder that the audio has been moved to since the manifest was written.
        workers: Processes; 0 does the work in this one.

    Returns:
        The shards.

    Raises:
        WildCTCError: The manifest cannot be read, too many utterances cannot be used, or the folder has other shards.
    """
    manifest, folder = Path(manifest), Path(folder)
    source = {"manifest": _digest(manifest), "split": split, "packing": asdict(packing)}
    if (folder / LIST).is_file():
        return _finished(folder, source)
    rows = make_folder(make_folder(folder) / _ROWS)
    jobs = _divide(manifest, rows, source, packing, split, audio_root)
    if jobs is not None:  # otherwise another process has finished meanwhile
        work = _Work(folder, rows, packing, jobs)
        with progress(total=sum(jobs), desc=f"packing {folder.name}", unit="utt", leave=False) as bar:
            for number in work_through(range(len(work.pieces)), rows / "claims", work.is_done, work.do, workers):
                bar.update(work.size(number))
        _finish(folder, rows, source, packing, work)
    return _finished(folder, source)


def _digest(manifest: Path) -> str:
    try:
        with open(manifest, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WildCTCError(f"cannot read {manifest}: {error.strerror}") from None


def _finished(folder: Path, source: dict[str, Any]) -> list[Shard]:
    content = json.loads((folder / LIST).read_text(encoding="utf-8"))
    _check_source(folder / LIST, content.get("source"), source)
    return [Shard(**row) for row in content["shards"]]


def _check_source(path: Path, there: Any, source: dict[str, Any]) -> None:
    if there != source:
        raise WildCTCError(f"{path}: of another manifest, or packed in another way; give another folder, or remove it")


# ------------------------------------------------------------------------------------------------------------- dividing


def _divide(
    manifest: Path,
    rows: Path,
    source: dict[str, Any],
    packing: Packing,
    split: str | None,
    audio_root: str | Path | None,
) -> list[int] | None:
    """Write the jobs, unless that is done: how many utterances each has. None: the shards are finished."""
    plan = rows / "plan.json"

    def divide() -> None:
        remove_parts(rows)
        counts = _write_jobs(manifest, rows, packing, split, audio_root)
        if not any(counts):
            raise WildCTCError(f"{manifest}: no utterances{f' of split {split!r}' if split else ''} in it")
        write_text(plan, json.dumps({"source": source, "jobs": counts}))

    once(rows / "dividing", lambda: plan.is_file() or (rows.parent / LIST).is_file(), divide)
    if (rows.parent / LIST).is_file():
        return None
    content = json.loads(plan.read_text(encoding="utf-8"))
    _check_source(rows, content["source"], source)
    return list(content["jobs"])


def _write_jobs(
    manifest: Path, rows: Path, packing: Packing, split: str | None, audio_root: str | Path | None
) -> list[int]:
    """Divide a manifest: by the hash of the ids, which also brings equal ids together, or in its order."""
    each = packing.size * _JOB
    jobs = 1 if packing.seed is None else max(1, round(_count_lines(manifest) / each))
    files: list[Any] = []
    counts: list[int] = []
    chunk: list[Utterance] = []
    try:
        for utterance in progress(_utterances(manifest, split), desc="reading", unit="utt", leave=False):
            job = sum(counts) // each if packing.seed is None else int(_order(utterance.id, packing.seed), 16) % jobs
            while job >= len(files):
                files.append(open(rows / f".{len(files):05d}.jsonl.part", "w", encoding="utf-8"))  # noqa: SIM115
                counts.append(0)
            if audio_root is not None:
                chunk = move_audio_of([utterance], Path(audio_root), manifest)
                utterance = chunk[0]
            with writing(rows):
                files[job].write(row_line(plain_row(utterance)))
            counts[job] += 1
    finally:
        for file in files:
            file.close()
    with writing(rows):
        for job in range(len(files)):
            (rows / f".{job:05d}.jsonl.part").rename(rows / f"{job:05d}.jsonl")
    return counts


def _utterances(manifest: Path, split: str | None) -> Iterator[Utterance]:
    for _, found in read_utterances(manifest):
        for utterance in found:
            if split is None or utterance.split == split:
                yield utterance


def _count_lines(manifest: Path) -> int:
    with gzip.open(manifest) if manifest.suffix == ".gz" else open(manifest, "rb") as file:
        return sum(1 for _ in file)


def _order(id: str, seed: int) -> str:
    return hashlib.sha256(f"{seed} {id}".encode("utf-8", "backslashreplace")).hexdigest()


# ------------------------------------------------------------------------------------------------------------- the jobs


class _Work:
    """The pieces of work: each makes a shard out of a part of a job.

    Attributes:
        pieces: The job of each, and the first and the last of the job's utterances, exclusive.
    """

    def __init__(self, folder: Path, rows: Path, packing: Packing, jobs: Sequence[int]) -> None:
        self.folder, self.rows, self.packing = folder, rows, packing
        self.pieces = [(job, *part) for job, count in enumerate(jobs) for part in self._parts(count)]
        self._last: tuple[int, list[Utterance]] = (-1, [])

    def _parts(self, count: int) -> list[tuple[int, int]]:
        size = self.packing.size
        if self.packing.seed is None:
            return [(begin, min(begin + size, count)) for begin in range(0, count, size)]
        parts = max(1, round(count / size)) if count else 0  # of nearly the same size
        return [(i * count // parts, (i + 1) * count // parts) for i in range(parts)]

    def size(self, number: int) -> int:
        _, begin, end = self.pieces[number]
        return end - begin

    def report(self, number: int) -> Path:
        return self.rows / f"{number:06d}.done.json"

    def is_done(self, number: int) -> bool:
        return self.report(number).is_file() or (self.folder / LIST).is_file()

    def do(self, number: int) -> None:
        job, begin, end = self.pieces[number]
        shard, bad = write_shard(self.folder, f"{number:06d}", self._read(job)[begin:end], self.packing)
        rejected = [{"id": e.id, "audio": str(e.path), "reason": e.reason} for e in bad]
        content = {"shard": None if shard is None else asdict(shard), "rejected": rejected}
        write_text(self.report(number), json.dumps(content, ensure_ascii=False))

    def _read(self, job: int) -> list[Utterance]:
        if self._last[0] != job:
            path = self.rows / f"{job:05d}.jsonl"
            found = [utterance for _, row in read_utterances(path) for utterance in row]
            if self.packing.seed is not None:
                found.sort(key=lambda u: _order(u.id, self.packing.seed or 0))
            self._last = (job, found)
        return self._last[1]


def _finish(folder: Path, rows: Path, source: dict[str, Any], packing: Packing, work: _Work) -> None:
    """Write the list of shards, unless another process does it."""

    def finish() -> None:
        reports = [json.loads(work.report(n).read_text(encoding="utf-8")) for n in range(len(work.pieces))]
        shards = [report["shard"] for report in reports if report["shard"] is not None]
        rejected = [row for report in reports for row in report["rejected"]]
        write_text(folder / "rejected.jsonl", "".join(map(row_line, rejected)))
        rejects = Rejects(packing.max_bad)
        for row in rejected:
            rejects.add(UtteranceError(Utterance(row["id"], Path(row["audio"])), row["reason"]))
        try:
            rejects.check(sum(shard["utterances"] for shard in shards) + len(rejected))
            if not shards:
                raise WildCTCError(f"{folder}: no utterance can be used; {folder / 'rejected.jsonl'} says why")
        except WildCTCError:
            _remove(folder, rows)  # so that the audio is looked at again after the user has corrected it
            raise
        content = {"format": FORMAT, "source": source, "shards": shards}
        write_text(folder / LIST, json.dumps(content, ensure_ascii=False, separators=(",", ":")))

    once(folder / ".finishing", (folder / LIST).is_file, finish)
    _remove(folder, rows)


def _remove(folder: Path, rows: Path) -> None:
    with contextlib.suppress(OSError):  # another process may be doing the same
        shutil.rmtree(rows)
    (folder / ".finishing").unlink(missing_ok=True)
