"""What the commands share: how they are registered, and options that several commands have."""

from __future__ import annotations

import argparse
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wildctc.cores import available_cores
from wildctc.errors import WildCTCError
from wildctc.text.normalisation import Normalizer

if TYPE_CHECKING:
    from wildctc.corpora.utterance import Utterance
    from wildctc.recognizer.hf_checkpoint import Checkpoint
    from wildctc.recognizer.language_model import Rescorer
    from wildctc.recognizer.model import Recognizer
    from wildctc.scoring.mismatch import Outside
    from wildctc.text.reader import Reader
    from wildctc.text.variants import Variants

_log = logging.getLogger(__name__)

RunCommand = Callable[[argparse.Namespace], None]


class Add(Protocol):
    """Adds a command to the command line: its name, the function that runs it, and one line about it."""

    def __call__(self, name: str, run: RunCommand, text: str) -> argparse.ArgumentParser: ...


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Do not look for garbage: among a million utterances that are all kept, the search takes a third of the time.

    Yields:
        Nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how transcripts are normalised.

    Args:
        parser: of the command.
    """
    parser.add_argument("--lower", action="store_true", help="normalise to lower case")
    parser.add_argument("--strip-punctuation", action="store_true", help="remove punctuation")
    parser.add_argument(
        "--keep-invisible", action="store_true", help="keep zero-width spaces, marks of direction and the like"
    )


def normalizer(options: argparse.Namespace) -> Normalizer:
    """Make the normaliser that the options of `add_text_options` describe.

    Args:
        options: of the command.

    Returns:
        The normaliser.
    """
    return Normalizer(options.lower, options.strip_punctuation, options.keep_invisible)


def add_limit_option(parser: argparse.ArgumentParser) -> None:
    """Add --max-bad, which share of a corpus may be unusable.

    Args:
        parser: of the command.
    """
    parser.add_argument(
        "--max-bad", type=float, default=0.01, metavar="SHARE", help="stop above this share of bad rows (default 0.01)"
    )


def add_manifest_options(parser: argparse.ArgumentParser) -> None:
    """Add MANIFEST, which of its splits to use, and where its audio is.

    Args:
        parser: of the command.
    """
    parser.add_argument("manifest", metavar="MANIFEST", help="lhotse cuts, plain JSONL, or shards")
    parser.add_argument("--split", help="of a manifest with several splits")
    parser.add_argument(
        "--audio-root", metavar="DIR", help="where the audio is now, if its folder was moved after `wildctc prepare`"
    )


def add_dev_options(parser: argparse.ArgumentParser, beam: int, about_beam: str) -> None:
    """Add what a command that learns something about a model on dev needs: RUN, MANIFEST, and how it is decoded.

    Args:
        parser: of the command.
        beam: The default of --beam.
        about_beam: What --beam is, in a few words.
    """
    parser.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    add_manifest_options(parser)
    parser.add_argument("--beam", type=int, default=beam, help=f"{about_beam} (default {beam})")
    parser.add_argument("--cache", metavar="DIR", help="folder of computed features")
    add_workers_option(parser)
    add_trust_option(parser)
    add_limit_option(parser)


def add_workers_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how many processes compute features.

    Args:
        parser: of the command.
    """
    parser.add_argument(
        "--workers", type=int, default=available_cores(),
        help="processes that compute features, or read them (default: as many as there are cores)",
    )  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add --engine and --ray-workers, for commands that share their work on shards by claims.

    Args:
        parser: of the command.
    """
    parser.add_argument(
        "--engine", choices=("here", "ray"), default="here",
        help="ray: the machines of a Ray cluster share the work (of shards), and one that is lost is replaced",
    )  # fmt: skip
    parser.add_argument(
        "--ray-workers", type=int, default=0, metavar="N", help="default: one for each machine, or for each GPU"
    )


def share_with_ray(options: argparse.Namespace, of_shards: bool, gpus: bool = False) -> None:
    """With --engine ray, let the machines of a Ray cluster do the command first; then it finds its work done.

    Args:
        options: of a command with `add_engine_options`.
        of_shards: whether the command works on shards, which can be shared.
        gpus: whether the command uses GPUs.

    Raises:
        WildCTCError: there are no shards, or the command failed.
    """
    if options.engine == "here":
        return
    from wildctc.ray_engine import run_on_ray, split_engine

    if not of_shards:
        raise WildCTCError("--engine ray shares the work on shards; `wildctc pack` makes shards of a manifest")
    words, _, workers = split_engine(options.command_line)
    run_on_ray(words, workers, gpus)


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    """Add --trust-front-end, for commands that load a model.

    Args:
        parser: of the command.
    """
    parser.add_argument(
        "--trust-front-end",
        action="store_true",
        help="allow a front end that RUN names and that is a file, a folder or on the Hugging Face hub; what you have "
        "trained with on this machine is allowed anyway",
    )


def add_rescoring_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to choose among the texts of a beam.

    Args:
        parser: of the command.
    """
    parser.add_argument("--lm", metavar="FILE", help="n-gram model over words: ARPA, or KenLM's binary")
    parser.add_argument("--lm-weight", type=float, default=0.5, help="of --lm (default 0.5); see `wildctc tune`")
    parser.add_argument("--word-score", type=float, default=0.0, help="added for each word (default 0)")
    parser.add_argument("--hotwords", metavar="FILE", help="words or phrases that are expected, one on each line")
    parser.add_argument("--boost", type=float, default=3.0, help="added for each hotword in a text (default 3)")
    parser.add_argument("--lexicon", metavar="FILE", help="words that are expected, the first on each line")
    parser.add_argument("--outside", type=float, default=-10.0, help="added for each other word (default -10)")


