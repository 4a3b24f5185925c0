"""`wildctc compare`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import (
    Add,
    add_text_options,
    add_variants_option,
    normalizer,
    read_variants_option,
    without_garbage_collection,
)


def register(add: Add) -> None:
    p = add("compare", run, "A table for each test set, with relative change and a paired bootstrap interval.")
    p.add_argument("systems", metavar="RUN|HYP", nargs="+", help="runs, or hypothesis files of one test set")
    p.add_argument("--reference", metavar="FILE", nargs="+", help="references to use; of several the nearest counts")
    add_variants_option(p)
    add_text_options(p)


@without_garbage_collection()
def run(options: argparse.Namespace) -> None:
    from wildctc.scoring.comparison import compare_files
    from wildctc.scoring.hypotheses import read_references

    references = read_references(options.reference) if options.reference else None
    tables = compare_files(options.systems, references, normalizer(options), read_variants_option(options))
    print("\n\n".join(map(str, tables)))
