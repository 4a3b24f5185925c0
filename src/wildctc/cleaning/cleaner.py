"""From a probe and its manifest to a cleaned manifest, a list of the changes, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wildctc.cleaning.plan import Change, Plan, Thresholds, make_plan
from wildctc.corpora.manifest import read_utterances, split_of
from wildctc.corpora.rewriting import Row, keep_utterances, move_audio, set_text, set_weights, write_manifest
from wildctc.corpora.shards import are_shards, is_address
from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.files import check_writable, write_text
from wildctc.json_lines import check_rows_writable
from wildctc.probe.records import NotProbed, ProbedUtterance, stream_probe
from wildctc.terminal import table
from wildctc.text.matching import find_case

_TITLES = {
    "replace": "words replaced",
    "either": "written or heard",
    "remove": "words removed",
    "insert": "words inserted",
}
_COLUMNS = ("id", "action", "before", "after", "score", "reason")


@dataclass
class Cleaned:
    """The result of cleaning a manifest. `print` shows a summary.

    Attributes:
        output: The new manifest.
        written: Whether it was written; a dry run writes nothing.
        changes: All changes, in the order of the manifest. Those of shards are in the list only.
        changed: How many changes there are.
        edits: Of each action, how many utterances it changed, and how many words.
        utterances: How many utterances of the chosen splits were probed and matched.
        words: How many words their transcripts have.
        hours: Their length.
        kept: How many utterances the new manifest has, of all splits.
        dropped_hours: The length of the dropped utterances.
        dropped_words: How many words their transcripts have.
        weighted: How many utterances got weights.
        weights: How many words got weights.
        unknown: How many findings were not applied because what was heard is rare.
        unheard: Ids of utterances that were kept although the model heard next to nothing of them.
        not_probed: Ids of utterances of the chosen splits that were not probed. They are kept as they are.
        refused: Ids of utterances whose transcript is not the one that was probed. They are kept as they are.
        other_splits: How many utterances belong to other splits. They are kept as they are.
    """

    output: Path
    written: bool
    changes: list[Change] = field(default_factory=list)
    changed: int = 0
    edits: dict[str, list[int]] = field(default_factory=dict)
    utterances: int = 0
    words: int = 0
    hours: float = 0.0
    kept: int = 0
    dropped_hours: float = 0.0
    dropped_words: int = 0
    weighted: int = 0
    weights: int = 0
    unknown: int = 0
    unheard: list[str] = field(default_factory=list)
    not_probed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    other_splits: int = 0

    @property
    def review(self) -> Path:
        """The list of changes, beside the manifest or the shards."""
        return review_path(self.output)

    def __str__(self) -> str:
        rows = [["probed", f"{self.utterances:,}", f"{self.words:,}", f"{self.hours:.2f}"]]
        dropped, _ = self.edits.get("drop", (0, 0))
        rows.append(["dropped", f"{dropped:,}", f"{self.dropped_words:,}", f"{self.dropped_hours:.2f}"])
        for action, title in _TITLES.items():
            utterances, words = self.edits.get(action, (0, 0))
            rows.append([title, f"{utterances:,}", f"{words:,}", ""])
        rows.append(["weights written", f"{self.weighted:,}", f"{self.weights:,}", ""])
        for title, count in (
            ("hardly heard, kept", len(self.unheard)),
            ("not probed, kept", len(self.not_probed)),
            ("other transcript, kept", len(self.refused)),
            ("other splits, kept", self.other_splits),
        ):
            rows += [[title, f"{count:,}", "", ""]] if count else []
        lines = [table(["", "utterances", "words", "hours"], rows)]
        if self.unknown:
            lines.append(f"{self.unknown:,} more corrections were not made: what was heard is rare (--known)")
        named = f"{self.output}: {self.kept:,} utterances\n{self.review}: {self.changed:,} changes to review"
        return "\n".join([*lines, named if self.written else "dry run: nothing was written"])

    def note(self, changes: Sequence[Change]) -> None:
        """Count the changes of an utterance.

        Args:
            changes: All of them.
        """
        self.changed += len(changes)
        for action in {change.action for change in changes}:
            counts = self.edits.setdefault(action, [0, 0])
            counts[0] += 1
            counts[1] += sum(len((c.before or c.after).split()) for c in changes if c.action == action)

    def add(self, other: dict[str, Any]) -> None:
        """Add the counts of a part of the corpus.

        Args:
            other: Its fields, as JSON has them.
        """
        for name, value in other.items():
            if name == "edits":
                for action, counts in value.items():
                    both = zip(self.edits.get(action, (0, 0)), counts, strict=True)
                    self.edits[action] = [sum(pair) for pair in both]
            elif name not in ("output", "written", "changes"):
                setattr(self, name, getattr(self, name) + value)


def clean(
    probe: str | Path,
    output: str | Path,
    thresholds: Thresholds | None = None,
    *,
    manifest: str | Path | None = None,
    splits: Collection[str] = ("train",),
    dry_run: bool = False,
) -> Cleaned:
    """Write a manifest that is cleaned by what a probe found, and a list of the changes beside it.

    Args:
        probe: The probe file.
        output: The new manifest, .jsonl or .jsonl.gz.
        thresholds: From which score on something is done; None: the defaults.
        manifest: The manifest that was probed; None: the one that the probe names.
        splits: The splits whose utterances may be changed.
        dry_run: Write nothing.

    Returns:
        What was done.

    Raises:
        WildCTCError: There is nothing that could be done, or a file would be lost or cannot be used.
    """
    probe, output, thresholds = Path(probe), Path(output), thresholds or Thresholds()
    if not thresholds.any:
        raise WildCTCError("nothing to do: every action is switched off")
    source = Path(find_probed(probe, manifest))
    if not dry_run:
        for read in (source, probe):
            check_rows_writable(output, source=read)
            check_writable(review_path(output), source=read)
    rows = list(read_utterances(source))
    result = Cleaned(output, not dry_run)
    plans = _make_plans(probe, _chosen(rows, source, splits, result), thresholds, source, result)
    cleaned = _apply(rows, plans, result)
    if not dry_run:
        for row in cleaned:
            move_audio(row, source, output)
        write_manifest(output, cleaned)
        write_text(result.review, "".join(change_lines(result.changes)))
    return result


def review_path(output: Path) -> Path:
    """Name the list of changes.

    Args:
        output: The new manifest, or the folder of new shards.

    Returns:
        Its path.
    """
    return output.with_name(f"{output.name.removesuffix('.gz').removesuffix('.jsonl')}.changes.tsv")


def find_probed(probe: Path, given: str | Path | None) -> str:
    """Find what was probed, from the working directory or from the probe's folder.

    Args:
        probe: The probe file.
        given: Where the manifest or the shards are now; None: where the probe says.

    Returns:
        The path of the manifest, or the folder or address of the shards.

    Raises:
        WildCTCError: It is not there.
    """
    if given is not None:
        return str(given)
    settings, _ = stream_probe(probe)
    named = settings.get("manifest")
    if not isinstance(named, str):
        raise WildCTCError(f"{probe}: it names no manifest; give the one that was probed with --manifest")
    places = [named] if is_address(named) else [named, str(probe.parent / named)]
    found = next((place for place in places if are_shards(place) or Path(place).is_file()), None)
    if found is None:
        raise WildCTCError(f"{probe}: its manifest {named} is not there; say with --manifest where it is now")
    return found


def _chosen(
    rows: Sequence[tuple[Row, list[Utterance]]], source: Path, splits: Collection[str], result: Cleaned
) -> dict[str, Utterance]:
    """The utterances that may be changed, by id."""
    stem = source.name.removesuffix(".gz").removesuffix(".jsonl")
    found: dict[str, Utterance] = {}
    others = Counter[str]()
    for _, utterances in rows:
        for utterance in utterances:
            split = split_name(utterance, stem)
            if split in splits:
                found[utterance.id] = utterance
            else:
                others[split] += 1
    if not found:
        raise nothing_chosen(str(source), splits, others)
    result.other_splits = others.total()
    return found


def split_name(utterance: Utterance, stem: str) -> str:
    """Find the split of an utterance.

    Args:
        utterance: The utterance.
        stem: What its manifest or shards are called.

    Returns:
        train, dev, test, or what the utterance says.
    """
    name = utterance.split or split_of(stem) or "train"
    return split_of(name) or name


def nothing_chosen(source: str, splits: Collection[str], others: Counter[str]) -> WildCTCError:
    """Say that nothing belongs to the chosen splits.

    Args:
        source: The manifest or the shards.
        splits: The chosen splits.
        others: How many utterances the others have.

    Returns:
        The error.
    """
    named = ", ".join(f"{count:,} of {split}" for split, count in others.items()) or "none"
    return WildCTCError(
        f"{source}: no utterances of {' or '.join(splits)}, there are {named}; "
        f"--splits {' '.join(others) or 'train'} would change them"
    )


def _make_plans(
    probe: Path, chosen: dict[str, Utterance], thresholds: Thresholds, source: Path, result: Cleaned
) -> dict[str, Plan]:
    """A plan for each utterance that was probed. The probe is read twice, so that memory does not grow with it."""
    texts = {u.id: u.text for u in _probed(probe) if u.id in chosen}
    if not texts:
        raise WildCTCError(f"{probe}: no utterance of it is in {source}, or none of the chosen splits was probed")
    vocabulary = Counter(word for text in texts.values() for word in text.split())
    every = [utterance.text for utterance in chosen.values()]
    case = find_case(texts.values(), [chosen[id].text for id in texts], every)
    plans: dict[str, Plan] = {}
    for utterance in _probed(probe):
        if utterance.id in chosen:
            plan = make_plan(utterance, chosen[utterance.id].text, thresholds, vocabulary, case)
            count_plan(result, utterance, plan)
            if plan is not None:
                plans[utterance.id] = plan
    if not plans:
        raise all_refused(str(source), result)
    result.not_probed = [id for id in chosen if id not in texts]
    return plans


def _probed(probe: Path) -> Iterator[ProbedUtterance]:
    return (entry for entry in stream_probe(probe)[1] if not isinstance(entry, NotProbed))


def all_refused(source: str, result: Cleaned) -> WildCTCError:
    """Say that the probe is of other transcripts.

    Args:
        source: The manifest or the shards.
        result: What was done.

    Returns:
        The error.
    """
    return WildCTCError(
        f"{source}: its transcripts are not those that were probed, such as {result.refused[0]}; probe it again"
    )


def count_plan(result: Cleaned, utterance: ProbedUtterance, plan: Plan | None) -> None:
    """Count what is done about an utterance.

    Args:
        result: What was done; it is changed.
        utterance: The probed utterance.
        plan: The plan; None: the utterance has another transcript than the one that was probed.
    """
    if plan is None:
        result.refused.append(utterance.id)
        return
    hours, words = utterance.duration / 3600, len(utterance.words)
    result.utterances, result.words, result.hours = result.utterances + 1, result.words + words, result.hours + hours
    result.unknown += plan.unknown
    result.unheard += [utterance.id] if plan.unheard and not plan.dropped else []
    if plan.dropped:
        result.dropped_hours, result.dropped_words = result.dropped_hours + hours, result.dropped_words + words
    elif plan.weights is not None:
        result.weighted, result.weights = result.weighted + 1, result.weights + len(plan.weights)


def _apply(rows: Sequence[tuple[Row, list[Utterance]]], plans: dict[str, Plan], result: Cleaned) -> list[Row]:
    """The rows that are left, with their new transcripts and weights."""
    cleaned = [row for row, utterances in rows if change_row(row, utterances, plans, result)]
    if not cleaned:
        raise nothing_left()
    return cleaned


def change_row(row: Row, utterances: Sequence[Utterance], plans: dict[str, Plan], result: Cleaned) -> bool:
    """Give a row its new transcripts and weights.

    Args:
        row: The row of a manifest; it is changed.
        utterances: Its utterances.
        plans: What is done about them, by id.
        result: What was done; it is changed.

    Returns:
        Whether anything of the row is left.
    """
    kept = []
    for number, utterance in enumerate(utterances):
        plan = plans.get(utterance.id, Plan())
        result.changes += plan.changes
        result.note(plan.changes)
        if plan.dropped:
            continue
        kept.append(number)
        if plan.text is not None:
            set_text(row, number, plan.text)
        if plan.weights is not None:
            set_weights(row, number, plan.weights)
    result.kept += len(kept)
    return keep_utterances(row, kept)


def nothing_left() -> WildCTCError:
    """Say that every utterance would be dropped.

    Returns:
        The error.
    """
    return WildCTCError("every utterance would be dropped: the model that probed them does not know this speech")


def change_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Write the list of changes.

    Args:
        changes: The changes.

    Yields:
        Its lines, of which the first names the columns.
    """
    yield "\t".join(_COLUMNS) + "\n"
    for change in changes:
        yield "\t".join((*change[:4], f"{change.score:.3f}", change.reason)) + "\n"
