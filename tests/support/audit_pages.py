"""The audit's page in a headless Chromium: the browser, a window with shortcuts, and utterances to show."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.probes import SCRIPTS, probed

PATIENCE = 120  # seconds: tests share their machine, and a page that hangs never finishes

IMAGE = '<img src=x onerror="window.pwned=1">'
MARKUP = probed(
    IMAGE,
    f"a </script><script>window.pwned=2</script> {IMAGE} \u2028 b",
    {0: "<b>x</b>"},
    {2: "<svg/onload=window.pwned=3>"},
    speaker="<svg onload=window.pwned=4>",
)
UTTERANCES = {**SCRIPTS, "markup": MARKUP, "clean": probed("clean", "nothing is wrong here", speaker="ben")}


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium; skips the test if there is none."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no chromium: apt-get install chromium fonts-noto-core")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Window:
    """One window for all tests of a module, because opening one is slow. It records errors and requests."""

    def __init__(self, browser):
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.errors, self.addresses = [], []
        self.renew()

    def renew(self):
        """Open a new page in the same browser, after a crash for instance."""
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.errors.append(m.text))
        self.page.on("request", lambda request: self.addresses.append(request.url))

    def open(self, report):
        self.page.goto((report / "index.html").resolve().as_uri())
        self.wait()

    def forget(self):
        """Delete what the browser stored, and load the report again."""
        self.run("localStorage.clear()")
        self.page.reload()
        self.wait()

    def wait(self):
        """Wait until the chosen utterance is shown with its details."""
        self.until("window.app && app.detail.detail !== null")
        self.run("async () => { await window.app.shown?.catch(() => {}); }")  # its findings come last

    def until(self, condition):
        """Wait for a condition. Playwright's own waiting evaluates strings, which the page's policy forbids."""
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
        """Press keys as a person does, who sees an utterance before the next key. Decisions on others are ignored."""
        for key in keys:
            self.page.keyboard.press(key)
            self.run("async () => { await window.app?.shown; }")

    def key(self, key, code, modifiers=0):
        """Press a key of any layout: what it writes, and its place. modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        session = self.context.new_cdp_session(self.page)
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and not modifiers & 3 else {}
            event = {"type": kind, "key": key, "code": code, "modifiers": modifiers, **text}
            session.send("Input.dispatchKeyEvent", event)
        session.detach()

    def text(self, selector):
        return self.page.inner_text(selector)

    def listed(self):
        return self.run("app.list.rows.map(row => row.id)")
