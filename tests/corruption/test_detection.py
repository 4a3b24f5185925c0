"""How well errors are found: the measures, and the benchmarks that report them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.tones import make_corpus

from wildctc.corruption.detection import ScoredUnits, measure_detection, roc

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def units(scores, wrong, utterance=None):
    wrong = np.array(wrong, dtype=bool)
    utterance = np.arange(len(wrong)) if utterance is None else np.array(utterance)
    return ScoredUnits(wrong, utterance, {"score": np.array(scores, dtype=float)})


def auc_by_pairs(scores, wrong):
    pairs = [
        (s, t) for s, w in zip(scores, wrong, strict=True) if w for t, v in zip(scores, wrong, strict=True) if not v
    ]
    return np.mean([float(s > t) for s, t in pairs])


def test_auc_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    scores, wrong = rng.random(60), rng.random(60) < 0.3
    assert measure_detection(units(scores, wrong), resamples=0)["score"].auc.value == pytest.approx(
        auc_by_pairs(scores, wrong)
    )


def test_precision_is_among_the_first_percent():
    scores = np.arange(1000)
    wrong = (scores >= 994) | (scores == 5)  # of the 10 flagged, 6 are wrong
    assert measure_detection(units(scores, wrong), resamples=0)["score"].precision.value == pytest.approx(0.6)


@pytest.mark.slow
def test_a_score_that_is_always_the_same_is_worth_as_much_as_chance():
    wrong = np.random.default_rng(0).random(20000) < 0.02
    found = measure_detection(units(np.ones(20000), wrong), resamples=100)["score"]
    assert found.auc.low < 0.5 < found.auc.high
    assert found.precision.value < 0.06
    again = measure_detection(units(np.ones(20000), wrong), resamples=100)["score"]
    assert found == again  # ties are broken by the seed


def test_resampling_an_utterance_twice_is_having_its_characters_twice():
    rng = np.random.default_rng(1)
    scores, wrong, utterance = rng.random(300), rng.random(300) < 0.2, np.repeat(np.arange(30), 10)
    found = measure_detection(units(scores, wrong, utterance), resamples=1, seed=3)["score"]
    replay = np.random.default_rng([3, 1])
    replay.random(300)
    [counts] = replay.multinomial(30, [1 / 30] * 30, 1)
    chosen = np.repeat(np.arange(300), counts[utterance])
    by_hand = measure_detection(units(scores[chosen], wrong[chosen]), resamples=0)["score"]
    assert found.auc.low == pytest.approx(by_hand.auc.value)
    assert found.precision.low == pytest.approx(by_hand.precision.value)


def test_intervals_hold_the_estimate_and_are_wider_for_errors_that_come_in_clumps():
    rng = np.random.default_rng(0)
    utterance = np.repeat(np.arange(50), 40)
    clumps = rng.random(50)[utterance]  # whole utterances are easy or hard
    wrong = rng.random(2000) < 0.1
    scores = rng.random(2000) + wrong * clumps
    by_utterance = measure_detection(units(scores, wrong, utterance), resamples=400)["score"].auc
    by_character = measure_detection(units(scores, wrong), resamples=400)["score"].auc
    assert by_utterance.low < by_utterance.value < by_utterance.high
    assert by_utterance.high - by_utterance.low > 0.9 * (by_character.high - by_character.low)


def test_without_errors_there_is_no_number():
    found = measure_detection(units([0.1, 0.2], [False, False]), resamples=3)["score"]
    assert np.isnan(found.auc.value)
    assert np.isnan(found.precision.low)


def test_the_roc_goes_from_nothing_to_everything_and_has_the_area_of_the_auc():
    rng = np.random.default_rng(0)
    wrong = rng.random(3000) < 0.2
    scores = rng.random(3000) + 0.5 * wrong
    x, y = roc(wrong, scores, points=100000)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    area = measure_detection(units(scores, wrong), resamples=0)["score"].auc.value
    assert np.trapezoid(y, x) == pytest.approx(area, abs=1e-3)


@pytest.mark.slow
def test_the_benchmark_runs_with_one_command_and_does_nothing_twice(tmp_path):
    recipe = make_corpus(tmp_path / "speech", {"train": 60, "dev": 8, "test": 20})
    words = [sys.executable, str(BENCHMARKS / "audit.py"), "--data", str(recipe.parent), "--out", str(tmp_path / "out")]
    words += ["--recipe", str(recipe), "--criteria", "ctc", "--epochs", "6", "--rate", "0.05", "--resamples", "50"]

    def run(*more):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*words, *more], capture_output=True, text=True, env=environment, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    said = run("--stage", "prepare", "train", "--runs", "ctc-all")
    assert said.count("+ wildctc train") == 1
    said = run()
    assert said.count("+ wildctc train") == 2
    assert said.count("+ wildctc probe") == 4
    assert run("--stage", "prepare", "train", "probe") == ""
    assert "held-out speakers" in said
    assert "training set, cross-trained" in said
    result = json.loads((tmp_path / "out/audit.json").read_text())["results"]
    assert [(row["setting"], row["units"]) for row in result] == [
        (setting, what) for setting in ("test", "self", "cross") for what in ("characters", "gaps")
    ]
    by_setting = {(row["setting"], row["units"]): row for row in result}
    found = by_setting["self", "characters"]["scores"]
    assert found["probe"]["auc"][0] > 0.9
    assert set(found) == {"probe", "greedy", "forced", "random"}
    assert by_setting["self", "characters"]["wrong"] > by_setting["test", "characters"]["wrong"] > 0
    assert by_setting["self", "characters"]["cer"] < 0.3
    assert (tmp_path / "out/audit.svg").read_text().count("<svg") == 1
    assert (tmp_path / "out/audit.md").read_text().count("| probe |") == 6


@pytest.mark.slow
def test_the_lattice_takes_a_small_part_of_a_probe():
    spec = importlib.util.spec_from_file_location("benchmark_probe", BENCHMARKS / "probe.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    spent = benchmark.measure()
    torch.set_num_threads(threads)
    # a twentieth when nothing else runs; several times that would be a fault, and a busy machine is none
    assert spent["lattice"] < 0.2 * (spent["encoder"] + spent.get("front end", 0.0))
