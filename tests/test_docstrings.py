"""Public functions say what they take and what they return: `Args` and `Returns`, a line for each."""

from pathlib import Path

import pytest
from support.docstrings import lacking

SOURCE = Path(__file__).parents[1] / "src" / "wildctc"
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_argument_and_result_is_described(path):
    assert lacking(path) == []


def test_what_lacks_is_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        'def f(a, b) -> int:\n    """Add.\n\n    Args:\n        a: one.\n    """\n\n\n'
        'def g() -> None:\n    """Print."""\n\n\ndef _h(a): ...\n\n\nclass A:\n    def m(self): ...\n'
    )
    assert [line.split(": ", 1)[1] for line in lacking(path)] == ["f: no argument b, Returns", "A.m: no docstring"]
