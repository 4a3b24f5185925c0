"""`wildctc prepare`: from a corpus as its publisher ships it to one checked manifest per split."""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import WildCTCError
from ..files import make_folder, write_text
from ..progress import progress
from ..text import Normalizer, describe
from . import fleurs, jsonl, kaldi, librispeech, respin
from .audio import UtteranceError, check_audio
from .manifest import Utterance, split_of, write_cuts
from .subset import Subset

_log = logging.getLogger(__name__)

# Each yields its utterances as it finds them: text not normalised, duration 0 if it is not given, `split` the name of
# the subset that the utterance comes from.
SOURCES: dict[str, Callable[[Path], Iterator[Utterance]]] = {
    "jsonl": jsonl.utterances,
    "kaldi": kaldi.utterances,
    "librispeech": librispeech.utterances,
}
# The same, of one of the languages that the folder holds.
LANGUAGE_SOURCES: dict[str, Callable[[Path, str | None], Iterator[Utterance]]] = {
    "fleurs": fleurs.utterances,
    "respin": respin.utterances,
}
MAY_LACK_AUDIO = ("fleurs",)  # whose publishers list recordings that they do not ship

Checked = tuple[Utterance, int, int]  # with the sampling rate and the number of samples of its file


class Rejects:
    """Collects the utterances that cannot be used: each is logged once, and too many stop the run.

    >>> rejects = Rejects(limit=0.5)
    >>> rejects.add(UtteranceError(Utterance("utt1", Path("a.wav")), "empty transcript"))
    >>> rejects.check(total=2)
    >>> rejects.check(total=1)
    Traceback (most recent call last):
    wildctc.errors.WildCTCError: 1 of 1 utterances cannot be used, ...; the first: utt1 (a.wav): empty transcript...
    """

    def __init__(self, limit: float = 0.01, option: str = "--max-bad") -> None:
        self.limit, self.option = limit, option  # option: what sets the limit
        self.errors: dict[str, UtteranceError] = {}

    def add(self, error: UtteranceError) -> None:
        if str(error) not in self.errors:
            self.errors[str(error)] = error
            _log.warning("left out: %s", error)

    def check(self, total: int) -> None:
        """Raises WildCTCError if more than `limit` of `total` utterances were rejected."""
        if len(self.errors) > self.limit * total:
            raise WildCTCError(
                f"{len(self.errors)} of {total} utterances cannot be used, more than the limit of {self.limit:.2%}; "
                f"the first: {next(iter(self.errors)).rstrip('.')}. Repair them, or allow more with {self.option}"
            )


def prepare(
    source: str,
    in_dir: str | Path,
    out_dir: str | Path,
    normalizer: Normalizer,
    limit: float = 0.01,
    *,
    language: str | None = None,
    subsets: Collection[str] = (),
    take: Subset = Subset(),  # noqa: B008 (frozen)
) -> dict[str, list[Utterance]]:
    """Reads a corpus, checks every row, and writes OUT/{train,dev,test}.jsonl.gz (lhotse cuts).

    A split that comes from several subsets (test-clean, test-other) gets a file for each of them too. Bad rows are
    logged, listed in OUT/rejected.jsonl and left out; above `limit` of all rows nothing is written and a WildCTCError
    raised. Rows of FLEURS without their audio are listed too, but do not count, as long as most rows have theirs.
    language: of a corpus with several. subsets: only these. take: which part of the training data. Returns what each
    file holds, by its name.

    >>> import soundfile, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     soundfile.write(f"{folder}/a.wav", [0.0] * 16000, 16000)
    ...     row = {"id": "a", "audio": "a.wav", "text": "Selamat pagi", "split": "dev"}
    ...     _ = Path(folder, "manifest.jsonl").write_text(json.dumps(row))
    ...     files = prepare("jsonl", folder, f"{folder}/out", Normalizer(lower=True))
    >>> [(name, u.id, u.text, u.duration) for name, utterances in files.items() for u in utterances]
    [('dev', 'a', 'selamat pagi', 1.0)]
    """
    given = list(
        progress(_chosen(_read(source, Path(in_dir), language), subsets), desc="reading", unit="utt", leave=False)
    )
    if not given:
        raise WildCTCError(f"no utterances in {in_dir}: is it a {source} corpus?")
    absent = _absent(given) if source in MAY_LACK_AUDIO else []
    lost = {error.id for error in absent}
    rows = [utterance for utterance in given if utterance.id not in lost]
    checked: dict[str, list[Checked]] = defaultdict(list)
    rejects, seen = Rejects(limit), set[str]()
    for utterance in progress(rows, desc="checking", unit="utt", leave=False):
        try:
            checked[utterance.split or "train"].append(_check(utterance, normalizer, seen))
        except UtteranceError as error:
            rejects.add(error)
    rejects.check(len(rows))
    if not any(checked.values()):  # which --max-bad 1 would let pass
        first = next(iter(rejects.errors))
        raise WildCTCError(f"none of the {len(rows)} utterances of {in_dir} can be used; the first: {first}")
    return _write(_files(_take(checked, take)), [*absent, *rejects.errors.values()], Path(out_dir))


