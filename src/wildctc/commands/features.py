"""`wildctc features`: its options are the settings of a recipe, as those of `wildctc train`."""

from __future__ import annotations

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError

_USAGE = (
    "usage: wildctc features RECIPE [--any.field VALUE …] [--engine ray [--ray-workers N]]   (the recipe and the "
    "settings of the run)"
)


def register(add: Add) -> None:
    add(
        "features", lambda options: run([]), "Compute the features of a run's shards, alone or beside other machines."
    )  # cli.main calls `run` with the words instead


def run(words: list[str]) -> None:
    """Take the recipe and its settings from the words, and compute what is missing."""
    if {"-h", "--help"} & set(words):
        print(f"{_USAGE}\n\nEvery call does what no other call is doing, and ends when all is done by somebody.")
        return
    if not words or words[0].startswith("--"):
        raise WildCTCError("no recipe given (see wildctc features --help)")
    from wildctc.ray_engine import run_on_ray, split_engine
    from wildctc.training.config import apply_arguments, load_recipe

    words, on_ray, workers = split_engine(words)
    config = load_recipe(words[0])
    apply_arguments(config, words[1:])
    if on_ray:
        run_on_ray(["features", *words], workers, gpus=True)
    from wildctc.training.shard_data import compute_features_of

    print(compute_features_of(config))
