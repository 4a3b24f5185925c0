"""Cut the recordings of shards into shards of training segments: each utterance is a recording with its rough text.

A shard of recordings becomes a shard of segments with their own audio. Several processes, on several machines, do
different shards (`wildctc.claims`); a call that was stopped continues with the next shard.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from wildctc.audio.recordings import Recording, open_recording
from wildctc.audio.sound_files import check_audio, read_samples
from wildctc.claims import agree_on, once, work_through
from wildctc.corpora.packing import Packing
from wildctc.corpora.shard_files import write_shard
from wildctc.corpora.shards import FORMAT, LIST, Shards
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import make_folder, write_text, writing
from wildctc.json_lines import row_line
from wildctc.longform.recording import LEAST_FOUND, LongModel, align_sound
from wildctc.longform.segments import Cutting, Pair, cut
from wildctc.longform.written import parse_text
from wildctc.progress import progress
from wildctc.recognizer.partials import left_out

_ROWS = "segmenting"  # the folder of what is not finished


def segment_shards(
    model: LongModel,
    shards: Shards,
    folder: Path,
    settings: dict[str, Any],
    *,
    cutting: Cutting,
    channel: int | None = None,
    romanize: Callable[[str], str] | None = None,
    least: float = LEAST_FOUND,
) -> Iterator[dict[str, Any]]:
    """Cut the recordings of shards into the shards of FOLDER; FOLDER/files.jsonl has a report of each recording.

    A recording that cannot be used gets a row with the reason, and the others go on.

    Args:
        model: The model.
        shards: The recordings with their texts.
        folder: The folder to write.
        settings: `weights`, a fingerprint of the model, and what else the segments depend on.
        cutting: Which pieces become segments.
        channel: The channel, from 0; None: what each utterance says.
        romanize: Applied to each word of the texts.
        least: The share of a text that must be found in its audio.

    Returns:
        The rows of FOLDER/files.jsonl: `report` of each recording, or the reason why it is `left_out`.

    Raises:
        WildCTCError: The folder has something else, or there are no segments.
    """
    digest = hashlib.sha256("".join(shard.digest for shard in shards.shards).encode()).hexdigest()[:16]
    about = json.loads(
        json.dumps(settings | {"shards": digest, "cutting": asdict(cutting), "options": [channel, least]})
    )
    work = _Work(model, shards, folder, cutting, channel, romanize, least)
    if not work.finished:
        if folder.exists() and not work.rows.is_dir() and any(folder.iterdir()):
            raise WildCTCError(f"{folder}: there is something else; give the name of a new folder with -o")
        agree_on(make_folder(make_folder(folder) / _ROWS) / "settings.json", about)
        numbers = range(len(shards))
        with progress(total=len(numbers), desc="segmenting", unit="shard", leave=False) as bar:
            for _ in work_through(numbers, work.rows / "claims", work.is_done, work.do):
                bar.update()
        once(folder / ".finishing", lambda: work.finished, lambda: work.finish(about))
        with contextlib.suppress(OSError):  # another process may be doing the same
            shutil.rmtree(work.rows)
        (folder / ".finishing").unlink(missing_ok=True)
    if json.loads((folder / LIST).read_text(encoding="utf-8")).get("source") != about:
        raise WildCTCError(f"{folder / LIST}: of other shards, another model or other options; give another with -o")
    return _rows(folder / "files.jsonl")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


@dataclass(frozen=True)
class _Work:
    """The pieces of work: each makes a shard of segments, and a report."""

    model: LongModel
    shards: Shards
    folder: Path
    cutting: Cutting
    channel: int | None
    romanize: Callable[[str], str] | None
    least: float

    @property
    def rows(self) -> Path:
        return self.folder / _ROWS

    @property
    def finished(self) -> bool:
        return (self.folder / LIST).is_file()

    def report(self, number: int) -> Path:
        return self.rows / f"{number:06d}.json"

    def is_done(self, number: int) -> bool:
        return self.report(number).is_file() or self.finished

    def do(self, number: int) -> None:
        rows: list[dict[str, Any]] = []
        segments: list[Utterance] = []
        for utterance in self.shards.read(number):
            row, found = self.cut(utterance)
            rows.append(row)
            segments += found
        shard, bad = write_shard(self.folder, self.shards.shards[number].name, segments, Packing(decode=False))
        self.shards.done(number)
        rows += map(left_out, bad)
        content = [None if shard is None else asdict(shard), rows]
        write_text(self.report(number), json.dumps(content, ensure_ascii=False))

    def cut(self, utterance: Utterance) -> tuple[dict[str, Any], list[Utterance]]:
        """Align a recording and cut it: its report, and the segments."""
        channel = utterance.channel if self.channel is None else self.channel
        try:
            found = align_sound(
                self.model, _open(utterance, channel), parse_text(utterance.text, f"the text of {utterance.id}"),
                channel=channel, romanize=self.romanize, least=self.least,
            ).alignment  # fmt: skip
        except MissingExtra:
            raise
        except (WildCTCError, OSError, MemoryError) as error:
            return {"id": utterance.id, "left_out": str(error)}, []
        rows, report = cut(found, Pair(utterance.id, utterance.audio, utterance.audio), self.cutting)
        segments = [
            replace(
                utterance, id=row["id"], text=row["text"], start=utterance.start + row["start"],
                duration=row["duration"], channel=channel, weights=None, texts=(), annotators=(),
                fields=(*utterance.fields, ("confidence", str(row["confidence"]))),
            )
            for row in rows
        ]  # fmt: skip
        return {"id": utterance.id, "report": report, "band": found.band}, segments

    def reports(self) -> Iterator[tuple[dict[str, Any] | None, list[dict[str, Any]]]]:
        for number in range(len(self.shards)):
            yield json.loads(self.report(number).read_text(encoding="utf-8"))

    def finish(self, about: dict[str, Any]) -> None:
        """Write the reports of all recordings, and then the list of the shards."""
        files, part = self.folder / "files.jsonl", self.folder / ".files.jsonl.part"
        with writing(files):
            with open(part, "w", encoding="utf-8") as file:
                for _, rows in self.reports():
                    file.writelines(map(row_line, rows))
            os.replace(part, files)
        shards = [shard for shard, _ in self.reports() if shard is not None]
        if not shards:
            raise WildCTCError(f"{files}: no recording gave a segment; it says what became of each")
        content = {"format": FORMAT, "source": about, "shards": shards}
        write_text(self.folder / LIST, json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def _open(utterance: Utterance, channel: int | None) -> Recording:
    """Open the recording of an utterance, which may be a part of a file."""
    try:
        checked = check_audio(utterance)
        if utterance.start == 0 and checked.utterance.duration == checked.samples / checked.rate:
            return open_recording(utterance.audio, channel=channel)
        wave, rate = read_samples(utterance)
    except UtteranceError as error:
        raise WildCTCError(f"{error.path}: {error.reason}") from None
    return replace(open_recording(wave, rate, channel), name=str(utterance.audio))
