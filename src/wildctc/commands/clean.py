"""`wildctc clean`."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from wildctc.commands.options import Add, add_engine_options, share_with_ray
from wildctc.cores import available_cores

_MAX_NAMED = 10  # utterances that are named in a warning
_log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("clean", run, "Drop, correct and weigh doubtful transcripts of a manifest by what a probe found.")
    p.add_argument("probe", metavar="PROBE", help="what `wildctc probe` wrote")
    p.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="the new manifest (.jsonl, .jsonl.gz), or folder of shards"
    )
    p.add_argument("--manifest", help="the manifest or shards that were probed, if not where the probe says")
    p.add_argument(
        "--splits",
        nargs="+",
        default=["train"],
        metavar="SPLIT",
        help="the splits that may be changed (default train); others stay as they are",
    )
    p.add_argument(
        "--drop",
        type=_share,
        default=0.5,
        metavar="SHARE",
        help="drop utterances of whose words more than this share is expected to be wrong (default 0.5); none: never",
    )
    for name, default, what in (
        ("replace", 0.5, "replace words by what was heard"),
        ("remove", None, "remove words of which nothing was heard"),
        ("insert", None, "insert words that were heard and are not written"),
        ("either", None, "let words that are not replaced be alternatives, {written|heard}, and training decide"),
    ):
        p.add_argument(
            f"--{name}",
            type=_share,
            default=default,
            metavar="SCORE",
            help=f"{what}, from this score on (default {'none' if default is None else default}); none: never",
        )
    p.add_argument(
        "--known",
        type=_count,
        default=3,
        metavar="TIMES",
        help="a new word must occur so often in the transcripts (default 3); 0 accepts any",
    )
    p.add_argument(
        "--weights",
        type=_probability,
        default=0.5,
        metavar="PROBABILITY",
        help="write a weight for each word: its log-odds of being wrong, 0 at this probability (default 0.5); none: "
        "no weights",
    )
    p.add_argument(
        "--drop-unheard",
        action="store_true",
        help="drop utterances of which the model heard next to nothing, such as silence; they are kept otherwise",
    )
    p.add_argument(
        "--workers", type=int, default=available_cores(), help="of shards: processes (default: as many as cores)"
    )
    add_engine_options(p)
    p.add_argument("--dry-run", action="store_true", help="print the summary and write nothing")


def run(options: argparse.Namespace) -> None:
    from wildctc.cleaning.cleaner import clean, find_probed
    from wildctc.cleaning.plan import Thresholds
    from wildctc.corpora.shards import are_shards

    names = ("drop", "replace", "remove", "insert", "either", "known", "weights", "drop_unheard")
    thresholds = Thresholds(**{name: getattr(options, name) for name in names})
    source = find_probed(Path(options.probe), options.manifest)
    how = {"splits": options.splits, "dry_run": options.dry_run}
    share_with_ray(options, of_shards=are_shards(source) and not options.dry_run)
    if are_shards(source):
        from wildctc.cleaning.shards import clean_shards  # here: it needs torch, which takes a second to start

        output = Path(options.output)
        cleaned = clean_shards(Path(options.probe), source, output, thresholds, workers=options.workers, **how)
    else:
        cleaned = clean(options.probe, options.output, thresholds, manifest=source, **how)
    for id in cleaned.refused[:_MAX_NAMED]:
        _log.warning("kept as it is: %s: its transcript is not the one that was probed; probe it again", id)
    if len(cleaned.refused) > _MAX_NAMED:
        _log.warning("kept as they are for the same reason: %s more", f"{len(cleaned.refused) - _MAX_NAMED:,}")
    print(cleaned)


def _share(text: str) -> float | None:
    """A number from 0 to 1, or "none"."""
    return None if text == "none" else _between(text, 0.0, 1.0)


def _probability(text: str) -> float | None:
    """A number above 0 and below 1, or "none"."""
    return None if text == "none" else _between(text, 0.001, 0.999)


def _between(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"must be a number from {low:g} to {high:g}, or none, got {text}")
    return value


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or greater, got {text}")
    return int(text)
