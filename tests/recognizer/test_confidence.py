"""Confidences of words: fitted on dev, right on other words, and written by decode and transcribe."""

import json

import numpy as np
import pytest
import torch
from support.tones import make_corpus, read_rows

import wildctc
from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.recognizer.confidence import (
    Calibration,
    calibration_error,
    cross_fitted,
    draw_reliability,
    gather_evidence,
    reliability,
    token_probability,
)


def drawn(words, seed):
    """Evidence, and words that are right with a known probability."""
    rng = np.random.default_rng(seed)
    evidence = -rng.exponential(1.0, (words, 3))
    truth = 1 / (1 + np.exp(-(3.0 + 2.0 * evidence[:, 0] + 1.0 * evidence[:, 2])))
    return evidence, (rng.random(words) < truth).astype(float), truth


def test_the_fit_finds_the_probabilities_that_words_were_drawn_with():
    evidence, right, _ = drawn(20000, 0)
    found = Calibration.fit(evidence, right)
    assert found.bias == pytest.approx(3.0, abs=0.2)
    assert found.weights == pytest.approx((2.0, 0.0, 1.0), abs=0.15)
    others, _, truth = drawn(500, 1)
    assert np.abs(np.array([found(row) for row in others]) - truth).max() < 0.05


def test_calibration_makes_the_error_small_on_words_that_it_has_not_seen():
    evidence, right, _ = drawn(4000, 2)
    before = reliability(np.exp(evidence[:, 0]), right)
    after = reliability(cross_fitted(evidence, right, np.arange(len(right)) // 5), right)
    assert calibration_error(after) < 0.03 < calibration_error(before)
    assert draw_reliability(before, after).startswith(b"<?xml")


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_words_that_are_all_right_or_all_wrong_give_finite_weights(value):
    evidence, _, _ = drawn(50, 3)
    found = Calibration.fit(evidence, np.full(50, value))
    assert np.isfinite([found.bias, *found.weights]).all()
    assert abs(np.mean([found(row) for row in evidence]) - value) < 0.1


def test_the_evidence_of_a_word_is_that_of_its_tokens_and_frames():
    log_probs = np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
    found = gather_evidence(log_probs, [(1, 0, 2), (2, 2, 3)])
    p = np.array([np.sqrt(0.8 * 0.6), 0.6, np.cbrt(0.5 * 0.8 * 0.6)])
    assert found == pytest.approx(np.log(p / (1 - p)))
    assert token_probability(np.array([found])) == pytest.approx(p[:1])


@pytest.mark.parametrize("content", ['{"bias": 1}', '{"format": 1, "bias": NaN, "weights": [1, 2, 3]}', "[]", "{"])
def test_a_damaged_calibration_is_refused(tmp_path, content):
    (tmp_path / "confidence.json").write_text(content)
    with pytest.raises(WildCTCError):
        Calibration.load(tmp_path)


@pytest.mark.slow
def test_decode_and_transcribe_write_the_confidences_of_a_calibrated_model(tmp_path, capsys, one_thread):
    recipe = make_corpus(tmp_path)
    run = tmp_path / "run"
    assert main(["train", str(recipe), "--out", str(run), "--training.epochs", "4", "--data.workers", "0"]) == 0
    hyp = str(tmp_path / "hyp.jsonl")
    decode = ["decode", str(run), str(tmp_path / "test.jsonl"), "--workers", "0", "-o", hyp]
    assert main(decode) == 0
    assert all("confidence" not in row for row in read_rows(tmp_path / "hyp.jsonl"))
    assert main(["calibrate", str(run), str(tmp_path / "dev.jsonl"), "--workers", "0"]) == 0
    assert "calibrated, by cross-fitting" in capsys.readouterr().out
    assert (run / "confidence.svg").read_text().startswith("<?xml")
    assert main([*decode[:-1], hyp + "2.jsonl"]) == 0
    rows = read_rows(tmp_path / "hyp.jsonl2.jsonl")
    assert all(len(row["confidence"]) == len(row["text"].split()) for row in rows)
    assert any(row["confidence"] for row in rows)
    capsys.readouterr()
    assert main(["transcribe", str(run), str(tmp_path / "test0.wav"), "--format", "json"]) == 0
    words = json.loads(capsys.readouterr().out)["words"]
    assert [word["confidence"] for word in words] == rows[0]["confidence"]
    model = wildctc.load(run)
    model.save(tmp_path / "copy")
    assert wildctc.load(tmp_path / "copy").calibration == model.calibration
    assert torch.is_tensor(model.mean)
