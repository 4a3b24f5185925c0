"""Processes that end when the process that started them ends, even if it is killed.

A parent that is killed cannot end its children. They would keep running, and their locks would block the next start.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping

_PARENT = "WILDCTC_PARENT"  # in the environment of a child: the process id of its parent
_PR_SET_PDEATHSIG = 1  # of Linux: sets the signal that a process gets when its parent ends
_POLL = 1.0  # seconds between checks of the parent, on other systems


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Make the environment of a `wildctc` command that must end when this process ends.

    Args:
        changes: Variables that differ from the environment of this process.

    Returns:
        All variables.
    """
    return {**os.environ, **changes, _PARENT: str(os.getpid())}


def end_with_parent(parent: int | None = None) -> None:
    """End this process, by SIGKILL, when its parent ends.

    On Linux the parent is the thread that started this process; that thread must not end earlier.

    Args:
        parent: Its process id. None takes it from the environment (see `environment`), and does nothing without one.
    """
    if parent is None:
        named = os.environ.pop(_PARENT, "")
        if not named:
            return
        parent = int(named)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)
    else:
        threading.Thread(target=_poll, args=(parent,), daemon=True).start()


def _poll(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(1)
