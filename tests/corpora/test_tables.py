"""Tables in and out, and corpora whose publishers use them."""

import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from support.probes import probed, write
from support.tones import RATE, write_rows

import wildctc
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.preparation import prepare
from wildctc.errors import WildCTCError
from wildctc.json_lines import check_rows_writable, table_text, try_rows
from wildctc.json_lines import read_rows as rows_of
from wildctc.scoring.hypotheses import read_hyps
from wildctc.text.normalisation import Normalizer


def sound(path, seconds=0.5):
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(int(seconds * RATE)) / RATE
    soundfile.write(path, 0.1 * np.sin(2 * np.pi * 440 * time), RATE)
    return path


def texts(prepared):
    return {name: [(u.id, u.text, u.speaker) for u in part] for name, part in prepared.items()}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", 'audio\ttext\tduration\tspeaker\na.wav\the said "so\t0.4\tann\n'),
        ("train.csv", 'audio,text,speaker,channel\na.wav,"he said ""so",ann,\n'),
        ("train.csv", 'audio;text;speaker\r\na.wav;"he said ""so";ann\r\n'),
        ("manifest.csv", '\ufeffaudio,text,speaker,split\na.wav,"he said ""so",ann,train\n'),
    ],
)
def test_a_table_is_a_manifest(tmp_path, name, content):
    sound(tmp_path / "a.wav")
    (tmp_path / name).write_text(content, encoding="utf-8")
    for source in (tmp_path / name, tmp_path):
        prepared = prepare("csv", source, tmp_path / "out", Normalizer(), limit=0)
        assert texts(prepared) == {"train": [("a", 'he said "so', "ann")]}
    assert [u.text for u in load_manifest(tmp_path / name)] == ['he said "so']


def test_a_bad_row_of_a_table_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "m.csv").write_text('id,text,duration\na,x,1\nb,y\nc,"z,1\nd,w,long\ne,,2\n')
    found = dict(try_rows(tmp_path / "m.csv"))
    assert found[2] == {"id": "a", "text": "x", "duration": 1}
    assert found[6] == {"id": "e", "text": "", "duration": 2}
    reasons = [found[n].reason for n in (3, 4, 5)]
    assert reasons[0].startswith("another number of cells: 2, where the first line names 3 columns")
    assert reasons[1].startswith("not a row of a table")
    assert reasons[2] == "not a number in column 'duration': long"


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "m.csv").write_text("text,text\na,b\n")
    with pytest.raises(WildCTCError, match="two columns have the same name"):
        list(try_rows(tmp_path / "m.csv"))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_what_is_written_as_a_table_is_read_as_it_was(tmp_path, ending):
    rows = [
        {"id": "a", "text": 'yes, "no"; maybe', "score": -1.5, "weights": [0.5, -2.0, 1.0]},
        {"id": "b", "text": "", "reference": ["one", "two"], "nbest": [{"text": "ü", "score": -3.25}]},
    ]
    path = tmp_path / f"t.{ending}"
    path.write_text(table_text(rows, path), encoding="utf-8")
    expected = [rows[0] | {"reference": ""}, rows[1]]
    assert [row for _, row in rows_of(path)] == expected


def test_convert_writes_manifests_and_hypotheses_that_every_command_reads(tmp_path, capsys):
    sound(tmp_path / "in" / "a.wav")
    write_rows(
        tmp_path / "in" / "manifest.jsonl", [{"audio": "a.wav", "text": "ja, nein", "split": "dev", "annotator": 7}]
    )
    prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())
    cuts, table = tmp_path / "out" / "dev.jsonl.gz", tmp_path / "dev.csv"
    assert main(["convert", str(cuts), str(table)]) == 0
    assert load_manifest(table) == load_manifest(cuts)
    assert main(["convert", str(cuts), str(table)]) == 2
    assert "--overwrite" in capsys.readouterr().err

    hyps = [{"id": "a", "text": "ja", "reference": "ja nein", "score": -2.5}, {"id": "b", "text": "", "reference": ""}]
    write_rows(tmp_path / "hyp.jsonl", hyps)
    assert main(["convert", str(tmp_path / "hyp.jsonl"), str(tmp_path / "hyp.tsv")]) == 0
    assert read_hyps(tmp_path / "hyp.tsv") == read_hyps(tmp_path / "hyp.jsonl")
    assert main(["score", str(tmp_path / "hyp.tsv")]) == 0


