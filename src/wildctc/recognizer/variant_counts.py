"""How often each variant is written and how often it is spoken: a dictionary of what people say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from wildctc.corpora.preparation import Rejects
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.recognizer.batch import logits_batches
from wildctc.recognizer.choices import Chosen, choose_writings
from wildctc.recognizer.model import Recognizer
from wildctc.scoring.error_rates import levenshtein
from wildctc.scoring.nearest import nearest_writing
from wildctc.scoring.transcripts import read_transcripts
from wildctc.terminal import table
from wildctc.text.alternatives import Writings, every_word
from wildctc.text.reader import Reader
from wildctc.text.units import name_characters

_NOTHING = "(nothing)"


@dataclass
class VariantCounts:
    """What was counted.

    Attributes:
        groups: Alternatives that stood in one place → for each of them how often it was written, and the expected
            number of times that it was spoken.
        annotators: Annotator → the places with alternatives, and the expected number of those in which what the
            annotator wrote was spoken.
        utterances: Utterances with alternatives.
        places: Places with alternatives.
    """

    groups: dict[tuple[str, ...], dict[str, list[float]]] = field(default_factory=dict)
    annotators: dict[str, list[float]] = field(default_factory=dict)
    utterances: int = 0
    places: int = 0

    def add(self, utterance: Utterance, writings: Writings, chosen: Chosen, reader: Reader) -> None:
        """Add an utterance.

        Args:
            utterance: The utterance.
            writings: All its writings.
            chosen: The probabilities of its alternatives.
            reader: What has read its transcripts.
        """
        self.utterances += 1
        self.places += len(chosen.choices)
        for choice in chosen.choices:
            counts = self.groups.setdefault(tuple(sorted(choice.alternatives)), {})
            for number, (text, probability) in enumerate(zip(choice.alternatives, choice.probabilities, strict=True)):
                row = counts.setdefault(text, [0, 0.0])
                row[0] += number == 0
                row[1] += probability
        for name, text in zip(utterance.annotators, utterance.texts, strict=False):
            words = reader.normalizer(text).split()
            numbers = nearest_writing(writings, words, levenshtein().distance)
            wrote = [n for n, slot in zip(numbers, writings.slots, strict=True) if len(slot.alternatives) > 1]
            row = self.annotators.setdefault(name, [0, 0.0])
            row[0] += len(wrote)
            row[1] += sum(choice.probabilities[n] for choice, n in zip(chosen.choices, wrote, strict=True))

    def sorted_groups(self) -> list[list[tuple[str, int, float]]]:
        """List all variants, groups that occur most first, and in a group the most spoken.

        Returns:
            For each group its variants, with how often each was written and how often it was spoken.
        """
        groups = [[(text, int(row[0]), row[1]) for text, row in counts.items()] for counts in self.groups.values()]
        groups.sort(key=lambda group: -sum(written for _, written, _ in group))
        return [sorted(group, key=lambda row: -row[2]) for group in groups]

    def to_tsv(self) -> str:
        """Format all variants as tab-separated values.

        Returns:
            A header and a line for each variant.
        """
        lines = [
            f"{number}\t{text}\t{written}\t{spoken:.3f}\n"
            for number, group in enumerate(self.sorted_groups(), start=1)
            for text, written, spoken in group
        ]
        return "group\tvariant\twritten\tspoken\n" + "".join(lines)

    def to_text(self, most: int) -> str:
        """Format the counts for a terminal.

        Args:
            most: The most groups to show.

        Returns:
            A table of variants, and one of annotators if there are any.
        """
        cells = []
        for group in self.sorted_groups()[:most]:
            total = sum(written for _, written, _ in group)
            for number, (text, written, spoken) in enumerate(group):
                name = "  " * (number > 0) + (text or _NOTHING)
                cells.append([name, f"{written:,}", f"{spoken:,.1f}", f"{spoken / total:.0%}"])
        head = f"{self.places:,} places with alternatives in {self.utterances:,} utterances"
        parts = [head, table(["variant", "written", "spoken", "share"], cells)]
        if len(self.groups) > most:
            parts.append(f"and {len(self.groups) - most:,} groups more: see -o and --most")
        if self.annotators:
            people = [
                [name, f"{int(places):,}", f"{spoken / max(1, places):.1%}"]
                for name, (places, spoken) in self.annotators.items()
            ]
            parts.append(table(["annotator", "places", "writing spoken"], people))
        return "\n\n".join(parts)


def count_variants(
    model: Recognizer,
    utterances: Sequence[Utterance],
    reader: Reader,
    *,
    cache: str | Path | None = None,
    workers: int = 1,
    max_bad: float = 0.01,
) -> VariantCounts:
    """Count the alternatives of transcripts. Utterances that cannot be used are reported and skipped.

    Args:
        model: The recogniser.
        utterances: The utterances.
        reader: Reads the transcripts.
        cache: A folder of computed features; None computes them.
        workers: Data-loading processes.
        max_bad: The share of utterances that may be skipped.

    Returns:
        The counts.

    Raises:
        WildCTCError: No transcript has alternatives, or too many utterances were skipped.
    """
    rejects, usable = Rejects(max_bad), []
    read = read_transcripts(utterances, reader)
    several = {id: found for id, found in read.items() if isinstance(found, Writings)}
    if not several:
        raise WildCTCError("no transcript has alternatives: is there any word of the --lexicon in them?")
    for utterance in (u for u in utterances if u.id in several):
        if outside := model.units.missing(every_word(several[utterance.id])):
            rejects.add(UtteranceError(utterance, f"characters outside the units: {name_characters(outside)}"))
        else:
            usable.append(utterance)
    counts = VariantCounts()
    batches = logits_batches(model, usable, rejects, cache=cache, workers=workers, title="listening")
    for utterance, logits in chain.from_iterable(batches):
        try:
            [chosen] = choose_writings(model.units, [several[utterance.id]], [logits])
            if chosen is None:
                raise WildCTCError("transcript too long for its audio in all its writings")
            counts.add(utterance, several[utterance.id], chosen, reader)
        except WildCTCError as error:
            rejects.add(UtteranceError(utterance, str(error)))
    rejects.check(len(several))
    return counts
