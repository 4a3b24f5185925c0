"""`wildctc align-long`.

It is a command of its own beside `wildctc align`: that one takes a manifest and the graph of a criterion, this one a
recording and a file of text, and the only option in common is the model.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import (
    Add,
    add_hf_option,
    add_long_options,
    add_trust_option,
    load_model_or_checkpoint,
    make_romanizer,
)
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.longform.recording import AlignedRecording
    from wildctc.recognizer.hf_checkpoint import Checkpoint
    from wildctc.recognizer.model import Recognizer

_ENDINGS = ".srt .vtt .TextGrid .ctm .json, .txt (Audacity's labels), .jsonl (lhotse's supervisions)"


def register(add: Add) -> None:
    p = add("align-long", run, "Align a recording of any length with a text that is roughly right.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    p.add_argument("audio", metavar="AUDIO", help="WAV, FLAC, Ogg, MP3 …; any length and sampling rate")
    p.add_argument("text", metavar="TEXT", help="what was read, roughly: plain text, .srt or .vtt")
    p.add_argument(
        "-o", "--output", metavar="FILE", action="append", default=[],
        help=f"write FILE in the format of its ending: {_ENDINGS}; can be repeated; default: print the differences",
    )  # fmt: skip
    p.add_argument("--audit", metavar="DIR", help="write a page that shows every sentence with its sound")
    add_long_options(p)
    add_hf_option(p)
    add_trust_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.files import check_writable, write_text
    from wildctc.longform.formats import FORMATS, summary, to_text
    from wildctc.longform.recording import align_recording, check_files

    for output in map(Path, options.output):
        if output.suffix.lower() not in FORMATS:
            raise WildCTCError(f"{output}: no format ends so; there are {_ENDINGS}")
        for source in (options.text, options.audio):
            check_writable(output, source)  # before the work, not after it
    if options.audit:
        from wildctc.audit.report import check_report_folder

        check_report_folder(Path(options.audit))
    check_files(options.audio, options.text, options.channel, options.encoding)
    romanize = make_romanizer(options)
    model = load_model_or_checkpoint(options)
    found = align_recording(
        model, options.audio, options.text,
        channel=options.channel, encoding=options.encoding, romanize=romanize, least=options.least,
    )  # fmt: skip
    for output in map(Path, options.output):
        write_text(output, FORMATS[output.suffix.lower()](found.alignment))
    print((summary if options.output or options.audit else to_text)(found.alignment), end="")
    if options.output:
        print(", ".join(options.output))
    if options.audit:
        print(_page(model, found, Path(options.audit), options))


def _page(model: Recognizer | Checkpoint, found: AlignedRecording, folder: Path, options: argparse.Namespace) -> str:
    from wildctc.longform.page import write_page

    units = model.units
    settings = {"model": options.run_folder, "weights": model.fingerprint(), "units": units.kind}
    settings |= {"manifest": options.text, "split": None, "normalizer": units.normalizer.to_dict()}
    return str(write_page(folder, found.alignment, found.logits, found.spoken, units.tokens, settings))
