"""Training segments from long recordings: what matches the text, cut into utterances of 1 to 20 s."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from wildctc.distributed import ALONE, Processes
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import check_writable, make_folder, write_text
from wildctc.json_lines import read_lines, read_rows, row_line
from wildctc.longform.alignment import LongAlignment, texts_of
from wildctc.longform.bridges import bridge
from wildctc.longform.pieces import LONGEST, Piece, solid_pieces
from wildctc.longform.recording import LEAST_FOUND, LongModel, align_recording
from wildctc.recognizer.partials import Partials
from wildctc.terminal import table

SHORTEST = 1.0  # seconds
LEAST_CONFIDENCE = 0.8
_DECIDING = {
    "weights": "another model",
    "files": "other files",
    "cutting": "other lengths, confidences, --bridge, --least, --channel, --encoding or --romanize",
}


@dataclass(frozen=True)
class Cutting:
    """Which pieces become segments.

    Attributes:
        shortest: The least seconds.
        longest: The most seconds.
        confidence: The least mean confidence of a segment's words.
        bridge: The most words that may differ at a place inside a segment, which then has both sides as alternatives.
    """

    shortest: float = SHORTEST
    longest: float = LONGEST
    confidence: float = LEAST_CONFIDENCE
    bridge: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.shortest < self.longest:
            raise WildCTCError(f"segments of {self.shortest:g} to {self.longest:g} s: give a shorter --shortest")
        if not 0 <= self.confidence <= 1:
            raise WildCTCError(f"--confidence is a probability, got {self.confidence:g}")
        if self.bridge < 0:
            raise WildCTCError(f"--bridge is a number of words, got {self.bridge}")


@dataclass(frozen=True)
class Pair:
    """A recording and its text.

    Attributes:
        id: Begins the ids of its segments.
        audio: The audio file.
        text: The text's file.
    """

    id: str
    audio: Path
    text: Path


def read_table(path: str | Path) -> list[Pair]:
    """Read which text belongs to which recording.

    Args:
        path: Lines of audio, tab, text. Paths are relative to the table's folder.

    Returns:
        The pairs; ids are the names of the audio files.

    Raises:
        WildCTCError: A line has another form, or two files have the same name.
    """
    path, pairs = Path(path), dict[str, Pair]()
    for line, row in read_lines(path):
        columns = row.rstrip("\n").split("\t")
        if len(columns) != 2 or not all(columns):
            raise WildCTCError(f"{path}:{line}: expected audio, tab, text; there are {len(columns)} columns")
        audio, text = (path.parent / column.strip() for column in columns)
        if audio.stem in pairs:
            raise WildCTCError(
                f"{path}:{line}: {audio.stem!r} is also the name of {pairs[audio.stem].audio}; rename one"
            )
        pairs[audio.stem] = Pair(audio.stem, audio, text)
    if not pairs:
        raise WildCTCError(f"{path}: no lines of audio, tab, text in it")
    return list(pairs.values())


def segment_files(
    model: LongModel,
    pairs: Sequence[Pair],
    folder: Path,
    settings: dict[str, Any],
    *,
    cutting: Cutting,
    channel: int | None = None,
    encoding: str | None = None,
    romanize: Callable[[str], str] | None = None,
    least: float = LEAST_FOUND,
    processes: Processes = ALONE,
) -> list[dict[str, Any]]:
    """Cut recordings into FOLDER/manifest.jsonl; FOLDER/files.jsonl has a report of each. A stopped call resumes.

    A file that cannot be used gets a row with the reason, and the others go on.

    Args:
        model: The model.
        pairs: The recordings with their texts.
        folder: The folder to write.
        settings: `weights`, a fingerprint of the model, and what else the segments depend on.
        cutting: Which pieces become segments.
        channel: The channel, from 0; None takes the mean of all.
        encoding: Of the texts; see `read_text`.
        romanize: Applied to each word of the texts.
        least: The share of a text that must be found in its audio.
        processes: The processes that share the work.

    Returns:
        The rows of FOLDER/files.jsonl: `report` of each file, or the reason why it is `left_out`.
    """
    files = make_folder(folder) / "files.jsonl"
    check_writable(files)
    check_writable(folder / "manifest.jsonl")
    names = [[pair.id, str(pair.audio), str(pair.text)] for pair in pairs]
    about = settings | {
        "files": names,
        "cutting": [*vars(cutting).values(), channel, encoding, least, settings.get("romanize")],
    }
    partials = Partials(files, "segment", about, _DECIDING, processes)
    done = partials.index(files).keys() if files.exists() else partials.done()
    mine = [pair for pair in processes.share(pairs) if pair.id not in done]

    def rows() -> Iterator[list[dict[str, Any]]]:
        for pair in mine:
            try:
                found = align_recording(
                    model, pair.audio, pair.text, channel=channel, encoding=encoding, romanize=romanize, least=least
                ).alignment
                segments, report = cut(found, pair, cutting)
                yield [{"id": pair.id, "report": report, "band": found.band, "segments": segments}]
            except MissingExtra:
                raise
            except (WildCTCError, OSError, MemoryError) as error:
                yield [{"id": pair.id, "left_out": str(error)}]

    if not files.exists():
        partials.append(rows())
        partials.merge([pair.id for pair in pairs], partials.header)
    if processes.first:
        _write_manifest(files, folder / "manifest.jsonl")
    processes.barrier()
    return [row for _, row in read_rows(files) if "segment" not in row]


def _write_manifest(files: Path, manifest: Path) -> None:
    rows = [segment for _, row in read_rows(files) for segment in row.get("segments", [])]
    write_text(manifest, "".join(map(row_line, rows)))


def cut(found: LongAlignment, pair: Pair, cutting: Cutting) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Cut one aligned recording.

    Args:
        found: The alignment.
        pair: Its files.
        cutting: Which pieces become segments.

    Returns:
        The rows of the manifest; and what became of the recording: seconds and words by reason.
    """
    words = [w for w in found.words if w.confidence is not None]
    found = bridge(found, cutting.bridge)
    rows: list[dict[str, Any]] = []
    short = doubtful = 0.0
    for piece in solid_pieces(found, cutting.longest):
        sure = _confidence(found, piece)
        if piece.end - piece.start < cutting.shortest:
            short += piece.end - piece.start
        elif sure < cutting.confidence or piece.end - piece.start > cutting.longest:
            doubtful += piece.end - piece.start
        else:
            rows.append(_row(found, piece, pair, sure, len(rows)))
    report: dict[str, float] = {"seconds": found.duration, "kept": sum(row["duration"] for row in rows)}
    report |= {"not_in_text": found.unwritten, "doubtful": doubtful, "too_short": short}
    report["pauses"] = max(0.0, found.duration - sum(list(report.values())[1:]))
    report = {name: round(value, 2) for name, value in report.items()}
    report |= {"segments": len(rows), "words": len(words)}
    return rows, report | {"words_not_read": sum(not w.read for w in words)}


