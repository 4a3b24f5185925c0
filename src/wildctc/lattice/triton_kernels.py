"""The Triton kernels by name. Importing this module imports Triton."""

from triton.runtime import driver

from wildctc.lattice.triton_chain import sweep_in_registers
from wildctc.lattice.triton_gradient import gradient
from wildctc.lattice.triton_graph import emissions, pack
from wildctc.lattice.triton_path import best_path
from wildctc.lattice.triton_posteriors import add_counts, posteriors
from wildctc.lattice.triton_scaled import INTERPRETED as _INTERPRETED
from wildctc.lattice.triton_sweep import sweep_in_tiles

INTERPRETED = bool(_INTERPRETED.value)

__all__ = [
    "INTERPRETED",
    "add_counts",
    "best_path",
    "emissions",
    "gradient",
    "pack",
    "posteriors",
    "sweep_in_registers",
    "sweep_in_tiles",
    "warp_size",
]


def warp_size() -> int:
    """Ask for the threads of a warp: 32, or 64 on some ROCm devices.

    Returns:
        The number.
    """
    return int(driver.active.get_current_target().warp_size)
