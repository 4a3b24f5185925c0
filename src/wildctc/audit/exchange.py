"""A probe and the decisions on it in the formats of other tools."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from wildctc.audit.calibration import LEAST_SCORE, verdicts
from wildctc.audit.decisions import Decision
from wildctc.audit.label_studio import CONFIG
from wildctc.files import as_bytes, make_folder, write_atomically, write_text
from wildctc.json_lines import row_line
from wildctc.probe.issues import LabelIssue, issues_of, suspicion
from wildctc.probe.records import NotProbed, ProbedUtterance, stream_probe

Decisions = Mapping[str, Decision]
_Tier = list[tuple[float, float, str]]
_LONGEST_NAME = 200  # characters of a file's name; file systems allow 255 bytes
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_COLUMNS = ("id", "speaker", "audio", "kind", "written", "heard", "score", "start", "end", "decision", "right",
            "reviewer", "at", "reason", "comment")  # fmt: skip


def export(probe: str | Path, output: str | Path, form: str, decisions: Decisions | None = None) -> int:
    """Write a probe in the format of another tool.

    Args:
        probe: The probe file.
        output: The file to write; of "textgrid" and "elan" a folder, with a file for each utterance.
        form: One of FORMATS.
        decisions: The decisions by utterance id, which all formats show.

    Returns:
        How many utterances or, of "csv", findings were written.
    """
    made = decisions or {}
    utterances = (entry for entry in stream_probe(probe)[1] if not isinstance(entry, NotProbed))
    pairs = ((u, made[u.id] if u.id in made and made[u.id].text == u.text else None) for u in utterances)
    return FORMATS[form](pairs, Path(output))


_Pairs = Iterator[tuple[ProbedUtterance, Decision | None]]


def _write_label_studio(pairs: _Pairs, output: Path) -> int:
    tasks = [_task(*pair) for pair in pairs]
    write_text(output, json.dumps(tasks, ensure_ascii=False, indent=1) + "\n")
    write_text(output.with_suffix(".xml"), CONFIG)
    return len(tasks)


def _task(u: ProbedUtterance, decision: Decision | None) -> dict[str, Any]:
    def area(text: str) -> dict[str, Any]:
        return {"from_name": "transcript", "to_name": "audio", "type": "textarea", "value": {"text": [text]}}

    regions = [
        {
            "from_name": "findings", "to_name": "audio", "type": "labels", "score": round(i.score, 3),
            "value": {"start": i.start, "end": i.end, "channel": 0, "labels": [i.kind]},
        }
        for i in issues_of(u)
    ]  # fmt: skip
    data: dict[str, Any] = {"id": u.id, "audio": u.audio, "text": u.text, "heard": u.heard, "speaker": u.speaker or ""}
    data |= {"offset": u.offset, "duration": u.duration, "suspicion": round(suspicion(u), 3)}
    prediction = {"model_version": "wildctc", "result": [area(u.heard), *regions]}
    task: dict[str, Any] = {"data": data, "predictions": [prediction]}
    if decision:
        cancelled = decision.decision == "skip"
        result = [] if cancelled else [area(decision.fixed or u.text)]
        by = {"completed_by": {"email": decision.reviewer}, "updated_at": decision.at}
        task["annotations"] = [{"was_cancelled": cancelled, "result": result, **by}]
    return task


def _provenance(decision: Decision | None) -> dict[str, str]:
    if decision is None:
        return {}
    row = decision.row()
    return {name: row[name] for name in ("decision", "fixed", "reviewer", "at", "reason", "comment") if name in row}


def _write_nemo(pairs: _Pairs, output: Path) -> int:
    """Rows that NeMo trains from and its Speech Data Explorer shows."""
    rows = []
    for u, decision in pairs:
        row = {"audio_filepath": u.audio, "offset": u.offset, "duration": u.duration, "text": u.text}
        row |= {"pred_text": u.heard, "id": u.id, "suspicion": round(suspicion(u), 3)}
        rows.append(row_line(row | ({"speaker": u.speaker} if u.speaker else {}) | _provenance(decision)))
    write_text(output, "".join(rows))
    return len(rows)


def _write_argilla(pairs: _Pairs, output: Path) -> int:
    """Records for `rg.Dataset.records.log` of Argilla, with a text question "transcript"."""
    rows = []
    for u, decision in pairs:
        suggestion = {"question_name": "transcript", "value": u.heard, "agent": "wildctc"}
        metadata = {"suspicion": round(suspicion(u), 3), "duration": u.duration, "speaker": u.speaker or ""}
        fields = {"audio": u.audio, "text": u.text, "heard": u.heard}
        record: dict[str, Any] = {"id": u.id, "fields": fields, "suggestions": [suggestion]}
        rows.append(row_line(record | {"metadata": metadata | _provenance(decision)}))
    write_text(output, "".join(rows))
    return len(rows)


def _write_csv(pairs: _Pairs, output: Path) -> int:
    """A line for each finding, for a spreadsheet."""
    file, count = io.StringIO(), 0
    writer = csv.writer(file)
    writer.writerow(_COLUMNS)
    for u, decision in pairs:
        issues = issues_of(u, LEAST_SCORE)
        for issue, right in zip(issues, verdicts(u.text, issues, decision), strict=True):
            about = [decision.reviewer, decision.at, decision.reason, decision.comment] if decision else [""] * 4
            numbers = [f"{value:.3f}" for value in (issue.score, issue.start, issue.end)]
            found = [issue.kind, issue.written, issue.heard, *numbers]
            judged = [decision.decision if decision else "", "" if right is None else "yes" if right else "no"]
            writer.writerow(map(_cell, [u.id, u.speaker or "", u.audio, *found, *judged, *about]))
            count += 1
    write_atomically(
        output, b"\xef\xbb\xbf" + as_bytes(file.getvalue())
    )  # the mark tells spreadsheets that it is UTF-8
    return count


def _cell(text: str) -> str:
    """A spreadsheet would compute a cell that starts with one of these signs."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and text[1:2] else text


