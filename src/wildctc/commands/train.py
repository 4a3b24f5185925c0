"""`wildctc train`: its options are the settings of the recipe, so most are not argparse's."""

from __future__ import annotations

from wildctc.commands.options import Add
from wildctc.distributed import is_first
from wildctc.errors import WildCTCError

USAGE = "usage: wildctc train RECIPE --out RUN [--criterion NAME] [--trunk RUN] [--any.field VALUE …]"


def register(add: Add) -> None:
    add("train", lambda options: run([]), "Train a recogniser: wildctc train --help")  # its words never come this way


def run(words: list[str]) -> None:
    """Take the recipe, its settings and --out from the words, and train."""
    from wildctc.training.config import apply_arguments, load_recipe, settings_help

    if {"-h", "--help"} & set(words):
        print(f"{USAGE}\n\n{settings_help()}")
        return
    out, words = take(words, "--out")
    trunk, words = take(words, "--trunk")
    if not words or words[0].startswith("--"):
        raise WildCTCError(f"no recipe given; {USAGE}")
    config = load_recipe(words[0])
    apply_arguments(config, words[1:])
    if out is None:
        raise WildCTCError(f"--out RUN is needed: the folder of the run; {USAGE}")
    from wildctc.training.loop import train

    model = train(config, out, trunk)
    if is_first():
        print(model)


def take(words: list[str], name: str) -> tuple[str | None, list[str]]:
    """Take `--name value` or `--name=value` out of the words."""
    for i, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2], words[:i] + words[i + 1 :]
        if word == name:
            if not words[i + 1 :] or words[i + 1].startswith("--"):
                raise WildCTCError(f"{name} needs a folder; {USAGE}")
            return words[i + 1], words[:i] + words[i + 2 :]
    return None, words
