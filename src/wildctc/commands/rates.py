"""`wildctc rates`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("rates", run, "How much of the transcripts is wrong, as a run with noise rates has estimated it.")
    p.add_argument("run_folder", metavar="RUN", help="a run of otc-t-em, otc-w-em or otc-tw-em")
    p.add_argument("--most", type=int, default=40, metavar="N", help="groups in the table, highest first (default 40)")
    p.add_argument("-o", "--output", metavar="FILE", help="write all groups as tab-separated values")
    p.add_argument("--plot", metavar="FILE", help="draw all groups, as SVG")


def run(options: argparse.Namespace) -> None:
    from wildctc.files import check_writable, write_atomically, write_text
    from wildctc.training.noise_report import draw_rates, rates_table, rates_tsv, read_rates
    from wildctc.training.run_folder import read_settings

    if options.plot and Path(options.plot).suffix.lower() != ".svg":
        raise WildCTCError(f"{options.plot}: the picture is an SVG: give --plot a name that ends in .svg")
    for path in (options.output, options.plot):
        if path:
            check_writable(Path(path))
    folder = Path(options.run_folder)
    found, by = read_rates(folder), read_settings(folder).rates.by
    print(rates_table(found, by, options.most))
    print("In brackets: 95% intervals, for the number of words and for nothing else.")
    if options.output:
        write_text(Path(options.output), rates_tsv(found))
        print(f"{options.output}: {len(found)} rows")
    if options.plot:
        write_atomically(Path(options.plot), draw_rates(found, by))
        print(f"{options.plot}: drawn")
