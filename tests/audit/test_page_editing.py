"""A fix is typed on the report's page while its sound is played: focus, keys, drafts, warnings."""

import pytest
from support.probes import SCRIPTS, probed, write

from wildctc.audit.report import write_report

TEXT = SCRIPTS["english"].text
FOCUSED = "document.activeElement === app.detail.editor.text"
MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, [d.decision, d.fixed ?? null]]))"
# what is played, without waiting for the sound: [start, end] of each part
SPY = """() => {
  window.played = [];
  const { play } = app.player;
  app.player.play = (row, start = 0, end = row.duration) => played.push([start, end]);
}"""


def fix(page, id="english"):
    page.choose(id)
    page.run(SPY)
    page.press("f")


def value(page):
    return page.page.input_value("textarea")


INSIDE = [".transcript .word >> nth=2", ".wave .sheet", ".findings .listen >> nth=1", ".controls .play", ".heard"]
OUTSIDE = ["#count", "#progress", ".row[aria-selected=true]", "#recurring"]


@pytest.mark.parametrize("target", INSIDE + OUTSIDE)
def test_after_a_click_the_focus_is_in_the_fix_again(page, target):
    fix(page)
    page.press("End")
    page.page.click(target)
    if target == "#recurring":  # what opens is closed
        page.press("Escape")
    assert page.run(FOCUSED)
    page.page.keyboard.type(" as a safe fast car")
    assert value(page) == f"{TEXT} as a safe fast car"
    assert page.run(MADE) == {}


def test_letters_go_into_the_fix_wherever_the_focus_is(page):
    fix(page)
    page.press("End")
    page.page.click("#count")
    page.page.keyboard.type(" as")
    assert value(page) == f"{TEXT} as"
    assert page.run(MADE) == {}


def test_several_digits_copy_several_findings(page):
    page.choose("english")
    page.press("1", "2", "3")
    assert value(page) == "the quack brown fox jumps right over the dog"
    page.press("End")
    page.page.keyboard.type(" 23")
    assert value(page).endswith("dog 23")


def test_alt_and_a_digit_copy_a_finding_into_a_fix_that_is_typed(page):
    fix(page)
    page.press("End")
    page.page.keyboard.type(" 1")
    page.press("Alt+Digit1", "Alt+Digit2")
    assert value(page) == "the quack brown fox jumps over the dog 1"


def test_keys_play_all_and_the_word_at_the_cursor(page):
    fix(page)
    page.press("Control+Space")
    page.press("Home")
    page.page.keyboard.type("well ")
    page.press("Control+Enter")
    for _ in "the ":
        page.press("ArrowRight")
    page.press("Control+Enter")
    words = SCRIPTS["english"].words
    parts = [[0, page.run("app.row.duration")], *([w.start, w.end] for w in words[:2])]
    assert page.run("played") == [pytest.approx(part, abs=2e-3) for part in parts]
    assert page.run(FOCUSED)


def test_the_cursor_starts_at_the_worst_finding_and_tab_goes_on_and_plays(page):
    fix(page)
    selected = (
        "app.detail.editor.text.value.slice(...['Start', 'End'].map(s => app.detail.editor.text['selection' + s]))"
    )
    issues = page.run("app.row.issues")
    assert page.run(selected) == issues[0]["written"]
    page.press("Control+Home", "Tab")
    assert page.run(selected) == "quick"
    page.press("Tab")
    assert page.run("app.detail.editor.text.selectionStart") == TEXT.index("over")
    page.press("Tab")
    assert page.run(selected) == "lazy"
    page.press("Shift+Tab", "Shift+Tab")
    assert page.run(selected) == "quick"
    assert len(page.run("played")) == 5
    page.press("Tab", "Tab", "Tab")
    assert not page.run(FOCUSED)  # after the last one, Tab leaves the text: it is no trap
    assert page.page.evaluate("document.activeElement.textContent").startswith("Save fix")


def test_an_edit_can_be_undone_and_done_again_and_its_finding_taken_again(page):
    fix(page)
    page.press("Alt+Digit1")
    page.press("Control+z")
    assert value(page) == TEXT
    page.press("Control+Shift+z")
    assert "quack" in value(page)
    page.press("Control+z", "Alt+Digit1")
    assert "quack" in value(page)


