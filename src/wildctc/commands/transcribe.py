"""`wildctc transcribe`."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import (
    Add,
    add_hf_option,
    add_rescoring_options,
    add_trust_option,
    load_model_or_checkpoint,
    rescorer,
)
from wildctc.errors import MissingExtra, WildCTCError

if TYPE_CHECKING:
    from wildctc.recognizer.language_model import Rescorer
    from wildctc.recognizer.transcription import Transcriber, Transcript

_ENDINGS = {"text": "txt", "json": "json", "srt": "srt", "vtt": "vtt"}  # of files, by format
_BAR = "{desc}: {n:.0f} of {total:.0f} s [{elapsed}<{remaining}]"
_MAX_NAMED = 3  # files that are named when all are written
_log = logging.getLogger(__name__)


def register(add: Add) -> None:
    p = add("transcribe", run, "Transcribe audio files of any length: as text, as JSON with times, or as subtitles.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, a model folder, or with --hf a checkpoint")
    p.add_argument("files", metavar="FILE", nargs="+", help="WAV, FLAC, Ogg, MP3 …; any sampling rate")
    p.add_argument("--format", choices=_ENDINGS, default="text", help="default text")
    p.add_argument("-o", "--output", metavar="DIR", help="write DIR/<name of FILE>.{txt,json,srt,vtt}; default: print")
    p.add_argument("--channel", type=int, metavar="N", help="take channel N, counted from 0 (default: mix all)")
    p.add_argument("--beam", type=int, default=10, help="prefixes kept (default 10); 1 is greedy")
    add_rescoring_options(p)
    add_hf_option(p)
    add_trust_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.files import write_text
    from wildctc.progress import progress

    if options.beam < 1:
        raise WildCTCError(f"--beam must be at least 1, got {options.beam}")
    files, outputs, chooses = options.files, _outputs(options), rescorer(options)
    model = load_model_or_checkpoint(options)
    chooses = chooses and chooses.written_by(model.units)
    bad: dict[str, str] = {}  # file → what is wrong with it
    for file in progress(files, unit="file", leave=False) if options.output and len(files) > 1 else files:
        try:
            text = _formatted(_transcribe(model, file, options, chooses), file, options.format)
        except MissingExtra:
            raise
        except WildCTCError as error:  # the other files are transcribed all the same
            bad[file] = str(error) if str(error).startswith(file) else f"{file}: {error}"
            if len(files) > 1:
                _log.error("%s", bad[file])
            continue
        if file in outputs:
            write_text(outputs[file], text)
        else:
            name = f"{file}\t" if len(files) > 1 and options.format == "text" else ""
            print(name + text, end="", flush=True)
    written = [path.name for file, path in outputs.items() if file not in bad]
    if written:
        more = f" and {len(written) - _MAX_NAMED:,} more" if len(written) > _MAX_NAMED else ""
        print(f"{options.output}: {', '.join(written[:_MAX_NAMED])}{more}")
    if bad:
        raise WildCTCError(
            f"{len(bad)} of {len(files)} files could not be transcribed" if len(files) > 1 else bad[files[0]]
        )


def _outputs(options: argparse.Namespace) -> dict[str, Path]:
    """Where the transcript of each file goes; empty: to standard output."""
    from wildctc.files import check_writable

    if options.output is None:
        if len(options.files) > 1 and options.format in ("srt", "vtt"):
            raise WildCTCError(f"several files as {options.format} need -o DIR: each gets a file of its own there")
        return {}
    outputs: dict[str, Path] = {}
    for file in options.files:
        output = Path(options.output) / f"{Path(file).stem}.{_ENDINGS[options.format]}"
        if output in outputs.values():
            raise WildCTCError(f"{file}: another file's transcript would be {output} too; give them different folders")
        check_writable(output)  # before the work, not after it
        outputs[file] = output
    return outputs


def _transcribe(model: Transcriber, file: str, options: argparse.Namespace, chooses: Rescorer | None) -> Transcript:
    from wildctc.audio.recordings import open_recording
    from wildctc.audio.segmentation import LONGEST
    from wildctc.progress import progress
    from wildctc.recognizer.transcription import join, transcribe_pieces

    sound = open_recording(file, channel=options.channel)
    pieces = transcribe_pieces(model, sound, options.beam, chooses)
    if sound.duration <= LONGEST:
        return join(pieces)
    found = []
    with progress(total=sound.duration, desc=Path(file).name, bar_format=_BAR, leave=False) as bar:
        for piece in pieces:
            found.append(piece)
            bar.update(piece.duration)
    return join(found)


def _formatted(transcript: Transcript, file: str, format: str) -> str:
    from wildctc.recognizer.subtitles import to_srt, to_vtt

    if format == "text":
        return transcript.text + "\n"
    if format == "json":
        return json.dumps({"audio": file} | transcript.to_dict(), ensure_ascii=False) + "\n"
    return to_srt(transcript) if format == "srt" else to_vtt(transcript)
