"""The messages of the package, on the terminal and in a run's log.txt."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from wildctc.files import writing
from wildctc.progress import AboveBar
from wildctc.torchrun import log_level


def start_log(run: Path | None) -> logging.Logger:
    """Send the package's messages to the terminal and to a run's log.txt. Only the first process writes.

    Args:
        run: The run's folder; None for the terminal only.

    Returns:
        The package's logger.
    """
    logger = logging.getLogger("wildctc")
    logger.setLevel(log_level())
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    terminal = AboveBar()
    terminal.setFormatter(_Printable("%(message)s"))
    logger.addHandler(terminal)
    if run is not None:
        with writing(run / "log.txt"):
            file = _QuietFileHandler(run / "log.txt", encoding="utf-8")
        file.setFormatter(_Printable("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(file)
    return logger


class _Printable(logging.Formatter):
    r"""Writes control characters as \x1b: names and texts come from files of others, and a terminal would obey them.

    Half a surrogate pair, which no file can take, is written as \ud800.
    """

    def format(self, record: logging.LogRecord) -> str:
        return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], super().format(record))


_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # tab and newline stay


class _QuietFileHandler(logging.FileHandler):
    """Ignores a full disk: the next checkpoint reports it in one line, and the log would report it with a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass
