"""`wildctc decisions`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError
from wildctc.terminal import printable

_WRITES = {"merge": "OUT.jsonl", "variants": "VARIANTS.txt"}  # actions that write a file


def register(add: Add) -> None:
    p = add("decisions", run, "Merge decisions of several reviewers, and report on them.")
    p.add_argument(
        "action", choices=("merge", "report", "variants"),
        help="merge: write one file; report: who did how much, and how well they agree; variants: write the accepted "
        "variants as a file for --variants",
    )  # fmt: skip
    p.add_argument(
        "decisions", metavar="DECISIONS", nargs="+", help="files that the page exported, or a server's decisions.sqlite"
    )
    p.add_argument("-o", "--output", metavar="OUT", help="of merge and variants: the file to write")


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.agreement import summarise, variant_groups
    from wildctc.audit.decisions import read_decisions
    from wildctc.files import check_writable, write_text

    _check(options)
    for path in options.decisions if options.output else []:
        check_writable(Path(options.output), source=path)
    found = read_decisions(options.decisions)
    if options.action == "merge":
        lines = (json.dumps(decision.row(), ensure_ascii=False) + "\n" for decision in found)
        write_text(Path(options.output), "".join(lines))
        rules = sum(d.is_rule for d in found)
        utterances = len({d.id for d in found if not d.is_rule})
        also = f", {rules:,} on recurring findings" if rules else ""
        print(f"{options.output}: {len(found) - rules:,} decisions on {utterances:,} utterances{also}\n")
    if options.action == "variants":
        groups = variant_groups(found)
        if not groups:
            raise WildCTCError("nobody accepted a finding as a variant; nothing was written")
        write_text(Path(options.output), "".join(map(_variant_line, groups)))
        print(f"{options.output}: {len(groups):,} words with {sum(map(len, groups)):,} spellings")
    else:
        print(printable(str(summarise(found))))


def _check(options: argparse.Namespace) -> None:
    action = options.action
    if action in _WRITES and not options.output:
        raise WildCTCError(f"{action} needs -o {_WRITES[action]}")
    if action not in _WRITES and options.output:
        raise WildCTCError(f"{action} writes no file: no -o")


def _variant_line(group: list[str]) -> str:
    phrases = any(len(text.split()) > 1 for text in group)
    return (" = " if phrases else " ").join(group) + "\n"
