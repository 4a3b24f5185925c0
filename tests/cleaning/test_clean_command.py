"""`wildctc clean` with the real commands: train, probe, clean, train again."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, RECIPE, read_rows, say, write_rows

from wildctc.cleaning.judgement import judge, read_texts
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest

pytestmark = pytest.mark.slow  # trains a model
WORDS = ["bad", "cafe", "fed", "cab", "ace", "beda", "dab", "fade"]
SIZES = {"train": 60, "dev": 8}


def sentence(rng) -> str:
    return " ".join(rng.choice(WORDS, rng.integers(3, 6)))


def make_wrong(rows) -> dict[str, str]:
    """One transcript of each kind of error, by the kind; the model is trained on the right ones.

    They are made from sentences without repeated words: nobody can tell which of two equal words is too many.
    """
    plain = [row for row in rows if len(row["text"].split()) >= 4 and len(set(row["text"].split())) >= 4]
    chosen = dict(zip(("replace", "remove", "insert", "drop"), plain, strict=False))
    for kind, row in chosen.items():
        words = row["text"].split()
        new = [word for word in WORDS if word not in words]
        if kind == "replace":
            words[1] = new[0]
        elif kind == "remove":
            words.insert(2, new[0])
        elif kind == "insert":
            del words[1]
        else:
            words = [WORDS[(WORDS.index(word) + 3) % len(WORDS)] for word in words]
        chosen[kind] = row | {"text": " ".join(words)}
    return chosen


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """A folder with train.jsonl, in which four transcripts are wrong, truth.jsonl, and a probe of train."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("clean")
    rng = np.random.default_rng(0)
    for split, size in SIZES.items():
        rows = []
        for n in range(size):
            text = sentence(rng)
            soundfile.write(folder / f"{split}{n}.wav", say(text, rng), RATE)
            rows.append({"id": f"{split}{n}", "audio": f"{split}{n}.wav", "text": text, "note": n})
        write_rows(folder / f"{split}.jsonl", rows)
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
    train = ["train", str(folder / "recipe.yaml"), "--out", str(folder / "run"), "--data.workers", "0"]
    assert main([*train, "--training.epochs", "5"]) == 0
    (folder / "train.jsonl").rename(folder / "truth.jsonl")
    rows = read_rows(folder / "truth.jsonl")
    wrong = {row["id"]: row for row in make_wrong(rows).values()}
    write_rows(folder / "train.jsonl", [wrong.get(row["id"], row) for row in rows])
    probe = ["probe", str(folder / "run"), str(folder / "train.jsonl"), "-o", str(folder / "probe.jsonl")]
    assert main([*probe, "--workers", "0"]) == 0
    return folder


def clean(folder, *options, output="clean.jsonl", probe="probe.jsonl"):
    # The tiny model is less sure than a real one; its right words have a doubt below 0.001.
    words = [
        "clean",
        str(folder / probe),
        "-o",
        str(folder / output),
        "--remove",
        "0.3",
        "--drop",
        "0.4",
        "--insert",
        "0.95",
    ]
    return main([*words, *map(str, options)])


def by_id(path) -> dict[str, dict]:
    return {row["id"]: row for row in read_rows(path)}


