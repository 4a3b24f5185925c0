"""How many keys does a decision take? Corrects the most suspicious utterances of a report by real keys in Chromium.

    python benchmarks/audit_keys.py REPORT TRUTH.jsonl [--utterances 15]

TRUTH.jsonl has `id` and `truth` (or `text`) of each utterance, or is the demo's corpus/truth.jsonl, of which accepted
spellings stay as they are written. A reviewer who knows the truth corrects each utterance
in the way that takes the fewest keys: accepts it, copies findings into the fix by digits or all at once (`h`), and
types what is still wrong, with the browser's keys for moving by words. Hearing it is one key (space), which autoplay
saves. Every key is pressed, and the decision that the page stored must be the truth.
"""

from __future__ import annotations

import argparse
import re
import sys
from difflib import SequenceMatcher
from itertools import permutations, takewhile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.audit_pages import Window, chromium

from wildctc.json_lines import read_rows

COUNT = """() => { window.keys = 0; document.addEventListener("keydown", (event) => {
  if (!/^(Control|Shift|Alt)$/.test(event.key)) keys++; }, true); }"""  # Ctrl with a key is one key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--utterances", type=int, default=15)
    options = parser.parse_args()
    truth = {row["id"]: truth_of(row) for _, row in read_rows(options.truth)}
    with chromium() as browser:
        window = Window(browser)
        window.open(options.report)
        used = correct(window, truth, options.utterances)
    typed = [keys for keys, _ in used]
    for keys, what in used:
        print(f"{keys:4}  {what}")
    print(f"{len(used)} decisions: {sum(typed) / len(used):.1f} keys each, with one to hear it")
    print(f"with autoplay: {sum(typed) / len(used) - 1:.1f}")


def truth_of(row: dict[str, Any]) -> str:
    if "words" not in row:
        return row.get("truth") or row["text"]
    words = [word["written" if word["kind"] == "variant" else "spoken"] for word in row["words"]]
    return " ".join(filter(None, words))


def correct(window: Window, truth: dict[str, str], count: int) -> list[tuple[int, str]]:
    """Decide on the first utterances of the list; gives the keys of each, and what was pressed."""
    window.run(COUNT)
    used = []
    for id in window.listed()[:count]:
        window.until(f"app.row.id === {id!r} && app.detail.detail")
        window.run("keys = 0")
        keys = plan(window, truth[id])
        window.press("Space", *keys)
        window.until(f"app.decisions.made.has({id!r})")
        made = window.run("id => app.decisions.made.get(id)", id)
        row = window.run("id => report.byId.get(id).text", id)
        assert (made.get("fixed") or row) == truth[id], (made, truth[id])
        used.append((window.run("keys"), " ".join(["Space", *keys])))
    return used


def plan(window: Window, truth: str) -> list[str]:
    """The keys that make the shown transcript right: the shortest of several ways."""
    text = window.run("app.row.text")
    if text == truth:
        return ["a"]
    issues = window.run("app.row.issues")[:9]
    usable = [n for n, issue in enumerate(issues) if issue["heard"] != issue["written"]][:6]
    heard = [n for n, issue in enumerate(issues) if issue["score"] >= 0.5]
    ways = [(["f"], [])]
    ways += [([str(n + 1) for n in some], list(some)) for k in (1, 2, 3) for some in permutations(usable, k)]
    ways += [(["h"], heard)] if heard else []
    found = []
    for keys, some in ways:
        for backwards in (False, True):
            field = Field(text, issues)
            for n in some:
                field.take(n)
            found.append([*keys, *field.finish(truth, backwards), "Enter"])
    return min(found, key=len)


