"""The report's page loses no decision and makes none by accident, with every keyboard, finger and screen reader."""

import json
import shutil

import pytest
from support.probes import SCRIPTS, probed, write
from support.tones import write_rows

from wildctc.audit.report import write_report

MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, [d.decision, d.fixed ?? null]]))"
RATIO = """(a, b) => {
  const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05); }"""


def decision(id, made, at, **more):
    return {"id": id, "decision": made, "text": SCRIPTS[id].text, "at": at, **more}


def load(page, path, rows):
    write_rows(path, rows)
    page.page.set_input_files("#file", path)


# --- decisions


def test_an_empty_list_says_so_and_nothing_can_be_decided(page):
    page.page.fill("#search", "no such words")
    assert "No utterance passes the filters" in page.text("#empty")
    assert not page.page.is_visible(".transcript")
    page.page.focus("#list")
    page.press("a", "s", "f", "1", "Space")
    assert page.run(MADE) == {}
    page.page.click("#show-all")
    assert len(page.listed()) == 7
    assert page.page.is_visible(".transcript")
    assert not page.page.is_visible("#empty")


def test_the_last_undecided_utterance_is_decided_once(page):
    page.page.select_option("#decision", "undecided")
    page.page.focus("#list")
    page.press(*"a" * 9)
    assert len(page.run(MADE)) == 7
    assert page.page.is_visible("#empty")
    page.press("u")
    assert len(page.run(MADE)) == 6


def test_the_same_key_at_the_end_of_the_list_removes_nothing(page):
    page.press("End", "a", "a", "a")
    last = page.listed()[-1]
    assert page.run(MADE) == {last: ["accept", None]}
    assert "last of the list" in page.text("#toast")
    page.page.click(".decide.accept")  # the pressed button is released, and says so
    assert page.run(MADE) == {}
    assert "No longer accepted" in page.text("#toast")
    page.press("u")
    assert page.run(MADE) == {last: ["accept", None]}


def test_an_undone_decision_can_be_made_again(page):
    page.choose("english")
    page.press("a", "u")
    assert page.run(MADE) == {}
    page.press("Shift+U")
    assert page.run(MADE) == {"english": ["accept", None]}


@pytest.mark.parametrize(
    ("button", "english", "said"),
    [("newer", "accept", "1 newer ones kept"), ("file", "skip", "2 decisions loaded"), ("", "accept", "nothing was")],
)
def test_loading_does_not_replace_newer_decisions_without_asking(page, tmp_path, button, english, said):
    page.choose("english")
    page.press("a")
    old = "2020-01-01T00:00:00.000Z"
    load(page, tmp_path / "x.jsonl", [decision("english", "skip", old), decision("hindi", "accept", old)])
    page.until("byName('older').open")
    assert "1 decision of the file is older than that made here: english" in page.text("#older")
    page.page.click(f"#older button[value='{button}']")
    page.until(f"byName('toast').textContent.includes({json.dumps(said)})")
    made = page.run(MADE)
    assert made["english"][0] == english
    assert ("hindi" in made) == bool(button)
    page.page.focus("#list")
    if button:
        page.press("u")  # loading is one step
        assert page.run(MADE) == {"english": ["accept", None]}


def test_newer_decisions_of_a_file_need_no_question(page, tmp_path):
    page.choose("english")
    page.press("a")
    load(page, tmp_path / "x.jsonl", [decision("english", "skip", "2999-01-01T00:00:00.000Z")])
    page.until("app.decisions.made.get('english')?.decision === 'skip'")


def test_a_full_storage_is_reported_when_loading_and_when_deciding(page, tmp_path):
    page.run("""() => { let size = 2 ** 22;
      for (let n = 0; size >= 1;) try { localStorage.setItem(`x${n++}`, "x".repeat(size)); } catch { size >>= 1; } }""")
    load(page, tmp_path / "x.jsonl", [decision("english", "accept", "2026-01-01T00:00:00.000Z")])
    page.until("byName('toast').textContent.includes('storage is full')")
    assert page.text("#unstored") == "1 not stored: export"
    page.choose("hindi")
    page.press("a")
    assert "storage is full" in page.text("#toast")
    assert page.text("#unstored") == "2 not stored: export"


def test_a_damaged_entry_of_the_storage_hides_no_other(page):
    page.run("""() => { for (const [id, value] of Object.entries({
        english: "{", hindi: "null", tamil: '{"decision": "drop"}', emoji: '{"decision": "fix"}',
        arabic: '{"decision": "accept"}' })) localStorage.setItem(app.decisions.store.prefix + id, value); }""")
    page.page.reload()
    page.wait()
    assert page.run(MADE) == {"arabic": ["accept", None]}
    assert "4 decisions cannot be read" in page.text("#toast")


