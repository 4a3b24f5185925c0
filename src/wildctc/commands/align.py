"""`wildctc align`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import (
    Add,
    add_hf_option,
    add_limit_option,
    add_manifest_options,
    add_transcript_options,
    add_trust_option,
    add_workers_option,
    load_model_or_checkpoint,
    transcript_reader,
    weight,
    with_further_texts,
)
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.lattice.arcs import Wildcards
    from wildctc.recognizer.alignment import AlignedUtterance


_EACH = {"textgrid": ".TextGrid", "srt": ".srt", "vtt": ".vtt"}  # formats of one recording, and the ending of a file
_FORMATS = ("text", "ctm", "json", "lhotse", *_EACH)


def register(add: Add) -> None:
    p = add("align", run, "The best path of each transcript of a manifest: when each word was said, what was bypassed.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    add_manifest_options(p)
    add_transcript_options(p)
    p.add_argument("--format", choices=_FORMATS, default="text", help="default text; lhotse: supervisions")
    p.add_argument(
        "-o", "--output", metavar="FILE",
        help="default: print; for textgrid, srt and vtt a folder, which gets a file for each utterance",
    )  # fmt: skip
    p.add_argument(
        "--criterion",
        metavar="NAME",
        help="align on the graph of this criterion (ctc: without wildcards; run: the run's own); default: "
        "that of `wildctc probe`, where every token may be bypassed at no price",
    )
    p.add_argument("--epoch", type=int, metavar="E", help="whose weights the criterion has (default: the run's last)")
    for name in ("--bypass", "--self-loop", "--word-bypass"):
        p.add_argument(name, type=weight, default=argparse.SUPPRESS, metavar="W", help="another weight, or none")
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    add_hf_option(p)
    add_workers_option(p)
    add_trust_option(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.shards import load_utterances
    from wildctc.files import check_writable, write_text
    from wildctc.recognizer.alignment import align_utterances

    if options.workers < 0:
        raise WildCTCError(f"--workers must be at least 0, got {options.workers}")
    if options.format in _EACH and options.output is None:
        raise WildCTCError(f"--format {options.format} needs -o DIR: each utterance gets a file of its own there")
    if options.hf and options.criterion == "run":
        raise WildCTCError("--criterion run: a Hugging Face checkpoint is not a run; name a criterion")
    wildcards = _wildcards(options)
    model = load_model_or_checkpoint(options)
    utterances = with_further_texts(options, load_utterances(options.manifest, options.split, options.audio_root))
    if options.output and options.format not in _EACH:
        check_writable(Path(options.output))  # before the work, not after it
    found = align_utterances(
        model, utterances, wildcards, cache=options.cache, workers=options.workers, max_bad=options.max_bad,
        reader=transcript_reader(options, model.units.normalizer),
    )  # fmt: skip
    if options.format in _EACH:
        _write_each(found, Path(options.output), options.format)
        return
    if options.format == "lhotse":
        text = "".join(json.dumps(u.to_supervision(), ensure_ascii=False) + "\n" for u in found)
    elif options.format == "json":
        text = "".join(json.dumps(u.to_dict(), ensure_ascii=False) + "\n" for u in found)
    elif options.format == "ctm":
        text = "".join(u.to_ctm() + "\n" for u in found if u.rows())
    else:
        text = "\n".join(u.to_text() + "\n" for u in found)
    if options.output:
        write_text(Path(options.output), text)
        print(f"{options.output}: {len(found):,} utterance{'s' * (len(found) != 1)}")
    else:
        print(text, end="")


def _write_each(found: list[AlignedUtterance], folder: Path, format: str) -> None:
    from wildctc.files import make_folder, write_text
    from wildctc.recognizer.subtitles import to_srt, to_vtt

    make_folder(folder)
    names: dict[str, str] = {}  # file → utterance: an id may have characters that a file name may not
    for u in found:
        name = "".join(c if c.isalnum() or c in "-_.+=@" else "_" for c in u.id) + _EACH[format]
        if name in names:
            raise WildCTCError(f"{folder / name}: would be the file of both {names[name]} and {u.id}; change an id")
        names[name] = u.id
        content = u.to_textgrid() if format == "textgrid" else (to_srt if format == "srt" else to_vtt)(u.transcript())
        write_text(folder / name, content)
    print(f"{folder}: {len(found):,} file{'s' * (len(found) != 1)}")


def _wildcards(options: argparse.Namespace) -> Wildcards:
    from dataclasses import replace

    from wildctc.lattice.probe_arcs import token_probe_arcs
    from wildctc.training.criterion_at import criterion_at

    wildcards = token_probe_arcs()
    if options.criterion:
        name = None if options.criterion == "run" else options.criterion
        wildcards = criterion_at(name, options.epoch, options.run_folder).weights
    elif options.epoch is not None:
        raise WildCTCError("--epoch is for --criterion: without it the weights are those of `wildctc probe`")
    given = {name: vars(options)[name] for name in ("bypass", "self_loop", "word_bypass") if name in options}
    return replace(wildcards, **given)
