"""What the commands share: how they are added, and options that several have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Protocol

from wildctc.text import Normalizer

Run = Callable[[argparse.Namespace], None]


class Add(Protocol):
    """Adds a command: its name, what it calls, and one line about it."""

    def __call__(self, name: str, run: Run, text: str) -> argparse.ArgumentParser: ...


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """How transcripts are normalised."""
    parser.add_argument("--lower", action="store_true", help="normalise to lower case")
    parser.add_argument("--strip-punctuation", action="store_true", help="remove punctuation")


def normalizer(options: argparse.Namespace) -> Normalizer:
    """The normaliser that `add_text_options` asks for."""
    return Normalizer(lower=options.lower, strip_punctuation=options.strip_punctuation)


def add_limit_option(parser: argparse.ArgumentParser) -> None:
    """How much of a corpus may be unusable."""
    parser.add_argument(
        "--max-bad", type=float, default=0.01, metavar="SHARE", help="stop above this share of bad rows (default 0.01)"
    )


def weight(text: str) -> float | None:
    """A finite log-weight, or none."""
    if text == "none":
        return None
    value = float(text)
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number or none, got {text}")
    return value
