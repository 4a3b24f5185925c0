"""`wildctc decode`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_limit_option
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("decode", run, "Transcribe a manifest with a trained recogniser.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    p.add_argument("manifest", metavar="MANIFEST", help="lhotse cuts or plain JSONL")
    p.add_argument("-o", "--output", metavar="HYP", help="default: RUN/hyp/<manifest>.jsonl, where `compare RUN` looks")
    p.add_argument("--split", help="of a manifest with several splits")
    p.add_argument("--beam", type=int, default=10, help="prefixes kept (default 10); 1 is greedy")
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    p.add_argument("--workers", type=int, default=1, help="data-loading processes (default 1)")
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    import torch

    from wildctc.corpora import load_manifest
    from wildctc.files import check_writable
    from wildctc.inference import decode_utterances
    from wildctc.recognizer import Recognizer
    from wildctc.scoring import score, write_hyps

    for name, value, least in (("--beam", options.beam, 1), ("--workers", options.workers, 0)):
        if value < least:
            raise WildCTCError(f"{name} must be at least {least}, got {value}")
    model = Recognizer.load(options.run_folder).to("cuda" if torch.cuda.is_available() else "cpu")
    utterances = load_manifest(options.manifest, options.split)
    name = options.split or Path(options.manifest).name.split(".")[0]
    output = Path(options.output) if options.output else Path(options.run_folder) / "hyp" / f"{name}.jsonl"
    check_writable(output)  # now, and not after all the work
    decoded = decode_utterances(
        model, utterances, beam=options.beam, cache=options.cache, workers=options.workers, max_bad=options.max_bad
    )
    write_hyps(output, decoded)
    rates = ""
    if all(d.references for d in decoded):
        found = score(decoded)
        rates = f", WER {found.wer:.2%}, CER {found.cer:.2%}"
    print(f"{output}: {len(decoded):,} utterance{'s' * (len(decoded) != 1)}{rates}")