def rescorer(options: argparse.Namespace) -> Rescorer | None:
    """Make what chooses among the texts of a beam.

    Args:
        options: of a command with `add_rescoring_options` and --beam.

    Returns:
        The rescorer; None if no option asks for one.
    """
    if options.lm is None and options.hotwords is None and options.lexicon is None and not options.word_score:
        return None
    from wildctc.recognizer.language_model import LanguageModel, Rescorer

    if options.beam == 1:
        raise WildCTCError(
            "--lm, --word-score, --hotwords and --lexicon choose among the texts of a beam; --beam 1 has one text"
        )
    hotwords = read_list(options.hotwords, "hotwords")
    lexicon = frozenset(line.split()[0] for line in read_list(options.lexicon, "words"))
    lm = LanguageModel(options.lm) if options.lm is not None else None
    weight = options.lm_weight if lm else 0.0
    boost, outside = options.boost if hotwords else 0.0, options.outside if lexicon else 0.0
    return Rescorer(lm, weight, options.word_score, hotwords, boost, lexicon, outside)


def read_list(path: str | None, what: str) -> tuple[str, ...]:
    """Read words or phrases, one on each line.

    Args:
        path: The file; None: there is none.
        what: What it has, for the message.

    Returns:
        The lines with single spaces, each once, without empty ones; nothing without a file.

    Raises:
        WildCTCError: There is nothing in the file.
    """
    if path is None:
        return ()
    from wildctc.json_lines import read_lines

    found = tuple(dict.fromkeys(text for _, line in read_lines(path) if (text := " ".join(line.split()))))
    if not found:
        raise WildCTCError(f"{path}: no {what} in it")
    return found


