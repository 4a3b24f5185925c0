"""The text of a recording as it comes: plain text with paragraphs, or subtitles (SubRip, WebVTT).

Words keep their case and punctuation for the output. The times of subtitles only order them: the alignment finds its
own.
"""

from __future__ import annotations

import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import read_bytes
from wildctc.text.normalisation import Normalizer

_WITHOUT_PUNCTUATION = Normalizer(strip_punctuation=True)
_LARGEST = 100_000_000  # bytes of a text
_MARKS = (  # byte order marks; that of UTF-32 begins like that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_CLOCK = r"(?:\d+:)?\d\d?:\d\d(?:[,.]\d+)?"
_TIMES = re.compile(rf"^({_CLOCK})\s*-->\s*{_CLOCK}")
_TAG = re.compile(r"<[^<>]*>|\{\\[^}]*\}")  # <i>, <v Ann>, {\an8}
# The end of a sentence, in any script, perhaps inside quotes or brackets.
_SENTENCE_END = re.compile(r"[.!?…。！？．।॥؟۔።]+[\"'”’»)\]}›」』]*$")


@dataclass(frozen=True)
class WrittenWord:
    """A word of the text.

    Attributes:
        text: As it is written, with its punctuation.
        block: The number of its paragraph, or of its subtitle.
        ends_sentence: Whether a sentence ends after it.
    """

    text: str
    block: int
    ends_sentence: bool


@dataclass(frozen=True)
class WrittenText:
    """The text of a recording.

    Attributes:
        name: The file, for messages.
        words: Its words.
        subtitles: Whether the blocks are subtitles.
    """

    name: str
    words: list[WrittenWord]
    subtitles: bool = False


class SpellingUnits(Protocol):
    """What is needed of a model's units."""

    def encode(self, text: str, /) -> list[int]:
        """Convert a text to labels.

        Args:
            text: The text; all its characters are among the units.

        Returns:
            The labels.
        """
        ...

    def missing(self, text: str, /) -> list[str]:
        """Find the characters that the units cannot write.

        Args:
            text: Any text.

        Returns:
            These characters, each once.
        """
        ...

    def words(self, ids: Sequence[int], /) -> list[int]:
        """Find the word of each label.

        Args:
            ids: Labels.

        Returns:
            For each label the number of its word; −1 for none.
        """
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """Convert labels into text.

        Args:
            ids: Labels; blanks are skipped.

        Returns:
            The text.
        """
        ...

    @property
    def normalizer(self) -> Callable[[str], str]:
        """How texts are normalised."""
        ...


def read_text(path: str | Path, encoding: str | None = None) -> WrittenText:
    """Read the text of a recording.

    Args:
        path: Plain text, where empty lines end paragraphs, or subtitles as SubRip or WebVTT.
        encoding: How the file is encoded, such as "cp1252"; None: UTF-8, or what a byte order mark says.

    Returns:
        Its words.

    Raises:
        WildCTCError: The file cannot be read, or has no words.
    """
    content = read_bytes(Path(path), _LARGEST)
    name = encoding or next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8-sig")
    binary = f"{path}: not a text, but a binary file; the audio comes first, then its text"
    try:
        text = content.decode(name)
    except LookupError:
        raise WildCTCError(f"--encoding {name}: no such encoding; utf-16, cp1252 and gb18030 are some") from None
    except UnicodeError as error:
        if b"\0" in content:
            raise WildCTCError(binary) from None
        where = f" (byte {error.start:,})" if isinstance(error, UnicodeDecodeError) else ""
        raise WildCTCError(
            f"{path}: not {name.removesuffix('-sig').upper()}{where}; give its encoding, such as --encoding cp1252 for "
            "Western European, cp1251 for Cyrillic, gb18030 for Chinese"
        ) from None
    if "\0" in text:
        raise WildCTCError(binary)
    return parse_text(text, str(path))


def parse_text(content: str, name: str = "the text") -> WrittenText:
    """Parse a text.

    Args:
        content: Plain text or subtitles.
        name: Where it is from, for messages.

    Returns:
        Its words.

    Raises:
        WildCTCError: There are no words.

    >>> [word.text for word in parse_text("1\\n00:00:01,000 --> 00:00:02,000\\n<i>Good</i> night!\\n").words]
    ['Good', 'night!']
    """
    lines = [line.strip() for line in content.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    subtitles = any(_TIMES.match(line) for line in lines)
    blocks = _cues(lines) if subtitles else _paragraphs(lines)
    words = [word for number, block in enumerate(blocks) for word in _words(block, number, subtitles)]
    if not words:
        raise WildCTCError(f"{name}: there is no text in it")
    return WrittenText(name, words, subtitles)


def _paragraphs(lines: list[str]) -> list[str]:
    """Paragraphs between empty lines; each line alone if no sentence has an end that is marked."""
    if not any(_SENTENCE_END.search(word) for line in lines for word in line.split()):
        return [line for line in lines if line]
    found: list[list[str]] = [[]]
    for line in lines:
        if line:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [" ".join(block) for block in found if block]


def _cues(lines: list[str]) -> list[str]:
    """The text of each subtitle, ordered by the times at which they begin.

    In WebVTT an empty line ends it. In SubRip the number of the next one does, because its text may have empty lines,
    and there may be none between two subtitles.
    """
    vtt = lines[0].startswith("WEBVTT")
    found: list[tuple[float, list[str]]] = []
    inside = False
    for line in lines:
        if times := _TIMES.match(line):
            if found and not vtt and found[-1][1][-1:] and found[-1][1][-1].isdecimal():
                found[-1][1].pop()  # the number of this one
            found.append((_seconds(times[1]), []))
            inside = True
        elif not line:
            inside = inside and not vtt
        elif inside:
            found[-1][1].append(html.unescape(_TAG.sub("", line)).strip())
    return [" ".join(block) for _, block in sorted(found, key=lambda cue: cue[0]) if block]


def _seconds(clock: str) -> float:
    *hours, minutes, seconds = clock.replace(",", ".").split(":")
    return 3600 * float(hours[0] if hours else 0) + 60 * float(minutes) + float(seconds)


def _words(block: str, number: int, subtitles: bool) -> list[WrittenWord]:
    texts = block.split()
    ends = [bool(_SENTENCE_END.search(text)) for text in texts]
    if ends and not subtitles:
        ends[-1] = True
    return [WrittenWord(text, number, end) for text, end in zip(texts, ends, strict=True)]


@dataclass(frozen=True)
class SpokenText:
    """A text as a model would write it.

    Attributes:
        labels: The labels of the whole text.
        words: The word of each label, counted from 0; −1 for none.
        written: For each of these words, the number of its `WrittenWord`.
        texts: For each of these words, its normalised text.
        unwritable: The numbers of written words of which the model can write nothing, such as 1984 or a dash.
    """

    labels: list[int]
    words: list[int]
    written: list[int]
    texts: list[str]
    unwritable: list[int]


def as_spoken(text: WrittenText, units: SpellingUnits, romanize: Callable[[str], str] | None = None) -> SpokenText:
    """Write a text in the units of a model. Characters that the model cannot write are left out.

    Args:
        text: The text.
        units: Of the model.
        romanize: Applied to each word first.

    Returns:
        The labels and their words.

    Raises:
        WildCTCError: The model can write none of its words.
    """
    known: dict[str, list[str]] = {}  # each word of a text occurs many times
    written, texts, unwritable = [], [], []
    for number, word in enumerate(text.words):
        if word.text not in known:
            known[word.text] = _writable(romanize(word.text) if romanize else word.text, units)
        parts = known[word.text]
        written += [number] * len(parts)
        texts += parts
        if not parts and any(char.isalnum() for char in word.text):
            unwritable.append(number)
    if not texts:
        advice = "" if romanize else "; --romanize writes it in Latin letters, for a model of these"
        raise WildCTCError(
            f"{text.name}: the model can write none of its {len(text.words):,} words: another script?{advice}"
        )
    if len(texts) > 1 and units.missing(" ".join(texts)):
        raise WildCTCError("the model does not write spaces between words, which alignment needs")
    labels = units.encode(" ".join(texts))
    words = units.words(labels)
    if max(words) + 1 != len(texts):
        raise WildCTCError(f"{text.name}: {len(texts):,} words became {max(words) + 1:,} in the model's units")
    return SpokenText(labels, words, written, texts, unwritable)


def _writable(text: str, units: SpellingUnits) -> list[str]:
    """The parts of a word in characters that the model has: of the other case, without accents, without punctuation."""
    normal = units.normalizer(text)
    if not units.missing(normal):
        return normal.split()
    near = units.normalizer("".join(_nearest(char, units) for char in normal))
    if units.missing(near):
        near = units.normalizer(_WITHOUT_PUNCTUATION(near))
    missing = set(units.missing(near))
    return "".join(char for char in near if not missing & {char, char.upper(), char.lower()}).split()


def _nearest(char: str, units: SpellingUnits) -> str:
    if not char.isalpha():
        return char
    plain = unicodedata.normalize("NFD", char)[0]
    forms = (char, char.lower(), char.upper(), plain, plain.lower(), plain.upper())
    return next((form for form in forms if not units.missing(form)), char)


def romanizer(language: str | None = None) -> Callable[[str], str]:
    """Make a function that writes any script in Latin letters, with the package `uroman`.

    Args:
        language: ISO 639-3, such as "tam"; None decides by the script.

    Returns:
        Text to Latin letters.

    Raises:
        MissingExtra: The package is not installed.
    """
    try:
        import uroman
    except ImportError:
        raise MissingExtra("uroman", "romanize") from None
    convert = uroman.Uroman()
    return lambda text: str(convert.romanize_string(text, lcode=language))
