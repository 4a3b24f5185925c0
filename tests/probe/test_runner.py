"""`wildctc probe` on a model trained for it: what it finds, resumes, skips and refuses."""

import json
import re
import subprocess
import sys

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows

from wildctc.cli import main
from wildctc.probe.records import read_probe
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained run, and a test manifest in which one letter is wrong and one word was not said."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("probe")
    recipe = make_corpus(folder)
    words = ["train", str(recipe), "--out", str(folder / "run"), "--training.epochs", "7", "--data.workers", "0"]
    assert main(words) == 0
    rows = read_rows(folder / "test.jsonl")
    first = rows[1]["text"]
    rows[1] |= {"text": ("b" if first[0] == "a" else "a") + first[1:], "truth": first}
    rows[2] |= {"text": f"{rows[2]['text']} cab", "truth": rows[2]["text"]}
    write_rows(folder / "wrong.jsonl", rows)
    return folder


def numbers(lines):
    return [float(number) for line in lines for number in NUMBER.findall(line.decode())]


def probe(folder, *options, manifest="wrong.jsonl", output="p.jsonl"):
    words = ["probe", str(folder / "run"), str(folder / manifest), "-o", str(folder / output), "--workers", "0"]
    return main([*words, *map(str, options)])


def test_the_command_finds_the_wrong_letter_and_the_word_that_was_not_said(trained, capsys):
    assert probe(trained) == 0
    assert capsys.readouterr().out.endswith("p.jsonl: 10 utterances\n")
    header, found = read_probe(trained / "p.jsonl")
    assert [u.id for u in found] == [row["id"] for row in read_rows(trained / "wrong.jsonl")]
    assert header["self_loop"] == 0.0
    assert header["model"] == str(trained / "run")
    letters = [(t.bypass, u.id, t.begin) for u in found for t in u.tokens]
    assert max(x for x in letters if x[1] != "test2")[1:] == ("test1", 0)
    assert found[2].words[-1].bypass > 0.9
    assert found[2].words[-1].heard == ""
    assert found[1].heard == read_rows(trained / "wrong.jsonl")[1]["truth"]
    assert (found[1].audio, found[1].speaker) == (str(trained / "test1.wav"), "tone")
    assert found[1].duration == pytest.approx(0.12 * len(found[1].text), abs=0.01)
    # a letter is 0.12 s, and the model marks it somewhere within
    assert all(abs((t.start + t.end) / 2 - 0.12 * (t.begin + 0.5)) < 0.08 for u in found[3:] for t in u.tokens)
    assert all(0 <= t.start < t.end <= u.duration for u in found for t in u.tokens)


def test_a_finished_probe_is_not_made_again(trained, capsys):
    probe(trained)
    before = (trained / "p.jsonl").stat().st_mtime_ns
    assert probe(trained) == 0
    assert "complete already" in capsys.readouterr().out
    assert (trained / "p.jsonl").stat().st_mtime_ns == before


