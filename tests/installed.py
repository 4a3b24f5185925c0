"""An installed wheel works: no compiler, no checkout, no extras. For `make wheel` and cibuildwheel, not for pytest."""

import shutil
import sys
from pathlib import Path

import torch

import wildctc
from wildctc.lattice import _native


def main() -> None:
    assert Path(__file__).parents[1] / "src" not in Path(wildctc.__file__).parents, f"a checkout: {wildctc.__file__}"
    logits = torch.randn(50, 2, 20, generator=torch.Generator().manual_seed(0)).requires_grad_()
    given = (torch.arange(16) % 19 + 1).view(2, 8), torch.tensor([50, 43]), torch.tensor([8, 6])
    plain = torch.nn.functional.ctc_loss(logits.log_softmax(-1), *given)
    torch.testing.assert_close(wildctc.wildcard_ctc_loss(logits, *given), plain)
    wildcards = wildctc.Wildcards(bypass=-2.0, self_loop=-1.0)
    gradients = [
        torch.autograd.grad(wildctc.wildcard_ctc_loss(logits, *given, wildcards=wildcards, backend=backend), logits)[0]
        for backend in ("native", "reference")
    ]
    torch.testing.assert_close(*gradients)
    compilers = [name for name in ("cc", "c++", "gcc", "g++", "clang", "cl") if shutil.which(name)]
    print(
        f"wildctc {wildctc.__version__} works: Python {sys.version.split()[0]}, torch {torch.__version__}, "
        f"{_native.instruction_set()} kernels, {Path(_native.__file__).name}, compilers on PATH: {compilers or 'none'}"
    )


if __name__ == "__main__":
    main()
