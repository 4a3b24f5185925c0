"""Fixtures for all tests. `make sanitize` puts a sanitised build of the engine in place of the installed one."""

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


@pytest.fixture(scope="session", autouse=True)
def own_memory_of_front_ends(tmp_path_factory):
    """Front ends that tests train with are not remembered in the home of whoever runs them."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    yield
    os.environ.pop("XDG_CONFIG_HOME")
    if before is not None:
        os.environ["XDG_CONFIG_HOME"] = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """pytest-xdist sends what a test logs as UTF-8: half a surrogate pair, which some tests log, would end the run."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="module")
def one_thread():
    """For a module whose torch runs in this process: threads of small operations wait more than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
