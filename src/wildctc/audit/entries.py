"""One utterance of a report, as the page reads it. Made from a line of a probe, in any process.

`index` has what ranking and filtering need, and is read for all utterances when the page starts. `texts` have what a
search needs. `details` have all that the page shows of an utterance.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from wildctc.audit.calibration import LEAST_SCORE
from wildctc.audit.clips import Playable, make_playable
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.probe.issues import LabelIssue, issues_of
from wildctc.probe.records import NotProbed, ProbedUtterance
from wildctc.scoring.error_rates import Errors, wer

KINDS = ("changed", "extra", "missing")


@dataclass
class Entry:
    """What the report says of one utterance.

    Attributes:
        id: Its id.
        text: Its transcript.
        speaker: Its speaker, if known.
        suspicion: The sum of the scores of all its findings, low ones included.
        duration: Its length in seconds.
        kinds: Of each finding that is shown, worst first: its number in KINDS.
        scores: Of each finding that is shown.
        texts: JSON: the transcript, what was heard, and the findings.
        details: JSON: all else that is shown.
        characters: All characters that are written or were heard.
        words: Word errors of what was heard against what is written.
        audio_bytes: The size of its sound; 0 for a link, or if there is none.
        picture_bytes: The size of its spectrogram.
        linked: Whether its sound is a link.
        silent: Why its sound cannot be used; empty if it can.
    """

    id: str
    text: str
    speaker: str | None
    suspicion: float
    duration: float
    kinds: list[int]
    scores: list[float]
    texts: str
    details: str
    characters: frozenset[str] = frozenset()
    words: Errors = field(default_factory=Errors)
    audio_bytes: int = 0
    picture_bytes: int = 0
    linked: bool = False
    silent: str = ""

    @property
    def checksum(self) -> int:
        """CRC-32 of the transcript in UTF-16, which the page computes too."""
        return zlib.crc32(self.text.encode("utf-16-le", "surrogatepass"))


@dataclass(frozen=True)
class Places:
    """Where things are.

    Attributes:
        probe: The probe file; audio is looked for from its folder too.
        part: The folder in which the report is being made.
        folder: The folder that the report will be in, if audio is linked to from there; else None.
    """

    probe: Path
    part: Path
    folder: Path | None


def make_entry(entry: ProbedUtterance | NotProbed, number: int, places: Places) -> Entry | NotProbed:
    """Make the data of an utterance, and its sound and spectrogram.

    Args:
        entry: The utterance.
        number: Its number in the probe file, which names its files.
        places: Where things are.

    Returns:
        The data, or the utterance that could not be probed as it is.
    """
    if isinstance(entry, NotProbed):
        return entry
    silent = ""
    try:
        sound: Playable | None = _sound(entry, number, places)
    except UtteranceError as error:
        sound, silent = None, str(error)
    every = issues_of(entry, least=0.0)
    issues = [issue for issue in every if issue.score >= LEAST_SCORE]
    at = _utf16(entry.text)
    texts = [entry.text, entry.heard, [_issue(issue, at) for issue in issues]]
    return Entry(
        entry.id,
        entry.text,
        entry.speaker,
        _digits(sum(issue.score for issue in every)),
        round(entry.duration, 3),
        [KINDS.index(issue.kind) for issue in issues],
        [_digits(issue.score) for issue in issues],
        as_script(texts),
        as_script([*texts, *_details(entry, sound, at)]),
        frozenset(entry.text) | frozenset(entry.heard),
        wer([entry.text], [entry.heard]),
        sound.bytes if sound else 0,
        sound.picture_bytes if sound else 0,
        sound is not None and sound.bytes == 0,
        silent,
    )


def as_script(value: Any) -> str:
    """Write a value as JSON that can be part of a script.

    Args:
        value: The value.

    Returns:
        JSON without anything that could end a script element or a line of the script.
    """
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<\u2028\u2029":
        content = content.replace(char, f"\\u{ord(char):04x}")
    return content


def _sound(utterance: ProbedUtterance, number: int, places: Places) -> Playable:
    path = Path(utterance.audio)
    if not path.is_file():  # paths are relative to the working directory, else to the probe
        path = places.probe.parent / path
    stretch = Utterance(
        utterance.id, path, start=utterance.offset, duration=utterance.duration, channel=utterance.channel
    )
    picture = places.part / "data" / "spectra" / f"{number:06d}.png"
    return make_playable(stretch, places.part / "audio" / f"{number:06d}", picture, places.folder)


def _details(utterance: ProbedUtterance, sound: Playable | None, at: list[int]) -> list[Any]:
    return [
        sound.source if sound else None,
        round(sound.offset, 3) if sound else 0,
        _shade(utterance, at),
        [[at[w.begin], at[w.stop], *map(_digits, (w.start, w.end, w.bypass)), w.heard] for w in utterance.words],
        [[at[t.begin], at[t.stop], *map(_digits, (t.start, t.end, t.bypass)), t.heard] for t in utterance.tokens],
        _unwritten(utterance),
        base64.b64encode(sound.peaks.tobytes()).decode() if sound else "",
        _digits(sound.loudest) if sound else 0,
        f"data/spectra/{Path(sound.picture).name}" if sound and sound.picture else None,
        Path(utterance.audio).name,
    ]


def _unwritten(utterance: ProbedUtterance) -> list[list[Any]]:
    """The gaps with unwritten sounds: their time, the expected number of sounds, what the model wrote there."""
    starts = [token.start for token in utterance.tokens] + [utterance.duration]
    ends = [0.0] + [token.end for token in utterance.tokens]
    heard = utterance.between or [""] * len(utterance.gaps)
    return [
        [_digits((ends[k] + starts[k]) / 2), _digits(count), heard[k].strip()]
        for k, count in enumerate(utterance.gaps)
        if count >= LEAST_SCORE
    ]


def _issue(issue: LabelIssue, at: list[int]) -> list[Any]:
    return [at[issue.begin], at[issue.stop], _digits(issue.start), _digits(issue.end), issue.word, issue.heard]


def _shade(utterance: ProbedUtterance, at: list[int]) -> str:
    """A digit for each UTF-16 code unit of the text: the bypass probability of its token, in tenths."""
    digits = ["0"] * at[-1]
    for token in utterance.tokens:
        level = str(min(9, int(10 * token.bypass)))
        digits[at[token.begin] : at[token.stop]] = level * (at[token.stop] - at[token.begin])
    return "".join(digits)


def _utf16(text: str) -> list[int]:
    """The index of each code point in a JavaScript string (UTF-16), and the index after the last.

    >>> _utf16("a😀b")
    [0, 1, 3, 4]
    """
    return list(accumulate((2 if char > "\uffff" else 1 for char in text), initial=0))


def _digits(value: float) -> float:
    return round(value, 3)
