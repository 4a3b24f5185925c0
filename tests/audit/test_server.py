"""`wildctc audit --serve`: a real server process, and what it gives out, keeps and refuses."""

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from support.audit_pages import UTTERANCES, Window, chromium
from support.probes import SCRIPTS, write

from wildctc.audit.decisions import read_decisions
from wildctc.audit.report import write_report
from wildctc.audit.store import DecisionStore
from wildctc.cli import main

pytestmark = pytest.mark.slow
MADE = "Object.fromEntries([...app.decisions.made].map(([id, d]) => [id, [d.decision, d.fixed ?? null]]))"
SAVED = "byName('saved').textContent === 'All saved'"


@pytest.fixture
def probe(tmp_path):
    path = write(tmp_path, [replace(u) for u in UTTERANCES.values()])
    write_report(path, tmp_path / "report")
    return path


@contextmanager
def serving(probe, *options, port=0):
    """A server process: gives the process and its address."""
    words = ["audit", str(probe), "-o", str(probe.parent / "report"), "--serve", "--port", str(port), *options]
    script = "import sys; from wildctc.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", script, *words], stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address  # the report is not made again
        yield process, address
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(address, path, method="GET", body=None):
    """Send a path as it is, without tidying it up: status and body."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


def visit(browser, address, name):
    window = Window(browser)
    window.page.goto(address)
    window.page.fill("#who-name", name)
    window.press("Enter")
    window.wait()
    return window


def entry(key, **fields):
    return {"key": key, "id": "english", "text": "x", "decision": "accept", "reviewer": "ann"} | fields


def test_only_files_of_the_report_are_given_out_and_only_with_the_token(probe):
    (probe.parent / "secret.txt").write_text("secret")
    os.symlink(probe.parent / "secret.txt", probe.parent / "report" / "data" / "link.js")
    with serving(probe) as (_, address):
        root = urlsplit(address).path
        assert ask(address, root)[0] == ask(address, f"{root}data/report.js")[0] == 200
        assert ask(address, f"{root}audio/000000.wav")[0] == 200
        for path in ("/", "/index.html", "/data/report.js", "/wrong/", "//", f"{root[:-2]}/"):
            assert ask(address, path)[0] == 404, path
        wrong = [
            "decisions.sqlite",
            "decisions.sqlite-wal",
            "data/../decisions.sqlite",
            "../secret.txt",
            "data/link.js",
        ]
        wrong += [
            "..%2fsecret.txt",
            "data/..%2f..%2fsecret.txt",
            "data/%2e%2e/%2e%2e/secret.txt",
            "data//etc/passwd",
            "data/",
        ]
        for path in wrong:
            status, body = ask(address, root + path)
            assert status in (404, 405), path
            assert b"secret" not in body


def test_a_wrong_decision_is_refused_and_a_repeated_one_stored_once(probe):
    with serving(probe) as (_, address):
        path = f"{urlsplit(address).path}api/decisions"
        wrong = ["", "{}", "[1]", "[" * 50_000, json.dumps([entry("k", decision="drop")])]
        wrong += [json.dumps([entry("k", decision="fix", fixed=" ")]), json.dumps([entry("k", reviewer="")])]
        wrong += [json.dumps([entry("k", id=7)]), json.dumps([entry("k", text="\ud800")]), "x" * 10_000_001]
        for body in wrong:
            assert ask(address, path, "POST", body)[0] == 400, body[:80]
        for _ in range(2):
            assert ask(address, path, "POST", json.dumps([entry("k", comment="sure")]))[0] == 200
        rows = json.loads(ask(address, path)[1])["rows"]
        assert [(row["number"], row["reviewer"], row["comment"]) for row in rows] == [(1, "ann", "sure")]


def test_history_keeps_what_was_replaced_and_taken_back(tmp_path):
    with DecisionStore(tmp_path / "d.sqlite") as store:
        store.add([entry("1"), entry("2", decision="fix", fixed="y"), entry("3", decision=None)])
        assert [(row["decision"], row["replaces"]) for row in store.since(0)[1]] == [
            ("accept", None),
            ("fix", 1),
            (None, 2),
        ]
        assert [row["number"] for row in store.latest()[1]] == [3]
    database = sqlite3.connect(tmp_path / "d.sqlite")
    for command in ("DELETE FROM history", "UPDATE history SET fixed = 'z'"):
        with pytest.raises(sqlite3.IntegrityError, match="history is kept"):
            database.execute(command)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


def test_two_browsers_see_each_others_decisions_and_conflicts(probe):
    with serving(probe) as (_, address), chromium() as browser:
        ann, ben = visit(browser, address, "ann"), visit(browser, address, "ben")
        for window, keys in ((ann, ["a"]), (ben, ["1", "Enter"])):
            window.choose("english")
            window.press(*keys)
            window.until(SAVED)
        for window in (ann, ben):
            window.until("app.decisions.others.size === 1")
            window.page.select_option("#decision", "conflict")
            assert window.listed() == ["english"]
        ann.choose("english")
        assert ann.text(".others").startswith("ben fixed: the quack brown fox")
        ann.page.click(".others button")  # Take
        ann.until(SAVED)
        ann.page.click("#team")
        ann.page.wait_for_selector("#team-dialog[open]")
        assert "ben\t1\t0\t1\t0" in ann.text("#team-people")
        assert "ann, ben\t1\t100.0%" in ann.text("#team-pairs")
        assert ann.errors == ben.errors == []
    found = read_decisions(probe.parent / "report/decisions.sqlite")
    assert {d.reviewer: d.decision for d in found} == {"ann": "fix", "ben": "fix"}


def test_kill_9_loses_nothing_that_was_shown_as_saved_and_the_page_goes_on(probe):
    with chromium() as browser:
        with serving(probe) as (process, address):
            window = visit(browser, address, "ann")
            port = urlsplit(address).port
            window.press("a", "a")
            window.until(SAVED)
            window.press("s", "a")
            process.send_signal(signal.SIGKILL)  # in the middle of saving
            process.wait()
            waiting = set(window.run("[...app.decisions.unstored]"))
            shown = set(window.run(MADE)) - waiting
            window.press("a")  # while there is no server
            window.until("byName('saved').textContent.includes('not saved yet')")
        kept = {d.id for d in read_decisions(probe.parent / "report/decisions.sqlite")}
        assert len(shown) >= 2
        assert shown <= kept
        with serving(probe, port=port) as (_, again):
            assert again == address
            window.until(SAVED)
            assert window.run("Object.keys(localStorage).filter(k => k.includes('outbox')).length") == 0
            made = window.run(MADE)
            window.page.reload()
            window.wait()
            assert window.run(MADE) == made
            assert len(made) == 5
    found = read_decisions(probe.parent / "report/decisions.sqlite")
    assert {d.id: d.decision for d in found} == {id: decision for id, (decision, _) in made.items()}


def test_what_was_not_saved_survives_a_reload(probe):
    with chromium() as browser, serving(probe) as (_, address):
        window = visit(browser, address, "ann")
        window.page.route("**/api/decisions", lambda route: route.abort())
        window.choose("english")
        window.press("a")
        window.until("byName('saved').textContent.includes('1 not saved yet')")
        window.page.unroute("**/api/decisions")
        window.page.reload()
        window.wait()
        window.until(SAVED)
        assert window.run(MADE) == {"english": ["accept", None]}


def test_work_is_shared_and_a_part_is_decided_twice(probe):
    with chromium() as browser, serving(probe, "--reviewers", "ann=3,ben", "--double", "0.25") as (_, address):
        window = visit(browser, address, "ann")
        assert window.text("#reviewer") == "ann"
        assert set(window.listed()) == set(
            window.run("report.rows.filter(r => app.team.assigned(r).includes('ann')).map(r => r.id)")
        )
        whose = window.run("Array.from({ length: 4000 }, (_, i) => app.team.assign(`utt-${i}`))")
        assert sum(names[0] == "ann" for names in whose) / 4000 == pytest.approx(0.75, abs=0.03)
        double = [names for names in whose if len(names) == 2]
        assert len(double) / 4000 == pytest.approx(0.25, abs=0.03)
        assert all(set(names) == {"ann", "ben"} for names in double)
        stranger = json.dumps([entry("k", reviewer="eve")])
        status, body = ask(address, f"{urlsplit(address).path}api/decisions", "POST", stranger)
        assert (status, b"not one of the reviewers: ann, ben" in body) == (400, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "1"], "--port is for a server: give --serve too"),
        (["--serve", "--link-audio"], "leave out --link-audio"),
        (["--serve", "--reviewers", "ann=x"], "'ann=x' is not NAME or NAME=SHARE"),
        (["--serve", "--reviewers", "ann", "--double", "0.5"], "needs --reviewers with at least two names"),
        (["--serve", "--port", "99999"], "give another --port"),
    ],
)
def test_wrong_options_are_one_line(probe, capsys, options, message):
    assert main(["audit", str(probe), "-o", str(probe.parent / "report"), *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert SCRIPTS["english"].id == "english"
