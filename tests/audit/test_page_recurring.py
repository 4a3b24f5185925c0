"""A finding that recurs is fixed once, in all utterances that have it."""

import pytest
from support.probes import probed, write

from wildctc.audit.report import write_report

MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, d.fixed ?? d.decision]))"


@pytest.fixture
def page(empty, tmp_path):
    utterances = [
        probed("one", "i am gonna go", {2: "going"}),
        probed("two", "we are gonna see a cat", {2: "going", 5: "hat"}, speaker="ben"),
        probed("three", "gonna be", {0: "going"}),
        probed("other", "a dog", {1: "log"}),
    ]
    write_report(write(tmp_path, utterances), tmp_path / "report")
    empty.open(tmp_path / "report")
    return empty


def test_a_recurring_finding_is_counted_and_fixed_in_all_undecided_utterances(page):
    page.choose("three")
    page.press("a")
    page.page.click("#recurring")
    [row] = page.page.locator("#recurring-list tr:has(td)").all_inner_texts()
    assert row.split() == ["gonna", "→", "going", "3", "2", "▶", "Fix", "2"]
    page.page.click("#recurring-list button:has-text('Fix')")
    page.page.click("#recurring-dialog button.main")
    fixed = {"one": "i am going go", "two": "we are going see a cat", "three": "accept"}
    assert page.run(MADE) == fixed
    page.page.select_option("#decision", "undecided")
    assert set(page.listed()) == {"two", "other"}  # nobody has listened to the other finding of the second
    page.page.select_option("#decision", "all")
    page.page.locator("#list").focus()
    page.press("u")
    assert page.run(MADE) == {"three": "accept"}
    page.press("Shift+U")
    assert page.run(MADE) == fixed


def test_a_sample_of_a_recurring_finding_is_played(page):
    page.run("() => { window.played = []; app.player.play = (row, start) => played.push(row.id); }")
    page.page.click("#recurring")
    for _ in range(3):
        page.page.click("#recurring-list button:has-text('▶')")
    assert page.run("played") == ["one", "two", "three"]
