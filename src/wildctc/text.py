"""Text: one normalisation for every stage, the units that a recogniser writes, and which word each token belongs to.

Transcripts are normalised in one place only, and how is stored with the units, so that preparing, training and scoring
cannot come to differ. The wildcard ★ is no unit: it never enters a vocabulary.
"""

import hashlib
import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from .errors import MissingExtra, WildCTCError

BLANK = "<blank>"
_JOINERS = "\u200c\u200d"  # zero-width (non-)joiner: they change what Indic and Persian words look like
_APOSTROPHES = "'\u2019\uff07"
# Punctuation that stands between words even where no space was typed, besides dashes and underscores: slashes,
# ellipsis, ? and !, dandas, their Arabic relatives, the Ethiopic word space and full stop, the Tibetan tsheg. The rest
# vanishes: the Armenian question mark stands inside its word, and U.S.A. and 10,000 should stay in one piece.
_SEPARATORS = "/\\…!?।॥،؛؟۔፡።་"


@dataclass(frozen=True)
class Normalizer:
    """Transcript normalisation: NFC and single spaces always, the rest by choice.

    lower: lower case. strip_punctuation: removes punctuation and invisible format characters by Unicode category, but
    keeps combining marks, joiners, symbols ($, +) and apostrophes inside words (all written '); dashes become spaces.

    >>> Normalizer(lower=True, strip_punctuation=True)("  Don’t   «panic» — it’s the well-known 'U.S.A.'!")
    "don't panic it's the well known usa"
    """

    lower: bool = False
    strip_punctuation: bool = False

    def __call__(self, text: str) -> str:
        text = unicodedata.normalize("NFC", text)
        if self.lower:
            text = text.lower()
        if self.strip_punctuation:
            text = _strip_punctuation(text)
        # Lower-casing and stripping can bring a letter and its mark together: compose once more.
        return " ".join(unicodedata.normalize("NFC", text).split())

    def to_dict(self) -> dict[str, bool]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, bool]) -> "Normalizer":
        try:
            return cls(**fields)
        except TypeError:
            raise WildCTCError(
                f"unknown normalisation {sorted(fields)}: the fields are lower and strip_punctuation"
            ) from None


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


class Units(ABC):
    """What a recogniser writes: label ids and their strings, id 0 being the blank.

    tokens: label id → string. normalizer: applied to every text before it is encoded.
    """

    kind: str

    def __init__(self, tokens: Sequence[str], normalizer: Normalizer) -> None:
        if not tokens or tokens[0] != BLANK or len(set(tokens)) != len(tokens):
            raise WildCTCError(f"units must be distinct and begin with {BLANK}")
        self.tokens = list(tokens)
        self.normalizer = normalizer

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The label ids of a text; a character outside the units is a WildCTCError (see `missing`)."""
        text = self.normalizer(text)
        if unknown := self._missing(text):
            raise WildCTCError(f"characters outside the units: {describe(unknown)}")
        return self._encode(text)

    def missing(self, text: str) -> list[str]:
        """The characters of a text that the units cannot write, in order of appearance, each once."""
        return self._missing(self.normalizer(text))

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of label ids (blanks are skipped), with single spaces between words."""

    @abstractmethod
    def words(self, ids: Iterable[int]) -> list[int]:
        """The word of each label, counted from 0: the `words` argument of the loss."""

    @abstractmethod
    def _encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def _missing(self, text: str) -> list[str]: ...

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "normalizer": self.normalizer.to_dict(), "tokens": self.tokens}

    def fingerprint(self) -> str:
        """A short hash of everything that decides what an id means; a checkpoint keeps it to notice foreign units."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def save(self, directory: str | Path) -> None:
        """Writes units.json (and spm.model for SentencePiece) into a directory, which is created if need be."""
        from .files import make_folder, write_text

        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=1)
        write_text(make_folder(Path(directory)) / "units.json", text + "\n")


class CharUnits(Units):
    """One unit for each character (Unicode code point after normalisation); the space is one of them.

    >>> units = CharUnits.train(["ab b", "c"], Normalizer())
    >>> units.tokens
    ['<blank>', ' ', 'a', 'b', 'c']
    >>> units.encode("b  a"), units.decode([3, 1, 2]), units.words([3, 1, 2]), units.missing("é a")
    ([3, 1, 2], 'b a', [0, 1, 1], ['é'])
    """

    kind = "char"

    @classmethod
    def train(cls, texts: Iterable[str], normalizer: Normalizer) -> "CharUnits":
        characters = {char for text in texts for char in normalizer(text)}
        if not characters:
            raise WildCTCError("no units: every transcript is empty")
        return cls([BLANK, *sorted(characters | {" "})], normalizer)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join("".join(self.tokens[i] for i in ids if i != 0).split())

    def words(self, ids: Iterable[int]) -> list[int]:
        return word_ids([self.tokens[i] for i in ids], space=" ")

    def _encode(self, text: str) -> list[int]:
        return [self._ids[char] for char in text]

    def _missing(self, text: str) -> list[str]:
        return [char for char in dict.fromkeys(text) if char not in self._ids]


class SentencePieceUnits(Units):
    """Byte-pair pieces of SentencePiece; a piece that begins with ▁ begins a word.

    SentencePiece keeps id 0 for <unk>, which here is the blank: characters it has not seen are an error (`missing`)
    rather than a unit, so its ids are label ids as they stand.
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes, normalizer: Normalizer) -> None:
        self.model = model
        processor = self._processor
        super().__init__([BLANK, *(processor.id_to_piece(i) for i in range(1, len(processor)))], normalizer)

    @classmethod
    def train(cls, texts: Iterable[str], normalizer: Normalizer, vocab_size: int = 200) -> "SentencePieceUnits":
        """Learns `vocab_size` units, the blank among them."""
        sentences = [text for text in map(normalizer, texts) if text]
        if not sentences:
            raise WildCTCError("no units: every transcript is empty")
        model = BytesIO()
        options = {"unk_id": 0, "bos_id": -1, "eos_id": -1, "pad_id": -1, "num_threads": 1, "minloglevel": 2}
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=1.0,
                normalization_rule_name="identity",  # Normalizer has done it
                max_sentence_length=10**9,  # the default leaves long ones out without a word
                **options,
            )
        except RuntimeError as error:
            reason = str(error).rsplit("] ", 1)[-1].strip() or str(error)
            raise WildCTCError(f"cannot learn {vocab_size} SentencePiece units: {reason}") from None
        return cls(model.getvalue(), normalizer)

    @property
    def _processor(self) -> Any:
        if "_loaded" not in self.__dict__:
            self._loaded = _sentencepiece().SentencePieceProcessor(model_proto=self.model)
        return self._loaded

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join("".join(self.tokens[i] for i in ids if i != 0).replace("▁", " ").split())

    def words(self, ids: Iterable[int]) -> list[int]:
        return word_ids([self.tokens[i] for i in ids])

    def _encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def _missing(self, text: str) -> list[str]:
        known = {char for token in self.tokens[1:] for char in token} | {" "}
        return [char for char in dict.fromkeys(text) if char not in known]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "model_sha256": hashlib.sha256(self.model).hexdigest()}

    def save(self, directory: str | Path) -> None:
        super().save(directory)
        (Path(directory) / "spm.model").write_bytes(self.model)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_loaded"}


