"""How fast is an audit of many utterances: made by one and by two processes, and opened in a browser?

    python benchmarks/audit_scale.py [--utterances 100000] [--make 2000] [--long 6000] [--out DIR]

Times `write_report` on `--make` made-up utterances with sound, with one and with two processes, interleaved. Then opens
a report of `--utterances` without sound in Chromium, from disk and from a server, and times what a reviewer does. Then
opens an utterance of `--long` words.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.audit_pages import Window, chromium
from support.probes import SETTINGS, probed

from wildctc.audit.report import write_report
from wildctc.json_lines import row_line
from wildctc.probe.records import FORMAT, as_row

RATE = 16000
TIMED = "() => { const t = performance.now(); ACT; return performance.now() - t; }"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--utterances", type=int, default=100_000)
    parser.add_argument("--make", type=int, default=2000, help="utterances with sound, of about 5 s")
    parser.add_argument("--long", type=int, default=6000, help="words of the longest utterance")
    parser.add_argument("--out", type=Path, default=Path("audit-scale"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.make:
        time_making(options.out, options.make)
    with chromium() as browser:
        if options.utterances:
            time_pages(browser, make_probe(options.out / "many.jsonl", options.utterances, 8, sound=False))
        long = make_report(make_probe(options.out / "long.jsonl", 1, options.long, sound=True))
        time_long(browser, long)


def time_pages(browser: Any, probe: Path) -> None:
    folder = make_report(probe)
    time_page(browser, lambda window: window.open(folder), folder, "from disk")
    with serving(probe, folder) as address:
        time_page(browser, lambda window: visit(window, address), folder, "from a server")


def make_probe(path: Path, count: int, words: int, sound: bool) -> Path:
    """A probe of made-up words, of which one in eight is wrong; made once."""
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    known = ["".join(rng.choice(list("abcdefghij"), rng.integers(2, 8))) for _ in range(3000)]
    with path.open("w") as file:
        file.write(row_line({"probe": {"format": FORMAT, **SETTINGS}}))
        for i in range(count):
            text = [known[k] for k in rng.integers(len(known), size=words)]
            changed = {int(k): known[rng.integers(len(known))] for k in np.flatnonzero(rng.random(words) < 0.125)}
            audio = f"{path.stem}-{i}.wav" if sound else "gone.wav"
            utterance = probed(f"utt-{i:06d}", " ".join(text), changed, speaker=f"s{i % 200}", audio=audio)
            if sound:
                noise = 0.1 * rng.standard_normal(round(utterance.duration * RATE)).astype(np.float32)
                soundfile.write(path.parent / audio, noise, RATE)
            file.write(row_line(as_row(utterance)))
    return path


def make_report(probe: Path, folder: Path | None = None, workers: int | None = None) -> Path:
    folder = folder or probe.with_suffix("")
    write_report(probe, folder, workers=workers)
    return folder


def time_making(out: Path, count: int) -> None:
    probe = make_probe(out / "made.jsonl", count, 10, sound=True)
    wall: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for workers in wall:
            began = time.perf_counter()
            make_report(probe, out / "made", workers)
            wall[workers].append(time.perf_counter() - began)
    one, two = (min(wall[n]) for n in (1, 2))
    print(f"{count:,} utterances with sound: one process {one:.1f} s, two {two:.1f} s: {one / two:.2f} times as fast")


class serving:
    """`wildctc audit --serve`, for as long as the block runs."""

    def __init__(self, probe: Path, folder: Path) -> None:
        words = ["audit", str(probe), "-o", str(folder), "--serve", "--port", "0"]
        self.process = subprocess.Popen([sys.executable, "-m", "wildctc", *words], stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self.process.kill()


def visit(window: Window, address: str) -> None:
    window.page.goto(address)
    if window.page.is_visible("#who"):
        window.page.fill("#who-name", "ann")
        window.press("Enter")
    window.wait()


class Clocked(Window):
    """A window whose main thread is timed by the processor: other work on the machine does not count."""

    def __init__(self, browser: Any) -> None:
        super().__init__(browser)
        self.session = self.context.new_cdp_session(self.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy(self) -> float:
        """Seconds of processor time that the page's main thread has used."""
        metrics = {m["name"]: m["value"] for m in self.session.send("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"]


def time_page(browser: Any, go: Callable[[Window], None], folder: Path, where: str) -> None:
    began = time.perf_counter()
    window = Window(browser)
    go(window)
    window.context.close()
    window = Clocked(browser)
    began = time.perf_counter()
    go(window)
    busy = window.busy()
    usable = time.perf_counter() - began
    loaded = [re.sub(r".*/", "", address) for address in window.addresses if "/data/" in address]
    size = sum((folder / "data" / name).stat().st_size for name in set(loaded))
    print(f"{where}: usable after {usable:.2f} s, {busy:.2f} s of processor time, having read {size / 1e6:.1f} MB")
    window.run("() => loadTexts()")
    acts = {
        "search": "byName('search').value = 'abc'; app.refilter()",
        "clear": "byName('search').value = ''; app.refilter()",
        "a speaker": "byName('speaker').value = '7'; app.refilter(); byName('speaker').value = ''",
        "a kind": "app.filters.boxes[0].box.checked = true; app.refilter(); app.filters.boxes[0].box.checked = false",
        "undecided": "byName('decision').value = 'undecided'; app.refilter(); byName('decision').value = 'all'",
        "score": "byName('score').value = 0.9; app.refilter(); byName('score').value = 0",
        "shortest": "byName('order').value = 'length'; app.refilter(); byName('order').value = 'suspicion'",
        "accept": "app.decide('accept')",
        "next": "app.move(1)",
    }
    times = {}
    for name, act in acts.items():
        window.wait()
        took = TIMED.replace("ACT", act)
        found = []
        for _ in range(5):
            found.append(window.run(took))
            window.wait()
        times[name] = min(found)
    print("  milliseconds:", ", ".join(f"{name} {value:.0f}" for name, value in times.items()))
    if window.errors:
        print(json.dumps(window.errors))
    window.context.close()


def time_long(browser: Any, folder: Path) -> None:
    for _ in range(2):
        window = Clocked(browser)
        began = time.perf_counter()
        window.open(folder)
        window.page.wait_for_selector(".transcript .word")
        took, busy = time.perf_counter() - began, window.busy()
        acts = {"first word": "app.listening.playWord(5)", "fix": "app.decide('fix')"}
        times = [f"{name} {window.run(TIMED.replace('ACT', act)):.0f}" for name, act in acts.items()]
        words = window.run("app.row.words.length")
        window.context.close()
    shown = f"{took:.2f} s, {busy:.2f} s of processor time"
    print(f"an utterance of {words:,} words: shown after {shown}; milliseconds: {', '.join(times)}")


if __name__ == "__main__":
    main()
