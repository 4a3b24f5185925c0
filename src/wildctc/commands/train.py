"""`wildctc train`: its options are the settings of the recipe, so argparse does not know most of them."""

from __future__ import annotations

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError
from wildctc.torchrun import is_first

_USAGE = (
    "usage: wildctc train RECIPE --out RUN [--criterion NAME] [--trunk RUN] [--wandb PROJECT] [--dry-run]\n"
    "                     [--any.field VALUE …]"
)


def register(add: Add) -> None:
    add(
        "train", lambda options: run([]), "Train a recogniser: wildctc train --help"
    )  # cli.main calls `run` with the words instead


def run(words: list[str]) -> None:
    """Take the recipe, its settings and --out from the words, and train."""
    from wildctc.training.config import apply_arguments, load_recipe, settings_help, settings_table

    if {"-h", "--help"} & set(words):
        print(f"{_USAGE}\n\n{settings_help()}")
        return
    dry, words = "--dry-run" in words, [word for word in words if word != "--dry-run"]
    out, words = take(words, "--out")
    trunk, words = take(words, "--trunk")
    wandb, words = take(words, "--wandb")
    if not words or words[0].startswith("--"):
        raise WildCTCError("no recipe given (see wildctc train --help)")
    config = load_recipe(words[0])
    apply_arguments(config, words[1:])
    if dry:
        from wildctc.training.dry_run import rehearse

        print(f"{settings_table(config, words[0])}\n\n{rehearse(config, trunk is not None)}")
        return
    if out is None:
        raise WildCTCError("--out RUN is needed: the folder of the run (see wildctc train --help)")
    from wildctc.training.loop import train

    model = train(config, out, trunk, wandb)
    if is_first():
        print(model)


def take(words: list[str], name: str) -> tuple[str | None, list[str]]:
    """Take an option that argparse does not know out of the words.

    Args:
        words: of the command line.
        name: of the option, such as "--out"; `--out value` and `--out=value` are both understood.

    Returns:
        Its value, None if it is not given; and the other words.
    """
    for i, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2], words[:i] + words[i + 1 :]
        if word == name:
            if not words[i + 1 :] or words[i + 1].startswith("--"):
                what = "name" if name == "--wandb" else "folder"
                raise WildCTCError(f"{name} needs a {what} (see wildctc train --help)")
            return words[i + 1], words[:i] + words[i + 2 :]
    return None, words
