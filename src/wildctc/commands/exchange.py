"""`wildctc exchange`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add

FORMATS = ("label-studio", "nemo", "argilla", "csv", "textgrid", "elan")


def register(add: Add) -> None:
    p = add("exchange", run, "Write a probe in the format of another tool: its findings, and the decisions on it.")
    p.add_argument("probe", metavar="PROBE.jsonl", help="what `wildctc probe` wrote")
    p.add_argument(
        "--to", required=True, choices=FORMATS,
        help="label-studio: tasks with predictions; nemo: a manifest with pred_text; argilla: records; csv: a line for "
        "each finding; textgrid (Praat), elan: a file for each utterance",
    )  # fmt: skip
    p.add_argument("--decisions", metavar="DECISIONS", nargs="+", default=[], help="decisions that are added")
    p.add_argument("-o", "--output", metavar="OUT", required=True, help="the file; of textgrid and elan a folder")


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.agreement import settle
    from wildctc.audit.decisions import read_decisions
    from wildctc.audit.exchange import export
    from wildctc.files import check_writable

    for path in [options.probe, *options.decisions]:
        check_writable(Path(options.output), source=path)
    made = settle(read_decisions(options.decisions)).decisions if options.decisions else {}
    count = export(options.probe, options.output, options.to, made)
    print(f"{options.output}: {count:,} {'findings' if options.to == 'csv' else 'utterances'}")
