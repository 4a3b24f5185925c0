"""What the docstrings of public functions lack: a line for each argument, and one for the result."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# commands: `register` and `run` are the same in every file, and described once in commands/__init__.py
SAME_EVERYWHERE = {"register", "run"}


def lacking(path: Path) -> list[str]:
    """The public functions and methods of a file whose docstring lacks something.

    Args:
        path: a Python file.

    Returns:
        A line for each: line number, name, and what is missing.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for name, function in _public_functions(tree):
        if path.parent.name == "commands" and name in SAME_EVERYWHERE:
            continue
        missing = _missing(function)
        if missing:
            found.append(f"{path}:{function.lineno}: {name}: no {', '.join(missing)}")
    return found


def _public_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _public(node):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and _public(inner):
                    yield f"{node.name}.{inner.name}", inner


def _public(function: ast.FunctionDef) -> bool:
    """Not private; not a property, an override, an overload or a compiled kernel, which are described elsewhere."""
    decorators = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
    return not function.name.startswith("_") and not re.search(
        r"property|setter|override|overload|jit|register_fake|abstractmethod|inlined", decorators
    )


def _missing(function: ast.FunctionDef) -> list[str]:
    text = ast.get_docstring(function)
    if text is None:
        return ["docstring"]
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [a.arg for a in (given.vararg, given.kwarg) if a is not None]
    names = [name for name in names if name not in ("self", "cls")]
    sections = {section: _section(text, section) for section in ("Args", "Returns", "Yields")}
    missing = []
    for name in names:
        if not re.search(rf"^\s+\*{{0,2}}{name}\b[^:\n]*:", sections["Args"], re.MULTILINE):
            missing.append(f"argument {name}")
    result = ast.unparse(function.returns) if function.returns else "None"
    if result not in ("None", "NoReturn", "Never", "Self") and not (sections["Returns"] or sections["Yields"]):
        missing.append("Returns")
    return missing


def _section(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\n((?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    return found[1] if found else ""
