"""From a probe to a list of doubtful places for a person to check, worst first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from wildctc.probe.doubt import hardly_heard
from wildctc.probe.records import ProbedUtterance


@dataclass(frozen=True)
class LabelIssue:
    """A doubtful place of a transcript. Words that were heard as one word are one issue.

    Attributes:
        utterance: The utterance's id.
        kind: "changed" (something else was said), "extra" (text that was not said) or "missing" (speech that is not
            written).
        written: The text at this place; "" if speech is missing.
        heard: What the model heard instead; "" for extra text.
        score: From 0 to 1. In a probe file, the doubt of its worst word. Without other transcripts to compare with, it
            combines the bypass probability of the worst token and the number of unwritten sounds.
        begin: The first character of the place in the transcript.
        stop: The character after the last; equal to `begin` if speech is missing.
        start: The start of the place, in seconds.
        end: The end of the place, in seconds.
        word: The number of the first word, from 0. For missing speech: the word before which it belongs.
    """

    utterance: str
    kind: Literal["changed", "extra", "missing"]
    written: str
    heard: str
    score: float
    begin: int
    stop: int
    start: float
    end: float
    word: int


def issues_of(utterance: ProbedUtterance, least: float = 0.5) -> list[LabelIssue]:
    """List the doubtful places of an utterance. A word is in one of them at most.

    Args:
        utterance: The probed utterance.
        least: The lowest score that is an issue.

    Returns:
        The issues, worst first.
    """
    found = [*_changed(utterance), *_missing(utterance)]
    return sorted((i for i in found if i.score >= least), key=lambda i: (-i.score, i.begin))


def suspicion(utterance: ProbedUtterance) -> float:
    """Score an utterance as a whole. The audit page ranks utterances by this.

    Args:
        utterance: The probed utterance.

    Returns:
        The sum of the scores of all its issues, low ones included.
    """
    return sum(issue.score for issue in issues_of(utterance, least=0.0))


def _changed(utterance: ProbedUtterance) -> Iterator[LabelIssue]:
    """An issue for each word that was heard differently. Words that were heard as one word are one issue.

    A word that was heard as it is written is no issue, whatever its numbers: on real speech, such words were never
    wrong. If a word was heard differently, the bypass of the whole word says little, because it is near 1 wherever the
    model is uncertain. So the bypass of the word and of its space count only if nothing was heard of the word.
    """
    zones = _zones(utterance)
    for group in _groups(utterance, zones):
        first, last = utterance.words[group[0]], utterance.words[group[-1]]
        written, heard = utterance.text[first.begin : last.stop], first.heard
        if written == heard:
            continue
        begin = zones[group[0]][-1] if heard else first.first
        doubts = [token.bypass for token in utterance.tokens[begin : last.last + 1]]
        doubts += [] if heard else [first.bypass]
        sounds = utterance.gaps[begin : last.last + 2]
        # A doubled letter lies before or after the written one, so two neighbouring gaps count together.
        unwritten = max(a + b for a, b in zip(sounds, [*sounds[1:], 0.0], strict=True))
        kind: Literal["changed", "extra"] = "changed" if heard else "extra"
        place = first.begin, last.stop, first.start, last.end, group[0]
        known = [word.doubt for w in group if (word := utterance.words[w]).doubt is not None]
        # Of an utterance that was hardly heard, the doubt says little, but its silence should be looked at.
        use_doubt = len(known) == len(group) and not hardly_heard(utterance)
        score = max(known) if use_doubt else _score(max(doubts), unwritten)
        yield LabelIssue(utterance.id, kind, written, heard, score, *place)


def _score(bypass: float, unwritten: float) -> float:
    """The probability that a token was not said or that a sound is not written (a Poisson number of such sounds)."""
    return 1.0 - (1.0 - bypass) * math.exp(-unwritten)


def _missing(utterance: ProbedUtterance) -> Iterator[LabelIssue]:
    """An issue for each place between words where the model heard words that are not written."""
    words, zones = utterance.words, _zones(utterance)
    unwritten = _unwritten(utterance, list(_groups(utterance, zones)))
    for w, (zone, heard) in enumerate(zip(zones, unwritten, strict=True)):
        if not heard:
            continue
        before, after = words[w - 1] if w else None, words[w] if w < len(words) else None
        place = after.begin if after else len(utterance.text)
        start, end = before.end if before else 0.0, after.start if after else utterance.duration
        score = _score(0.0, sum(utterance.gaps[k] for k in zone))
        yield LabelIssue(utterance.id, "missing", "", heard, score, place, place, start, max(start, end), w)


def _zones(utterance: ProbedUtterance) -> list[list[int]]:
    """The gaps before each word, on both sides of its space, and those after the last word."""
    found = []
    for word in utterance.words:
        spaced = utterance.tokens[word.first].text == " " and word.last > word.first
        found.append([word.first, word.first + 1] if spaced else [word.first])
    end = utterance.words[-1].last + 1 if utterance.words else 0
    return [*found, list(range(end, len(utterance.gaps)))]


def _groups(utterance: ProbedUtterance, zones: list[list[int]]) -> Iterator[list[int]]:
    """The words one by one, except that words between which no space was heard are together."""
    group: list[int] = []
    for w, word in enumerate(utterance.words):
        if group and not (word.heard and word.heard == utterance.words[w - 1].heard and _run_on(utterance, zones[w])):
            yield group
            group = []
        group.append(w)
    if group:
        yield group


def _run_on(utterance: ProbedUtterance, zone: list[int]) -> bool:
    """Whether no space was heard where the word begins: in its gaps and at its first token."""
    parts = [utterance.between[k] for k in zone if utterance.between]
    return " " not in "".join([*parts, utterance.tokens[zone[0]].heard])


def _unwritten(utterance: ProbedUtterance, groups: list[list[int]]) -> list[str]:
    """Before each written word and after the last: the heard words that belong to no written word."""
    found, position = [""] * (len(utterance.words) + 1), 0
    for group in groups:
        heard = utterance.words[group[0]].heard
        place = utterance.heard.find(heard, position) if heard else -1
        if place >= 0:
            found[group[0]] = utterance.heard[position:place].strip()
            position = place + len(heard)
    found[-1] = utterance.heard[position:].strip()
    return found
