"""`wildctc apply-fixes`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError
from wildctc.terminal import name_some, printable

if TYPE_CHECKING:
    from wildctc.audit.decisions import Decision

_MAX_NAMED = 10  # unknown utterances that are named: the decisions may belong to several manifests
_log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("apply-fixes", run, "Correct a manifest by the decisions that were made on a report's page.")
    p.add_argument("manifest", metavar="MANIFEST", help="the manifest that was probed: lhotse cuts or plain JSONL")
    p.add_argument(
        "decisions", metavar="DECISIONS", nargs="+", help="what the page exported, or a server's decisions.sqlite"
    )
    p.add_argument(
        "--conflicts", choices=("newest", "majority", "ask"), default="newest",
        help="where reviewers disagree: take the newest decision (default) or that of most reviewers, or ask",
    )  # fmt: skip
    p.add_argument("-o", "--output", metavar="OUT", required=True, help="the new manifest (.jsonl or .jsonl.gz)")


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.agreement import settle
    from wildctc.audit.applying import apply_decisions
    from wildctc.audit.decisions import read_decisions

    found = read_decisions(options.decisions)
    if all(decision.is_rule for decision in found):
        raise WildCTCError(f"{options.decisions[0]}: no decisions on utterances in it, only on recurring findings")
    settled = settle(found, options.conflicts, _ask)
    if settled.conflicts:
        _log.warning("reviewers disagree on %s; --conflicts %s", name_some(settled.conflicts), options.conflicts)
    if settled.open:
        _log.warning("not applied, because nothing was decided between them: %s", name_some(settled.open))
    if not settled.decisions:
        raise WildCTCError("every decision is in conflict: give --conflicts newest, or decide on the page")
    applied = apply_decisions(options.manifest, settled.decisions, options.output)
    for id, text, judged in applied.refused:
        _log.warning("refused: %s: its transcript is now %r, and %r was judged; audit it again", id, text, judged)
    for id in applied.unknown[:_MAX_NAMED]:
        _log.warning("unknown: %s is not in %s", id, options.manifest)
    if len(applied.unknown) > _MAX_NAMED:
        _log.warning("unknown: %s more", f"{len(applied.unknown) - _MAX_NAMED:,}")
    print(printable(str(applied)))


def _ask(given: Sequence[Decision]) -> Decision | None:
    """Let the person at the terminal choose one of several decisions; nothing but Enter leaves the transcript."""
    lines = [f"\n{given[0].id}: {given[0].text}"]
    for number, d in enumerate(given, start=1):
        said = d.fixed if d.decision == "fix" else "the transcript is right"
        lines.append(f"  {number}  {d.reviewer or '(no name)'}: {said}{f'  ({d.comment})' if d.comment else ''}")
    print(printable("\n".join(lines)))
    while True:
        print(f"1 to {len(given)}, or Enter to leave it: ", end="", flush=True)
        answer = sys.stdin.readline()
        if not answer:
            raise WildCTCError("--conflicts ask needs answers on the standard input; nothing was written")
        if not answer.strip():
            return None
        if answer.strip().isdecimal() and 1 <= int(answer) <= len(given):
            return given[int(answer) - 1]
