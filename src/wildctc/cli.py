"""The command line: finds the command, and makes a user's mistake one line and exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from wildctc.commands import COMMANDS, train
from wildctc.commands.options import Run
from wildctc.errors import Diverged, MissingExtra, WildCTCError
from wildctc.version import __version__


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
            train.run(words[1:])
        else:
            options = parse(words)
            options.run(options)
    except WildCTCError as error:
        log.error("wildctc: %s", error)
        return 3 if isinstance(error, Diverged) else 2
    except KeyboardInterrupt:
        goes_on = words[:1] and words[0] in ("train", "probe", "reproduce", "demo")
        log.error("wildctc: stopped%s", "; the same command goes on from there" if goes_on else "")
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


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command; `settings` of one that passes settings on to `wildctc train` are the words left."""
    parser = _parser()
    options, rest = parser.parse_known_args(words)
    if hasattr(options, "settings"):
        options.settings = rest
    elif rest:
        raise WildCTCError(f"unrecognized arguments: {' '.join(rest)} (see wildctc {options.command} --help)")
    return options


class _Parser(argparse.ArgumentParser):
    """One line for a wrong command, without the usage text before it."""

    def error(self, message: str) -> NoReturn:
        raise WildCTCError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="wildctc", description="Speech recognition that tolerates imperfect transcripts.")
    parser.add_argument("--version", action="version", version=f"wildctc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Run, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.set_defaults(run=run)
        return command

    for command in COMMANDS:
        command.register(add)
    return parser
