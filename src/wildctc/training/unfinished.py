"""The model of a run that has none yet: that of its last checkpoint."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from wildctc.errors import WildCTCError
from wildctc.files import load_tensors, save_tensors
from wildctc.recognizer.model import Recognizer
from wildctc.training.checkpoints import begun

log = logging.getLogger(__name__)


def is_unfinished(run: Path) -> bool:
    """Whether the folder is that of a run with a checkpoint, but without its model."""
    return begun(run) and not (run / "model" / "model.safetensors").is_file()


def load_last(run: Path, trust_front_end: bool = False) -> tuple[Recognizer, int]:
    """The recogniser of a run's last checkpoint, which may still be training, and the steps that it has taken.

    Args:
        run: The run's folder.
        trust_front_end: As `Recognizer.load` takes it.

    Returns:
        The recogniser, in eval mode, on the CPU; the number of optimiser steps.
    """
    last = run / "checkpoints" / "last.safetensors"
    description = [path for path in Recognizer.description(last.parent) if path.is_file()]
    if not description:
        raise WildCTCError(f"{run}: the run has no model/ yet; run the same `wildctc train` again to finish it")
    tensors, state = load_tensors(last)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    # Loaded as any other model folder, so that it is checked as any other.
    with tempfile.TemporaryDirectory() as folder:
        for path in description:
            shutil.copy(path, folder)
        save_tensors(Path(folder) / "model.safetensors", weights, {"units": state.get("units")})
        model = Recognizer.load(folder, trust_front_end=trust_front_end)
    step = state.get("step")
    if type(step) is not int:
        raise WildCTCError(f"{last}: no step in its state: not a checkpoint of `wildctc train`")
    log.warning(
        "%s has no model yet: this is its last checkpoint, of epoch %s, step %s, without averaging", run,
        state.get("epoch"), f"{step:,}",
    )  # fmt: skip
    return model, step
