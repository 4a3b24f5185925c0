"""The settings of a run: dataclasses, filled from a recipe (YAML) and from the command line by one strict function.

Both sources use `apply`. A wrong key or a value of the wrong type therefore gives the same error in both, and a recipe
cannot contain a setting that nothing reads.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import textwrap
import types
import typing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from wildctc.criteria import CRITERIA
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import read_bytes


def _setting(default: Any, about: str) -> Any:
    """A field with its default and a line about it, which `wildctc train --help` prints."""
    return field(default=default, metadata={"about": about})


@dataclass
class DataConfig:
    """Manifests, text and batches."""

    dir: str = _setting(".", "the folder that `train` and `dev` are relative to")
    train: str = _setting("train.jsonl.gz", "the manifest to train on")
    dev: str = _setting("dev.jsonl.gz", "the manifest for validation after each epoch")
    audio_root: str | None = _setting(None, "where the audio is now, if its folder was moved after `wildctc prepare`")
    lower: bool = _setting(False, "transcripts in lower case")
    strip_punctuation: bool = _setting(False, "transcripts without punctuation")
    keep_invisible: bool = _setting(False, "transcripts with zero-width spaces, marks of direction and the like")
    units: Literal["characters", "sentencepiece"] = _setting("characters", "what the model writes")
    vocab_size: int = _setting(200, "how many pieces (SentencePiece only)")
    speeds: list[float] = field(
        default_factory=lambda: [1.0], metadata={"about": "one copy of the training data for each, played so fast"}
    )
    max_duration: float = _setting(30.0, "seconds; longer utterances are not trained on: attention grows as the square")
    batch_seconds: float = _setting(120.0, "seconds of audio in a batch, with its padding")
    max_bad: float = _setting(0.01, "the share of unusable utterances above which the run stops")
    workers: int = _setting(1, "processes that load data; 0: the training process does it")
    feature_workers: int | None = _setting(
        None, "processes that compute features before training; null: as many as there are cores"
    )
    cache: str | None = _setting(
        "features", "the folder of computed features, which runs can share; null: none are kept"
    )
    cache_limit_gb: float = _setting(100.0, "features that take more than that are refused before they are computed")


@dataclass
class FeatureConfig:
    """The front end: what `features.make_front_end` takes."""

    name: str = _setting("fbank", "fbank, moonshine-tiny, moonshine-base, an .onnx or .ort file, hf:NAME, or a folder")
    num_bins: int = _setting(80, "filterbank energies in a frame (fbank only)")
    layers: Literal["weighted", "last"] = _setting(
        "weighted", "of a Hugging Face model: a learned sum of all, or the last"
    )


@dataclass
class EncoderConfig:
    """The encoder: the fields of `encoders.make_encoder` that recipes set."""

    kind: Literal["e_branchformer", "conformer"] = _setting("e_branchformer", "the architecture")
    d_model: int = _setting(256, "width; even, and a multiple of heads")
    heads: int = _setting(4, "attention heads in a block")
    blocks: int = _setting(12, "how many blocks, one after the other")
    ff_dim: int = _setting(1024, "width inside the feed-forward parts and an E-Branchformer's cgMLP")
    kernel: int = _setting(31, "frames under every depthwise convolution; odd")
    subsampling: int = _setting(4, "frames of features for one of the encoder: 1, 2 or 4")
    subsampling_conv: Literal["conv2d", "conv1d"] = _setting("conv2d", "conv1d suits features of a pretrained model")
    dropout: float = _setting(0.1, "the share of activations and attention weights that is dropped")


@dataclass
class SpecAugmentConfig:
    """SpecAugment; all zeros switch it off."""

    time_warp: int = _setting(5, "frames by which a point inside an utterance may move; 0: no warping")
    freq_masks: int = _setting(2, "bands of dimensions that are masked")
    freq_width: int = _setting(27, "dimensions that one of them covers at most")
    time_masks: int = _setting(5, "stretches of time that are masked")
    time_ratio: float = _setting(0.05, "the share of an utterance that one of them covers at most")


@dataclass
class ScheduleConfig:
    """Overrides of the criterion's published weights and schedule; null keeps what the criterion's name says."""

    bypass: float | None = _setting(
        None, "weight of token bypasses in the first epoch, a natural logarithm; null: published"
    )
    bypass_tau: float | None = _setting(None, "what it is multiplied by from epoch to epoch (epoch schedules)")
    self_loop: float | None = _setting(None, "likewise of self-loops")
    self_loop_tau: float | None = _setting(None, "likewise")
    word_bypass: float | None = _setting(None, "likewise of word bypasses")
    word_bypass_tau: float | None = _setting(None, "likewise")
    h_low: float | None = _setting(
        None, "the smoothed held-out entropy at which weights are fully relaxed (names in -h)"
    )
    kappa: float | None = _setting(None, "the exponent of progress towards h_low: the larger, the later weights relax")
    alpha: float | None = _setting(None, "how much the latest epoch counts in the smoothed entropy, 0 to 1")
    epoch_scale: float | None = _setting(
        None, "epoch e counts as 1 + (e − 1)·epoch_scale: 30 ÷ epochs for other lengths"
    )


@dataclass
class OptimizerConfig:
    """Adam with warm-up."""

    lr: float = _setting(2e-3, "the learning rate at the end of the warm-up")
    warmup_steps: int = _setting(15000, "optimiser steps in which it rises from 0")
    decay: Literal["sqrt", "cosine"] = _setting("sqrt", "after the warm-up 1/√step, or a cosine to 0 at the last epoch")
    weight_decay: float = _setting(1e-6, "Adam's L2 penalty")
    clip: float = _setting(5.0, "the norm that gradients are cut to")
    accumulate: int = _setting(1, "batches in an optimiser step")


@dataclass
class TrainingConfig:
    """The loop."""

    epochs: int = _setting(30, "how many at most")
    ctc_epochs: int = _setting(0, "this many epochs at the start are plain CTC; then the criterion's schedule begins")
    patience: int | None = _setting(None, "stop after this many epochs without a better `select_by`; null: never")
    select_by: Literal["cer+deletions", "wer", "ctc_loss", "loss"] = _setting(
        "cer+deletions", "what the best epochs are best by, on dev"
    )
    average: int = _setting(10, "how many of the best epochs have their weights averaged at the end")
    precision: Literal["float32", "bfloat16"] = _setting("float32", "of the model's forward pass in training")
    checkpoint_steps: int = _setting(200, "optimiser steps between checkpoints within an epoch")
    device: str = _setting("auto", "cpu, cuda, cuda:1; auto: the GPU if there is one")


@dataclass
class Config:
    """Everything that decides a run's weights, and where its data is."""

    criterion: str = _setting("ctc", "which wildcards there are, and their schedule: see above")
    seed: int = _setting(0, "of weights, batches, masks and dropout")
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)


