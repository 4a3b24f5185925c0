"""The units that a recogniser writes: characters, pieces of words, or phones.

The units store how transcripts are normalised, so that preparation, training and scoring all do the same. The wildcard
★ is not a unit: no vocabulary contains it.
"""

import hashlib
import json
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.text.lexicon import Lexicon
from wildctc.text.normalisation import Normalizer
from wildctc.text.words import word_ids

BLANK = "<blank>"
_LARGEST_FILE = 50_000_000  # bytes of units.json or spm.model; larger files are refused


class Units(ABC):
    """The labels of a recogniser: ids and their strings. Id 0 is the blank.

    Attributes:
        kind: The name of the sort of units, as in `--units.kind`.
        space: The unit that stands between words; None if units that begin a word begin with ▁ instead.
        tokens: The string of each label id.
        normalizer: It is applied to every text before it is encoded.
        outside: What `missing` finds, for messages.
    """

    kind: str
    space: str | None
    outside = "characters outside the units"

    def __init__(self, tokens: Sequence[str], normalizer: Normalizer) -> None:
        are_text = all(isinstance(token, str) for token in tokens)
        if not tokens or not are_text or tokens[0] != BLANK or len(set(tokens)) != len(tokens):
            raise WildCTCError(f"units must be distinct texts and begin with {BLANK}")
        self.tokens = list(tokens)
        self.normalizer = normalizer

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Convert a text into label ids.

        Args:
            text: A transcript; it is normalised first.

        Returns:
            The label ids, without blanks.

        Raises:
            WildCTCError: The text has characters, or words, that the units cannot write; see `missing`.
        """
        text = self.normalizer(text)
        if unknown := self._missing(text):
            raise WildCTCError(f"{self.outside}: {name_characters(unknown)}")
        return self._encode(text)

    def missing(self, text: str) -> list[str]:
        """Find the characters of a text that the units cannot write.

        Args:
            text: A transcript; it is normalised first.

        Returns:
            Each such character once, in order of appearance.
        """
        return self._missing(self.normalizer(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Convert label ids into text.

        Args:
            ids: Label ids; blanks are skipped.

        Returns:
            The text, with single spaces between words.
        """
        text = "".join(self.tokens[i] for i in ids if i != 0)
        return " ".join((text if self.space else text.replace("▁", " ")).split())

    def words(self, ids: Iterable[int]) -> list[int]:
        """Find the word of each label, for the `words` argument of the loss.

        Args:
            ids: Label ids of one transcript.

        Returns:
            For each label the number of its word, as `word_ids` counts.
        """
        return word_ids([self.tokens[i] for i in ids], space=self.space)

    @abstractmethod
    def _encode(self, text: str) -> list[int]: ...

    @abstractmethod
    def _missing(self, text: str) -> list[str]: ...

    def to_dict(self) -> dict[str, Any]:
        """Give everything that decides what an id means.

        Returns:
            The content of units.json.
        """
        return {"kind": self.kind, "normalizer": self.normalizer.to_dict(), "tokens": self.tokens}

    def fingerprint(self) -> str:
        """Compute a short hash of `to_dict`. Checkpoints store it, so that other units are noticed.

        Returns:
            16 hexadecimal digits.
        """
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def save(self, directory: str | Path) -> None:
        """Write units.json, and for SentencePiece spm.model.

        Args:
            directory: The folder for them; it is made if needed.
        """
        from wildctc.files import make_folder, write_text

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
    space = " "

    @classmethod
    def train(cls, texts: Iterable[str], normalizer: Normalizer) -> "CharUnits":
        """Collect the characters of texts.

        Args:
            texts: The transcripts of the training data.
            normalizer: How they, and later every other text, are normalised.

        Returns:
            A unit for each character that occurs, in the order of code points, and one for the space.
        """
        characters = {char for text in texts for char in normalizer(text)}
        if not characters:
            raise WildCTCError("no units: every transcript is empty")
        return cls([BLANK, *sorted(characters | {" "})], normalizer)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def _encode(self, text: str) -> list[int]:
        return [self._ids[char] for char in text]

    def _missing(self, text: str) -> list[str]:
        return [char for char in dict.fromkeys(text) if char not in self._ids]


