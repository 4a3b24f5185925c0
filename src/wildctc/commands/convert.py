"""`wildctc convert`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError

SINGULAR = {"utterances": "utterance", "issues": "issue", "hypotheses": "hypothesis"}


def register(add: Add) -> None:
    p = add("convert", run, "Convert a manifest, hypotheses or a probe's issues: JSON lines, CSV or TSV.")
    p.add_argument("input", metavar="IN", help="a manifest (lhotse cuts too), hypotheses, or a probe")
    p.add_argument("output", metavar="OUT", help="its name says the format: .jsonl, .csv or .tsv")
    p.add_argument("--least", type=float, default=0.5, help="of a probe: the lowest score of an issue (default 0.5)")
    p.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")


def run(options: argparse.Namespace) -> None:
    from wildctc.files import write_text
    from wildctc.json_lines import is_table, row_line, table_text

    output = Path(options.output)
    if output.suffix not in (".jsonl", ".csv", ".tsv"):
        raise WildCTCError(f"{output}: the name must end in .jsonl, .csv or .tsv")
    if output.exists() and not options.overwrite:
        raise WildCTCError(f"{output} exists: give another name, or --overwrite to replace it")
    what, rows = _read(Path(options.input), options.least)
    text = table_text(rows, output) if is_table(output) else "".join(map(row_line, rows))
    write_text(output, text)
    print(f"{output}: {len(rows):,} {what if len(rows) != 1 else SINGULAR[what]}")


def _read(path: Path, least: float) -> tuple[str, list[dict[str, Any]]]:
    """What kind of rows a file has, and the rows, flat."""
    from wildctc.corpora.manifest import read_utterances
    from wildctc.corpora.rewriting import plain_row
    from wildctc.json_lines import is_table, read_rows
    from wildctc.scoring.hypotheses import read_hyp_file

    first = next((row for _, row in read_rows(path)), None)
    if first is None:
        raise WildCTCError(f"{path}: no rows in it")
    if "recording" in first or "audio" in first or ("audio_filepath" in first and "pred_text" not in first):
        return "utterances", [plain_row(utterance) for _, found in read_utterances(path) for utterance in found]
    if "probe" in first:
        return "issues", list(_issues(path, least))
    if "score" in first and "written" in first:
        return "issues", [row for _, row in read_rows(path)]
    if is_table(path) and "id" not in first:
        names = ", ".join(first)
        raise WildCTCError(
            f"{path}: its columns are {names}; a manifest has audio and text, hypotheses have id and text. Name them "
            "so in the first line, or see the sources of `wildctc prepare --help`"
        )
    read_hyp_file(path)  # which names what is wrong
    return "hypotheses", [row for _, row in read_rows(path)]


def _issues(path: Path, least: float) -> Iterator[dict[str, Any]]:
    from wildctc.probe.issues import issues_of
    from wildctc.probe.records import ProbedUtterance, stream_probe

    found = (issue for u in stream_probe(path)[1] if isinstance(u, ProbedUtterance) for issue in issues_of(u, least))
    yield from map(asdict, sorted(found, key=lambda issue: -issue.score))
