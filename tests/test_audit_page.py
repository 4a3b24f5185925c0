"""The report's page in a headless Chromium, opened from disk: what is shown, heard, decided and exported."""

import json
import shutil
import subprocess
import time
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from probes import RATE, SCRIPTS, probed, voice, write
from tones import write_rows

from wildctc.audit.issues import suspicion
from wildctc.audit.report import write_report
from wildctc.cli import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no chromium: apt-get install chromium fonts-noto-core", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")

FONTS = (
    subprocess.run(["fc-list"], capture_output=True, text=True, check=False).stdout if shutil.which("fc-list") else ""
)
needs_fonts = pytest.mark.skipif("NotoSansTamil" not in FONTS, reason="no fonts: apt-get install fonts-noto-core")

PATIENCE = 120  # seconds: tests share their machine, and a page that is stuck stays so

IMAGE = '<img src=x onerror="window.pwned=1">'
MARKUP = probed(
    IMAGE,
    f"a </script><script>window.pwned=2</script> {IMAGE} \u2028 b",
    {0: "<b>x</b>"},
    {2: "<svg/onload=window.pwned=3>"},
    speaker="<svg onload=window.pwned=4>",
)
UTTERANCES = {**SCRIPTS, "markup": MARKUP, "clean": probed("clean", "nothing is wrong here", speaker="ben")}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    utterances = [replace(u) for u in UTTERANCES.values()]
    write_report(write(folder, utterances), folder / "report")
    write_rows(folder / "manifest.jsonl", [{"id": u.id, "audio": u.audio, "text": u.text} for u in utterances])
    return folder