def add_variants_option(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add --variants, for commands that read transcripts or references.

    Args:
        parser: of the command.
        names: other names of the option.
    """
    parser.add_argument(
        "--variants",
        *names,
        metavar="FILE",
        help="words that are the same, written differently: a line is `colour color`",
    )


def read_variants_option(options: argparse.Namespace) -> Variants | None:
    """Read the file of --variants.

    Args:
        options: of a command with `add_variants_option`.

    Returns:
        The variants; None without the option.
    """
    from wildctc.text.variants import read_variants

    return None if options.variants is None else read_variants(options.variants)


def add_transcript_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options that say which transcripts utterances have: --variants, --also and --texts.

    Args:
        parser: of the command.
        names: other names of --variants.
    """
    add_variants_option(parser, *names)
    parser.add_argument("--also", metavar="FILE", help="further transcripts of the utterances, by id")
    parser.add_argument(
        "--texts", choices=("equal", "shares"), default="equal",
        help="several transcripts of an utterance: any of them (default), or each word by its share",
    )  # fmt: skip


def transcript_reader(options: argparse.Namespace, normalizer: Normalizer) -> Reader:
    """Make what reads the transcripts of a manifest.

    Args:
        options: of a command with `add_transcript_options`.
        normalizer: how transcripts are normalised.

    Returns:
        The reader.
    """
    from wildctc.scoring.transcripts import load_reader

    return load_reader(normalizer, options.variants, options.texts == "shares")


def with_further_texts(options: argparse.Namespace, utterances: list[Utterance]) -> list[Utterance]:
    """Add the transcripts of --also.

    Args:
        options: of a command with `add_transcript_options`.
        utterances: of the manifest.

    Returns:
        The utterances.
    """
    from wildctc.scoring.transcripts import add_texts

    return add_texts(utterances, options.also) if options.also else utterances


def load_model(options: argparse.Namespace) -> Recognizer:
    """Load the recogniser of RUN, on the GPU if there is one.

    Args:
        options: of a command with RUN and --trust-front-end.

    Returns:
        The recogniser.
    """
    import torch

    from wildctc.recognizer.model import Recognizer

    model = Recognizer.load(options.run_folder, trust_front_end=options.trust_front_end)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def add_hf_option(parser: argparse.ArgumentParser) -> None:
    """Add --hf, for commands that take a checkpoint in the place of RUN.

    Args:
        parser: of the command.
    """
    parser.add_argument(
        "--hf", action="store_true", help="RUN is the folder of a Hugging Face CTC checkpoint (characters)"
    )


def add_long_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that align long recordings.

    Args:
        parser: of the command.
    """
    parser.add_argument("--channel", type=int, metavar="N", help="take channel N, counted from 0 (default: mix all)")
    parser.add_argument(
        "--encoding", metavar="NAME", help="of the text, such as cp1252 (default: UTF-8, or what its first bytes say)"
    )
    parser.add_argument(
        "--least", type=float, default=0.2, metavar="SHARE",
        help="of the text that must be found in the audio (default 0.2); less is an error",
    )  # fmt: skip
    parser.add_argument(
        "--romanize", action="store_true", help="write the text in Latin letters first, for a model of these (uroman)"
    )
    parser.add_argument("--language", metavar="CODE", help="of --romanize: ISO 639-3, such as tam")


def make_romanizer(options: argparse.Namespace) -> Callable[[str], str] | None:
    """Make what --romanize and --language ask for.

    Args:
        options: of a command with `add_long_options`.

    Returns:
        What writes a word in Latin letters; None without --romanize.
    """
    from wildctc.longform.written import romanizer

    if options.language and not options.romanize:
        raise WildCTCError("--language is of --romanize: give that too")
    return romanizer(options.language) if options.romanize else None


def load_model_or_checkpoint(options: argparse.Namespace) -> Recognizer | Checkpoint:
    """Load the recogniser of RUN, or with --hf the checkpoint, on the GPU if there is one.

    Args:
        options: of a command with RUN, --hf and --trust-front-end.

    Returns:
        The model.
    """
    if not options.hf:
        return load_model(options)
    import torch

    from wildctc.recognizer.hf_checkpoint import Checkpoint

    if vars(options).get("cache"):
        raise WildCTCError("--cache is for the features of a RUN: a Hugging Face checkpoint computes its own")
    return Checkpoint(options.run_folder).to("cuda" if torch.cuda.is_available() else "cpu")


def load_model_or_last(options: argparse.Namespace) -> tuple[Recognizer, str]:
    """Load the recogniser of RUN, or the last checkpoint of a run that is still training.

    Hypotheses of a checkpoint have their own folder, so that nobody confuses them with those of the finished run.

    Args:
        options: of a command with RUN and --trust-front-end.

    Returns:
        The recogniser, and the name of the folder for its hypotheses.
    """
    import torch

    from wildctc.training.run_folder import is_unfinished
    from wildctc.training.unfinished import load_last

    if not is_unfinished(Path(options.run_folder)):
        return load_model(options), "hyp"
    model, step = load_last(Path(options.run_folder), options.trust_front_end)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), f"hyp-step{step}"


def warn_about_references(outside: Outside, references: int, which: str, advice: str | None) -> None:
    """Warn that references have characters which are counted as errors in any case.

    Args:
        outside: The characters, and how many references have them.
        references: How many references there are.
        which: What is wrong with the characters, such as "that the model cannot write".
        advice: What lowers the error rate; None if no option does.
    """
    _log.warning(
        "%s of %s references have characters %s, and each is an error: %s; %s",
        f"{outside.texts:,}", f"{references:,}", which, outside,
        advice or "no option helps: write references as the training transcripts are written",
    )  # fmt: skip


def weight(text: str) -> float | None:
    """Parse a log-weight.

    Args:
        text: a number, or "none".

    Returns:
        The number, None for "none".
    """
    if text == "none":
        return None
    value = float(text)
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number or none, got {text}")
    return value