# Settings that may differ when a run resumes: they do not change its weights.
_FREE_ON_RESUME = {
    "data.dir", "data.audio_root", "data.cache", "data.cache_limit_gb", "data.workers", "data.feature_workers",
    "data.max_bad", "training.checkpoint_steps",
}  # fmt: skip

# Settings where 0 switches something off. All other numbers, except those of a schedule, must be greater.
_MAY_BE_ZERO = (
    "seed", "data.max_bad", "data.workers", "data.feature_workers", "encoder.dropout", "spec_augment.",
    "optimizer.warmup_steps", "optimizer.weight_decay", "training.ctc_epochs",
)  # fmt: skip


def load_recipe(name_or_path: str) -> Config:
    """Read a recipe.

    Args:
        name_or_path: A YAML file, or the name of a recipe that comes with the package.

    Returns:
        Its settings; all others have their default.

    Raises:
        WildCTCError: There is no such recipe, or it is not valid.

    >>> load_recipe("librispeech").encoder.blocks
    12
    """
    path = Path(name_or_path)
    if path.is_file():
        try:
            return parse_yaml(read_bytes(path, _RECIPE_BYTES).decode(), str(path))
        except UnicodeDecodeError as error:
            raise WildCTCError(f"{path}: cannot be read as a recipe ({error})") from None
    if name_or_path not in shipped_recipes():
        raise WildCTCError(f"no recipe {name_or_path!r}: give a YAML file or one of {', '.join(shipped_recipes())}")
    shipped = resources.files("wildctc") / "recipes" / f"{name_or_path}.yaml"
    return parse_yaml(shipped.read_text(encoding="utf-8"), f"recipe {name_or_path}")