def test_several_transcripts_and_alternatives_survive_a_table(tmp_path):
    rows = [
        {"id": "a", "audio": "a.wav", "text": "{uh|} yes", "texts": {"ann": "yes", "ben": "yes, no"}},
        {"id": "b", "audio": "b.wav", "text": "", "texts": ["one", ""]},
        {"id": "c", "audio": "c.wav", "text": "[one]"},
    ]
    write_rows(tmp_path / "m.jsonl", rows)
    for name in ("m.csv", "m.tsv"):
        assert main(["convert", str(tmp_path / "m.jsonl"), str(tmp_path / name)]) == 0
        assert load_manifest(tmp_path / name) == load_manifest(tmp_path / "m.jsonl")


def test_json_lines_are_not_written_to_a_file_that_would_be_read_as_a_table(tmp_path, capsys):
    sound(tmp_path / "a.wav")
    write_rows(tmp_path / "m.jsonl", [{"id": "a", "audio": "a.wav", "text": "one two"}])
    assert main(["corrupt", str(tmp_path / "m.jsonl"), "-o", str(tmp_path / "out.csv"), "--words", "1"]) == 2
    assert "out.csv: what is written are JSON lines; give a name in .jsonl" in capsys.readouterr().err
    for path in (tmp_path / "hyp.TSV", tmp_path / "hyp.csv.gz"):
        with pytest.raises(WildCTCError, match="wildctc convert"):
            check_rows_writable(path)
    check_rows_writable(tmp_path / "hyp.jsonl")


def test_nemo_manifests_with_pred_text_are_hypotheses(tmp_path):
    row = {"audio_filepath": "wav/a.wav", "duration": 1.0, "text": "ja nein", "pred_text": "ja"}
    write_rows(tmp_path / "nemo.jsonl", [row])
    [found] = read_hyps(tmp_path / "nemo.jsonl")
    assert (found.id, found.text, found.references) == ("a", "ja", ("ja nein",))
    assert main(["score", str(tmp_path / "nemo.jsonl")]) == 0


def test_common_voice(tmp_path):
    for split in ("train", "dev"):
        sound(tmp_path / "clips" / f"cv_{split}.wav")
        header = "client_id\tpath\tsentence_id\tsentence\tup_votes\tlocale\n"
        row = f'{"ab" * 64}\tcv_{split}.wav\t1\tEr sagte "ja\n\t2\tde\n'.replace("\n\t", "\t")
        (tmp_path / f"{split}.tsv").write_text(header + row)
    prepared = prepare("common-voice", tmp_path, tmp_path / "out", Normalizer())
    assert texts(prepared)["dev"] == [("cv_dev", 'Er sagte "ja', "ab" * 8)]
    assert prepared["train"][0].language == "de"
    with pytest.raises(WildCTCError, match=r"no train\.tsv"):
        prepare("common-voice", tmp_path / "clips", tmp_path / "out", Normalizer())


def test_ljspeech(tmp_path):
    sound(tmp_path / "wavs" / "LJ001-0001.wav")
    (tmp_path / "metadata.csv").write_text("LJ001-0001|Printing, in 1450|Printing, in fourteen fifty\n")
    prepared = prepare("ljspeech", tmp_path, tmp_path / "out", Normalizer(lower=True, strip_punctuation=True))
    assert texts(prepared) == {"train": [("LJ001-0001", "printing in fourteen fifty", tmp_path.name)]}


def test_voxpopuli(tmp_path):
    """As its own script writes it, with a folder for each year, and as it is on the hub, with other folders."""
    folder = tmp_path / "de"
    header = "id\traw_text\tnormalized_text\tspeaker_id\tsplit\tgender\n"
    for split, place in (("train", "2012"), ("test", "test/part_0")):
        name = f"20120116-0900-PLENARY-{split}"
        sound(folder / place / f"{name}.ogg")
        row = f'{name}\tErstens: "ja.\terstens ja\t{"None" if split == "test" else 7}\t{split}\tmale\n'
        (folder / f"asr_{split}.tsv").write_text(header + row + "x\n")
    prepared = prepare("voxpopuli", folder, tmp_path / "out", Normalizer(), limit=0.5)
    assert texts(prepared) == {
        "train": [("20120116-0900-PLENARY-train", "erstens ja", "7")],
        "test": [("20120116-0900-PLENARY-test", "erstens ja", None)],
    }
    assert (prepared["train"][0].language, prepared["train"][0].fields) == ("de", (("gender", "male"),))
    with pytest.raises(WildCTCError, match=r"no asr_train\.tsv"):
        prepare("voxpopuli", tmp_path, tmp_path / "out", Normalizer())


