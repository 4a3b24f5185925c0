"""Decisions that people make on the report's page, and the files that hold them.

A decision is a line of JSON: {"id", "decision": "accept" | "fix" | "skip", "text": the transcript that was judged,
"fixed": the corrected transcript, "reviewer", "at": the time, "reason", "comment"}. The last four may be missing.

A rule is a decision on a finding wherever it occurs: "variant" (both words are right) or "hide" (the model's error).
Its id is "finding", the kind, the written and the heard words, with tabs between; `text` is written, `fixed` heard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from wildctc.audit.label_studio import from_label_studio
from wildctc.audit.store import DecisionStore, is_store
from wildctc.errors import WildCTCError
from wildctc.json_lines import read_rows

CHOICES = ("accept", "fix", "skip")
RULES = ("variant", "hide")
_RULE_ID = "finding\t"


@dataclass(frozen=True)
class Decision:
    """One decision of a person.

    Attributes:
        id: The utterance's id.
        decision: "accept", "fix" or "skip"; of a rule "variant" or "hide".
        text: The transcript that was judged; of a rule the written words.
        fixed: The new transcript of a "fix"; of a rule the heard words; otherwise empty.
        reviewer: Who decided; empty if nobody was named.
        at: When, as ISO 8601 in UTC; empty if unknown.
        reason: Why, in a word, such as "bad audio".
        comment: Anything else that the person wrote.
    """

    id: str
    decision: str
    text: str
    fixed: str = ""
    reviewer: str = ""
    at: str = ""
    reason: str = ""
    comment: str = ""

    @property
    def is_rule(self) -> bool:
        """Whether it is about a finding wherever it occurs, not about an utterance."""
        return self.decision in RULES

    def row(self) -> dict[str, str]:
        """Make the JSON object of the decision.

        Returns:
            Its fields that are not empty.
        """
        return {name: value for name, value in asdict(self).items() if value or name in ("id", "decision", "text")}


_FIELDS = tuple(field.name for field in fields(Decision))


def parse_decision(row: dict[str, Any]) -> Decision:
    """Check the JSON object of a decision. Fields that are not a decision's are ignored.

    Args:
        row: The object.

    Returns:
        The decision.

    Raises:
        ValueError: What is wrong with it.
    """
    for name in ("id", "decision", "text"):
        if name not in row:
            raise ValueError(f"no field '{name}'; is it a file of decisions, exported from a report's page?")
    values = {name: row[name] for name in _FIELDS if row.get(name) is not None}
    if not all(isinstance(value, str) for value in values.values()):
        raise ValueError("a field is not a string")
    decision = Decision(**values)
    if decision.decision not in CHOICES + RULES:
        raise ValueError(f"decision {decision.decision!r} is none of {', '.join(CHOICES + RULES)}")
    if decision.is_rule:
        _check_rule(decision)
    if decision.decision == "fix" and not decision.fixed.split():
        raise ValueError(f"the fix of {decision.id!r} is empty; give the words that were said")
    return decision


def _check_rule(rule: Decision) -> None:
    """A rule names its words twice; they must agree, and a variant has words on both sides."""
    if not rule.id.startswith(_RULE_ID) or rule.id.split("\t")[2:] != [rule.text, rule.fixed]:
        raise ValueError(f"a {rule.decision!r} is about a finding, and {rule.id[:60]!r} is none")
    if rule.decision == "variant" and not (rule.text.split() and rule.fixed.split()):
        raise ValueError(f"{rule.text!r} and {rule.fixed!r} are no variants of each other: one has no words")


def read_decisions(paths: str | Path | Sequence[str | Path]) -> list[Decision]:
    """Read decisions of one or several files.

    Args:
        paths: Files that the report's page exported, a server's store (decisions.sqlite), or exports of Label Studio.

    Returns:
        The last decision of each reviewer on each utterance, in the order of the files; rules too.
    """
    found: dict[tuple[str, str], Decision] = {}
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        own: dict[tuple[str, str], Decision] = {}
        for place, row in _rows(path):
            try:
                decision = parse_decision(row)
            except ValueError as error:
                raise WildCTCError(f"{place}: {error}") from None
            own[decision.id, decision.reviewer] = decision  # a later line of the same file replaces an earlier one
        if not own:
            raise WildCTCError(f"{path}: no decisions in it")
        for key, decision in own.items():
            if key not in found or found[key].at <= decision.at or not decision.at:
                found[key] = decision
    return list(found.values())


def _rows(path: str | Path) -> Iterable[tuple[str, dict[str, Any]]]:
    if not is_store(path):
        tasks = _tasks(path)
        if tasks is not None:
            return ((f"{path}, {place}", row) for place, row in from_label_studio(tasks))
        return ((f"{path}:{line}", row) for line, row in read_rows(path))
    with DecisionStore(path, read_only=True) as store:
        return [(f"{path}, row {row['number']}", row) for row in store.latest()[1] if row["decision"]]


def _tasks(path: str | Path) -> list[Any] | None:
    """What Label Studio exported: one JSON list, not a line for each decision."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            if file.read(1) != "[":
                return None
            file.seek(0)
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None  # reading lines says what is wrong
    return found if isinstance(found, list) else None
