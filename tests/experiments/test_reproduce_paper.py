"""The paper's experiments, from corpora as their publishers ship them, oddities included, to its tables and figures."""

import json

import pytest
import torch
from support.miniatures import fleurs, librispeech, respin, tiny_model
from support.reproducing import install, reproduce

from wildctc.corpora.manifest import load_manifest
from wildctc.errors import WildCTCError
from wildctc.experiments.results import RunResult
from wildctc.experiments.validators import find_validators

HINDI = ["फल और कंद", "नमक का दाम", "दाल और फल", "कल का दाम"]
ASKED = ["दाम क्या है ?", "कल आना , घर पर", "फल खाओ"]
ENGLISH = ["so it goes", "we go home", "she goes so far", "home so far", "far so good", "we see it"]
WORDS = """--encoder.d_model 16 --encoder.heads 2 --encoder.blocks 1 --encoder.ff_dim 32 --encoder.kernel 3
--data.workers 0 --data.batch_seconds 60 --data.speeds 1.0 --training.epochs 1 --training.average 1"""
SMALL = WORDS.split()


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield install(monkeypatch)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def front_end(tmp_path_factory):
    pytest.importorskip("transformers")
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def result(out, name):
    return RunResult.load(out / "runs" / name / "result.json")


# ---------------------------------------------------------------------------------------------------------- LibriSpeech


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """With a subset that no experiment uses."""
    folder = tmp_path_factory.mktemp("books")
    subsets = ("train-clean-100", "train-other-500", "dev-clean", "dev-other", "test-clean", "test-other")
    for speaker, subset in enumerate(subsets):
        librispeech(folder, ENGLISH, subset, str(speaker))
    return folder


@pytest.fixture(scope="module")
def on_books(books, front_end):
    def run(experiment, out, *words):
        settings = ["--features.name", front_end, "--data.vocab_size", 25, *SMALL]
        return reproduce(experiment, "--data", books, "--out", out, *words, *settings)

    return run


@pytest.mark.slow
def test_librispeech_and_its_conformer_are_two_tables_of_the_same_data(on_books, runs, tmp_path):
    for experiment in ("table2-librispeech", "table3-conformer"):
        assert on_books(experiment, tmp_path, "--criteria", "ctc", "otc-tw") == 0
    assert len(runs.of("prepare")) == 1
    found = result(tmp_path, "librispeech/otc-tw/seed0")
    assert {name: len(test.ids) for name, test in found.tests.items()} == {"test-clean": 6, "test-other": 6}
    assert len(load_manifest(tmp_path / "data/librispeech/train.jsonl.gz")) == 6
    assert len(load_manifest(tmp_path / "data/librispeech/dev.jsonl.gz")) == 12
    conformer = result(tmp_path, "librispeech-conformer/otc-tw/seed0")
    assert (found.task, conformer.task) == ("librispeech", "librispeech")
    assert (found.config["encoder"]["kind"], conformer.config["encoder"]["kind"]) == ("e_branchformer", "conformer")
    for experiment, title in (("table2-librispeech", "Table 2"), ("table3-conformer", "Table 3")):
        written = (tmp_path / f"{experiment}.md").read_text()
        assert title in written
        assert "test-other" in written
        assert (tmp_path / f"{experiment}.tex").exists()


@pytest.mark.slow
def test_sweeps_share_ten_hours_and_plain_ctc(on_books, runs, tmp_path):
    """A part of each: ctc and some points."""
    for experiment, part in (("figure2-tau", "1/4"), ("figure2-kappa", "1/3"), ("retune-otc-w", "1/7")):
        assert on_books(experiment, tmp_path, "--shard", part) == 0
        assert (tmp_path / f"{experiment}.svg").exists()
    assert len(runs.of("prepare")) == 1
    assert len([words for words in runs.of("train") if words[words.index("--criterion") + 1] == "ctc"]) == 1
    words = runs.of("prepare")[0]
    assert words[words.index("--hours") + 1] == "10"
    found = result(tmp_path, "librispeech-10h/otc-t-tau0.775/seed0")
    assert found.setting == {"τ": 0.775}
    assert list(found.tests) == ["dev-clean+dev-other"]
    assert len(found.tests["dev-clean+dev-other"].ids) == 12
    assert result(tmp_path, "librispeech-10h/otc-t-h-kappa1.3/seed0").config["schedule"]["kappa"] == 1.3
    retuned = result(tmp_path, "librispeech-10h/otc-w-tuned-word0.95-self3.75/seed0")
    assert retuned.setting == {"word bypass τ": 0.95, "self-loop": 3.75}


# --------------------------------------------------------------------------------------------------------------- FLEURS


@pytest.mark.slow
def test_fleurs_with_recordings_missing_and_sentences_repeated(front_end, tmp_path):
    folder = fleurs(tmp_path / "FLEURS/data/hi_in", HINDI, readers=3)
    fleurs(tmp_path / "FLEURS/data/ta_in", ["ab a", "ba b"])
    for path in sorted((folder / "audio/train").iterdir())[::3]:  # one reader of each sentence
        path.unlink()
    words = ["--data", tmp_path / "FLEURS", "--out", tmp_path / "out", "--features.name", front_end, *SMALL]
    assert reproduce("table2-fleurs", "--tasks", "hi_in", "ta_in", "--criteria", "ctc", "otc-t", *words) == 0
    assert len(load_manifest(tmp_path / "out/data/fleurs/hi_in/train.jsonl.gz")) == 8
    assert len(result(tmp_path / "out", "hi_in/otc-t/seed0").tests["test"].ids) == 4
    written = (tmp_path / "out/table2-fleurs.md").read_text()
    assert "hi_in" in written
    assert "31.71" in written  # as published


