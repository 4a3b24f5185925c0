"""Processes that end with the process that started them, however that ends.

A parent that is killed cannot end its children, which would go on, and keep the next start from what they hold.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping

PARENT = "WILDCTC_PARENT"  # in the environment of a child: the process to end with
PR_SET_PDEATHSIG = 1  # of Linux: the signal to get when the parent ends
LOOK = 1.0  # seconds between looks at the parent, where the system does not tell


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of a `wildctc` command that is to end with this process. changes: to that of this process."""
    return {**os.environ, **changes, PARENT: str(os.getpid())}


def end_with_parent(parent: int | None = None) -> None:
    """End this process when its parent does, by SIGKILL. parent: None is the one named in the environment, if any.

    On Linux the parent is the thread that started this process, which must stay until then.
    """
    if parent is None:
        named = os.environ.pop(PARENT, "")
        if not named:
            return
        parent = int(named)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had ended before
            os._exit(1)
    else:
        threading.Thread(target=_look, args=(parent,), daemon=True).start()


def _look(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)
