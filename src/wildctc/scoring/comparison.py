"""Is one system better than another? Error rates side by side, relative change, and how sure that change is.

The interval comes from a paired bootstrap: utterances are drawn with replacement, the same ones for all systems. So
what makes an utterance hard for all of them cancels out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np

from wildctc.errors import WildCTCError
from wildctc.scoring.bootstrap import RESAMPLES, bootstrap_sums, percentile_interval
from wildctc.scoring.error_rates import AS_WRITTEN, Errors, Score, UtteranceScore, score
from wildctc.scoring.hypotheses import Decoded, read_hyps
from wildctc.terminal import name_some, table
from wildctc.text.alternatives import normalise_text
from wildctc.text.normalisation import Normalizer
from wildctc.text.variants import Variants


@dataclass(frozen=True)
class RelativeChange:
    """The relative change of an error rate against the first system.

    Attributes:
        relative: The change; −0.05 is 5% fewer errors.
        low: The lower end of its 95% interval.
        high: The upper end.
    """

    relative: float
    low: float
    high: float


@dataclass(frozen=True)
class ComparedSystem:
    """A row of a comparison.

    Attributes:
        name: The system.
        words: Its word errors.
        characters: Its character errors.
        wer_change: The change of its word error rate against the first system; None for the first system itself.
        cer_change: The same for its character error rate.
        variant_chosen: Of how many references another writing than the first was nearest.
    """

    name: str
    words: Errors
    characters: Errors
    wer_change: RelativeChange | None
    cer_change: RelativeChange | None
    variant_chosen: int = 0


@dataclass(frozen=True)
class Comparison:
    """Systems on one test set; `print(comparison)` shows the table.

    Attributes:
        test_set: Its name, or "".
        utterances: How many utterances it has.
        resamples: How many times they were drawn for the intervals.
        systems: The systems; the others are compared with the first.
        alternatives: How many references have alternatives.
    """

    test_set: str
    utterances: int
    resamples: int
    systems: tuple[ComparedSystem, ...]
    alternatives: int = 0

    def __str__(self) -> str:
        first = self.systems[0]
        title = f"{self.test_set}: " if self.test_set else ""
        title += f"{self.utterances:,} utterances, {first.words.reference:,} words"
        if self.alternatives:
            chosen = ", ".join(f"{s.name} {s.variant_chosen / self.alternatives:.1%}" for s in self.systems)
            title += f"\nwith alternatives: {self.alternatives:,} of {self.utterances:,} references; "
            title += f"another writing than the first: {chosen}"
        rows = [
            [s.name, f"{s.words.rate:.2%}", *_cells(s.wer_change), f"{s.characters.rate:.2%}", *_cells(s.cer_change)]
            for s in self.systems
        ]
        if len(self.systems) == 1:
            return f"{title}\n\n{table(['system', 'WER', 'CER'], [[row[0], row[1], row[4]] for row in rows])}"
        header = ["system", "WER", "change", "95% interval", "CER", "change", "95% interval"]
        note = f"change: relative to {first.name}; * the interval excludes 0\n"
        note += f"interval: paired bootstrap over utterances, {self.resamples:,} resamples"
        return f"{title}\n\n{table(header, rows)}\n\n{note}"


def compare(
    systems: Mapping[str, Iterable[Decoded]],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
    variants: Variants | None = None,
    *,
    test_set: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare systems on one test set: error rates, the change against the first system, and its 95% interval.

    Args:
        systems: The hypotheses of each system, by its name. All must have decoded the same utterances.
        references: Texts by utterance id; of several texts the nearest counts. None: the hypotheses' own references.
        normalizer: Applied to both sides.
        variants: Words of references that are the same, written differently.
        test_set: A name for the title of the table.
        resamples: How many times the utterances are drawn with replacement for the intervals.
        seed: Of the draws.

    Returns:
        The comparison.

    Raises:
        WildCTCError: Two systems have different utterances or references.

    >>> reference = ("a b c d",)
    >>> ctc = [Decoded("u1", "a x c d", reference), Decoded("u2", "a b y z", reference)]
    >>> otc = [Decoded("u1", "a b c d", reference), Decoded("u2", "a b c z", reference)]
    >>> print(compare({"ctc": ctc, "otc": otc}, test_set="dev", resamples=1000))
    dev: 2 utterances, 8 words
    <BLANKLINE>
    system     WER  change        95% interval     CER  change        95% interval
    ──────────────────────────────────────────────────────────────────────────────
    ctc     37.50%                              21.43%
    otc     12.50%  -66.7%  -100.0% … -50.0% *   7.14%  -66.7%  -100.0% … -50.0% *
    <BLANKLINE>
    change: relative to ctc; * the interval excludes 0
    interval: paired bootstrap over utterances, 1,000 resamples
    """
    if not systems:
        raise WildCTCError("nothing to compare: no systems given")
    decoded = {name: list(items) for name, items in systems.items()}
    _check_same_utterances(decoded)
    if references is None:
        _check_same_references(decoded, normalizer)
    ids = [item.id for item in next(iter(decoded.values()))]
    if references is not None:  # those of this test set, of which there may be several
        references = {id: references.get(id, ()) for id in ids}
    scores = []
    for items in decoded.values():
        by_id = {u.id: u for u in score(items, references, normalizer, variants).utterances}
        scores.append(Score(tuple(by_id[id] for id in ids)))
    changes = _changes(scores, resamples, seed)
    rows = (
        ComparedSystem(name, s.words, s.characters, *c, s.variant_chosen)
        for name, s, c in zip(decoded, scores, changes, strict=True)
    )
    return Comparison(test_set, len(ids), resamples, tuple(rows), scores[0].with_alternatives)