class SentencePieceUnits(Units):
    """Byte-pair pieces of SentencePiece; a piece that begins with ▁ begins a word.

    SentencePiece has id 0 for <unk>, which is the blank here. Characters that it has not seen are an error (`missing`)
    and not a unit, so its ids can be used as label ids.

    Attributes:
        model: The content of spm.model.
    """

    kind = "sentencepiece"
    space = None

    def __init__(self, model: bytes, normalizer: Normalizer) -> None:
        self.model = model
        processor = self._processor
        super().__init__([BLANK, *(processor.id_to_piece(i) for i in range(1, len(processor)))], normalizer)

    @classmethod
    def train(cls, texts: Iterable[str], normalizer: Normalizer, vocab_size: int = 200) -> "SentencePieceUnits":
        """Learn the pieces from texts.

        Args:
            texts: The transcripts of the training data.
            normalizer: How they, and later every other text, are normalised.
            vocab_size: The number of units, including the blank.

        Returns:
            The units.

        Raises:
            WildCTCError: The texts are empty, or too few or too many for so many units.
        """
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
                normalization_rule_name="identity",  # `normalizer` has normalised already
                max_sentence_length=10**9,  # by default long ones are skipped without a message
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

    def _encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def _missing(self, text: str) -> list[str]:
        known = {char for token in self.tokens[1:] for char in token} | {" "}
        return [char for char in dict.fromkeys(text) if char not in known]

    def to_dict(self) -> dict[str, Any]:
        """Give everything that decides what an id means, a checksum of the model included.

        Returns:
            The content of units.json.
        """
        return {**super().to_dict(), "model_sha256": hashlib.sha256(self.model).hexdigest()}

    def save(self, directory: str | Path) -> None:
        """Write units.json and spm.model.

        Args:
            directory: The folder for them; it is made if needed.
        """
        super().save(directory)
        (Path(directory) / "spm.model").write_bytes(self.model)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_loaded"}


