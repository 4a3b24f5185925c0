"""Fixtures of the tests that open the audit's page in a browser."""

from dataclasses import replace

import pytest
from support.audit_pages import UTTERANCES, Window, chromium
from support.probes import write
from support.tones import write_rows

from wildctc.audit.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a manifest, and the report of its probe."""
    folder = tmp_path_factory.mktemp("audit")
    utterances = [replace(u) for u in UTTERANCES.values()]
    write_report(write(folder, utterances), folder / "report")
    write_rows(folder / "manifest.jsonl", [{"id": u.id, "audio": u.audio, "text": u.text} for u in utterances])
    return folder


@pytest.fixture(scope="module")
def window():
    with chromium() as browser:
        yield Window(browser)


@pytest.fixture
def empty(window):
    """The window, to open a report in. It has stored nothing, and the test must cause no errors in the page."""
    window.errors.clear()
    window.addresses.clear()
    window.page.emulate_media(color_scheme="light")
    yield window
    window.run("localStorage.clear()")
    assert window.errors == []


@pytest.fixture
def page(empty, folder):
    """The window with the report."""
    empty.open(folder / "report")
    return empty
