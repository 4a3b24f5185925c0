"""Word and character error rates.

Errors are counted for each utterance and then summed, so that a comparison can draw utterances with replacement. A
character is a Unicode code point of the normalised text, and the space is one of them. A word is what stands between
spaces.

A reference may be empty: each word of the hypothesis is then an insertion, and the reference adds no words to the
denominator. If no reference has any words, the errors are divided by one, as jiwer does: the rate is 0 if nothing was
written, and otherwise the number of insertions.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.scoring.hypotheses import Decoded
from wildctc.terminal import name_some, table
from wildctc.text.normalisation import Normalizer

_log = logging.getLogger(__name__)
AS_WRITTEN = Normalizer()  # NFC and single spaces; case and punctuation count


# ------------------------------------------------------------------------------------------------------------- counting


@dataclass(frozen=True)
class Errors:
    """Edits that turn a reference into a hypothesis. All numbers are of words, or all of characters.

    Attributes:
        substitutions: Tokens of the reference that are another token in the hypothesis.
        insertions: Tokens of the hypothesis without a token in the reference.
        deletions: Tokens of the reference without a token in the hypothesis.
        reference: The length of the reference.

    >>> errors = Errors(substitutions=1, insertions=0, deletions=1, reference=8)
    >>> errors.total, errors.rate
    (2, 0.25)
    """

    substitutions: int = 0
    insertions: int = 0
    deletions: int = 0
    reference: int = 0

    @property
    def total(self) -> int:
        """All edits."""
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Edits divided by the reference's length; the top of this module says what an empty reference gives."""
        return self.total / max(self.reference, 1)

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            self.substitutions + other.substitutions,
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.reference + other.reference,
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the counts and the rate as an object for JSON.

        Returns:
            The rate, the number of errors, and each kind of edit.
        """
        return {"rate": self.rate, "errors": self.total, **asdict(self)}


def wer(
    references: Sequence[str | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer = AS_WRITTEN
) -> Errors:
    """Count word errors, summed over utterances.

    Args:
        references: The text of each utterance, or several texts, of which the nearest counts.
        hypotheses: What was recognised, in the same order.
        normalizer: Applied to both sides.

    Returns:
        The errors; `.rate` is the word error rate.

    >>> wer(["a b c", ["d e", "d f"]], ["a x c", "d f"])
    Errors(substitutions=1, insertions=0, deletions=0, reference=5)
    """
    return _score_texts(references, hypotheses, normalizer).words


def cer(
    references: Sequence[str | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer = AS_WRITTEN
) -> Errors:
    """Count character errors, summed over utterances; the space is a character.

    Args:
        references: As in `wer`. Of several texts, the nearest is chosen by words, so that both rates have the same.
        hypotheses: What was recognised, in the same order.
        normalizer: Applied to both sides.

    Returns:
        The errors; `.rate` is the character error rate.

    >>> cer(["madah ka"], ["madahka"])
    Errors(substitutions=0, insertions=0, deletions=1, reference=8)
    """
    return _score_texts(references, hypotheses, normalizer).characters


def _score_texts(
    references: Sequence[str | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer
) -> "Score":
    several = [(r,) if isinstance(r, str) else tuple(r) for r in references]
    pairs = zip(several, hypotheses, strict=True)
    return Score(tuple(_score_one(str(i), hyp, refs, normalizer) for i, (refs, hyp) in enumerate(pairs)))


def _score_one(id: str, text: str, references: Sequence[str], normalizer: Normalizer) -> "UtteranceScore":
    """Count against the nearest reference: fewest word edits, then fewest character edits, then the first."""
    distance = levenshtein().distance
    text = normalizer(text)
    candidates = [normalizer(reference) for reference in references]
    if len(candidates) > 1:
        candidates.sort(key=lambda reference: (distance(reference.split(), text.split()), distance(reference, text)))
    nearest = candidates[0]
    return UtteranceScore(id, nearest, text, _count(nearest.split(), text.split()), _count(nearest, text))


def _count(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    edits = Counter(edit.tag for edit in levenshtein().editops(reference, hypothesis))
    return Errors(edits["replace"], edits["insert"], edits["delete"], len(reference))


def levenshtein() -> Any:
    """Import rapidfuzz's edit distance.

    Returns:
        The module `rapidfuzz.distance.Levenshtein`.

    Raises:
        MissingExtra: rapidfuzz is not installed.
    """
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise MissingExtra("rapidfuzz", "train") from error
    return Levenshtein


# -------------------------------------------------------------------------------------------------------------- scoring


@dataclass(frozen=True)
class UtteranceScore:
    """The errors of one utterance.

    Attributes:
        id: The utterance.
        reference: The reference, normalised; the nearest one if there are several.
        text: The hypothesis, normalised.
        words: Word errors.
        characters: Character errors.
    """

    id: str
    reference: str
    text: str
    words: Errors
    characters: Errors


@dataclass(frozen=True)
class Score:
    """The errors of a test set; `print(score)` shows the rates.

    Attributes:
        utterances: The errors of each utterance.
    """

    utterances: tuple[UtteranceScore, ...]

    @cached_property
    def words(self) -> Errors:
        """Word errors of all utterances."""
        return sum((u.words for u in self.utterances), Errors())

    @cached_property
    def characters(self) -> Errors:
        """Character errors of all utterances."""
        return sum((u.characters for u in self.utterances), Errors())

    @property
    def wer(self) -> float:
        """The word error rate, as a fraction."""
        return self.words.rate

    @property
    def cer(self) -> float:
        """The character error rate, as a fraction."""
        return self.characters.rate

    def to_json(self) -> str:
        """Give everything as JSON; rates are fractions (0.25 is 25%).

        Returns:
            An object with rates and counts of the test set, and `utterances` with those of each.
        """
        per_utterance = [
            {"id": u.id, "reference": u.reference, "text": u.text}
            | {"words": u.words.to_dict(), "characters": u.characters.to_dict()}
            for u in self.utterances
        ]
        summary: dict[str, Any] = {"wer": self.wer, "cer": self.cer}
        summary |= {"words": self.words.to_dict(), "characters": self.characters.to_dict()}
        return json.dumps(summary | {"utterances": per_utterance}, ensure_ascii=False, indent=1)

    def __str__(self) -> str:
        wrong = sum(u.words.total > 0 for u in self.utterances)
        rows = [
            [name, f"{e.rate:.2%}"]
            + [f"{n:,}" for n in (e.total, e.substitutions, e.insertions, e.deletions, e.reference)]
            for name, e in (("words (WER)", self.words), ("characters (CER)", self.characters))
        ]
        header = ["", "rate", "errors", "substituted", "inserted", "deleted", "in reference"]
        share = f"{wrong / max(len(self.utterances), 1):.1%}"
        return f"{len(self.utterances):,} utterances, {wrong:,} of them ({share}) with errors\n\n{table(header, rows)}"


def score(
    decoded: Iterable[Decoded],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
) -> Score:
    """Score hypotheses against references.

    References without a hypothesis are skipped with a warning: the file may contain other splits too, or utterances
    whose audio could not be decoded.

    Args:
        decoded: The hypotheses, one for each utterance.
        references: Texts by utterance id; of several texts the nearest counts. None: the hypotheses' own references.
        normalizer: Applied to both sides.

    Returns:
        The errors of the test set and of each utterance.

    Raises:
        WildCTCError: There are no hypotheses, an utterance has two, or an utterance has no reference.

    >>> result = score([Decoded("u1", "a x c", ("a b c",)), Decoded("u2", "d", ("D", "d"))])
    >>> print(result)
    2 utterances, 1 of them (50.0%) with errors
    <BLANKLINE>
                        rate  errors  substituted  inserted  deleted  in reference
    ──────────────────────────────────────────────────────────────────────────────
    words (WER)       25.00%       1            1         0        0             4
    characters (CER)  16.67%       1            1         0        0             6
    """
    hypotheses = list(decoded)
    if not hypotheses:
        raise WildCTCError("nothing to score: no hypotheses given")
    twice = [id for id, n in Counter(h.id for h in hypotheses).items() if n > 1]
    if twice:
        raise WildCTCError(f"{name_some(twice)} decoded more than once: keep one hypothesis of each")
    if references is None:
        references = {h.id: h.references for h in hypotheses}
    lacking = [h.id for h in hypotheses if not references.get(h.id)]
    if lacking:
        raise WildCTCError(f"no reference for {name_some(lacking)}: give --reference files that have them")
    undecoded = sorted(references.keys() - {h.id for h in hypotheses})
    if undecoded:
        _log.warning("not counted, since there is no hypothesis: %s", name_some(undecoded))
    return Score(tuple(_score_one(h.id, h.text, references[h.id], normalizer) for h in hypotheses))
