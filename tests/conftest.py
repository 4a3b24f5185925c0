"""Lets `make sanitize` put a sanitised build of the engine in the place of the installed one."""

import importlib.util
import os
import sys
from pathlib import Path

if os.environ.get("WILDCTC_NATIVE"):
    (library,) = Path(os.environ["WILDCTC_NATIVE"]).glob("_native*.so")
    spec = importlib.util.spec_from_file_location("wildctc.lattice._native", library)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
