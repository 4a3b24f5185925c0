"""How many keys does a decision take? Corrects the most suspicious utterances of a report by real keys in Chromium.

    python benchmarks/audit_keys.py REPORT TRUTH.jsonl [--utterances 15]

TRUTH.jsonl has `id` and `truth` (or `text`) of each utterance. A reviewer who knows the truth corrects each utterance
in the way that takes the fewest keys: accepts it, copies findings into the fix by digits or all at once (`h`), and
types what is still wrong, with the browser's keys for moving by words. Hearing it is one key (space), which autoplay
saves. Every key is pressed, and the decision that the page stored must be the truth.
"""

from __future__ import annotations

import argparse
import sys
from difflib import SequenceMatcher
from pathlib import Path

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
    truth = {row["id"]: row.get("truth", row.get("text")) for _, row in read_rows(options.truth)}
    with chromium() as browser:
        window = Window(browser)
        window.open(options.report)
        used = correct(window, truth, options.utterances)
    typed = [keys for keys, _ in used]
    for keys, what in used:
        print(f"{keys:4}  {what}")
    print(f"{len(used)} decisions: {sum(typed) / len(used):.1f} keys each, with one to hear it")
    print(f"with autoplay: {sum(typed) / len(used) - 1:.1f}")


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
    issues = window.run("app.row.issues")
    all_of_them = [n for n, issue in enumerate(issues) if issue["score"] >= 0.5]
    helpful = [n for n, issue in enumerate(issues[:9]) if distance(taken(text, [issue]), truth) < distance(text, truth)]
    ways = [["f", *typed(text, truth)]]
    ways += [["h", *typed(taken(text, [issues[n] for n in all_of_them]), truth)]] if all_of_them else []
    ways += (
        [[*(str(n + 1) for n in helpful), *typed(taken(text, [issues[n] for n in helpful]), truth)]] if helpful else []
    )
    return [*min(ways, key=len), "Enter"]


def taken(text: str, issues: list[dict]) -> str:
    """The text after findings were copied into it."""
    for issue in sorted(issues, key=lambda i: (-i["begin"], -i["stop"])):
        text = f"{text[: issue['begin']]} {issue['heard']} {text[issue['stop'] :]}"
    return " ".join(text.split())


def distance(a: str, b: str) -> int:
    blocks = SequenceMatcher(None, a.split(), b.split(), autojunk=False).get_matching_blocks()
    return len(a.split()) + len(b.split()) - 2 * sum(block.size for block in blocks)


def typed(text: str, truth: str) -> list[str]:
    """Keys that change the text in the editor: to the word from the nearer end, then delete and type."""
    keys: list[str] = []
    before, after = text.split(), truth.split()
    changes = [c for c in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if c[0] != "equal"]
    for _, i, j, k, l in reversed(changes):  # from the end, so that earlier places stay where they are
        there = ["Control+Home", *["Control+ArrowRight"] * i]  # to the end of the word before
        back = ["Control+End", *["Control+ArrowLeft"] * (len(before) - i)]  # to the start of the word
        words = [("Space" if char == " " else char) for char in " ".join(after[k:l])]
        forward = len(there) <= len(back)
        keys += (there if forward else back) + ["Control+Delete"] * (j - i)
        at_end = (forward and i > 0) or i == len(before)
        keys += ["Space", *words] if words and at_end else words
        keys += ["Space"] if words and not at_end and i == j else []
    return keys


if __name__ == "__main__":
    main()
