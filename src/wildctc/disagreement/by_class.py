"""Count disputed units, and measure whether the bypass probability is higher where annotators disagree.

Units are pooled over all utterances, and over the utterances of each language and split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wildctc.disagreement.dissent import Disagreement, UnitDissent, disagreements
from wildctc.disagreement.transcripts import Annotated
from wildctc.errors import WildCTCError
from wildctc.probe.records import ProbedUtterance, read_probe
from wildctc.scoring.bootstrap import RESAMPLES
from wildctc.scoring.class_means import ClassMeans, compare_means
from wildctc.scoring.comparison import tell_apart

UNIT_KINDS = ("characters", "words", "insertions")
AGREED, DISPUTED, UNANIMOUS = 0, 1, 2  # classes of units; class 2 + d: disputed, changed by d annotators


@dataclass(frozen=True)
class ProbedSystem:
    """What the probe of one system says about each utterance.

    Attributes:
        name: The system's name.
        self_loop: The self-loop weight of its probe; None for no self-loops.
        values: Utterance id → kind of units → (units,) values; None if the probe has no values of this kind.
    """

    name: str
    self_loop: float | None
    values: dict[str, dict[str, np.ndarray | None]]


@dataclass(frozen=True)
class Group:
    """The utterances of one language or split, their units by class, and the means of the systems.

    Attributes:
        language: The language; None for all.
        split: The split; None for all.
        found: The disagreement of each utterance.
        counts: Kind of units → (classes,) number of units.
        compared: Kind of units → means of the systems by class.
    """

    language: str | None
    split: str | None
    found: list[Disagreement]
    counts: dict[str, np.ndarray]
    compared: dict[str, ClassMeans]

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.language, self.split))) or "all"


@dataclass(frozen=True)
class Disputes:
    """Everything that `wildctc disagree` reports.

    Attributes:
        groups: All utterances, then each language and split, if there are several.
        systems: The probed systems; the first is the baseline.
        classes: The names of the classes of units, in the order of `Group.counts` and `Group.compared`.
        annotators: How many annotators there are.
        left_out: Utterance id → why it was skipped.
        resamples: Bootstrap resamples.
    """

    groups: list[Group]
    systems: list[ProbedSystem]
    classes: list[str]
    annotators: int
    left_out: dict[str, str]
    resamples: int


def find_disputes(
    utterances: Sequence[Annotated],
    systems: Sequence[ProbedSystem] = (),
    left_out: dict[str, str] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Disputes:
    """Count disputed units and compare the systems on them.

    Args:
        utterances: References with two or more transcripts.
        systems: The probes to compare. An utterance that a system did not probe is skipped.
        left_out: Utterances that were skipped before, with the reason.
        resamples: Bootstrap resamples.
        seed: Seed of the bootstrap.

    Returns:
        Counts and comparisons by group.

    Raises:
        WildCTCError: No utterance remains.
    """
    left_out = dict(left_out or {})
    for system in systems:
        left_out |= {u.id: f"not probed by {system.name}" for u in utterances if u.id not in system.values}
    utterances = [u for u in utterances if u.id not in left_out]
    if not utterances:
        raise WildCTCError("no utterance is left that has two transcripts and was probed by every system")
    found = disagreements([u.reference for u in utterances], [list(u.transcripts.values()) for u in utterances])
    most = max(one.annotators for one in found)
    kinds = [
        kind
        for kind in UNIT_KINDS
        if systems and all(s.values[u.id][kind] is not None for s in systems for u in utterances)
    ]
    counts = {kind: _sums([_classes(getattr(one, kind)) for one in found], most) for kind in UNIT_KINDS}
    sums = {kind: _system_sums(kind, utterances, found, systems, most) for kind in kinds}
    groups = []
    for language, split in _group_keys(utterances):
        chosen = [i for i, u in enumerate(utterances) if language in (None, u.language) and split in (None, u.split)]
        compared = {
            kind: compare_means(
                counts[kind][chosen], sums[kind][:, chosen], ratio=(DISPUTED, AGREED), resamples=resamples, seed=seed
            )
            for kind in kinds
        }
        totals = {kind: counts[kind][chosen].sum(axis=0).astype(int) for kind in UNIT_KINDS}
        groups.append(Group(language, split, [found[i] for i in chosen], totals, compared))
    annotators = len({annotator for u in utterances for annotator in u.transcripts})
    classes = ["agreed", "disputed", "unanimous", *(f"d={d}" for d in range(1, most + 1))]
    return Disputes(groups, list(systems), classes, annotators, left_out, resamples)


def _group_keys(utterances: Sequence[Annotated]) -> list[tuple[str | None, str | None]]:
    """All; then each language, each split and each split of each language, where there are several."""
    languages = sorted({u.language for u in utterances if u.language})
    splits = sorted({u.split for u in utterances if u.split})
    keys: list[tuple[str | None, str | None]] = [(None, None)]
    keys += [(language, None) for language in languages if len(languages) > 1]
    keys += [(None, split) for split in splits if len(splits) > 1]
    both = sorted({(u.language, u.split) for u in utterances if u.language and u.split})
    return keys + [pair for pair in both if len(languages) > 1 and len(splits) > 1]


def _classes(units: UnitDissent) -> np.ndarray:
    """(units,): agreed, unanimous, or 2 + d of a disputed one."""
    return np.where(units.unanimous, UNANIMOUS, np.where(units.dissent > 0, UNANIMOUS + units.dissent, AGREED))


def _sums(classes: Sequence[np.ndarray], most: int, values: Sequence[np.ndarray] | None = None) -> np.ndarray:
    """Units of each class, or sums of their values: (utterances, classes)."""
    width = UNANIMOUS + most + 1
    utterance = np.repeat(np.arange(len(classes)), [len(units) for units in classes])
    weights = None if values is None else np.concatenate(values)
    flat = np.bincount(utterance * width + np.concatenate(classes), weights, minlength=len(classes) * width)
    sums = flat.reshape(len(classes), width).astype(float)
    sums[:, DISPUTED] = sums[:, UNANIMOUS + 1 :].sum(axis=1)
    return sums


def _system_sums(
    kind: str,
    utterances: Sequence[Annotated],
    found: Sequence[Disagreement],
    systems: Sequence[ProbedSystem],
    most: int,
) -> np.ndarray:
    """(systems, utterances, classes)."""
    classes = [_classes(getattr(one, kind)) for one in found]
    sums = []
    for system in systems:
        values = [system.values[u.id][kind] for u in utterances]
        sums.append(_sums(classes, most, [v for v in values if v is not None]))
    return np.stack(sums)


# --------------------------------------------------------------------------------------------------------------- probes


def read_systems(paths: Sequence[str | Path], utterances: Sequence[Annotated]) -> list[ProbedSystem]:
    """Read the probes of several systems.

    A character has the bypass probability of its token. A place between characters has an expected number of unwritten
    sounds only if tokens are single characters and the probe's graph has self-loops.

    Args:
        paths: Probe files.
        utterances: The references; probed utterances that are not among them are ignored.

    Returns:
        One system for each file, in the same order.

    Raises:
        WildCTCError: Self-loop weights or transcripts differ, or a file has none of the utterances.
    """
    references = {u.id: u.reference for u in utterances}
    systems = []
    for path, name in zip(paths, tell_apart([Path(path) for path in paths]), strict=True) if paths else ():
        settings, probed = read_probe(path)
        self_loop = settings.get("self_loop")
        values = {}
        for utterance in probed:
            if utterance.id in references:
                values[utterance.id] = _values(utterance, references[utterance.id], path, self_loop is not None)
        if not values:
            raise WildCTCError(f"{path}: none of its utterances is in the reference with two transcripts")
        systems.append(ProbedSystem(name, self_loop, values))
        if self_loop != systems[0].self_loop:
            raise WildCTCError(
                f"{paths[0]} and {path} were probed with different self-loop weights ({systems[0].self_loop} and "
                f"{self_loop}), which cannot be compared: probe again"
            )
    return systems


def _values(
    probed: ProbedUtterance, reference: str, path: str | Path, self_loops: bool
) -> dict[str, np.ndarray | None]:
    where = f"{path}: utterance {probed.id}"
    if probed.text != reference:
        raise WildCTCError(
            f"{where}: probed was {probed.text[:30]!r}…, the reference is {reference[:30]!r}…: "
            "give the same transcript, normalised alike (--lower, --strip-punctuation)"
        )
    characters = np.full(len(reference), np.nan)
    for token in probed.tokens:
        characters[token.begin : token.stop] = token.bypass
    words = np.array([word.bypass for word in probed.words])
    if np.isnan(characters).any() or [word.text for word in probed.words] != reference.split():
        raise WildCTCError(f"{where}: its tokens or words do not make up the transcript; probe it again")
    single = [(token.begin, token.stop) for token in probed.tokens] == [(i, i + 1) for i in range(len(reference))]
    return {
        "characters": characters,
        "words": words,
        "insertions": np.array(probed.gaps) if single and self_loops else None,
    }
