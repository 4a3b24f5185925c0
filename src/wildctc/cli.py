"""The command line: finds the command, and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import re
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from wildctc.child_processes import end_with_parent
from wildctc.commands import COMMANDS, features, train
from wildctc.commands.options import RunCommand
from wildctc.errors import Diverged, WildCTCError
from wildctc.logs import start_log
from wildctc.version import __version__

_RESUMES = ("train", "pack", "features", "decode", "probe", "segment", "reproduce", "demo")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `wildctc`; None takes those of the process.

    Returns:
        The exit code: 0, 2 for a user's mistake, 3 if training has diverged, 130 if it was interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    end_with_parent()
    log = start_log(None)
    try:
        if words[:1] in (["train"], ["features"]):
            (train if words[0] == "train" else features).run(words[1:])
        else:
            options = parse(words)
            options.run(options)
    except WildCTCError as error:
        log.error("wildctc: %s", str(error).replace("\n", "\\n"))
        return 3 if isinstance(error, Diverged) else 2
    except KeyboardInterrupt:
        resumes = words[:1] and words[0] in _RESUMES
        log.error("wildctc: stopped%s", "; the same command resumes from there" if resumes else "")
        return 130
    except (ConnectionError, EOFError, MemoryError, OSError, RuntimeError) as error:
        if is_out_of_memory(error):
            log.error("wildctc: %s", out_of_memory_advice(error, words))
            return 2
        if isinstance(error, BrokenPipeError) and words[:1] not in (["train"], ["decode"]):  # `wildctc score … | head`
            sys.stderr.close()
            return 0
        if not isinstance(error, (ConnectionError, EOFError)) and "DataLoader worker" not in str(error):
            raise
        with contextlib.suppress(RuntimeError):
            time.sleep(0.5)  # torch raises once more when the signal about the dead process arrives
        log.error("wildctc: a data-loading process was killed (out of memory?): run it again, with fewer workers")
        return 2
    finally:
        logging.shutdown()
    return 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, in Python, numpy, torch on any device, or the system.

    Args:
        error: what a command raised.

    Returns:
        True if memory is the reason.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("out of memory" in said or "can't allocate memory" in said)


def out_of_memory_advice(error: BaseException, words: Sequence[str]) -> str:
    """One line that says how much memory was requested, if that is known, and what needs less.

    Args:
        error: what a command raised.
        words: of the command line, which decide the advice.

    Returns:
        The line.
    """
    wanted = re.search(r"(?:allocate|Unable to allocate) ([\d.]+ (?:[KMGTP]?i?B|bytes))", str(error))
    size = f" ({wanted[1]} were requested at once)" if wanted else ""
    if words[:1] == ["train"]:
        less = (
            "start again in another --out with a smaller --data.batch_seconds (and --optimizer.accumulate larger by as "
            "much, for the same steps) or a smaller model; or give the same command more memory, and it resumes"
        )
    else:
        less = "use fewer --workers if there are some, cut the longest recordings, or use a machine with more memory"
    return f"out of memory{size}: {less}"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Args:
        words: the words after `wildctc`.

    Returns:
        The options. If the command passes settings on to `wildctc train`, `settings` has the words that are not its own
        options.

    Raises:
        WildCTCError: an unknown command or option.
    """
    parser = _parser()
    options, rest = parser.parse_known_args(words)
    options.command_line = list(words)
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

    def add(name: str, run: RunCommand, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.set_defaults(run=run)
        return command

    for command in COMMANDS:
        command.register(add)
    return parser
