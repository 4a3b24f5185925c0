"""`wildctc pack`: shards that others read, with the same samples, and the same bytes whoever makes them."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest
import soundfile
from support.tones import RATE, make_corpus, read_rows, say, write_rows

from wildctc.audio.sound_files import load_audio
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.packing import Packing, pack
from wildctc.corpora.shards import load_shards, open_shards
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.fbank import Fbank
from wildctc.features.packed import ShardFeatures


@pytest.fixture
def manifest(tmp_path):
    """60 utterances, some of them parts or channels of files, with all the fields that a row can have."""
    make_corpus(tmp_path, {"train": 60})
    rng = np.random.default_rng(0)
    wave = say("abc def abc", rng)
    soundfile.write(tmp_path / "two.flac", np.stack([wave, wave[::-1]], axis=1), RATE)
    soundfile.write(tmp_path / "wide.wav", np.stack([wave, -0.5 * wave], axis=1), RATE, subtype="PCM_24")
    rows = read_rows(tmp_path / "train.jsonl")
    rows[0] |= {"weights": [0.5] * len(rows[0]["text"].split()), "annotator": "ann", "language": "xx", "split": "train"}
    rows[1] |= {"texts": {"ann": "abc", "ben": "abd"}}
    rows[2] |= {"audio": "two.flac", "start": 0.25, "duration": 0.7, "channel": 1}
    rows[3] |= {"audio": "wide.wav", "start": 0.1, "duration": 0.5}
    rows[4] |= {"audio": "two.flac"}
    write_rows(tmp_path / "train.jsonl", rows)
    return tmp_path / "train.jsonl"


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("packing", [Packing(size=16), Packing(size=7, seed=None, flac=True), Packing(link=True)])
def test_what_is_read_from_shards_is_what_the_manifest_has_sample_for_sample(manifest, tmp_path, packing):
    pack(manifest, tmp_path / "shards", packing)
    there = {u.id: u for u in load_manifest(manifest)}
    found = load_shards(tmp_path / "shards")
    assert sorted(u.id for u in found) == sorted(there)
    if packing.seed is None:
        assert [u.id for u in found] == list(there)
    for utterance in found:
        given = there[utterance.id]
        names = ("text", "speaker", "duration", "split", "language", "weights", "fields", "texts", "annotators")
        for name in names:
            assert getattr(utterance, name) == getattr(given, name), name
        assert np.array_equal(load_audio(utterance), load_audio(given))


def test_webdataset_reads_the_shards(manifest, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    pack(manifest, tmp_path / "shards", Packing(size=16, flac=True))
    shards = open_shards(tmp_path / "shards")
    paths = [str(tmp_path / "shards" / f"{shard.name}.tar") for shard in shards.shards]
    samples = list(webdataset.WebDataset(paths, shardshuffle=False))
    rows = [json.loads(sample["json"]) for sample in samples]
    ours = load_shards(tmp_path / "shards")
    assert [(row["id"], row["text"]) for row in rows] == [(u.id, u.text) for u in ours]
    assert all("flac" in sample for sample in samples)


def test_the_same_manifest_gives_the_same_bytes_whoever_packs_it(manifest, tmp_path):
    pack(manifest, tmp_path / "one", Packing(size=8))
    pack(manifest, tmp_path / "two", Packing(size=8), workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    pack(manifest, tmp_path / "other", Packing(size=8, seed=1))
    assert content(tmp_path / "one") != content(tmp_path / "other")
    sizes = [shard.utterances for shard in open_shards(tmp_path / "one").shards]
    assert sum(sizes) == 60
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_commands_side_by_side_share_the_work_and_a_killed_one_is_continued(manifest, tmp_path):
    pack(manifest, tmp_path / "one", Packing(size=2))
    words = [
        sys.executable,
        "-m",
        "wildctc",
        "pack",
        str(manifest),
        str(tmp_path / "two"),
        "--size",
        "2",
        "--workers",
        "0",
    ]
    killed = subprocess.Popen(words)
    while killed.poll() is None and len(list((tmp_path / "two").glob("*.arrow"))) < 3:
        time.sleep(0.005)
    assert killed.poll() is None
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "two/shards.json").exists()
    both = [subprocess.Popen(words) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    for path in (tmp_path / "two").glob(".*"):  # of the one that was killed
        path.unlink()
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_finished_shards_are_kept_and_others_are_not_overwritten(manifest, tmp_path, capsys):
    for _ in range(2):
        main(["pack", str(manifest), str(tmp_path / "shards"), "--size", "30", "--workers", "0"])
        assert capsys.readouterr().out.endswith("shards: 60 utterances, 0.01 h, in 2 shards\n")
    with pytest.raises(WildCTCError, match="of another manifest, or packed in another way; give another folder"):
        pack(manifest, tmp_path / "shards", Packing(size=20))


def test_what_cannot_be_used_is_listed_and_too_much_of_it_is_an_error(manifest, tmp_path):
    rows = read_rows(manifest)
    (manifest.parent / rows[7]["audio"]).write_bytes(b"not audio")
    with pytest.raises(WildCTCError, match=r"1 of 60 utterances cannot be used, .* train7 .*not readable as audio"):
        pack(manifest, tmp_path / "shards", Packing(size=16))
    assert not (tmp_path / "shards/shards.json").exists()
    pack(manifest, tmp_path / "shards", Packing(size=16, max_bad=0.1))
    assert open_shards(tmp_path / "shards").utterances == 59
    [bad] = read_rows(tmp_path / "shards/rejected.jsonl")
    assert bad["id"] == "train7"


def test_an_id_that_occurs_twice_is_refused(manifest, tmp_path):
    write_rows(manifest, [*read_rows(manifest), read_rows(manifest)[0]])
    with pytest.raises(WildCTCError, match="id 'train0' occurs twice"):
        pack(manifest, tmp_path / "shards")


def test_shards_can_be_moved_and_audio_that_stayed_behind_too(manifest, tmp_path):
    pack(manifest, tmp_path / "a", Packing(size=16))
    pack(manifest, tmp_path / "linked", Packing(link=True))
    (tmp_path / "a").rename(tmp_path / "b")
    assert len(load_audio(load_shards(tmp_path / "b")[0])) > 0
    (tmp_path / "moved").mkdir()
    for path in [*tmp_path.glob("*.wav"), *tmp_path.glob("*.flac")]:
        path.rename(tmp_path / "moved" / path.name)
    for utterance in load_shards(tmp_path / "linked", audio_root=tmp_path / "moved"):
        assert len(load_audio(utterance)) > 0


def test_shards_at_an_address_are_read_and_their_copies_removed(manifest, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    pack(manifest, tmp_path / "shards", Packing(size=16))
    fsspec.filesystem("memory").put(str(tmp_path / "shards"), "/packed", recursive=True)
    shards = open_shards("memory://packed")
    here = load_shards(tmp_path / "shards")
    for number in range(len(shards)):
        found = shards.read(number)
        for utterance in found:
            same = next(u for u in here if u.id == utterance.id)
            assert np.array_equal(load_audio(utterance), load_audio(same))
        copies = found[0].audio.parent
        assert list(copies.glob("*.tar"))
        shards.done(number)
        assert not list(copies.glob("*.tar"))


def test_a_damaged_list_and_a_table_that_does_not_fit_are_named(manifest, tmp_path):
    pack(manifest, tmp_path / "shards", Packing(size=30))
    shards = open_shards(tmp_path / "shards")
    path = tmp_path / "shards/000000.arrow"
    (tmp_path / "shards/000001.arrow").write_bytes(b"nothing")
    with pytest.raises(WildCTCError, match=r"000001.arrow: cannot be read"):
        shards.read(1)
    path.unlink()
    with pytest.raises(WildCTCError, match=r"000000.arrow: cannot be read"):
        shards.read(0)
    (tmp_path / "shards/shards.json").write_text("{")
    with pytest.raises(WildCTCError, match=r"shards.json: damaged"):
        open_shards(tmp_path / "shards")


def test_an_archive_that_was_cut_off_is_a_bad_utterance_and_no_other_sound(manifest, tmp_path):
    pack(manifest, tmp_path / "shards", Packing(size=60))
    utterances = load_shards(tmp_path / "shards")
    archive = tmp_path / "shards/000000.tar"
    with tarfile.open(archive) as tar:
        assert len(tar.getnames()) == 120
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    assert len(load_audio(utterances[0])) > 0
    with pytest.raises(WildCTCError, match="the archive is shorter than its index says"):
        load_audio(utterances[-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_packed_features_are_those_of_the_cache_to_the_bit(manifest, tmp_path, workers):
    pack(manifest, tmp_path / "shards", Packing(size=16))
    shards, front_end, speeds = open_shards(tmp_path / "shards"), Fbank(20), (0.9, 1.0)
    packed = ShardFeatures(tmp_path / "features", shards, front_end, speeds)
    assert packed.missing() == list(range(len(shards)))
    assert sorted(packed.compute(workers, 1.0)) == list(range(len(shards)))
    assert packed.missing() == []
    cache, computed = FeatureCache(tmp_path / "cache", front_end), ShardFeatures(None, shards, front_end, speeds)
    for number in range(len(shards)):
        kept, now = packed.open(number), computed.open(number)
        assert np.array_equal(kept.frames, now.frames)
        for row, utterance in enumerate(shards.read(number)):
            for i, speed in enumerate(speeds):
                expected = cache.get(utterance, speed)
                assert np.array_equal(kept.get(utterance, row, i), expected)
                assert np.array_equal(now.get(utterance, row, i), expected)


@pytest.mark.parametrize("cut", [0, 7, 30, 2000, -1])
def test_a_file_of_features_that_was_cut_off_or_is_something_else_is_named(manifest, tmp_path, cut):
    pack(manifest, tmp_path / "shards", Packing(size=60))
    packed = ShardFeatures(tmp_path / "features", open_shards(tmp_path / "shards"), Fbank(20))
    list(packed.compute(0, 1.0))
    [path] = packed.folder.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:cut] if cut >= 0 else b"PK" * 5000)
    with pytest.raises(WildCTCError, match=f"{path}: damaged: .*; remove it, and the same command computes it again"):
        packed.open(0).get(packed.shards.read(0)[0], 0, 0)


def test_features_that_take_too_much_room_are_refused(manifest, tmp_path):
    pack(manifest, tmp_path / "shards", Packing(size=16))
    packed = ShardFeatures(tmp_path / "features", open_shards(tmp_path / "shards"), Fbank(20))
    with pytest.raises(WildCTCError, match=r"the features would take .* data.cache_limit_gb allows 1e-06 GB"):
        list(packed.compute(0, 1e-6))


def test_an_utterance_of_which_the_front_end_makes_nothing_has_no_frames(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(100), RATE)
    soundfile.write(tmp_path / "b.wav", np.zeros(1000), RATE)
    write_rows(tmp_path / "m.jsonl", [{"id": n, "audio": f"{n}.wav", "text": "a"} for n in "ab"])
    pack(tmp_path / "m.jsonl", tmp_path / "shards", Packing(seed=None))
    packed = ShardFeatures(tmp_path / "features", open_shards(tmp_path / "shards"), Fbank(20))
    list(packed.compute(0, 1.0))
    assert packed.open(0).frames.tolist() == [[0], [6]]
