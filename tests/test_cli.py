"""The commands from a folder of speech to a table, and what a wrong command says."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows

from wildctc.cli import main
from wildctc.training.config import flatten, to_dict
from wildctc.training.settings import Config
from wildctc.version import __version__


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus in the `jsonl` layout: one manifest with splits."""
    folder = tmp_path_factory.mktemp("cli")
    recipe = make_corpus(folder / "speech")
    splits = {s: read_rows(folder / "speech" / f"{s}.jsonl") for s in ("train", "dev", "test")}
    for split in splits:
        (folder / "speech" / f"{split}.jsonl").unlink()
    rows = [row | {"split": split} for split, rows in splits.items() for row in rows]
    write_rows(folder / "speech/manifest.jsonl", rows)
    recipe.write_text(recipe.read_text().replace("jsonl,", "jsonl.gz,"))
    return folder


@pytest.fixture(scope="module")
def runs(corpus):
    """Prepared data, two runs and their hypotheses of the test set."""
    torch.set_num_threads(1)
    assert main(["prepare", "jsonl", str(corpus / "speech"), str(corpus / "data")]) == 0
    for criterion in ("ctc", "otc-tw"):
        words = ["train", str(corpus / "speech/recipe.yaml"), "--out", str(corpus / criterion), "--data.workers", "0"]
        assert main([*words, "--data.dir", str(corpus / "data"), "--criterion", criterion]) == 0
        test = str(corpus / "data/test.jsonl.gz")
        assert main(["decode", str(corpus / criterion), test, "--workers", "0", "--beam", "4"]) == 0
    return corpus


def test_prepare_train_decode_score_compare_work_one_after_the_other(runs, capsys):
    hyps = read_rows(runs / "ctc/hyp/test.jsonl")
    assert [h["id"] for h in hyps] == [f"test{i}" for i in range(10)]
    assert list(hyps[0]) == ["id", "text", "reference", "score"]
    assert main(["score", str(runs / "ctc/hyp/test.jsonl"), "--json", str(runs / "score.json")]) == 0
    out = capsys.readouterr().out
    assert "10 utterances" in out
    assert f"{runs}/score.json: the counts" in out
    assert json.loads((runs / "score.json").read_text())["wer"] < 0.5
    assert main(["compare", str(runs / "ctc"), str(runs / "otc-tw")]) == 0
    out = capsys.readouterr().out
    assert "test: 10 utterances" in out
    assert "otc-tw" in out


def test_a_moved_corpus_is_found_in_its_new_folder(runs, tmp_path, capsys):
    shutil.copytree(runs / "speech", tmp_path / "old/speech")
    assert main(["prepare", "jsonl", str(tmp_path / "old/speech"), str(tmp_path / "data")]) == 0
    train = ["train", str(tmp_path / "old/speech/recipe.yaml"), "--out", str(tmp_path / "run"), "--data.workers", "0"]
    train += ["--data.dir", str(tmp_path / "data"), "--training.epochs", "1", "--data.cache", "null"]
    assert main(train) == 0
    weights = (tmp_path / "run/model/model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "old").rename(tmp_path / "new")

    test, new = str(tmp_path / "data/test.jsonl.gz"), str(tmp_path / "new/speech")
    train[1] = f"{new}/recipe.yaml"
    assert main(train) == 2
    assert "no such file. If the audio was moved, name its folder with --data.audio-root" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "run")
    assert main([*train, "--data.audio-root", new]) == 0
    assert f"the audio of {tmp_path}/old/speech is read from {new}" in capsys.readouterr().err
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == weights
    for command in ("decode", "probe", "align"):
        words = [command, str(tmp_path / "run"), test, "-o", str(tmp_path / command), "--workers", "0"]
        assert main([*words, "--max-bad", "0.5"]) == 2
        assert "If the audio was moved, name its folder with --audio-root" in capsys.readouterr().err
        (tmp_path / command).unlink(missing_ok=True)
        assert main([*words, "--audio-root", new]) == 0
        assert (tmp_path / command).stat().st_size > 0
    capsys.readouterr()
    assert main(["align", str(tmp_path / "run"), test, "--audio-root", str(tmp_path / "data")]) == 2
    assert f"data does not have the audio of {test}: neither speech/test0.wav nor test0.wav" in capsys.readouterr().err
    assert main(["align", str(tmp_path / "run"), test, "--audio-root", "nowhere"]) == 2
    assert "no such folder: nowhere" in capsys.readouterr().err


