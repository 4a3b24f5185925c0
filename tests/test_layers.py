"""Layers import downward only. Their order is written down once, in docs/architecture.md; imports come from the source.

Every import counts, wherever it stands: at the top of a file, inside a function, or under `TYPE_CHECKING`.
"""

import ast
from pathlib import Path

import pytest
from support.layers import find_cycle, imports_of, misplaced, read_layers

ROOT = Path(__file__).parents[1]
LAYERS = read_layers(ROOT / "docs" / "architecture.md")
IMPORTS = imports_of(ROOT / "src")


def test_every_room_has_its_layer_and_no_layer_names_what_is_not_there():
    rooms = {module.split(".")[1] for module in IMPORTS if "." in module}
    assert rooms == set(LAYERS)


def test_a_module_imports_from_its_own_layer_or_below():
    assert misplaced(IMPORTS, LAYERS) == []


def test_no_import_goes_round_in_a_circle():
    assert find_cycle(IMPORTS) is None


def test_nothing_inside_imports_the_facade():
    assert [module for module, targets in IMPORTS.items() if "wildctc" in targets] == []


def test_there_is_one_import_style():
    """Absolute, from the module that defines the name."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}:{node.lineno}: a relative import"
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("wildctc") for a in node.names), f"{path}:{node.lineno}: use from"


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("from wildctc.training.loop import train", "wildctc.lattice.arcs imports wildctc.training.loop"),
        ("def f():\n    from wildctc.probe import graphs", "wildctc.lattice.arcs imports wildctc.probe.graphs"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, wrong, found):
    for path in (ROOT / "src" / "wildctc").rglob("*.py"):
        copy = tmp_path / path.relative_to(ROOT / "src")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    arcs = tmp_path / "wildctc" / "lattice" / "arcs.py"
    arcs.write_text(arcs.read_text(encoding="utf-8") + f"\n\n{wrong}\n", encoding="utf-8")
    assert found in misplaced(imports_of(tmp_path), LAYERS)


def test_a_circle_inside_one_layer_is_found():
    circle = find_cycle({"wildctc.text.a": {"wildctc.text.b"}, "wildctc.text.b": {"wildctc.text.a"}})
    assert circle is not None
    assert set(circle) == {"wildctc.text.a", "wildctc.text.b"}
