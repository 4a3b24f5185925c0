"""Decisions of several reviewers: where they conflict, one decision for each utterance, and how well they agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations, pairwise

from wildctc.audit.decisions import CHOICES, Decision
from wildctc.terminal import table

_BREAK = 300.0  # seconds without a decision: a pause, which is not counted as work


@dataclass
class Settled:
    """One decision for each utterance.

    Attributes:
        decisions: The decisions by utterance id.
        conflicts: Ids of utterances on which reviewers disagreed.
        open: Those of them without a decision: nobody has the majority, or the person who was asked left it.
    """

    decisions: dict[str, Decision] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def settle(
    decisions: Iterable[Decision],
    how: str = "newest",
    ask: Callable[[Sequence[Decision]], Decision | None] | None = None,
) -> Settled:
    """Choose one decision for each utterance.

    Reviewers disagree if one accepts and another fixes, or if their fixes are different. A skip disagrees with nobody.
    Rules are left out.

    Args:
        decisions: At most one of each reviewer on each utterance; of equally new ones the last counts.
        how: "newest", "majority" (most reviewers) or "ask".
        ask: For "ask": given different decisions on one utterance, returns the chosen one, or None.

    Returns:
        The chosen decisions, and the conflicts.
    """
    by_id: dict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        if not decision.is_rule:
            by_id[decision.id].append(decision)
    settled = Settled()
    for id, given in by_id.items():
        judged = [d for d in given if d.decision != "skip"] or given
        ordered = sorted(judged, key=lambda d: d.at)  # stable: of equal times the last one is last
        verdicts = {_verdict(d): d for d in ordered}  # the newest decision of each verdict
        chosen: Decision | None = ordered[-1]
        if len(verdicts) > 1:
            settled.conflicts.append(id)
            if how == "majority":
                (most, count), *others = Counter(map(_verdict, ordered)).most_common()
                chosen = verdicts[most] if count > others[0][1] else None
            elif how == "ask":
                chosen = ask(list(verdicts.values())) if ask else None
        if chosen is None:
            settled.open.append(id)
        else:
            settled.decisions[id] = chosen
    return settled


def settle_rules(decisions: Iterable[Decision]) -> list[Decision]:
    """Choose one rule for each recurring finding.

    Args:
        decisions: Decisions of any kind.

    Returns:
        The newest rule about each finding; of equally new ones the last.
    """
    found: dict[str, Decision] = {}
    for rule in sorted((d for d in decisions if d.is_rule), key=lambda d: d.at):
        found[rule.id] = rule
    return list(found.values())


def variant_groups(decisions: Iterable[Decision]) -> list[list[str]]:
    """Collect the accepted variants: words that are the same word, written differently.

    Args:
        decisions: Decisions of any kind.

    Returns:
        Groups of at least two spellings. A spelling is in one group only: "a b" and "b c" become "a b c".
    """
    groups: dict[str, list[str]] = {}
    for rule in settle_rules(decisions):
        if rule.decision != "variant":
            continue
        first, second = (groups.setdefault(word, [word]) for word in (rule.text, rule.fixed))
        if first is not second:
            first += second
            groups |= dict.fromkeys(second, first)
    return sorted({id(group): sorted(group) for group in groups.values() if len(group) > 1}.values())


def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Compute Cohen's κ: agreement beyond what chance would give.

    >>> kappa([("accept", "accept"), ("fix", "fix"), ("accept", "fix"), ("accept", "accept")])
    0.5

    Args:
        pairs: What the two reviewers decided on each utterance.

    Returns:
        1 for perfect agreement, 0 for that of chance; None if it is not defined, because there are no pairs, or both
        always decided the same.
    """
    if not pairs:
        return None
    observed = sum(a == b for a, b in pairs) / len(pairs)
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[name] * second[name] for name in first) / len(pairs) ** 2
    return None if chance == 1 else (observed - chance) / (1 - chance)


@dataclass
class Summary:
    """Who did how much, and how well reviewers agree. `print` shows it as tables.

    Attributes:
        reviewers: Reviewer → the number of decisions by kind.
        hourly: Reviewer → decisions per hour of work, without pauses of over five minutes; None if it is not known.
        pairs: Two reviewers, how many utterances both decided, the share on which they agree, and κ.
        conflicts: Ids of utterances on which reviewers disagree.
        rules: How many recurring findings are "variant" or "hide".
    """

    reviewers: dict[str, Counter[str]]
    hourly: dict[str, float | None]
    pairs: list[tuple[str, str, int, float, float | None]]
    conflicts: list[str]
    rules: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        rows = [
            [
                name or "(no name)",
                str(counts.total()),
                *(str(counts[c]) for c in CHOICES),
                _number(self.hourly[name], 0),
            ]
            for name, counts in self.reviewers.items()
        ]
        lines = [table(["reviewer", "decisions", "accepted", "fixed", "skipped", "per hour"], rows)]
        if self.pairs:
            rows = [
                [f"{a or '(no name)'}, {b or '(no name)'}", str(n), f"{share:.1%}", _number(value, 2)]
                for a, b, n, share, value in self.pairs
            ]
            lines += ["", table(["two reviewers", "utterances", "agree", "κ"], rows)]
        rules = [f"recurring findings: {self.rules['variant']:,} are variants, {self.rules['hide']:,} are hidden"]
        return "\n".join([*lines, "", *(rules if self.rules else []), f"conflicts: {len(self.conflicts):,}"])


def summarise(decisions: Sequence[Decision]) -> Summary:
    """Count what each reviewer did, and compare reviewers on the utterances that both decided.

    Args:
        decisions: At most one of each reviewer on each utterance.

    Returns:
        The summary. Agreement and κ are about accept, fix and skip; conflicts also about the text of fixes.
    """
    by_reviewer: dict[str, dict[str, Decision]] = defaultdict(dict)
    for decision in decisions:
        if not decision.is_rule:
            by_reviewer[decision.reviewer][decision.id] = decision
    by_reviewer = dict(sorted(by_reviewer.items()))
    pairs = []
    for (a, first), (b, second) in combinations(by_reviewer.items(), 2):
        both = [(first[id].decision, second[id].decision) for id in first if id in second]
        if both:
            pairs.append((a, b, len(both), sum(x == y for x, y in both) / len(both), kappa(both)))
    return Summary(
        {name: Counter(d.decision for d in own.values()) for name, own in by_reviewer.items()},
        {name: _hourly([d.at for d in own.values()]) for name, own in by_reviewer.items()},
        pairs,
        settle(decisions).conflicts,
        Counter(rule.decision for rule in settle_rules(decisions)),
    )


def _verdict(decision: Decision) -> tuple[str, str]:
    return decision.decision, " ".join(decision.fixed.split())


def _hourly(times: Iterable[str]) -> float | None:
    """Decisions per hour, from the gaps between them."""
    try:
        known = sorted(datetime.fromisoformat(at).timestamp() for at in times if at)
    except ValueError:
        return None
    gaps = [b - a for a, b in pairwise(known) if b - a <= _BREAK]
    return 3600 * len(gaps) / sum(gaps) if sum(gaps) > 0 else None


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
