"""`wildctc variants`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import (
    Add,
    add_limit_option,
    add_manifest_options,
    add_transcript_options,
    add_trust_option,
    add_workers_option,
    load_model,
    transcript_reader,
    with_further_texts,
)
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("variants", run, "How often each variant of a word is written in a manifest, and how often it is spoken.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    add_manifest_options(p)
    add_transcript_options(p, "--lexicon")
    p.add_argument("--most", type=int, default=40, metavar="N", help="groups in the table (default 40)")
    p.add_argument("-o", "--output", metavar="FILE", help="write all variants as tab-separated values")
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    add_workers_option(p)
    add_trust_option(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.shards import load_utterances
    from wildctc.files import check_writable, write_text
    from wildctc.recognizer.variant_counts import count_variants

    if options.workers < 0:
        raise WildCTCError(f"--workers must be at least 0, got {options.workers}")
    if options.output:
        check_writable(Path(options.output))
    model = load_model(options)
    utterances = with_further_texts(options, load_utterances(options.manifest, options.split, options.audio_root))
    reader = transcript_reader(options, model.units.normalizer)
    found = count_variants(
        model, utterances, reader, cache=options.cache, workers=options.workers, max_bad=options.max_bad
    )
    print(found.to_text(options.most))
    if options.output:
        write_text(Path(options.output), found.to_tsv())
        print(f"\n{options.output}: {sum(map(len, found.groups)):,} rows")
