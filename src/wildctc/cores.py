"""How many processes to start."""

import os


def available_cores() -> int:
    """Count the cores that this process may use.

    Processes that `torchrun` started on this machine share them.

    Returns:
        The number of cores, at least 1.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    sharing = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, cores // max(1, int(sharing))) if sharing.isdigit() else cores
