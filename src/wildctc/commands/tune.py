"""`wildctc tune`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import (
    Add,
    add_limit_option,
    add_manifest_options,
    add_trust_option,
    add_workers_option,
    load_model,
)
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("tune", run, "Choose the weight of a language model on dev.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    add_manifest_options(p)
    p.add_argument("--lm", metavar="FILE", required=True, help="n-gram model: ARPA, or KenLM's binary")
    p.add_argument("--beam", type=int, default=50, help="texts to choose from (default 50)")
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    add_workers_option(p)
    add_trust_option(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from itertools import chain

    from wildctc.corpora.preparation import Rejects
    from wildctc.corpora.shards import load_utterances
    from wildctc.recognizer.batch import logits_batches
    from wildctc.recognizer.decoding import beam_search
    from wildctc.recognizer.language_model import LanguageModel
    from wildctc.recognizer.tuning import tune
    from wildctc.scoring.transcripts import read_transcript
    from wildctc.text.reader import Reader

    if options.beam < 2:
        raise WildCTCError(f"--beam must be at least 2, got {options.beam}: a language model chooses among texts")
    lm, model = LanguageModel(options.lm), load_model(options)
    utterances = load_utterances(options.manifest, options.split, options.audio_root)
    rejects, reader = Rejects(options.max_bad), Reader(model.units.normalizer)
    batches = logits_batches(model, utterances, rejects, cache=options.cache, workers=options.workers)
    found = tune(
        (
            (read_transcript(utterance, reader), beam_search(logits, model.units, options.beam))
            for utterance, logits in chain.from_iterable(batches)
        ),
        lm,
    )
    rejects.check(len(utterances))
    print(f"WER without a language model {found.without:.2%}, with it {found.wer:.2%}", end="")
    print(f"; the nearest of {options.beam} texts {found.oracle:.2%}")
    print(
        f"wildctc decode … --lm {options.lm} --lm-weight {found.lm_weight:g} --word-score {found.word_score:g} "
        f"--beam {options.beam}"
    )
