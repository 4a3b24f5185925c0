"""The `weights` column of a manifest: read, checked, kept by `prepare`, and lost with the words that it belongs to."""

import gzip
import json

import pytest
from support.tones import make_corpus, read_rows, write_rows

from wildctc.audit.applying import apply_decisions
from wildctc.audit.decisions import Decision
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.rewriting import keep_utterances, set_text, set_weights
from wildctc.errors import WildCTCError

ROW = {"id": "ann-1", "audio": "a.wav", "text": "selamat  pagi", "duration": 1.0}


def load(folder, *rows):
    write_rows(folder / "manifest.jsonl", list(rows))
    return load_manifest(folder / "manifest.jsonl")


def cut(*supervisions):
    source = {"type": "file", "channels": [0], "source": "a.wav"}
    recording = {"id": "r", "sources": [source], "sampling_rate": 16000, "num_samples": 64000, "duration": 4.0}
    row = {"id": "cut", "start": 1.0, "duration": 3.0, "channel": 0, "recording": recording, "type": "MonoCut"}
    return row | {"supervisions": list(supervisions)}


def said(id, text, start=0.0, **custom):
    made = {"id": id, "recording_id": "r", "start": start, "duration": 1.0, "channel": 0, "text": text}
    return made | ({"custom": custom} if custom else {})


def test_weights_are_read_from_plain_rows_and_from_cuts(tmp_path):
    rows = [ROW | {"weights": [0, -2.5]}, ROW | {"id": "b"}, cut(said("s", "a b", weights=[1.0, 2.0], other="x"))]
    assert [u.weights for u in load(tmp_path, *rows)] == [(0.0, -2.5), None, (1.0, 2.0)]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "does not match the words of the text: utterance ann-1 has 1 weights for 2 words"),
        ([], "utterance ann-1 has 0 weights for 2 words"),
        ([1.0, "2"], "is not a list of numbers between -100 and 100: utterance ann-1 has"),
        ([1.0, True], "is not a list of numbers"),
        ([1.0, 1e9], "is not a list of numbers"),
        ([1.0, float("nan")], "is not a list of numbers"),
        ("high", "is not a list of numbers"),
    ],
)
def test_weights_that_do_not_fit_are_one_line_with_file_line_and_utterance(tmp_path, weights, message):
    with pytest.raises(WildCTCError, match=r"manifest\.jsonl:2: field 'weights'") as caught:
        load(tmp_path, ROW | {"id": "x"}, ROW | {"weights": weights})
    assert message in str(caught.value)
    with pytest.raises(WildCTCError, match="utterance s"):
        load(tmp_path, cut(said("s", "a b", weights=[1.0])))


def test_prepare_keeps_weights_for_the_normalised_words_and_lhotse_reads_them(tmp_path):
    from lhotse import CutSet

    make_corpus(tmp_path / "speech", {"train": 1, "dev": 1})
    [row] = read_rows(tmp_path / "speech/train.jsonl")
    write_rows(tmp_path / "speech/train.jsonl", [row | {"text": "A well-known.", "weights": [1.0, 2.0], "other": "b"}])
    words = ["prepare", "jsonl", str(tmp_path / "speech"), str(tmp_path / "out")]
    assert main([*words, "--lower", "--strip-punctuation"]) == 0
    [found] = load_manifest(tmp_path / "out/train.jsonl.gz")
    assert (found.text, found.weights) == ("a well known", (1.0, 2.0, 2.0))
    [read] = CutSet.from_jsonl(tmp_path / "out/train.jsonl.gz")
    assert read.supervisions[0].custom == {"weights": [1.0, 2.0, 2.0], "other": "b"}
    assert found.fields == (("other", "b"),)
    assert found.group("other") == "b"
    [dev] = gzip.decompress((tmp_path / "out/dev.jsonl.gz").read_bytes()).splitlines()
    assert "custom" not in json.loads(dev)["supervisions"][0]
    write_rows(tmp_path / "speech/dev.jsonl", [row | {"id": "d", "other": "c"}])
    assert main([*words, "--text-field", "other"]) == 0  # whose words they are not
    [found] = load_manifest(tmp_path / "out/train.jsonl.gz")
    assert (found.weights, found.fields) == (None, ())  # the transcript is no further field


def test_whatever_changes_the_words_removes_their_weights(tmp_path):
    make_corpus(tmp_path, {"train": 2})
    rows = [row | {"weights": [1.0] * len(row["text"].split())} for row in read_rows(tmp_path / "train.jsonl")]
    write_rows(tmp_path / "train.jsonl", rows)
    manifest = str(tmp_path / "train.jsonl")
    assert main(["corrupt", manifest, "-o", str(tmp_path / "wrong.jsonl"), "--characters", "0.2"]) == 0
    assert all("weights" not in row for row in read_rows(tmp_path / "wrong.jsonl"))
    decisions = {"train0": Decision("train0", "fix", rows[0]["text"], "bad cafe")}
    apply_decisions(manifest, decisions, tmp_path / "fixed.jsonl")
    fixed = read_rows(tmp_path / "fixed.jsonl")
    assert "weights" not in fixed[0]
    assert fixed[1] == rows[1]


def test_weights_of_a_cut_are_set_in_its_supervision_and_removed_with_the_text(tmp_path):
    row = cut(said("one", "a b", other=1), said("two", "c", start=1.0))
    set_weights(row, 0, [1.0, 2.0])
    set_weights(row, 1, [3.0])
    assert [u.weights for u in load(tmp_path, row)] == [(1.0, 2.0), (3.0,)]
    set_text(row, 0, "a b c")
    assert [(u.text, u.weights) for u in load(tmp_path, row)] == [("a b c", None), ("c", (3.0,))]
    assert row["supervisions"][0]["custom"] == {"other": 1}


def test_what_is_left_of_a_cut_keeps_its_id_and_its_place_in_the_audio(tmp_path):
    def three():
        return cut(said("one", "a"), said("two", "b", start=1.0), said("three", "c", start=2.0))

    every = load(tmp_path, three())
    for keep in ([0, 1, 2], [0, 2], [1], [2]):
        row = three()
        assert keep_utterances(row, keep)
        assert load(tmp_path, row) == [every[n] for n in keep]
    assert not keep_utterances(three(), [])
    assert not keep_utterances(dict(ROW), [])
    assert keep_utterances(dict(ROW), [0])
