"""What a run needs to know of all its shards before it begins: units, a digest, and that their features are there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from wildctc.corpora.shards import Shards, describe, open_shards
from wildctc.errors import WildCTCError
from wildctc.features.front_end import make_front_end
from wildctc.features.packed import ShardFeatures
from wildctc.progress import progress
from wildctc.training.data import data_digest, feature_workers, find_manifest, find_shards, learned_texts
from wildctc.training.settings import Config, DataConfig
from wildctc.training.targets import Example

_TEXTS = 100_000  # utterances whose transcripts units are learned from, at least


def texts_of_shards(shards: Shards, config: DataConfig) -> list[str]:
    """Choose the texts that units are learned from.

    These are of all shards, or of evenly spaced ones; and for each character that these do not have, of a shard that
    has it. The list of shards says which characters a shard has.

    Args:
        shards: The shards.
        config: The settings of the data.

    Returns:
        The texts.
    """
    each = max(1, shards.utterances // len(shards))
    chosen = set(range(0, len(shards), max(1, len(shards) * each // _TEXTS)))
    seen = {char for number in chosen for char in shards.shards[number].characters}
    for number, shard in enumerate(shards.shards):
        if not seen.issuperset(shard.characters):
            seen.update(shard.characters)
            chosen.add(number)
    texts: list[str] = []
    for number in progress(sorted(chosen), desc="reading transcripts", unit="shard", leave=False):
        utterances = [u for u in shards.read(number, audio=False) if u.duration <= config.max_duration]
        texts += learned_texts(config, utterances)
    return texts


def shards_digest(shards: Shards, dev: Sequence[Example]) -> str:
    """Hash what a run's batches depend on.

    Args:
        shards: The training shards.
        dev: The validation examples.

    Returns:
        16 hexadecimal digits.
    """
    content = [[shard.name, shard.digest] for shard in shards.shards]
    return hashlib.sha256(json.dumps([content, data_digest(dev)]).encode()).hexdigest()[:16]


def compute_features_of(config: Config) -> str:
    """Compute the features of a run's shards, without the run.

    Args:
        config: The settings of the run.

    Returns:
        A line about what is there.

    Raises:
        WildCTCError: The training data is not in shards, or no features are kept.
    """
    data = config.data
    address = find_shards(data, "train")
    if address is None or data.cache is None:
        if data.cache is None:
            raise WildCTCError("--data.cache is null: no features are kept")
        raise WildCTCError(
            f"{find_manifest(data, 'train')} is a manifest, whose features `wildctc train` computes itself; "
            "`wildctc pack` makes shards"
        )
    shards = open_shards(address, data.audio_root)
    features = ShardFeatures(data.cache, shards, make_front_end(asdict(config.features)), data.speeds)
    compute_features(features, data)
    return f"{features.folder}: the features of {describe(address, shards.shards)}"


def compute_features(features: ShardFeatures, config: DataConfig) -> None:
    """Compute the features that are missing, beside other processes that do the same.

    Args:
        features: The features of the shards.
        config: The settings of the data.
    """
    missing = features.missing()
    if not missing:
        return
    sizes = [shard.utterances for shard in features.shards.shards]
    total = sum(sizes[number] for number in missing)
    with progress(total=total, desc="features of shards", unit="utt", leave=False) as bar:
        for number in features.compute(feature_workers(config, total), config.cache_limit_gb):
            bar.update(sizes[number])
