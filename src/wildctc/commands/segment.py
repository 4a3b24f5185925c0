"""`wildctc segment`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import (
    Add,
    add_engine_options,
    add_hf_option,
    add_long_options,
    add_trust_option,
    load_model_or_checkpoint,
    make_romanizer,
    share_with_ray,
)
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.longform.segments import Cutting


def register(add: Add) -> None:
    p = add("segment", run, "Cut long recordings with roughly right texts into a manifest of training utterances.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    p.add_argument(
        "audio", metavar="AUDIO", nargs="?",
        help="WAV, FLAC, Ogg, MP3 …; any length and sampling rate; or shards of recordings with their texts",
    )  # fmt: skip
    p.add_argument("text", metavar="TEXT", nargs="?", help="what was read, roughly: plain text, .srt or .vtt")
    p.add_argument("--table", metavar="FILE", help="many files: lines of AUDIO, tab, TEXT, relative to FILE's folder")
    p.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        help="DIR/manifest.jsonl, or shards; and DIR/files.jsonl",
    )
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
    add_engine_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.shards import are_shards
    from wildctc.distributed import process_group
    from wildctc.longform.recording import check_files
    from wildctc.longform.segments import Cutting, Pair, read_table, segment_files, summary

    cutting = Cutting(options.shortest, options.longest, options.confidence, options.bridge)
    if options.audio is not None and options.text is None and options.table is None and are_shards(options.audio):
        share_with_ray(options, of_shards=True, gpus=True)
        _segment_shards(options, cutting, make_romanizer(options))
        return
    share_with_ray(options, of_shards=False)
    if (options.table is None) == (options.text is None):
        raise WildCTCError("give AUDIO and TEXT, --table FILE for many of them, or shards")
    if options.table is None:
        check_files(options.audio, options.text, options.channel, options.encoding)
        pairs = [Pair(Path(options.audio).stem, Path(options.audio), Path(options.text))]
    elif options.audio is None:
        pairs = read_table(options.table)
    else:
        raise WildCTCError(f"{options.audio}: give AUDIO and TEXT, or --table, not both")
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
    _complain(sum("left_out" in row for row in rows), len(rows), options.output)


def _segment_shards(options: argparse.Namespace, cutting: Cutting, romanize: Callable[[str], str] | None) -> None:
    from wildctc.corpora.shards import describe, open_shards
    from wildctc.distributed import process_group
    from wildctc.longform.segments import summary, total_report
    from wildctc.longform.shards import segment_shards

    if options.encoding is not None:
        raise WildCTCError("--encoding is of files of text; those of shards are in their tables")
    shards, folder = open_shards(options.audio), Path(options.output)
    with process_group() as processes:
        model = load_model_or_checkpoint(options)
        settings = {"weights": model.fingerprint(), "romanize": [options.romanize, options.language]}
        how = {"cutting": cutting, "channel": options.channel, "romanize": romanize, "least": options.least}
        rows = segment_shards(model, shards, folder, settings, **how)
    if not processes.first:
        return
    total, count, bad = total_report(rows)
    print(summary([{"id": "all", "report": total}]))
    print(describe(folder, open_shards(folder).shards))
    _complain(bad, count, options.output)


def _complain(bad: int, count: int, output: str) -> None:
    if bad:
        raise WildCTCError(f"{bad:,} of {count:,} recordings are left out; {output}/files.jsonl says why")
