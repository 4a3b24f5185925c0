"""`wildctc decisions`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wildctc.commands.options import Add
from wildctc.terminal import printable


def register(add: Add) -> None:
    p = add(
        "decisions", run, "Merge decisions of several reviewers, or report who did how much and how well they agree."
    )
    p.add_argument("action", choices=("merge", "report"), help="merge: write one file; report: print tables")
    p.add_argument(
        "decisions", metavar="DECISIONS", nargs="+", help="files that the page exported, or a server's decisions.sqlite"
    )
    p.add_argument("-o", "--output", metavar="OUT.jsonl", help="of merge: the file to write")


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.agreement import summarise
    from wildctc.audit.decisions import read_decisions
    from wildctc.errors import WildCTCError
    from wildctc.files import check_writable, write_text

    if (options.action == "merge") != bool(options.output):
        raise WildCTCError("merge needs -o OUT.jsonl" if options.action == "merge" else "report writes no file: no -o")
    if options.output:
        for path in options.decisions:
            check_writable(Path(options.output), source=path)
    found = read_decisions(options.decisions)
    if options.output:
        lines = (json.dumps(decision.row(), ensure_ascii=False) + "\n" for decision in found)
        write_text(Path(options.output), "".join(lines))
        print(f"{options.output}: {len(found):,} decisions on {len({d.id for d in found}):,} utterances\n")
    print(printable(str(summarise(found))))
