"""Run stages one after the other and record which are done, so that the same call resumes where it was stopped."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text, writing
from wildctc.progress import duration

_NOTES = "stages.json"


@dataclass(frozen=True)
class Stage:
    """A part of the demo.

    Attributes:
        name: Its name.
        work: Does the work and returns a short text about the result.
    """

    name: str
    work: Callable[[], str]


def run_stages(folder: Path, settings: str, stages: Sequence[Stage], say: Callable[[str], None] = print) -> float:
    """Run the stages that are not done yet. The package's messages go to FOLDER/log.txt.

    Args:
        folder: Where the record is kept. It must be empty, or hold a demo with the same settings.
        settings: Everything that decides the results, as text.
        stages: The stages, in order.
        say: Prints a line for each stage.

    Returns:
        The seconds that all stages took.

    Raises:
        WildCTCError: The folder holds something else, or a demo with other settings.
    """
    notes = _read_notes(folder, settings)
    for number, stage in enumerate(stages, start=1):
        before = stage.name in notes
        if not before:
            begun = time.monotonic()
            with _log_to(folder / "log.txt"):
                result = stage.work()
            notes[stage.name] = {"result": result, "seconds": round(time.monotonic() - begun, 1)}
            content = {"settings": settings, "done": notes}
            write_text(folder / _NOTES, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        done = notes[stage.name]
        took = "done before" if before else duration(done["seconds"])
        say(f" {number}  {stage.name:<10} {done['result']:<72} {took:>11}")
    return float(sum(notes[stage.name]["seconds"] for stage in stages))


def _read_notes(folder: Path, settings: str) -> dict[str, dict[str, Any]]:
    make_folder(folder)
    path = folder / _NOTES
    if not path.exists():
        if any(folder.iterdir()):
            raise WildCTCError(f"{folder}: not empty, and not the folder of a demo; give another one with --out")
        write_text(path, json.dumps({"settings": settings, "done": {}}) + "\n")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        there, done = content["settings"], dict(content["done"])
    except (OSError, ValueError, KeyError, TypeError):
        raise WildCTCError(f"{path}: cannot be read; remove {folder} to start the demo again") from None
    if there != settings:
        raise WildCTCError(f"{folder}: a demo with other settings is there; remove it, or give another --out")
    return done


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Send the package's messages to a file instead of the terminal."""
    logger = logging.getLogger("wildctc")
    with writing(path):
        file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers, logger.handlers = logger.handlers, [file]
    try:
        yield
    finally:
        logger.handlers = handlers
        file.close()
