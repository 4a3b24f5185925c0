"""`wildctc prepare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_limit_option, add_text_options, normalizer


def register(add: Add) -> None:
    p = add("prepare", run, "Turn a corpus into manifests: OUT/{train,dev,test}.jsonl.gz.")
    p.add_argument("source", metavar="SOURCE", help="jsonl, kaldi or librispeech")
    p.add_argument("input", metavar="IN", help="the corpus's folder (jsonl: or file)")
    p.add_argument("output", metavar="OUT", help="the folder of the manifests")
    add_text_options(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora import prepare

    files = prepare(options.source, options.input, options.output, normalizer(options), options.max_bad)
    for name, utterances in files.items():
        hours = sum(u.duration for u in utterances) / 3600
        print(f"{Path(options.output) / name}.jsonl.gz: {len(utterances):,} utterances, {hours:.2f} h")
