"""Alternatives in `wildctc decode`, `align`, `probe` and `variants`: which one was said, by a model of tones."""

import json

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, make_corpus, say, write_rows

from wildctc.cli import main
from wildctc.probe.records import read_probe
from wildctc.training.config import load_recipe
from wildctc.training.loop import train

# What was said, and the transcript.
SPOKEN = {
    "second": ("bad cafe", {"text": "bad {deb|cafe|face}"}),
    "optional": ("bad cafe", {"text": "{fed|} bad cafe"}),
    "phrase": ("bad fed cafe", {"text": "bad {deb|fed cafe}"}),
    "variant": ("bad cafe", {"text": "bad deb"}),
    "several": ("bad cafe", {"texts": {"ann": "bad deb", "ben": "bad cafe"}}),
    "plain": ("bad cafe", {"text": "bad cafe"}),
}

pytestmark = pytest.mark.slow  # trains a model


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("alternatives")
    config = load_recipe(str(make_corpus(folder, {"train": 100, "dev": 5})))
    config.data.workers, config.training.epochs = 0, 4
    train(config, folder / "run")
    rng, rows = np.random.default_rng(1), []
    for name, (said, transcript) in SPOKEN.items():
        soundfile.write(folder / f"{name}.wav", say(said, rng), RATE)
        rows.append({"id": name, "audio": f"{name}.wav", **transcript})
    write_rows(folder / "told.jsonl", rows)
    (folder / "variants.txt").write_text("deb cafe  # the same word, for this test\n")
    return folder


def run(corpus, capsys, command, *words):
    given = [command, str(corpus / "run"), str(corpus / "told.jsonl"), "--workers", "0", *words]
    assert main(given) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_align_tells_which_alternative_was_said_and_how_surely(corpus, capsys):
    out = run(corpus, capsys, "align", "--format", "json", "--variants", str(corpus / "variants.txt"))
    rows = {row["id"]: row for row in map(json.loads, out.splitlines())}
    for name, (said, _) in SPOKEN.items():
        assert rows[name]["text"] == said
        assert " ".join(word["text"] for word in rows[name]["words"]) == said
    [choice] = rows["second"]["choices"]
    assert choice["alternatives"] == ["deb", "cafe", "face"]
    assert choice["probabilities"][1] > 0.9
    assert sum(choice["probabilities"]) == pytest.approx(1, abs=1e-4)
    assert (choice["word"], choice["length"]) == (1, 1)
    choice = rows["optional"]["choices"][0]
    assert (choice["alternatives"], choice["length"]) == (["fed", ""], 0)
    assert rows["phrase"]["choices"][0]["length"] == 2
    assert "choices" in rows["plain"]  # cafe is a word of the file of variants
    text = run(corpus, capsys, "align")
    assert "said  cafe 1.00, deb 0.00" in text


def test_probe_tells_the_same_and_probes_what_was_said(corpus, tmp_path, capsys):
    run(corpus, capsys, "probe", "-o", str(tmp_path / "probe.jsonl"))
    found = {u.id: u for u in read_probe(tmp_path / "probe.jsonl")[1]}
    for name, (said, _) in SPOKEN.items():
        assert found[name].text == ("bad deb" if name == "variant" else said)
    [choice] = found["second"].choices
    assert choice.alternatives[int(np.argmax(choice.probabilities))] == "cafe"
    assert not found["plain"].choices
    assert max(token.bypass for token in found["several"].tokens) < 0.5
    assert max(word.bypass for word in found["variant"].words) > 0.5


def test_decode_scores_against_the_nearest_writing(corpus, tmp_path, capsys):
    hyp = tmp_path / "hyp.jsonl"
    out = run(corpus, capsys, "decode", "-o", str(hyp), "--variants", str(corpus / "variants.txt"))
    assert "WER 0.00%" in out
    assert "another writing than the first in " in out
    rows = {row["id"]: row for row in map(json.loads, hyp.read_text().splitlines())}
    assert rows["second"]["reference"] == "bad {deb|cafe|face}"
    assert rows["several"]["reference"] == "bad {deb|cafe}"
    assert rows["variant"]["reference"] == "bad {deb|cafe}"
    assert main(["score", str(hyp)]) == 0
    assert "with alternatives: 6 of 6 references" in capsys.readouterr().out


def test_variants_counts_what_is_written_and_what_is_spoken(corpus, tmp_path, capsys):
    words = ["--lexicon", str(corpus / "variants.txt"), "-o", str(tmp_path / "v.tsv")]
    out = run(corpus, capsys, "variants", *words)
    rows = [line.split("\t") for line in (tmp_path / "v.tsv").read_text().splitlines()]
    assert rows[0] == ["group", "variant", "written", "spoken"]
    found = {row[1]: (int(row[2]), float(row[3])) for row in rows if row[0] == "1"}
    assert found["deb"][0] == 2  # variant, several
    assert found["cafe"] == (2, pytest.approx(4, abs=0.1))  # optional, plain
    people = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.startswith(("ann ", "ben "))}
    assert people == {"ann": ["1", "0.0%"], "ben": ["1", "100.0%"]}
    manifest = corpus / "none.jsonl"
    write_rows(manifest, [{"id": "plain", "audio": "plain.wav", "text": "bad"}])
    assert main(["variants", str(corpus / "run"), str(manifest), "--workers", "0"]) == 2
    assert "no transcript has alternatives" in capsys.readouterr().err


def test_a_transcript_that_fits_in_no_writing_is_skipped_and_named(corpus, tmp_path, capsys):
    long = " ".join(["abcdef"] * 9)
    write_rows(corpus / "long.jsonl", [
        {"id": "long", "audio": "plain.wav", "text": f"{long} {{a|b}}"},
        {"id": "plain", "audio": "plain.wav", "text": "bad"},
    ])  # fmt: skip
    for command, *words in (["align"], ["probe", "-o", str(tmp_path / "p.jsonl")]):
        given = [command, str(corpus / "run"), str(corpus / "long.jsonl"), "--workers", "0", "--max-bad", "0.5", *words]
        assert main(given) == 0
        assert "long" in capsys.readouterr().err
