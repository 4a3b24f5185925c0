"""How doubtful each word of a probed transcript is, and which words would take its place.

This is the only place where cleaning reads the scores of a probe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from wildctc.probe.issues import LabelIssue, issues_of
from wildctc.probe.records import ProbedUtterance

Kind = Literal["replace", "remove", "insert"]


@dataclass(frozen=True)
class Finding:
    """Words of a transcript that are probably wrong, and what was heard in their place.

    Attributes:
        first: The first of these words, from 0.
        stop: The word after the last. Equal to `first` if words are missing before that word.
        heard: The words that were heard; none if nothing was.
        score: The probability that the transcript is wrong here.
    """

    first: int
    stop: int
    heard: tuple[str, ...]
    score: float

    @property
    def kind(self) -> Kind:
        """What would correct it."""
        if self.first == self.stop:
            return "insert"
        return "replace" if self.heard else "remove"


def word_doubts(utterance: ProbedUtterance) -> list[float]:
    """Give the probability that each word of a transcript is wrong.

    Args:
        utterance: The probed utterance.

    Returns:
        A number from 0 to 1 for each word. A probe file has it. Otherwise, a word that was heard otherwise has the
        score of its issue, and a word that was heard as it is written is doubted only as far as both graphs doubt it.
    """
    known = [word.doubt for word in utterance.words if word.doubt is not None]
    if len(known) == len(utterance.words):
        return known
    doubts = [
        min(word.bypass, max(token.bypass for token in utterance.tokens[word.first : word.last + 1]))
        for word in utterance.words
    ]
    for issue in issues_of(utterance, least=0.0):
        for word in _words_of(issue, utterance):
            doubts[word] = issue.score
    return [min(1.0, doubt) for doubt in doubts]


def expected_errors(utterance: ProbedUtterance) -> float:
    """Estimate how many words of a transcript are wrong or missing.

    Args:
        utterance: The probed utterance.

    Returns:
        The sum of the doubts of its words, and of the scores of words that were heard and are not written.
    """
    missing = (issue for issue in issues_of(utterance, least=0.0) if issue.kind == "missing")
    return sum(word_doubts(utterance)) + sum(_missing_doubt(issue) * len(issue.heard.split()) for issue in missing)


def find_corrections(utterance: ProbedUtterance) -> list[Finding]:
    """List the places of a transcript where something else was heard, in order, with what was heard.

    A heard word that two findings share makes one finding of them: "ice cream" heard as "i scream" is not "i scream
    scream". If the findings do not make up what was heard, those at the wrong place are left out.

    Args:
        utterance: The probed utterance.

    Returns:
        The findings. No word is in two of them.
    """
    heard, position = utterance.heard.split(), 0
    pieces: list[_Piece] = []
    for finding in _pieces(utterance):
        place = _place(finding.heard, heard, position, len(pieces[-1].finding.heard) if pieces else 0)
        if place is None:
            pieces.append(_Piece(finding, position, certain=False))
            continue
        end = place + len(finding.heard)
        if place < position:  # shares words with the piece before
            before = pieces.pop()
            words = tuple(heard[before.place : end])
            score = max(before.finding.score, finding.score)
            finding = Finding(before.finding.first, finding.stop, words, score)
            pieces.append(_Piece(finding, before.place, before.certain))
        else:
            pieces.append(_Piece(finding, place, certain=place == position))
        position = max(position, end)
    written = [word.text for word in utterance.words]
    return [p.finding for p in pieces if p.certain and [*p.finding.heard] != written[p.finding.first : p.finding.stop]]


class _Piece(NamedTuple):
    """A finding, and the place of its heard words in all heard words. Without certainty it is not used."""

    finding: Finding
    place: int
    certain: bool


def _place(words: Sequence[str], heard: Sequence[str], position: int, shared: int) -> int | None:
    """Where the words were heard: at `position`, else up to `shared` words before it, else anywhere after it."""
    back = range(position - 1, max(-1, position - shared - 1), -1)
    onward = range(position + 1, len(heard))
    return next((i for i in (position, *back, *onward) if [*heard[i : i + len(words)]] == [*words]), None)


def _pieces(utterance: ProbedUtterance) -> Iterator[Finding]:
    """All of a transcript, from left to right: the issues, and each other word as heard as it is written."""
    doubts, issues = word_doubts(utterance), issues_of(utterance, least=0.0)
    missing = {issue.word: issue for issue in issues if issue.kind == "missing"}
    changed = {issue.word: issue for issue in issues if issue.kind != "missing"}
    word = 0
    while word <= len(utterance.words):
        if issue := missing.get(word):
            yield Finding(word, word, tuple(issue.heard.split()), _missing_doubt(issue))
        if word == len(utterance.words):
            return
        if issue := changed.get(word):
            covered = _words_of(issue, utterance)
            yield Finding(word, covered.stop, tuple(issue.heard.split()), max(doubts[word : covered.stop]))
            word = covered.stop
        else:
            yield Finding(word, word + 1, (utterance.words[word].text,), doubts[word])
            word += 1


def _missing_doubt(issue: LabelIssue) -> float:
    """The probability that words are missing: the expected number of unwritten sounds, at most 1.

    The score of such an issue is 1 − e^(−number). One wildcard can stand for a whole word, and then the score of a word
    that is certainly missing is 0.63 only.
    """
    return min(1.0, -math.log1p(-min(issue.score, 0.999)))


def _words_of(issue: LabelIssue, utterance: ProbedUtterance) -> range:
    """The words that an issue covers; none for missing speech."""
    stop = issue.word
    while stop < len(utterance.words) and utterance.words[stop].stop <= issue.stop and issue.kind != "missing":
        stop += 1
    return range(issue.word, stop)
