"""Where to stop: what the page estimates from decisions, orders, reasons, comments, decisions on many utterances."""

import json

import numpy as np
import pytest
from support.audit_pages import UTTERANCES
from support.probes import SCRIPTS, probed, write

from wildctc.audit.calibration import Calibration, verdicts
from wildctc.audit.decisions import Decision, read_decisions
from wildctc.audit.report import write_report
from wildctc.probe.issues import issues_of

MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, [d.decision, d.reason ?? d.comment ?? null]]))"


@pytest.fixture
def many(empty, tmp_path):
    """A page with 60 utterances: a third have a finding of 0.95, a third one of 0.6, the rest none."""
    kinds = [({0: "ac"}, {}), ({}, {1: "ef"}), ({}, {})]
    write_report(
        write(tmp_path, [probed(f"u{n}", "ab cd gh", *kinds[n % 3], audio="gone.wav") for n in range(60)]),
        tmp_path / "report",
    )
    empty.open(tmp_path / "report")
    return empty


def test_the_page_learns_from_decisions_as_the_command_does(page):
    rng = np.random.default_rng(0)
    scores, kinds = rng.uniform(0.25, 1, 200).round(3), rng.integers(0, 3, 200)
    right = rng.random(200) < scores * (0.9 - 0.3 * kinds)
    judged = [[float(s), int(k), bool(r)] for s, k, r in zip(scores, kinds, right, strict=True)]
    names = [("changed", "extra", "missing")[k] for k in kinds]
    fitted = Calibration.fit(scores, names, right)
    assert page.run("judged => calibrate(judged).weights", judged) == pytest.approx(list(fitted.weights), abs=1e-6)
    rest = [[s, k] for s, k, _ in judged]
    found = page.run("([judged, rest]) => calibrate(judged).expected(rest)", [judged, rest])
    assert found == pytest.approx(fitted.expected(scores, names), abs=1e-6)
    assert page.run("calibrate([]).chance(0.7, 1)") == pytest.approx(0.7)


@pytest.mark.parametrize(
    "fixed",
    ["the quack brown fox jumps over the dog", "the quick brown fox jumps right over the lazy dog", "a b c", "quick"],
)
def test_the_page_draws_the_same_verdicts_as_the_command(page, fixed):
    utterance = SCRIPTS["english"]
    decision = Decision("english", "fix", utterance.text, fixed)
    expected = verdicts(utterance.text, issues_of(utterance, 0.25), decision)
    assert page.run("made => verdictsOf(report.byId.get('english'), made)", vars(decision)) == expected


def test_the_yield_and_the_errors_left_are_shown(many):
    assert not many.page.is_visible("#yield")
    for _ in range(20):
        many.press("h", "Enter")
    for _ in range(30):
        many.press("a")
    assert many.text("#yield") == "Last 50: 40% fixed"
    for _ in range(10):
        many.press("a")
    many.page.click("#stop")
    lines = many.page.locator("#estimate li").all_inner_texts()
    assert lines[0] == "Of the last 50 decisions, 10 were fixes (20%)."
    assert lines[1].startswith("About 0 errors left in 0 utterances")
    assert "Learned from your verdicts on 40 findings" in lines[2]
    assert many.page.get_attribute("#histogram", "aria-label") == "Scores of findings: 20 of 40 judged ones were right"
    assert "0.85–1.00\t20\t20\t100%" in many.text("#scores")


def test_few_fixes_suggest_to_stop_and_estimates_follow_the_verdicts(many):
    many.page.select_option("#order", "place")
    many.page.locator("#list").focus()
    many.press(*"a" * 50)
    assert many.text("#yield") == "Last 50: 0% fixed: stop here?"
    many.page.click("#stop")
    assert "About 0 errors left in 10 utterances" in many.text("#estimate")  # by the scores alone it would be 6


def test_what_is_below_a_score_is_accepted_at_once_and_undone_at_once(many):
    many.press("a")
    many.page.click("#stop")
    assert many.text("#bulk") == "Accept 20 utterances"
    many.page.fill("#bulk-score", "0.7")
    assert many.text("#bulk") == "Accept 40 utterances"
    many.page.click("#bulk")
    made = many.run(MADE)
    assert len(made) == 41
    assert sum(reason == "bulk: score below 0.70" for _, reason in made.values()) == 40
    assert many.run("calibrationOf(app.decisions).judged.length") == 1  # nobody has listened to the others
    many.page.locator("#list").focus()
    many.press("u")
    assert len(many.run(MADE)) == 1


def test_orders_of_the_list(many, empty, folder):
    many.page.select_option("#order", "unsure")
    assert set(many.listed()[:20]) == {f"u{n}" for n in range(1, 60, 3)}
    many.page.select_option("#order", "place")
    assert many.listed() == [f"u{n}" for n in range(60)]
    many.page.locator("#list").focus()
    many.press("a", "j", "a")
    many.page.select_option("#order", "recent")
    assert many.listed()[:2] == ["u2", "u0"]
    many.page.select_option("#order", "chance")
    assert many.text("#count") == "60 utterances, most errors expected first"
    empty.open(folder / "report")
    empty.page.select_option("#order", "length")
    assert empty.listed() == [u.id for u in sorted(UTTERANCES.values(), key=lambda u: u.duration)]


def test_the_next_undecided_utterance_is_one_key_away(many):
    ids = many.listed()
    many.press("a", "a", "Home", "o")
    assert many.text("#detail h2") == ids[2]
    many.press("End", "o")
    assert many.text("#detail h2") == ids[2]


def test_a_skip_has_a_reason_and_a_decision_a_comment(page, tmp_path):
    ids = page.listed()
    page.press("b", "w", "i", "e", "s")
    reasons = ["bad audio", "wrong speaker", "unintelligible", "nothing said", None]
    assert page.run(MADE) == {id: ["skip", reason] for id, reason in zip(ids, reasons, strict=False)}
    page.choose(ids[0])
    assert page.page.get_attribute(".reason >> nth=0", "aria-pressed") == "true"
    page.press("a", "k", "c")
    page.page.keyboard.type("a b c f")
    page.press("Enter")
    assert page.run(MADE)[ids[0]] == ["accept", "a b c f"]
    assert page.run("document.activeElement.id") == "list"
    with page.page.expect_download() as download:
        page.page.click("#export")
    download.value.save_as(tmp_path / "d.jsonl")
    assert {(d.reason, d.comment) for d in read_decisions(tmp_path / "d.jsonl")} >= {
        ("nothing said", ""),
        ("", "a b c f"),
    }
    page.forget()
    page.page.set_input_files("#file", tmp_path / "d.jsonl")
    page.until("app.decisions.made.size === 5")
    assert page.run(MADE)[ids[3]] == ["skip", "nothing said"]
    assert page.run(MADE)[ids[0]] == ["accept", "a b c f"]


def test_a_file_of_several_reviewers_gives_the_newest_and_says_so(page, tmp_path):
    rows = [
        Decision("english", "accept", SCRIPTS["english"].text, "", "ann", "2026-11-18T10:00:05.000Z").row(),
        Decision("english", "fix", SCRIPTS["english"].text, "the", "ben", "2026-11-18T10:00:00.000Z").row(),
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.page.set_input_files("#file", tmp_path / "d.jsonl")
    page.until("byName('toast').textContent.includes('the newest decision was taken')")
    assert page.run("app.decisions.made.get('english').reviewer") == "ann"
