"""Who reviews what. The page computes from a plan which utterances are whose (page/reviewers.js)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from wildctc.errors import WildCTCError


@dataclass(frozen=True)
class Plan:
    """Who reviews what.

    Attributes:
        shares: Reviewer → how much of the work, in any unit. Empty: everybody may review everything.
        double: The share of utterances that two reviewers decide, from 0 to 1.
    """

    shares: dict[str, float] = field(default_factory=dict)
    double: float = 0.0


def parse_reviewers(names: str | None, double: float | None) -> Plan:
    """Make a plan from the options of the command.

    >>> parse_reviewers("ann=2, ben", 0.1)
    Plan(shares={'ann': 2.0, 'ben': 1.0}, double=0.1)

    Args:
        names: Reviewers, separated by commas, each with "=SHARE" or without; None for no plan.
        double: The share that two reviewers decide.

    Returns:
        The plan.
    """
    shares: dict[str, float] = {}
    for part in (names or "").split(",") if names is not None else []:
        name, _, share = (word.strip() for word in part.partition("="))
        try:
            shares[name] = float(share or 1)
        except ValueError:
            shares[name] = math.nan
        if not name or not 0 < shares[name] < math.inf:
            raise WildCTCError(f"--reviewers {names}: {part.strip()!r} is not NAME or NAME=SHARE")
    if double is not None and (not 0 <= double <= 1 or len(shares) < 2):
        raise WildCTCError("--double is a share from 0 to 1, and needs --reviewers with at least two names")
    return Plan(shares, double or 0.0)
