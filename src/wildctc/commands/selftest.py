"""`wildctc selftest`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import Add


def register(add: Add) -> None:
    p = add("selftest", run, "Whether the loss is right on this machine, and how fast; exit code 1 if it is not right.")
    p.add_argument("--device", metavar="cpu|cuda", help="where to run (default: cuda if there is one)")


def run(options: argparse.Namespace) -> None:
    from wildctc.selftest import selftest, selftest_device

    result = selftest(selftest_device(options.device))
    print(result)
    if not result.passed:
        raise SystemExit(1)
