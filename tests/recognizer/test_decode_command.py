"""`wildctc decode`: a file that is whole or not there, whatever happens on the way."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, make_corpus, read_rows, write_rows

from wildctc.cli import main
from wildctc.recognizer import batch as inference
from wildctc.scoring.hypotheses import read_hyps
from wildctc.tensor_files import load_tensors
from wildctc.training.unfinished import load_last

# Decodes in batches of one second, and is killed as it begins the utterance of that number.
KILLED = """
import os, signal, sys
from wildctc.recognizer import batch as inference
from wildctc.cli import main
inference.BATCH_SECONDS = 1.0
left, decode = int(sys.argv[1]), inference._decode
def killed(*arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return decode(*arguments)
inference._decode = killed
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained run and its corpus."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("decode")
    recipe = make_corpus(folder)
    words = ["train", str(recipe), "--out", str(folder / "run"), "--training.epochs", "7", "--data.workers", "0"]
    assert main(words) == 0
    return folder


def words_for(folder, *options, manifest="test.jsonl", output="hyp.jsonl", run="run"):
    words = ["decode", str(folder / run), str(folder / manifest), "-o", str(folder / output), "--workers", "0"]
    return [*words, *map(str, options)]


def decode(folder, *options, **names):
    return main(words_for(folder, *options, **names))


@pytest.fixture(scope="module")
def partial(trained):
    """What a decode that was killed left behind."""
    words = words_for(trained, output="killed.jsonl")
    done = subprocess.run([sys.executable, "-c", KILLED, "5", *words], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [part] = trained.glob("killed.jsonl*")
    return part.read_bytes()


def test_a_killed_decode_resumes_to_the_same_file_and_decodes_nothing_twice(trained, partial, monkeypatch, capsys):
    monkeypatch.setattr(inference, "BATCH_SECONDS", 1.0)
    assert decode(trained, output="whole.jsonl") == 0
    kept = partial.count(b'"id"')
    assert 0 < kept <= 5
    half = b'{"id": "test0", "text": "killed in the middle of wri'
    (trained / "hyp.jsonl.0.partial").write_bytes(partial + half)
    capsys.readouterr()
    decoded = []
    original = inference._decode
    monkeypatch.setattr(inference, "_decode", lambda *a: decoded.append(a[1].id) or original(*a))
    assert decode(trained) == 0
    assert f"resuming, {kept} of 10 utterances are done" in capsys.readouterr().err
    assert len(decoded) == 10 - kept
    assert (trained / "hyp.jsonl").read_bytes() == (trained / "whole.jsonl").read_bytes()
    assert [row["id"] for row in read_rows(trained / "hyp.jsonl")] == [f"test{i}" for i in range(10)]
    assert not list(trained.glob("hyp.jsonl.*"))


def test_a_partial_file_is_not_taken_for_hypotheses(trained, partial, capsys):
    part = trained / "part.jsonl"
    part.write_bytes(partial)
    assert main(["score", str(part)]) == 2
    assert 'no utterance "id"' in capsys.readouterr().err


def test_a_partial_file_of_something_else_is_refused_and_kept(trained, partial, capsys):
    part = trained / "other.jsonl.0.partial"
    part.write_bytes(partial)
    for options, manifest, message in ([], "dev", "another manifest"), (["--beam", "3"], "test", "another beam"):
        assert decode(trained, *options, manifest=f"{manifest}.jsonl", output="other.jsonl") == 2
        assert f"was made with {message}; remove it, or write elsewhere" in capsys.readouterr().err
        assert part.read_bytes() == partial
    part.unlink()
    assert decode(trained, "--beam", "3", output="other.jsonl") == 0  # the advice helps


def test_a_bad_utterance_does_not_throw_away_the_rest(trained, capsys):
    rows = read_rows(trained / "test.jsonl")
    rows[4] |= {"audio": "gone.wav"}
    soundfile.write(trained / "huge.wav", np.full(RATE, 1e30, np.float32), RATE, subtype="FLOAT")
    rows[7] |= {"audio": "huge.wav"}
    write_rows(trained / "bad.jsonl", rows)
    assert decode(trained, manifest="bad.jsonl", output="bad-hyp.jsonl") == 2
    said = capsys.readouterr()
    assert "bad-hyp.jsonl: 8 utterances, 2 skipped, WER" in said.out
    assert "2 of 10 utterances cannot be used" in said.err
    found = read_rows(trained / "bad-hyp.jsonl")
    assert [row["id"] for row in found] == [f"test{i}" for i in range(10)]
    assert [row["id"] for row in found if "left_out" in row] == ["test4", "test7"]
    assert found[4]["left_out"] == "no such file"
    assert decode(trained, "--max-bad", "0.2", manifest="bad.jsonl", output="bad-hyp.jsonl") == 0
    capsys.readouterr()
    assert len(read_hyps(trained / "bad-hyp.jsonl")) == 8
    assert main(["score", str(trained / "bad-hyp.jsonl")]) == 0
    said = capsys.readouterr()
    assert "not decoded, and not counted: utterances test4, test7" in said.err
    assert "8 utterances" in said.out


@pytest.mark.slow
def test_two_processes_decode_as_one_does(trained):
    assert decode(trained, output="one.jsonl") == 0
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "wildctc"]
    done = subprocess.run(
        [sys.executable, "-m", *words, *words_for(trained, output="two.jsonl")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("two.jsonl: 10 utterances") == 1
    one, two = (read_rows(trained / f"{name}.jsonl") for name in ("one", "two"))
    assert [(row["id"], row["text"]) for row in two] == [(row["id"], row["text"]) for row in one]
    assert not list(trained.glob("two.jsonl.*"))


@pytest.mark.slow
def test_a_run_that_still_trains_is_decoded_from_its_last_checkpoint(trained, capsys):
    words = ["train", str(trained / "recipe.yaml"), "--out", str(trained / "training"), "--data.workers", "0"]
    ends = "from wildctc.training.loop import Trainer; Trainer._export = lambda self: sys.exit(9)"
    script = f"import sys; from wildctc.cli import main; {ends}; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--training.epochs", "4"], capture_output=True, text=True
    )
    assert done.returncode == 9, done.stderr
    run, test = str(trained / "training"), str(trained / "test.jsonl")
    assert main(["decode", run, test, "--workers", "0"]) == 0
    said = capsys.readouterr()
    assert f"{run} has no model yet: using its last checkpoint, of epoch 5, step 52, without averaging" in said.err
    assert said.out.startswith(f"{run}/hyp-step52/test.jsonl: 10 utterances, WER ")
    last, _ = load_tensors(trained / "training/checkpoints/last.safetensors")
    model, step = load_last(trained / "training")
    assert step == 52
    assert all(torch.equal(tensor, last[f"model.{name}"]) for name, tensor in model.state_dict().items())
    assert main(["compare", run]) == 2  # not taken for what the finished run makes of it
    assert main(["transcribe", run, str(trained / "test0.wav")]) == 2
    assert "`wildctc decode` takes its last checkpoint" in capsys.readouterr().err
    assert main([*words, "--training.epochs", "4"]) == 0
    assert main(["decode", run, test, "--workers", "0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{run}/hyp/test.jsonl: 10 utterances")


# ----------------------------------------------------------------------- references that cannot be met, hopeless models


def rewritten(folder, name, change):
    """A manifest with other transcripts."""
    write_rows(folder / name, [row | {"text": change(row["text"])} for row in read_rows(folder / "test.jsonl")])
    return name


def rate_of(folder, capsys, *options):
    capsys.readouterr()
    assert main(["score", str(folder / "hyp.jsonl"), "--errors", "0", *options]) == 0
    said = capsys.readouterr()
    return next(line.split()[2] for line in said.out.splitlines() if line.startswith("words")), said.err


def test_references_outside_the_units_are_counted_with_the_option_that_helps(trained, capsys):
    manifest = rewritten(trained, "upper.jsonl", str.upper)
    assert decode(trained, manifest=manifest) == 0
    said = capsys.readouterr()
    assert "WER 100.00%" in said.out
    [line] = [line for line in said.err.splitlines() if "references" in line]
    assert line.startswith("10 of 10 references have characters that the model cannot write, and each is an error: ")
    assert "(U+004" in line
    option = f"`wildctc score {trained}/hyp.jsonl --lower` gives WER "
    assert "next to nothing" not in said.err
    rate, nothing = rate_of(trained, capsys, "--lower")
    assert line.endswith(f"{option}{rate}")  # it does help
    assert nothing == ""
    rate, said = rate_of(trained, capsys)
    assert rate == "100.00%"
    assert said.startswith(
        "10 of 10 references have characters of a kind that no hypothesis has, and each is an error: "
    )
    assert f"with --lower WER is {rate_of(trained, capsys, '--lower')[0]}\n" in said


@pytest.mark.parametrize("change", [lambda text: text + " 7", lambda text: text.translate({97: "а", 98: "б"}) + " ж"])
def test_where_no_option_helps_none_is_advised(trained, capsys, change):
    assert decode(trained, manifest=rewritten(trained, "odd.jsonl", change)) == 0
    said = capsys.readouterr().err
    assert "10 of 10 references have characters that the model cannot write" in said
    assert "no option helps: write references as the training transcripts are written" in said
    assert "no option helps: write references" in rate_of(trained, capsys)[1]


def test_a_rare_letter_in_no_hypothesis_is_no_mismatch(trained, capsys):
    write_rows(trained / "hyp.jsonl", [{"id": "a", "text": "abc d", "reference": "abc z"}])
    assert rate_of(trained, capsys)[1] == ""


def test_probe_counts_transcripts_outside_the_units_in_one_line_and_its_advice_helps(trained, capsys):
    manifest = rewritten(trained, "upper.jsonl", str.upper)
    words = ["probe", str(trained / "run"), str(trained / manifest), "--workers", "0", "-o"]
    assert main([*words, str(trained / "upper-p.jsonl")]) == 2
    said = capsys.readouterr().err
    [line] = [line for line in said.splitlines() if line.startswith("skipped")]
    assert line.startswith("skipped: 10 of 10 transcripts have characters outside the units: ")
    assert line.endswith("; --lower would skip 0; give another -o with it")
    assert main([*words, str(trained / "lower-p.jsonl"), "--lower"]) == 0
    assert "10 utterances\n" in capsys.readouterr().out


def test_a_hopeless_model_is_said_to_be_so_by_decode_probe_and_audit(trained, capsys):
    """The transcripts of other audio: to the model it is the same as if it had learnt nothing."""
    manifest = rewritten(trained, "foreign.jsonl", lambda text: " ".join("f" * len(word) for word in text.split()))
    assert decode(trained, manifest=manifest) == 0
    assert (
        "the model recognises next to nothing of this speech, and wrote nothing for 0 of 10" in capsys.readouterr().err
    )
    files = [str(trained / manifest), "-o", str(trained / "foreign-p.jsonl")]
    assert main(["probe", str(trained / "run"), *files, "--workers", "0", "--max-bad", "1"]) == 0
    assert "the model recognises next to nothing of this speech" in capsys.readouterr().err
    assert main(["audit", str(trained / "foreign-p.jsonl"), "-o", str(trained / "report")]) == 0
    assert "the model recognises next to nothing of this speech" in capsys.readouterr().out


def test_a_good_model_is_not_said_to_be_hopeless(trained, capsys):
    assert decode(trained) == 0
    assert main(["probe", str(trained / "run"), str(trained / "test.jsonl"), "--workers", "0", "-o",
                 str(trained / "good-p.jsonl")]) == 0  # fmt: skip
    assert main(["audit", str(trained / "good-p.jsonl"), "-o", str(trained / "good")]) == 0
    said = capsys.readouterr()
    assert "next to nothing" not in said.err + said.out