def test_another_window_neither_closes_the_editor_nor_jumps(page, folder):
    page.page.select_option("#decision", "undecided")
    page.choose("english")
    page.press("f")
    page.page.keyboard.type("quack")
    text = page.page.input_value("textarea")
    other = page.context.new_page()
    other.goto((folder / "report/index.html").as_uri())
    other.wait_for_selector(".transcript .word")
    other.evaluate("app.choose(report.byId.get('english'))")
    other.keyboard.press("a")
    page.until("app.decisions.made.has('english')")
    other.close()
    assert page.page.input_value("textarea") == text
    assert page.text("#detail h2") == "english"
    assert "Another window has accepted this utterance" in page.text("#toast")
    page.press("Escape")
    assert page.text("#detail h2") == "english"


# --- keys


@pytest.mark.parametrize("key", ["A", "ф", "ش", "α"])
def test_shortcuts_work_with_caps_lock_and_every_layout(page, key):
    page.choose("english")
    page.key(key, "KeyA")
    assert page.run(MADE) == {"english": ["accept", None]}


@pytest.mark.parametrize("key", ["&", "١"])  # the first digit key of French and Arabic keyboards
def test_digits_work_with_every_layout(page, key):
    page.choose("english")
    page.key(key, "Digit1")
    assert "quack" in page.page.input_value("textarea")


def test_a_letter_of_another_latin_layout_is_what_it_writes(page):
    page.choose("english")
    page.key("o", "KeyS")  # Dvorak
    assert page.run(MADE) == {}
    page.choose("english")
    page.key("a", "KeyQ")  # French
    assert page.run(MADE) == {"english": ["accept", None]}


def test_shortcuts_can_be_turned_off_and_stay_off(page):
    page.page.click("#help")
    page.page.click("#shortcuts")
    page.press("Escape")
    for _ in range(2):
        page.choose("english")
        page.page.focus("#list")
        page.press("a", "s", "f", "1", "/", "?", "Space")
        assert page.run(MADE) == {}
        assert not page.page.is_visible("textarea")
        assert not page.page.is_visible("#about")
        page.press("Home", "ArrowDown")  # these are no characters
        assert page.text("#detail h2") == page.listed()[1]
        page.page.reload()
        page.wait()
    page.page.click("#help")
    page.page.click("#shortcuts")
    page.press("Escape")
    page.page.focus("#list")
    page.press("a")
    assert len(page.run(MADE)) == 1


# --- what is shown


def test_a_message_is_short_and_goes(page, tmp_path):
    rows = [decision("english", "accept", None) | {"text": "another text"} for _ in range(900)]
    load(page, tmp_path / f"{'n' * 200}.jsonl", rows)
    page.until("byName('toast').textContent.includes('english and 897 more')")
    time = page.run("""() => {
      const later = window.setTimeout;
      let time;
      window.setTimeout = (act, delay) => { time = delay; return later(act, delay); };
      say("x".repeat(27000));
      window.setTimeout = later;
      return time;
    }""")
    assert time <= 15_000
    assert len(page.text("#toast")) <= 300
    page.page.click("#toast")
    assert not page.page.is_visible("#toast")


def test_a_finger_that_scrolls_the_outline_plays_nothing(page):
    page.choose("english")
    page.run("() => { window.played = 0; app.player.play = () => played++; }")
    box = page.page.locator(".wave canvas").bounding_box()
    session = page.context.new_cdp_session(page.page)

    def touch(kind, *points):
        points = [{"x": box["x"] + x, "y": box["y"] + 30} for x in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 60)
    touch("touchMove", 90)
    touch("touchMove", 140)
    touch("touchCancel")
    session.detach()
    page.page.click("#count")
    assert page.run("played") == 0
    assert not page.page.is_visible(".marked")


def test_buttons_of_findings_say_which_finding(page):
    page.choose("english")
    for name in ("Use 1: quack instead of quick", "Remove 2: lazy was not said", "Insert 3: right is not written"):
        assert page.page.get_by_role("button", name=name, exact=True).count() == 1
    assert page.page.get_by_role("button", name="play quack instead of quick").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chosen_row_can_be_told_from_the_others(empty, folder, scheme):
    empty.page.emulate_media(color_scheme=scheme)
    empty.open(folder / "report")
    empty.page.focus("#search")  # also without the focus
    edge, back = empty.run("""() => [
      getComputedStyle(document.querySelector(".row[aria-selected=true]")).boxShadow,
      getComputedStyle(document.body).backgroundColor ]""")
    assert "inset" in edge
    assert empty.run(f"([a, b]) => ({RATIO})(a, b)", [edge, back]) > 3


