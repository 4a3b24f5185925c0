"""A run's settings: dataclasses, filled from a recipe (YAML) and from the command line by one strict function.

Both sources go through `apply`, so a wrong key or a value of the wrong type gives the same one clear line wherever
it was written, and a recipe can never carry a setting that nothing reads.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from wildctc.criteria import CRITERIA
from wildctc.errors import MissingExtra, WildCTCError


@dataclass
class DataConfig:
    """Manifests, text and batches."""

    dir: str = "."  # the folder that `train` and `dev` are relative to
    train: str = "train.jsonl.gz"
    dev: str = "dev.jsonl.gz"
    lower: bool = False
    strip_punctuation: bool = False
    units: Literal["characters", "sentencepiece"] = "characters"
    vocab_size: int = 200  # SentencePiece only
    speeds: list[float] = field(default_factory=lambda: [1.0])  # one copy of the training data for each
    max_duration: float = 30.0  # longer training utterances are left out (attention grows with the square)
    batch_seconds: float = 120.0  # padded audio in a batch
    max_bad: float = 0.01  # the share of unusable utterances above which the run stops
    workers: int = 1
    cache: str | None = "features"  # the folder of computed features; can be shared by runs. null: none are kept
    cache_limit_gb: float = 100.0  # more than that is an error before anything is computed


@dataclass
class FeatureConfig:
    """The front end: what `features.make_front_end` takes."""

    name: str = "fbank"  # fbank, moonshine-tiny, an .onnx or .ort file, hf:NAME, or the folder of such a model
    num_bins: int = 80  # fbank only
    layers: Literal["weighted", "last"] = "weighted"  # Hugging Face only: a learned weighted sum of all, or the last


@dataclass
class EncoderConfig:
    """The encoder: the fields of `encoders.make_encoder` that recipes set."""

    kind: Literal["e_branchformer", "conformer"] = "e_branchformer"
    d_model: int = 256
    heads: int = 4
    blocks: int = 12
    ff_dim: int = 1024  # feed-forward and, in an E-Branchformer, cgMLP
    kernel: int = 31  # every depthwise convolution
    subsampling: int = 4
    subsampling_conv: Literal["conv2d", "conv1d"] = "conv2d"  # conv1d for features of a pretrained model
    dropout: float = 0.1


@dataclass
class SpecAugmentConfig:
    """SpecAugment; all zeros switch it off."""

    time_warp: int = 5
    freq_masks: int = 2
    freq_width: int = 27
    time_masks: int = 5
    time_ratio: float = 0.05


@dataclass
class ScheduleConfig:
    """Overrides of the criterion's published weights and schedule; null keeps what the criterion's name says."""

    bypass: float | None = None
    bypass_tau: float | None = None
    self_loop: float | None = None
    self_loop_tau: float | None = None
    word_bypass: float | None = None
    word_bypass_tau: float | None = None
    h_low: float | None = None
    kappa: float | None = None
    alpha: float | None = None
    epoch_scale: float | None = None  # e' = 1 + (e − 1)·epoch_scale, for runs of another length than 30 epochs


@dataclass
class OptimizerConfig:
    """Adam with warm-up."""

    lr: float = 2e-3  # at the end of the warm-up
    warmup_steps: int = 15000
    decay: Literal["sqrt", "cosine"] = "sqrt"  # after the warm-up: 1/√step, or a cosine to 0 at the last epoch
    weight_decay: float = 1e-6
    clip: float = 5.0  # norm of the gradient
    accumulate: int = 1  # batches in an optimiser step


@dataclass
class TrainingConfig:
    """The loop."""

    epochs: int = 30
    ctc_epochs: int = 0  # the first so many are plain CTC; then the criterion's schedule begins (see trunk.py)
    patience: int | None = None  # epochs without a better `select_by` before the run stops
    select_by: Literal["loss", "ctc_loss", "wer"] = "loss"
    average: int = 10  # best K epochs whose weights are averaged
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_steps: int = 200  # optimiser steps between checkpoints within an epoch
    device: str = "auto"


@dataclass
class Config:
    """Everything that decides a run's weights, and where its data is."""

    criterion: str = "ctc"
    seed: int = 0
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)
    features: FeatureConfig = field(default_factory=FeatureConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)


# Settings that may differ when a run is continued: they do not touch its weights.
FREE_ON_RESUME = {
    "data.dir", "data.cache", "data.cache_limit_gb", "data.workers", "data.max_bad", "training.checkpoint_steps",
}  # fmt: skip

# Settings where 0 switches something off; all other numbers but a schedule's must be greater.
MAY_BE_ZERO = (
    "seed", "data.max_bad", "data.workers", "encoder.dropout", "spec_augment.", "optimizer.warmup_steps",
    "optimizer.weight_decay", "training.ctc_epochs",
)  # fmt: skip


