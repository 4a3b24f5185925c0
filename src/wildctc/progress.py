"""Progress bars, and messages that do not run into them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any

from wildctc.distributed import is_first
from wildctc.errors import MissingExtra

SELDOM = 60.0  # seconds: where nobody watches, a bar is a log


def progress(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """A tqdm bar over `items`, or one to `update`, on stderr; of several processes the first one shows its own."""
    try:
        from tqdm import tqdm
    except ImportError:
        raise MissingExtra("tqdm", "train") from None
    return tqdm(items, mininterval=0.5 if sys.stderr.isatty() else SELDOM, disable=not is_first(), **options)


class AboveBar(logging.Handler):
    """Writes messages to stderr, above a progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(self.format(record), file=sys.stderr)
        else:
            print(self.format(record), file=sys.stderr)