def test_all_filters_can_be_reached_on_a_phone(page):
    page.page.set_viewport_size({"width": 390, "height": 844})
    try:
        assert not page.page.is_visible("#kinds input >> nth=0")
        page.page.click("#more")
        for selector in ("#search", "#speaker", "#decision", "#score", *(f"#kinds label >> nth={n}" for n in range(3))):
            box = page.page.locator(selector).bounding_box()
            assert box["x"] >= 0, selector
            assert box["x"] + box["width"] <= 390, selector
        page.page.check("#kinds input[value=extra]")
        assert set(page.listed()) == {"english", "emoji"}
        page.page.click("#more")
        assert page.text("#more") == "Filters (1)"
        assert page.run("document.documentElement.scrollWidth") <= 390
    finally:
        page.page.set_viewport_size({"width": 1280, "height": 800})


def test_the_page_can_neither_be_rebased_nor_send_a_form(page):
    found = page.run("""async () => {
      const found = [];
      document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
      document.head.append(make("base", { href: "file:///elsewhere/" }));
      const form = make("form", { action: "file:///elsewhere/", method: "get" });
      document.body.append(form);
      form.submit();
      await new Promise((resolve) => setTimeout(resolve, 300));
      return found;
    }""")
    assert set(found) == {"base-uri", "form-action"}
    page.errors.clear()  # the browser reports both


# --- a report that was moved


@pytest.mark.slow
@pytest.mark.parametrize("link", [False, True])
def test_a_copied_folder_has_its_sound_or_says_why_not(empty, tmp_path, link):
    write_report(write(tmp_path / "here", [probed("a", "ab cd", {0: "ac"})]), tmp_path / "here/report", link=link)
    shutil.copytree(tmp_path / "here/report", tmp_path / "sent/far/report")
    shutil.rmtree(tmp_path / "here")
    empty.open(tmp_path / "sent/far/report")
    empty.page.click(".transcript .word >> nth=0")
    if link:
        empty.until("byName('toast').textContent.includes('make it without --link-audio')")
        empty.press("?")
        assert "The sound is not in the report's folder" in empty.text("#about")
        empty.errors.clear()  # the browser reports the missing file
    else:
        empty.until("app.player.audio.currentTime > 0.2")


# --- what is not shown yet


@pytest.mark.slow
def test_nothing_is_decided_on_what_is_not_shown_and_the_page_says_so(empty, tmp_path):
    """More than fifty utterances: the data of the last are in another file, which arrives late."""
    write_report(
        write(tmp_path, [probed(f"u{n:02}", "a b c", {1: "x"}, audio="gone.wav") for n in range(60)]), tmp_path / "r"
    )
    waiting = []
    empty.page.route("**/data/details-0001.js", lambda route: waiting.append(route))
    empty.open(tmp_path / "r")
    empty.page.keyboard.press("End")
    for key in ("a", "f", "h", "1", "s", "b", "c"):
        empty.run("say('')")
        empty.page.keyboard.press(key)
        assert "not shown yet: nothing was decided" in empty.text("#toast"), key
    empty.page.click(".decide.accept")
    empty.page.keyboard.press("k")  # moving waits for nothing
    assert empty.run("app.row.id") == "u58"
    while waiting:
        waiting.pop().abort()
    empty.until("byName('toast').textContent.includes('cannot be read')")
    empty.page.unroute("**/data/details-0001.js")
    empty.page.click(".row[aria-selected=true]")  # once more
    empty.wait()
    assert empty.run(MADE) == {}
    empty.press("a")
    assert empty.run(MADE) == {"u58": ["accept", None]}
    empty.errors.clear()  # of the file that did not arrive


LATE_ANSWERS = """async () => {
  const store = new ServerStore("k", { name: "ann" }, () => {});
  const [made, rows, late] = [{}, [], []];
  const pause = () => new Promise((resolve) => setTimeout(resolve));
  const text = report.byId.get("english").text;
  store.showState = () => {};
  store.take = (id, decision) => { made[id] = decision?.decision; };
  store.request = async ({ method, body }) => {
    if (!method) return new Promise((resolve) => late.push(resolve));
    JSON.parse(body).forEach((change) => rows.push({ ...change, number: rows.length + 1 }));
    return { rows };
  };
  store.save({ id: "english", text }, { decision: "accept" });
  await pause();
  const before = { last: 1, rows: [...rows] };
  for (const _ of [1, 2]) store.poll(true);
  store.save({ id: "english", text }, null);
  await pause();
  late.splice(0).forEach((resolve) => resolve(before));
  await pause();
  store.poll(true);
  late.splice(0).forEach((resolve) => resolve({ last: 2, rows: rows.slice(1) }));
  await pause();
  return [rows.length, made.english ?? null];
}"""


def test_late_answers_of_a_server_bring_back_nothing_that_was_undone(page):
    """Two questions were asked at once, and answered before the decision was undone."""
    assert page.run(LATE_ANSWERS) == [2, None]
