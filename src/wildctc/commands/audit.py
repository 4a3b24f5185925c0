"""`wildctc audit`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import Add
from wildctc.terminal import printable


def register(add: Add) -> None:
    p = add("audit", run, "Make a page from a probe: doubtful transcripts with their sound, to be decided on.")
    p.add_argument("probe", metavar="PROBE.jsonl", help="what `wildctc probe` wrote")
    p.add_argument("-o", "--output", metavar="REPORT", required=True, help="the folder of the page")
    p.add_argument(
        "--link-audio", action="store_true", help="refer to audio files instead of copying them, where browsers can"
    )


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.report import write_report

    print(printable(str(write_report(options.probe, options.output, link=options.link_audio))))
