"""How many reviewers can a server of the audit take? `python benchmarks/audit_server.py`

A real server process, with decisions on 100,000 utterances in its store. Twenty reviewers, each a thread with its own
connection, work without a pause: save a decision, ask for those of the others, read a sound of 7 s. A person decides
every few seconds, so the requests per second are those of many more people. Both processes share the machine's cores.
"""

from __future__ import annotations

import http.client
import json
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from wildctc.audit.server import STORE
from wildctc.audit.store import DecisionStore

REVIEWERS, UTTERANCES, SECONDS = 20, 100_000, 15.0
SERVE = "import sys; from wildctc.audit.server import serve; serve(sys.argv[1], '127.0.0.1', 0)"


def change(number: int, reviewer: int) -> dict[str, str]:
    """A decision on an utterance with a transcript of usual length."""
    text = f"utterance {number} has a transcript of about sixty characters"
    about = {"key": secrets.token_hex(16), "id": f"utt-{number:06d}", "reviewer": f"reviewer {reviewer}"}
    return about | {"decision": "fix", "text": text, "fixed": f"{text} and more"}


def fill(folder: Path) -> float:
    """A report folder with one sound, and a decision on each utterance; returns the seconds that the store took."""
    (folder / "data").mkdir(parents=True)
    (folder / "audio").mkdir()
    (folder / "audio" / "000000.wav").write_bytes(bytes(7 * 32_000))
    start = time.perf_counter()
    with DecisionStore(folder / STORE) as store:
        for first in range(0, UTTERANCES, 500):
            store.add([change(n, n % REVIEWERS) for n in range(first, first + 500)])
    return time.perf_counter() - start


class Reviewer(threading.Thread):
    """Sends requests without a pause until a time, and keeps how long each took, by kind."""

    def __init__(self, number: int, address: str, last: int, until: float) -> None:
        super().__init__()
        self.number, self.last, self.until = number, last, until
        place = urlsplit(address)
        self.root = place.path
        self.connection = http.client.HTTPConnection(str(place.hostname), place.port)
        self.times: dict[str, list[float]] = {"save": [], "poll": [], "sound": []}

    def run(self) -> None:
        generator = np.random.default_rng(self.number)
        while time.perf_counter() < self.until:
            body = json.dumps([change(int(generator.integers(UTTERANCES)), self.number)])
            self.ask("save", "POST", "api/decisions", body)
            self.last = json.loads(self.ask("poll", "GET", f"api/decisions?after={self.last}"))["last"]
            self.ask("sound", "GET", "audio/000000.wav")

    def ask(self, kind: str, method: str, path: str, body: str | None = None) -> bytes:
        start = time.perf_counter()
        self.connection.request(method, self.root + path, body)
        response = self.connection.getresponse()
        answer = response.read()
        assert response.status == 200, (response.status, answer[:200])
        self.times[kind].append(time.perf_counter() - start)
        return answer


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "report"
        print(
            f"store: {UTTERANCES:,} decisions in {fill(folder):.1f} s, {(folder / STORE).stat().st_size / 1e6:.0f} MB"
        )
        server = subprocess.Popen([sys.executable, "-c", SERVE, str(folder)], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            address = server.stdout.readline().strip()
            first = Reviewer(0, address, 0, 0.0)
            raw = first.ask("poll", "GET", "api/decisions")
            print(f"a page that opens reads {len(raw) / 1e6:.1f} MB of decisions in {first.times['poll'][0]:.2f} s")
            last, start = json.loads(raw)["last"], time.perf_counter()
            people = [Reviewer(n, address, last, start + SECONDS) for n in range(REVIEWERS)]
            for person in people:
                person.start()
            for person in people:
                person.join()
            taken = time.perf_counter() - start
        finally:
            server.kill()
            server.wait()
        with DecisionStore(folder / STORE, read_only=True) as store:
            kept = len(store.since(last)[1])
    print(f"\n{'':8}{'requests/s':>12}{'median ms':>12}{'p95 ms':>10}")
    for kind in ("save", "poll", "sound"):
        times = np.array([t for person in people for t in person.times[kind]])
        middle, slow = 1000 * np.percentile(times, [50, 95])
        print(f"{kind:8}{len(times) / taken:12.0f}{middle:12.1f}{slow:10.1f}")
    sent = sum(len(person.times["save"]) for person in people)
    print(f"\n{sent:,} decisions confirmed, {kept:,} in the store")
    assert sent == kept


if __name__ == "__main__":
    main()
