"""Load what a run is trained on: its utterances, their features, and a model of the right size."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from wildctc.corpora.shards import Shards, open_shards
from wildctc.corpora.utterance import Utterance
from wildctc.criteria import Criterion
from wildctc.distributed import Processes
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import make_front_end
from wildctc.features.packed import ShardFeatures
from wildctc.features.stats import FeatureStats
from wildctc.features.trust import remember
from wildctc.files import make_folder
from wildctc.recognizer.model import Recognizer
from wildctc.text.units import Units
from wildctc.training.batches import seed_of
from wildctc.training.build import encoder_settings
from wildctc.training.data import (
    STATS_FROM,
    data_digest,
    feature_stats,
    find_shards,
    make_units,
    read_split,
    remember_durations,
    report_alternatives,
    report_weights,
    units_of_texts,
    usable,
)
from wildctc.training.lost import Lost
from wildctc.training.noise import group_examples
from wildctc.training.run_folder import has_checkpoint
from wildctc.training.settings import Config, DataConfig
from wildctc.training.shard_data import compute_features, shards_digest, texts_of_shards
from wildctc.training.shard_steps import ShardSteps, take_sample
from wildctc.training.shard_windows import Source
from wildctc.training.steps import ExampleSteps
from wildctc.training.targets import Example, make_reader

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunData:
    """What a run is trained on.

    Attributes:
        cache: Gives features.
        model: A new model. It normalises features, except in a resumed run, which gets statistics with its weights.
        steps: Gives the steps of an epoch.
        dev: The validation examples.
        digest: A hash of all examples.
        lost: "train" and "dev" → utterances that become unreadable during the run.
        hours: Hours of training speech, at one speed.
    """

    cache: FeatureCache
    model: Recognizer
    steps: ExampleSteps | ShardSteps
    dev: list[Example]
    digest: str
    lost: dict[str, Lost]
    hours: float


def load_run_data(config: Config, run: Path, criterion: Criterion, processes: Processes) -> RunData:
    """Load the data of a run. This computes and caches all features.

    Args:
        config: The settings.
        run: The run's folder.
        criterion: The criterion of the run.
        processes: The training processes.

    Returns:
        The data, and a model on the CPU.

    Raises:
        WildCTCError: There is no usable data.
    """
    # manifests, units and front end
    data = config.data
    found = make_folder(run / "data")
    shards = _open_shards(config)
    train = _read_train(data, found) if shards is None else []
    dev = remember_durations(read_split(data, "dev"), found / "dev.json")
    units = make_units(data, train) if shards is None else units_of_texts(data, texts_of_shards(shards, data))
    front_end = asdict(config.features)
    cache = FeatureCache(data.cache, make_front_end(front_end))
    if processes.first:
        remember(front_end)
    wanted = [(u, speed) for u in train for speed in data.speeds]
    cache.check_room(wanted + [(u, 1.0) for u in dev], data.cache_limit_gb)
    # the model comes before the examples: it decides how many frames a transcript needs
    torch.manual_seed(seed_of(config.seed))
    model = Recognizer(front_end, encoder_settings(config), units)
    # utterances that can be trained on; this computes the features
    resumes = processes.tell(has_checkpoint(run))
    if not resumes and processes.first:
        for path in found.glob("lost-*.json"):
            path.unlink()
    rest = model.output_lengths, found / "train.json", resumes, processes
    examples = [] if shards is not None else usable(train, units, cache, data, data.speeds, *rest)
    rest = model.output_lengths, found / "dev.json", resumes, processes
    held_out = usable(dev, units, cache, data, [1.0], *rest)
    if not held_out or not (examples or shards):
        raise WildCTCError("no usable utterances: see the reasons above")
    of_train = len({e.utterance.id for e in examples}) if shards is None else shards.utterances
    lost = {
        split: Lost(found, split, count, data.max_bad, processes.rank)
        for split, count in (("train", of_train), ("dev", len({e.utterance.id for e in held_out})))
    }
    steps: ExampleSteps | ShardSteps
    if shards is None:
        report_weights(examples, criterion)
        if config.rates.by is not None:
            grouped, groups = group_examples(examples, config.rates.by)
            criterion.group_by(groups)
        else:
            grouped = examples
        steps = ExampleSteps(grouped, cache, config, cache.front_end.frame_rate, processes, lost["train"])
        hours = sum(e.utterance.duration for e in examples) / 3600 / len(data.speeds)
        digest = data_digest(examples + held_out)
    else:
        steps = _shard_steps(config, shards, model, units, cache, processes)
        hours, digest = shards.seconds / 3600, shards_digest(shards, held_out)
    report_alternatives(examples, held_out)
    if not resumes:  # a resumed run gets statistics with the weights, so that it normalises with the same bits
        model.set_stats(_stats(steps, cache, processes))
    copies = len(data.speeds)
    _log.info(
        "%d training utterances (%.2f h%s), %d for validation, %d units, %.2f million weights",
        of_train, hours, f", each at {copies} speeds" if copies > 1 else "", len(held_out),
        len(units), sum(p.numel() for p in model.parameters()) / 1e6,
    )  # fmt: skip
    return RunData(cache, model, steps, held_out, digest, lost, hours)


def _read_train(data: DataConfig, found: Path) -> list[Utterance]:
    everything = remember_durations(read_split(data, "train"), found / "train.json")
    train = [u for u in everything if u.duration <= data.max_duration]
    if len(train) < len(everything):
        _log.info("%d utterances longer than %g s skipped", len(everything) - len(train), data.max_duration)
    return train


def _open_shards(config: Config) -> Shards | None:
    """The shards of the training data; None if it is a manifest."""
    address = find_shards(config.data, "train")
    if address is None:
        return None
    for name, value in (("data.also", config.data.also), ("rates.by", config.rates.by)):
        if value is not None:
            raise WildCTCError(f"--{name} needs all training utterances in memory, so it does not work with shards yet")
    return open_shards(address, config.data.audio_root)


def _shard_steps(
    config: Config, shards: Shards, model: Recognizer, units: Units, cache: FeatureCache, processes: Processes
) -> ShardSteps:
    """Compute the features of shards that are missing, together with the other processes."""
    data = config.data
    features = ShardFeatures(data.cache, shards, cache.front_end, data.speeds)
    compute_features(features, data)
    processes.barrier()  # one process may be much slower than another
    source = Source(shards, features, units, make_reader(data), model.output_lengths, config)
    return ShardSteps(source, processes)


def _stats(steps: ExampleSteps | ShardSteps, cache: FeatureCache, processes: Processes) -> FeatureStats:
    """Compute the statistics of the features in the first process, for all."""
    stats = None
    if processes.first:
        given = (steps.examples, cache) if isinstance(steps, ExampleSteps) else take_sample(steps.source, STATS_FROM)
        stats = feature_stats(*given)
    processes.barrier()  # wait here, however long that takes
    found = processes.tell(stats)
    assert found is not None
    return found