def test_an_interrupted_probe_resumes_and_gives_the_same_file(trained, capsys):
    probe(trained)
    whole = (trained / "p.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    # as a killed process leaves it: a batch, and a row cut off; and another process's part
    (trained / "q.jsonl.0.partial").write_bytes(b"".join([lines[0], b"\n", lines[4], lines[2], b"\n", lines[3][:50]]))
    marked = lines[7].replace(b'"speaker": "tone"', b'"speaker": "kept"')
    (trained / "q.jsonl.1.partial").write_bytes(lines[0] + b"\n" + marked + b"\n")
    assert probe(trained, output="q.jsonl") == 0
    again = (trained / "q.jsonl").read_bytes().splitlines(keepends=True)
    assert [again[i] for i in (2, 4, 7)] == [lines[2], lines[4], marked]  # what was done is not done again
    lines[7] = marked
    # the rest is in other batches than before, which changes the last of the six digits
    assert [NUMBER.sub("", line.decode()) for line in again] == [NUMBER.sub("", line.decode()) for line in lines]
    assert numbers(again) == pytest.approx(numbers(lines), rel=1e-4, abs=1e-5)
    assert not list(trained.glob("q.jsonl.*"))


def test_two_commands_do_not_write_the_same_probe(trained, capsys):
    holder = """
import fcntl, sys, time
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""
    part = trained / "both.jsonl.0.partial"
    with subprocess.Popen([sys.executable, "-c", holder, str(part)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        assert probe(trained, output="both.jsonl") == 2
        process.kill()
    assert "both.jsonl.0.partial: another process is writing it" in capsys.readouterr().err
    assert probe(trained, output="both.jsonl") == 0


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        (["--self-loop", "none"], None, "made with another self-loop weight"),
        ([], "text", "made with another manifest"),
        ([], "model", "made with another model"),
    ],
)
def test_a_probe_of_something_else_is_refused_and_kept(trained, capsys, options, change, message):
    probe(trained)
    before = (trained / "p.jsonl").read_bytes()
    manifest = "wrong.jsonl"
    if change == "text":
        manifest = "test.jsonl"
    if change == "model":
        changed = before.replace(json.loads(before.split(b"\n")[0])["probe"]["weights"].encode(), b"other")
        (trained / "p.jsonl").write_bytes(changed)
    assert probe(trained, *options, manifest=manifest) == 2
    assert message in capsys.readouterr().err
    (trained / "p.jsonl").write_bytes(before)


def test_without_self_loops_no_speech_is_unwritten(trained):
    assert probe(trained, "--self-loop", "none", output="none.jsonl") == 0
    header, found = read_probe(trained / "none.jsonl")
    assert header["self_loop"] is None
    assert not any(gap for u in found for gap in u.gaps)


def test_utterances_that_cannot_be_probed_are_reported_and_the_others_are_probed(trained, capsys):
    rows = read_rows(trained / "test.jsonl")
    rows[0] |= {"text": "a" * 200}
    rows[1] |= {"text": "zebra"}
    rows[2] |= {"audio": "gone.wav"}
    rows[3] |= {"text": ""}  # can be probed: all of it is unwritten
    write_rows(trained / "bad.jsonl", rows)
    assert probe(trained, manifest="bad.jsonl", output="bad-p.jsonl") == 2
    assert "3 of 10 utterances cannot be used" in capsys.readouterr().err
    assert probe(trained, "--max-bad", "0.5", manifest="bad.jsonl", output="bad-p.jsonl") == 0
    said = capsys.readouterr()
    assert "7 utterances, 3 skipped (complete already" in said.out
    for reason in (
        "transcript too long for its audio: needs 399",
        "outside the units: z (U+007A), r (U+0072)",
        "no such",
    ):
        assert reason in said.err
    header, found = read_probe(trained / "bad-p.jsonl")
    assert set(header["left_out"]) == {"test0", "test1", "test2"}
    assert [u.id for u in found] == [f"test{i}" for i in range(3, 10)]
    assert found[0].gaps[0] > 1
    assert found[0].between == [found[0].heard]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--self-loop", "inf"], "must be a number or none"),
        (["--self-loop", "much"], "invalid"),
        (["--workers", "-1"], "--workers must be at least 0"),
        (["--hf", "--cache", "c"], "--cache is for the features of a RUN"),
        (["--keep-invisible"], "--keep-invisible: the model was trained without invisible characters"),
        (["--keep-invisible", "--lower"], "--keep-invisible: the model was trained without invisible characters"),
    ],
)
def test_wrong_options_are_one_line(trained, capsys, options, message):
    assert probe(trained, *options, output="never.jsonl") == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not (trained / "never.jsonl").exists()


def test_invisible_characters_are_kept_if_the_model_keeps_them(trained, tmp_path, capsys):
    keeps = Recognizer.load(trained / "run")
    keeps.units.normalizer = Normalizer(keep_invisible=True)
    keeps.save(tmp_path / "model")
    rows = read_rows(trained / "test.jsonl")[:2]
    rows[0]["text"] += "\u200b"
    write_rows(trained / "invisible.jsonl", rows)
    words = ["probe", str(tmp_path / "model"), str(trained / "invisible.jsonl"), "-o", str(tmp_path / "p.jsonl")]
    assert main([*words, "--workers", "0", "--max-bad", "0.5", "--keep-invisible"]) == 0
    assert "outside the units: U+200B" in capsys.readouterr().err  # kept: this model has no such character


@pytest.mark.slow
def test_two_processes_make_the_same_file_as_one(trained):
    probe(trained)
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "wildctc", "probe"]
    words += [str(trained / "run"), str(trained / "wrong.jsonl"), "-o", str(trained / "two.jsonl"), "--workers", "0"]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("two.jsonl: 10 utterances") == 1
    _, one = read_probe(trained / "p.jsonl")
    _, two = read_probe(trained / "two.jsonl")
    assert [u.heard for u in two] == [u.heard for u in one]
    for a, b in zip(one, two, strict=True):  # batches differ, and with them the last bits
        assert [t.bypass for t in a.tokens] == pytest.approx([t.bypass for t in b.tokens], rel=1e-3, abs=1e-6)
