"""Logits of a recording from overlapping windows: those of the whole, for a model that sees a limited context."""

import numpy as np
import pytest
import torch

from wildctc.audio.recordings import Recording, open_recording
from wildctc.errors import WildCTCError
from wildctc.features.fbank import Fbank
from wildctc.recognizer.windows import long_logits

RATE = 16000


class LocalModel:
    """Filterbanks and two convolutions: a frame of logits sees 0.3 s, and every second frame of features has one."""

    def __init__(self) -> None:
        self.front_end = Fbank(20)
        self.frame_rate = self.front_end.frame_rate / 2
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Conv1d(20, 8, 15), torch.nn.Tanh(), torch.nn.Conv1d(8, 5, 9, stride=2))
        self.longest = 0

    @torch.no_grad()
    def batch_logits(self, features):
        self.longest = max(self.longest, *(len(x) for x in features))
        return [self.net(torch.from_numpy(x).T.unsqueeze(0))[0].T for x in features]


def wave(seconds: float, rate: int = RATE) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(int(seconds * rate)).astype(np.float32) * 0.1


@pytest.mark.parametrize("seconds", [3.0, 10.0, 10.017, 23.456, 31.0])
def test_logits_are_those_of_the_whole(seconds):
    model = LocalModel()
    samples = wave(seconds)
    [whole] = model.batch_logits([model.front_end.extract(samples)])
    model.longest = 0
    found = long_logits(model, open_recording(samples, RATE), window=10.0, overlap=2.0)
    assert found.logits.shape == whole.shape
    assert torch.allclose(found.logits, whole, atol=1e-4)
    assert model.longest <= 10.0 * model.front_end.frame_rate


def test_times_are_those_of_the_whole():
    model = LocalModel()
    found = long_logits(model, open_recording(wave(25.0), RATE), window=10.0, overlap=2.0)
    frames = len(found.logits)
    covered = frames / model.frame_rate
    assert found.time(0) == pytest.approx((25.0 - covered) / 2, abs=0.02)
    assert found.time(frames) == pytest.approx((25.0 + covered) / 2, abs=0.02)
    assert found.time(10 * frames) == 25.0


def test_blocks_of_any_size_and_another_sampling_rate_give_the_same():
    model = LocalModel()
    samples = wave(25.0, 8000)
    one = long_logits(model, Recording(8000, 25.0, [samples]), window=10.0, overlap=2.0)
    many = long_logits(model, Recording(8000, 25.0, np.array_split(samples, 77)), window=10.0, overlap=2.0)
    assert torch.equal(one.logits, many.logits)


def test_windows_must_overlap():
    with pytest.raises(WildCTCError, match="cannot overlap"):
        long_logits(LocalModel(), open_recording(wave(1.0), RATE), window=5.0, overlap=5.0)


def test_outputs_that_are_not_numbers_are_an_error():
    model = LocalModel()
    model.net[0].bias.data[0] = torch.nan
    with pytest.raises(WildCTCError, match="not numbers"):
        long_logits(model, open_recording(wave(1.0), RATE))
