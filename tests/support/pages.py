"""README and the pages of docs: their fenced blocks."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Pages whose python continues their commands: `test_docs_run.py` runs it, after them and in their folder.
PYTHON_NEEDS_FOLDER = {"using-the-model.md"}


class Block(NamedTuple):
    kind: str
    line: int
    content: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    return [Block(m[1], text[: m.start()].count("\n") + 1, m[2]) for m in found]


def compiled(page: Path, block: Block):
    """A python block, whose errors have the line numbers of the page."""
    return compile("\n" * block.line + block.content, str(page), "exec")
