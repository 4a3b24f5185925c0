"""Word and character error rates.

Errors are counted for each utterance and then summed, so that a comparison can draw utterances with replacement. A
character is a Unicode code point of the normalised text, and the space is one of them. A word is what stands between
spaces.

A reference may have alternatives (`wildctc.text.alternatives`). Errors are counted against the writing that is nearest
to the hypothesis, place by place; the rate divides them by the length of the first writing, which all systems share.

A reference may be empty: each word of the hypothesis is then an insertion, and the reference adds no words to the
denominator. If no reference has any words, the errors are divided by one, as jiwer does: the rate is 0 if nothing was
written, and otherwise the number of insertions.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.scoring.hypotheses import Decoded
from wildctc.scoring.nearest import nearest_writing
from wildctc.terminal import name_some, table
from wildctc.text.alternatives import Writings
from wildctc.text.normalisation import Normalizer
from wildctc.text.reader import Reader
from wildctc.text.variants import Variants

_log = logging.getLogger(__name__)
AS_WRITTEN = Normalizer()  # NFC and single spaces; case and punctuation count


# ------------------------------------------------------------------------------------------------------------- counting


@dataclass(frozen=True, slots=True)
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
    references: Sequence[str | Writings | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer = AS_WRITTEN
) -> Errors:
    """Count word errors, summed over utterances.

    Args:
        references: The text of each utterance, or several texts, of which the nearest counts; or all its writings.
        hypotheses: What was recognised, in the same order.
        normalizer: Applied to both sides.

    Returns:
        The errors; `.rate` is the word error rate.

    >>> wer(["a b c", ["d e", "d f"]], ["a x c", "d f"])
    Errors(substitutions=1, insertions=0, deletions=0, reference=5)
    """
    return _score_texts(references, hypotheses, normalizer).words


def cer(
    references: Sequence[str | Writings | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer = AS_WRITTEN
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
    references: Sequence[str | Writings | Sequence[str]], hypotheses: Sequence[str], normalizer: Normalizer
) -> "Score":
    several: list[Sequence[str | Writings]] = [(r,) if isinstance(r, str | Writings) else tuple(r) for r in references]
    pairs = zip(several, hypotheses, strict=True)
    found = []
    for i, (refs, hyp) in enumerate(pairs):
        candidates = [ref if isinstance(ref, Writings) else normalizer(ref) for ref in refs]
        found.append(_score_one(str(i), normalizer(hyp), candidates))
    return Score(tuple(found))


def _score_one(id: str, text: str, references: Sequence[str | Writings]) -> "UtteranceScore":
    """Count against the nearest reference: fewest word edits, then fewest character edits, then the first.

    All texts are normalised.
    """
    if len(references) == 1:
        return _score_against(id, text, references[0])
    scores = [_score_against(id, text, reference) for reference in references]
    return min(scores, key=lambda found: (found.words.total, found.characters.total))


def _score_against(id: str, text: str, reference: "str | Writings") -> "UtteranceScore":
    if isinstance(reference, str):
        words = _count(reference.split(), text.split())
        return UtteranceScore(id, reference, text, words, _count(reference, text))
    chosen = nearest_writing(reference, text.split(), levenshtein().distance)
    nearest, first = reference.choose(chosen), reference.first
    words = replace(_count(nearest.split(), text.split()), reference=len(first.split()))
    characters = replace(_count(nearest, text), reference=len(first))
    slots = sum(len(slot.alternatives) > 1 for slot in reference.slots)
    return UtteranceScore(id, nearest, text, words, characters, slots, sum(number > 0 for number in chosen))


def _count(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    if reference == hypothesis:
        return Errors(reference=len(reference))
    tags = [tag for tag, _, _ in levenshtein().editops(reference, hypothesis).as_list()]
    return Errors(tags.count("replace"), tags.count("insert"), tags.count("delete"), len(reference))


def _sum(errors: Sequence[Errors]) -> Errors:
    """The sum; `Errors` made one by one would take seconds for a million utterances."""
    kinds = [[getattr(e, field.name) for e in errors] for field in fields(Errors)]
    return Errors(*map(sum, kinds))


@cache
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


@dataclass(frozen=True, slots=True)
class UtteranceScore:
    """The errors of one utterance.

    Attributes:
        id: The utterance.
        reference: The reference, normalised; the nearest one if there are several.
        text: The hypothesis, normalised.
        words: Word errors.
        characters: Character errors.
        slots: The places of the reference that have alternatives.
        variants: In how many of them another alternative than the first is nearest.
    """

    id: str
    reference: str
    text: str
    words: Errors
    characters: Errors
    slots: int = 0
    variants: int = 0


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
        return _sum([u.words for u in self.utterances])

    @cached_property
    def characters(self) -> Errors:
        """Character errors of all utterances."""
        return _sum([u.characters for u in self.utterances])

    @property
    def wer(self) -> float:
        """The word error rate, as a fraction."""
        return self.words.rate

    @property
    def cer(self) -> float:
        """The character error rate, as a fraction."""
        return self.characters.rate

    @property
    def with_alternatives(self) -> int:
        """How many references have alternatives."""
        return sum(u.slots > 0 for u in self.utterances)

    @property
    def variant_chosen(self) -> int:
        """Of how many references another writing than the first was nearest."""
        return sum(u.variants > 0 for u in self.utterances)

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
        if self.with_alternatives:
            summary |= {"with_alternatives": self.with_alternatives, "variant_chosen": self.variant_chosen}
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
        title = f"{len(self.utterances):,} utterances, {wrong:,} of them ({share}) with errors"
        if several := self.with_alternatives:
            chosen = f"{self.variant_chosen:,} of them ({self.variant_chosen / several:.1%})"
            title += f"\nwith alternatives: {several:,} of {len(self.utterances):,} references; "
            title += f"another writing than the first was nearest in {chosen}"
        return f"{title}\n\n{table(header, rows)}"


def score(
    decoded: Iterable[Decoded],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
    variants: Variants | None = None,
) -> Score:
    """Score hypotheses against references.

    References without a hypothesis are skipped with a warning: the file may contain other splits too, or utterances
    whose audio could not be decoded.

    Args:
        decoded: The hypotheses, one for each utterance.
        references: Texts by utterance id; of several texts the nearest counts. None: the hypotheses' own references.
            They may have alternatives in braces.
        normalizer: Applied to both sides.
        variants: Words of references that are the same, written differently.

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
    reader = Reader(normalizer, None if variants is None else variants.normalised(normalizer))
    found = ((h, _candidates(h.id, references[h.id], reader)) for h in hypotheses)
    return Score(tuple(_score_one(h.id, normalizer(h.text), candidates) for h, candidates in found))


def _candidates(id: str, references: Sequence[str], reader: Reader) -> list[str | Writings]:
    try:
        return [reader(reference) for reference in references]
    except WildCTCError as error:
        raise WildCTCError(f"the reference of utterance {id}, {error}") from None
