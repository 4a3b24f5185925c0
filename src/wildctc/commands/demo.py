"""`wildctc demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("demo", run, "Everything in minutes: speech with known faults, two recognisers, and what they find.")
    p.add_argument("--size", choices=["full", "small"], default="full", help="small: about two minutes (default full)")
    p.add_argument("--out", metavar="DIR", help="the demo's folder (default demo, or demo-small)")


def run(options: argparse.Namespace) -> None:
    from wildctc.demo.show import ENOUGH, Demo

    folder = Path(options.out or {"full": "demo", "small": "demo-small"}[options.size])
    outcome = Demo(folder, options.size).run()
    if not outcome.enough:
        raise WildCTCError(
            f"the demo failed: {outcome.hits} wrong words among the suspicious are fewer than {ENOUGH:g} times chance"
        )
