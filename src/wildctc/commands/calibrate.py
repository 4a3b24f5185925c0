"""`wildctc calibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_dev_options, load_model
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("calibrate", run, "Learn on dev how sure a model may be of its words; decode then writes confidences.")
    add_dev_options(p, 10, "prefixes kept; 1 is greedy")
    p.add_argument("-o", "--output", metavar="SVG", help="the reliability curve (default: RUN/confidence.svg)")


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.shards import load_utterances
    from wildctc.files import check_writable, write_atomically
    from wildctc.recognizer.confidence import (
        CONFIDENCE,
        Calibration,
        calibration_error,
        cross_fitted,
        draw_reliability,
        reliability,
        token_probability,
    )
    from wildctc.recognizer.model import find_model
    from wildctc.recognizer.word_evidence import collect

    if options.beam < 1:
        raise WildCTCError(f"--beam must be at least 1, got {options.beam}")
    picture = Path(options.output or Path(options.run_folder) / "confidence.svg")
    if picture.suffix != ".svg":
        raise WildCTCError(f"{picture}: the picture is an SVG: give -o a name that ends in .svg")
    check_writable(picture)
    model, folder = load_model(options), find_model(Path(options.run_folder))
    utterances = load_utterances(options.manifest, options.split, options.audio_root)
    evidence, right, utterance = collect(
        model, utterances, beam=options.beam, cache=options.cache, workers=options.workers, max_bad=options.max_bad
    )
    calibration = Calibration.fit(evidence, right)
    if len(set(utterance % 2)) < 2:
        raise WildCTCError("one utterance is not enough: half of them judges what the other half has taught")
    before = reliability(token_probability(evidence), right)
    after = reliability(cross_fitted(evidence, right, utterance), right)
    write_atomically(picture, draw_reliability(before, after))
    calibration.save(folder)
    print(f"{len(right):,} words, {right.mean():.1%} of them right")
    print(f"ECE {calibration_error(before):.2%} before, {calibration_error(after):.2%} calibrated, by cross-fitting")
    print(f"{picture} and {folder / CONFIDENCE}: decode and transcribe now write confidences")
