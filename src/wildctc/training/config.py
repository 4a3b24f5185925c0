"""Read and write settings: from a recipe (YAML) and from the command line, by one strict function.

Both sources use `apply`. A wrong key or a value of the wrong type therefore gives the same error in both, and a recipe
cannot contain a setting that nothing reads.

jsonargparse would do much of this, and was tried (4.53): a misspelled setting gets "unrecognized arguments" and no
"did you mean", `--data.speeds 0.9 1.0` is refused, and its help does not show what a field says about itself.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import textwrap
import types
import typing
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from wildctc.criteria import CRITERIA
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.files import read_bytes
from wildctc.training.settings import Config

# Settings that may differ when a run resumes: they do not change its weights.
_FREE_ON_RESUME = {
    "data.dir", "data.audio_root", "data.cache", "data.cache_limit_gb", "data.workers", "data.feature_workers",
    "data.max_bad", "data.variants", "data.also", "training.checkpoint_steps",
}  # fmt: skip

# Settings where 0 switches something off. All other numbers, except those of a schedule, must be greater.
_MAY_BE_ZERO = (
    "seed", "data.max_bad", "data.workers", "data.feature_workers", "encoder.dropout", "spec_augment.",
    "optimizer.warmup_steps", "optimizer.weight_decay", "training.ctc_epochs", "label_smoothing.weight",
    "cr_ctc.weight",
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
    criteria = textwrap.fill(f"Criteria: {', '.join(CRITERIA)}", 100)
    return f"""{recipes}
{criteria}

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
    if (config.data.units == "phones") != (config.data.lexicon is not None):
        raise WildCTCError("data.units phones and data.lexicon belong together: give both or neither")
    if not config.data.speeds or min(config.data.speeds) <= 0:
        raise WildCTCError(f"data.speeds must be a list of speeds greater than 0, got {config.data.speeds}")
    if config.training.ctc_epochs >= config.training.epochs:
        raise WildCTCError(
            f"training.ctc_epochs ({config.training.ctc_epochs}) must be less than training.epochs "
            f"({config.training.epochs}): nothing would be trained with the criterion; lower --training.ctc_epochs"
        )
    for key, share in (("label_smoothing", config.label_smoothing), ("inter_ctc", config.inter_ctc)):
        if share.weight >= 1:
            raise WildCTCError(f"{key}.weight is a share of the loss, less than 1, got {share.weight}")
    layers = config.inter_ctc.layers or []
    if layers != sorted({layer for layer in layers if 1 <= layer < config.encoder.blocks}):
        raise WildCTCError(
            f"inter_ctc.layers must be ascending and from 1 to encoder.blocks − 1 = {config.encoder.blocks - 1}, got "
            f"{' '.join(map(str, layers))}"
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
