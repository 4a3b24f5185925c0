"""`wildctc prepare`: convert a corpus, as its publisher distributes it, to one checked manifest per split."""

import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from wildctc.audio.sound_files import CheckedAudio, check_audio, load_audio, warn_of_short_files
from wildctc.corpora import (
    audio_folder,
    common_voice,
    fleurs,
    jsonl,
    kaldi,
    librispeech,
    ljspeech,
    respin,
    tars,
    voxpopuli,
)
from wildctc.corpora.manifest import move_audio_of, split_of, write_cuts
from wildctc.corpora.subset import Subset
from wildctc.corpora.utterance import SPLITS, Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, remove_parts, write_text
from wildctc.progress import progress
from wildctc.text.alternatives import normalise_text
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import name_characters
from wildctc.text.word_weights import follow_words

_log = logging.getLogger(__name__)

# Each yields utterances as they are in the corpus: text not normalised, duration 0 if it is not given, `split` the name
# of the subset; for a row that cannot be read, what is wrong with it.
_Found = Iterator[Utterance | UtteranceError]
SOURCES: dict[str, Callable[[Path], _Found]] = {
    "jsonl": jsonl.read,
    "csv": jsonl.read,
    "kaldi": kaldi.read,
    "librispeech": librispeech.read,
    "common-voice": common_voice.read,
    "ljspeech": ljspeech.read,
    "voxpopuli": voxpopuli.read,
    "audiofolder": audio_folder.read,
    "webdataset": tars.read_webdataset,
    "nemo-tarred": tars.read_nemo,
    "wenet": tars.read_wenet,
}
# The same, for corpora with several languages, of which one is read.
LANGUAGE_SOURCES: dict[str, Callable[[Path, str | None], _Found]] = {
    "fleurs": fleurs.read,
    "respin": respin.read,
}
_MAY_LACK_AUDIO = ("fleurs",)  # their publishers list recordings that they do not distribute


class Rejects:
    """Collects utterances that cannot be used. They are logged, and too many of them are an error.

    Attributes:
        limit: The share above which there are too many.
        option: The option that sets the limit, for the message.
        shown: How many of the same kind are logged.
        root: The option that names another folder of the audio, for the message if most of it is missing; None if the
            command has none.
        errors: What is wrong with each, by its message.
        kinds: How many there are of each kind.

    >>> rejects = Rejects(limit=0.5)
    >>> rejects.add(UtteranceError(Utterance("utt1", Path("a.wav")), "empty transcript"))
    >>> rejects.check(total=2)
    >>> rejects.check(total=1)
    Traceback (most recent call last):
    wildctc.errors.WildCTCError: 1 of 1 utterances cannot be used, ...; the first: utt1 (a.wav): empty transcript...
    """

    def __init__(
        self, limit: float = 0.01, option: str = "--max-bad", shown: int = 10, root: str | None = "--audio-root"
    ) -> None:
        self.limit, self.option, self.shown, self.root = limit, option, shown, root
        self.errors: dict[str, UtteranceError] = {}
        self.kinds: Counter[str] = Counter()

    def add(self, error: UtteranceError) -> None:
        """Count and log an utterance that cannot be used.

        Args:
            error: What is wrong with it. The same error is counted once.
        """
        if str(error) in self.errors:
            return
        self.errors[str(error)] = error
        self.kinds[error.kind] += 1
        if self.kinds[error.kind] <= self.shown:
            _log.warning("skipped: %s", error)
        elif self.kinds[error.kind] == self.shown + 1 > 1:
            _log.warning("skipped: more utterances for the same reason (%s), which are not named here", error.kind)

    def check(self, total: int) -> None:
        """Check that there are not too many of them.

        Args:
            total: The number of all utterances.

        Raises:
            WildCTCError: More than `limit` of them cannot be used.
        """
        if len(self.errors) > self.limit * total:
            if len(self.errors) > 1:
                _log.warning("cannot be used:\n%s", "\n".join(by_kind(self.errors.values())))
            advice = f"Repair them, or allow more with {self.option}"
            if self.root and self.kinds["no such file"] > total / 2:
                advice = f"If the audio was moved, name its folder with {self.root}"
            raise WildCTCError(
                f"{len(self.errors)} of {total} utterances cannot be used, more than the limit of {self.limit:.2%}; "
                f"the first: {next(iter(self.errors)).rstrip('.')}. {advice}"
            )


