"""`wildctc pack`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import (
    Add,
    add_engine_options,
    add_limit_option,
    add_manifest_options,
    add_workers_option,
    share_with_ray,
)


def register(add: Add) -> None:
    p = add("pack", run, "Pack a manifest and its audio into shards, which train, decode and probe read as a stream.")
    add_manifest_options(p)
    p.add_argument("output", metavar="OUT", help="the folder of the shards")
    p.add_argument("--size", type=int, default=1000, metavar="N", help="utterances in a shard (default 1000)")
    p.add_argument("--seed", type=int, default=0, help="decides the order of the utterances (default 0)")
    p.add_argument("--keep-order", action="store_true", help="the order of the manifest, which is not shuffled")
    p.add_argument("--flac", action="store_true", help="write WAV as FLAC, which has the same samples")
    p.add_argument("--link", action="store_true", help="leave the audio where it is, and write tables only")
    p.add_argument("--no-decode", action="store_true", help="look at the headers and ends of files only")
    add_workers_option(p)
    add_limit_option(p)
    add_engine_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.packing import Packing, pack
    from wildctc.corpora.shards import describe

    share_with_ray(options, of_shards=True)
    packing = Packing(
        options.size, None if options.keep_order else options.seed, options.flac, options.link,
        not options.no_decode, options.max_bad,
    )  # fmt: skip
    given = {"split": options.split, "audio_root": options.audio_root, "workers": options.workers}
    shards = pack(options.manifest, options.output, packing, **given)
    print(describe(options.output, shards))
