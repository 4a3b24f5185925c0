"""Write an alignment in the formats of other tools: subtitles, TextGrid, CTM, JSON, Audacity's labels, lhotse."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from wildctc.longform.alignment import LongAlignment, texts_of
from wildctc.longform.pieces import all_pieces
from wildctc.recognizer.subtitles import Cue, cues, show_groups, srt_of, vtt_of
from wildctc.recognizer.textgrid import Interval, to_textgrid
from wildctc.recognizer.transcription import Transcript, Word
from wildctc.terminal import printable, table

_LEAST_READ = 1 / 3  # of the letters of a subtitle: they often say in other words what was said


def summary(found: LongAlignment) -> str:
    """Say how much of a text was found, and how the path was looked for if it may not be the best of all.

    Args:
        found: The alignment.

    Returns:
        One or two lines.
    """
    words = [w for w in found.words if w.confidence is not None]
    read = sum(w.read for w in words)
    lines = [
        f"{found.audio}: {read:,} of {len(words):,} words were read ({found.found:.0%} of the text beyond doubt); "
        f"{found.unwritten:,.1f} of {found.duration:,.1f} s have speech that is not in the text"
    ]
    if found.band is not None:
        lines.append(f"The path was kept to a band of {found.band:,} letters: there can be a better one outside.")
    return "\n".join(lines) + "\n"


def to_text(found: LongAlignment) -> str:
    """Format an alignment for a terminal: how much was found, and where text and speech differ.

    Args:
        found: The alignment.

    Returns:
        Lines.
    """
    text = summary(found)
    if found.differences:
        rows = [
            [f"{d.start:.2f}", f"{d.end:.2f}", d.kind, printable(_short(d.written)), printable(_short(d.heard))]
            for d in found.differences
        ]
        text += table(["from", "to", "", "in the text", "heard"], rows) + "\n"
    return text


def _short(text: str, limit: int = 50) -> str:
    return text if len(text) <= limit else text[: limit - 2] + " …"


def to_json(found: LongAlignment) -> str:
    """Format an alignment as JSON.

    Args:
        found: The alignment.

    Returns:
        One object: `words` with their times, `differences`, and what the alignment is about.
    """
    words = [asdict(w) for w in found.words]
    differences = [asdict(d) | {"kind": d.kind} for d in found.differences]
    about: dict[str, Any] = {"audio": found.audio, "text": found.text, "duration": found.duration}
    about |= {
        "channel": found.channel,
        "found": round(found.found, 4),
        "score": round(found.score, 3),
        "band": found.band,
    }
    return json.dumps(about | {"words": words, "differences": differences}, ensure_ascii=False) + "\n"


def subtitles(found: LongAlignment) -> list[Cue]:
    """Show the text as subtitles.

    Args:
        found: The alignment.

    Returns:
        If the text was subtitles, each of which a third or more was read, whole and at its new time; otherwise new ones
        of the words that were read.
    """
    if not found.subtitles:
        words = [Word(w.text, w.start, w.end) for w in found.words if w.read or w.confidence is None]
        return cues(Transcript("", words, 0.0, found.duration))
    groups = []
    for _, block in groupby(found.words, key=lambda word: word.block):
        words_of_it = list(block)
        read = [w for w in words_of_it if w.read]
        letters = sum(len(w.text) for w in words_of_it if w.confidence is not None)
        if read and sum(len(w.text) for w in read) >= _LEAST_READ * letters:
            start, end = read[0].start, read[-1].end
            times = [[min(max(second, start), end) for second in (w.start, w.end)] for w in words_of_it]
            groups.append([Word(w.text, *time) for w, time in zip(words_of_it, times, strict=True)])
    return show_groups(groups, found.duration)


def _tiers(found: LongAlignment) -> dict[str, Sequence[Interval]]:
    words = [Interval(w.start, w.end, w.text) for w in found.words if w.read]
    sentences = [
        Interval(piece.start, piece.end, texts_of([w for w in found.words[piece.first : piece.stop] if w.read]))
        for piece in all_pieces(found)
        if any(w.read for w in found.words[piece.first : piece.stop])
    ]
    differences = [Interval(d.start, d.end, _label(d.written, d.heard)) for d in found.differences]
    return {"words": words, "sentences": sentences, "differences": differences}


def _label(written: str, heard: str) -> str:
    return " ".join([*([f"[{written}]"] if written else []), *([f"★ {heard}"] if heard else [])])


def to_ctm(found: LongAlignment) -> str:
    """Format the words that were read as NIST CTM.

    Args:
        found: The alignment.

    Returns:
        Lines of recording, channel (from 1), start, duration, word, confidence.
    """
    name, channel = "_".join(Path(found.audio).stem.split()) or "audio", (found.channel or 0) + 1
    return "".join(
        f"{name} {channel} {w.start:.3f} {w.end - w.start:.3f} {w.text} {w.confidence:.2f}\n"
        for w in found.words
        if w.read
    )


def to_audacity(found: LongAlignment) -> str:
    """Format words and differences as a label track of Audacity.

    Args:
        found: The alignment.

    Returns:
        Lines of start, end and label, in order of time. What was not read is in brackets, other speech follows ★.
    """
    tiers = _tiers(found)
    rows = sorted([*tiers["words"], *tiers["differences"]], key=lambda row: (row.start, row.end))
    return "".join(f"{start:.3f}\t{end:.3f}\t{text}\n" for start, end, text in rows)


def to_lhotse(found: LongAlignment) -> str:
    """Format the sentences as supervisions of lhotse, with their words as `alignment`.

    Args:
        found: The alignment.

    Returns:
        A line of JSON for each piece of the text that has words which were read.
    """
    name, lines = Path(found.audio).stem, []
    for number, piece in enumerate(all_pieces(found)):
        words = [w for w in found.words[piece.first : piece.stop] if w.read]
        if not words:
            continue
        row = {"id": f"{name}-{number:05d}", "recording_id": name, "start": words[0].start}
        row |= {"duration": round(words[-1].end - words[0].start, 3), "channel": found.channel or 0}
        items = [[w.text, w.start, round(w.end - w.start, 3), w.confidence] for w in words]
        lines.append(json.dumps(row | {"text": texts_of(words), "alignment": {"word": items}}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)


def _as_textgrid(found: LongAlignment) -> str:
    return to_textgrid(found.duration, _tiers(found))


# By the ending of the file.
FORMATS: dict[str, Callable[[LongAlignment], str]] = {
    ".srt": lambda found: srt_of(subtitles(found)),
    ".vtt": lambda found: vtt_of(subtitles(found)),
    ".textgrid": _as_textgrid,
    ".ctm": to_ctm,
    ".json": to_json,
    ".txt": to_audacity,
    ".jsonl": to_lhotse,
}
