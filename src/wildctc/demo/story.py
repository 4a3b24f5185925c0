"""Write the demo's results as text. All numbers come from the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from wildctc.demo.findings import ErrorRates, Suspect
from wildctc.demo.simulated_annotators import Kind
from wildctc.scoring.comparison import RelativeChange
from wildctc.terminal import table

_LOOKED_AT = 50  # words that somebody would listen to
_SHOWN = 10
_KINDS: dict[Kind, tuple[str, str]] = {  # of one word, of several
    "wrong": ("wrong on purpose", "wrong on purpose"),
    "slip": ("a slip of the annotator", "slips of annotators"),
    "variant": ("another spelling", "other spellings"),
    "right": ("written as it was said", "written as they were said"),
}


def chance(ranked: Sequence[Suspect], looked_at: int = _LOOKED_AT) -> float:
    """Compute how many wrong words a random choice of words would contain.

    Args:
        ranked: All words.
        looked_at: How many words are chosen.

    Returns:
        The expected number of words that are wrong on purpose.
    """
    return looked_at * sum(s.kind == "wrong" for s in ranked) / len(ranked)


def hits(ranked: Sequence[Suspect], looked_at: int = _LOOKED_AT) -> int:
    """Count the wrong words among the most suspicious ones.

    Args:
        ranked: All words, the most suspicious first.
        looked_at: How many of them are looked at.

    Returns:
        The number of words that are wrong on purpose.
    """
    return sum(s.kind == "wrong" for s in ranked[:looked_at])


def tell_suspects(found: Mapping[str, Sequence[Suspect]]) -> str:
    """Describe which words are suspicious, and how many of them are wrong.

    Args:
        found: For each system all words of the training transcripts, the most suspicious first. The text is about the
            last system.

    Returns:
        Text and tables.
    """
    name, ranked = list(found.items())[-1]
    wrong, worst = sum(s.kind == "wrong" for s in ranked), ranked[:_LOOKED_AT]
    caught = hits(ranked)
    story = (
        f"{wrong:,} of {len(ranked):,} words of the training transcripts were deliberately mis-transcribed; nobody said"
        f" which.\nOf the {len(worst)} words that {name} finds most suspicious, {caught} "
        f"{'is' if caught == 1 else 'are'} among them (chance: {chance(ranked):.1f})."
        f"{_others(Counter(s.kind for s in worst))}"
    )
    depths = (len(worst), wrong)
    rows = [[system, *(f"{hits(words, depth)}" for depth in depths)] for system, words in found.items()]
    rows.append(["chance", *(f"{chance(ranked, depth):.1f}" for depth in depths)])
    counts = table(["wrong words among the most suspicious", *map(str, depths)], rows)
    listed = [
        [str(n), s.written, s.heard or "(nothing)", _KINDS[s.kind][0] + (f": {s.spoken}" if s.kind != "right" else "")]
        for n, s in enumerate(ranked[:_SHOWN], start=1)
    ]
    return f"{story}\n\n{_left(['', 'written', 'heard', 'in truth'], listed)}\n\n{counts}"


def _others(kinds: Counter[Kind]) -> str:
    rest = [
        f"{kinds[kind]} {texts[kinds[kind] > 1]}" for kind, texts in _KINDS.items() if kind != "wrong" and kinds[kind]
    ]
    return f"\nThe others: {', '.join(rest)}." if rest else ""


def tell_errors(rates: ErrorRates) -> str:
    """Describe the word error rates.

    Args:
        rates: The comparison of both systems.

    Returns:
        A table and a sentence about each comparison.
    """
    exact, variants = rates.exact.systems, rates.variants.systems
    rows = [
        [e.name, f"{e.words.rate:.1%}", f"{v.words.rate:.1%}", f"{v.characters.rate:.1%}"]
        for e, v in zip(exact, variants, strict=True)
    ]
    header = ["word error rate", "true text", "any accepted spelling", "letters of it"]
    title = (
        f"The test set: {rates.exact.utterances:,} sentences, {exact[0].words.reference:,} words, "
        "in voices that were not heard in training."
    )
    words = [_judge(variants[1].name, variants[0].name, variants[1].wer_change, "with any accepted spelling")]
    words.append(_judge(exact[1].name, exact[0].name, exact[1].wer_change, "against the true text"))
    return f"{title}\n\n{table(header, rows)}\n\n" + "\n".join(words)


def _judge(name: str, base: str, change: RelativeChange | None, where: str) -> str:
    assert change is not None
    interval = f"95% interval {change.low:+.0%} … {change.high:+.0%}"
    if change.low <= 0 <= change.high:
        return f"{name} and {base} do not differ reliably {where}: {change.relative:+.0%} errors ({interval})."
    what = "fewer" if change.relative < 0 else "more"
    return f"{name} makes {abs(change.relative):.0%} {what} errors than {base} {where} ({interval})."


def tell_disagreement(numbers: Mapping[str, Any], example: Mapping[str, str]) -> str:
    """Describe where validators disagree, and what the models say about these letters.

    Args:
        numbers: What `wildctc disagree --json` wrote.
        example: One sentence as it was said, and as people wrote it.

    Returns:
        The example and a table.
    """
    group = numbers["groups"][0]
    units, systems = group["characters"]["units"], group["characters"]["systems"]
    total = units["agreed"] + units["disputed"] + units["unanimous"]
    width = max(map(len, example))
    shown = "\n".join(f"  {who:<{width}}  {text}" for who, text in example.items())
    rows = [
        [name, *(_percent(of[which]["mean"]["value"]) for which in ("agreed", "disputed")), *_times(of["ratio"])]
        for name, of in systems.items()
    ]
    return (
        f"{numbers['annotators']} validators wrote down the test set again, each in their own way:\n\n{shown}\n\n"
        f"They dispute {units['disputed']:,} of {total:,} letters. The models' probability that a letter was not said:"
        f"\n\n{table(['', 'agreed letters', 'disputed letters', 'ratio', '95% interval'], rows)}"
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _times(ratio: Mapping[str, float | None]) -> tuple[str, str]:
    """A ratio and its interval as two cells."""
    value, low, high = (ratio[key] for key in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return "–", ""
    return f"{value:.1f}×", f"{low:.1f} … {high:.1f}"


def tell_weights(history: Sequence[Mapping[str, float | None]]) -> str:
    """Show the wildcard weights by epoch.

    Args:
        history: The metrics of the run's epochs.

    Returns:
        A table.
    """
    arcs = [arc for arc in ("bypass", "self_loop", "word_bypass") if history[-1].get(arc) is not None]
    rows = [[arc.replace("_", " "), *(f"{m[arc]:.2f}" for m in history)] for arc in arcs]
    return table(["weight by epoch", *(str(m["epoch"]) for m in history)], rows)


def _left(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table of words: all columns except the first are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join([row[0].rjust(widths[0]), *(c.ljust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in (header, *rows)
    ]
    lines.insert(1, "─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)
