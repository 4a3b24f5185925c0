"""`wildctc score`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import (
    Add,
    add_text_options,
    add_variants_option,
    normalizer,
    read_variants_option,
    warn_about_references,
    without_garbage_collection,
)

if TYPE_CHECKING:
    from wildctc.scoring.error_rates import Score
    from wildctc.scoring.hypotheses import Decoded
    from wildctc.text.normalisation import Normalizer
    from wildctc.text.variants import Variants


def register(add: Add) -> None:
    p = add("score", run, "Word and character error rates of a hypothesis file, and where the errors are.")
    p.add_argument("hypotheses", metavar="HYP.jsonl")
    p.add_argument("--reference", metavar="FILE", nargs="+", help="references to use; of several the nearest counts")
    p.add_argument("--json", metavar="OUT", help="write the counts, also by utterance")
    p.add_argument("--errors", type=int, default=10, metavar="N", help="show the N worst utterances (default 10)")
    add_variants_option(p)
    add_text_options(p)


@without_garbage_collection()
def run(options: argparse.Namespace) -> None:
    from wildctc.files import write_text
    from wildctc.scoring.error_listing import list_errors
    from wildctc.scoring.error_rates import score
    from wildctc.scoring.hypotheses import read_hyps, read_references

    references = read_references(options.reference) if options.reference else None
    decoded, normalize, variants = read_hyps(options.hypotheses), normalizer(options), read_variants_option(options)
    found = score(decoded, references, normalize, variants)
    print(found)
    _warn(decoded, found, references, normalize, variants)
    if options.errors and found.words.total:
        print(f"\n{list_errors(found, options.errors)}")
    if options.json:
        write_text(Path(options.json), found.to_json() + "\n")
        print(f"\n{options.json}: the counts, also by utterance")


def _warn(
    decoded: list[Decoded],
    found: Score,
    references: Mapping[str, Sequence[str]] | None,
    normalize: Normalizer,
    variants: Variants | None,
) -> None:
    """Warn if references have capitals, digits or a script that no hypothesis has."""
    from wildctc.scoring.mismatch import advise_scoring, find_outside, in_no_hypothesis

    missing = in_no_hypothesis([normalize(item.text) for item in decoded])
    outside = find_outside((utterance.reference for utterance in found.utterances), missing)
    if outside.texts:
        option, better = advise_scoring(decoded, references, normalize, variants)
        advice = f"with {option} WER is {better.wer:.2%}" if option else None
        warn_about_references(outside, len(decoded), "of a kind that no hypothesis has", advice)
