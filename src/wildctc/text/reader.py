"""Read the transcript of an utterance, or several, with alternatives and variants, into one form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from wildctc.errors import WildCTCError
from wildctc.lattice.slots import aligned_slots
from wildctc.text.alternatives import MOST, Slot, Writings, has_grammar, parse_text
from wildctc.text.normalisation import Normalizer
from wildctc.text.variants import Variants, Words


@dataclass(frozen=True)
class Reader:
    """Reads the transcript of an utterance, or several, into one form: a normalised text, or `Writings`.

    Attributes:
        normalizer: Applied to every alternative.
        variants: Words that are the same word, written differently; None: each is its own.
        shares: Whether alternatives of several transcripts have the logarithm of their share of the transcripts as
            weight. If not, it is 0.

    >>> read = Reader(Normalizer(lower=True), Variants.of(["colour", "color"]))
    >>> str(read("The colour {grey|GRAY}")), read("The sky")
    ('the {colour|color} {grey|gray}', 'the sky')
    >>> str(read("", ["The colour", "the collar", "color"]))
    '{the|} {colour|color|collar}'
    """

    normalizer: Normalizer
    variants: Variants | None = None
    shares: bool = False

    def __call__(self, text: str, texts: Sequence[str] = ()) -> str | Writings:
        """Read a transcript.

        Args:
            text: The transcript.
            texts: Several transcripts of the utterance, which are read in its place if there are any.

        Returns:
            The normalised text if there is only one writing; otherwise all writings.

        Raises:
            WildCTCError: A transcript does not follow the grammar. The message names the column.
        """
        given = list(texts) or [text]
        if len(given) == 1 and not has_grammar(given[0]):
            normal = self.normalizer(given[0])
            if self.variants is None or not self.variants.touch(normal):
                return normal
        parsed = [parse_text(one, self.normalizer) for one in given]
        found = self._aligned(parsed) if len(parsed) > 1 else parsed[0]
        if self.variants is not None and len(parsed) == 1:
            found = _with_variants(found, self.variants)
        return found.first if found.plain else found

    def _aligned(self, parsed: Sequence[Writings]) -> Writings:
        """Align several transcripts word by word; the words of a phrase that has variants count as one."""
        for number, writings in enumerate(parsed):
            if not writings.plain:
                raise WildCTCError(
                    f"transcript {number + 1} of {len(parsed)} has alternatives in braces; where an utterance has "
                    "several transcripts, list each writing as one of them, or use a file of variants"
                )
        variants = self.variants or Variants()
        units = [list(variants.units(writings.first.split())) for writings in parsed]
        own = iter(units[0])
        slots = []
        for slot in aligned_slots([[variants.representative(unit) for unit in row] for row in units]):
            found: dict[Words, float] = {}
            for n, (words, count) in enumerate(slot.items()):
                written = next(own) if n == 0 and words else words  # as the first transcript writes it
                weight = math.log(count / len(parsed)) if self.shares else 0.0
                for other in variants.of_phrase(written):
                    found.setdefault(other, weight)
            slots.append(Slot(tuple(found), tuple(found.values())))
        return Writings(tuple(slots))


def _with_variants(found: Writings, variants: Variants) -> Writings:
    """Add the variants of every word and phrase."""
    slots: list[Slot] = []
    run: list[str] = []  # words of neighbouring slots that have no alternatives: a phrase may go over several

    def end_run() -> None:
        for unit in variants.units(run):
            several = variants.of_phrase(unit)
            slots.append(Slot(several, (0.0,) * len(several)))
        run.clear()

    for slot in found.slots:
        if len(slot.alternatives) == 1:
            run += slot.alternatives[0]
            continue
        end_run()
        several: dict[Words, float] = {}
        for words, weight in zip(slot.alternatives, slot.weights, strict=True):
            each = [variants.of_phrase(unit) for unit in variants.units(words)]
            if math.prod(map(len, each)) > MOST:
                each = [(unit,) for unit in variants.units(words)]
            for parts in product(*each):
                several.setdefault(tuple(word for part in parts for word in part), weight)
        slots.append(Slot(tuple(several), tuple(several.values())))
    end_run()
    return Writings(tuple(slots))