def _confidence(found: LongAlignment, piece: Piece) -> float:
    sure = [w.confidence for w in found.words[piece.first : piece.stop] if w.confidence is not None]
    return round(fmean(sure), 4) if sure else 0.0


def _row(found: LongAlignment, piece: Piece, pair: Pair, sure: float, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"id": f"{pair.id}-{number:05d}", "audio": str(pair.audio.resolve()), "start": piece.start}
    row |= {"duration": round(piece.end - piece.start, 3), "text": texts_of(found.words[piece.first : piece.stop])}
    return row | {"confidence": sure} | ({} if found.channel is None else {"channel": found.channel})


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Show what became of the recordings.

    Args:
        rows: What `segment_files` returned.

    Returns:
        A table, and a line for each file that was left out.
    """
    columns = ("kept", "not_in_text", "doubtful", "too_short", "pauses")
    lines = []
    for row in rows:
        if "report" in row:
            lines.append(_line(row["id"], row["report"], columns))
    if len(lines) > 1:
        lines.append(_line("all", total_report(rows)[0], columns))
    head = ["", "segments", "minutes", *(name.replace("_", " ") for name in columns), "words not read"]
    shown = [table(head, lines)] if lines else []
    return "\n".join([*shown, *(f"left out: {row['left_out']}" for row in rows if "left_out" in row)])


def total_report(rows: Iterable[dict[str, Any]]) -> tuple[dict[str, float], int, int]:
    """Add up what became of recordings.

    Args:
        rows: Of the recordings.

    Returns:
        Seconds and words by reason; how many recordings there are, and how many of them are left out.
    """
    total: dict[str, float] = {}
    count = bad = 0
    for row in rows:
        count, bad = count + 1, bad + ("left_out" in row)
        for name, value in row.get("report", {}).items():
            total[name] = total.get(name, 0) + value
    return total, count, bad


def _line(name: str, report: dict[str, float], columns: Sequence[str]) -> list[str]:
    seconds, words = max(report["seconds"], 1e-9), max(report["words"], 1)
    shares = [f"{report[column] / seconds:.1%}" for column in columns]
    unread = f"{report['words_not_read']:,.0f} ({report['words_not_read'] / words:.1%})"
    return [name, f"{report['segments']:,.0f}", f"{seconds / 60:.1f}", *shares, unread]
