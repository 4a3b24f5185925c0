"""Criteria compared from one start: a trunk of plain CTC, from which each branches off.

With `training.ctc_epochs: K` the first K epochs are plain CTC whatever the criterion, and a run keeps the checkpoint at
their end. Another run that differs in criterion and schedule alone would repeat these epochs to the last bit, so it may
take them over instead: the same result for less time.
"""

from __future__ import annotations

import logging
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.files import Damaged, load_tensors, make_folder, write_atomically
from wildctc.training.checkpoints import Checkpoints, begun
from wildctc.training.config import Config, differences, load_recipe

log = logging.getLogger(__name__)
MAY_DIFFER = ("criterion", "schedule.")


def branch_off(trunk: Path, run: Path, config: Config) -> None:
    """Put the trunk's checkpoint into a run that has none yet, with what the trunk has found out about the data."""
    if begun(run):
        return
    ours = Checkpoints(run / "checkpoints")
    theirs = trunk / "checkpoints" / ours.trunk.name
    if not theirs.exists():
        raise WildCTCError(
            f"{trunk}: no run with a trunk: train one with --training.ctc_epochs, and let these epochs end first"
        )
    path = trunk / "config.yaml"
    changed = differences(load_recipe(str(path)), config)
    changed = [change for change in changed if not change.startswith(MAY_DIFFER)]
    if changed:
        raise WildCTCError(f"{trunk} is no trunk for this run: it has other settings ({'; '.join(changed[:3])})")
    try:
        load_tensors(theirs)
    except Damaged as error:
        raise WildCTCError(f"{error}; without --trunk the run trains these epochs itself") from None
    for file in sorted((trunk / "data").iterdir()):
        write_atomically(make_folder(run / "data") / file.name, file.read_bytes())
    write_atomically(ours.trunk, theirs.read_bytes())
    write_atomically(ours.last, theirs.read_bytes())  # the last of all: with it the run has begun
    log.info("branched off from %s after %d epochs of plain CTC", trunk, config.training.ctc_epochs)
