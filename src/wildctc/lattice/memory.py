"""How much memory the native backend may take: an argument, an environment variable, or a share of what is free."""

import os
import re
from numbers import Integral
from pathlib import Path
from typing import TypeAlias

Memory: TypeAlias = int | str | None

VARIABLE = "WILDCTC_MEMORY"
_SHARE = 0.5  # of the free memory
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def memory_bytes(memory: Memory, name: str = "memory") -> int:
    """Read a budget.

    Args:
        memory: Bytes, or a text such as "500MB", "4 GB" or "1.5GiB"; None for no budget.
        name: What it is, for the message.

    Returns:
        Bytes; 0 for None.

    Raises:
        ValueError: It is not a positive amount of memory.

    >>> memory_bytes("1.5GB")
    1500000000
    """
    if memory is None:
        return 0
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]I?)?B?\s*", memory.upper())
        amount = int(float(match[1]) * _UNITS[match[2] or ""]) if match else 0
    else:
        amount = int(memory) if isinstance(memory, Integral) and not isinstance(memory, bool) else 0
    if amount <= 0:
        raise ValueError(f'{name} is {memory!r}, must be a number of bytes or a text such as "4GB"')
    return amount


def budget(given: int, usual: int) -> int:
    """Choose the budget of a call.

    Args:
        given: The budget that the caller asked for; 0 for none.
        usual: Bytes that are taken without a budget, about. If they are few, the free memory is not looked up.

    Returns:
        Bytes: what was asked for, else WILDCTC_MEMORY, else half of what is free; 0 for what is usual.
    """
    if given:
        return given
    variable = os.environ.get(VARIABLE)
    if variable:
        return memory_bytes(variable, f"the environment variable {VARIABLE}")
    if usual < 2**30:
        return 0
    return int(_SHARE * (free_memory() or 0))


def free_memory() -> int | None:
    """Find out how much memory is free for this process.

    Returns:
        Bytes, within the limit of the process's control group; None if the system does not tell.
    """
    amounts = []
    try:
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
        amounts += [int(found[1]) * 1024] if found else []
    except OSError:
        pass
    if not amounts and hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        amounts.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    group = Path("/sys/fs/cgroup")
    try:  # "max" is no limit
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        amounts.append(max(limit - used, 2**20))
    except (OSError, ValueError):
        pass
    return min(amounts, default=None)
