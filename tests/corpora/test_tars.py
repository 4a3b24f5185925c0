"""Corpora in tar archives and lists of other toolkits, used where they are."""

import io
import json
import tarfile

import numpy as np
import pytest
from support.tones import make_corpus, read_rows

from wildctc.audio.sound_files import load_audio
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.packing import Packing, pack


@pytest.fixture
def speech(tmp_path):
    make_corpus(tmp_path / "speech", {"train": 6, "dev": 2})
    return tmp_path / "speech"


def write_tar(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def assert_prepared(speech, out, split, ids=None):
    there = {u.id: u for u in load_manifest(speech / f"{split}.jsonl")}
    found = {u.id: u for u in load_manifest(out / f"{split}.jsonl.gz")}
    assert sorted(found) == sorted(ids or there)
    for id, utterance in found.items():
        assert utterance.text == there[id].text
        assert np.array_equal(load_audio(utterance), load_audio(there[id]))


@pytest.mark.parametrize("ending", ["txt", "json"])
def test_webdataset_and_the_shards_of_wenet_are_used_where_they_are(speech, tmp_path, ending):
    for split in ("train", "dev"):
        rows = read_rows(speech / f"{split}.jsonl")
        for number in range(2):
            files = []
            for row in rows[number::2]:
                text = row["text"] if ending == "txt" else json.dumps({"text": row["text"], "speaker": "ann"})
                files += [(f"{row['id']}.{ending}", text.encode())]
                files += [(f"{row['id']}.wav", (speech / row["audio"]).read_bytes())]
            write_tar(tmp_path / "tars" / split / f"{number}.tar", files)
    assert main(["prepare", "webdataset", str(tmp_path / "tars"), str(tmp_path / "out")]) == 0
    for split in ("train", "dev"):
        assert_prepared(speech, tmp_path / "out", split)


def test_our_own_shards_are_a_webdataset(speech, tmp_path):
    pack(speech / "train.jsonl", tmp_path / "train", Packing(size=4))
    assert main(["prepare", "webdataset", str(tmp_path / "train"), str(tmp_path / "out"), "--shards"]) == 0
    assert_prepared(speech, tmp_path / "out", "train")
    assert (tmp_path / "out/shards/train/shards.json").is_file()


def test_files_without_their_partner_are_listed(speech, tmp_path):
    row = read_rows(speech / "train.jsonl")[0]
    sound = (speech / row["audio"]).read_bytes()
    files = [("train0.wav", sound), ("train0.txt", row["text"].encode()), ("b.wav", sound), ("c.json", b"[]")]
    files += [("d.json", b"[]"), ("d.wav", sound)]
    write_tar(tmp_path / "tars/a.tar", files)
    words = ["prepare", "webdataset", str(tmp_path / "tars/a.tar"), str(tmp_path / "out"), "--max-bad", "1"]
    assert main(words) == 0
    assert_prepared(speech, tmp_path / "out", "train", ["train0"])
    reasons = {row["id"]: row["reason"] for row in read_rows(tmp_path / "out/rejected.jsonl")}
    assert reasons["b"] == "no .json and no .txt beside its other files"
    assert reasons["c"] == "no audio beside its other files"
    assert reasons["d"].startswith("not a row with a text")


def test_a_tarred_dataset_of_nemo(speech, tmp_path):
    rows = read_rows(speech / "train.jsonl")
    for number in range(2):
        files = [(row["audio"], (speech / row["audio"]).read_bytes()) for row in rows[number::2]]
        write_tar(tmp_path / "nemo" / f"audio_{number}.tar", files)
    given = [{"audio_filepath": r["audio"], "text": r["text"], "shard_id": i % 2} for i, r in enumerate(rows)]
    given.append({"audio_filepath": "lost.wav", "text": "abc"})
    path = tmp_path / "nemo/tarred_audio_manifest.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    words = ["prepare", "nemo-tarred", str(tmp_path / "nemo"), str(tmp_path / "out"), "--max-bad", "0.2"]
    assert main(words) == 0
    assert_prepared(speech, tmp_path / "out", "train")
    [bad] = read_rows(tmp_path / "out/rejected.jsonl")
    assert bad["reason"] == "no such file in the archives: lost.wav"


def test_a_list_of_wenet(speech, tmp_path):
    rows = read_rows(speech / "dev.jsonl")
    (tmp_path / "dev").mkdir()
    lines = [{"key": row["id"], "wav": str(speech / row["audio"]), "txt": row["text"]} for row in rows]
    (tmp_path / "dev/data.list").write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"key": "x"}]))
    words = ["prepare", "wenet", str(tmp_path / "dev/data.list"), str(tmp_path / "out"), "--max-bad", "0.5"]
    assert main(words) == 0
    assert_prepared(speech, tmp_path / "out", "dev")


def test_an_audiofolder_with_parquet(speech, tmp_path):
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = read_rows(speech / "train.jsonl")
    table = [{"file_name": row["audio"], "transcription": row["text"], "id": row["id"]} for row in rows]
    parquet.write_table(pa.Table.from_pylist(table), speech / "metadata.parquet")
    assert main(["prepare", "audiofolder", str(speech), str(tmp_path / "out")]) == 0
    assert_prepared(speech, tmp_path / "out", "train")


def test_a_compressed_archive_is_named(tmp_path, capsys):
    (tmp_path / "a.tar").write_bytes(b"\x1f\x8b not a tar")
    assert main(["prepare", "webdataset", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "a.tar: not a readable tar archive" in capsys.readouterr().err
