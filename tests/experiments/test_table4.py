"""The benchmark that says where bypass probability goes, and in which utterances wildcards help."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.made_up import outcome, run_of
from support.probes import SETTINGS, probed
from support.tones import write_rows

from wildctc.probe.records import write_probe

pytestmark = pytest.mark.slow  # each test starts processes

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bypassed.py"


def run(*words: object) -> str:
    line = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_the_change_of_wer_is_shown_by_quarter_of_room(tmp_path):
    plain = outcome(0.5)
    words = plain.words.copy()
    tight = np.arange(len(words)) < len(words) // 4
    words[tight, 0] -= 2  # of 20 words: 10 points fewer
    for criterion, counts in (("ctc", plain.words), ("otc-tw", words)):
        test = type(plain)(plain.ids, plain.speakers, counts, plain.characters)
        run_of(criterion, tests={"test": test}).save(tmp_path / criterion / "seed0.json")
    rows = [
        {"id": id, "audio": "x.wav", "text": "a" * 10, "duration": 1.0 if tight[i] else 2.0 + i}
        for i, id in enumerate(plain.ids)
    ]
    write_rows(tmp_path / "test.jsonl", rows)
    told = run("--results", tmp_path, "--manifest", tmp_path / "test.jsonl", "--criteria", "otc-tw", "otc-t")
    assert ["otc-tw", "1", "-10.0", "+0.0", "+0.0", "+0.0"] in [line.split() for line in told.splitlines()]
    assert "otc-t " not in told  # no such runs


def test_the_bypass_is_shown_by_quarter_and_by_character(tmp_path):
    utterances = [probed(f"u{i}", "ab" * (10 + 10 * i)) for i in range(4)]
    for i, utterance in enumerate(utterances):
        utterance.duration = 10.0  # so that the longest has the least room
        for token in utterance.tokens:
            token.bypass = 0.1 * i * (token.text == "b")
    write_probe(tmp_path / "p.jsonl", SETTINGS | {"frame_rate": 20.0}, utterances)
    row = run(tmp_path / "p.jsonl").splitlines()[2].split()
    assert row[3:7] == ["15.0%", "10.0%", "5.0%", "0.0%"]
    assert row[-4:-1] == ["b", "20%", "a"]


def test_what_is_missing_is_said_in_a_line(tmp_path):
    for words, said in (
        ([], "give probe files, or --results"),
        (["--results", str(tmp_path)], "--results needs --manifest"),
        ([str(tmp_path / "none.jsonl")], "cannot read"),
    ):
        done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr
