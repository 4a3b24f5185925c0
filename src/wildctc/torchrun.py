"""What `torchrun` tells a process about its place among others.

Apart from `distributed`, so that what runs in one process does not wait for torch.
"""

from __future__ import annotations

import logging
import os
import sys

SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def place() -> tuple[int, int]:
    """Read the place of this process. The variable RANK alone does not mean torchrun.

    Returns:
        The rank, from 0, and the number of processes: 0 and 1 without torchrun.
    """
    if not all(os.environ.get(name) for name in SET_BY_TORCHRUN):
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def is_first() -> bool:
    """Tell whether this is the process that shows progress and prints.

    Returns:
        True for the first process, and without torchrun.
    """
    return place()[0] == 0


def log_level() -> int:
    """Choose the log level of this process.

    The first process logs everything. Others log nothing until they have joined, because the first logs the same; after
    that they log errors, since any process can be the first to fail.

    Returns:
        A level of `logging`.
    """
    if is_first():
        return logging.INFO
    return logging.ERROR if _has_joined() else logging.CRITICAL


def _has_joined() -> bool:
    dist = sys.modules.get("torch.distributed")  # who has joined has imported it
    return dist is not None and dist.is_available() and dist.is_initialized()