def _tiers(u: ProbedUtterance, decision: Decision | None) -> dict[str, _Tier]:
    """Intervals of an utterance: start, end, text."""
    tiers = {
        "words": [(w.start, w.end, w.text) for w in u.words],
        "heard": [(w.start, w.end, w.heard) for w in u.words if w.heard],
        "findings": _apart([(i.start, i.end, _describe(i)) for i in issues_of(u)]),
    }
    fixed = decision.fixed if decision and decision.decision == "fix" else u.text
    return tiers | {"transcript": [(0.0, u.duration, fixed)]}


def _apart(marks: _Tier) -> _Tier:
    """Join intervals that overlap, which a tier cannot hold."""
    found: _Tier = []
    for start, end, text in sorted(marks):
        if found and start < found[-1][1]:
            begin, stop, before = found.pop()
            start, end, text = begin, max(stop, end), f"{before}; {text}"
        found.append((start, end, text))
    return found


def _describe(issue: LabelIssue) -> str:
    return f"{issue.kind} {issue.score:.2f}: {issue.written or '∅'} → {issue.heard or '∅'}"


def _write_textgrids(pairs: _Pairs, output: Path) -> int:
    return _write_each(pairs, output, ".TextGrid", _textgrid)


def _write_elan(pairs: _Pairs, output: Path) -> int:
    return _write_each(pairs, output, ".eaf", _elan)


def _write_each(
    pairs: _Pairs, output: Path, suffix: str, make: Callable[[ProbedUtterance, Decision | None], str]
) -> int:
    make_folder(output)
    count = 0
    for u, decision in pairs:
        write_text(output / f"{_file_name(u.id)}{suffix}", make(u, decision))
        count += 1
    return count