def load_recipe(name_or_path: str) -> Config:
    """The settings of a recipe: a YAML file, or the name of one shipped with the package.

    >>> load_recipe("librispeech").encoder.blocks
    12
    """
    path = Path(name_or_path)
    if path.is_file():
        try:
            return parse_yaml(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise WildCTCError(f"{path}: cannot be read as a recipe ({error})") from None
    if name_or_path not in shipped_recipes():
        raise WildCTCError(f"no recipe {name_or_path!r}: give a YAML file or one of {', '.join(shipped_recipes())}")
    shipped = resources.files("wildctc") / "recipes" / f"{name_or_path}.yaml"
    return parse_yaml(shipped.read_text(encoding="utf-8"), f"recipe {name_or_path}")


def shipped_recipes() -> list[str]:
    """The names of the recipes that come with the package."""
    files = (resources.files("wildctc") / "recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def settings_help() -> str:
    """Recipes, criteria, and every setting with its default and, where they can be listed, its values."""
    return f"""RECIPE is a YAML file or one of: {", ".join(shipped_recipes())}
Criteria: {", ".join(CRITERIA)}

Settings and their defaults, which a recipe changes and the command line overrides:
{_describe(Config())}"""


def _describe(settings: Any, prefix: str = "") -> str:
    hints = typing.get_type_hints(type(settings))
    lines = []
    for name, value in vars(settings).items():
        if dataclasses.is_dataclass(value):
            lines.append(_describe(value, f"{name}."))
            continue
        words = value if isinstance(value, list) else [value]
        shown = " ".join("null" if w is None else str(w).lower() if isinstance(w, bool) else str(w) for w in words)
        choices = (
            f"  (of {', '.join(typing.get_args(hints[name]))})" if typing.get_origin(hints[name]) is Literal else ""
        )
        lines.append(f"  --{prefix}{name} {shown}{choices}")
    return "\n".join(lines)


def parse_yaml(text: str, where: str) -> Config:
    """A configuration from YAML text; `where` names its source in error messages."""
    yaml = _yaml()
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise WildCTCError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise WildCTCError(f"{where}: expected settings as `key: value`, found {type(content).__name__}")
    config = Config()
    for key, value in flatten(content).items():
        apply(config, key, value, where)
    return config


def flatten(tree: dict[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys.

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
    """The configuration as plain nested dictionaries."""
    return dataclasses.asdict(config)


def to_yaml(config: Config) -> str:
    """The configuration as YAML; `parse_yaml` reads it back."""
    return str(_yaml().safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))


def apply(config: Config, key: str, value: Any, where: str) -> None:
    """Set one dotted key, checking its name and the type of its value.

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
    """Set fields from command-line words: `--encoder.blocks 4`, `--encoder.blocks=4`, `--data.speeds 0.9 1.0 1.1`."""
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise WildCTCError(f"command line: did not expect {word!r}; settings are written --name value")
        key, equals, text = word[2:].partition("=")
        values = [text] if equals else []
        while not equals and words and not words[0].startswith("--"):
            values.append(words.pop(0))
        if not values:
            raise WildCTCError(f"command line: --{key} needs a value")
        parsed = [_parse(text) for text in values]
        apply(config, key, parsed if len(parsed) > 1 else parsed[0], "command line")


def validate(config: Config) -> None:
    """Refuse values that no run could use, before anything is computed."""
    for key, value in flatten(to_dict(config)).items():
        # A schedule's weights may be negative; the criterion checks them.
        if isinstance(value, bool) or not isinstance(value, int | float) or key.startswith("schedule."):
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and not key.startswith(MAY_BE_ZERO)):
            least = "at least" if key.startswith(MAY_BE_ZERO) else "greater than"
            raise WildCTCError(f"{key} must be {least} 0, got {value}")
    if config.data.max_bad > 1:
        raise WildCTCError(f"data.max_bad is a share, 0 to 1, got {config.data.max_bad}")
    if not config.data.speeds or min(config.data.speeds) <= 0:
        raise WildCTCError(f"data.speeds must be a list of speeds greater than 0, got {config.data.speeds}")
    if config.training.ctc_epochs >= config.training.epochs:
        raise WildCTCError(
            f"training.ctc_epochs ({config.training.ctc_epochs}) must be less than training.epochs "
            f"({config.training.epochs}): nothing would be trained with the criterion"
        )
    if config.encoder.subsampling not in (1, 2, 4):
        raise WildCTCError(f"encoder.subsampling must be 1, 2 or 4, got {config.encoder.subsampling}")


def differences(old: Config, new: Config) -> list[str]:
    """What differs, as `key: old there, new here`, leaving out what may change when a run is continued."""
    a, b = flatten(to_dict(old)), flatten(to_dict(new))
    return [f"{k}: {a[k]} there, {b[k]} here" for k in a if a[k] != b[k] and k not in FREE_ON_RESUME]


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
