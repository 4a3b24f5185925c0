"""`--engine ray` on a cluster of two machines with a CPU each, here two groups of processes on one machine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support.tones import RECIPE, make_corpus, read_rows, write_rows

from wildctc.cli import main
from wildctc.corpora.packing import Packing, pack
from wildctc.corpora.shards import load_shards
from wildctc.errors import WildCTCError
from wildctc.ray_engine import split_engine
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

ENCODER = {"kind": "conformer", "d_model": 16, "heads": 2, "blocks": 1, "ff_dim": 32, "kernel": 3, "subsampling": 4}
RAY = ["--engine", "ray"]


@pytest.fixture
def cluster():
    """A cluster of its own for each test: after a worker was killed, the next test once waited for it without end."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    del ray
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.add_node(num_cpus=1)
    before, os.environ["RAY_ADDRESS"] = os.environ.get("RAY_ADDRESS"), found.address
    yield found
    found.shutdown()
    if before is None:
        del os.environ["RAY_ADDRESS"]
    else:
        os.environ["RAY_ADDRESS"] = before


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder; hidden ones may be left by a process that was killed."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def commands_on(folder: Path) -> dict[int, int]:
    """The `wildctc` processes with this folder in their words, and the process that started each."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if b"wildctc" in words and str(folder).encode() in words and b"--engine" not in words:
            found[int(process.name)] = parent
    return found


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_shards_have_the_same_bytes(cluster, tmp_path):
    make_corpus(tmp_path, {"train": 60})
    pack(tmp_path / "train.jsonl", tmp_path / "here", Packing(size=1))
    words = ["pack", str(tmp_path / "train.jsonl"), str(tmp_path / "there"), "--size", "1", "--workers", "0"]
    call = subprocess.Popen([sys.executable, "-m", "wildctc", *words, *RAY])
    killed = None
    seen: set[int] = set()
    while call.poll() is None:
        running = commands_on(tmp_path / "there")
        seen |= running.keys()
        if killed is None and len(running) == 2 and len(list((tmp_path / "there").glob("*.arrow"))) >= 3:
            killed, worker = next(iter(running.items()))
            assert "ray" in Path(f"/proc/{worker}/cmdline").read_text()
            os.kill(worker, signal.SIGKILL)
        time.sleep(0.005)
    assert call.wait() == 0
    assert killed is not None
    assert len(seen) == 3  # two workers, and the one that took the place of the killed one
    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.slow
def test_prepare_features_probe_and_clean_give_what_they_give_here(cluster, tmp_path, capsys, one_thread):
    make_corpus(tmp_path, {"train": 12, "dev": 2})
    rows = [row | {"split": "train"} for row in read_rows(tmp_path / "train.jsonl")]
    write_rows(tmp_path / "manifest.jsonl", rows)
    torch.manual_seed(0)
    units = CharUnits.train(["abcdef "], Normalizer())
    Recognizer({"name": "fbank", "num_bins": 40}, ENCODER, units).save(tmp_path / "model")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    found = []
    for engine, name in ((RAY, "ray"), ([], "here")):
        out = tmp_path / name
        prepare = ["prepare", "jsonl", str(tmp_path / "manifest.jsonl"), str(out), "--shards"]
        assert main([*prepare, *engine]) == 0
        shards = str(out / "shards/train")
        features = ["features", str(tmp_path / "recipe.yaml"), "--data.train", shards, "--data.cache", str(out / "f")]
        assert main([*features, *engine]) == 0
        probe = ["probe", str(tmp_path / "model"), shards, "-o", str(out / "probe"), "--workers", "0", "--max-bad", "1"]
        assert main([*probe, *engine]) == 0
        clean = ["clean", str(out / "probe"), "-o", str(out / "clean"), "--workers", "0", "--replace", "none"]
        assert main([*clean, *engine]) == 0
        features = {path.name: path.read_bytes() for path in (out / "f").rglob("*.safetensors")}
        texts = {(u.id, u.text, u.weights) for u in load_shards(out / "clean")}
        found.append((texts, features, (out / "probe").read_text().replace(str(out), "")))
    assert found[0] == found[1]
    assert len(found[0][0]) == 12


@pytest.mark.slow
def test_what_a_worker_cannot_do_is_told_in_one_line_and_not_tried_again(cluster, tmp_path, capsys):
    (tmp_path / "train.jsonl").write_text('{"id": "a", "audio": "none.wav", "text": "a"}\n')
    began = time.process_time()
    assert main(["pack", str(tmp_path / "train.jsonl"), str(tmp_path / "out"), *RAY]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("wildctc: ")]
    assert "1 of 1 utterances cannot be used" in line
    assert time.process_time() - began < 20


def test_what_cannot_be_shared_is_refused(tmp_path, capsys):
    make_corpus(tmp_path, {"train": 2})
    manifest = str(tmp_path / "train.jsonl")
    assert main(["probe", "model", manifest, "-o", str(tmp_path / "probe"), *RAY]) == 2
    assert "--engine ray shares the work on shards; `wildctc pack` makes shards" in capsys.readouterr().err
    assert main(["prepare", "jsonl", manifest, str(tmp_path / "out"), *RAY]) == 2
    assert "--engine ray shares the work of packing: give --shards with it" in capsys.readouterr().err
    with pytest.raises(WildCTCError, match="--engine is here or ray, got 'slurm'"):
        split_engine(["--engine", "slurm"])
    with pytest.raises(WildCTCError, match="--ray-workers is a number of workers, got 'many'"):
        split_engine(["--ray-workers=many"])
