"""The page can be used by everybody: axe-core finds nothing, on a desktop and on a phone, in light and dark."""

from pathlib import Path

import pytest

SHOWN = {
    "page": "",
    "decisions": "app.record({decision: 'fix', fixed: 'the dog'}, 0); app.saveComment('sure'); app.decide('skip')",
    "editor": "app.decide('fix')",
    "help": "byName('about').showModal()",
    "recurring": "await app.recurring.open()",
    "settled": "const [one] = app.row.issues; app.rule(one, 'hide'); await app.recurring.open()",
    "stop": "await app.stopping.open()",
    "older": "byName('older-text').textContent = '1 decision'; byName('older').showModal()",
    "who": "void app.team.ask()",
    "empty": "byName('search').value = 'no such words'; app.refilter()",
}


@pytest.fixture(scope="module")
def axe():
    package = pytest.importorskip("axe_playwright_python", reason="no axe-core: pip install '.[dev]'")
    return (Path(package.__file__).parent / "axe.min.js").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_axe_finds_no_violation(empty, folder, axe, size, scheme):
    page = empty
    page.page.emulate_media(color_scheme=scheme)
    page.page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    page.open(folder / "report")
    page.choose("english")
    page.run(f"() => {{ {axe} }}")
    found = {}
    for name, act in SHOWN.items():
        page.run(f"async () => {{ {act} }}")
        result = page.run("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
        found |= {
            (name, v["id"]): [n["html"][:120] + " " + n["failureSummary"][:200] for n in v["nodes"]] for v in result
        }
        page.run("document.querySelector('dialog[open]')?.close(); app.detail.closeEditor()")
    page.page.set_viewport_size({"width": 1280, "height": 800})
    page.errors.clear()  # axe tries what the page's policy forbids
    assert found == {}
