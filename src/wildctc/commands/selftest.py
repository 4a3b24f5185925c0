"""`wildctc selftest`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import Add


def register(add: Add) -> None:
    p = add("selftest", run, "Whether the loss is right on this machine, and how fast; exit code 1 if it is not right.")
    p.add_argument("--device", metavar="cpu|cuda", help="where to run (default: cuda if there is one)")
    p.add_argument("--json", metavar="FILE", help="also write all numbers to this file")


def run(options: argparse.Namespace) -> None:
    import json
    from pathlib import Path

    from wildctc.files import write_text
    from wildctc.selftest import selftest, selftest_device

    result = selftest(selftest_device(options.device))
    print(result)
    if options.json:
        write_text(Path(options.json), json.dumps(result.as_json(), indent=1) + "\n")
    if not result.passed:
        raise SystemExit(1)
