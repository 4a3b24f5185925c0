"""k2's numbers: the losses, gradients and arc posteriors of 90 graphs."""

import json
from pathlib import Path

import numpy as np

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "k2_wildcard_losses.npz")
CASES = json.loads(bytes(GOLDEN["meta"]))
