"""Clean shards one by one: new tables, which name the audio where it is.

The probe must be of these shards: its rows are in their order. First its lines are counted, so that each shard's rows
are found again. Then each shard's words are counted, and then each shard is cleaned. Several processes, on several
machines, do different shards (`wildctc.claims`); a call that was stopped continues.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from wildctc.claims import agree_on, once, work_through
from wildctc.cleaning.cleaner import (
    Cleaned,
    all_refused,
    change_lines,
    change_row,
    count_plan,
    nothing_chosen,
    nothing_left,
    review_path,
    split_name,
)
from wildctc.cleaning.plan import Change, Plan, Thresholds, make_plan
from wildctc.corpora.shard_files import rewrite_shard
from wildctc.corpora.shards import FORMAT, LIST, Shards, open_shards
from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text, writing
from wildctc.probe.records import NotProbed, ProbedUtterance, parse_entry, read_settings
from wildctc.progress import progress
from wildctc.text.matching import find_case


def clean_shards(
    probe: Path,
    source: str,
    output: Path,
    thresholds: Thresholds,
    *,
    splits: Collection[str] = ("train",),
    dry_run: bool = False,
    workers: int = 0,
) -> Cleaned:
    """Write shards that are cleaned by what a probe found, and a list of the changes beside their folder.

    Args:
        probe: The probe file, of these shards.
        source: The folder or address of the shards.
        output: The folder of the new shards.
        thresholds: From which score on something is done.
        splits: The splits whose utterances may be changed.
        dry_run: Write nothing.
        workers: Processes; 0 does the work in this one.

    Returns:
        What was done.

    Raises:
        WildCTCError: There is nothing that could be done, the probe is not of these shards, or a file cannot be used.
    """
    if not thresholds.any:
        raise WildCTCError("nothing to do: every action is switched off")
    shards = open_shards(source)
    about = _about(probe, shards, thresholds, splits)
    if dry_run:
        with tempfile.TemporaryDirectory() as folder:
            work = _Work(probe, shards, Path(folder), thresholds, frozenset(splits))
            _do(work, workers)
            return replace(work.result(), output=output, written=False)
    if not (output / LIST).is_file():
        if output.exists() and not (output / _ROWS).is_dir() and any(output.iterdir()):
            raise WildCTCError(f"{output}: there is something else; give the name of a new folder with -o")
        agree_on(make_folder(make_folder(output) / _ROWS) / "settings.json", about)
        work = _Work(probe, shards, output, thresholds, frozenset(splits))
        _do(work, workers)
        once(output / ".finishing", lambda: work.finished, lambda: work.finish(about))
        with contextlib.suppress(OSError):  # another process may be doing the same
            shutil.rmtree(work.rows)
        (output / ".finishing").unlink(missing_ok=True)
    return _finished(output, about)


_ROWS = "cleaning"  # the folder of what is not finished


def _do(work: _Work, workers: int) -> None:
    make_folder(work.rows)
    once(work.rows / "finding", lambda: work.places.is_file() or work.finished, work.find)
    _through(work, "reading", work.count, workers)
    once(work.rows / "merging", lambda: work.words.is_file() or work.finished, work.merge)
    _through(work, "cleaning", work.clean, workers)


def _through(work: _Work, title: str, do: Callable[[int], None], workers: int) -> None:
    def is_done(number: int) -> bool:
        return work.report(title, number).is_file() or work.finished

    numbers = range(len(work.shards))
    with progress(total=len(numbers), desc=title, unit="shard", leave=False) as bar:
        for _ in work_through(numbers, work.rows / f"{title}.claims", is_done, do, workers):
            bar.update()


def _about(probe: Path, shards: Shards, thresholds: Thresholds, splits: Collection[str]) -> dict[str, Any]:
    """What the new shards depend on."""
    settings = read_settings(_parse(probe, 1, next(_lines(probe), b"")), probe)
    return {
        "probe": [settings.get("weights"), settings.get("utterances"), settings.get("doubt"), probe.stat().st_size],
        "shards": [shard.digest for shard in shards.shards],
        "thresholds": asdict(thresholds),
        "splits": sorted(splits),
    }


def _lines(probe: Path) -> Iterator[bytes]:
    if probe.suffix == ".gz":
        raise WildCTCError(f"{probe}: unpack it first: the rows of a shard are looked up in it")
    try:
        with open(probe, "rb") as file:
            yield from file
    except OSError as error:
        raise WildCTCError(f"cannot read {probe}: {error.strerror}") from None


def _parse(probe: Path, line: int, content: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(content))
    except (ValueError, TypeError):
        raise WildCTCError(f"{probe}:{line}: not a row of a probe; make it with `wildctc probe`") from None


@dataclass
class _Work:
    """The pieces of work; each is done once by somebody, and leaves a file."""

    probe: Path
    shards: Shards
    output: Path
    thresholds: Thresholds
    splits: frozenset[str]
    _vocabulary: tuple[Counter[str], Callable[[str], str] | None] | None = None

    @property
    def rows(self) -> Path:
        return self.output / _ROWS

    @property
    def places(self) -> Path:
        return self.rows / "places.json"

    @property
    def words(self) -> Path:
        return self.rows / "words.json"

    @property
    def finished(self) -> bool:
        return (self.output / LIST).is_file()

    def report(self, title: str, number: int) -> Path:
        return self.rows / f"{number:06d}.{title}.json"

    def find(self) -> None:
        """Find where the rows of each shard begin in the probe, and their first line."""
        places: list[int] = []
        position = count = 0
        firsts = {0}
        for shard in self.shards.shards:
            firsts.add(max(firsts) + shard.utterances)
        for number, line in enumerate(_lines(self.probe)):
            if number - 1 in firsts:
                places.append(position)
            position += len(line)
            count = number
        if count != self.shards.utterances:
            raise self._other(f"it has {count:,} utterances, and they have {self.shards.utterances:,}")
        write_text(self.places, json.dumps(places))

    def _other(self, why: str) -> WildCTCError:
        return WildCTCError(
            f"{self.probe}: not a probe of the shards in {self.shards.address}: {why}; probe these, or name those that "
            "were probed with --manifest"
        )

    def entries(self, number: int) -> Iterator[tuple[Utterance, ProbedUtterance | NotProbed]]:
        """Read the utterances of a shard, and what the probe says about them."""
        utterances = self.shards.read(number, audio=False)
        first = sum(shard.utterances for shard in self.shards.shards[:number]) + 2
        with open(self.probe, "rb") as file:
            file.seek(json.loads(self.places.read_text())[number])
            for line, utterance in enumerate(utterances, start=first):
                entry = parse_entry(self.probe, line, _parse(self.probe, line, file.readline()))
                if entry.id != utterance.id:
                    raise self._other(f"line {line} is of {entry.id}, and shard {number} has {utterance.id} there")
                yield utterance, entry

    def is_chosen(self, utterance: Utterance) -> bool:
        return self._split(utterance) in self.splits

    def _split(self, utterance: Utterance) -> str:
        return split_name(utterance, self.shards.address.rstrip("/").rsplit("/", 1)[-1])

    def count(self, number: int) -> None:
        """Count the words of a shard, and note which characters its texts have, by which the case is found."""
        words, others = Counter[str](), Counter[str]()
        judged, written, every = set[str](), set[str](), set[str]()
        for utterance, entry in self.entries(number):
            if not self.is_chosen(utterance):
                others[self._split(utterance)] += 1
                continue
            every.update(utterance.text)
            if not isinstance(entry, NotProbed):
                words.update(entry.text.split())
                judged.update(entry.text)
                written.update(utterance.text)
        characters = ["".join(sorted(some)) for some in (judged, written, every)]
        write_text(self.report("reading", number), json.dumps([words, others, characters]))

    def merge(self) -> None:
        """Add up what was counted."""
        words, others, characters = Counter[str](), Counter[str](), [set[str](), set[str](), set[str]()]
        for number in range(len(self.shards)):
            more = json.loads(self.report("reading", number).read_text(encoding="utf-8"))
            words.update(more[0])
            others.update(more[1])
            for some, found in zip(characters, more[2], strict=True):
                some.update(found)
        if others.total() == self.shards.utterances:
            raise nothing_chosen(self.shards.address, sorted(self.splits), others)
        texts = ["".join(sorted(some)) for some in characters]
        write_text(self.words, json.dumps([words, texts], ensure_ascii=False))

    def vocabulary(self) -> tuple[Counter[str], Callable[[str], str] | None]:
        if self._vocabulary is None:
            words, texts = json.loads(self.words.read_text(encoding="utf-8"))
            self._vocabulary = Counter(words), find_case(*([text] for text in texts))
        return self._vocabulary

    def clean(self, number: int) -> None:
        """Write the new table of a shard."""
        vocabulary, case = self.vocabulary()
        plans: dict[str, Plan] = {}
        result = Cleaned(self.output, True)
        for utterance, entry in self.entries(number):
            if not self.is_chosen(utterance):
                result.other_splits += 1
            elif isinstance(entry, NotProbed):
                result.not_probed.append(entry.id)
            else:
                plan = make_plan(entry, utterance.text, self.thresholds, vocabulary, case)
                count_plan(result, entry, plan)
                plans |= {} if plan is None else {utterance.id: plan}

        def change(utterance: Utterance, row: dict[str, Any]) -> bool:
            return change_row(row, [utterance], plans, result)

        shard = rewrite_shard(self.output, self.shards, number, change)
        self.shards.done(number)
        counts = {name: value for name, value in asdict(result).items() if name not in ("output", "written", "changes")}
        content = [None if shard is None else asdict(shard), counts, result.changes]
        write_text(self.report("cleaning", number), json.dumps(content, ensure_ascii=False))

    def reports(self) -> Iterator[Any]:
        for number in range(len(self.shards)):
            yield json.loads(self.report("cleaning", number).read_text(encoding="utf-8"))

    def result(self) -> Cleaned:
        """Add up what was done."""
        result = Cleaned(self.output, True)
        for _, counts, _ in self.reports():
            result.add(counts)
        if not result.utterances:
            if result.refused:
                raise all_refused(self.shards.address, result)
            raise WildCTCError(f"{self.probe}: no utterance of the chosen splits was probed")
        if not result.kept:
            raise nothing_left()
        return result

    def finish(self, about: dict[str, Any]) -> None:
        """Write the list of changes, and then that of the shards."""
        result = self.result()
        review = review_path(self.output)
        part = review.with_name(f".{review.name}.part")
        with writing(review):
            with open(part, "w", encoding="utf-8") as file:
                changes = chain.from_iterable(found for _, _, found in self.reports())
                file.writelines(change_lines(Change(*change) for change in changes))
            os.replace(part, review)
        shards = [shard for shard, _, _ in self.reports() if shard is not None]
        found = {name: value for name, value in asdict(result).items() if name not in ("output", "written", "changes")}
        content = {"format": FORMAT, "source": about, "cleaned": found, "shards": shards}
        write_text(self.output / LIST, json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def _finished(output: Path, about: dict[str, Any]) -> Cleaned:
    content = json.loads((output / LIST).read_text(encoding="utf-8"))
    if content.get("source") != about:
        raise WildCTCError(f"{output / LIST}: of another probe, or with other options; give another folder with -o")
    return replace(Cleaned(output, True), **content["cleaned"])
