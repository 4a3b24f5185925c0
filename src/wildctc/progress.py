"""Progress bars, and messages that do not run into them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any

from wildctc.distributed import is_first
from wildctc.errors import MissingExtra

SELDOM = 60.0  # seconds: where nobody watches, progress is a line of the log
LINE = "{desc}: {n_fmt} of {total_fmt} {unit} [{elapsed}<{remaining}]{postfix}"


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """A tqdm bar over `items`, or one to `update`, on stderr; of several processes the first one shows its own.

    No bar is drawn into a file: there it is a line a minute. Without tqdm, which is no part of the core, there is none.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        if items is not None:
            return items
        raise MissingExtra("tqdm", "train") from None
    if sys.stderr.isatty():
        options = {"mininterval": 0.5} | options
    else:
        options = {"bar_format": LINE} | options | {"file": _Lines(), "mininterval": SELDOM, "delay": SELDOM}
    return tqdm(items, disable=not is_first(), **options)


class _Lines:
    """A file for tqdm that writes each state of the bar as a line of stderr, and does not try to erase it."""

    def write(self, text: str) -> None:
        if line := text.replace("\r", "").strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


class AboveBar(logging.Handler):
    """Writes messages to stderr, above a progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(self.format(record), file=sys.stderr)
        else:
            print(self.format(record), file=sys.stderr)


def duration(seconds: float) -> str:
    """
    >>> duration(7.2), duration(125), duration(9000)
    ('7 s', '2 min 05 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
