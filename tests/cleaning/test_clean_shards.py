"""`wildctc clean` of shards: what it does to a manifest, a shard at a time, with the audio where it was."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.probes import SETTINGS, probed
from support.tones import make_corpus, read_rows

from wildctc.audio.sound_files import load_audio
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.packing import Packing, pack
from wildctc.corpora.shards import load_shards, open_shards
from wildctc.probe.doubt import score_words
from wildctc.probe.records import write_probe

OPTIONS = ("--known", "0", "--drop", "0.3", "--replace", "0.2")


@pytest.fixture
def corpus(tmp_path):
    """40 utterances as train.jsonl and as shards of 8, and a probe of each; some have wrong words, some only these."""
    make_corpus(tmp_path, {"train": 40})
    pack(tmp_path / "train.jsonl", tmp_path / "shards", Packing(size=8))
    rows = {row["id"]: row["text"] for row in read_rows(tmp_path / "train.jsonl")}
    order = [utterance.id for utterance in load_shards(tmp_path / "shards")]
    for name, ids in (("train.jsonl", list(rows)), ("shards", order)):
        entries = []
        for id in ids:
            words = len(rows[id].split())
            wrong = range(words) if id == "train7" else [0] if int(id[5:]) % 3 == 0 else []
            entries.append(probed(id, rows[id], dict.fromkeys(wrong, "fee")))
        path = tmp_path / f"{name}.probe"
        write_probe(path, SETTINGS | {"manifest": name, "weights": "w"}, entries)
        score_words(path)
    return tmp_path


def run(folder, *options, output="clean", probe="shards.probe"):
    words = ["clean", str(folder / probe), "-o", str(folder / output), "--workers", "0", *OPTIONS, *options]
    return main(words)


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_shards_are_cleaned_as_their_manifest_is(corpus, capsys):
    assert run(corpus, output="clean.jsonl", probe="train.jsonl.probe") == 0
    whole, listed = capsys.readouterr().out, sorted((corpus / "clean.changes.tsv").read_text().splitlines())
    assert run(corpus) == 0
    assert capsys.readouterr().out == whole.replace("clean.jsonl", "clean")
    expected = {u.id: u for u in load_manifest(corpus / "clean.jsonl")}
    found = load_shards(corpus / "clean")
    assert {u.id for u in found} == expected.keys()
    assert 20 < len(found) < 40
    changed = 0
    for utterance in found:
        given = expected[utterance.id]
        assert (utterance.text, utterance.weights) == (given.text, given.weights)
        assert utterance.duration == pytest.approx(given.duration)
        assert (load_audio(utterance) == load_audio(given)).all()
        changed += utterance.text.split()[0] == "fee"
    assert changed > 3
    assert sorted((corpus / "clean.changes.tsv").read_text().splitlines()) == listed
    assert sorted(path.name for path in (corpus / "clean").iterdir()) == [
        *(f"{number:06d}.arrow" for number in range(5)),
        "shards.json",
    ]


def test_cleaned_shards_move_with_the_old_ones_and_can_be_cleaned_again_and_packed(corpus):
    assert run(corpus) == 0
    (corpus / "moved").mkdir()
    for name in ("shards", "clean"):
        (corpus / name).rename(corpus / "moved" / name)
    found = load_shards(corpus / "moved/clean")
    assert len(load_audio(found[0])) > 0
    digests = {shard.digest for name in ("shards", "clean") for shard in open_shards(corpus / "moved" / name).shards}
    assert len(digests) == 10  # so that the features of one are not taken for those of the other
    entries = [probed(u.id, u.text) for u in found]
    write_probe(corpus / "again.probe", SETTINGS | {"manifest": str(corpus / "moved/clean")}, entries)
    score_words(corpus / "again.probe")
    assert run(corpus, probe="again.probe", output="again") == 0
    assert [u.audio.resolve() for u in load_shards(corpus / "again")] == [u.audio.resolve() for u in found]


def test_shards_at_an_address_are_cleaned_without_their_audio(corpus):
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").put(str(corpus / "shards"), "/cleaning", recursive=True)
    assert run(corpus, "--manifest", "memory://cleaning") == 0
    shards = open_shards(corpus / "clean")
    assert shards.shards[0].archive == "memory://cleaning/000000.tar"
    assert len(load_audio(shards.read(0)[0])) > 0


def test_a_dry_run_says_the_same_and_writes_nothing(corpus, capsys):
    assert run(corpus, "--dry-run") == 0
    dry = capsys.readouterr().out
    assert not (corpus / "clean").exists()
    assert run(corpus) == 0
    assert capsys.readouterr().out.splitlines()[:-2] == dry.splitlines()[:-1]


def test_other_options_another_probe_and_another_folder_are_refused(corpus, capsys):
    assert run(corpus) == 0
    assert run(corpus) == 0  # finished already
    assert run(corpus, "--replace", "0.9") == 2
    assert "of another probe, or with other options" in capsys.readouterr().err
    assert run(corpus, "--manifest", str(corpus / "shards"), probe="train.jsonl.probe", output="b") == 2
    assert "not a probe of the shards in" in capsys.readouterr().err
    assert run(corpus, output="shards") == 2
    assert "of another probe" in capsys.readouterr().err
    assert run(corpus, "--splits", "dev", output="c") == 2
    assert "no utterances of dev, there are 40 of train; --splits train would change them" in capsys.readouterr().err
    assert run(corpus, output=".") == 2
    assert "there is something else" in capsys.readouterr().err


@pytest.mark.slow
def test_calls_side_by_side_share_the_work_and_a_killed_one_is_continued(corpus):
    assert run(corpus) == 0
    words = [sys.executable, "-m", "wildctc", "clean", "shards.probe", "-o", "two", "--workers", "0", *OPTIONS]
    killed = subprocess.Popen(words, cwd=corpus)
    while killed.poll() is None and not list((corpus / "two").glob("cleaning/*.reading.json")):
        time.sleep(0.002)
    assert killed.poll() is None
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    both = [subprocess.Popen(words, cwd=corpus) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert content(corpus / "two") == content(corpus / "clean")
