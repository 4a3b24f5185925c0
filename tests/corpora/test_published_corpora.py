"""LibriSpeech, FLEURS and RESPIN as their publishers ship them, oddities included, and the recipes for them."""

import json
import logging
from pathlib import Path

import pytest
import torch
from support.miniatures import fleurs, letters, librispeech, respin, tiny_model, write_wave
from support.tones import read_rows

from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.preparation import prepare
from wildctc.corpora.subset import Subset
from wildctc.corpora.utterance import Utterance
from wildctc.errors import WildCTCError
from wildctc.text.normalisation import Normalizer

SENTENCES = ["फल और कंद", "नमक का दाम", "दाल और फल", "कल का दाम"]


def rejected(folder):
    return [json.loads(line) for line in (folder / "rejected.jsonl").read_text(encoding="utf-8").splitlines()]


# --------------------------------------------------------------------------------------------------------------- FLEURS


def test_fleurs_takes_the_normalised_transcription_and_keeps_every_reader(tmp_path):
    fleurs(tmp_path / "hi_in", SENTENCES, readers=2)
    files = prepare("fleurs", tmp_path / "hi_in", tmp_path / "out", Normalizer())
    assert {name: len(us) for name, us in files.items()} == {"train": 8, "dev": 4, "test": 4}
    assert [u.text for u in files["dev"]] == SENTENCES
    first, second, *_ = files["train"]
    assert first.id == "1500-1000000000000000000"
    assert (second.id.split("-")[0], second.text) == ("1500", first.text)  # the same sentence, another reader
    assert first.id != second.id
    assert load_manifest(tmp_path / "out/test.jsonl.gz") == files["test"]
    assert {u.language for u in files["test"]} == {"hi_in"}


def test_one_language_is_taken_of_a_folder_of_languages(tmp_path):
    for language in ("hi_in", "ta_in"):
        fleurs(tmp_path / "FLEURS/data" / language, [f"{language[:2]} a"], splits=("train", "dev"))
    for source in (tmp_path / "FLEURS", tmp_path / "FLEURS/data"):
        files = prepare("fleurs", source, tmp_path / "out", Normalizer(), language="ta_in")
        assert {u.text for us in files.values() for u in us} == {"ta a"}
        for language in (None, "te_in"):
            with pytest.raises(WildCTCError, match=r"choose a language of .* with --language: hi_in, ta_in"):
                prepare("fleurs", source, tmp_path / "out", Normalizer(), language=language)
    alone = tmp_path / "FLEURS/data/hi_in"
    assert prepare("fleurs", alone, tmp_path / "out", Normalizer(), language="hi_in")
    with pytest.raises(WildCTCError, match="is the folder of one language, not of several with ta_in among them"):
        prepare("fleurs", alone, tmp_path / "out", Normalizer(), language="ta_in")
    with pytest.raises(WildCTCError, match="--language is for fleurs, respin and synthetic, not for kaldi"):
        prepare("kaldi", alone, tmp_path / "out", Normalizer(), language="hi")


def test_recordings_that_were_not_published_are_listed_and_do_not_stop_the_rest(tmp_path, caplog):
    fleurs(tmp_path / "in", SENTENCES, readers=3)
    for path in sorted((tmp_path / "in/audio/train").iterdir())[:5]:  # of 12
        path.unlink()
    with caplog.at_level(logging.WARNING):
        files = prepare("fleurs", tmp_path / "in", tmp_path / "out", Normalizer())
    assert {name: len(us) for name, us in files.items()} == {"train": 7, "dev": 4, "test": 4}
    assert "5 of the 12 files of train are not there; these rows are skipped" in caplog.text
    assert [row["reason"] for row in rejected(tmp_path / "out")] == ["no such file"] * 5


def test_audio_that_was_not_unpacked_is_an_error_that_says_so(tmp_path):
    fleurs(tmp_path / "in", SENTENCES)
    (tmp_path / "in/audio/dev").rename(tmp_path / "in/audio/elsewhere")
    with pytest.raises(WildCTCError, match=r"4 of the 4 files of dev are not there, .*unpack .*audio/dev\.tar\.gz"):
        prepare("fleurs", tmp_path / "in", tmp_path / "out", Normalizer())
    assert not (tmp_path / "out").exists()


def test_other_faults_of_fleurs_count_as_those_of_any_corpus(tmp_path):
    fleurs(tmp_path / "in", SENTENCES)
    next((tmp_path / "in/audio/train").iterdir()).write_bytes(b"")
    with pytest.raises(WildCTCError, match=r"1 of 12 utterances cannot be used, more than .*: empty file"):
        prepare("fleurs", tmp_path / "in", tmp_path / "out", Normalizer())
    assert len(prepare("fleurs", tmp_path / "in", tmp_path / "out", Normalizer(), 0.1)["train"]) == 3


def test_quotation_marks_and_odd_separators_do_not_break_a_table(tmp_path):
    folder = fleurs(tmp_path / "in", ['he said "so', "a\u2028b\u0085c"])
    assert [u.text for u in prepare("fleurs", folder, tmp_path / "out", Normalizer())["dev"]] == [
        'he said "so',
        "a b c",
    ]
    with (folder / "dev.tsv").open("a") as file:
        file.write("1\tx.wav\tonly three\n")
    with pytest.raises(WildCTCError, match=r"1 of 7 .*dev\.tsv:3\): not 7 columns as in FLEURS: 3"):
        prepare("fleurs", folder, tmp_path / "out", Normalizer())


# --------------------------------------------------------------------------------------------------------------- RESPIN

ASKED = ["दाम क्या है ?", "कल आना , घर पर", "फल खाओ"]


@pytest.mark.parametrize("prefix", ["IISc_RESPIN_", ""])
def test_respin_sets_become_splits_whatever_their_folders_are_called(tmp_path, prefix):
    for name, readers in (("train_hi_small", 3), ("dev_hi", 1), ("test_hi", 1), ("train_te_small", 1)):
        respin(tmp_path / "in", ASKED, name, readers, prefix)
    files = prepare("respin", tmp_path / "in", tmp_path / "out", Normalizer(), language="hi")
    assert {name: len(us) for name, us in files.items()} == {"train": 9, "dev": 3, "test": 3}
    assert [u.text for u in files["dev"]] == ["दाम क्या है", "कल आना घर पर", "फल खाओ"]
    first = files["train"][0]
    assert first.id.startswith("IISc_RESPIN_hi_D1_90000_")
    assert (first.speaker, first.split, first.language) == ("90000", "train", "hi")
    with pytest.raises(WildCTCError, match=r"choose a language of .* with --language: hi, te"):
        prepare("respin", tmp_path / "in", tmp_path / "out", Normalizer())


def test_one_respin_set_alone_or_in_nested_folders_is_found(tmp_path):
    respin(tmp_path / "in/hindi", ASKED, "train_hi_small")
    for source in (tmp_path / "in", tmp_path / "in/hindi", tmp_path / "in/hindi/IISc_RESPIN_train_hi_small"):
        assert list(prepare("respin", source, tmp_path / "out", Normalizer())) == ["train"]
    with pytest.raises(WildCTCError, match=r"no meta_train_….json in"):
        prepare("respin", tmp_path / "in/hindi/IISc_RESPIN_train_hi_small/D1/90000", tmp_path / "out", Normalizer())


def test_a_broken_meta_file_is_named(tmp_path):
    meta = respin(tmp_path, ASKED, "dev_hi") / "IISc_RESPIN_dev_hi/meta_dev_hi.json"
    for content, message in (("{", "cannot read .*meta_dev_hi.json"), ('{"a": {"text": "x"}}', "not as in RESPIN")):
        meta.write_text(content)
        with pytest.raises(WildCTCError, match=message):
            prepare("respin", tmp_path, tmp_path / "out", Normalizer())


def test_each_sentence_once_up_to_so_many_hours(tmp_path):
    respin(tmp_path / "in", ASKED, "train_hi_small", readers=4)
    respin(tmp_path / "in", [*ASKED, *ASKED], "dev_hi")
    take = Subset(unique_sentences=True)
    files = prepare("respin", tmp_path / "in", tmp_path / "out", Normalizer(), take=take)
    assert sorted(u.text for u in files["train"]) == sorted({u.text for u in files["dev"]})
    assert len(files["dev"]) == 6  # only the training data is chosen from
    hours = (sum(u.duration for u in files["train"]) - 0.01) / 3600
    fewer = prepare("respin", tmp_path / "in", tmp_path / "out", Normalizer(), take=Subset(hours, True))
    assert len(fewer["train"]) == 2


# ---------------------------------------------------------------------------------------------------------- LibriSpeech


