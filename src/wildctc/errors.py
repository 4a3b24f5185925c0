"""The few exceptions that users see."""


class WildCTCError(Exception):
    """A user's mistake, in one line: what was wrong, where, and what to do. The command prints it and exits with 2."""


class Diverged(WildCTCError):
    """Training diverged, and needs other settings. The command exits with 3, so that a script can tell it from a
    user's mistake."""


class NotEnoughMemory(WildCTCError, MemoryError):
    """A computation does not fit into its budget of memory. The message says what it needs."""


class MissingExtra(WildCTCError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; the extra {extra} brings it: pip install '.[{extra}]' in a checkout"
        )
