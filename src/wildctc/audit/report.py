"""Write the report: a folder with a page that shows a probe with its sound, opened from disk without a network.

The folder is replaced when the new report is complete. What is in it is written by `wildctc.audit.building`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

from wildctc.audit.building import AuditReport, Builder
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, writing
from wildctc.version import __version__

_MADE = Path("data", "made.json")  # what the report was made from
_FORMAT = 2  # of the data, which the page reads


def write_report(probe: str | Path, folder: str | Path, link: bool = False, workers: int | None = None) -> AuditReport:
    """Write the report of a probe file into a folder.

    The folder is replaced when the report is complete, so a failure leaves what was there before. Other files in the
    folder, such as decisions, stay.

    Args:
        probe: The probe file.
        folder: A new or empty folder, or one with an earlier report.
        link: Link to audio files instead of copying them, if browsers can play them as they are.
        workers: How many processes; 0 or 1 for none but this one; None for one on each core, if the probe is large.

    Returns:
        What was written.
    """
    probe, folder = Path(probe), Path(folder)
    check_report_folder(folder)
    place = folder.resolve()
    part = place.with_name(f".{place.name}.part")
    with writing(folder):
        shutil.rmtree(part, ignore_errors=True)
        make_folder(part / "data" / "spectra")
        make_folder(part / "audio")
        try:
            report = Builder(probe, part, folder, link, workers).write()
            _copy_page(part)
            (part / _MADE).write_text(json.dumps(_origin(probe, link)))
            _replace(place, part)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return report


def check_report_folder(folder: Path) -> None:
    """Check before long work that a folder can get a report.

    Args:
        folder: A new or empty folder, or one with an earlier report.

    Raises:
        WildCTCError: It is a file, or has other files and no report.
    """
    make_folder(folder.parent)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "data" / "report.js").is_file():
        raise WildCTCError(f"{folder} holds other files and no report: give a new folder")
    if folder.exists() and not folder.is_dir():
        raise WildCTCError(f"{folder} is a file: give a folder for the report")


def is_current(probe: str | Path, folder: str | Path) -> bool:
    """Whether a folder has the report of a probe, with its sound, made by this version.

    Args:
        probe: The probe file.
        folder: The folder of the report.

    Returns:
        True if there is nothing to make again.
    """
    try:
        return bool(json.loads((Path(folder) / _MADE).read_text()) == _origin(Path(probe), link=False))
    except (OSError, ValueError):
        return False


def _origin(probe: Path, link: bool) -> dict[str, Any]:
    with probe.open("rb") as file:
        return {"probe": hashlib.file_digest(file, "sha256").hexdigest(), "link": link, "made": [__version__, _FORMAT]}


def _copy_page(folder: Path) -> None:
    for file in resources.files("wildctc.audit").joinpath("page").iterdir():
        if file.name.endswith((".html", ".css", ".js")):
            (folder / file.name).write_bytes(file.read_bytes())


def _replace(folder: Path, part: Path) -> None:
    """Replace `folder` by `part`. Files that a person put into the folder, such as decisions, stay."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists():  # an earlier command was killed during the steps below: a person's files may be there
        make_folder(folder)
        _keep_others(old, folder)
    if not folder.exists():
        part.rename(folder)
        return
    folder.rename(old)
    part.rename(folder)
    _keep_others(old, folder)


def _keep_others(old: Path, folder: Path) -> None:
    """Move the files that only `old` has to `folder`, and remove `old`."""
    for path in old.iterdir():
        if not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(old, ignore_errors=True)
