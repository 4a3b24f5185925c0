"""Write tiers of intervals as a TextGrid, the format of Praat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """A stretch of a tier.

    Attributes:
        start: Seconds.
        end: Seconds.
        text: What it says.
    """

    start: float
    end: float
    text: str


def to_textgrid(duration: float, tiers: Mapping[str, Sequence[Interval]]) -> str:
    """Format tiers as a TextGrid of Praat.

    Args:
        duration: Seconds of audio.
        tiers: The intervals of each tier, in order of time. What lies between them becomes empty intervals.

    Returns:
        The content of a .TextGrid file, in the long form.
    """
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0", f"xmax = {duration:.3f}"]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, (name, given) in enumerate(tiers.items(), start=1):
        intervals = _without_holes(given, duration)
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{name}"']
        lines += ["        xmin = 0", f"        xmax = {duration:.3f}", f"        intervals: size = {len(intervals)}"]
        for k, (start, end, text) in enumerate(intervals, start=1):
            quoted = text.replace('"', '""')
            lines += [f"        intervals [{k}]:", f"            xmin = {start:.3f}", f"            xmax = {end:.3f}"]
            lines.append(f'            text = "{quoted}"')
    return "\n".join(lines) + "\n"


def _without_holes(given: Sequence[Interval], duration: float) -> list[Interval]:
    """Intervals from 0 to the end without holes and without overlap, as a tier needs them."""
    found, at = [], 0.0
    for start, end, text in given:
        start, end = max(at, start), min(duration, end)
        if end - start < 0.0005:
            continue
        if start > at:
            found.append(Interval(at, start, ""))
        found.append(Interval(start, end, text))
        at = end
    return [*found, Interval(at, duration, "")] if at < duration or not found else found
