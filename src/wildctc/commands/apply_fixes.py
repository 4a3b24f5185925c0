"""`wildctc apply-fixes`."""

from __future__ import annotations

import argparse
import logging

from wildctc.commands.options import Add
from wildctc.terminal import printable

_MAX_NAMED = 10  # unknown utterances that are named: the decisions may belong to several manifests
_log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("apply-fixes", run, "Correct a manifest by the decisions that were exported from a report's page.")
    p.add_argument("manifest", metavar="MANIFEST", help="the manifest that was probed: lhotse cuts or plain JSONL")
    p.add_argument("decisions", metavar="DECISIONS.jsonl", help="what the page exported")
    p.add_argument("-o", "--output", metavar="OUT", required=True, help="the new manifest (.jsonl or .jsonl.gz)")


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.decisions import apply_decisions, read_decisions

    applied = apply_decisions(options.manifest, read_decisions(options.decisions), options.output)
    for id, text, judged in applied.refused:
        _log.warning("refused: %s: its transcript is now %r, and %r was judged; audit it again", id, text, judged)
    for id in applied.unknown[:_MAX_NAMED]:
        _log.warning("unknown: %s is not in %s", id, options.manifest)
    if len(applied.unknown) > _MAX_NAMED:
        _log.warning("unknown: %s more", f"{len(applied.unknown) - _MAX_NAMED:,}")
    print(printable(str(applied)))