def test_some_hours_of_one_subset_are_the_same_for_everybody(tmp_path, caplog):
    texts = [f"line {'abcdefgh'[i]}" for i in range(8)]
    for subset, speaker in (("train-clean-100", "1"), ("train-other-500", "2"), ("dev-clean", "3"), ("dev-other", "4")):
        librispeech(tmp_path, texts, subset, speaker)
    length = 8 * 0.1 / 3600  # of an utterance, in hours
    options = {"subsets": ["train-clean-100", "dev-clean", "dev-other"], "take": Subset(hours=5.5 * length)}
    files = prepare("librispeech", tmp_path, tmp_path / "out", Normalizer(lower=True), **options)
    assert {n: len(us) for n, us in files.items()} == {"train": 5, "dev": 16, "dev-clean": 8, "dev-other": 8}
    # Fixed for all time: a published subset must not change with a library or a release.
    assert [u.id for u in files["train"]] == ["1-121-0000", "1-121-0002", "1-121-0004", "1-121-0005", "1-121-0007"]
    assert not caplog.records
    options["take"] = Subset(hours=1)
    assert len(prepare("librispeech", tmp_path, tmp_path / "out", Normalizer(), **options)["train"]) == 8
    assert "there are only 0.00 h of training speech; all of them are taken" in caplog.text
    with pytest.raises(
        WildCTCError, match="no subset 'train-clean-360'; there are: dev-clean, dev-other, train-clean-100"
    ):
        prepare("librispeech", tmp_path, tmp_path / "out", Normalizer(), subsets=["train-clean-360"])


def test_fewer_hours_are_a_part_of_more_and_another_seed_chooses_others():
    spoken = [Utterance(f"u{i}", Path("a.wav"), f"t{i % 50}", duration=36.0) for i in range(200)]
    few, many, other = (Subset(*options).of(spoken) for options in ((0.3,), (1,), (1, False, 1)))
    assert [len(x) for x in (few, many, other)] == [30, 100, 100]
    assert set(few) < set(many)
    assert 30 < len(set(many) & set(other)) < 70
    assert Subset(1).of(spoken[::-1]) == many[::-1]
    once = Subset(unique_sentences=True).of(spoken)
    assert len(once) == len({u.text for u in once}) == 50
    assert Subset().of(spoken) == spoken
    with pytest.raises(WildCTCError, match="--hours must be greater than 0, got 0"):
        Subset(0)


# -------------------------------------------------------------------------------------------------------------- recipes

SMALL = """--encoder.d_model 16 --encoder.heads 2 --encoder.blocks 1 --encoder.ff_dim 32 --encoder.kernel 3
--data.workers 1 --data.batch_seconds 20 --training.epochs 1 --training.average 1"""
ENGLISH = ["so it goes", "we go home", "she goes so far", "home so far", "far so good", "we see it"]


def in_librispeech(folder):
    for speaker, subset in enumerate(("train-clean-100", "dev-clean", "dev-other", "test-clean")):
        librispeech(folder, ENGLISH, subset, str(speaker))
    return ["librispeech", str(folder), "--lower"]


def in_fleurs(folder):
    fleurs(folder / "hi_in", SENTENCES, readers=2)
    return ["fleurs", str(folder), "--language", "hi_in"]


def in_respin(folder):
    for name, readers in (("train_hi_small", 2), ("dev_hi", 1), ("test_hi", 1)):
        respin(folder, ASKED, name, readers)
    return ["respin", str(folder), "--language", "hi", "--strip-punctuation", "--unique-sentences", "--hours", "30"]


@pytest.fixture(scope="module")
def front_end(tmp_path_factory):
    pytest.importorskip("transformers")
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "corpus", "units"),
    [
        ("librispeech", in_librispeech, ["--data.vocab_size", "25"]),
        ("librispeech-conformer", in_librispeech, ["--data.vocab_size", "25"]),
        ("fleurs", in_fleurs, []),
        ("respin", in_respin, []),
    ],
)
def test_the_papers_recipes_run_from_corpus_to_score(recipe, corpus, units, front_end, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    source, folder, *options = corpus(tmp_path / "in")
    frozen = [] if recipe == "respin" else ["--features.name", str(front_end)]
    assert main(["prepare", source, folder, "data", *options]) == 0
    words = [*frozen, *units, *SMALL.split(), "--data.dir", "data"]
    assert main(["train", recipe, "--out", "run", "--criterion", "otc-tw", *words]) == 0
    assert main(["decode", "run", "data/test.jsonl.gz"]) == 0
    assert main(["score", "run/hyp/test.jsonl"]) == 0
    assert "WER" in capsys.readouterr().out
    [row] = read_rows(tmp_path / "run/metrics.jsonl")
    assert row["bypass"] == -25
    assert "each at 3 speeds" in (tmp_path / "run/log.txt").read_text()


def test_alphabet_of_the_miniatures_is_heard(tmp_path):
    assert letters(["ab", "b c"]) == "abc"
    assert write_wave(tmp_path / "x/a.wav", "ab c", "abc").stat().st_size == 44 + 2 * 6 * 1600
