"""`wildctc align`: times and bypassed tokens of transcripts, right and wrong ones, on the graph of any criterion."""

import json

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, make_corpus, say, write_rows

from wildctc import CRITERIA, Criterion
from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.training.config import load_recipe
from wildctc.training.criterion_at import criterion_at
from wildctc.training.loop import train

# What was said, and what the transcript claims.
SPOKEN = {"right": ("bad cafe", "bad cafe"), "wrong": ("bad cafe", "bad cdfe"), "other": ("bad cafe", "bad deb"),
          "more": ("bad fed cafe", "bad cafe")}  # fmt: skip

pytestmark = pytest.mark.slow  # trains a model


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A run with an entropy criterion on tones, and told.jsonl with right and wrong transcripts."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("align")
    config = load_recipe(str(make_corpus(folder, {"train": 100, "dev": 5})))
    config.data.workers, config.training.epochs, config.criterion, config.schedule.h_low = 0, 8, "otc-tw-h", 0.2
    train(config, folder / "run")
    rng, rows = np.random.default_rng(1), []
    for name, (said, text) in SPOKEN.items():
        soundfile.write(folder / f"{name}.wav", say(said, rng), RATE)
        rows.append({"id": name, "audio": f"{name}.wav", "text": text})
    write_rows(folder / "told.jsonl", rows)
    return folder


def align(corpus, capsys, *words):
    assert main(["align", str(corpus / "run"), str(corpus / "told.jsonl"), "--workers", "0", *words]) == 0
    return capsys.readouterr().out


def as_json(corpus, capsys, *words):
    rows = map(json.loads, align(corpus, capsys, "--format", "json", *words).splitlines())
    return {row["id"]: row for row in rows}


def test_times_are_those_of_the_letters(corpus, capsys):
    found = as_json(corpus, capsys)
    assert list(found) == list(SPOKEN)
    tokens = [token for word in found["right"]["words"] for token in word["tokens"]]
    assert "".join(token["text"] for token in tokens) == "bad cafe"
    for i, token in enumerate(tokens):
        if token["text"] != " ":
            assert (token["start"] + token["end"]) / 2 == pytest.approx(0.12 * (i + 0.5), abs=0.08)
        assert not token["bypassed"]
    first, second = found["right"]["words"]
    assert (first["text"], second["text"]) == ("bad", "cafe")
    assert first["end"] < second["start"] == pytest.approx(4 * 0.12, abs=0.1)


def test_a_wrong_letter_is_bypassed_and_its_word_marked(corpus, capsys):
    found = as_json(corpus, capsys)["wrong"]
    bypassed = [token["text"] for word in found["words"] for token in word["tokens"] if token["bypassed"]]
    assert bypassed == ["d"]
    assert [word["bypassed_share"] for word in found["words"]] == [0.0, 0.25]
    assert "wrong: 1 of 8 tokens bypassed\n" in align(corpus, capsys)
    assert "  c[d]fe\n" in align(corpus, capsys)


def test_a_word_that_was_not_said_is_bypassed_as_a_whole_where_the_graph_has_word_arcs(corpus, capsys):
    words = "--bypass none --word-bypass -1 --self-loop none"
    found = as_json(corpus, capsys, *words.split())
    assert [word["bypassed_share"] for word in found["other"]["words"]] == [0.0, 1.0]
    assert [word["bypassed_share"] for word in found["right"]["words"]] == [0.0, 0.0]
    assert "  [deb]\n" in align(corpus, capsys, *words.split())


def test_unwritten_speech_is_a_star_between_the_words(corpus, capsys):
    found = as_json(corpus, capsys)["more"]
    assert found["unwritten"]
    middle = [(star["start"] + star["end"]) / 2 for star in found["unwritten"]]
    assert all(4 * 0.12 - 0.1 < second < 7 * 0.12 + 0.1 for second in middle)
    assert "★" in align(corpus, capsys)


def test_an_empty_transcript_is_all_unwritten_speech(corpus, tmp_path, capsys):
    rows = [
        {"id": i, "audio": str(corpus / "right.wav"), "text": text} for i, text in (("told", "bad cafe"), ("not", ""))
    ]
    write_rows(tmp_path / "m.jsonl", rows)
    assert main(["align", str(corpus / "run"), str(tmp_path / "m.jsonl"), "--workers", "0"]) == 0
    assert "\nnot: 0 of 0 tokens bypassed, 1 × unwritten speech\n" in capsys.readouterr().out


def test_ctm_has_a_line_for_each_word_and_says_what_was_bypassed(corpus, capsys):
    rows = [line.split(" ") for line in align(corpus, capsys, "--format", "ctm").splitlines()]
    assert all(len(row) == 6 and row[1] == "1" for row in rows)
    wrong = [(word, confidence) for id, _, _, _, word, confidence in rows if id == "wrong"]
    assert wrong == [("bad", "1.00"), ("cdfe", "0.75")]
    for id in SPOKEN:
        starts = [float(row[2]) for row in rows if row[0] == id]
        assert starts == sorted(starts)


def test_plain_ctc_bypasses_nothing(corpus, capsys):
    for row in as_json(corpus, capsys, "--criterion", "ctc").values():
        assert not any(token["bypassed"] for word in row["words"] for token in word["tokens"])
        assert not row["unwritten"]