def read_rows(path):
    """Split at newlines alone: transcripts may hold U+2028."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


class Window:
    """One window for all, since opening one takes longest; notes errors and requests."""

    def __init__(self, browser):
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self.page.set_default_timeout(1000 * PATIENCE)
        self.errors, self.addresses = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.errors.append(m.text))
        self.page.on("request", lambda request: self.addresses.append(request.url))

    def open(self, report):
        self.page.goto((report / "index.html").as_uri())
        self.wait()

    def forget(self):
        """As a browser that has never seen the report."""
        self.run("localStorage.clear()")
        self.page.reload()
        self.wait()

    def wait(self):
        """Until the chosen utterance is shown with its details."""
        self.until("window.app && app.detail.detail !== null")

    def until(self, condition):
        """Playwright's own waiting evaluates strings in the page, which the page's policy forbids."""
        limit = time.monotonic() + PATIENCE
        while not self.run(f"() => Boolean({condition})"):
            assert time.monotonic() < limit, condition
            time.sleep(0.01)

    def run(self, script, *arguments):
        return self.page.evaluate(script, *arguments)

    def choose(self, id):
        self.run("id => app.choose(report.byId.get(id))", id)
        self.wait()

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector):
        return self.page.inner_text(selector)

    def listed(self):
        return self.run("app.list.rows.map(row => row.id)")


@pytest.fixture(scope="module")
def window(browser):
    return Window(browser)


@pytest.fixture
def empty(window):
    """The window, to open a report in; it remembers nothing, and there must be no errors."""
    window.errors.clear()
    window.addresses.clear()
    window.page.emulate_media(color_scheme="light")
    yield window
    window.run("localStorage.clear()")
    assert window.errors == []


@pytest.fixture
def page(empty, folder):
    empty.open(folder / "report")
    return empty


def test_nothing_but_the_reports_own_files_is_read(page, folder):
    page.choose("english")
    assert page.addresses
    assert all(address.startswith((folder / "report").as_uri()) for address in page.addresses)


def test_utterances_are_ranked_by_suspicion(page):
    ranked = sorted(UTTERANCES.values(), key=suspicion, reverse=True)
    assert page.listed() == [u.id for u in ranked]
    assert page.text(".row[aria-selected=true] .id") == ranked[0].id


def test_an_utterance_shows_what_is_written_what_was_heard_and_what_is_doubtful(page):
    page.choose("english")
    assert page.text(".heard") == SCRIPTS["english"].heard
    findings = page.page.locator(".findings .what").all_inner_texts()
    assert findings == ["~ quick → quack", "− lazy was not said", "+ right is not written"]
    assert page.text(".transcript .gap") == "+ right"
    page.page.hover(".transcript .word >> nth=1")
    assert page.text(".note").startswith("quick: heard quack · not said with probability 0.90 · 0.64")


# --- sound

TRACE = """() => {
  const { audio } = app.player;
  for (const name of ["playing", "pause"])
    if (!window.trace) audio.addEventListener(name, () => trace.push([name, audio.currentTime]));
  window.trace = [];
}"""


def play_and_trace(page, act, end=None):
    """Times at which playing began and stopped. end: tried again if it stopped late, as it does on a busy machine."""
    for _ in range(5):
        page.run(TRACE)
        act()
        page.until("trace.some(([name]) => name === 'playing') && trace.at(-1)[0] === 'pause'")
        began, ended = page.run("[trace.find(([name]) => name === 'playing')[1], app.player.audio.currentTime]")
        if end is None or ended < end + 0.15:
            break
    return began, ended


def test_a_click_on_a_word_plays_its_stretch_and_stops_at_its_end(page):
    page.choose("english")
    word = SCRIPTS["english"].words[2]
    began, ended = play_and_trace(page, lambda: page.page.click(".transcript .word >> nth=2"), word.end)
    assert began == pytest.approx(word.start, abs=0.1)
    assert word.end <= ended < word.end + 0.15  # an idle machine needs 0.02
    assert page.run("app.detail.word") == 2


def test_a_word_in_the_list_can_be_played_too(page):
    began, _ = play_and_trace(page, lambda: page.page.click(".row:has(.id:text-is('hindi')) .word >> nth=1"))
    assert page.text("#detail h2") == "hindi"
    assert began == pytest.approx(SCRIPTS["hindi"].words[1].start, abs=0.1)


def test_play_plays_all_and_the_space_bar_stops(page):
    page.choose("emoji")
    began, ended = play_and_trace(page, lambda: page.page.click("button.play"))
    assert began == pytest.approx(0.0, abs=0.1)
    assert ended == pytest.approx(SCRIPTS["emoji"].duration, abs=0.1)
    page.run("byName('list').focus(); app.player.audio.playbackRate = 0.1")  # so that there is time to stop it
    page.press("Space")
    page.until("app.player.audio.currentTime > 0.1 && app.player.playing")
    page.press("Space")
    assert not page.run("app.player.playing")
    assert page.run("app.player.audio.currentTime") < 2


def test_arrows_go_from_word_to_word_in_reading_direction(page):
    for id, following in (("english", "ArrowRight"), ("arabic", "ArrowLeft")):
        page.choose(id)
        page.press(following, following)
        assert page.run("app.detail.word") == 1


def test_a_linked_file_is_played_from_the_utterances_offset(empty, tmp_path):
    utterance = probed("a", "abc abc def", audio="long 1%.wav", offset=2.0)
    wave = np.concatenate((np.zeros(2 * RATE, np.float32), voice(utterance), np.zeros(RATE, np.float32)))
    soundfile.write(tmp_path / utterance.audio, wave, RATE)
    write_report(write(tmp_path, [utterance]), tmp_path / "report", link=True)
    page = empty
    page.open(tmp_path / "report")
    word = utterance.words[1]
    began, ended = play_and_trace(page, lambda: page.page.click(".transcript .word >> nth=1"), 2.0 + word.end)
    assert began == pytest.approx(2.0 + word.start, abs=0.1)
    assert 2.0 + word.end <= ended < 2.15 + word.end


def test_the_outline_is_drawn_with_its_tokens_and_words_and_can_be_clicked(page):
    page.choose("english")
    assert page.page.locator(".labels .word").all_inner_texts() == SCRIPTS["english"].text.split()
    assert "".join(page.page.locator(".labels .token").all_inner_texts()) == SCRIPTS["english"].text.replace(" ", "")
    drawn = """() => { const c = document.querySelector(".wave canvas");
      return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v > 0); }"""
    assert page.run(drawn)
    word = SCRIPTS["english"].words[4]
    box = page.page.locator(".wave canvas").bounding_box()
    x = box["x"] + box["width"] * (word.start + word.end) / 2 / SCRIPTS["english"].duration
    began, _ = play_and_trace(page, lambda: page.page.mouse.click(x, box["y"] + 30))
    assert began == pytest.approx(word.start, abs=0.1)


def test_an_utterance_without_sound_is_shown(empty, tmp_path):
    write_report(write(tmp_path, [probed("a", "ab cd", {0: "ac"}, audio="gone.wav")]), tmp_path / "report")
    page = empty
    page.open(tmp_path / "report")
    assert page.text(".transcript") == "ab cd"
    assert "its audio could not be used" in page.text(".about")
    assert page.page.is_disabled("button.play")


# --- text


@pytest.mark.parametrize("id", SCRIPTS)
def test_shades_cover_whole_grapheme_clusters_of_text_in_one_piece(page, id):
    page.choose(id)
    assert page.text(".transcript .word >> nth=0") == SCRIPTS[id].text.split()[0]
    found = page.run("""() => {
      const element = document.querySelector(".transcript");
      const edges = new Set(clusterEdges(app.row.text));
      const whole = element.shades.map(([level, range]) => {
        const word = app.row.words[range.startContainer.parentElement.dataset.word];
        return [level, edges.has(word.begin + range.startOffset), edges.has(word.begin + range.endOffset)];
      });
      return { whole, pieces: [...element.querySelectorAll(".word")].map((word) => word.childNodes.length) };
    }""")
    assert all(begins and ends for _, begins, ends in found["whole"])
    assert set(found["pieces"]) == {1}
    if id != "tamil":  # in which nothing written was left unsaid
        assert any(level == 9 for level, *_ in found["whole"])


def test_a_doubtful_vowel_sign_shades_its_whole_syllable(empty, tmp_path):
    utterance = probed("a", "किताब")
    utterance.tokens[1].bypass = 0.97  # ि, which is drawn before the क that it follows
    write_report(write(tmp_path, [utterance]), tmp_path / "report")
    page = empty
    page.open(tmp_path / "report")
    assert page.run("shadesOf(app.row)") == [[0, 2, 9]]


@needs_fonts
@pytest.mark.parametrize("id", ["arabic", "hindi", "tamil"])
def test_shading_does_not_change_the_letters(empty, tmp_path, id):
    """Every second character shaded: the ink must be that of the text without shades."""
    utterance = replace(SCRIPTS[id], audio="")
    utterance.tokens = [replace(t, bypass=0.95 * (i % 2)) for i, t in enumerate(utterance.tokens)]
    utterance.words = [replace(word, bypass=0.0) for word in utterance.words]
    write_report(write(tmp_path, [utterance]), tmp_path / "report")
    page = empty
    page.open(tmp_path / "report")
    target = page.page.locator(".transcript")
    shaded = picture(target)
    page.run("[...CSS.highlights.keys()].forEach((name) => CSS.highlights.delete(name))")
    plain = picture(target)
    assert shaded.shape == plain.shape
    assert (shaded != plain).any(-1).mean() > 0.05  # there were shades
    ink = [(shot.max(-1) < 90) for shot in (shaded, plain)]  # neither white nor orange
    assert ink[1].sum() > 300
    assert (ink[0] ^ ink[1]).sum() < 0.05 * ink[1].sum()


def picture(locator):
    """A screenshot: (rows, columns, 3)."""
    import io

    from matplotlib.image import imread

    return (imread(io.BytesIO(locator.screenshot()), format="png")[..., :3] * 255).astype(int)


def test_right_to_left_text_runs_right_to_left(page):
    page.choose("arabic")
    boxes = [word.bounding_box() for word in page.page.locator(".transcript .word").all()]
    assert [box["x"] for box in boxes] == sorted((box["x"] for box in boxes), reverse=True)
    assert boxes[0]["x"] + boxes[0]["width"] > 1200


@needs_fonts
def test_fonts_have_every_script(page):
    """A letter that no font has is drawn as a box, and all boxes are as wide."""
    for id in ("hindi", "tamil", "arabic"):
        page.choose(id)
        widths = [
            label.evaluate(
                "(e) => { const r = document.createRange(); r.selectNodeContents(e);"
                " return r.getBoundingClientRect().width; }"
            )
            for label in page.page.locator(".labels .token").all()
        ]
        assert len({round(width, 1) for width in widths}) > 4, id


def test_markup_is_shown_and_not_run(page):
    page.choose(IMAGE)
    page.press("?")
    assert page.text("#detail h2") == IMAGE
    assert "</script><script>window.pwned=2</script>" in page.text(".transcript")
    assert "<b>x</b>" in page.text(".heard")
    assert "<svg onload=window.pwned=4>" in page.text(".about")
    assert (
        page.run("document.querySelectorAll('#detail img, #detail b, #list img, #detail svg, #list svg').length") == 0
    )
    assert page.run("window.pwned") is None


# --- filters and keys


def test_filters_by_speaker_kind_score_and_search(page):
    page.page.select_option("#speaker", label="ben (1)")
    assert page.listed() == ["clean"]
    page.page.select_option("#speaker", "")
    page.page.check("#kinds input[value=extra]")
    assert set(page.listed()) == {"english", "emoji"}
    page.page.uncheck("#kinds input[value=extra]")
    page.page.check("#kinds input[value=missing]")
    assert set(page.listed()) == {"english", "arabic", IMAGE}
    page.page.uncheck("#kinds input[value=missing]")
    page.page.fill("#score", "0.9")
    assert "clean" not in page.listed()
    assert "english" in page.listed()
    page.page.fill("#score", "0")
    page.press("/")
    page.page.keyboard.type("BROWN quack")  # in the transcript and in what was heard
    assert page.listed() == ["english"]
    assert page.text("#count") == "1 of 7 utterances"
    assert page.text("#detail h2") == "english"
    page.press("Escape")
    assert len(page.listed()) == 7


def test_keys_move_and_are_listed(page):
    first, second, *_, last = page.listed()
    page.press("j")
    assert page.text("#detail h2") == second
    page.press("k", "k")
    assert page.text("#detail h2") == first
    page.press("End")
    assert page.text("#detail h2") == last
    page.press("?")
    keys = page.text("#about")
    assert all(name in keys for name in ("next / previous utterance", "accept", "fix", "skip", "search"))
    page.press("Escape")
    assert not page.page.is_visible("#about")


def test_focus_is_seen(page):
    page.press("Tab", "Shift+Tab")
    outline = "getComputedStyle(document.querySelector('.row[aria-selected=true]')).outlineStyle"
    assert page.run(outline) == "solid"
    page.page.focus("#search")
    assert page.run("getComputedStyle(byName('search')).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_on_every_shade(empty, folder, scheme):
    page = empty
    page.page.emulate_media(color_scheme=scheme)
    page.open(folder / "report")
    ratios = page.run("""() => {
      const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      const paint = (...colours) => {
        for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 9, 9); }
        return [...pen.getImageData(4, 4, 1, 1).data].slice(0, 3); };
      const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255;
        return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
        return (x + 0.05) / (y + 0.05); };
      const { backgroundColor: back, color: text } = getComputedStyle(document.body);
      const shades = [...document.querySelectorAll(".legend i")].map((element) =>
        ratio(paint(text), paint(back, getComputedStyle(element).backgroundColor)));
      const faint = getComputedStyle(document.querySelector(".note")).color;
      return [...shades, ratio(paint(faint), paint(back))];
    }""")
    assert len(ratios) == 11
    assert min(ratios) > 4.5
    assert ratios[:10] == sorted(ratios[:10], reverse=True)  # the order is in the lightness


# --- decisions


def decide(page):
    """Fix one by taking findings over, one by hand; accept one, skip one."""
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
    assert "refused, since the transcript is another now: clean" in said


def test_a_file_that_holds_no_decisions_is_refused(page, tmp_path):
    empty = json.dumps({"id": "english", "decision": "fix", "text": SCRIPTS["english"].text, "fixed": " "})
    told = {"{}": "line 1 is no decision", "…": "line 1 is not JSON", f"\n{empty}": "line 2 is no decision"}
    for content, message in told.items():
        (tmp_path / "x.jsonl").write_text(content)
        page.page.set_input_files("#file", tmp_path / "x.jsonl")
        page.until(f"byName('toast').textContent.includes({json.dumps(message)})")


def test_findings_can_be_taken_over_after_editing_by_hand(page):
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


def test_a_fix_that_was_begun_is_there_when_one_comes_back(page):
    page.choose("english")
    page.press("f")
    page.page.fill("textarea", "the quack")
    page.page.click(".row:has(.id:text-is('hindi'))")
    assert not page.page.is_visible("textarea")
    page.choose("english")
    page.press("f")
    assert page.page.input_value("textarea") == "the quack"
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
    page.open(other)  # in the same browser, and so with the same store
    assert page.run(MADE) == {}


# --- size


@pytest.mark.slow
def test_ten_thousand_utterances_do_not_freeze_the_page(empty, tmp_path):
    """Milliseconds are several times what an idle machine needs."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), rng.integers(2, 8))) for _ in range(500)]
    utterances = []
    for i in range(10_000):
        text = " ".join(rng.choice(words, rng.integers(3, 9)))
        changed = {0: "xyz"} if i % 3 == 0 else {}
        utterances.append(probed(f"u{i}", text, changed, speaker=f"s{i % 40}", audio="gone.wav"))
    write_report(write(tmp_path, utterances), tmp_path / "report")
    began = time.monotonic()
    page = empty
    page.open(tmp_path / "report")
    assert time.monotonic() - began < 30
    assert len(page.listed()) == 10_000
    acts = {
        "byName('search').value = 'abc'; app.refilter()": 500,
        "byName('search').value = ''; app.refilter()": 500,
        "app.move(Infinity)": 200,
        "app.move(-1)": 200,
        "byName('list').scrollTop = 400000; app.list.draw()": 200,
    }
    for act, limit in acts.items():  # the best of some, so that what else runs here does not count
        took = [
            page.run(f"() => {{ const t = performance.now(); {act}; return performance.now() - t; }}") for _ in "12345"
        ]
        assert min(took) < limit, act
    assert page.run("document.querySelectorAll('.row').length") < 40
    assert page.run("highlights.reduce((sum, highlight) => sum + highlight.size, 0)") < 2000
    frames = page.run("""async () => {
      const list = byName("list"), frame = () => new Promise(requestAnimationFrame), waits = [];
      list.scrollTop = 0;
      for (let i = 0, last = performance.now(); i < 60; i++) {
        list.scrollTop += 500;
        await frame();
        waits.push(performance.now() - last);
        last = performance.now();
      }
      return waits.sort((a, b) => a - b);
    }""")
    assert frames[6] < 100
    shown = page.run("[...document.querySelectorAll('.row')].map((e) => e.getBoundingClientRect().top)")
    assert min(shown) < 150
    assert max(shown) > 700