class PhoneUnits(Units):
    """Phones of a pronunciation lexicon. The first phone of a word is a unit of its own, which begins with ▁.

    Labels become words again by looking up their phones. Of words with the same phones, the one that is most frequent
    in the training transcripts is written; phones that are no word's are joined by hyphens.

    >>> lexicon = {"two": [["T", "UW"]], "to": [["T", "UW"], ["T", "AH"]], "a": [["AH"]]}
    >>> units = PhoneUnits.train(["to to two a"], Normalizer(), lexicon)
    >>> units.tokens
    ['<blank>', 'AH', 'UW', '▁AH', '▁T']
    >>> units.encode("two a"), units.decode([4, 2, 4, 1]), units.decode([4]), units.missing("to be")
    ([4, 2, 3], 'to to', 'T', ['be'])

    Attributes:
        lexicon: The pronunciations of each word, frequent words first.
    """

    kind = "phones"
    space = None
    outside = "words without a pronunciation"

    def __init__(self, tokens: Sequence[str], normalizer: Normalizer, lexicon: Lexicon) -> None:
        super().__init__(tokens, normalizer)
        self.lexicon = lexicon
        ids = {token: i for i, token in enumerate(self.tokens)}
        self._labels = {word: [[ids[p] for p in _marked(phones)] for phones in lexicon[word]] for word in lexicon}
        self._words: dict[tuple[str, ...], str] = {}
        for word, pronunciations in lexicon.items():
            for phones in pronunciations:
                self._words.setdefault(tuple(phones), word)

    @classmethod
    def train(cls, texts: Iterable[str], normalizer: Normalizer, lexicon: Lexicon) -> "PhoneUnits":
        """Collect the phones of a lexicon.

        Args:
            texts: The transcripts of the training data, whose words are counted.
            normalizer: How they, and later every other text, are normalised.
            lexicon: Word → its pronunciations.

        Returns:
            A unit for each phone, and for each phone that begins a word.
        """
        counts = Counter(word for text in texts for word in normalizer(text).split())
        tokens = {token for found in lexicon.values() for phones in found for token in _marked(phones)}
        ordered = sorted(lexicon, key=lambda word: -counts[word])  # words of equal counts keep their order
        return cls([BLANK, *sorted(tokens)], normalizer, {word: lexicon[word] for word in ordered})

    def alternatives(self, text: str) -> list[list[list[int]]]:
        """Give all pronunciations of a text.

        Args:
            text: A transcript whose words all have pronunciations.

        Returns:
            For each word its label sequences; `encode` takes the first of each.
        """
        return [self._labels[word] for word in self.normalizer(text).split()]

    def is_ambiguous(self, text: str) -> bool:
        """Tell whether a text has several pronunciations.

        Args:
            text: A transcript whose words all have pronunciations.

        Returns:
            True if one of its words has more than one.
        """
        return any(len(several) > 1 for several in self.alternatives(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Convert label ids into words.

        Args:
            ids: Label ids; blanks are skipped.

        Returns:
            The text, with single spaces between words.
        """
        spoken = "".join(f" {token}" for token in (self.tokens[i] for i in ids if i != 0)).replace(" ▁", "\n")
        words = [tuple(word.split()) for word in spoken.strip().split("\n") if word.strip()]
        return " ".join(self._words.get(phones, "-".join(phones)) for phones in words)

    def _encode(self, text: str) -> list[int]:
        return [label for word in text.split() for label in self._labels[word][0]]

    def _missing(self, text: str) -> list[str]:
        return [word for word in dict.fromkeys(text.split()) if word not in self._labels]

    def to_dict(self) -> dict[str, Any]:
        """Give everything that decides what an id means, the lexicon included.

        Returns:
            The content of units.json.
        """
        return {**super().to_dict(), "lexicon": self.lexicon}


def _marked(phones: Sequence[str]) -> list[str]:
    return [f"▁{phones[0]}", *phones[1:]]


def load_units(directory: str | Path) -> Units:
    """Read the units that `Units.save` wrote.

    Args:
        directory: The folder with units.json.

    Returns:
        The units.

    Raises:
        WildCTCError: There are none, or a file is damaged or belongs to other units.
    """
    from wildctc.files import read_bytes, read_json

    directory = Path(directory)
    path = directory / "units.json"
    if not path.exists():
        raise WildCTCError(f"no units in {directory}: no units.json there")
    stored = read_json(path, _LARGEST_FILE)
    try:
        normalizer = Normalizer.from_dict(stored["normalizer"])
        units: Units
        if stored["kind"] == SentencePieceUnits.kind:
            units = SentencePieceUnits(read_bytes(directory / "spm.model", _LARGEST_FILE), normalizer)
        elif stored["kind"] == PhoneUnits.kind:
            units = PhoneUnits(stored["tokens"], normalizer, stored["lexicon"])
        else:
            units = CharUnits(stored["tokens"], normalizer)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:  # the last is SentencePiece's
        raise WildCTCError(f"{path} is not a units file, or spm.model is damaged: {error!r}") from None
    if units.to_dict() != stored:
        raise WildCTCError(f"{directory}: units.json and spm.model do not belong together; save the units again")
    return units


def name_characters(characters: Iterable[str]) -> str:
    """Name characters for a message, so that a reader can tell them apart.

    Args:
        characters: Single characters.

    Returns:
        Each one with its code point; of those that cannot be seen, the code point alone. Words are given as they are.

    >>> name_characters(["é", "\u200d"])
    'é (U+00E9), U+200D'
    """

    def name(char: str) -> str:
        if len(char) > 1:
            return repr(char)
        code = f"U+{ord(char):04X}"
        return f"{char} ({code})" if unicodedata.category(char)[0] in "LNPS" else code

    return ", ".join(name(char) for char in characters)


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtra("sentencepiece", "train") from None
    return sentencepiece