@pytest.mark.parametrize("source", ["csv", "wenet", "audiofolder"])
def test_a_corpus_whose_audio_was_moved_is_prepared_with_its_new_folder(tmp_path, source, capsys):
    sound(tmp_path / "new/wav/a.wav")
    old = tmp_path / "old"
    old.mkdir()
    (old / "train.csv").write_text(f"id,audio,text\na,{old}/wav/a.wav,one\n")
    (old / "data.list").write_text(json.dumps({"key": "a", "wav": f"{old}/wav/a.wav", "txt": "one"}) + "\n")
    (old / "metadata.csv").write_text("file_name,text\nwav/a.wav,one\n")
    place = old / "train.csv" if source == "csv" else old
    words = ["prepare", source, str(place), str(tmp_path / "out")]
    assert main(words) == 2
    assert main([*words, "--audio-root", str(tmp_path / "new")]) == 0
    [utterance] = load_manifest(tmp_path / "out/train.jsonl.gz")
    assert utterance.audio == tmp_path / "new/wav/a.wav"
    assert main([*words, "--audio-root", str(tmp_path / "out")]) == 2
    assert "does not have the audio of" in capsys.readouterr().err


def test_audio_folder(tmp_path):
    sound(tmp_path / "train" / "sub" / "a.wav")
    sound(tmp_path / "validation" / "b.wav")
    (tmp_path / "train" / "metadata.csv").write_text("file_name,transcription\nsub/a.wav,one\n")
    (tmp_path / "validation" / "metadata.jsonl").write_text('{"file_name": "b.wav", "text": "two"}\n')
    prepared = prepare("audiofolder", tmp_path, tmp_path / "out", Normalizer())
    assert texts(prepared) == {"train": [("train-sub-a", "one", None)], "dev": [("validation-b", "two", None)]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "save_to_disk", "arrow", "address"])
def test_a_dataset_of_hugging_face_on_disk(tmp_path, kind, monkeypatch):
    datasets = pytest.importorskip("datasets")
    wave = sound(tmp_path / "a.wav").read_bytes()
    columns = {"audio": [{"bytes": wave, "path": "a.wav"}], "sentence": ["Ja, nein"], "speaker_id": [3]}
    table = datasets.Dataset.from_dict(columns).cast_column("audio", datasets.Audio(decode=False))  # as on the hub
    folder = tmp_path / "in"
    if kind in ("parquet", "address"):
        folder.mkdir()
        table.to_parquet(folder / "validation-00000-of-00001.parquet")
    elif kind == "arrow":
        table.save_to_disk(tmp_path / "saved")
        folder.mkdir()
        next((tmp_path / "saved").glob("*.arrow")).rename(folder / "validation.arrow")
    else:
        datasets.DatasetDict({"validation": table}).save_to_disk(folder)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    source = f"file://{folder}/validation-*.parquet" if kind == "address" else str(folder)
    assert main(["prepare", "huggingface", source, str(tmp_path / "out"), "--lower", "--strip-punctuation"]) == 0
    assert not list((tmp_path / "cache").rglob("*.arrow"))  # it was read as a stream
    [utterance] = load_manifest(tmp_path / "out" / "dev.jsonl.gz")
    assert (utterance.text, utterance.speaker, utterance.duration) == ("ja nein", "3", 0.5)
    assert utterance.audio.read_bytes() == wave


def test_issues_are_a_table_of_pandas():
    pytest.importorskip("pandas")
    issue = wildctc.LabelIssue("a", "changed", "hello", "hallo", 0.9, 0, 5, 0.1, 0.4, 0)
    table = wildctc.as_table([issue])
    assert table.to_dict("records") == [{
        "utterance": "a", "kind": "changed", "written": "hello", "heard": "hallo", "score": 0.9, "begin": 0, "stop": 5,
        "start": 0.1, "end": 0.4, "word": 0,
    }]  # fmt: skip
    assert list(wildctc.as_table([]).columns) == list(table.columns)


def test_convert_writes_the_issues_of_a_probe(tmp_path):

    probe = write(tmp_path, [probed("a", "one two three", {1: "too"}), probed("b", "four", {0: "for"})])
    assert main(["convert", str(probe), str(tmp_path / "issues.csv"), "--least", "0"]) == 0
    rows = [row for _, row in rows_of(tmp_path / "issues.csv")]
    assert rows
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)


WANDB = """
import sys
from wildctc.training.wandb_sink import WeightsAndBiases
from pathlib import Path
sink = WeightsAndBiases("tones", Path(sys.argv[1]), {"seed": 0})
for epoch in (1, 2):
    sink.add({"epoch": epoch, "valid_cer": 0.5 / epoch, "bypass": None})
sink.close()
"""


@pytest.mark.slow
def test_weights_and_biases_gets_the_metrics_of_each_epoch(tmp_path):
    pytest.importorskip("wandb")
    import os

    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(tmp_path)}
    words = [sys.executable, "-c", WANDB, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    [written] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = written.read_bytes()
    assert content.count(b"valid_cer") >= 2
    assert b"0.25" in content