def _read(source: str, folder: Path, language: str | None) -> Iterator[Utterance]:
    known = [*SOURCES, *LANGUAGE_SOURCES]
    if source not in known:
        raise WildCTCError(f"unknown source {source!r}; known: {', '.join(known)}")
    if not folder.exists():
        raise WildCTCError(f"no such file or directory: {folder}")
    if source in LANGUAGE_SOURCES:
        return LANGUAGE_SOURCES[source](folder.absolute(), language)
    if language is not None:
        raise WildCTCError(f"--language is for {', '.join(LANGUAGE_SOURCES)} and synthetic, not for {source}")
    return SOURCES[source](folder.absolute())


def _chosen(utterances: Iterator[Utterance], subsets: Collection[str]) -> Iterator[Utterance]:
    """Those of the subsets, or all if none are named."""
    found: set[str] = set()
    for utterance in utterances:
        subset = utterance.split or "train"
        found.add(subset)
        if not subsets or subset in subsets:
            yield utterance
    if missing := sorted(set(subsets) - found):
        raise WildCTCError(f"no subset {missing[0]!r}; there are: {', '.join(sorted(found))}")


def _absent(utterances: Sequence[Utterance]) -> list[UtteranceError]:
    """What is listed without its audio; where that is most of a split, something else is wrong."""
    found: list[UtteranceError] = []
    for split in dict.fromkeys(u.split for u in utterances):
        rows = [u for u in utterances if u.split == split]
        lost = [u for u in rows if not u.audio.is_file()]
        if len(lost) > len(rows) / 2:
            raise WildCTCError(
                f"{len(lost)} of the {len(rows)} files of {split} are not there, such as {lost[0].audio}: "
                f"unpack {lost[0].audio.parent}.tar.gz"
            )
        if lost:
            message = "%d of the %d files of %s are not there; such rows are left out, and listed in rejected.jsonl"
            _log.warning(message, len(lost), len(rows), split)
        found += [UtteranceError(u, "no such file") for u in lost]
    return found


def _take(subsets: dict[str, list[Checked]], take: Subset) -> dict[str, list[Checked]]:
    """The chosen part of the training data, and all that is not for training."""
    train = [checked[0] for name, part in subsets.items() if split_of(name) == "train" for checked in part]
    chosen = take.of(train)
    if take.hours is not None and len(chosen) == len(replace(take, hours=None).of(train)):
        hours = sum(utterance.duration for utterance in chosen) / 3600
        kind = "training speech with different sentences" if take.unique_sentences else "training speech"
        _log.warning("there are only %.2f h of %s; all of them are taken", hours, kind)
    taken = {utterance.id for utterance in chosen}
    return {
        name: [checked for checked in part if split_of(name) != "train" or checked[0].id in taken]
        for name, part in subsets.items()
    }


def _check(utterance: Utterance, normalizer: Normalizer, seen: set[str]) -> Checked:
    split = split_of(utterance.split or "train")
    if split is None:
        raise UtteranceError(utterance, f"split {utterance.split!r} is none of train, dev, test")
    if utterance.id in seen:
        raise UtteranceError(utterance, "its id occurs twice")
    seen.add(utterance.id)
    checked = check_audio(replace(utterance, text=normalizer(utterance.text), split=split))
    if not checked[0].text:
        raise UtteranceError(utterance, "empty transcript")
    if halves := [char for char in checked[0].text if "\ud800" <= char <= "\udfff"]:
        raise UtteranceError(utterance, f"half a character in its transcript: {describe(halves[:1])}")
    return checked


def _files(subsets: dict[str, list[Checked]]) -> dict[str, list[Checked]]:
    files: dict[str, list[Checked]] = defaultdict(list)
    for subset, utterances in subsets.items():
        files[split_of(subset) or "train"] += utterances
    for split in list(files):
        parts = {subset: part for subset, part in subsets.items() if split_of(subset) == split}
        if len(parts) > 1:
            files |= {subset: part for subset, part in parts.items() if subset not in files}
    return files


def _write(
    files: dict[str, list[Checked]], errors: Sequence[UtteranceError], out_dir: Path
) -> dict[str, list[Utterance]]:
    make_folder(out_dir)
    for name, utterances in files.items():
        write_cuts(out_dir / f"{name}.jsonl.gz", utterances)
    rows = [{"id": e.id, "audio": str(e.path), "reason": e.reason} for e in errors]
    write_text(out_dir / "rejected.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    for name in ("train", "dev", "test"):
        if name not in files and (path := out_dir / f"{name}.jsonl.gz").exists():
            _log.warning("%s was there before and stays: this corpus has no such part", path)
    return {name: [utterance for utterance, _, _ in utterances] for name, utterances in files.items()}
