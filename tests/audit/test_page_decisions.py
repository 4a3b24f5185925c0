"""Decisions on the report's page: made, undone, stored, exported, loaded, and applied to a manifest."""

import json

from support.audit_pages import UTTERANCES
from support.probes import SCRIPTS, probed, write
from support.tones import write_rows

from wildctc.audit.report import write_report
from wildctc.cli import main


def read_rows(path):
    """Split at newlines only: transcripts may contain U+2028."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def decide(page):
    """Fix one utterance by copying findings, and one by hand; accept one, skip one."""
    page.choose("english")
    page.press("1")  # quick → quack
    page.page.click(".take:visible >> nth=2")  # + right
    page.press("Enter")
    page.choose("hindi")
    page.press("f")
    page.page.fill("textarea", "  मेरी किताबें   क्षत्रिय के पास है ")
    page.press("Enter")
    page.choose("arabic")
    page.press("a")
    page.choose("emoji")
    page.press("s")


DECIDED = {
    "english": ("fix", "the quack brown fox jumps right over the lazy dog"),
    "hindi": ("fix", "मेरी किताबें क्षत्रिय के पास है"),
    "arabic": ("accept", None),
    "emoji": ("skip", None),
}
MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, [d.decision, d.fixed ?? null]]))"


def test_decisions_are_kept_across_reloads_and_can_be_undone(page):
    decide(page)
    page.page.reload()
    page.wait()
    assert {id: tuple(made) for id, made in page.run(MADE).items()} == DECIDED
    assert page.text("#progress") == "4 of 7 decided"
    page.choose("english")
    assert page.text(".fixed") == f"Fixed: {DECIDED['english'][1]}"
    page.press("a", "u")  # now accepted instead, and back
    assert page.text("#detail h2") == "english"
    assert page.run(MADE)["english"] == list(DECIDED["english"])
    page.page.select_option("#decision", "undecided")
    assert not set(page.listed()) & set(DECIDED)


def test_exported_decisions_make_a_corrected_manifest_and_can_be_loaded_again(page, folder, tmp_path, capsys):
    decide(page)
    with page.page.expect_download() as download:
        page.page.click("#export")
    assert download.value.suggested_filename == "report-decisions.jsonl"
    download.value.save_as(tmp_path / "decisions.jsonl")
    rows = read_rows(tmp_path / "decisions.jsonl")
    assert {row["id"]: (row["decision"], row.get("fixed")) for row in rows} == DECIDED
    out = folder / "fixed.jsonl"
    assert main(["apply-fixes", str(folder / "manifest.jsonl"), str(tmp_path / "decisions.jsonl"), "-o", str(out)]) == 0
    texts = {row["id"]: row["text"] for row in read_rows(out)}
    for id, utterance in UTTERANCES.items():
        assert texts[utterance.id] == (DECIDED.get(id, ("", None))[1] or utterance.text)
    assert "2 fixed, 1 accepted, 1 skipped" in capsys.readouterr().out

    page.forget()
    assert page.run(MADE) == {}
    stale = [{"id": "clean", "decision": "accept", "text": "another text"}]
    write_rows(tmp_path / "decisions.jsonl", [*rows, *stale, {"id": "who", "decision": "skip", "text": ""}])
    page.page.set_input_files("#file", tmp_path / "decisions.jsonl")
    page.until("app.decisions.made.size === 4")
    assert {id: tuple(made) for id, made in page.run(MADE).items()} == DECIDED
    said = page.text("#toast")
    assert "4 decisions loaded" in said
    assert "1 for utterances that are not in this report" in said
    assert "refused, because the transcript is different now: clean" in said


def test_a_file_that_holds_no_decisions_is_refused(page, tmp_path):
    empty = json.dumps({"id": "english", "decision": "fix", "text": SCRIPTS["english"].text, "fixed": " "})
    told = {"{}": "line 1 is not a decision", "…": "line 1 is not JSON", f"\n{empty}": "line 2 is not a decision"}
    for content, message in told.items():
        (tmp_path / "x.jsonl").write_text(content)
        page.page.set_input_files("#file", tmp_path / "x.jsonl")
        page.until(f"byName('toast').textContent.includes({json.dumps(message)})")


def test_findings_can_be_copied_into_a_fix_that_was_edited_by_hand(page):
    page.choose("english")
    page.press("f")
    page.page.fill("textarea", "well " + SCRIPTS["english"].text)
    page.page.click(".take:visible >> nth=1")  # − lazy
    page.page.click(".take:visible >> nth=0")  # quick → quack
    page.press("Enter")
    assert page.run(MADE)["english"] == ["fix", "well the quack brown fox jumps over the dog"]


def test_a_fix_that_changes_nothing_is_an_acceptance_and_an_empty_one_is_refused(page):
    page.choose("english")
    page.press("f")
    page.page.fill("textarea", " ")
    page.press("Enter")
    assert page.run(MADE) == {}
    page.page.fill("textarea", SCRIPTS["english"].text + " ")
    page.press("Enter")
    assert page.run(MADE) == {"english": ["accept", None]}


def test_an_unsaved_fix_is_there_when_the_utterance_is_chosen_again(page):
    page.choose("english")
    page.press("f")
    page.page.fill("textarea", "the quack")
    page.page.click(".row:has(.id:text-is('hindi'))")
    assert not page.page.is_visible("textarea")
    page.choose("english")
    page.press("f")
    assert page.page.input_value("textarea") == "the quack"
    page.page.click("text=Start over")
    assert page.page.input_value("textarea") == SCRIPTS["english"].text
    page.press("Escape", "f")
    assert page.page.input_value("textarea") == SCRIPTS["english"].text


def test_keys_do_nothing_while_a_fix_is_typed(page):
    page.choose("english")
    page.press("f")
    page.page.keyboard.type(" as asked")
    page.press("Escape")
    assert page.run(MADE) == {}
    assert page.text("#detail h2") == "english"


def test_decisions_of_two_reports_do_not_mix(page, tmp_path):
    page.choose("english")
    page.press("a")
    other = tmp_path / "other"
    write_report(write(tmp_path, [probed("english", "the same id with another text", {0: "a"})]), other)
    page.open(other)  # in the same browser, which has one store for both
    assert page.run(MADE) == {}
