"""`wildctc transcribe`."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import Add
from wildctc.errors import MissingExtra, WildCTCError

if TYPE_CHECKING:
    from wildctc.recognizer import Recognizer
    from wildctc.transcribing import Transcript

ENDINGS = {"text": "txt", "json": "json", "srt": "srt", "vtt": "vtt"}  # of files, by format
BAR = "{desc}: {n:.0f} of {total:.0f} s [{elapsed}<{remaining}]"
log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("transcribe", run, "Transcribe audio files of any length: as text, as JSON with times, or as subtitles.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    p.add_argument("files", metavar="FILE", nargs="+", help="WAV, FLAC, Ogg, MP3 …; any sampling rate")
    p.add_argument("--format", choices=ENDINGS, default="text", help="default text")
    p.add_argument("-o", "--output", metavar="DIR", help="write DIR/<name of FILE>.{txt,json,srt,vtt}; default: print")
    p.add_argument("--channel", type=int, metavar="N", help="take channel N, counted from 0 (default: mix all)")
    p.add_argument("--beam", type=int, default=10, help="prefixes kept (default 10); 1 is greedy")


def run(options: argparse.Namespace) -> None:
    import torch

    from wildctc.files import write_text
    from wildctc.progress import progress
    from wildctc.recognizer import Recognizer

    if options.beam < 1:
        raise WildCTCError(f"--beam must be at least 1, got {options.beam}")
    files, outputs = options.files, _outputs(options)
    model = Recognizer.load(options.run_folder).to("cuda" if torch.cuda.is_available() else "cpu")
    bad = []
    for file in progress(files, unit="file", leave=False) if options.output and len(files) > 1 else files:
        try:
            text = _formatted(_transcribe(model, file, options), file, options.format)
        except MissingExtra:
            raise
        except WildCTCError as error:  # the other files are none the worse for it
            bad.append(str(error) if str(error).startswith(file) else f"{file}: {error}")
            if len(files) > 1:
                log.error("%s", bad[-1])
            continue
        if file in outputs:
            write_text(outputs[file], text)
        else:
            name = f"{file}\t" if len(files) > 1 and options.format == "text" else ""
            print(name + text, end="", flush=True)
    if bad:
        raise WildCTCError(f"{len(bad)} of {len(files)} files could not be transcribed" if len(files) > 1 else bad[0])


def _outputs(options: argparse.Namespace) -> dict[str, Path]:
    """Where each file's transcript goes; none: to standard output."""
    from wildctc.files import check_writable

    if options.output is None:
        if len(options.files) > 1 and options.format in ("srt", "vtt"):
            raise WildCTCError(f"several files as {options.format} need -o DIR: each gets a file of its own there")
        return {}
    outputs: dict[str, Path] = {}
    for file in options.files:
        output = Path(options.output) / f"{Path(file).stem}.{ENDINGS[options.format]}"
        if output in outputs.values():
            raise WildCTCError(f"{file}: another file's transcript would be {output} too; give them different folders")
        check_writable(output)  # now, and not after all the work
        outputs[file] = output
    return outputs


def _transcribe(model: Recognizer, file: str, options: argparse.Namespace) -> Transcript:
    from wildctc.progress import progress
    from wildctc.sound import LONGEST, open_sound
    from wildctc.transcribing import join, transcribe_pieces

    sound = open_sound(file, channel=options.channel)
    pieces = transcribe_pieces(model, sound, options.beam)
    if sound.duration <= LONGEST:
        return join(pieces)
    found = []
    with progress(total=sound.duration, desc=Path(file).name, bar_format=BAR, leave=False) as bar:
        for piece in pieces:
            found.append(piece)
            bar.update(piece.duration)
    return join(found)


def _formatted(transcript: Transcript, file: str, format: str) -> str:
    from wildctc.subtitles import to_srt, to_vtt

    if format == "text":
        return transcript.text + "\n"
    if format == "json":
        return json.dumps({"audio": file} | transcript.to_dict(), ensure_ascii=False) + "\n"
    return to_srt(transcript) if format == "srt" else to_vtt(transcript)
