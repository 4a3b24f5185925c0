"""The Triton kernels by name. Importing this module imports Triton."""

from wildctc.lattice.triton_gradient import gradient
from wildctc.lattice.triton_graph import emissions, pack
from wildctc.lattice.triton_path import best_path
from wildctc.lattice.triton_posteriors import add_counts, posteriors
from wildctc.lattice.triton_scaled import INTERPRETED as _INTERPRETED
from wildctc.lattice.triton_sweep import sweep_in_tiles

INTERPRETED = _INTERPRETED.value

__all__ = ["INTERPRETED", "add_counts", "best_path", "emissions", "gradient", "pack", "posteriors", "sweep_in_tiles"]