def test_a_draft_survives_esc_a_reload_and_a_crash(page, folder):
    fix(page)
    page.page.fill("textarea", "the quack")
    page.press("Escape")
    assert page.text(".fixed").endswith("the quack")
    assert page.text(".row[aria-selected=true] .made") == "draft"
    page.page.reload()
    page.wait()
    fix(page)
    assert value(page) == "the quack"
    page.page.keyboard.type(" brown")
    with pytest.raises(Exception, match="crash"):
        page.page.goto("chrome://crash")
    page.page.close()
    page.renew()
    page.open(folder / "report")
    fix(page)
    assert sorted(value(page).split()) == ["brown", "quack", "the"]
    page.press("Enter")
    page.choose("english")
    assert page.run("app.drafts.of(app.row)") is None
    assert page.run(MADE)["english"][0] == "fix"


def test_characters_that_the_model_cannot_write_are_warned_about(page):
    fix(page)
    page.page.fill("textarea", "the quick brøwn fox")
    assert "cannot write “ø”" in page.text("#editor-warning")
    page.press("Enter")
    assert page.run(MADE) == {}
    assert "Save once more" in page.text("#editor-warning")
    page.press("Enter")
    assert page.run(MADE) == {"english": ["fix", "the quick brøwn fox"]}


def test_the_probe_says_what_the_model_can_write(empty, tmp_path):
    probe = write(tmp_path, [probed("a", "ab cd", {0: "ac"})])
    probe.write_text(probe.read_text().replace('"self_loop"', '"characters": "abcdø", "self_loop"', 1))
    write_report(probe, tmp_path / "report")
    empty.open(tmp_path / "report")
    empty.press("f")
    empty.page.fill("textarea", "ø Ab")
    assert empty.text("#editor-warning") == "The model cannot write “A”."


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_a_long_fix_leaves_room_for_the_evidence(empty, tmp_path, size):
    text = " ".join(f"word{i}" for i in range(150))
    write_report(write(tmp_path, [probed("a", text, {3: "x"}, audio="gone.wav")]), tmp_path / "report")
    empty.page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    empty.open(tmp_path / "report")
    empty.press("f")
    room = empty.page.locator("#detail .scroll").bounding_box()["height"]
    empty.run("say('x'.repeat(300))")
    message, typed = (empty.page.locator(selector).bounding_box() for selector in ("#toast", "textarea"))
    empty.page.set_viewport_size({"width": 1280, "height": 800})
    assert room > 0.2 * size[1]
    beside = message["x"] + message["width"] <= typed["x"]
    assert beside or message["y"] + message["height"] <= typed["y"]  # a message does not cover what is typed


@pytest.mark.slow
def test_a_loop_plays_a_word_again_and_speed_goes_from_half_to_double(page):
    page.choose("english")
    page.press("l")
    page.run("window.starts = 0; app.player.audio.addEventListener('playing', () => starts++)")
    page.page.click(".transcript .word >> nth=0")
    page.until("starts >= 2")
    page.press("l")
    page.until("!app.player.playing")
    speeds = []
    for _ in range(6):
        speeds.append(page.run("app.player.audio.playbackRate"))
        page.press("r")
    assert sorted(speeds) == [0.5, 0.75, 1, 1.25, 1.5, 2]
    page.press("Shift+R")
    assert page.text("[title^='Playing speed']") == "0.75×"


def test_one_key_copies_all_findings_and_two_keys_fix_an_utterance(page):
    page.choose("english")
    page.press("h")
    assert value(page) == SCRIPTS["english"].heard
    page.press("Enter")
    assert page.run(MADE) == {"english": ["fix", SCRIPTS["english"].heard]}
    page.choose("hindi")
    page.press("f", "Alt+Digit0", "Enter")
    assert page.run(MADE)["hindi"] == ["fix", SCRIPTS["hindi"].heard]
    page.choose("clean")
    page.press("h")
    assert "Nothing was heard differently" in page.text("#toast")
    assert not page.page.is_visible("textarea")
