"""Is one system better than another? Error rates side by side, relative change, and how sure that change is.

The interval is a paired bootstrap: utterances are drawn with replacement, the same draw for all systems, so that what
makes an utterance hard for every one of them drops out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np

from .errors import WildCTCError
from .scoring import AS_WRITTEN, Decoded, Errors, Score, UtteranceScore, name_some, read_hyps, score, table
from .text import Normalizer


@dataclass(frozen=True)
class Change:
    """Relative change of an error rate against the first system (−0.05: 5% fewer errors), and its 95% interval."""

    relative: float
    low: float
    high: float


@dataclass(frozen=True)
class System:
    """A row of a comparison; the first has nothing to be compared with."""

    name: str
    words: Errors
    characters: Errors
    wer_change: Change | None
    cer_change: Change | None


@dataclass(frozen=True)
class Comparison:
    """Systems on one test set; `print(comparison)` gives the table."""

    test_set: str
    utterances: int
    resamples: int
    systems: tuple[System, ...]

    def __str__(self) -> str:
        first = self.systems[0]
        title = f"{self.test_set}: " if self.test_set else ""
        title += f"{self.utterances:,} utterances, {first.words.reference:,} words"
        rows = [
            [s.name, f"{s.words.rate:.2%}", *_cells(s.wer_change), f"{s.characters.rate:.2%}", *_cells(s.cer_change)]
            for s in self.systems
        ]
        if len(self.systems) == 1:
            return f"{title}\n\n{table(['system', 'WER', 'CER'], [[row[0], row[1], row[4]] for row in rows])}"
        header = ["system", "WER", "change", "95% interval", "CER", "change", "95% interval"]
        note = f"change: relative to {first.name}; * where the interval leaves out 0\n"
        note += f"interval: paired bootstrap over utterances, {self.resamples:,} resamples"
        return f"{title}\n\n{table(header, rows)}\n\n{note}"


def compare(
    systems: Mapping[str, Iterable[Decoded]],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
    *,
    test_set: str = "",
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare systems on one test set: error rates, change against the first, and how sure that change is.

    The interval holds 95% of the changes that come out when the test set's utterances are drawn again with
    replacement, the same draw for all systems. They must have decoded the same utterances.

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
    change: relative to ctc; * where the interval leaves out 0
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
        by_id = {u.id: u for u in score(items, references, normalizer).utterances}
        scores.append(Score(tuple(by_id[id] for id in ids)))
    changes = _changes(scores, resamples, seed)
    rows = (System(name, s.words, s.characters, *c) for name, s, c in zip(decoded, scores, changes, strict=True))
    return Comparison(test_set, len(ids), resamples, tuple(rows))


def compare_files(
    paths: Sequence[str | Path],
    references: Mapping[str, Sequence[str]] | None = None,
    normalizer: Normalizer = AS_WRITTEN,
) -> list[Comparison]:
    """Compare hypothesis files (one test set), or run directories: one comparison for each RUN/hyp/TEST_SET.jsonl."""
    sources = [Path(path) for path in paths]
    names = tell_apart(sources)
    if not any(source.is_dir() for source in sources):
        stems = {source.stem for source in sources}
        title = stems.pop() if len(stems) == 1 else ""
        systems = {name: read_hyps(source) for name, source in zip(names, sources, strict=True)}
        return [compare(systems, references, normalizer, test_set=title)]
    found = {name: _hyps_of_run(source) for name, source in zip(names, sources, strict=True)}
    comparisons = []
    for test_set in sorted(set().union(*found.values())):
        lacking = [name for name in names if test_set not in found[name]]
        if lacking:
            raise WildCTCError(f"{', '.join(lacking)} did not decode {test_set}, but others did: decode it there too")
        systems = {name: read_hyps(hyps[test_set]) for name, hyps in found.items()}
        comparisons.append(compare(systems, references, normalizer, test_set=test_set))
    return comparisons


def _hyps_of_run(run: Path) -> dict[str, Path]:
    if not run.is_dir():
        raise WildCTCError(f"{run}: not a run directory: compare runs with runs, or hypothesis files with each other")
    hyps = {path.stem: path for path in sorted((run / "hyp").glob("*.jsonl"))}
    if not hyps:
        raise WildCTCError(f"{run}: nothing decoded yet (no {run / 'hyp'}/*.jsonl): run wildctc decode first")
    return hyps


def tell_apart(paths: Sequence[Path]) -> list[str]:
    """What tells the paths apart: a/ctc/dev.jsonl and a/otc/dev.jsonl are "ctc" and "otc"."""
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
    """How many leading parts are the same in all."""
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
    """For systems that bring their own references."""
    (first, items), *others = decoded.items()
    expected = {item.id: {normalizer(text) for text in item.references} for item in items}
    for name, theirs in others:
        for item in theirs:
            if {normalizer(text) for text in item.references} != expected[item.id]:
                raise WildCTCError(
                    f"{first} and {name} have different references for utterance {item.id}: give --reference"
                )


def _changes(scores: Sequence[Score], resamples: int, seed: int) -> list[tuple[Change | None, Change | None]]:
    """Word and character changes of each system against the first."""
    counts = np.array([[_counts(utterance) for utterance in s.utterances] for s in scores], dtype=np.float64)
    observed = _relative_changes(counts.sum(axis=1))
    resampled = _relative_changes(_resample(counts, resamples, seed))
    # A value that occurred, not an interpolation between two: next to an infinity that would be NaN.
    low, high = np.quantile(resampled, [0.025, 0.975], axis=0, method="inverted_cdf")
    words, characters = np.stack([observed, low, high], axis=-1).transpose(1, 0, 2).tolist()
    pairs = zip(words[1:], characters[1:], strict=True)
    return [(None, None), *((Change(*word), Change(*character)) for word, character in pairs)]


def _counts(utterance: UtteranceScore) -> tuple[int, int, int, int]:
    words, characters = utterance.words, utterance.characters
    return words.total, words.reference, characters.total, characters.reference


def _resample(counts: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Totals (resamples, systems, 4) of counts (systems, utterances, 4), over utterances drawn with replacement.

    How often each utterance was drawn, times its counts: one product for all systems, so that they share the draw.
    Some rows at a time, to stay within the cache. einsum and not @: so thin a product is faster without BLAS threads.
    """
    utterances = counts.shape[1]
    per_utterance = np.ascontiguousarray(counts.transpose(0, 2, 1))
    rng = np.random.default_rng(seed)
    rows = max(1, 200_000 // utterances)
    totals = []
    for start in range(0, resamples, rows):
        n = min(rows, resamples - start)
        drawn = rng.integers(utterances, size=(n, utterances), dtype=np.int32) + np.arange(n)[:, None] * utterances
        times = np.bincount(drawn.ravel(), minlength=n * utterances).reshape(n, utterances)
        totals.append(np.einsum("ru,scu->rsc", times.astype(np.float64), per_utterance))
    return np.concatenate(totals)


def _relative_changes(totals: np.ndarray) -> np.ndarray:
    """(…, systems, 4) to (…, systems, 2): 0 where both have no errors, infinite where only the first has none."""
    rates = totals[..., 0::2] / np.maximum(totals[..., 1::2], 1)
    base = rates[..., :1, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rates == base, 0.0, rates / base - 1)


def _cells(change: Change | None) -> list[str]:
    if change is None:
        return ["", ""]
    mark = " *" if change.low > 0 or change.high < 0 else "  "
    return [_percent(change.relative), f"{_percent(change.low)} … {_percent(change.high):>6}{mark}"]


def _percent(value: float) -> str:
    return f"{value:+.1%}" if math.isfinite(value) else "+∞"