@pytest.mark.slow
def test_a_language_that_is_not_there_fails_once_and_the_others_are_done(front_end, runs, tmp_path, capsys):
    fleurs(tmp_path / "FLEURS/hi_in", HINDI)
    fleurs(tmp_path / "FLEURS/te_in", HINDI)
    words = ["--data", tmp_path / "FLEURS", "--out", tmp_path / "out", "--features.name", front_end, *SMALL]
    assert reproduce("table2-fleurs", "--tasks", "ta_in", "hi_in", "--criteria", "ctc", "otc-t", *words) == 2
    said = capsys.readouterr()
    assert said.out.count("with --language: hi_in, te_in") == 4  # each run, when it fails and when it is missed
    assert len([words for words in runs.of("prepare") if "ta_in" in words]) == 1
    assert "2 of 4 runs failed" in said.err
    assert result(tmp_path / "out", "hi_in/otc-t/seed0").tests


# --------------------------------------------------------------------------------------------------------------- RESPIN


@pytest.fixture(scope="module")
def villages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("villages")
    for name, readers in (("train_hi_small", 3), ("dev_hi", 1), ("test_hi", 2), ("train_te_small", 1)):
        respin(folder, ASKED, name, readers)
    return folder


@pytest.fixture
def validators(villages, tmp_path):
    """Three people wrote down dev and test; two of them change a letter of each utterance."""
    folder = tmp_path / "validators"
    folder.mkdir()
    for k, vendor in enumerate(("one", "two", "three")):
        lines = []
        for name in ("dev_hi", "test_hi"):
            meta = json.loads((villages / f"IISc_RESPIN_{name}/meta_{name}.json").read_text(encoding="utf-8"))
            lines += [f"{id} {'क' * k + row['text'][k:]}\n" for id, row in meta.items()]
        (folder / f"hi_{vendor}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_respin_to_its_table_and_where_its_validators_disagree(villages, validators, runs, tmp_path):
    out = tmp_path / "out"
    words = ["--data", villages, "--out", out, "--tasks", "hi", *SMALL]
    assert reproduce("table2-respin", "--criteria", "ctc", "otc-t", *words) == 0
    train = load_manifest(out / "data/respin/hi/train.jsonl.gz")
    assert sorted(u.text for u in train) == sorted(["दाम क्या है", "कल आना घर पर", "फल खाओ"])  # each once, no ? or ,
    assert set(result(out, "hi/ctc/seed0").tests["test"].speakers) == {"90000", "90001"}
    assert "20.74" in (out / "table2-respin.md").read_text()
    trained = len(runs.of("train"))
    words += ["--validators", validators, "--keep", tmp_path / "kept"]
    assert reproduce("table4-disagreement", "--criteria", "ctc", "otc-t", *words) == 0
    assert (len(runs.of("train")), len(runs.of("probe")), len(runs.of("disagree"))) == (trained, 2, 1)
    kept = RunResult.load(tmp_path / "kept/hi/otc-t/seed0.json").audit["disagreement"]
    [everything, *splits] = kept["groups"]
    assert [group["split"] for group in splits] == ["dev", "test"]
    assert everything["characters"]["units"]["disputed"] > 0
    assert list(everything["characters"]["systems"]) == ["otc-t"]
    assert "Table 4" in (out / "table4-disagreement.md").read_text()
    assert reproduce("table4-disagreement", "--criteria", "ctc", "otc-t", *words) == 0
    assert (len(runs.of("probe")), len(runs.of("disagree"))) == (2, 1)  # nothing twice
    written = validators / "hi_two.txt"
    written.write_text(written.read_text(encoding="utf-8").replace("क", "ख"), encoding="utf-8")
    assert reproduce("table4-disagreement", "--criteria", "ctc", "otc-t", *words) == 0
    assert (len(runs.of("probe")), len(runs.of("disagree"))) == (2, 2)  # somebody has corrected a transcript
    assert reproduce("table4-disagreement", "--from", tmp_path / "kept", "--out", tmp_path / "again", *words[4:6]) == 0
    assert "Table 4" in (tmp_path / "again/table4-disagreement.md").read_text()


def test_validators_are_found_by_language_in_names_or_folders(tmp_path):
    for name in ("hi_one.txt", "hi_two.txt", "mt.tsv", "te/one.txt", "readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = find_validators(tmp_path, ["hi", "mt", "te"])
    assert {task: [path.name for path in paths] for task, paths in found.items()} == {
        "hi": ["hi_one.txt", "hi_two.txt"], "mt": ["mt.tsv"], "te": ["one.txt"],
    }  # fmt: skip
    with pytest.raises(WildCTCError, match=r"no files of kn there, such as kn_vendor1\.tsv"):
        find_validators(tmp_path, ["kn"])
