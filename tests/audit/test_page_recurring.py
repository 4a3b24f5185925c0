"""A finding that recurs is fixed once, in all utterances that have it."""

import pytest
from support.probes import probed, write

from wildctc.audit.report import write_report
from wildctc.cli import main

MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, d.fixed ?? d.decision]))"


@pytest.fixture
def page(empty, tmp_path):
    utterances = [
        probed("one", "i am gonna go", {2: "going"}),
        probed("two", "we are gonna see a cat", {2: "going", 5: "hat"}, speaker="ben"),
        probed("three", "gonna be", {0: "going"}),
        probed("other", "a dog", {1: "log"}),
        probed("back", "is going", {1: "gonna"}),
    ]
    write_report(write(tmp_path, utterances), tmp_path / "report")
    empty.open(tmp_path / "report")
    return empty


def test_a_recurring_finding_is_counted_and_fixed_in_all_undecided_utterances(page):
    page.choose("three")
    page.press("a")
    page.page.click("#recurring")
    [row] = page.page.locator("#recurring-list tr:has(button)").all_inner_texts()
    assert row.split() == ["gonna", "→", "going", "3", "2", "▶", "Fix", "2", "Variant", "Hide"]
    page.page.click("#recurring-list button:has-text('Fix')")
    page.page.click("#recurring-dialog button.main")
    fixed = {"one": "i am going go", "two": "we are going see a cat", "three": "accept"}
    assert page.run(MADE) == fixed
    page.page.select_option("#decision", "undecided")
    assert set(page.listed()) == {"two", "other", "back"}  # nobody has listened to the other finding of the second
    page.page.select_option("#decision", "all")
    page.page.locator("#list").focus()
    page.press("u")
    assert page.run(MADE) == {"three": "accept"}
    page.press("Shift+U")
    assert page.run(MADE) == fixed


def test_what_was_fixed_everywhere_is_listed_and_taken_back_after_a_reload(empty, tmp_path):
    utterances = [probed(id, "gonna see a cat", {0: "going", 3: "hat"}) for id in ("one", "two")]
    write_report(write(tmp_path, [*utterances, probed("three", "my cat", {1: "hat"})]), tmp_path / "report")
    page = empty
    page.open(tmp_path / "report")
    page.page.click("#recurring")
    for fixed in ("cat", "gonna"):
        page.page.click(f"#recurring-list tr:has-text('{fixed} →') button:has-text('Fix')")
    page.page.reload()
    page.wait()
    page.page.click("#recurring")
    lines = page.page.locator("#rules-list tr:has(button)").all_inner_texts()
    assert [" ".join(line.split()) for line in lines] == [
        "cat → hat fixed in 3 utterances Take back",
        "gonna → going fixed in 2 utterances Take back",
    ]
    page.page.click("#rules-list tr:has-text('cat →') button")
    assert page.run(MADE) == {"one": "going see a cat", "two": "going see a cat"}
    assert "gonna" in page.text("#rules-list")
    assert "cat" not in page.text("#rules-list")
    page.page.click("#recurring-dialog form button")
    page.page.locator("#list").focus()
    page.press("u")
    assert page.run(MADE) == {"one": "going see a hat", "two": "going see a hat", "three": "my hat"}


def test_a_sample_of_a_recurring_finding_is_played(page):
    page.run("() => { window.played = []; app.player.play = (row, start) => played.push(row.id); }")
    page.page.click("#recurring")
    for _ in range(3):
        page.page.click("#recurring-list button:has-text('▶')")
        page.wait()
    assert sorted(page.run("played")) == ["one", "three", "two"]


@pytest.mark.parametrize(("name", "also_reversed"), [("Variant", True), ("Hide", False)])
def test_a_rule_settles_a_finding_everywhere_and_can_be_taken_back(page, folder, name, also_reversed):
    issues = "Object.fromEntries(report.rows.map(row => [row.id, row.issues.map(i => i.heard)]))"
    before = page.run(issues)
    assert before["back"] == ["gonna"]
    page.page.click("#recurring")
    page.page.click(f"#recurring-list button:has-text('{name}')")
    settled = {"one": [], "two": ["hat"], "three": [], "other": ["log"], "back": [] if also_reversed else ["gonna"]}
    assert page.run(issues) == settled
    assert page.page.is_visible("#recurring-none")
    assert "gonna → going" in page.text("#rules-list")
    page.page.click("#recurring-dialog form button")
    page.choose("three")
    assert page.text(".findings") == "Nothing doubtful."
    empty = {id for id, found in settled.items() if not found}
    assert set(page.listed()[-len(empty) :]) == empty  # what has no findings is last
    page.page.reload()
    page.wait()
    assert page.run(issues) == settled
    page.page.click("#recurring")
    page.page.click("#rules-list button:has-text('Take back')")
    page.page.click("#recurring-dialog form button")
    assert page.run(issues) == before
    page.page.locator("#list").focus()
    page.press("u")
    assert page.run(issues) == settled
    page.press("Shift+U")
    assert page.run(issues) == before


def test_a_rule_is_exported_loaded_and_written_as_a_lexicon(page, tmp_path):
    page.page.click("#recurring")
    page.page.click("#recurring-list button:has-text('Variant')")
    page.page.click("#recurring-dialog form button")
    with page.page.expect_download() as download:
        page.page.click("#export")
    download.value.save_as(tmp_path / "d.jsonl")
    assert main(["decisions", "variants", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "v.txt")]) == 0
    assert (tmp_path / "v.txt").read_text() == "going gonna\n"
    page.forget()
    assert len(page.run("report.byId.get('one').issues")) == 1
    page.page.set_input_files("#file", tmp_path / "d.jsonl")
    page.until("report.byId.get('one').issues.length === 0")
