"""Load what a run is trained on: its utterances, their features, and a model of the right size."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from wildctc.criteria import Criterion
from wildctc.distributed import Processes
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import make_front_end
from wildctc.features.stats import FeatureStats
from wildctc.features.trust import remember
from wildctc.files import make_folder
from wildctc.recognizer.model import Recognizer
from wildctc.training.batches import seed_of
from wildctc.training.build import encoder_settings
from wildctc.training.data import (
    data_digest,
    feature_stats,
    make_units,
    read_split,
    remember_durations,
    report_alternatives,
    report_weights,
    usable,
)
from wildctc.training.lost import Lost
from wildctc.training.run_folder import has_checkpoint
from wildctc.training.settings import Config
from wildctc.training.targets import Example

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunData:
    """What a run is trained on.

    Attributes:
        cache: Gives features.
        model: A new model. It normalises features, except in a resumed run, which gets statistics with its weights.
        train: The training examples.
        dev: The validation examples.
        digest: A hash of all examples.
        lost: "train" and "dev" → utterances that become unreadable during the run.
        hours: Hours of training speech, at one speed.
    """

    cache: FeatureCache
    model: Recognizer
    train: list[Example]
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
    everything, dev = (
        remember_durations(read_split(data, split), found / f"{split}.json") for split in ("train", "dev")
    )
    train = [u for u in everything if u.duration <= data.max_duration]
    if len(train) < len(everything):
        _log.info("%d utterances longer than %g s skipped", len(everything) - len(train), data.max_duration)
    units, front_end = make_units(data, train), asdict(config.features)
    cache = FeatureCache(data.cache, make_front_end(front_end))
    if processes.first:
        remember(front_end)
    cache.check_room(
        [(u, speed) for u in train for speed in data.speeds] + [(u, 1.0) for u in dev], data.cache_limit_gb
    )
    # the model comes before the examples: it decides how many frames a transcript needs
    torch.manual_seed(seed_of(config.seed))
    model = Recognizer(front_end, encoder_settings(config), units)
    # utterances that can be trained on; this computes the features
    resumes = processes.tell(has_checkpoint(run))
    rest = model.output_lengths, found / "train.json", resumes, processes
    examples = usable(train, units, cache, data, data.speeds, *rest)
    rest = model.output_lengths, found / "dev.json", resumes, processes
    held_out = usable(dev, units, cache, data, [1.0], *rest)
    if not examples or not held_out:
        raise WildCTCError("no usable utterances: see the reasons above")
    report_weights(examples, criterion)
    report_alternatives(examples, held_out)
    if not resumes and processes.first:
        for path in found.glob("lost-*.json"):
            path.unlink()
    if not resumes:  # a resumed run gets statistics with the weights, so that it normalises with the same bits
        model.set_stats(_stats(examples, cache, processes))
    lost = {
        split: Lost(found, split, len({e.utterance.id for e in of_split}), data.max_bad, processes.rank)
        for split, of_split in (("train", examples), ("dev", held_out))
    }
    copies = len(data.speeds)
    hours = sum(e.utterance.duration for e in examples) / 3600 / copies
    _log.info(
        "%d training utterances (%.2f h%s), %d for validation, %d units, %.2f million weights",
        len(examples) // copies, hours, f", each at {copies} speeds" if copies > 1 else "", len(held_out),
        len(units), sum(p.numel() for p in model.parameters()) / 1e6,
    )  # fmt: skip
    return RunData(cache, model, examples, held_out, data_digest(examples + held_out), lost, hours)


def _stats(examples: Sequence[Example], cache: FeatureCache, processes: Processes) -> FeatureStats:
    """Compute the statistics of the features in the first process, for all."""
    stats = feature_stats(examples, cache) if processes.first else None
    processes.barrier()  # wait here, however long that takes
    found = processes.tell(stats)
    assert found is not None
    return found
