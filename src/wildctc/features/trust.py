"""Whether a front end that a model folder names may be used.

A file, a folder or a model of the Hugging Face hub is read by large libraries, and fetched if need be. Who trains with
one has chosen it. In a model folder, somebody else may have chosen it: there the user must say that it is trusted.
"""

import logging
import os
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.features.front_end import OURS, with_absolute_path

_VARIABLE = "WILDCTC_TRUST_FRONT_END"
_log = logging.getLogger(__name__)


def check_trusted(config: dict[str, Any], where: Path, yes: bool = False) -> None:
    """Refuse a front end that is not ours, was never trained with by this user, and that the user does not trust.

    Args:
        config: What `make_front_end` takes.
        where: The file that names it.
        yes: Whether the user trusts it, for this once. The environment variable WILDCTC_TRUST_FRONT_END=1 says so for
            all front ends.
    """
    name = _full_name(config)
    if yes or name in OURS or os.environ.get(_VARIABLE) == "1" or name in _remembered():
        return
    raise WildCTCError(
        f"{where} names the front end {name[:200]!r}, which is no part of WildCTC; if you trust it, "
        f"give --trust-front-end (in Python trust_front_end=True) or set {_VARIABLE}=1"
    )


def remember(config: dict[str, Any]) -> None:
    """Keep the name of a front end that the user has trained with, so that the models are loaded without a question.

    Args:
        config: What `make_front_end` takes.
    """
    name = _full_name(config)
    if name in OURS or name in _remembered() or "\n" in name:
        return
    path = memory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    except (OSError, ValueError) as error:
        _log.warning("cannot write %s (%s): loading the model will need --trust-front-end", path, error)


def memory() -> Path:
    """Find the file with the front ends that this user has trained with.

    Returns:
        Its path; it has a name in each line.
    """
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder, "wildctc", "front-ends")


def _remembered() -> list[str]:
    try:
        return memory().read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return []


def _full_name(config: dict[str, Any]) -> str:
    """The name, from any working directory."""
    return str(with_absolute_path(config).get("name", "fbank"))