def by_kind(errors: Iterable[UtteranceError]) -> list[str]:
    """Summarise errors by kind.

    Args:
        errors: What is wrong with utterances.

    Returns:
        A line for each kind, the most frequent first: how many there are, and the first of them.

    >>> by_kind(UtteranceError(Utterance(id, Path(f"{id}.wav")), "truncated: 1 s of 2 s") for id in ("a", "b"))
    ['  2  truncated, such as a (a.wav): 1 s of 2 s']
    """
    groups: dict[str, list[UtteranceError]] = defaultdict(list)
    for error in errors:
        groups[error.kind].append(error)
    width = max((len(f"{len(group):,}") for group in groups.values()), default=0) + 2
    return [
        f"{len(group):>{width},}  {kind}, such as {first.id} ({first.path}){first.reason.removeprefix(kind)}"
        for kind, group in sorted(groups.items(), key=lambda item: -len(item[1]))
        for first in group[:1]
    ]


class Prepared(dict[str, list[Utterance]]):
    """The utterances of each file that `prepare` wrote, by the name of the file.

    Attributes:
        files: The same, with what is known about the audio.
        rejected: What was skipped.
        total: The number of all utterances of the corpus.
        decoded: Whether the audio was decoded.
    """

    def __init__(
        self, files: dict[str, list[CheckedAudio]], rejected: list[UtteranceError], total: int, decoded: bool
    ) -> None:
        super().__init__({name: [checked.utterance for checked in part] for name, part in files.items()})
        self.files, self.rejected, self.total, self.decoded = files, rejected, total, decoded


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
    decode: bool = True,
    text_field: str | Sequence[str] | None = None,
    audio_root: str | Path | None = None,
) -> Prepared:
    """Read a corpus, check every row, and write OUT/{train,dev,test}.jsonl.gz (lhotse cuts).

    If a split has several subsets (test-clean, test-other), a file for each of them is written too. Bad rows are
    skipped, and listed in OUT/rejected.jsonl. Rows of FLEURS without audio are listed too, but are not counted as bad,
    as long as most rows have theirs.

    Args:
        source: The kind of corpus, a key of `SOURCES` or `LANGUAGE_SOURCES`.
        in_dir: The corpus.
        out_dir: The folder to write.
        normalizer: How transcripts are normalised.
        limit: The largest share of bad rows.
        language: Of a corpus with several languages.
        subsets: Only these; all if it is empty.
        take: Which part of the training data.
        decode: Whether all audio that is taken is decoded. Otherwise only headers and ends of files are checked.
        text_field: Of jsonl, the field with the transcript, or several fields with one transcript each.
        audio_root: The folder that the audio has been moved to, if the files of the corpus name another one.

    Returns:
        The utterances of each file.

    Raises:
        WildCTCError: The corpus cannot be read, or has too many bad rows; nothing is written then.

    >>> import soundfile, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     soundfile.write(f"{folder}/a.wav", [0.0] * 16000, 16000)
    ...     row = {"id": "a", "audio": "a.wav", "text": "Selamat pagi", "split": "dev"}
    ...     _ = Path(folder, "manifest.jsonl").write_text(json.dumps(row))
    ...     files = prepare("jsonl", folder, f"{folder}/out", Normalizer(lower=True))
    >>> [(name, u.id, u.text, u.duration) for name, utterances in files.items() for u in utterances]
    [('dev', 'a', 'selamat pagi', 1.0)]
    """
    rows = _read(source, Path(in_dir), language, text_field)
    given = list(progress(_chosen(rows, subsets), desc="reading", unit="utt", leave=False))
    if not given:
        raise WildCTCError(f"no utterances in {in_dir}: is it a {source} corpus?")
    if audio_root is not None:
        given = _move_audio(given, Path(audio_root), in_dir)
    absent = _absent([row for row in given if isinstance(row, Utterance)]) if source in _MAY_LACK_AUDIO else []
    lost = {error.id for error in absent}
    there = [row for row in given if row.id not in lost]
    checked: dict[str, list[CheckedAudio]] = defaultdict(list)
    rejects, seen = Rejects(limit, shown=0, root=None), set[str]()
    for row in progress(there, desc="checking", unit="utt", leave=False):
        try:
            if isinstance(row, UtteranceError):
                raise row
            checked[row.split or "train"].append(_check(row, normalizer, seen))
        except UtteranceError as error:
            rejects.add(error)
    rejects.check(len(there))
    checked = _take(checked, take)
    if decode:
        checked = _decodable(checked, rejects)
        rejects.check(len(there))
    if not any(checked.values()):  # possible with --max-bad 1
        first = next(iter(rejects.errors))
        raise WildCTCError(f"none of the {len(there)} utterances of {in_dir} can be used; the first: {first}")
    warn_of_short_files(c for part in checked.values() for c in part)
    prepared = Prepared(_files(checked), [*absent, *rejects.errors.values()], len(given), decode)
    _write(prepared, Path(out_dir))
    return prepared


