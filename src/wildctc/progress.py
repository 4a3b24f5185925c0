"""Progress bars, and log messages that do not damage them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

from wildctc.errors import MissingExtra
from wildctc.torchrun import is_first

_LOG_INTERVAL = 60.0  # seconds between lines, if stderr is a file
_LINE = "{desc}: {n_fmt} of {total_fmt} {unit} [{elapsed}<{remaining}]{postfix}"


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """Show progress on stderr: a bar on a terminal, a line per minute in a file. Only the first process shows it.

    Args:
        items: What to iterate over; None for a bar that the caller updates.
        **options: Of tqdm.

    Returns:
        The tqdm bar. Without tqdm, which is not a dependency of the core, the items themselves.
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
        options = {"bar_format": _LINE} | options | {"file": _Lines()}
        options |= {"mininterval": _LOG_INTERVAL, "delay": _LOG_INTERVAL}
    return tqdm(items, disable=not is_first(), **options)


class RealTime:
    """Shows beside a progress bar how fast speech is processed: "31× real time"."""

    def __init__(self, bar: Any) -> None:
        """Start the clock.

        Args:
            bar: What `progress` returned.
        """
        self._bar, self._began, self._seconds = bar, time.monotonic(), 0.0

    def add(self, seconds: float) -> None:
        """Count speech that has been processed. The bar shows it with its next update.

        Args:
            seconds: How much.
        """
        self._seconds += seconds
        if hasattr(self._bar, "set_postfix_str"):
            rate = self._seconds / max(time.monotonic() - self._began, 1e-3)
            self._bar.set_postfix_str(f"{rate:.3g}× real time" if rate < 100 else f"{rate:.0f}× real time", False)


class _Lines:
    """A file for tqdm that writes each state of the bar as a new line of stderr."""

    def write(self, text: str) -> None:
        if line := text.replace("\r", "").strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


class AboveBar(logging.Handler):
    """Writes log messages to stderr, above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message.

        Args:
            record: The message.
        """
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(self.format(record), file=sys.stderr)
        else:
            print(self.format(record), file=sys.stderr)


def duration(seconds: float) -> str:
    """Write a duration for people.

    Args:
        seconds: The duration.

    Returns:
        The two largest of its units.

    >>> duration(7.2), duration(125), duration(9000)
    ('7 s', '2 min 05 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
