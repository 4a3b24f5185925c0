"""How Python calls the C++ engine."""

import subprocess
import sys

# The targets are not contiguous, so a contiguous copy is made for C++. It is so large that its memory goes back to the
# system when the copy is freed: reading it then ends the process.
READ = """
import torch
from wildctc.lattice import native
from wildctc.lattice.arcs import as_lattice

tokens = 1 << 20
targets = torch.ones(tokens, 2, dtype=torch.int64)[:, :1].T
logits = torch.zeros(1, 1, 2).expand(tokens, 1, 2)
native.NativeBatch(as_lattice(logits, targets, [tokens], [tokens], 0, None, None)).check()
"""


def test_tensors_stay_alive_while_cpp_reads_them():
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