def _move_audio(
    given: Sequence[Utterance | UtteranceError], root: Path, corpus: str | Path
) -> list[Utterance | UtteranceError]:
    """Change the paths of audio, but not those of rows that cannot be read."""
    readable = [row for row in given if isinstance(row, Utterance)]
    moved = iter(move_audio_of(readable, root, corpus) if readable else [])
    return [next(moved) if isinstance(row, Utterance) else row for row in given]


def _read(source: str, folder: Path, language: str | None, text_field: str | Sequence[str] | None) -> _Found:
    known = [*SOURCES, *LANGUAGE_SOURCES]
    if source not in known:
        raise WildCTCError(f"unknown source {source!r}; known: {', '.join(known)}")
    if not folder.exists():
        raise WildCTCError(f"no such file or directory: {folder}")
    if text_field is not None:
        if source not in ("jsonl", "csv"):
            raise WildCTCError(f"--text-field is for jsonl, csv and huggingface, not for {source}")
        return jsonl.read(folder.absolute(), text_field)
    if source in LANGUAGE_SOURCES:
        return LANGUAGE_SOURCES[source](folder.absolute(), language)
    if language is not None:
        raise WildCTCError(f"--language is for {', '.join(LANGUAGE_SOURCES)} and synthetic, not for {source}")
    return SOURCES[source](folder.absolute())


def _chosen(rows: _Found, subsets: Collection[str]) -> _Found:
    """Choose rows by subset; all if none is named. Bad rows are kept, since their subset is not known."""
    found: set[str] = set()
    for row in rows:
        subset = None if isinstance(row, UtteranceError) else row.split or "train"
        found |= {subset} if subset else set()
        if not subsets or subset is None or subset in subsets:
            yield row
    if missing := sorted(set(subsets) - found):
        raise WildCTCError(f"no subset {missing[0]!r}; there are: {', '.join(sorted(found))}")


def _absent(utterances: Sequence[Utterance]) -> list[UtteranceError]:
    """Find rows without audio. If most of a split have none, something else is wrong, and it is an error."""
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
            message = "%d of the %d files of %s are not there; these rows are skipped, and listed in rejected.jsonl"
            _log.warning(message, len(lost), len(rows), split)
        found += [UtteranceError(u, "no such file") for u in lost]
    return found


