"""`wildctc segment`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import (
    Add,
    add_hf_option,
    add_long_options,
    add_trust_option,
    load_model_or_checkpoint,
    make_romanizer,
)
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("segment", run, "Cut long recordings with roughly right texts into a manifest of training utterances.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    p.add_argument("audio", metavar="AUDIO", nargs="?", help="WAV, FLAC, Ogg, MP3 …; any length and sampling rate")
    p.add_argument("text", metavar="TEXT", nargs="?", help="what was read, roughly: plain text, .srt or .vtt")
    p.add_argument("--table", metavar="FILE", help="many files: lines of AUDIO, tab, TEXT, relative to FILE's folder")
    p.add_argument("-o", "--output", metavar="DIR", required=True, help="write DIR/manifest.jsonl and DIR/files.jsonl")
    p.add_argument("--shortest", type=float, default=1.0, metavar="SECONDS", help="of a segment (default 1)")
    p.add_argument("--longest", type=float, default=20.0, metavar="SECONDS", help="of a segment (default 20)")
    p.add_argument(
        "--confidence", type=float, default=0.8, metavar="P", help="least mean confidence of its words (default 0.8)"
    )
    p.add_argument(
        "--bridge", type=int, default=0, metavar="WORDS",
        help="keep places where at most so many words differ inside a segment: {written|heard} (default 0: cut there)",
    )  # fmt: skip
    add_long_options(p)
    add_hf_option(p)
    add_trust_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.distributed import process_group
    from wildctc.longform.recording import check_files
    from wildctc.longform.segments import Cutting, Pair, read_table, segment_files, summary

    if (options.table is None) == (options.text is None):
        raise WildCTCError("give AUDIO and TEXT, or --table FILE for many of them")
    if options.table is None:
        check_files(options.audio, options.text, options.channel, options.encoding)
        pairs = [Pair(Path(options.audio).stem, Path(options.audio), Path(options.text))]
    elif options.audio is None:
        pairs = read_table(options.table)
    else:
        raise WildCTCError(f"{options.audio}: give AUDIO and TEXT, or --table, not both")
    cutting = Cutting(options.shortest, options.longest, options.confidence, options.bridge)
    romanize = make_romanizer(options)
    with process_group() as processes:
        model = load_model_or_checkpoint(options)
        settings = {"weights": model.fingerprint(), "romanize": [options.romanize, options.language]}
        rows = segment_files(
            model, pairs, Path(options.output), settings,
            cutting=cutting, channel=options.channel, encoding=options.encoding, romanize=romanize, least=options.least,
            processes=processes,
        )  # fmt: skip
    if not processes.first:
        return
    print(summary(rows))
    bad = sum("left_out" in row for row in rows)
    if bad:
        raise WildCTCError(f"{bad:,} of {len(rows):,} recordings are left out; {options.output}/files.jsonl says why")
