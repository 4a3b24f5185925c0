"""`wildctc probe`."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

from wildctc.commands.options import Add, add_limit_option, weight
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("probe", run, "For each token and word of a manifest: how probable is it that it was not said?")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    p.add_argument("manifest", metavar="MANIFEST", help="lhotse cuts or plain JSONL")
    p.add_argument("-o", "--output", metavar="PROBE", required=True, help="the file to write, or to continue")
    p.add_argument("--hf", action="store_true", help="RUN is the folder of a Hugging Face CTC checkpoint (characters)")
    p.add_argument("--split", help="of a manifest with several splits")
    p.add_argument(
        "--self-loop",
        type=weight,
        default=0.0,
        metavar="WEIGHT",
        help="log-weight of unwritten speech in the gaps (default 0); none: there is none",
    )
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    p.add_argument("--workers", type=int, default=1, help="data-loading processes (default 1)")
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.audit.probing import probe_manifest
    from wildctc.corpora import load_manifest
    from wildctc.distributed import process_group

    if options.workers < 0:
        raise WildCTCError(f"--workers must be at least 0, got {options.workers}")
    with process_group() as processes:
        model, settings = _model(options)
        utterances = load_manifest(options.manifest, options.split)
        output = Path(options.output)
        found = probe_manifest(
            model,
            utterances,
            output,
            settings | {"manifest": options.manifest, "split": options.split, "self_loop": options.self_loop},
            processes=processes,
            cache=options.cache,
            workers=options.workers,
            max_bad=options.max_bad,
        )
    if processes.first:
        done = "" if found.now else " (complete already; remove it to probe again)"
        left_out = f", {found.left_out:,} left out" if found.left_out else ""
        count = len(utterances) - found.left_out
        print(f"{output}: {count:,} utterance{'s' * (count != 1)}{left_out}{done}")


def _model(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The model, and what a probe file says about it."""
    import torch

    folder, device = Path(options.run_folder), "cuda" if torch.cuda.is_available() else "cpu"
    model: Any
    if options.hf:
        from wildctc.audit.hf import Checkpoint

        if options.cache:
            raise WildCTCError("--cache is for the features of a RUN: a Hugging Face checkpoint has none apart from it")
        model = Checkpoint(folder).to(device)
        weights = model.fingerprint()
    else:
        from wildctc.recognizer import Recognizer, find_model

        model = Recognizer.load(folder).to(device)
        with open(find_model(folder) / "model.safetensors", "rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    about = {"model": str(folder), "weights": weights, "units": model.units.kind, "frame_rate": model.frame_rate}
    return model, about | {"normalizer": model.units.normalizer.to_dict()}