def _take(subsets: dict[str, list[CheckedAudio]], take: Subset) -> dict[str, list[CheckedAudio]]:
    """Choose a part of the training data; dev and test stay whole."""
    train = [checked.utterance for name, part in subsets.items() if split_of(name) == "train" for checked in part]
    chosen = take.of(train)
    if take.hours is not None and len(chosen) == len(replace(take, hours=None).of(train)):
        hours = sum(utterance.duration for utterance in chosen) / 3600
        kind = "training speech with different sentences" if take.unique_sentences else "training speech"
        _log.warning("there are only %.2f h of %s; all of them are taken", hours, kind)
    taken = {utterance.id for utterance in chosen}
    return {
        name: [checked for checked in part if split_of(name) != "train" or checked.utterance.id in taken]
        for name, part in subsets.items()
    }


def _check(utterance: Utterance, normalizer: Normalizer, seen: set[str]) -> CheckedAudio:
    split = split_of(utterance.split or "train")
    if split is None:
        raise UtteranceError(utterance, f"split {utterance.split!r} is none of train, dev, test")
    if utterance.id in seen:
        raise UtteranceError(utterance, "its id occurs twice")
    seen.add(utterance.id)
    text, weights = normalise_text(utterance.text, normalizer), utterance.weights
    texts = tuple(normalise_text(one, normalizer) for one in utterance.texts)
    if weights is not None:
        try:
            weights = tuple(follow_words(weights, utterance.text, normalizer))
        except ValueError as error:
            raise UtteranceError(utterance, f"weights do not match the transcript: {error}") from None
    checked = check_audio(replace(utterance, text=text, texts=texts, split=split, weights=weights))
    if not checked.utterance.text:
        raise UtteranceError(utterance, "empty transcript")
    for name, value in (("transcript", text), ("id", utterance.id), ("path", str(utterance.audio))):
        if halves := [char for char in value if "\ud800" <= char <= "\udfff"]:
            raise UtteranceError(utterance, f"half a surrogate pair in its {name}: {name_characters(halves[:1])}")
    return checked


def _decodable(subsets: dict[str, list[CheckedAudio]], rejects: Rejects) -> dict[str, list[CheckedAudio]]:
    """Remove utterances whose audio cannot be decoded to its end."""
    found: dict[str, list[CheckedAudio]] = {name: [] for name in subsets}
    total = sum(map(len, subsets.values()))
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress(total=total, desc="decoding", unit="utt", leave=False) as bar,
    ):
        for name, part in subsets.items():
            for begin in range(0, len(part), 1000):  # otherwise the pool would queue all utterances at once
                some = part[begin : begin + 1000]
                for checked, error in zip(some, pool.map(_decode, some), strict=True):
                    bar.update()
                    if error is None:
                        found[name].append(checked)
                    else:
                        rejects.add(error)
    return found


def _decode(checked: CheckedAudio) -> UtteranceError | None:
    try:
        load_audio(checked.utterance, checked.rate)
    except UtteranceError as error:
        return error
    return None


def _files(subsets: dict[str, list[CheckedAudio]]) -> dict[str, list[CheckedAudio]]:
    files: dict[str, list[CheckedAudio]] = defaultdict(list)
    for subset, utterances in subsets.items():
        files[split_of(subset) or "train"] += utterances
    for split in list(files):
        parts = {subset: part for subset, part in subsets.items() if split_of(subset) == split}
        if len(parts) > 1:
            files |= {subset: part for subset, part in parts.items() if subset not in files}
    return files


def _write(prepared: Prepared, out_dir: Path) -> None:
    remove_parts(make_folder(out_dir), older_than=60)  # another `prepare` may be writing there
    for name, part in prepared.files.items():
        write_cuts(out_dir / f"{name}.jsonl.gz", part)
    rows = [{"id": e.id, "audio": str(e.path), "reason": e.reason} for e in prepared.rejected]
    write_text(out_dir / "rejected.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    for name in SPLITS:
        if name not in prepared and (path := out_dir / f"{name}.jsonl.gz").exists():
            _log.warning("%s existed before and is kept: this corpus has no such part", path)
