"""`wildctc audit`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError
from wildctc.terminal import printable


def register(add: Add) -> None:
    p = add("audit", run, "Make a page from a probe: doubtful transcripts with their sound, to be decided on.")
    p.add_argument("probe", metavar="PROBE.jsonl", help="what `wildctc probe` wrote")
    p.add_argument("-o", "--output", metavar="REPORT", help="the folder of the page (default: PROBE-report)")
    p.add_argument(
        "--link-audio", action="store_true", help="refer to audio files instead of copying them, where browsers can"
    )
    p.add_argument(
        "--serve", action="store_true", help="serve the page, for one or several reviewers, and save decisions"
    )
    p.add_argument("--host", help="where to listen (default 127.0.0.1: this machine only)")
    p.add_argument("--port", type=int, help="the port (default 8017; 0: any that is free)")
    p.add_argument(
        "--reviewers", metavar="NAMES", help="who reviews, with shares if they differ: ann,ben or ann=2,ben=1"
    )
    p.add_argument(
        "--calibrate", metavar="DECISIONS", nargs="+", help="make no page: print how good the scores were, by decisions"
    )
    p.add_argument("--double", type=float, metavar="SHARE", help="the share that two reviewers decide, such as 0.1")


def run(options: argparse.Namespace) -> None:
    if options.calibrate:
        _calibrate(options)
        return
    from wildctc.audit.report import is_current, write_report

    folder = Path(options.output or f"{options.probe.removesuffix('.gz').removesuffix('.jsonl')}-report")
    if not options.serve:
        given = [name for name in ("host", "port", "reviewers", "double") if getattr(options, name) is not None]
        if given:
            raise WildCTCError(f"--{given[0]} is for a server: give --serve too")
        print(printable(str(write_report(options.probe, folder, link=options.link_audio))))
        return
    if options.link_audio:
        raise WildCTCError("--serve gives out files of the report only: leave out --link-audio")

    from wildctc.audit.assignment import parse_reviewers
    from wildctc.audit.server import HOST, PORT, serve

    plan = parse_reviewers(options.reviewers, options.double)
    if not is_current(options.probe, folder):
        print(printable(str(write_report(options.probe, folder))), flush=True)
    serve(folder, options.host or HOST, PORT if options.port is None else options.port, plan)


def _calibrate(options: argparse.Namespace) -> None:
    """Print how many of the findings were right, by score."""
    from wildctc.audit.calibration import calibrate
    from wildctc.audit.decisions import read_decisions

    if options.output or options.serve or options.link_audio:
        raise WildCTCError("--calibrate makes no page: leave out -o, --serve and --link-audio")
    print(printable(str(calibrate(options.probe, read_decisions(options.calibrate)))))
