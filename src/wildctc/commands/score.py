"""`wildctc score`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_text_options, normalizer


def register(add: Add) -> None:
    p = add("score", run, "Word and character error rates of a hypothesis file, and where the errors are.")
    p.add_argument("hypotheses", metavar="HYP.jsonl")
    p.add_argument("--reference", metavar="FILE", nargs="+", help="references to use; of several the nearest counts")
    p.add_argument("--json", metavar="OUT", help="write the counts, also by utterance")
    p.add_argument("--errors", type=int, default=10, metavar="N", help="show the N worst utterances (default 10)")
    add_text_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.files import write_text
    from wildctc.scoring import read_hyps, read_references, score

    references = read_references(options.reference) if options.reference else None
    found = score(read_hyps(options.hypotheses), references, normalizer(options))
    print(found)
    if options.errors and found.words.total:
        print(f"\n{found.listing(options.errors)}")
    if options.json:
        write_text(Path(options.json), found.to_json() + "\n")