def compare_files(
    paths: Sequence[str | Path],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
    variants: Variants | None = None,
) -> list[Comparison]:
    """Compare hypothesis files of one test set, or run folders.

    Args:
        paths: Hypothesis files, or run folders with hyp/TEST_SET.jsonl.
        references: As in `compare`.
        normalizer: Applied to both sides.
        variants: As in `compare`.

    Returns:
        One comparison for the files, or one for each test set of the runs.

    Raises:
        WildCTCError: A file cannot be read, or the runs have not decoded the same test sets.
    """
    sources = [Path(path) for path in paths]
    names = tell_apart(sources)
    if not any(source.is_dir() for source in sources):
        stems = {source.stem for source in sources}
        title = stems.pop() if len(stems) == 1 else ""
        systems = {name: read_hyps(source) for name, source in zip(names, sources, strict=True)}
        return [compare(systems, references, normalizer, variants, test_set=title)]
    found = {name: _hyps_of_run(source) for name, source in zip(names, sources, strict=True)}
    comparisons = []
    for test_set in sorted(set().union(*found.values())):
        lacking = [name for name in names if test_set not in found[name]]
        if lacking:
            raise WildCTCError(f"{', '.join(lacking)} did not decode {test_set}, but others did: decode it there too")
        systems = {name: read_hyps(hyps[test_set]) for name, hyps in found.items()}
        comparisons.append(compare(systems, references, normalizer, variants, test_set=test_set))
    return comparisons


def _hyps_of_run(run: Path) -> dict[str, Path]:
    if not run.is_dir():
        raise WildCTCError(f"{run}: not a run directory: compare runs with runs, or hypothesis files with each other")
    hyps = {path.stem: path for path in sorted((run / "hyp").glob("*.jsonl"))}
    if not hyps:
        raise WildCTCError(f"{run}: nothing decoded yet (no {run / 'hyp'}/*.jsonl): run wildctc decode first")
    return hyps


def tell_apart(paths: Sequence[Path]) -> list[str]:
    """Name each path by the part in which it differs: a/ctc/dev.jsonl and a/otc/dev.jsonl are "ctc" and "otc".

    Args:
        paths: Files or folders.

    Returns:
        A name for each path.

    Raises:
        WildCTCError: A path is given twice.
    """
    parts = [(*path.resolve().parts[:-1], path.resolve().name.removesuffix(".jsonl")) for path in paths]
    if len(parts) == 1:
        return [parts[0][-1]]
    if len(set(parts)) < len(parts):
        twice = next(path for path, part in zip(paths, parts, strict=True) if parts.count(part) > 1)
        raise WildCTCError(f"{twice}: given twice")
    start = _shared(parts)
    end = _shared([part[start:][::-1] for part in parts])
    return ["/".join(part[start : len(part) - end]) or part[-1] for part in parts]


def _shared(parts: Sequence[tuple[str, ...]]) -> int:
    """Count the leading parts that are the same in all."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False)))


def _check_same_utterances(decoded: Mapping[str, Sequence[Decoded]]) -> None:
    (first, items), *others = decoded.items()
    expected = {item.id for item in items}
    for name, theirs in others:
        found = {item.id for item in theirs}
        for lacking, having, ids in ((name, first, expected - found), (first, name, found - expected)):
            if ids:
                raise WildCTCError(
                    f"{lacking} lacks {name_some(sorted(ids))}, which {having} has: decode the same test set"
                )


def _check_same_references(decoded: Mapping[str, Sequence[Decoded]], normalizer: Normalizer) -> None:
    """Refuse systems whose own references differ."""
    (first, items), *others = decoded.items()
    expected = {item.id: {normalise_text(text, normalizer) for text in item.references} for item in items}
    for name, theirs in others:
        for item in theirs:
            if {normalise_text(text, normalizer) for text in item.references} != expected[item.id]:
                raise WildCTCError(
                    f"{first} and {name} have different references for utterance {item.id}: give --reference"
                )


def _changes(
    scores: Sequence[Score], resamples: int, seed: int
) -> list[tuple[RelativeChange | None, RelativeChange | None]]:
    """The changes of each system's WER and CER against the first system, with intervals."""
    counts = np.array([[_counts(utterance) for utterance in s.utterances] for s in scores], dtype=np.float64)
    columns = counts.transpose(1, 0, 2).reshape(counts.shape[1], -1)  # of utterances: 4 for each system
    observed = _relative_changes(columns.sum(axis=0).reshape(len(scores), 4))
    drawn = _relative_changes(bootstrap_sums(columns, resamples, seed).reshape(resamples, len(scores), 4))
    low, high = percentile_interval(drawn)
    words, characters = np.stack([observed, low, high], axis=-1).transpose(1, 0, 2).tolist()
    pairs = zip(words[1:], characters[1:], strict=True)
    return [(None, None), *((RelativeChange(*word), RelativeChange(*character)) for word, character in pairs)]


def _counts(utterance: UtteranceScore) -> tuple[int, int, int, int]:
    words, characters = utterance.words, utterance.characters
    return words.total, words.reference, characters.total, characters.reference


def _relative_changes(totals: np.ndarray) -> np.ndarray:
    """(…, systems, 4) to (…, systems, 2): 0 where both have no errors, infinite where only the first has none."""
    rates = totals[..., 0::2] / np.maximum(totals[..., 1::2], 1)
    base = rates[..., :1, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rates == base, 0.0, rates / base - 1)


def _cells(change: RelativeChange | None) -> list[str]:
    if change is None:
        return ["", ""]
    mark = " *" if change.low > 0 or change.high < 0 else "  "
    return [_percent(change.relative), f"{_percent(change.low)} … {_percent(change.high):>6}{mark}"]


def _percent(value: float) -> str:
    return f"{value:+.1%}" if math.isfinite(value) else "+∞"
