"""`wildctc decode` and `wildctc probe` of shards: the rows of a manifest, a shard at a time."""

import subprocess
import sys

import pytest
import torch
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.corpora import shards as shards_module
from wildctc.corpora.packing import Packing, pack
from wildctc.probe import shards as probe_shards_module
from wildctc.probe.records import read_probe
from wildctc.recognizer import shard_decoding
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

ENCODER = {"kind": "e_branchformer", "d_model": 16, "heads": 2, "blocks": 1, "ff_dim": 32, "kernel": 3}
ENCODER |= {"cgmlp_dim": 32, "merge_kernel": 3, "subsampling": 4, "dropout": 0.1, "macaron": True}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def corpus(tmp_path):
    """A manifest `test.jsonl` of 12 utterances, its shards, and an untrained model."""
    make_corpus(tmp_path, {"test": 12})
    pack(tmp_path / "test.jsonl", tmp_path / "shards", Packing(size=4, seed=None))
    torch.manual_seed(0)
    units = CharUnits.train(["abcdef "], Normalizer())
    Recognizer({"name": "fbank", "num_bins": 40}, ENCODER, units).save(tmp_path / "model")
    return tmp_path


def by_id(path):
    return {row["id"]: row for row in read_rows(path) if "id" in row}


def test_decoding_shards_gives_the_rows_of_the_manifest_in_order_and_its_score(corpus, capsys):
    model, words = str(corpus / "model"), ["--beam", "2", "--workers", "0"]
    assert main(["decode", model, str(corpus / "test.jsonl"), "-o", str(corpus / "a.jsonl"), *words]) == 0
    whole = capsys.readouterr().out.partition(": ")[2]
    assert main(["decode", model, str(corpus / "shards"), "-o", str(corpus / "b.jsonl"), *words]) == 0
    assert capsys.readouterr().out.partition(": ")[2] == whole
    rows = read_rows(corpus / "b.jsonl")
    assert [row["id"] for row in rows] == [f"test{i}" for i in range(12)]
    for one, other in zip(read_rows(corpus / "a.jsonl"), rows, strict=True):
        assert one.pop("score") == pytest.approx(other.pop("score"), rel=1e-4)
        assert one == other
    assert not (corpus / "b.jsonl.parts").exists()


def test_a_stopped_decoding_goes_on_with_the_next_shard_and_refuses_other_settings(corpus, monkeypatch, capsys):
    words = ["decode", str(corpus / "model"), str(corpus / "shards"), "-o", str(corpus / "b.jsonl"), "--workers", "0"]
    decode, done = shard_decoding.decode_manifest, []

    def stop_at_the_third(model, utterances, path, **how):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path.name)
        return decode(model, utterances, path, **how)

    monkeypatch.setattr(shard_decoding, "decode_manifest", stop_at_the_third)
    assert main(words) == 130
    assert main([*words, "--beam", "3"]) == 2
    assert "was made with another beam; remove it, or write elsewhere with -o" in capsys.readouterr().err
    monkeypatch.setattr(shard_decoding, "decode_manifest", lambda *a, **b: (done.append(a[2].name), decode(*a, **b))[1])
    assert main(words) == 0
    assert done == ["000000.jsonl", "000001.jsonl", "000002.jsonl"]
    assert len(by_id(corpus / "b.jsonl")) == 12


def test_probing_shards_gives_the_findings_of_the_manifest(corpus, capsys):
    words = ["--workers", "0"]
    assert (
        main(["probe", str(corpus / "model"), str(corpus / "test.jsonl"), "-o", str(corpus / "a.jsonl"), *words]) == 0
    )
    given = ["probe", str(corpus / "model"), str(corpus / "shards"), "-o", str(corpus / "b.jsonl"), *words]
    assert main(given) == 0
    (_, whole), (_, found) = (read_probe(corpus / name) for name in ("a.jsonl", "b.jsonl"))
    assert [entry.id for entry in found] == [f"test{i}" for i in range(12)]
    for one, other in zip(whole, found, strict=True):
        assert [word.text for word in one.words] == [word.text for word in other.words]
        assert [word.doubt for word in one.words] == pytest.approx([word.doubt for word in other.words], rel=1e-3)
        assert other.audio.startswith(str(corpus / "shards/00000"))
    capsys.readouterr()
    assert main(given) == 0
    assert "complete already" in capsys.readouterr().out
    assert main(["audit", str(corpus / "b.jsonl"), "-o", str(corpus / "report")]) == 0  # with the sound of the archives
    assert len(shards_module.load_shards(corpus / "shards")) == 12


def test_a_probe_of_shards_refuses_other_settings_while_it_is_unfinished(corpus, monkeypatch, capsys):
    words = ["probe", str(corpus / "model"), str(corpus / "shards"), "-o", str(corpus / "b.jsonl"), "--workers", "0"]
    probe, done = probe_shards_module.probe_manifest, []

    def stop_at_the_third(model, utterances, path, *settings, **how):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path.name)
        return probe(model, utterances, path, *settings, **how)

    monkeypatch.setattr(probe_shards_module, "probe_manifest", stop_at_the_third)
    assert main(words) == 130
    assert main([*words, "--self-loop", "-1"]) == 2
    assert "was made with another self_loop; remove it, or write elsewhere with -o" in capsys.readouterr().err
    monkeypatch.setattr(probe_shards_module, "probe_manifest", probe)
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("b.jsonl: 12 utterances\n")
    assert not (corpus / "b.jsonl.parts").exists()


@pytest.mark.slow
def test_calls_side_by_side_probe_different_shards_to_the_same_bytes(corpus):
    words = [sys.executable, "-m", "wildctc", "probe", "model", "shards", "--workers", "0", "-o"]
    calls = [subprocess.Popen([*words, name], cwd=corpus) for name in ("one", "two", "two")]
    assert [call.wait() for call in calls] == [0, 0, 0]
    assert (corpus / "one").read_bytes() == (corpus / "two").read_bytes()
