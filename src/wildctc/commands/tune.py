"""`wildctc tune`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import Add, add_dev_options, load_model, read_list
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("tune", run, "Choose the weights of a language model and of hotwords on dev.")
    add_dev_options(p, 50, "texts to choose from")
    p.add_argument("--lm", metavar="FILE", help="n-gram model: ARPA, or KenLM's binary")
    p.add_argument("--hotwords", metavar="FILE", help="words or phrases that are expected, one on each line")


def run(options: argparse.Namespace) -> None:
    from itertools import chain

    from wildctc.corpora.preparation import Rejects
    from wildctc.corpora.shards import load_utterances
    from wildctc.recognizer.batch import logits_batches
    from wildctc.recognizer.decoding import beam_search
    from wildctc.recognizer.language_model import LanguageModel, writable
    from wildctc.recognizer.tuning import tune
    from wildctc.scoring.transcripts import read_transcript
    from wildctc.text.reader import Reader

    if options.beam < 2:
        raise WildCTCError(f"--beam must be at least 2, got {options.beam}: a language model chooses among texts")
    if options.lm is None and options.hotwords is None:
        raise WildCTCError("there is nothing to tune: give --lm or --hotwords")
    given = read_list(options.hotwords, "hotwords")
    lm, model = LanguageModel(options.lm) if options.lm else None, load_model(options)
    hotwords = writable(given, model.units)
    if not hotwords and lm is None:
        raise WildCTCError(f"{options.hotwords}: the model can write none of these hotwords: there is nothing to tune")
    utterances = load_utterances(options.manifest, options.split, options.audio_root)
    rejects, reader = Rejects(options.max_bad), Reader(model.units.normalizer)
    batches = logits_batches(model, utterances, rejects, cache=options.cache, workers=options.workers)
    found = tune(
        (
            (read_transcript(utterance, reader), beam_search(logits, model.units, options.beam))
            for utterance, logits in chain.from_iterable(batches)
        ),
        lm,
        hotwords,
    )
    rejects.check(len(utterances))
    names = " and ".join(["the language model"] * bool(lm) + ["hotwords"] * bool(hotwords))
    rates = f"{found.without:.2%}, with {found.wer:.2%}; the nearest of {options.beam} texts {found.oracle:.2%}"
    print(f"WER without {names} {rates}")
    chosen = f" --lm {options.lm} --lm-weight {found.lm_weight:g}" if lm else ""
    chosen += f" --hotwords {options.hotwords} --boost {found.boost:g}" if hotwords else ""
    print(f"wildctc decode …{chosen} --word-score {found.word_score:g} --beam {options.beam}")
