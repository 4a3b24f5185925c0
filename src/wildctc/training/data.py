"""Find which utterances a run can use.

All features are computed before the first step and cached. Bad audio is therefore known, counted and reported in
advance, and a batch is never smaller than planned. Several processes compute a share each.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from wildctc.audio.sound_files import check_audio
from wildctc.claims import one_thread
from wildctc.cores import available_cores
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.preparation import Rejects
from wildctc.corpora.shards import are_shards, is_address, load_shards
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.criteria import Criterion
from wildctc.distributed import ALONE, Processes
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache, GivesFeatures
from wildctc.features.stats import FeatureStats
from wildctc.files import write_text
from wildctc.progress import RealTime, progress
from wildctc.scoring.transcripts import add_texts, read_transcripts
from wildctc.text.alternatives import Writings
from wildctc.text.lexicon import read_lexicon
from wildctc.text.units import CharUnits, PhoneUnits, SentencePieceUnits, Units
from wildctc.training.settings import DataConfig
from wildctc.training.targets import Example, make_reader, make_target, texts_to_learn, too_long

_log = logging.getLogger(__name__)
STATS_FROM = 2000  # utterances; more hardly change a mean
_WORTH_A_PROCESS = 50  # utterances: with fewer, a further process takes longer to start than it saves


def find_shards(config: DataConfig, split: str) -> str | None:
    """Find the shards of a split.

    Args:
        config: The settings of the data.
        split: "train" or "dev".

    Returns:
        Their folder or address; None if the split is a manifest.
    """
    name = getattr(config, split)
    if is_address(name):
        return str(name)
    if is_address(config.dir) and not Path(name).is_absolute():
        return f"{config.dir.rstrip('/')}/{name}"
    path = Path(config.dir) / name
    return str(path) if are_shards(path) else None


def find_manifest(config: DataConfig, split: str) -> Path | str:
    """Find a manifest, or shards.

    Args:
        config: The settings of the data.
        split: "train" or "dev".

    Returns:
        Its path, or the folder or address of shards.

    Raises:
        WildCTCError: It does not exist.
    """
    if (shards := find_shards(config, split)) is not None:
        return shards
    path = Path(config.dir) / getattr(config, split)
    if not path.exists():
        raise WildCTCError(f"no manifest {path}: make it with `wildctc prepare`, or set --data.dir to its folder")
    if path.is_dir():
        raise WildCTCError(f"{path} is a folder without shards: make them with `wildctc pack`, or name a manifest")
    return path


def read_split(config: DataConfig, split: str) -> list[Utterance]:
    """Read the utterances of a manifest.

    Args:
        config: The settings of the data.
        split: "train" or "dev". From a manifest with several splits, only the utterances of this split are taken.

    Returns:
        The utterances.
    """
    path = find_manifest(config, split)
    if find_shards(config, split) is not None:
        return load_shards(path, audio_root=config.audio_root)
    utterances = load_manifest(path, audio_root=config.audio_root)
    if len({u.split for u in utterances}) > 1:
        utterances = load_manifest(path, split, config.audio_root)
    return add_texts(utterances, config.also) if split == "train" and config.also else utterances


def remember_durations(utterances: Sequence[Utterance], record: Path) -> list[Utterance]:
    """Fill in durations and channels from the record of the run, if the audio cannot be read now.

    Args:
        utterances: The utterances.
        record: What `usable` wrote when the run started; it may not exist.

    Returns:
        The utterances; those that the record knows have a duration.
    """
    found = _read_record(record) if any(u.duration == 0 for u in utterances) else None
    known = found.durations if found else {}
    return [
        replace(u, duration=known[u.id][0], channel=known[u.id][1]) if u.duration == 0 and u.id in known else u
        for u in utterances
    ]


def make_units(config: DataConfig, utterances: Sequence[Utterance]) -> Units:
    """Make the units of the training transcripts. The same transcripts give the same units.

    Args:
        config: The settings of the data.
        utterances: The training utterances.

    Returns:
        Characters, SentencePiece pieces or phones.
    """
    return units_of_texts(config, learned_texts(config, utterances))


def learned_texts(config: DataConfig, utterances: Sequence[Utterance]) -> list[str]:
    """Give the texts that units are learned from.

    Args:
        config: The settings of the data.
        utterances: Training utterances.

    Returns:
        Their texts, with each alternative.
    """
    found = read_transcripts(utterances, make_reader(config)).values()
    return [text for transcript in found for text in texts_to_learn(transcript)]


def units_of_texts(config: DataConfig, texts: Sequence[str]) -> Units:
    """Make the units of texts. The same texts give the same units.

    Args:
        config: The settings of the data.
        texts: The texts.

    Returns:
        Characters, SentencePiece pieces or phones.
    """
    reader = make_reader(config)
    if config.units == "characters":
        return CharUnits.train(texts, reader.normalizer)
    if config.units == "phones":
        return PhoneUnits.train(texts, reader.normalizer, read_lexicon(config.lexicon or "", reader.normalizer))
    return SentencePieceUnits.train(texts, reader.normalizer, config.vocab_size)


def usable(
    utterances: Sequence[Utterance],
    units: Units,
    cache: FeatureCache,
    config: DataConfig,
    speeds: Sequence[float],
    output_lengths: Callable[[torch.Tensor], torch.Tensor],
    record: Path,
    quiet: bool = False,
    processes: Processes = ALONE,
) -> list[Example]:
    """Make an example for each usable utterance and speed. The others are reported and skipped.

    Args:
        utterances: The utterances.
        units: The units.
        cache: Gets the features.
        config: The settings of the data.
        speeds: The speeds.
        output_lengths: Frames of features (N,) → frames of logits (N,).
        record: Where the scan of the audio is kept, so that a resumed run does not repeat it.
        quiet: Do not report skipped utterances, because that was done before.
        processes: The processes that share the work.

    Returns:
        The examples, by utterance, then by speed.

    Raises:
        WildCTCError: Too many utterances were skipped.
    """
    rejects = Rejects(config.max_bad, "--data.max_bad", 0 if quiet else 10, "--data.audio-root")
    found = read_transcripts(utterances, make_reader(config))
    targets = {u.id: t for u in utterances if (t := _target(u, found[u.id], units, rejects)) is not None}
    readable = [u for u in utterances if u.id in targets]
    workers = feature_workers(config, len(readable))
    frames = _scan_once(record, readable, cache, speeds, workers, rejects, processes)
    heard = [u for u in readable if u.id in frames]
    short = too_long(heard, targets, frames, speeds, output_lengths, rejects) if heard else set()
    try:
        rejects.check(len(utterances))
    except WildCTCError:
        record.unlink(missing_ok=True)  # so that the audio is scanned again after the user has corrected it
        raise
    return [
        replace(targets[u.id], speed=speed, frames=n)
        for u in heard
        if u.id not in short
        for speed, n in zip(speeds, frames[u.id], strict=True)
    ]


def data_digest(examples: Sequence[Example]) -> str:
    """Hash what a run's batches depend on.

    Args:
        examples: The examples.

    Returns:
        16 hexadecimal digits.
    """
    content: list[tuple[Any, ...]] = [(e.utterance.id, e.speed, e.frames, e.tokens) for e in examples]
    if any(e.weights is not None for e in examples):  # without any, the hash stays that of earlier releases
        content += [(e.weights,) for e in examples]
    if any(e.graph is not None for e in examples):
        content += [
            (str(e.graph), None if e.writings is None else [s.weights for s in e.writings.slots]) for e in examples
        ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def report_weights(examples: Sequence[Example], criterion: Criterion) -> None:
    """Report whether the run uses the weights of words that the training manifest has.

    Args:
        examples: All training examples.
        criterion: The criterion of the run.
    """
    having = len({e.utterance.id for e in examples if e.weights is not None})
    if not having:
        return
    arcs = [name for name in ("bypass", "word_bypass") if getattr(criterion.wildcards, name) is not None]
    if criterion.rates is not None:
        _log.warning(
            "weights of words are ignored: %d training utterances have them, but the criterion %s estimates its own "
            "noise rates", having, criterion.name,
        )  # fmt: skip
    elif arcs:
        _log.info("weights of words: %d training utterances have them; added to %s", having, " and ".join(arcs))
    else:
        _log.warning(
            "weights of words are ignored: %d training utterances have them, but the criterion %s has no bypasses",
            having, criterion.name,
        )  # fmt: skip


def report_alternatives(train: Sequence[Example], dev: Sequence[Example]) -> None:
    """Report how many transcripts have alternatives.

    Args:
        train: All training examples.
        dev: All validation examples.
    """
    having = [len({e.utterance.id for e in examples if e.graph is not None}) for examples in (train, dev)]
    if any(having):
        _log.info("transcripts with alternatives: %d for training, %d for validation", *having)


def feature_stats(examples: Sequence[Example], cache: GivesFeatures) -> FeatureStats:
    """Compute mean and variance of the features, from at most `STATS_FROM` utterances, evenly spaced.

    Args:
        examples: The training examples.
        cache: Gives features.

    Returns:
        The statistics.
    """
    originals = [e for e in examples if e.speed == 1.0] or list(examples)
    some = originals[:: -(-len(originals) // STATS_FROM)]
    bar = progress(some, desc="statistics of the features", unit="utt", leave=False)
    return FeatureStats.compute(cache.get(e.utterance, e.speed) for e in bar)


def feature_workers(config: DataConfig, utterances: int) -> int:
    """Choose how many processes compute features; `data.workers` is about batches, which mostly need none.

    Args:
        config: The settings of the data.
        utterances: How many utterances there are.

    Returns:
        The number of processes; 0: this one does it.
    """
    if config.feature_workers is not None:
        return config.feature_workers
    if config.workers == 0 and torch.cuda.is_available():
        return 0  # in this process, a Hugging Face model runs on the GPU
    return max(config.workers, min(available_cores(), utterances // _WORTH_A_PROCESS))


def _scan_once(
    record: Path,
    utterances: Sequence[Utterance],
    cache: FeatureCache,
    speeds: Sequence[float],
    workers: int,
    rejects: Rejects,
    processes: Processes = ALONE,
) -> dict[str, list[int]]:
    """Frames of each utterance with usable audio at each speed. Afterwards its features are in the cache."""
    key = _fingerprint(utterances, cache, speeds)
    found = processes.tell(_read_scan(record, key) if processes.first else None)
    if found is None:
        found = scan(utterances, cache, speeds, workers, record.stem, processes)
        if processes.first:
            _write_scan(record, key, utterances, *found)
    frames, errors = found
    for error in errors:
        rejects.add(error)
    return frames


_Scanned = tuple[dict[str, list[int]], list[UtteranceError]]  # frames by id and speed; what is wrong with the others


def scan(
    utterances: Sequence[Utterance],
    cache: FeatureCache,
    speeds: Sequence[float],
    workers: int,
    title: str,
    processes: Processes = ALONE,
) -> _Scanned:
    """Compute and cache the features of all utterances.

    Args:
        utterances: The utterances.
        cache: Gets the features.
        speeds: The speeds.
        workers: Processes that compute features; 0 uses this one.
        title: What the progress bar shows.
        processes: Training processes, which share the work.

    Returns:
        Utterance id → frames at each speed; and the errors of utterances with bad audio.

    Raises:
        WildCTCError: The cache cannot be written.
    """
    loader = DataLoader(
        _Scan(utterances, cache, speeds), batch_size=None, num_workers=workers, generator=torch.Generator(),
        sampler=processes.share(range(len(utterances))), worker_init_fn=one_thread,
    )  # fmt: skip
    mine: list[tuple[int, list[int] | WildCTCError]] = []
    bar = progress(loader, desc=f"features of {title}", unit="utt", leave=False)
    rate = RealTime(bar)
    for index, found in bar:
        if isinstance(found, WildCTCError) and not isinstance(found, UtteranceError):
            raise found  # not about one utterance, such as a cache that cannot be written
        if isinstance(found, list):
            rate.add(sum(found) / cache.front_end.frame_rate)
        mine.append((index, found))
    processes.barrier()  # one process may be much slower than another
    all_found = sorted((row for rows in processes.gather(mine) for row in rows), key=lambda row: row[0])
    frames = {utterances[index].id: found for index, found in all_found if isinstance(found, list)}
    return frames, [found for _, found in all_found if isinstance(found, UtteranceError)]


class _Record(NamedTuple):
    """What a scan found.

    Attributes:
        fingerprint: Of the data that was scanned.
        frames: Utterance id → frames at each speed.
        errors: Utterances with bad audio.
        durations: Utterance id → duration and channel.
    """

    fingerprint: str
    frames: dict[str, list[int]]
    errors: list[UtteranceError]
    durations: dict[str, tuple[float, int | None]]


def _read_record(record: Path) -> _Record | None:
    """Read what an earlier scan found; None if there was none, or if its record is damaged."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        if content.get("checksum", checksum := _record_checksum(content)) != checksum:
            raise ValueError("its content does not match its checksum")
        errors = [UtteranceError(Utterance(bad["id"], Path(bad["path"])), bad["reason"]) for bad in content["bad"]]
        return _Record(content["fingerprint"], content["frames"], errors, content.get("durations", {}))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("%s: damaged (%s); scanning the audio again", record, error)
        return None


