"""The site's landing page is README.md, and links to files outside docs/ lead to copies of them on the site.

Pages link as GitHub resolves links: relative to the file. Here every link that leads out of docs/ is rewritten, and the
file that it names becomes a page of the site: Markdown as it is, anything else as a block of code.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")
FENCE = re.compile(r"^(```\w+) [\w ]+$", re.MULTILINE)  # "text layers": a block that a test reads
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".cff": "yaml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages in the repository's root, and every file outside docs/ that a page links to."""
    to_read = [*ROOT.glob("*.md"), *(Path(file.abs_src_path or "") for file in files.documentation_pages())]
    seen = set(to_read)
    while to_read:
        page = to_read.pop()
        if DOCS not in page.parents:
            files.append(File.generated(config, _uri(page), content=_content(page)))
        for target in _targets(page) if page.suffix == ".md" else []:
            if target not in seen and DOCS not in target.parents:
                seen.add(target)
                to_read.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links lead where the linked file is on the site, and name the language alone where a block begins."""
    source = _source(page.file.src_uri)

    def rewrite(link: re.Match[str]) -> str:
        target = _resolve(source, link[2])
        if not target.is_file():
            return link[0]  # MkDocs reports it
        return link[1] + os.path.relpath(_uri(target), os.path.dirname(page.file.src_uri) or ".")

    return LINK.sub(rewrite, FENCE.sub(r"\1", markdown))


def _targets(page: Path) -> list[Path]:
    found = [_resolve(page, link[2]) for link in LINK.finditer(page.read_text(encoding="utf-8"))]
    return [path for path in found if path.is_file()]


def _resolve(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


def _uri(file: Path) -> str:
    """Where a file of the repository is on the site."""
    if file == ROOT / "README.md":
        return "index.md"
    if DOCS in file.parents:
        return file.relative_to(DOCS).as_posix()
    name = file.relative_to(ROOT).as_posix()
    return f"repository/{name}" if file.suffix == ".md" else f"repository/{name}.md"


def _source(uri: str) -> Path:
    """The file of the repository that a page of the site is."""
    if uri == "index.md":
        return ROOT / "README.md"
    if not uri.startswith("repository/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix("repository/")
    return path if path.is_file() else path.with_suffix("")


def _content(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file == ROOT / "README.md":
        return f"---\nhide: [navigation]\n---\n{text}"  # the landing page has no neighbours to list
    if file.suffix == ".md":
        return text
    name = file.relative_to(ROOT).as_posix()
    return f"# {name}\n\n```{LANGUAGES.get(file.suffix, 'text')}\n{text}```\n"
