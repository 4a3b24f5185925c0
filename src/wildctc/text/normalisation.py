"""Normalise a transcript into the one form that is used in training and scoring."""

import re
import unicodedata
from dataclasses import asdict, dataclass

from wildctc.errors import WildCTCError

_JOINERS = "\u200c\u200d"  # zero-width (non-)joiner: they change how Indic and Persian words look
# Scripts whose letters do not change their form by what follows, so that a joiner after them has no effect.
_NEVER_JOIN = ("LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARMENIAN", "CJK", "HANGUL", "HIRAGANA", "KATAKANA")
# Control characters and invisible format characters: soft hyphen, zero-width space, direction, byte order, tags.
_UNSEEN = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
_INVISIBLE = re.compile(f"[{_UNSEEN}{_JOINERS}]")
# Letters and marks that are invisible where they stand alone: fillers, variation selectors, the empty Braille cell.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_VISIBLE = re.compile(rf"[^\s{_UNSEEN}{_JOINERS}{_FILLERS}]")
_APOSTROPHES = "'\u2019\uff07"
# Punctuation that separates words even without a space, besides dashes and underscores: slashes, ellipsis, ? and !,
# dandas, their Arabic counterparts, the Ethiopic word space and full stop, the Tibetan tsheg. Other punctuation is
# removed without a space: the Armenian question mark stands inside its word, and U.S.A. and 10,000 stay in one piece.
_SEPARATORS = "/\\…!?।॥،؛؟۔፡።་"


@dataclass(frozen=True)
class Normalizer:
    """Transcript normalisation. It always composes characters (NFC) and leaves single spaces; the rest is optional.

    Joiners (U+200C, U+200D) stay where they can change how a word is written: after a letter of a script that joins,
    such as those of Persian and Hindi. A text without any visible character becomes the empty text.

    Attributes:
        lower: Convert to lower case.
        strip_punctuation: Remove punctuation by Unicode category. Combining marks, symbols ($, +) and apostrophes
            inside words stay; all apostrophes become '. Dashes become spaces.
        keep_invisible: Keep zero-width spaces, marks of direction, soft hyphens and control characters, which are
            removed otherwise.

    >>> Normalizer(lower=True, strip_punctuation=True)("  Don’t   «panic» — it’s the well-known 'U.S.A.'!")
    "don't panic it's the well known usa"
    """

    lower: bool = False
    strip_punctuation: bool = False
    keep_invisible: bool = False

    def __call__(self, text: str) -> str:
        if text.isascii() and text.isprintable():  # composed, and nothing invisible: most of a million lines
            text = text.lower() if self.lower else text
            return " ".join((_strip_punctuation(text) if self.strip_punctuation else text).split())
        text = unicodedata.normalize("NFC", text)
        if self.lower:
            text = text.lower()
        if not self.keep_invisible:
            text = _strip_invisible(text)
        if self.strip_punctuation:
            text = _strip_punctuation(text)
        # Lower-casing and stripping can bring a letter and its mark together: compose once more.
        text = " ".join(unicodedata.normalize("NFC", text).split())
        return text if _VISIBLE.search(text) else ""

    def to_dict(self) -> dict[str, bool]:
        """Give the options in the form that units.json stores.

        Returns:
            Names and values of the options. `keep_invisible` is there only if it is set.
        """
        fields = asdict(self)
        if not self.keep_invisible:  # so that units saved before this option existed keep their fingerprint
            del fields["keep_invisible"]
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, bool]) -> "Normalizer":
        """Make the normaliser that `to_dict` described.

        Args:
            fields: Names and values of the options; those that are not there are off.

        Returns:
            The normaliser.

        Raises:
            WildCTCError: An option is unknown, or its value is not true or false.
        """
        known = {"lower", "strip_punctuation", "keep_invisible"}
        if fields.keys() - known or not all(isinstance(v, bool) for v in fields.values()):
            raise WildCTCError(
                f"unknown normalisation {sorted(fields)}: the fields are lower, strip_punctuation and keep_invisible, "
                "true or false"
            )
        return cls(**fields)


def _strip_invisible(text: str) -> str:
    if not _INVISIBLE.search(text):
        return text
    kept: list[str] = []
    letter = ""  # the letter before this place, if only its marks stand between
    for char in text:
        if char in _JOINERS:
            if letter and kept[-1] not in _JOINERS and not unicodedata.name(letter, "").startswith(_NEVER_JOIN):
                kept.append(char)
        elif not _INVISIBLE.match(char):
            category = unicodedata.category(char)[0]
            letter = char if category == "L" else letter if category == "M" else ""
            kept.append(char)
    return "".join(kept)


def _strip_punctuation(text: str) -> str:
    kept = []
    for i, char in enumerate(text):
        category = unicodedata.category(char)
        if char in _APOSTROPHES:
            before, after = text[i - 1 : i], text[i + 1 : i + 2]
            if _is_word(before, "LMN") and _is_word(after, "LN"):
                kept.append("'")
        elif category in ("Pd", "Pc") or char in _SEPARATORS:
            kept.append(" ")
        elif category[0] != "P" and (category != "Cf" or char in _JOINERS):
            kept.append(char)
    return "".join(kept)


def _is_word(char: str, categories: str) -> bool:
    return char != "" and (unicodedata.category(char)[0] in categories or (char in _JOINERS and "M" in categories))
