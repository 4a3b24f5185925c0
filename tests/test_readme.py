"""What README and docs say is true: code runs and prints what they show, commands parse, versions agree.

Every fenced block must be of a kind that is checked here, so a block cannot escape by being labelled otherwise.
"""

import contextlib
import io
import itertools
import json
import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest
import yaml
from support.pages import PAGES, PYTHON_NEEDS_FOLDER, ROOT, Block, blocks, compiled

import wildctc
from wildctc.cli import _parser, parse
from wildctc.commands.train import take
from wildctc.corpora.manifest import load_manifest
from wildctc.probe.records import read_probe
from wildctc.training.build import make_criterion
from wildctc.training.config import apply_arguments, load_recipe, parse_yaml, validate

KINDS = {"python", "text", "text layers", "sh", "jsonl", "yaml"}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def of_kind(kind: str) -> list[tuple[Path, Block]]:
    return [(page, block) for page in PAGES for block in blocks(page) if block.kind == kind]


def commands(page: Path) -> list[list[str]]:
    """The words after `wildctc` of each command: in a shell block, or in backticks in running text."""
    shell = "\n".join(b.content for b in blocks(page) if b.kind == "sh").replace("\\\n", " ")
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in shell.splitlines() if line.startswith("wildctc ")]
    lines += re.findall(r"`(wildctc [^`]+)`", prose)
    words = [shlex.split(line, comments=True)[1:] for line in lines]
    return [list(takewhile(lambda word: word not in (">", "|"), line)) for line in words]


def test_pages_are_there_with_code_and_commands():
    assert {page.name for page in PAGES} >= {"README.md", "lattice.md", "training.md"}
    assert {page.name for page, _ in of_kind("python")} >= {"README.md", "lattice.md"}
    assert {words[0] for words in commands(ROOT / "README.md")} >= {"prepare", "train", "decode", "compare", "probe"}


@each_page
def test_every_block_is_of_a_kind_that_is_checked(page):
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page))
    assert {block.kind for block in blocks(page)} <= KINDS


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in PYTHON_NEEDS_FOLDER], ids=lambda page: page.name)
def test_python_blocks_run_and_print_what_is_shown(page):
    namespace: dict[str, object] = {}
    found = blocks(page)
    for block, following in itertools.zip_longest(found, found[1:], fillvalue=Block("", 0, "")):
        if block.kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compiled(page, block), namespace)
        shown = following.content if following.kind == "text" and printed.getvalue() else ""
        assert printed.getvalue() == shown


@each_page
def test_commands_parse(page):
    for words in commands(page):
        if len(words) == 1:  # the name of a command
            words = [*words, "--help"]
        if words in (["train", "--help"], ["features", "--help"]):
            continue
        if words[0] in ("train", "features"):  # their options are the settings of a recipe
            out, rest = take(words[1:], "--out")
            _, (recipe, *settings) = take(rest, "--trunk")
            assert out or words[0] == "features", words
            config = load_recipe(recipe)
            apply_arguments(config, settings)
            validate(config)
            make_criterion(config)
        elif words[-1] == "--help":
            with pytest.raises(SystemExit, match="0"), contextlib.redirect_stdout(io.StringIO()):
                _parser().parse_args(words)
        else:
            options = parse(words)
            if words[0] == "reproduce":
                apply_arguments(load_recipe("iban"), options.settings)


def test_make_targets_exist():
    named = {
        target
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([\w-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    makefile = (ROOT / "Makefile").read_text()
    assert named >= {"test", "bench"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)


def test_manifests_and_recipes_of_the_pages_are_read(tmp_path):
    manifests, recipes = of_kind("jsonl"), of_kind("yaml")
    assert manifests
    assert recipes
    for _, block in manifests:
        (tmp_path / "manifest.jsonl").write_text(block.content, encoding="utf-8")
        if block.content.startswith('{"probe"'):
            settings, utterances = read_probe(tmp_path / "manifest.jsonl")
            assert settings["count"] == len(utterances) + len(settings["left_out"])
            continue
        assert len(load_manifest(tmp_path / "manifest.jsonl")) == block.content.count("\n")
    for page, block in recipes:
        validate(parse_yaml(block.content, page.name))


@each_page
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings], link


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert citation["version"] == newest[1] == wildctc.__version__


def test_citation_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    for work in (citation, *citation["references"]):
        assert all("name" in a or "family-names" in a for a in work["authors"])
    assert json.dumps(citation).count("token-level tolerance") == 1