def test_greedy_and_beam_agree_on_a_confident_model(runs, tmp_path, capsys):
    for beam in ("1", "10"):
        words = ["decode", str(runs / "ctc/model"), str(runs / "speech/manifest.jsonl"), "--split", "test"]
        assert main([*words, "--beam", beam, "-o", str(tmp_path / f"{beam}.jsonl"), "--workers", "0"]) == 0
    greedy, beam = (read_rows(tmp_path / f"{n}.jsonl") for n in ("1", "10"))
    same = sum(a["text"] == b["text"] for a, b in zip(greedy, beam, strict=True))
    assert same >= 8
    assert all(a["score"] <= b["score"] + 1e-3 for a, b in zip(greedy, beam, strict=True) if a["text"] == b["text"])


def test_decode_goes_on_without_bad_audio_and_says_which(runs, tmp_path, capsys):
    rows = read_rows(runs / "speech/manifest.jsonl")
    rows = [r | {"audio": str(runs / "speech" / r["audio"])} for r in rows if r["split"] == "test"]
    (tmp_path / "short.wav").write_bytes((runs / "speech/test0.wav").read_bytes()[:100])
    bad = [{"id": "gone", "audio": "gone.wav", "text": "ab"}, {"id": "short", "audio": "short.wav", "text": "ab"}]
    write_rows(tmp_path / "test.jsonl", rows + bad)
    words = [
        "decode",
        str(runs / "ctc"),
        str(tmp_path / "test.jsonl"),
        "-o",
        str(tmp_path / "hyp.jsonl"),
        "--workers",
        "0",
    ]
    assert main(words) == 2
    assert "2 of 12 utterances cannot be used" in capsys.readouterr().err
    assert main([*words, "--max-bad", "0.2"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("gone (") == captured.err.count("short (") == 1
    assert [row["id"] for row in read_rows(tmp_path / "hyp.jsonl")[10:]] == ["gone", "short"]


def test_decode_says_before_the_work_that_it_cannot_write(runs, tmp_path, capsys):
    (tmp_path / "file").touch()
    test = str(runs / "data/test.jsonl.gz")
    for workers in ("0", "1"):
        for words in (["-o", "file/hyp.jsonl"], ["-o", "."], ["-o", "hyp.jsonl", "--cache", "file"]):
            where = [str(tmp_path / word) if not word.startswith("-") else word for word in words]
            assert main(["decode", str(runs / "ctc"), test, "--workers", workers, *where]) == 2
            error = capsys.readouterr().err.splitlines()[-1]
            assert error.split("\r")[-1].lstrip().startswith("wildctc: cannot write")
    assert not (tmp_path / "hyp.jsonl").exists()


def test_half_an_emoji_in_a_transcript_stops_no_command(runs, tmp_path, capsys):
    rows = [{"id": f"u{i}", "audio": str(runs / f"speech/test{i}.wav"), "text": "ab cd ef"} for i in range(4)]
    rows[1]["text"] = "ab \ud83d"  # as JSON may have it, and UTF-8 may not
    write_rows(tmp_path / "m.jsonl", rows)
    for words in (
        ["decode", str(runs / "ctc"), "m.jsonl", "-o", "hyp.jsonl", "--workers", "0", "--max-bad", "1"],
        ["probe", str(runs / "ctc"), "m.jsonl", "-o", "probe.jsonl", "--workers", "0", "--max-bad", "1"],
        ["corrupt", "m.jsonl", "-o", "noisy.jsonl", "--characters", "0.1", "--character-kinds", "substitution"],
    ):
        assert main([word if not word.endswith(".jsonl") else str(tmp_path / word) for word in words]) == 0, words
    assert read_rows(tmp_path / "hyp.jsonl")[1]["reference"] == "ab \ud83d"
    assert read_rows(tmp_path / "noisy.jsonl")[1]["truth"] == "ab \ud83d"
    assert "characters outside the units: U+D83D" in capsys.readouterr().err


def test_speech_without_transcripts_is_decoded_without_rates(runs, tmp_path, capsys):
    rows = [{"audio": str(runs / "speech/test0.wav")}, {"audio": str(runs / "speech/test1.wav")}]
    write_rows(tmp_path / "untold.jsonl", rows)
    words = ["decode", str(runs / "ctc"), str(tmp_path / "untold.jsonl"), "-o", str(tmp_path / "hyp.jsonl")]
    assert main([*words, "--workers", "0"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/hyp.jsonl: 2 utterances\n"
    assert [(h["id"], h["reference"]) for h in read_rows(tmp_path / "hyp.jsonl")] == [("test0", None), ("test1", None)]
    assert main(["score", str(tmp_path / "hyp.jsonl")]) == 2
    assert "no reference for utterances test0, test1" in capsys.readouterr().err


def test_model_folder_with_a_foreign_configuration_is_refused(runs, tmp_path, capsys):
    shutil.copytree(runs / "ctc/model", tmp_path / "model")
    (tmp_path / "model/config.json").write_text("{}")
    assert main(["decode", str(tmp_path / "model"), str(runs / "data/test.jsonl.gz")]) == 2
    assert "no 'front_end' in it" in capsys.readouterr().err


def test_finished_run_is_not_trained_again(runs, capsys):
    before = (runs / "ctc/model/model.safetensors").stat().st_mtime_ns
    words = ["train", str(runs / "speech/recipe.yaml"), "--out", str(runs / "ctc"), "--data.workers", "0"]
    assert main([*words, "--data.dir", str(runs / "data"), "--criterion", "ctc"]) == 0
    assert "the run is finished" in capsys.readouterr().err
    assert (runs / "ctc/model/model.safetensors").stat().st_mtime_ns == before


MISTAKES = {
    "no command": ([], "required: COMMAND"),
    "unknown command": (["trian"], "invalid choice: 'trian'"),
    "nothing to train": (["train"], "no recipe given"),
    "no recipe": (["train", "--out", "x"], "no recipe given"),
    "unknown recipe": (["train", "ibn", "--out", "x"], "one of demo, fleurs, "),
    "no run folder": (["train", "iban"], "--out RUN is needed"),
    "wrong key": (["train", "iban", "--out", "x", "--encodr.blocks", "2"], "did you mean 'encoder.blocks'?"),
    "wrong type": (["train", "iban", "--out", "x", "--encoder.blocks", "two"], "must be a whole number"),
    "no value": (["train", "iban", "--out", "x", "--encoder.blocks"], "--encoder.blocks needs a value"),
    "no trunk": (["train", "iban", "--out", "x", "--trunk", "--criterion", "otc-t"], "--trunk needs a folder"),
    "stray word": (["train", "iban", "stray", "--out", "x"], "did not expect 'stray'"),
    "missing manifest": (
        ["train", "iban", "--out", "x", "--data.dir", "nowhere"],
        "no manifest nowhere/train.jsonl.gz",
    ),
    "missing device": (["train", "iban", "--out", "x", "--training.device", "cuda:77"], "there is no device 'cuda:77'"),
    "unknown criterion": (["train", "iban", "--out", "x", "--criterion", "otc"], "no criterion is called 'otc'"),
    "recipe of another kind": (["train", "bytes", "--out", "x"], "cannot be read as a recipe"),
    "unknown source": (["prepare", "tape", "in", "out"], "invalid choice: 'tape'"),
    "missing corpus": (["prepare", "jsonl", "nowhere", "out"], "nowhere"),
    "decode without a model": (["decode", "nowhere", "m.jsonl"], "nowhere: no model here"),
    "wrong beam": (["decode", "x", "m.jsonl", "--beam", "0"], "--beam must be at least 1"),
    "wrong workers": (["decode", "x", "m.jsonl", "--workers", "-1"], "--workers must be at least 0"),
    "unknown option": (["decode", "x", "m.jsonl", "--bogus"], "arguments: --bogus (see wildctc decode --help)"),
    "missing hypotheses": (["score", "nowhere.jsonl"], "nowhere.jsonl"),
    "compare nothing": (["compare", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_one_line_and_exit_code_2(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    words, message = MISTAKES[name]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert error.startswith("wildctc: ")


@pytest.mark.parametrize("name", [name for name, (words, _) in MISTAKES.items() if words[:1] == ["train"]])
def test_a_refused_training_leaves_nothing_behind(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(MISTAKES[name][0]) == 2
    assert not list(tmp_path.iterdir())


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"wildctc {__version__}\n"


def test_an_unknown_source_is_told_every_source_there_is(capsys):
    from wildctc.corpora.preparation import LANGUAGE_SOURCES, SOURCES

    assert main(["prepare", "tape", "in", "out"]) == 2
    error = capsys.readouterr().err
    assert all(source in error for source in (*SOURCES, *LANGUAGE_SOURCES, "synthetic"))


def test_help_lists_every_setting_and_says_what_it_does(capsys):
    assert main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert "iban" in out
    assert "otc-tw-h" in out
    assert "None" not in out
    lines = [line for line in out.splitlines() if line.startswith("  --")]
    matches = [re.fullmatch(r"  --(\S+) (\S+(?: \S+)*?)(  +)(\S.*)", line) for line in lines]
    shown = {match[1]: match for match in matches if match}
    assert list(shown) == list(flatten(to_dict(Config())))
    assert len({match.start(4) for match in shown.values()}) == 1  # they line up
    assert max(map(len, out.splitlines())) <= 120
    assert shown["training.patience"][2] == "null"
    assert shown["training.select_by"][4].endswith("(cer+deletions, wer, ctc_loss, loss)")


def test_python_dash_m_works_and_has_no_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "wildctc", "train", "nope"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("wildctc: no recipe 'nope'")