def changes(path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_every_kind_of_error_is_corrected_and_nothing_else_changes(probed, capsys):
    assert clean(probed) == 0
    truth, cleaned, wrong = (by_id(probed / f"{name}.jsonl") for name in ("truth", "clean", "train"))
    bad = make_wrong(truth.values())
    dropped = bad["drop"]["id"]
    assert truth.keys() - cleaned.keys() == {dropped}
    for id, row in cleaned.items():
        assert {k: v for k, v in row.items() if k != "weights"} == truth[id]
        assert len(row["weights"]) == len(row["text"].split())
    header, *found = changes(probed / "clean.changes.tsv")
    assert header == ["id", "action", "before", "after", "score", "reason"]
    assert {(row[0], row[1]) for row in found} == {(row["id"], kind) for kind, row in bad.items()}
    by_kind = {row[1]: row for row in found}
    assert by_kind["replace"][2:4] == [
        bad["replace"]["text"].split()[1],
        truth[bad["replace"]["id"]]["text"].split()[1],
    ]
    assert by_kind["remove"][2:4] == [bad["remove"]["text"].split()[2], ""]
    assert by_kind["insert"][2:4] == ["", truth[bad["insert"]["id"]]["text"].split()[1]]
    assert by_kind["drop"][2:4] == [wrong[dropped]["text"], ""]
    assert all(0.3 <= float(row[4]) <= 1 for row in found)
    printed = capsys.readouterr().out
    rows = {line[:16].strip(): line[16:].split() for line in printed.splitlines()}
    words = sum(len(row["text"].split()) for row in wrong.values())
    assert rows["probed"][:2] == ["60", str(words)]
    assert rows["dropped"][:2] == ["1", "4"]
    assert rows["words replaced"] == rows["words removed"] == rows["words inserted"] == ["1", "1"]
    assert rows["weights written"] == ["59", str(sum(len(row["weights"]) for row in cleaned.values()))]
    assert printed.endswith(
        f"{probed / 'clean.jsonl'}: 59 utterances\n{probed / 'clean.changes.tsv'}: 4 changes to review\n"
    )


def test_the_judge_counts_right_changes_and_the_errors_before_and_after(probed):
    assert clean(probed) == 0
    found = judge(*(read_texts(probed / f"{name}.jsonl") for name in ("train", "clean", "truth")))
    assert found.right == {"replaced": 1, "removed": 1, "inserted": 1}
    assert found.precision == 1.0
    assert (found.before.total, found.kept.total, found.after.total, found.dropped.total) == (7, 3, 0, 4)
    assert (found.kept_utterances, found.dropped_utterances) == (59, 1)


@pytest.mark.parametrize("off", ["drop", "replace", "remove", "insert", "weights"])
def test_each_action_can_be_switched_off(probed, off):
    assert clean(probed, f"--{off}", "none", output=f"{off}.jsonl") == 0
    bad = make_wrong(read_rows(probed / "truth.jsonl"))
    done = {row[1] for row in changes(probed / f"{off}.changes.tsv")[1:]}
    rows = by_id(probed / f"{off}.jsonl")
    if off == "drop":  # then its words are corrected like others
        assert bad["drop"]["id"] in rows
        assert done == {"replace", "remove", "insert"}
    else:
        assert done == {"replace", "remove", "insert", "drop"} - {off}
    if off in ("replace", "remove", "insert"):
        assert rows[bad[off]["id"]]["text"] == bad[off]["text"]
    assert all(("weights" in row) == (off != "weights") for row in rows.values())


def test_without_weights_only_the_changed_rows_differ(probed):
    assert clean(probed, "--weights", "none", "--drop", "none", output="edited.jsonl") == 0
    bad = {row["id"] for row in make_wrong(read_rows(probed / "truth.jsonl")).values()}
    before, after = ((probed / name).read_bytes().splitlines() for name in ("train.jsonl", "edited.jsonl"))
    differ = {json.loads(old)["id"] for old, new in zip(before, after, strict=True) if old != new}
    assert differ == bad


def test_words_that_the_transcripts_hardly_have_are_not_written(probed, capsys):
    assert clean(probed, "--known", 1000, output="known.jsonl") == 0
    assert {row[1] for row in changes(probed / "known.changes.tsv")[1:]} == {"remove", "drop"}
    assert "2 more corrections were not made: what was heard is rare (--known)" in capsys.readouterr().out


def test_a_dry_run_says_the_same_and_writes_nothing(probed, capsys):
    assert clean(probed) == 0
    said = capsys.readouterr().out.splitlines()
    before = {path.name for path in probed.iterdir()}
    assert clean(probed, "--dry-run", output="nowhere/dry.jsonl") == 0
    assert capsys.readouterr().out.splitlines() == [*said[:-2], "dry run: nothing was written"]
    assert {path.name for path in probed.iterdir()} == before


def test_a_gzipped_manifest_elsewhere_finds_its_audio_and_is_the_same_bytes_again(probed):
    output = probed / "there/deep/clean.jsonl.gz"
    assert clean(probed, output="there/deep/clean.jsonl.gz") == 0
    assert all(u.audio.is_file() for u in load_manifest(output))
    assert json.loads(gzip.decompress(output.read_bytes()).splitlines()[0])["audio"] == "../../train0.wav"
    first = output.read_bytes()
    assert clean(probed, output="there/deep/clean.jsonl.gz") == 0
    assert output.read_bytes() == first
    assert (probed / "there/deep/clean.changes.tsv").is_file()


@pytest.mark.parametrize("name", ["train.jsonl", "probe.jsonl"])
def test_what_is_read_is_never_written_over(probed, capsys, name):
    before = (probed / name).read_bytes()
    assert clean(probed, output=name) == 2
    assert f"cannot write {probed / name}: it is" in capsys.readouterr().err
    assert (probed / name).read_bytes() == before


def test_a_model_is_trained_on_the_cleaned_manifest_with_its_weights(probed, capsys):
    assert clean(probed) == 0
    for criterion, said in (("otc-tw", "added to bypass and word_bypass"), ("ctc", "weights of words are ignored")):
        words = [
            "train",
            str(probed / "recipe.yaml"),
            "--out",
            str(probed / f"again-{criterion}"),
            "--data.workers",
            "0",
        ]
        words += ["--data.train", "clean.jsonl", "--training.epochs", "1", "--criterion", criterion]
        assert main(words) == 0
        assert said in capsys.readouterr().err


def test_a_model_is_trained_on_what_is_written_or_heard(probed):
    assert clean(probed, "--replace", "none", "--either", "0.1", output="either.jsonl") == 0
    bad = make_wrong(read_rows(probed / "truth.jsonl"))["replace"]
    right = by_id(probed / "truth.jsonl")[bad["id"]]["text"].split()[1]
    row = by_id(probed / "either.jsonl")[bad["id"]]
    wrong = bad["text"].split()
    assert row["text"].split() == [wrong[0], f"{{{wrong[1]}|{right}}}", *wrong[2:]]
    assert "weights" not in row
    words = ["train", str(probed / "recipe.yaml"), "--out", str(probed / "again-either"), "--data.workers", "0"]
    assert main([*words, "--data.train", "either.jsonl", "--training.epochs", "1"]) == 0


def made_of(probed, folder, rows, name="train.jsonl"):
    """A folder with another manifest, and the probe, which names it."""
    write_rows(folder / name, rows)
    header, *lines = (probed / "probe.jsonl").read_text().splitlines()
    settings = json.loads(header)
    settings["probe"]["manifest"] = name
    (folder / "probe.jsonl").write_text("\n".join([json.dumps(settings), *lines]) + "\n")
    return folder


@pytest.mark.parametrize("given", ["field", "name"])
def test_what_a_model_is_tested_on_is_changed_only_when_told(probed, tmp_path, capsys, given):
    rows = read_rows(probed / "train.jsonl")
    rows = [row | {"split": "test"} for row in rows] if given == "field" else rows
    made_of(probed, tmp_path, rows, "manifest.jsonl" if given == "field" else "test.jsonl")
    assert clean(tmp_path) == 2
    said = capsys.readouterr().err
    assert "no utterances of train, there are 60 of test; --splits test would change them" in said
    assert not (tmp_path / "clean.jsonl").exists()
    assert clean(tmp_path, "--splits", "test") == 0
    assert len(read_rows(tmp_path / "clean.jsonl")) == 59


def test_rows_of_other_splits_stay_as_they_are(probed, tmp_path, capsys):
    truth = make_wrong(read_rows(probed / "truth.jsonl"))
    held_out = {truth["drop"]["id"], truth["replace"]["id"]}
    rows = [row | {"split": "dev" if row["id"] in held_out else "train"} for row in read_rows(probed / "train.jsonl")]
    made_of(probed, tmp_path, rows)
    assert clean(tmp_path) == 0
    cleaned = by_id(tmp_path / "clean.jsonl")
    assert [cleaned[row["id"]] for row in rows if row["split"] == "dev"] == [r for r in rows if r["split"] == "dev"]
    assert {row[1] for row in changes(tmp_path / "clean.changes.tsv")[1:]} == {"remove", "insert"}
    assert "other splits, kept" in capsys.readouterr().out


def test_transcripts_that_were_not_probed_are_kept_and_named(probed, tmp_path, capsys):
    rows = read_rows(probed / "train.jsonl")
    changed = [rows[0] | {"text": "bad cab"}, *rows[1:], rows[1] | {"id": "new"}]
    made_of(probed, tmp_path, changed)
    assert clean(tmp_path) == 0
    said = capsys.readouterr()
    assert f"kept as it is: {rows[0]['id']}: its transcript is not the one that was probed" in said.err
    assert "not probed, kept" in said.out
    assert "other transcript, kept" in said.out
    cleaned = by_id(tmp_path / "clean.jsonl")
    assert cleaned[rows[0]["id"]] == changed[0]
    assert cleaned["new"] == changed[-1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda rows: [row | {"text": "abc"} for row in rows], "its transcripts are not those that were probed"),
        (lambda rows: [row | {"id": row["id"] + "x"} for row in rows], "no utterance of it is in"),
    ],
)
def test_another_manifest_is_one_line(probed, tmp_path, capsys, rows, message):
    made_of(probed, tmp_path, rows(read_rows(probed / "train.jsonl")))
    assert clean(tmp_path) == 2
    assert message in (said := capsys.readouterr().err)
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "clean.jsonl").exists()


def test_a_manifest_that_was_moved_is_asked_for(probed, tmp_path, capsys):
    made_of(probed, tmp_path, read_rows(probed / "train.jsonl"))
    (tmp_path / "train.jsonl").rename(tmp_path / "moved.jsonl")
    assert clean(tmp_path) == 2
    assert "its manifest train.jsonl is not there; say with --manifest where it is now" in capsys.readouterr().err
    assert clean(tmp_path, "--manifest", tmp_path / "moved.jsonl") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--drop 2", "argument --drop: must be a number from 0 to 1, or none, got 2"),
        ("--weights 0", "argument --weights: must be a number from 0.001 to 0.999, or none, got 0"),
        ("--known -1", "--known"),
        ("--splits trian", "no utterances of trian, there are 60 of train"),
        ("--drop none --replace none --remove none --insert none --weights none", "nothing to do"),
    ],
)
def test_wrong_options_say_what_is_wrong(probed, options, message):
    words = [sys.executable, "-m", "wildctc", "clean", str(probed / "probe.jsonl"), "-o", str(probed / "never.jsonl")]
    done = subprocess.run([*words, *options.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (probed / "never.jsonl").exists()
