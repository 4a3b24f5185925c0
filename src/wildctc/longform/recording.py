"""From files to an alignment: one recording with its text."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import floor
from pathlib import Path
from typing import NamedTuple, Protocol

from wildctc.audio.recordings import Recording, open_recording
from wildctc.errors import WildCTCError
from wildctc.longform.alignment import PRICES, LongAlignment, Prices, align_text
from wildctc.longform.written import SpellingUnits, SpokenText, WrittenText, as_spoken, read_text
from wildctc.recognizer.windows import LongLogits, WindowModel, long_logits

_log = logging.getLogger(__name__)

_FASTEST = 20.0  # letters a second, over a whole recording
LEAST_FOUND = 0.2  # share of the text that must be found in the audio


class LongModel(WindowModel, Protocol):
    """What a long alignment needs of a model: a `Recognizer`, or a Hugging Face `Checkpoint`."""

    @property
    def units(self) -> SpellingUnits:
        """What the model writes."""
        ...


class AlignedRecording(NamedTuple):
    """A recording with its text.

    Attributes:
        alignment: The text on the recording.
        logits: Of the recording.
        spoken: The text in the model's units.
    """

    alignment: LongAlignment
    logits: LongLogits
    spoken: SpokenText


def check_files(audio: str | Path, text: str | Path, channel: int | None = None, encoding: str | None = None) -> None:
    """Look at a recording and its text before the model is loaded, which takes longer.

    Args:
        audio: The audio file.
        text: The text's file.
        channel: The channel, from 0; None takes the mean of all.
        encoding: Of the text; see `read_text`.

    Raises:
        WildCTCError: One of them cannot be used.
    """
    read_text(text, encoding)
    next(iter(open_recording(audio, channel=channel).blocks), None)


def _just_below(share: float) -> str:
    """Write a share with two digits, never rounded up: the option that is advised must help.

    >>> _just_below(0.138)
    '0.13'
    """
    return f"{floor(100 * share) / 100:g}"


def align_recording(
    model: LongModel,
    audio: str | Path,
    text: str | Path,
    *,
    channel: int | None = None,
    encoding: str | None = None,
    romanize: Callable[[str], str] | None = None,
    prices: Prices = PRICES,
    least: float = LEAST_FOUND,
) -> AlignedRecording:
    """Align a recording of any length with a text that is roughly right.

    Args:
        model: The model.
        audio: The audio file.
        text: The text: plain, SubRip or WebVTT.
        channel: The channel, from 0; None takes the mean of all.
        encoding: Of the text; see `read_text`.
        romanize: Applied to each word of the text.
        prices: What wildcards cost.
        least: The share of the text that must be found in the audio.

    Returns:
        The alignment, and what it was made from.

    Raises:
        WildCTCError: A file cannot be used, the model hears nothing, or the text is of another recording.
    """
    written = read_text(text, encoding)  # first: it takes no time, unlike the audio
    return align_sound(
        model, open_recording(audio, channel=channel), written,
        channel=channel, romanize=romanize, prices=prices, least=least,
    )  # fmt: skip


def align_sound(
    model: LongModel,
    sound: Recording,
    written: WrittenText,
    *,
    channel: int | None = None,
    romanize: Callable[[str], str] | None = None,
    prices: Prices = PRICES,
    least: float = LEAST_FOUND,
) -> AlignedRecording:
    """Align a recording that is open with a text that was read.

    Args:
        model: The model.
        sound: The recording.
        written: The text.
        channel: The channel that the recording was opened with.
        romanize: Applied to each word of the text.
        prices: What wildcards cost.
        least: The share of the text that must be found in the audio.

    Returns:
        The alignment, and what it was made from.

    Raises:
        WildCTCError: The audio cannot be read, the model hears nothing, or the text is of another recording.
    """
    audio, text = sound.name, written.name
    spoken = as_spoken(written, model.units, romanize)
    letters = sum(len(word) + 1 for word in spoken.texts)
    if least * letters > _FASTEST * sound.duration:
        most = _FASTEST * sound.duration / letters
        raise WildCTCError(
            f"{text}: {letters:,} letters for {sound.duration:,.0f} s of audio: at most {most:.1%} of them can have "
            f"been read; give the part of the text that belongs to {audio}"
        )
    logits = long_logits(model, sound)
    if not len(logits.logits) or not (logits.logits.argmax(1) != 0).any():
        raise WildCTCError(
            f"{audio}: the model hears no speech in its {logits.duration:,.1f} s: silence, music or noise?"
        )
    found = align_text(model.units, sound, logits, written, spoken, channel=channel, prices=prices)
    if found.found < least:
        raise WildCTCError(
            f"{audio}: {found.found:.0%} of the text was found in the audio: is {text} the text of this recording, and "
            f"the model one of its language? --least {_just_below(found.found)} aligns it all the same"
        )
    if found.found < 0.5 and found.unwritten > found.duration / 2:
        _log.warning(
            "%s: %.0f%% of the text was found, and %.0f of %.0f s have speech that is not in it: is %s its text?",
            audio, 100 * found.found, found.unwritten, found.duration, text,
        )  # fmt: skip
    return AlignedRecording(found, logits, spoken)
