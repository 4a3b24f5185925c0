"""The command line: parse, call, print. A user's mistake is one line and exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.text import Normalizer

TRAIN_USAGE = "usage: wildctc train RECIPE --out RUN [--criterion NAME] [--any.field VALUE …]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        import wildctc.training.reports as reports
    except ModuleNotFoundError as error:
        print(f"wildctc: {MissingExtra(str(error.name), 'train')}", file=sys.stderr)
        return 2
    log = reports.start_log(None)
    try:
        if words[:1] == ["train"]:
            train(words[1:])
        else:
            options = _parser().parse_args(words)
            options.run(options)
    except WildCTCError as error:
        log.error("wildctc: %s", error)
        return 2
    except KeyboardInterrupt:
        log.error("wildctc: stopped; the same command continues a training run")
        return 130
    except (ConnectionError, EOFError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError) and words[:1] not in (["train"], ["decode"]):  # `wildctc score … | head`
            sys.stderr.close()
            return 0
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            raise
        with contextlib.suppress(RuntimeError):
            time.sleep(0.5)  # torch raises once more when the news of the death arrives by signal
        log.error("wildctc: a data-loading process was killed (out of memory?): run it again, with fewer workers")
        return 2
    finally:
        logging.shutdown()
    return 0


def train(words: list[str]) -> None:
    """`wildctc train`: its options are the settings of the recipe, so they are not argparse's."""
    from wildctc.training.config import apply_arguments, load_recipe, settings_help

    if {"-h", "--help"} & set(words):
        print(f"{TRAIN_USAGE}\n\n{settings_help()}")
        return
    out, words = _take(words, "--out")
    if not words or words[0].startswith("--"):
        raise WildCTCError(f"no recipe given; {TRAIN_USAGE}")
    config = load_recipe(words[0])
    apply_arguments(config, words[1:])
    if out is None:
        raise WildCTCError(f"--out RUN is needed: the folder of the run; {TRAIN_USAGE}")
    from wildctc.training.loop import train as run

    print(run(config, out))


def _take(words: list[str], name: str) -> tuple[str | None, list[str]]:
    """Take `--name value` or `--name=value` out of the words."""
    for i, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2], words[:i] + words[i + 1 :]
        if word == name and i + 1 < len(words):
            return words[i + 1], words[:i] + words[i + 2 :]
    return None, words


def prepare(options: argparse.Namespace) -> None:
    """`wildctc prepare`."""
    from wildctc.corpora import prepare as run

    files = run(options.source, options.input, options.output, _normalizer(options), options.max_bad)
    for name, utterances in files.items():
        hours = sum(u.duration for u in utterances) / 3600
        print(f"{Path(options.output) / name}.jsonl.gz: {len(utterances):,} utterances, {hours:.2f} h")


def decode(options: argparse.Namespace) -> None:
    """`wildctc decode`."""
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


def score(options: argparse.Namespace) -> None:
    """`wildctc score`."""
    from wildctc.files import write_text
    from wildctc.scoring import read_hyps, read_references
    from wildctc.scoring import score as run

    references = read_references(options.reference) if options.reference else None
    found = run(read_hyps(options.hypotheses), references, _normalizer(options))
    print(found)
    if options.errors and found.words.total:
        print(f"\n{found.listing(options.errors)}")
    if options.json:
        write_text(Path(options.json), found.to_json() + "\n")


def compare(options: argparse.Namespace) -> None:
    """`wildctc compare`."""
    from wildctc.comparing import compare_files
    from wildctc.scoring import read_references

    references = read_references(options.reference) if options.reference else None
    tables = compare_files(options.systems, references, _normalizer(options))
    print("\n\n".join(map(str, tables)))


def _normalizer(options: argparse.Namespace) -> Normalizer:
    return Normalizer(lower=options.lower, strip_punctuation=options.strip_punctuation)


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command, without the usage text before it."""

    def error(self, message: str) -> NoReturn:
        raise WildCTCError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="wildctc", description="Speech recognition that tolerates imperfect transcripts.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.set_defaults(run=run)
        return command

    p = add("prepare", prepare, "Turn a corpus into manifests: OUT/{train,dev,test}.jsonl.gz.")
    p.add_argument("source", metavar="SOURCE", help="jsonl, kaldi or librispeech")
    p.add_argument("input", metavar="IN", help="the corpus's folder (jsonl: or file)")
    p.add_argument("output", metavar="OUT", help="the folder of the manifests")
    _text_options(p)
    _limit_option(p)

    commands.add_parser("train", help="Train a recogniser: wildctc train --help", add_help=False)

    p = add("decode", decode, "Transcribe a manifest with a trained recogniser.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    p.add_argument("manifest", metavar="MANIFEST", help="lhotse cuts or plain JSONL")
    p.add_argument("-o", "--output", metavar="HYP", help="default: RUN/hyp/<manifest>.jsonl, where `compare RUN` looks")
    p.add_argument("--split", help="of a manifest with several splits")
    p.add_argument("--beam", type=int, default=10, help="prefixes kept (default 10); 1 is greedy")
    p.add_argument("--cache", metavar="DIR", help="folder of computed features")
    p.add_argument("--workers", type=int, default=1, help="data-loading processes (default 1)")
    _limit_option(p)

    p = add("score", score, "Word and character error rates of a hypothesis file, and where the errors are.")
    p.add_argument("hypotheses", metavar="HYP.jsonl")
    p.add_argument("--reference", metavar="FILE", nargs="+", help="references to use; of several the nearest counts")
    p.add_argument("--json", metavar="OUT", help="write the counts, also by utterance")
    p.add_argument("--errors", type=int, default=10, metavar="N", help="show the N worst utterances (default 10)")
    _text_options(p)

    p = add("compare", compare, "A table for each test set, with relative change and a paired bootstrap interval.")
    p.add_argument("systems", metavar="RUN|HYP", nargs="+", help="runs, or hypothesis files of one test set")
    p.add_argument("--reference", metavar="FILE", nargs="+", help="references to use; of several the nearest counts")
    _text_options(p)
    return parser


def _text_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lower", action="store_true", help="normalise to lower case")
    parser.add_argument("--strip-punctuation", action="store_true", help="remove punctuation")


def _limit_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-bad", type=float, default=0.01, metavar="SHARE", help="stop above this share of bad rows (default 0.01)"
    )