def _read_scan(record: Path, key: str) -> _Scanned | None:
    found = _read_record(record)
    return (found.frames, found.errors) if found and found.fingerprint == key else None


def _write_scan(
    record: Path,
    key: str,
    utterances: Sequence[Utterance],
    frames: dict[str, list[int]],
    errors: list[UtteranceError],
) -> None:
    bad = [{"id": e.id, "path": str(e.path), "reason": e.reason} for e in errors]
    durations = {u.id: (u.duration, u.channel) for u in utterances if u.id in frames}
    found = {"bad": bad, "frames": frames, "durations": durations}
    content = {"fingerprint": key, "checksum": _record_checksum(found), **found}
    write_text(record, json.dumps(content, ensure_ascii=False))


def _record_checksum(content: dict[str, Any]) -> str:
    found = [content["bad"], content["frames"], content.get("durations")]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


class _Scan(Dataset[tuple[int, list[int] | WildCTCError]]):
    """Item i is the frames of utterance i at each speed, or the error about its audio."""

    def __init__(self, utterances: Sequence[Utterance], cache: FeatureCache, speeds: Sequence[float]) -> None:
        self.utterances, self.cache, self.speeds = utterances, cache, speeds

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, index: int) -> tuple[int, list[int] | WildCTCError]:
        utterance = self.utterances[index]
        try:
            if utterance.duration == 0:  # the manifest does not say how much audio there should be; the header may
                check_audio(utterance)
            with _on_one_thread():
                return index, [self.cache.frames(utterance, speed) for speed in self.speeds]
        except WildCTCError as error:
            return index, error


def _target(utterance: Utterance, found: str | Writings, units: Units, rejects: Rejects) -> Example | None:
    """The example of an utterance, without its frames; None if its transcript cannot be used."""
    try:
        return make_target(utterance, found, units)
    except UtteranceError as error:
        rejects.add(error)
        return None


def _fingerprint(utterances: Sequence[Utterance], cache: FeatureCache, speeds: Sequence[float]) -> str:
    digest = hashlib.sha256(f"{cache.front_end.name} {list(speeds)}".encode())
    for u in utterances:
        digest.update(f"{u.id}\t{u.start}\t{u.duration}\t{u.channel}\t{u.text}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Use one thread of torch, as in a data-loading process: with more, the last bits of some front ends differ."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
