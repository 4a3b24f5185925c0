"""Decisions of several reviewers: conflicts, settling them, agreement, and the commands for their files."""

import io
import json

import pytest
from support.tones import read_rows, write_rows

from wildctc.audit.agreement import kappa, settle, summarise
from wildctc.audit.decisions import Decision
from wildctc.cli import main


def made(reviewer, decision, fixed="", id="a", at="2026-11-18T10:00:00.000Z"):
    return Decision(id, decision, "selamat pagi", fixed, reviewer, at)


def test_kappa_has_the_value_by_hand():
    # 20 both accept, 5 + 10 disagree, 15 both fix: observed 0.7, chance 0.5 · 0.6 + 0.5 · 0.4 = 0.5
    pairs = [("accept", "accept")] * 20 + [("accept", "fix")] * 5 + [("fix", "accept")] * 10 + [("fix", "fix")] * 15
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([]) is None
    assert kappa([("fix", "fix")]) is None


def test_newest_majority_and_ask_settle_a_conflict():
    given = [
        made("ann", "fix", "selamat petang", at="2026-11-18T10:00:01.000Z"),
        made("ben", "accept", at="2026-11-18T10:00:03.000Z"),
        made("cai", "fix", "selamat  petang", at="2026-11-18T10:00:02.000Z"),
        made("dee", "skip", at="2026-11-18T10:00:04.000Z"),  # a skip disagrees with nobody
    ]
    assert settle(given).decisions["a"].reviewer == "ben"
    assert settle(given, "majority").decisions["a"].fixed == "selamat  petang"
    assert settle(given, "ask", lambda choices: choices[0]).decisions["a"].decision == "fix"
    assert settle(given, "ask", lambda choices: None).open == ["a"]
    assert settle(given[:2], "majority").open == ["a"]
    assert settle([given[0], given[2], given[3]]).conflicts == []


def test_the_summary_counts_and_leaves_pauses_out():
    times = [f"2026-11-18T{at}Z" for at in ("10:00:00", "10:00:30", "12:00:00", "12:00:30")]
    given = [made("ann", "accept", id=str(n), at=at) for n, at in enumerate(times)]
    found = summarise([*given, made("ben", "fix", "x", id="0"), made("ben", "accept", id="1")])
    assert found.reviewers["ann"].total() == 4
    assert found.hourly == {"ann": pytest.approx(120), "ben": None}
    assert found.pairs == [("ann", "ben", 2, 0.5, 0.0)]
    assert found.conflicts == ["0"]


def files(folder):
    """Two reviewers' files, and the manifest."""
    write_rows(
        folder / "m.jsonl", [{"id": i, "audio": f"{i}.wav", "text": "selamat pagi", "duration": 1.0} for i in "ab"]
    )
    write_rows(folder / "ann.jsonl", [made("ann", "accept").row(), made("ann", "fix", "selamat", id="b").row()])
    write_rows(folder / "ben.jsonl", [made("ben", "fix", "pagi", at="2026-11-18T11:00:00.000Z").row()])
    return [str(folder / "ann.jsonl"), str(folder / "ben.jsonl")]


def test_files_are_merged_into_one_that_has_all_reviewers(tmp_path, capsys):
    names, out = files(tmp_path), tmp_path / "all.jsonl"
    assert main(["decisions", "merge", *names, "-o", str(out)]) == 0
    assert "3 decisions on 2 utterances" in capsys.readouterr().out
    assert main(["decisions", "report", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "ann, ben" in shown
    assert "conflicts: 1" in shown
    assert main(["decisions", "merge", str(out), *names, "-o", str(tmp_path / "twice.jsonl")]) == 0
    assert read_rows(tmp_path / "twice.jsonl") == read_rows(out)
    assert main(["decisions", "merge", *names]) == 2
    assert main(["decisions", "merge", *names, "-o", names[0]]) == 2


@pytest.mark.parametrize(
    ("how", "answer", "text"),
    [
        ("newest", "", "pagi"),
        ("majority", "", "selamat pagi"),
        ("ask", "x\n2\n", "pagi"),
        ("ask", "\n", "selamat pagi"),
    ],
)
def test_apply_fixes_takes_all_files_and_settles_conflicts(tmp_path, capsys, monkeypatch, how, answer, text):
    names, out = files(tmp_path), tmp_path / "out.jsonl"
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["apply-fixes", str(tmp_path / "m.jsonl"), *names, "--conflicts", how, "-o", str(out)]) == 0
    assert [row["text"] for row in read_rows(out)] == [text, "selamat"]
    assert "reviewers disagree on utterance a" in capsys.readouterr().err


def test_nothing_is_written_if_nobody_answers(tmp_path, capsys, monkeypatch):
    names = files(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    out = tmp_path / "out.jsonl"
    assert main(["apply-fixes", str(tmp_path / "m.jsonl"), *names, "--conflicts", "ask", "-o", str(out)]) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert not out.exists()
    assert json.loads((tmp_path / "ann.jsonl").read_text().splitlines()[0])["reviewer"] == "ann"
