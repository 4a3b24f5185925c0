"""Load the last checkpoint of a run that has no model yet."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.recognizer.model import Recognizer
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.training.run_folder import LAST, checkpoint_folder

_log = logging.getLogger(__name__)


def load_last(run: Path, trust_front_end: bool = False) -> tuple[Recognizer, int]:
    """Load the recogniser of a run's last checkpoint. The run may still be training.

    Args:
        run: The run's folder.
        trust_front_end: Allow a front end that is not part of WildCTC, as in `Recognizer.load`.

    Returns:
        The recogniser, in eval mode, on the CPU; the number of optimiser steps.
    """
    last = checkpoint_folder(run) / LAST
    description = [path for path in Recognizer.description(last.parent) if path.is_file()]
    if not description:
        raise WildCTCError(f"{run}: the run has no model/ yet; run the same `wildctc train` again to finish it")
    tensors, state = load_tensors(last)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    # Load it through a model folder, so that it gets the same checks.
    with tempfile.TemporaryDirectory() as folder:
        for path in description:
            shutil.copy(path, folder)
        save_tensors(Path(folder) / "model.safetensors", weights, {"units": state.get("units")})
        model = Recognizer.load(folder, trust_front_end=trust_front_end)
    step = state.get("step")
    if type(step) is not int:
        raise WildCTCError(f"{last}: its state has no step: not a checkpoint of `wildctc train`")
    _log.warning(
        "%s has no model yet: using its last checkpoint, of epoch %s, step %s, without averaging", run,
        state.get("epoch"), f"{step:,}",
    )  # fmt: skip
    return model, step
