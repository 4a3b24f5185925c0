"""Features before training: as many processes as there are cores, the same bits, and nothing computed twice."""

import multiprocessing
import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

from wildctc.cores import available_cores
from wildctc.corpora.utterance import Utterance
from wildctc.features.cache import FeatureCache
from wildctc.features.fbank import Fbank
from wildctc.training import data
from wildctc.training.data import scan
from wildctc.training.settings import DataConfig

pytestmark = pytest.mark.usefixtures("one_thread")
COUNT, SPEEDS = 10, [0.9, 1.0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        soundfile.write(folder / f"{i}.wav", rng.normal(size=4000 + 500 * i) / 10, 16000)
    return folder


def utterances(folder):
    return [Utterance(str(i), folder / f"{i}.wav") for i in range(COUNT)]


def computed(folder, workers, into, front_end=None):
    found = scan(utterances(folder), FeatureCache(into, front_end or Fbank(20)), SPEEDS, workers, "test")
    return found, {path.relative_to(into): path.read_bytes() for path in sorted(into.rglob("*.npy"))}


def test_any_number_of_processes_computes_the_same_bits(corpus, tmp_path):
    (frames, errors), files = computed(corpus, 0, tmp_path / "none")
    assert len(files) == COUNT * len(SPEEDS)
    assert list(frames) == [str(i) for i in range(COUNT)]
    assert errors == []
    for workers in (1, 3):
        assert computed(corpus, workers, tmp_path / str(workers)) == ((frames, errors), files)


class CountsThreads(Fbank):
    """Its features tell how many threads computed them, as the last bits of a large model's do."""

    def extract(self, wave):
        return super().extract(wave) + np.float32(torch.get_num_threads())


def test_threads_of_the_training_process_do_not_change_the_bits(corpus, tmp_path):
    try:
        torch.set_num_threads(2)
        alone, several = (computed(corpus, n, tmp_path / str(n), CountsThreads(20)) for n in (0, 2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert alone == several


class Refuses(Fbank):
    def extract(self, wave):
        raise AssertionError("computed again")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_copied_and_a_moved_corpus_are_not_computed_again(corpus, tmp_path, workers):
    expected = computed(corpus, 0, tmp_path / "cache")
    copied = shutil.copytree(corpus, tmp_path / "copy", copy_function=shutil.copyfile)  # with other times of change
    assert computed(copied, workers, tmp_path / "cache", Refuses(20)) == expected
    moved = copied.rename(tmp_path / "moved")
    assert computed(moved, workers, tmp_path / "cache", Refuses(20)) == expected


def test_runs_at_the_same_time_share_one_cache_and_stay_exact(corpus, tmp_path):
    expected = computed(corpus, 0, tmp_path / "alone")
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def run():
        torch.set_num_threads(1)  # torch's threads do not survive a fork
        results.put(computed(corpus, 2, tmp_path / "shared")[0])

    runs = [context.Process(target=run) for _ in range(3)]
    for process in runs:
        process.start()
    found = [results.get(timeout=60) for _ in runs]
    for process in runs:
        process.join(60)
    assert [process.exitcode for process in runs] == [0, 0, 0]
    assert found == [expected[0]] * 3
    assert computed(corpus, 0, tmp_path / "shared", Refuses(20)) == expected
    assert not list((tmp_path / "shared/parts").iterdir())


def test_features_are_computed_on_all_cores_whatever_loads_the_batches(monkeypatch):
    monkeypatch.setattr(data, "available_cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = DataConfig(workers=0)
    assert [data.feature_workers(config, n) for n in (0, 40, 100, 5000)] == [0, 0, 2, 8]
    assert [data.feature_workers(replace(config, workers=12), n) for n in (40, 5000)] == [12, 12]
    assert data.feature_workers(replace(config, feature_workers=3), 5000) == 3
    assert data.feature_workers(replace(config, feature_workers=0), 5000) == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert data.feature_workers(config, 5000) == 0  # in the training process, which has the GPU


def test_processes_of_torchrun_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    for sharing, cores in ((None, 16), ("1", 16), ("4", 4), ("5", 3), ("64", 1), ("", 16)):
        if sharing is None:
            monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
        else:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", sharing)
        assert available_cores() == cores


def test_the_rate_is_shown_while_features_are_computed(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)
    scan(utterances(corpus), FeatureCache(tmp_path, SlowFbank(20)), SPEEDS, 0, "speech")
    assert "× real time" in capsys.readouterr().err


class SlowFbank(Fbank):
    def extract(self, wave):
        import time

        time.sleep(0.06)  # a bar is drawn every half second
        return super().extract(wave)
