"""Probing a Hugging Face CTC checkpoint by its folder, without a network."""

import json
import sys

import numpy as np
import pytest
import soundfile
import torch
from support.tones import make_corpus, read_rows, say, write_rows

transformers = pytest.importorskip("transformers")

from support.tiny_hf import make_checkpoint  # noqa: E402

from wildctc.cli import main  # noqa: E402
from wildctc.errors import MissingExtra, WildCTCError  # noqa: E402
from wildctc.probe.graphs import probe_logits  # noqa: E402
from wildctc.probe.records import read_probe  # noqa: E402
from wildctc.recognizer.hf_checkpoint import Checkpoint  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf")
    make_corpus(folder, {"test": 4})
    make_checkpoint(folder / "lower")
    make_checkpoint(folder / "upper", "ABCDEF'")
    return folder


def own_logits(path, wave):
    """As one would with transformers alone, and the vocabulary."""
    processor = transformers.AutoProcessor.from_pretrained(path)
    model = transformers.AutoModelForCTC.from_pretrained(path).eval()
    given = processor(wave, sampling_rate=16000, return_tensors="pt")
    with torch.no_grad():
        return model(given.input_values).logits[0], processor.tokenizer.get_vocab()


def test_logits_are_the_checkpoints_own_with_the_blank_first(folder):
    wave = say("fade a cab", np.random.default_rng(0))
    expected, vocabulary = own_logits(folder / "lower", wave)
    model = Checkpoint(folder / "lower")
    [logits] = model.batch_logits([model.front_end.extract(wave)])
    blank = vocabulary["<pad>"]
    assert blank != 0
    assert torch.allclose(logits[:, 0], expected[:, blank], atol=1e-5)
    for token, label in vocabulary.items():
        if len(token) == 1:
            shown = " " if token == "|" else token
            assert torch.allclose(logits[:, model.units.tokens.index(shown)], expected[:, label], atol=1e-5)
    assert model.frame_rate == 200.0
    assert len(logits) == pytest.approx(200 * len(wave) / 16000, abs=2)


def test_the_command_probes_a_checkpoint(folder, capsys):
    words = ["probe", "--hf", str(folder / "lower"), str(folder / "test.jsonl"), "-o", str(folder / "p.jsonl")]
    assert main([*words, "--workers", "0"]) == 0
    assert "4 utterances" in capsys.readouterr().out
    header, found = read_probe(folder / "p.jsonl")
    assert header["normalizer"] == {"lower": True, "strip_punctuation": True}
    model = Checkpoint(folder / "lower")
    for row, utterance in zip(read_rows(folder / "test.jsonl"), found, strict=True):
        assert utterance.text == row["text"]
        wave = soundfile.read(folder / row["audio"], dtype="float32")[0]
        [logits] = model.batch_logits([model.front_end.extract(wave)])
        labels = torch.tensor(model.units.encode(row["text"]))
        [expected] = probe_logits(logits, labels, [len(logits)], [len(labels)], tokens=model.units.tokens)
        assert [t.bypass for t in utterance.tokens] == pytest.approx([t.bypass for t in expected.tokens], rel=1e-3)
    assert main([*words, "--self-loop", "-1"]) == 2
    assert "another self-loop weight" in capsys.readouterr().err


def test_transcripts_are_brought_into_the_vocabularys_case_and_lose_punctuation(folder):
    units = Checkpoint(folder / "upper").units
    spelled = "".join(units.tokens[label] for label in units.encode("Face, a dead  bad-be’ef!"))
    assert spelled == "FACE A DEAD BAD BE'EF"
    assert units.missing("Café 1") == ["É", "1"]


@pytest.mark.parametrize("letters", ["\u095cकाल", "ड\u093cकाल", "\u095cड\u093cकाल"])
def test_a_letter_that_nfc_takes_apart_is_written_as_the_vocabulary_has_it(folder, tmp_path, letters):
    units = Checkpoint(make_checkpoint(tmp_path / "hindi", letters)).units
    assert units.missing("लड\u093cका, ल\u095cका!") == []  # typed in two ways, with punctuation that it has not
    labels = units.encode("लड\u093cका ल\u095cका")
    assert "".join(units.tokens[label] for label in labels) == "लड\u093cका लड\u093cका"
    assert len(labels) == (9 if "\u095c" in letters else 11)


def test_characters_outside_the_vocabulary_leave_the_utterance_out_with_a_line(folder, capsys):
    rows = read_rows(folder / "test.jsonl")
    rows[0] |= {"text": "zebra cab"}
    write_rows(folder / "odd.jsonl", rows)
    words = ["probe", "--hf", str(folder / "lower"), str(folder / "odd.jsonl"), "-o", str(folder / "odd-p.jsonl")]
    assert main([*words, "--workers", "0", "--max-bad", "0.3"]) == 0
    assert "characters outside the units: z (U+007A), r (U+0072)" in capsys.readouterr().err
    assert set(read_probe(folder / "odd-p.jsonl")[0]["left_out"]) == {"test0"}


def test_a_wave_too_short_for_a_frame_gives_none(folder):
    model = Checkpoint(folder / "lower")
    [logits] = model.batch_logits([model.front_end.extract(np.ones(10, np.float32))])
    assert logits.shape == (0, len(model.units.tokens))


def test_a_model_without_its_output_layer_is_refused(folder, tmp_path):
    make_checkpoint(tmp_path / "base")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "base")
    transformers.Wav2Vec2Model(config).save_pretrained(tmp_path / "base")
    with pytest.raises(WildCTCError, match=r"no weights for lm_head.* not fine-tuned with CTC\?"):
        Checkpoint(tmp_path / "base")


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(WildCTCError, match=r"no config.json\); give a local folder"):
        Checkpoint(tmp_path)


def test_tokens_of_several_characters_are_refused(tmp_path):
    make_checkpoint(tmp_path / "pieces")
    vocabulary = json.loads((tmp_path / "pieces/vocab.json").read_text())
    vocabulary["the"] = vocabulary.pop("a")
    (tmp_path / "pieces/vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(WildCTCError, match="token 'the' has several characters"):
        Checkpoint(tmp_path / "pieces")


def test_without_transformers_one_line_names_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"extra hf"):
        Checkpoint(folder / "lower")


def test_a_checkpoint_aligns_transcribes_and_segments(folder, capsys):
    """Its weights are random, so nothing is found; what is written has the text, and times within the audio."""
    (folder / "text.txt").write_text("Fade, a cab!")
    soundfile.write(folder / "said.wav", say("fade a cab", np.random.default_rng(0)), 16000)
    for name in ("lower", "upper"):
        long = [str(folder / name), str(folder / "said.wav"), str(folder / "text.txt"), "--hf", "--least", "0"]
        assert main(["align-long", *long, "-o", str(folder / f"{name}.json")]) == 0
        words = json.loads((folder / f"{name}.json").read_text())["words"]
        assert [word["text"] for word in words] == ["Fade,", "a", "cab!"]
        assert all(0 <= word["start"] <= word["end"] <= 1.2 for word in words)
        assert main(["segment", *long, "-o", str(folder / f"{name}-cut")]) == 0
        assert main(["transcribe", "--hf", str(folder / name), str(folder / "said.wav"), "--beam", "1"]) == 0
        aligned = ["align", "--hf", str(folder / name), str(folder / "test.jsonl"), "--workers", "0"]
        assert main([*aligned, "--format", "ctm"]) == 0
        assert "test0 1 " in capsys.readouterr().out
    assert main([*aligned, "--criterion", "run"]) == 2