def load_units(directory: str | Path) -> Units:
    """The units that `Units.save` wrote into a directory."""
    directory = Path(directory)
    try:
        stored = json.loads((directory / "units.json").read_text(encoding="utf-8"))
        normalizer = Normalizer.from_dict(stored["normalizer"])
        units: Units
        if stored["kind"] == SentencePieceUnits.kind:
            units = SentencePieceUnits((directory / "spm.model").read_bytes(), normalizer)
        else:
            units = CharUnits(stored["tokens"], normalizer)
    except OSError as error:
        raise WildCTCError(f"no units in {directory}: {error.strerror} ({error.filename})") from None
    except (ValueError, KeyError, TypeError, RuntimeError) as error:  # the last is SentencePiece's
        raise WildCTCError(f"{directory / 'units.json'} is not a units file, or spm.model is none: {error!r}") from None
    if units.to_dict() != stored:
        raise WildCTCError(f"{directory}: units.json and spm.model do not belong together; save the units again")
    return units


def describe(characters: Iterable[str]) -> str:
    """Characters as a person can tell them apart, for messages.

    >>> describe(["é", "\u200d"])
    'é (U+00E9), U+200D'
    """

    def name(char: str) -> str:
        code = f"U+{ord(char):04X}"
        return f"{char} ({code})" if unicodedata.category(char)[0] in "LNPS" else code

    return ", ".join(name(char) for char in characters)


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtra("sentencepiece", "train") from None
    return sentencepiece


def word_ids(
    tokens: Sequence[str], *, start: str = "▁", space: str | None = None, spaces: Literal["next", "separator"] = "next"
) -> list[int]:
    """The word of each token, counted from 0; −1 for a token in no word: the `words` argument of the loss.

    tokens: the transcript's token strings. Without `space` they are SentencePiece pieces: one that begins with
    `start` begins a word, and so does the first. With `space` (" " or "|") they are characters, and the space is
    the first token of the word that it precedes (`spaces="next"`, which gives characters and pieces the same
    graph) or belongs to no word (`spaces="separator"`). A trailing space has no word to precede: −1.

    >>> word_ids(["▁he", "llo", "▁world"])
    [0, 0, 1]
    >>> word_ids(list("ab cd"), space=" ")
    [0, 0, 1, 1, 1]
    >>> word_ids(list("ab cd"), space=" ", spaces="separator")
    [0, 0, -1, 1, 1]
    """
    if spaces not in ("next", "separator"):
        raise ValueError(f'spaces must be "next" or "separator", got {spaces!r}')
    if space is None:
        return _pieces(tokens, start)
    return _characters(tokens, space, spaces == "next")


def _pieces(tokens: Sequence[str], start: str) -> list[int]:
    words, word = [], -1
    for token in tokens:
        if word < 0 or token.startswith(start):
            word += 1
        words.append(word)
    return words


def _characters(tokens: Sequence[str], space: str, space_joins_next: bool) -> list[int]:
    words: list[int] = []
    word, in_word = -1, False
    for i, token in enumerate(tokens):
        if token != space:
            if not in_word:
                word, in_word = word + 1, True
            words.append(word)
            continue
        in_word = space_joins_next and i + 1 < len(tokens) and tokens[i + 1] != space
        if in_word:
            word += 1
        words.append(word if in_word else -1)
    return words
