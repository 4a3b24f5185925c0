"""The report's page plays the sound of an utterance, a word or a marked part, and draws its outline."""

import numpy as np
import pytest
import soundfile
from support.probes import RATE, SCRIPTS, probed, voice, write

from wildctc.audit.report import write_report

pytestmark = pytest.mark.slow  # sound plays in real time

TRACE = """() => {
  const { audio } = app.player;
  for (const name of ["playing", "pause"])
    if (!window.trace) audio.addEventListener(name, () => trace.push([name, audio.currentTime]));
  window.trace = [];
}"""


def play_and_trace(page, act, end=None):
    """The times at which playing started and stopped. Tries again if it stopped late, as it does on a busy machine."""
    for _ in range(5):
        page.run(TRACE)
        act()
        page.until("trace.some(([name]) => name === 'playing') && trace.at(-1)[0] === 'pause'")
        began, ended = page.run("[trace.find(([name]) => name === 'playing')[1], app.player.audio.currentTime]")
        if end is None or ended < end + 0.15:
            break
    return began, ended


def test_a_click_on_a_word_plays_it_and_stops_at_its_end(page):
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


def test_arrow_keys_move_from_word_to_word_in_reading_direction(page):
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


# --- what is played, without waiting for the sound: [start, end] of each part

SPY = """() => {
  window.played = [];
  app.player.play = (row, start = 0, end = row.duration) => played.push([start, end]);
}"""


def drag(page, begin, end):
    """Mark a part of the outline, given in seconds, with the mouse."""
    box = page.page.locator(".wave").bounding_box()
    scroll = page.run("document.querySelector('.wave').scrollLeft")
    x = [box["x"] + page.run(f"app.detail.wave.x({time})") - scroll for time in (begin, end)]
    page.page.mouse.move(x[0], box["y"] + 30)
    page.page.mouse.down()
    page.page.mouse.move(x[1], box["y"] + 30, steps=3)
    page.page.mouse.up()


def test_a_marked_part_stays_and_is_played_again(page):
    page.choose("english")
    page.run(SPY)
    drag(page, 1.0, 2.0)
    assert page.page.is_visible(".marked")
    page.press("Enter", "Space", "f")
    page.press("Control+Space")
    parts = page.run("played")
    assert len(parts) == 4
    assert all(part == [pytest.approx(1.0, abs=0.02), pytest.approx(2.0, abs=0.02)] for part in parts)
    page.press("Escape", "Escape", "Space")
    assert not page.page.is_visible(".marked")
    assert page.run("played.at(-1)") == [0, page.run("app.row.duration")]


def test_a_short_word_is_played_with_what_is_around_it(page):
    page.choose("hindi")
    page.run(SPY)
    short = SCRIPTS["hindi"].words[3]  # two letters, 0.22 s
    page.page.click(".transcript .word >> nth=3")
    middle = (short.start + short.end) / 2
    assert page.run("played[0]") == [pytest.approx(middle - 0.15, abs=2e-3), pytest.approx(middle + 0.15, abs=2e-3)]


def test_space_pauses_and_goes_on_where_it_stopped(page):
    page.choose("english")
    page.run("app.player.audio.playbackRate = 0.1")
    page.press("Space")
    page.until("app.player.audio.currentTime > 0.1")
    page.press("Space")
    at = page.run("app.player.audio.currentTime")
    assert page.page.is_visible(".playhead")
    page.press("Space")
    page.until("app.player.playing")
    assert at - 0.05 <= page.run("app.player.audio.currentTime") < at + 1
    page.press("Space", "0")
    page.until("app.player.playing && app.player.audio.currentTime < 0.1")
    page.press("Space")
    page.run("app.player.audio.playbackRate = 1")


def test_autoplay_plays_all_or_the_worst_finding_when_an_utterance_is_chosen(page):
    page.choose("english")
    page.run(SPY)
    page.press("p", "j")
    page.wait()
    assert page.run("played.length") == 2
    assert page.run("played.at(-1)") == [0, page.run("app.row.duration")]
    page.press("p", "k")
    page.wait()
    worst = page.run("app.row.issues[0]")
    begin, end = page.run("played.at(-1)")
    assert begin <= worst["start"]
    assert worst["end"] <= end < worst["end"] + 0.5
    page.page.reload()
    page.wait()
    assert "Autoplay: worst" in page.text(".controls")
    page.press("p")
    assert "Autoplay: off" in page.text(".controls")


def test_the_sound_can_be_zoomed_and_shown_as_spectrogram_and_at_its_level(page):
    page.choose("english")
    ink = """() => { const c = document.querySelector(".wave canvas");
      const d = c.getContext("2d").getImageData(0, 0, c.width, 80).data; let sum = 0;
      for (let i = 3; i < d.length; i += 4) sum += d[i] > 0; return sum; }"""
    width = page.run("app.detail.wave.width")
    plain = page.run(ink)
    page.press("v")
    assert page.run(ink) < 0.9 * plain
    page.press("v", "g")
    page.until("app.detail.wave.picture?.complete")
    assert page.page.get_attribute("button:text('Spectrogram')", "aria-pressed") == "true"
    page.until("app.detail.wave.picture.naturalHeight === 64")
    page.errors.clear()  # the browser would like to know that the canvas is read
    page.press("g", "+", "+")
    assert page.run("app.detail.wave.width") == pytest.approx(2.25 * width, rel=0.01)
    assert page.run("document.querySelector('.wave canvas').width") < 1.1 * width
    word = SCRIPTS["english"].words[-1]
    page.run("document.querySelector('.wave').scrollLeft = 1e6")
    page.until("app.detail.wave.to > app.row.duration - 0.01")
    page.run(SPY)
    drag(page, word.start, word.end)
    assert page.run("played[0]") == [pytest.approx(word.start, abs=0.02), pytest.approx(word.end, abs=0.02)]
    page.press("-", "-", "-", "-")
    assert page.run("app.detail.wave.width") == pytest.approx(width)
