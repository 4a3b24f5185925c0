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
