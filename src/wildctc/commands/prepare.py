"""`wildctc prepare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_limit_option, add_text_options, normalizer


def register(add: Add) -> None:
    p = add("prepare", run, "Turn a corpus into manifests: OUT/{train,dev,test}.jsonl.gz.")
    p.add_argument("source", metavar="SOURCE", help="jsonl, kaldi, librispeech or synthetic")
    p.add_argument(
        "input", metavar="IN", help="the corpus's folder (jsonl: or file; synthetic: sentences to be spoken)"
    )
    p.add_argument("output", metavar="OUT", help="the folder of the manifests")
    p.add_argument("--language", default="en", help="synthetic: a language of espeak-ng (default en)")
    p.add_argument("--voices", type=int, default=40, help="synthetic: how many different voices speak (default 40)")
    p.add_argument("--seed", type=int, default=0, help="synthetic: another one gives other voices (default 0)")
    add_text_options(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora import prepare

    source, corpus = options.source, options.input
    if source == "synthetic":
        from wildctc.corpora.synthetic import synthesize

        settings = {"language": options.language, "voices": options.voices, "seed": options.seed}
        source, corpus = "jsonl", synthesize(corpus, options.output, **settings)
    files = prepare(source, corpus, options.output, normalizer(options), options.max_bad)
    for name, utterances in files.items():
        hours = sum(u.duration for u in utterances) / 3600
        print(f"{Path(options.output) / name}.jsonl.gz: {len(utterances):,} utterances, {hours:.2f} h")
