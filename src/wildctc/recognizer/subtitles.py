"""Format transcripts as subtitles: SubRip (.srt) and WebVTT (.vtt)."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from wildctc.recognizer.transcription import Transcript, Word
from wildctc.terminal import cut_to_width, display_width

# About what broadcasters use: two lines of 42 characters, at most 7 seconds.
LINE = 42
LINES = 2
_LONGEST = 7.0  # seconds
_SHORTEST = 1.0  # seconds, if the next subtitle starts late enough
_PAUSE = 1.0  # seconds without a word that end a subtitle
_LINGER = 0.3  # seconds that a subtitle stays after its last letter: a sound lasts longer than a CTC model marks it


@dataclass(frozen=True)
class Cue:
    """One subtitle.

    Attributes:
        start: Second at which it appears.
        end: Second at which it disappears.
        lines: Its lines.
    """

    start: float
    end: float
    lines: list[str]


def to_srt(transcript: Transcript) -> str:
    """Format a transcript as SubRip.

    Args:
        transcript: The transcript, with the times of its words.

    Returns:
        The content of an .srt file.

    >>> print(to_srt(Transcript("good night", [Word("good", 0.5, 0.9), Word("night", 1.0, 1.7)], -1.0, 5.0)), end="")
    1
    00:00:00,500 --> 00:00:02,000
    good night
    """
    return srt_of(cues(transcript))


def srt_of(subtitles: Iterable[Cue]) -> str:
    """Format subtitles as SubRip.

    Args:
        subtitles: The subtitles, in order.

    Returns:
        The content of an .srt file.
    """
    blocks = [
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n" + "\n".join(cue.lines) + "\n"
        for number, cue in enumerate(subtitles, start=1)
    ]
    return "\n".join(blocks)


def to_vtt(transcript: Transcript) -> str:
    """Format a transcript as WebVTT.

    Args:
        transcript: The transcript, with the times of its words.

    Returns:
        The content of a .vtt file.

    >>> print(to_vtt(Transcript("a<b", [Word("a<b", 3600.5, 3601.9)], -1.0, 4000.0)), end="")
    WEBVTT
    <BLANKLINE>
    01:00:00.500 --> 01:00:02.200
    a&lt;b
    """
    return vtt_of(cues(transcript))


def vtt_of(subtitles: Iterable[Cue]) -> str:
    """Format subtitles as WebVTT.

    Args:
        subtitles: The subtitles, in order.

    Returns:
        The content of a .vtt file.
    """
    blocks = [
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n" + html.escape("\n".join(cue.lines), quote=False) + "\n"
        for cue in subtitles
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def cues(transcript: Transcript) -> list[Cue]:
    """Divide a transcript into subtitles.

    Args:
        transcript: The transcript, with the times of its words.

    Returns:
        Subtitles in order. They do not overlap, and none ends after the audio.
    """
    return show_groups(list(_groups(transcript.words)), transcript.duration)


def show_groups(groups: list[list[Word]], duration: float) -> list[Cue]:
    """Show each group of words as one subtitle.

    Args:
        groups: Words that are shown together, in order.
        duration: Seconds of audio.

    Returns:
        A subtitle for each group. They do not overlap, and none ends after the audio.
    """
    limits = [group[0].start for group in groups[1:]] + [duration]
    return [
        Cue(group[0].start, min(limit, max(group[-1].end + _LINGER, group[0].start + _SHORTEST)), _lines(group))
        for group, limit in zip(groups, limits, strict=False)
    ]


def _groups(words: list[Word]) -> Iterator[list[Word]]:
    """Group words that are shown together: until there is a pause, no room is left, or it would take too long."""
    group: list[Word] = []
    for word in [part for whole in words for part in _parts(whole)]:
        pause = bool(group) and word.start - group[-1].end >= _PAUSE
        late = bool(group) and word.end - group[0].start > _LONGEST
        if pause or late or len(_lines([*group, word])) > LINES:
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _lines(words: list[Word]) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and display_width(lines[-1]) + 1 + display_width(word.text) > LINE:
            lines.append(word.text)
        else:
            lines[-1] = f"{lines[-1]} {word.text}".strip()
    return lines


def _parts(word: Word) -> list[Word]:
    """Divide a word that is longer than a line, as in scripts without spaces, into parts of its text and time."""
    ends = accumulate(len(piece) for piece in cut_to_width(word.text, LINE))
    seconds = (word.end - word.start) / max(1, len(word.text))
    return [
        Word(word.text[begin:end], word.start + begin * seconds, word.start + end * seconds)
        for begin, end in pairwise([0, *ends])
    ]


def _clock(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
