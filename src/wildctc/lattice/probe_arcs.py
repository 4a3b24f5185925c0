"""The wildcards of the probe (specification §4). They are the same for every model and every criterion."""

from __future__ import annotations

from wildctc.lattice.arcs import Wildcards


def token_probe_arcs(self_loop: float | None = 0.0) -> Wildcards:
    """Make the wildcards that ask which tokens were not said.

    Args:
        self_loop: The log-weight of speech that is not written; None allows no such speech.

    Returns:
        Every token has a bypass of weight 0, and every position a self-loop.
    """
    return Wildcards(bypass=0.0, self_loop=self_loop)


def word_probe_arcs(self_loop: float | None = 0.0) -> Wildcards:
    """Make the wildcards that ask which words were not said.

    Args:
        self_loop: The log-weight of speech that is not written; None allows no such speech.

    Returns:
        Every word has a bypass of weight 0, and every position at the start or end of a word has a self-loop.
    """
    return Wildcards(word_bypass=0.0, self_loop=self_loop, self_loop_at="word")
