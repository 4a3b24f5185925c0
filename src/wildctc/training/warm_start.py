"""Branch off from a trunk of plain CTC, so that criteria are compared from the same start.

With `training.ctc_epochs: K` the first K epochs are plain CTC for every criterion, and a run keeps the checkpoint at
their end. Another run that differs only in criterion and schedule would repeat these epochs bit by bit. It can copy the
checkpoint instead: the same result in less time.
"""

from __future__ import annotations

import logging
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.files import Damaged, make_folder, write_atomically
from wildctc.tensor_files import load_tensors
from wildctc.training.checkpoints import Checkpoints
from wildctc.training.config import differences
from wildctc.training.run_folder import TRUNK, checkpoint_folder, has_checkpoint, has_trunk, read_settings
from wildctc.training.settings import Config

_log = logging.getLogger(__name__)
_MAY_DIFFER = ("criterion", "schedule.", "rates.")


def branch_off(trunk: Path, run: Path, config: Config) -> None:
    """Copy the trunk's checkpoint into a run that has none yet, together with the record of its data.

    Args:
        trunk: The folder of the run to branch off from.
        run: The folder of the new run. If it has a checkpoint already, nothing is done.
        config: The settings of the new run. Only criterion, schedule and rates may differ from the trunk's.

    Raises:
        WildCTCError: The trunk has no such checkpoint, its settings differ, or the checkpoint is damaged.
    """
    if has_checkpoint(run):
        return
    if not has_trunk(trunk):
        raise WildCTCError(
            f"{trunk}: no run with a trunk: train one with --training.ctc_epochs, and let these epochs end first"
        )
    changed = [change for change in differences(read_settings(trunk), config) if not change.startswith(_MAY_DIFFER)]
    if changed:
        raise WildCTCError(f"{trunk} is no trunk for this run: it has other settings ({'; '.join(changed[:3])})")
    ours, theirs = Checkpoints(checkpoint_folder(run)), checkpoint_folder(trunk) / TRUNK
    try:
        load_tensors(theirs)
    except Damaged as error:
        raise WildCTCError(f"{error}; without --trunk the run trains these epochs itself") from None
    for file in sorted((trunk / "data").iterdir()):
        write_atomically(make_folder(run / "data") / file.name, file.read_bytes())
    write_atomically(ours.trunk, theirs.read_bytes())
    write_atomically(ours.last, theirs.read_bytes())  # written last: from here on the run can be resumed
    _log.info("branched off from %s after %d epochs of plain CTC", trunk, config.training.ctc_epochs)
