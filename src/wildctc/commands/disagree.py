"""`wildctc disagree`."""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from pathlib import Path

from wildctc.commands.options import Add, add_text_options, normalizer
from wildctc.errors import WildCTCError

_log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("disagree", run, "Where annotators disagree, and whether bypass probability is higher there.")
    p.add_argument("--reference", metavar="REF", required=True, help="a manifest, a Kaldi text file or a TSV")
    p.add_argument("--validators", metavar="FILE", nargs="+", required=True, help="JSONL, TSV or Kaldi text files")
    p.add_argument("--columns", help="of a TSV, in their order (default utterance,text,annotator); - for others")
    p.add_argument("--header", action="store_true", help="the first row of a TSV names its columns")
    p.add_argument("--probe", metavar="PROBE.jsonl", action="append", default=[], help="of a system; the first is CTC")
    p.add_argument("--json", metavar="OUT", help="write all numbers")
    p.add_argument("--csv", metavar="OUT", help="write a row for each class of units")
    p.add_argument("--svg", metavar="OUT", help="draw the systems' means")
    add_text_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.disagreement.by_class import find_disputes, read_systems
    from wildctc.disagreement.tables import as_csv, as_json, as_text
    from wildctc.disagreement.transcripts import parse_columns, read_annotated
    from wildctc.files import check_writable, write_text

    if options.svg and not options.probe:
        raise WildCTCError("--svg draws the means of systems: give --probe files too")
    outputs = [Path(path) for path in (options.json, options.csv, options.svg) if path]
    for path in outputs:
        check_writable(path)
    utterances, left_out = read_annotated(
        options.reference,
        options.validators,
        normalizer(options),
        columns=parse_columns(options.columns) if options.columns else None,
        header=options.header,
    )
    disputes = find_disputes(utterances, read_systems(options.probe, utterances), left_out)
    _warn_skipped(disputes.left_out)
    print(as_text(disputes))
    if options.json:
        settings = {"reference": options.reference, "validators": options.validators, "probes": options.probe}
        write_text(Path(options.json), as_json(disputes, settings | normalizer(options).to_dict()))
    if options.csv:
        write_text(Path(options.csv), as_csv(disputes))
    if options.svg:
        from wildctc.disagreement.plot import as_svg

        write_text(Path(options.svg), as_svg(disputes))
    if outputs:
        print(f"\nwritten: {', '.join(map(str, outputs))}")


def _warn_skipped(skipped: dict[str, str]) -> None:
    from wildctc.terminal import name_some

    reasons = defaultdict(list)
    for id, reason in skipped.items():
        reasons[reason].append(id)
    for reason, ids in reasons.items():
        _log.warning("skipped, %s: %s", reason, name_some(ids))
