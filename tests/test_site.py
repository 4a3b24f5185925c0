"""The documentation site has every page and public name, loads nothing from a network, and notices a broken link."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from support.pages import PAGES, ROOT

import wildctc

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")


def build(out: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", out],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, text=True, capture_output=True, check=False,
    )  # fmt: skip


class Page(HTMLParser):
    """Where a page's pictures, scripts and styles come from, and its ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag in ("img", "script"):
            self.loaded.append(given.get("src", ""))
        if tag == "link" and given.get("rel") == "stylesheet":
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_the_site_builds_strictly_and_has_every_page(site):
    for page in PAGES:
        assert (site / page.name).with_suffix(".html").is_file() or page.name == "README.md"
    landing = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="specification.html"' in landing
    assert 'href="docs/' not in landing


@pytest.mark.slow
def test_pictures_are_on_the_site_and_nothing_comes_from_a_network(site):
    pictures = 0
    for path in site.rglob("*.html"):
        for source in filter(None, Page(path).loaded):
            assert not re.match(r"(https?:)?//", source), f"{path.name}: {source}"
            assert path.name == "404.html" or (path.parent / source.partition("?")[0]).is_file(), source
            pictures += source.endswith((".svg", ".png"))
    assert pictures >= 5


@pytest.mark.slow
def test_every_public_name_is_described(site):
    described = set().union(*(Page(path).ids for path in (site / "api").glob("*.html")))
    assert {f"wildctc.{name}" for name in wildctc.__all__ if name != "__version__"} <= described


def test_a_broken_link_and_a_page_without_a_place_fail_the_build(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# One\n\n[gone](gone.md) [lost](#nowhere)\n")
    (docs / "forgotten.md").write_text("# Two\n")
    own = {"docs_dir": str(docs), "nav": ["index.md"], "not_in_nav": "", "hooks": [], "plugins": [], "extra_css": []}
    config = tmp_path / "mkdocs.yml"
    config.write_text(yaml.safe_dump({"INHERIT": str(ROOT / "mkdocs.yml"), **own}))
    done = build(tmp_path / "site", config)
    assert done.returncode == 1
    for complaint in ("gone.md", "#nowhere", "forgotten.md"):
        assert complaint in done.stderr