def _file_name(id: str) -> str:
    """An id without what a file's name cannot have, and not too long; different for different ids."""
    name = quote(as_bytes(id), safe=" ")
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{zlib.crc32(as_bytes(id)):08x}"


def _textgrid(u: ProbedUtterance, decision: Decision | None) -> str:
    """Praat's format. The intervals of a tier follow each other without a gap."""
    tiers = _tiers(u, decision)
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", f"xmin = 0\nxmax = {u.duration}"]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, (name, marks) in enumerate(tiers.items(), start=1):
        intervals = _without_gaps(marks, u.duration)
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{name}"']
        lines += ["        xmin = 0", f"        xmax = {u.duration}", f"        intervals: size = {len(intervals)}"]
        for k, (start, end, text) in enumerate(intervals, start=1):
            quoted = text.replace('"', '""')
            lines += [f"        intervals [{k}]:", f"            xmin = {start}", f"            xmax = {end}"]
            lines += [f'            text = "{quoted}"']
    return "\n".join(lines) + "\n"


def _without_gaps(marks: _Tier, duration: float) -> _Tier:
    """Cut intervals where the next one begins, and fill the time between them with empty ones."""
    found: _Tier = []
    at = 0.0
    for (start, end, text), (following, *_) in pairwise([*marks, (duration, duration, "")]):
        start, end = max(at, start), min(end, following, duration)
        if end <= start:
            continue
        if start > at:
            found.append((at, start, ""))
        found.append((start, end, text))
        at = end
    return [*found, (at, duration, "")] if at < duration or not found else found


def _elan(u: ProbedUtterance, decision: Decision | None) -> str:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    root = ElementTree.Element("ANNOTATION_DOCUMENT", AUTHOR="wildctc", DATE=date, FORMAT="3.0", VERSION="3.0")
    root.set(f"{{{_INSTANCE}}}noNamespaceSchemaLocation", "http://www.mpi.nl/tools/elan/EAFv3.0.xsd")
    header = ElementTree.SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    ElementTree.SubElement(header, "MEDIA_DESCRIPTOR", MEDIA_URL=_printable(u.audio), MIME_TYPE="audio/x-wav")
    order = ElementTree.SubElement(root, "TIME_ORDER")
    slots = 0
    for name, marks in _tiers(u, decision).items():
        tier = ElementTree.SubElement(root, "TIER", TIER_ID=name, LINGUISTIC_TYPE_REF="default")
        for start, end, text in marks:
            slots += 2
            for slot, time in ((slots - 1, start), (slots, end)):
                milliseconds = str(round(1000 * (time + u.offset)))
                ElementTree.SubElement(order, "TIME_SLOT", TIME_SLOT_ID=f"ts{slot}", TIME_VALUE=milliseconds)
            place = {"ANNOTATION_ID": f"a{slots}", "TIME_SLOT_REF1": f"ts{slots - 1}", "TIME_SLOT_REF2": f"ts{slots}"}
            outer = ElementTree.SubElement(tier, "ANNOTATION")
            inner = ElementTree.SubElement(outer, "ALIGNABLE_ANNOTATION", place)
            ElementTree.SubElement(inner, "ANNOTATION_VALUE").text = _printable(text)
    ElementTree.SubElement(root, "LINGUISTIC_TYPE", LINGUISTIC_TYPE_ID="default", TIME_ALIGNABLE="true")
    ElementTree.indent(root)
    ElementTree.register_namespace("xsi", _INSTANCE)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _printable(text: str) -> str:
    """XML cannot hold control characters or half a surrogate pair."""
    return "".join(char if char >= " " and not "\ud800" <= char <= "\udfff" else "\ufffd" for char in text)


FORMATS: dict[str, Callable[[_Pairs, Path], int]] = {
    "label-studio": _write_label_studio,
    "nemo": _write_nemo,
    "argilla": _write_argilla,
    "csv": _write_csv,
    "textgrid": _write_textgrids,
    "elan": _write_elan,
}