class Field:
    """The text field of a fix, as far as keys need it: its text, the caret, and where unused findings are."""

    def __init__(self, text: str, issues: list[dict[str, Any]]) -> None:
        self.text, self.issues = text, issues
        self.open = {n: (issue["begin"], issue["stop"]) for n, issue in enumerate(issues)}
        self.selected: int | None = 0 if issues else None  # `f` selects the worst finding
        self.caret = issues[0]["begin"] if issues else len(text)

    def take(self, number: int) -> None:
        """Copy a finding into the text, as a digit does."""
        begin, stop = self.open.pop(number, (0, 0))
        heard = self.issues[number]["heard"]
        if begin == stop:
            heard = f"{heard} " if begin < len(self.text) else f" {heard}"
        elif not heard:
            begin, stop = (begin, stop + 1) if self.text[stop : stop + 1] else (begin - 1, stop)
        self.replace(begin, stop, heard)

    def replace(self, begin: int, stop: int, new: str) -> None:
        self.text = self.text[:begin] + new + self.text[stop:]
        longer = len(new) - (stop - begin)
        after = {n: (b + longer, s + longer) for n, (b, s) in self.open.items() if b >= stop}
        self.open = {n: place for n, place in self.open.items() if place[1] <= begin} | after
        self.caret, self.selected = begin + len(new), None

    def finish(self, truth: str, backwards: bool) -> list[str]:
        """The keys that make the text the truth, change by change from the left or from the right."""
        keys: list[str] = []
        while changes := differences(self.text, truth):
            begin, stop, new = changes[-1 if backwards else 0]
            ways = [*self.by_arrows(begin, stop, new), *self.by_tab(begin, stop, new)]
            cost, begin, stop, new = min(ways, key=lambda way: len(way[0]))
            keys += cost
            self.replace(begin, stop, new)
        return keys

    def by_arrows(self, begin: int, stop: int, new: str) -> list[tuple[list[str], int, int, str]]:
        """Go to the end or to the start of the changed words, from the caret or from an end of the text."""
        words = [(m.start(), m.end()) for m in re.finditer(r"\S+", self.text)]
        ends = [e for _, e in words if e <= stop]
        starts = [s for s, _ in words if s >= begin]
        right, left = ["Control+ArrowRight"], ["Control+ArrowLeft"]
        to_end = [["Control+Home", *right * len(ends)]]
        to_start = [["Control+End", *left * len(starts)]]
        if self.selected is None and self.caret < stop:
            to_end.append(right * sum(self.caret < e for e in ends))
        if self.selected is None and self.caret > begin:
            to_start.append(left * sum(s < self.caret for s in starts))
        old = self.text[begin:stop]
        at_end = [keys + edit for keys in to_end for edit in from_end(old, new)]
        at_start = [keys + edit for keys in to_start for edit in from_start(old, new)]
        return [(keys, begin, stop, new) for keys in at_end + at_start]

    def by_tab(self, begin: int, stop: int, new: str) -> list[tuple[list[str], int, int, str]]:
        """Go to the finding that has the changed words: all of it is then selected."""
        found = []
        for n, (b, s) in self.open.items():
            if not (b <= begin and stop <= s and b < s):
                continue
            if n == self.selected:
                keys = []
            elif b >= self.caret:
                keys = ["Tab"] * sum(self.caret <= c <= b for m, (c, _) in self.open.items() if m != self.selected)
            else:
                keys = ["Shift+Tab"] * sum(b <= c <= self.caret for c, _ in self.open.values())
            old, all_new = self.text[b:s], self.text[b:begin] + new + self.text[stop:s]
            ways = [press(all_new) or ["Delete"]]
            ways += [["ArrowRight", *edit] for edit in from_end(old, all_new)]
            ways += [["ArrowLeft", *edit] for edit in from_start(old, all_new)]
            found += [(keys + way, b, s, all_new) for way in ways]
        return found


def differences(text: str, truth: str) -> list[tuple[int, int, str]]:
    """Stretches of words to be replaced: begin, stop, new words, with the spaces that they need."""
    words, after = list(re.finditer(r"\S+", text)), truth.split()
    changes = []
    for tag, i, j, k, l in SequenceMatcher(None, [w[0] for w in words], after, autojunk=False).get_opcodes():
        new = " ".join(after[k:l])
        if tag == "insert":
            place = words[i - 1].end() if i else 0
            changes.append((place, place, f" {new}" if i else f"{new} "))
        elif tag != "equal":
            same = l - k == j - i  # word for word: each is a change of its own
            for n in range(i, j) if same else [i]:
                stop = words[n if same else j - 1].end()
                changes.append((words[n].start(), stop, after[k + n - i] if same else new))
    return changes


def from_end(old: str, new: str) -> list[list[str]]:
    """Ways to edit when the caret is behind the old words."""
    same, tail = common(old, new)
    edit = ["ArrowLeft"] * tail + ["Backspace"] * (len(old) - same - tail) + press(new[same : len(new) - tail])
    return [edit, ["Control+Backspace"] * len(old.split()) + press(new)]


def from_start(old: str, new: str) -> list[list[str]]:
    """Ways to edit when the caret is before the old words."""
    same, tail = common(old, new)
    edit = ["ArrowRight"] * same + ["Delete"] * (len(old) - same - tail) + press(new[same : len(new) - tail])
    return [edit, ["Control+Delete"] * len(old.split()) + press(new)]


def common(old: str, new: str) -> tuple[int, int]:
    """How many characters are the same at the start and, of the rest, at the end."""
    same = alike(old, new)
    return same, alike(old[same:][::-1], new[same:][::-1])


def alike(old: str, new: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def press(text: str) -> list[str]:
    return ["Space" if char == " " else char for char in text]


if __name__ == "__main__":
    main()
