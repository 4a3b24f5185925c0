"""What `wildctc train` would do: `--dry-run`. Manifests are read and one batch is timed; nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from wildctc.corpora.utterance import Utterance
from wildctc.criteria import Criterion
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.front_end import FrontEnd
from wildctc.progress import duration
from wildctc.recognizer.model import Recognizer
from wildctc.scoring.transcripts import read_transcripts
from wildctc.training.batches import Batch, collate, plan_batches
from wildctc.training.build import encoder_settings, find_device, make_criterion
from wildctc.training.config import validate
from wildctc.training.data import find_shards, make_units, read_split
from wildctc.training.evaluation import evaluate
from wildctc.training.objective import Objective, TrainedNetwork
from wildctc.training.reports import WEIGHTS
from wildctc.training.settings import Config
from wildctc.training.steps import TRAIN_SAMPLE
from wildctc.training.targets import Example, make_reader, make_target

_SOUND = 10  # seconds of audio on which the front end is timed
_ROUNDS = 2  # the first may have something to set up


@dataclass(frozen=True)
class _Times:
    """Estimated seconds.

    Attributes:
        features: For features that are not in the cache.
        training: For the steps of all epochs.
        validation: For the validation of all epochs.
    """

    features: float
    training: float
    validation: float


def rehearse(config: Config, trunk: bool = False) -> str:
    """Describe a run without training it: data, size of the model, weights, and an estimate of time.

    Args:
        config: The settings of the run.
        trunk: Whether its epochs of plain CTC are copied from another run.

    Returns:
        Lines for people.

    Raises:
        WildCTCError: `train` would refuse the settings.
    """
    validate(config)
    device, criterion, data = find_device(config.training.device), make_criterion(config), config.data
    if find_shards(data, "train") is not None:
        raise WildCTCError(
            "--dry-run reads all of a manifest and does not work with shards; try it with a small manifest"
        )
    train = [u for u in read_split(data, "train") if u.duration <= data.max_duration]
    dev = read_split(data, "dev")
    model = Recognizer(asdict(config.features), encoder_settings(config), make_units(data, train))
    batches = _plan(config, model, train, data.speeds), _plan(config, model, dev, [1.0])
    epochs = config.training.epochs - trunk * config.training.ctc_epochs
    weights = sum(p.numel() for p in model.parameters())
    steps = -(-len(batches[0]) // config.optimizer.accumulate)
    times = _estimate(
        config, model.to(device), criterion, batches, epochs, _missing(config, model.front_end, train, dev)
    )
    threads = f", threads: {torch.get_num_threads()}" if device.type == "cpu" else ""
    each = (times.training + times.validation) / epochs
    speeds = f", each at {len(data.speeds)} speeds" if len(data.speeds) > 1 else ""
    return "\n".join(
        [
            f"data: {len(train)} training utterances ({sum(u.duration for u in train) / 3600:.2f} h{speeds}), "
            f"{len(dev)} for validation, {len(model.units)} units",
            f"model: {config.encoder.kind}, {weights / 1e6:.2f} million weights, {model.frame_rate:.1f} frames/s",
            f"steps: {steps} in an epoch, {steps * config.training.epochs} in all, of which "
            f"{config.optimizer.warmup_steps} are warm-up",
            f"wildcards: {_wildcards(config)}",
            f"time: {duration(times.features)} for features that are not in the cache + "
            f"{epochs} epochs × {duration(each)} = {duration(times.features + epochs * each)}, "
            f"if all batches take as long as the one that was timed ({device.type}{threads})",
            "nothing was written",
        ]
    )


def _plan(
    config: Config, model: Recognizer, utterances: Sequence[Utterance], speeds: Sequence[float]
) -> list[list[Example]]:
    """The batches of an epoch, with the lengths that the manifest states."""
    front_end, units = model.front_end, model.units
    found = read_transcripts(utterances, make_reader(config.data))
    targets = [make_target(u, found[u.id], units) for u in utterances if found[u.id]]
    examples = [
        replace(target, speed=speed, frames=front_end.frames(round(seconds / speed * front_end.sampling_rate)))
        for target in targets
        for seconds in [target.utterance.duration]
        for speed in speeds
    ]
    budget = int(config.data.batch_seconds * front_end.frame_rate)
    return [[examples[i] for i in batch] for batch in plan_batches([e.frames for e in examples], budget)]


def _missing(config: Config, front_end: FrontEnd, train: Sequence[Utterance], dev: Sequence[Utterance]) -> float:
    """Seconds of audio whose features are to be computed."""
    wanted = [(u, speed) for u in train for speed in config.data.speeds] + [(u, 1.0) for u in dev]
    cache = FeatureCache(config.data.cache, front_end)
    cache.check_room(wanted, config.data.cache_limit_gb)
    every, missing = cache.seconds(wanted)
    return missing if config.data.cache else every * config.training.epochs


def _estimate(
    config: Config,
    model: Recognizer,
    criterion: Criterion,
    batches: tuple[list[list[Example]], list[list[Example]]],
    epochs: int,
    missing: float,
) -> _Times:
    train, dev = batches
    batch = _made_up(sorted(train, key=_padded)[len(train) // 2], model)
    frames = batch.x.shape[0] * batch.x.shape[1]
    objective = Objective(config)
    network = TrainedNetwork(model, objective.blocks)
    batch = replace(batch, again=batch.x if objective.copies == 2 else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-9)

    def step() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(batch.x.device.type, torch.bfloat16, enabled=config.training.precision == "bfloat16"):
            logits, lengths = network(*objective.inputs(batch))
        found = objective([x.float() for x in logits], lengths, batch, criterion.wildcards)
        found.total.backward()
        optimizer.step()

    def validate_once() -> None:
        evaluate(model, [batch], criterion.wildcards)

    looked_at = sum(map(_padded, dev)) + TRAIN_SAMPLE * frames / len(batch.ids)
    wave = np.zeros(_SOUND * model.front_end.sampling_rate, np.float32)
    return _Times(
        _timed(lambda: model.front_end.extract(wave)) * missing / _SOUND if missing else 0.0,
        _timed(step) * sum(map(_padded, train)) / frames * epochs,
        _timed(validate_once) * looked_at / frames * epochs,
    )


def _padded(batch: Sequence[Example]) -> int:
    return max(e.frames for e in batch) * len(batch)


def _made_up(examples: Sequence[Example], model: Recognizer) -> Batch:
    """A batch with these lengths and transcripts, and noise for features."""
    generator = torch.Generator().manual_seed(0)
    shape = model.front_end.shape
    batch = collate(examples, [torch.randn(e.frames, *shape, generator=generator) for e in examples])
    return batch.to(next(model.parameters()).device)


def _timed(function: Callable[[], object]) -> float:
    """Seconds of one call. The fastest of several counts, because other work on the machine can only slow it down."""
    found = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(time.perf_counter() - begun)
    return min(found)


def _wildcards(config: Config) -> str:
    """The weight of each family in the first epoch with wildcards, and in the last."""
    criterion, plain, epochs = make_criterion(config), config.training.ctc_epochs, config.training.epochs
    first = criterion.wildcards
    names = [name for name in WEIGHTS if getattr(first, name) is not None]
    if not names:
        return "none, plain CTC"
    if criterion.rates is not None:
        by = f", for each {config.rates.by}" if config.rates.by else ""
        return f"from epoch {plain + 1} on, with noise rates from {criterion.settings.rate:.2%} on, estimated{by}"
    if criterion.needs_entropy:
        told = ", ".join(f"{name} {getattr(first, name):.3g}" for name in names)
        return f"from epoch {plain + 1} on, by held-out entropy down to {criterion.settings.h_low:g}: {told} at first"
    for _ in range(epochs - plain - 1):
        criterion.step()
    last = criterion.wildcards
    told = ", ".join(f"{name} {getattr(first, name):.3g} … {getattr(last, name):.3g}" for name in names)
    return f"in epochs {plain + 1} … {epochs}: {told}"
