"""The import graph of the package, from its source, and the order of its layers, from docs/architecture.md."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


def read_layers(page: Path) -> dict[str, int]:
    """The layer of each room (a folder or a file under src/wildctc), counted from the top.

    Args:
        page: Markdown with a fenced block that begins with ```text layers. A line is a layer: the names of its rooms,
            then two spaces and what they are for.

    Returns:
        Room to number; 0 is the top layer.
    """
    block = re.search(r"```text layers\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block, f"{page}: no block of layers"
    lines = [line for line in block[1].splitlines() if line.strip()]
    return {room: number for number, line in enumerate(lines) for room in re.split(r" {2,}", line)[0].split()}


def imports_of(source: Path) -> dict[str, set[str]]:
    """What each module of the package imports from the package.

    Args:
        source: the folder that holds the package.

    Returns:
        Module to the modules that it imports.
    """
    paths = {_module(path, source): path for path in sorted(source.rglob("*.py"))}
    return {module: _imports(path, paths) - {module} for module, path in paths.items()}


def _module(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path, modules: dict[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "wildctc":
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                found.add(inner if inner in modules else node.module)
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.split(".")[0] == "wildctc"}
    return found


def misplaced(imports: dict[str, set[str]], layers: dict[str, int]) -> list[str]:
    """The imports that go upward.

    Args:
        imports: as `imports_of` gives it.
        layers: as `read_layers` gives it.

    Returns:
        A line for each.
    """
    pairs = [(module, target) for module, targets in imports.items() for target in sorted(targets)]
    return [
        f"{module} imports {target}"
        for module, target in pairs
        if "." in module and "." in target and layers[target.split(".")[1]] < layers[module.split(".")[1]]
    ]


def find_cycle(imports: dict[str, set[str]]) -> list[str] | None:
    """A circle of imports.

    Args:
        imports: as `imports_of` gives it.

    Returns:
        The modules of one circle; None if there is none.
    """
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return None