def shipped_recipes() -> list[str]:
    """List the recipes that come with the package.

    Returns:
        Their names, sorted.
    """
    files = (resources.files("wildctc") / "recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def settings_help() -> str:
    """Format the help of `wildctc train`: recipes, criteria and all settings.

    Returns:
        The text. Each setting has its default, what it does and, if they can be listed, its values.
    """
    rows = _describe(Config())
    width = max(len(setting) for setting, _ in rows)
    lines = [f"  {setting:<{width}}  {about}" for setting, about in rows]
    recipes = textwrap.fill(f"RECIPE is a YAML file or one of: {', '.join(shipped_recipes())}", 100)
    return f"""{recipes}
Criteria: {", ".join(CRITERIA)}

Settings and their defaults, which a recipe changes and the command line overrides:
{chr(10).join(lines)}"""


def settings_table(config: Config, recipe: str) -> str:
    """Format all settings of a run.

    Args:
        config: The settings.
        recipe: The recipe that they started from.

    Returns:
        A line for each setting: its value, and where that comes from (default, recipe or command line).
    """
    values, theirs, defaults = (flatten(to_dict(c)) for c in (config, load_recipe(recipe), Config()))
    width, values_width = max(map(len, values)), max(len(_shown(value)) for value in values.values())
    lines = []
    for key, value in values.items():
        shown = _shown(value)
        if value != theirs[key]:
            source = f"command line; {_shown(theirs[key])} in recipe {recipe}"
        else:
            source = f"recipe {recipe}" if value != defaults[key] else "default"
        lines.append(f"{key:<{width}}  {shown:<{values_width}}  {source}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    """Format a value as it is given on the command line."""
    words = value if isinstance(value, list) else [value]
    return " ".join("null" if w is None else str(w).lower() if isinstance(w, bool) else str(w) for w in words)


def _describe(settings: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Format each setting as it is given on the command line, with what it does."""
    hints = typing.get_type_hints(type(settings))
    rows = []
    for setting in dataclasses.fields(settings):
        value = getattr(settings, setting.name)
        if dataclasses.is_dataclass(value):
            rows += _describe(value, f"{setting.name}.")
            continue
        kind, about = hints[setting.name], setting.metadata["about"]
        choices = f" ({', '.join(typing.get_args(kind))})" if typing.get_origin(kind) is Literal else ""
        rows.append((f"--{prefix}{setting.name} {_shown(value)}", about + choices))
    return rows


_MOST_BRACKETS, _RECIPE_BYTES = 1000, 50_000  # of a recipe, which has a few thousand bytes


def parse_yaml(text: str, where: str) -> Config:
    """Parse YAML to settings.

    Args:
        text: The YAML.
        where: The source, for errors.

    Returns:
        The settings.

    Raises:
        WildCTCError: The text is not valid.
    """
    yaml = _yaml()
    try:
        # A run's config.yaml may come from a stranger: many brackets take minutes to parse, aliases fill all memory.
        if text.count("[") + text.count("{") > _MOST_BRACKETS:
            raise WildCTCError(f"{where}: more than {_MOST_BRACKETS} brackets; settings have a few")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise WildCTCError(f"{where}: aliases (*name) are not read; write the value out")
        content = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: dates and numbers that are not valid
        raise WildCTCError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise WildCTCError(f"{where}: expected settings as `key: value`, found {type(content).__name__}")
    config = Config()
    for key, value in flatten(content).items():
        apply(config, key, value, where)
    return config


def flatten(tree: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries to dotted keys.

    Args:
        tree: The dictionary.
        prefix: What all keys begin with.

    Returns:
        Dotted key → value.

    >>> flatten({"seed": 1, "encoder": {"blocks": 4}})
    {'seed': 1, 'encoder.blocks': 4}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def to_dict(config: Config) -> dict[str, Any]:
    """Convert settings to nested dictionaries.

    Args:
        config: The settings.

    Returns:
        The dictionary.
    """
    return dataclasses.asdict(config)


def to_yaml(config: Config) -> str:
    """Convert settings to YAML, which `parse_yaml` reads.

    Args:
        config: The settings.

    Returns:
        The YAML.
    """
    return str(_yaml().safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))


def apply(config: Config, key: str, value: Any, where: str) -> None:
    """Set one setting, and check its name and the type of its value.

    Args:
        config: The settings to change.
        key: A dotted key.
        value: The value.
        where: The source, for errors.

    Raises:
        WildCTCError: There is no such setting, or the value has the wrong type.

    >>> config = Config()
    >>> apply(config, "encoder.blocks", 4, "example")
    >>> config.encoder.blocks
    4
    """
    known = flatten(to_dict(config))
    if key not in known:
        guess = difflib.get_close_matches(key, known, n=1, cutoff=0) or [""]
        raise WildCTCError(f"{where}: no setting is called {key!r}; did you mean {guess[0]!r}?")
    *parents, name = key.split(".")
    holder: Any = config
    for parent in parents:
        holder = getattr(holder, parent)
    kind = typing.get_type_hints(type(holder))[name]
    setattr(holder, name, _convert(kind, value, key, where))


def apply_arguments(config: Config, arguments: list[str]) -> None:
    """Set settings from the command line.

    Args:
        config: The settings to change.
        arguments: Words such as `--encoder.blocks 4`, `--encoder.blocks=4` or `--data.speeds 0.9 1.0 1.1`.

    Raises:
        WildCTCError: A word is not valid.
    """
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise WildCTCError(f"command line: did not expect {word!r}; settings are written --name value")
        key, equals, text = word[2:].partition("=")
        key = key.replace("-", "_")  # as the options of other commands are written
        values = [text] if equals else []
        while not equals and words and not words[0].startswith("--"):
            values.append(words.pop(0))
        if not values:
            raise WildCTCError(f"command line: --{key} needs a value")
        parsed = [_parse(text) for text in values]
        apply(config, key, parsed if len(parsed) > 1 else parsed[0], "command line")


def validate(config: Config) -> None:
    """Refuse values that no run could use, before anything is computed.

    Args:
        config: The settings.

    Raises:
        WildCTCError: A value is out of range.
    """
    for key, value in flatten(to_dict(config)).items():
        # A schedule's weights may be negative; the criterion checks them.
        if isinstance(value, bool) or not isinstance(value, int | float) or key.startswith("schedule."):
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and not key.startswith(_MAY_BE_ZERO)):
            least = "at least" if key.startswith(_MAY_BE_ZERO) else "greater than"
            raise WildCTCError(f"{key} must be {least} 0, got {value}")
    if config.data.max_bad > 1:
        raise WildCTCError(f"data.max_bad is a share, 0 to 1, got {config.data.max_bad}")
    if not config.data.speeds or min(config.data.speeds) <= 0:
        raise WildCTCError(f"data.speeds must be a list of speeds greater than 0, got {config.data.speeds}")
    if config.training.ctc_epochs >= config.training.epochs:
        raise WildCTCError(
            f"training.ctc_epochs ({config.training.ctc_epochs}) must be less than training.epochs "
            f"({config.training.epochs}): nothing would be trained with the criterion; lower --training.ctc_epochs"
        )
    if config.encoder.subsampling not in (1, 2, 4):
        raise WildCTCError(f"encoder.subsampling must be 1, 2 or 4, got {config.encoder.subsampling}")


def differences(old: Config, new: Config) -> list[str]:
    """List the settings that differ, except those that may change when a run resumes.

    Args:
        old: The settings of the existing run.
        new: The settings that were given.

    Returns:
        Lines such as "seed: 0 there, 1 here".
    """
    a, b = flatten(to_dict(old)), flatten(to_dict(new))
    return [f"{k}: {a[k]} there, {b[k]} here" for k in a if a[k] != b[k] and k not in _FREE_ON_RESUME]


def _parse(text: str) -> Any:
    yaml = _yaml()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _convert(kind: Any, value: Any, key: str, where: str) -> Any:
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:  # X | None
        return None if value is None else _convert(options[0], value, key, where)
    if origin is list:
        values = value if isinstance(value, list) else [value]
        return [_convert(options[0], v, key, where) for v in values]
    if origin is Literal:
        if value not in options:
            raise WildCTCError(f"{where}: {key} must be one of {', '.join(map(str, options))}, got {value!r}")
        return value
    if kind is str and isinstance(value, int | float | str) and not isinstance(value, bool):
        return str(value)
    if kind is float and isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string
        try:
            return float(value)
        except ValueError:
            pass
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise WildCTCError(f"{where}: {key} must be {_name(kind)}, got {value!r}")


def _name(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, str(kind))


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("pyyaml", "train") from None
    return yaml
