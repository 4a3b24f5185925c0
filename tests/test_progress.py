"""Progress: a bar for a person at a terminal, lines for a file."""

import sys

import pytest

from wildctc import progress


class Terminal:
    """A stderr that keeps what is written."""

    def __init__(self, isatty):
        self.isatty, self.text, self.encoding = lambda: isatty, "", "utf-8"

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def shown(monkeypatch, isatty, count=5, **options):
    stderr = Terminal(isatty)
    monkeypatch.setattr(sys, "stderr", stderr)
    for _ in progress.progress(range(count), desc="decoding", unit="utt", **options):
        pass
    return stderr.text


def test_a_terminal_gets_a_bar(monkeypatch):
    assert "\r" in shown(monkeypatch, isatty=True)


@pytest.mark.parametrize("leave", [True, False])
def test_a_file_gets_no_bar(monkeypatch, leave):
    assert shown(monkeypatch, isatty=False, leave=leave) == ""


@pytest.mark.parametrize("leave", [True, False])
def test_a_file_gets_a_line_after_a_while(monkeypatch, leave):
    monkeypatch.setattr(progress, "_LOG_INTERVAL", 1e-9)
    lines = shown(monkeypatch, isatty=False, leave=leave).splitlines()
    assert lines[0].startswith("decoding: 1 of 5 utt [")
    assert not any(set(line) & set("\r█#|") for line in lines)


def test_without_tqdm_the_items_are_given_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(progress.progress([1, 2, 3], desc="checks")) == [1, 2, 3]


class Bar:
    """What a bar shows beside itself."""

    def set_postfix_str(self, text, refresh):
        self.text, self.refresh = text, refresh


def test_the_rate_is_speech_by_time(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Bar()
    rate = progress.RealTime(bar)
    for time, seconds, text in ((12.0, 61.0, "30.5× real time"), (14.0, 939.0, "250× real time")):
        now[0] = time
        rate.add(seconds)
        assert (bar.text, bar.refresh) == (text, False)
    progress.RealTime([1, 2, 3]).add(1.0)  # without tqdm there is no bar