def test_output_goes_to_a_file(corpus, tmp_path, capsys):
    words = ["--format", "ctm", "--criterion", "otc-tw", "--epoch", "30"]
    printed = align(corpus, capsys, *words)
    said = align(corpus, capsys, *words, "-o", str(tmp_path / "out.ctm"))
    assert said == f"{tmp_path}/out.ctm: {len(SPOKEN)} utterances\n"
    assert (tmp_path / "out.ctm").read_text() == printed


def test_the_weights_of_a_runs_epoch_are_those_that_it_was_trained_with(corpus):
    metrics = [json.loads(line) for line in (corpus / "run/metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["bypass"] > metrics[0]["bypass"]  # they have moved
    for row in metrics:
        wildcards = criterion_at(None, row["epoch"], corpus / "run").wildcards
        for name in ("bypass", "self_loop", "word_bypass"):
            assert getattr(wildcards, name) == pytest.approx(row[name])
    assert criterion_at(None, None, corpus / "run").epoch == len(metrics)


@pytest.mark.parametrize("name", CRITERIA)
def test_a_published_schedule_needs_a_run_only_if_it_follows_entropy(name, corpus):
    criterion = Criterion(name)
    assert repr(criterion_at(name)) == repr(criterion)
    if criterion.rates is not None:
        with pytest.raises(WildCTCError, match="name a run"):
            criterion_at(name, 3)
    elif criterion.needs_entropy:
        with pytest.raises(WildCTCError, match="name a run"):
            criterion_at(name, 3)
        assert criterion_at(name, 8, corpus / "run").epoch == 8
        with pytest.raises(WildCTCError, match="has 8 epochs"):
            criterion_at(name, 10, corpus / "run")
    else:
        criterion.step()
        assert repr(criterion_at(name, 2)) == repr(criterion)


def test_transcripts_that_cannot_be_aligned_are_named_and_left_out(corpus, tmp_path, capsys):
    rows = [
        {"id": "ok", "audio": str(corpus / "right.wav"), "text": "bad cafe"},
        {"id": "odd", "audio": str(corpus / "right.wav"), "text": "bäd"},
        {"id": "long", "audio": str(corpus / "right.wav"), "text": "bad cafe " * 40},
        {"id": "gone", "audio": "gone.wav", "text": "bad"},
    ]
    write_rows(tmp_path / "m.jsonl", rows)
    words = ["align", str(corpus / "run"), str(tmp_path / "m.jsonl"), "--workers", "0"]
    assert main(words) == 2
    capsys.readouterr()
    assert main([*words, "--max-bad", "0.75"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("ok: 0 of 8")
    for reason in (
        "odd (",
        "characters outside the units: ä",
        "long (",
        "transcript too long",
        "gone (",
        "no such file",
    ):
        assert reason in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--criterion", "otc"], "no criterion is called 'otc'"),
        (["--epoch", "3"], "--epoch is for --criterion"),
        (["--criterion", "otc-t", "--epoch", "0"], "no epoch 0"),
        (["--bypass", "much"], "argument --bypass"),
        (["--bypass", "inf"], "must be a number or none"),
        (["--split", "dev"], "no utterances of split 'dev'"),
        (["-o", "."], "cannot write ."),
    ],
)
def test_mistakes_are_one_line(corpus, capsys, words, message):
    assert main(["align", str(corpus / "run"), str(corpus / "told.jsonl"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_manifest_without_texts_and_a_model_without_its_run_say_so(corpus, tmp_path, capsys):
    write_rows(tmp_path / "m.jsonl", [{"audio": str(corpus / "right.wav")}])
    assert main(["align", str(corpus / "run"), str(tmp_path / "m.jsonl")]) == 2
    assert "no utterance of the manifest has a text" in capsys.readouterr().err
    words = ["align", str(corpus / "run/model"), str(corpus / "told.jsonl"), "--workers", "0"]
    assert main([*words, "--criterion", "run"]) == 2
    assert "its settings are not known" in capsys.readouterr().err
    assert main([*words, "--criterion", "otc-t", "--epoch", "20"]) == 0


def test_each_utterance_gets_a_file_of_other_formats(corpus, capsys, tmp_path):
    for format, ending, shown in (
        ("textgrid", "TextGrid", '"bad"'),
        ("srt", "srt", "bad cafe"),
        ("vtt", "vtt", "WEBVTT"),
    ):
        assert "4 files" in align(corpus, capsys, "--format", format, "-o", str(tmp_path / format))
        assert shown in (tmp_path / format / f"right.{ending}").read_text()
    assert "★" in (tmp_path / "textgrid" / "more.TextGrid").read_text()


def test_supervisions_of_lhotse_have_the_words(corpus, capsys, tmp_path):
    lhotse = pytest.importorskip("lhotse")
    align(corpus, capsys, "--format", "lhotse", "-o", str(tmp_path / "s.jsonl"))
    found = lhotse.SupervisionSet.from_jsonl(tmp_path / "s.jsonl")
    assert [item.symbol for item in found["right"].alignment["word"]] == ["bad", "cafe"]
    assert found["wrong"].alignment["word"][1].score == 0.75
