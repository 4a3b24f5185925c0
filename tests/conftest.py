"""A fixture for all; and `make sanitize` puts a sanitised build of the engine in the place of the installed one."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch

if os.environ.get("WILDCTC_NATIVE"):
    (library,) = Path(os.environ["WILDCTC_NATIVE"]).glob("_native*.so")
    spec = importlib.util.spec_from_file_location("wildctc.lattice._native", library)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])


@pytest.fixture(scope="module")
def one_thread():
    """For a module whose torch runs in this process: threads of small operations wait more than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
