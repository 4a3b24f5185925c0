"""Features: the numbers of lhotse's filterbank, a cache that never changes what is seen, and augmentation by seed."""

import hashlib
import importlib.util
import mmap
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

from wildctc.audio import sound_files as audio
from wildctc.audio.resampling import resample
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import MissingExtra, WildCTCError
from wildctc.features import digests
from wildctc.features.augment import spec_augment
from wildctc.features.cache import FeatureCache
from wildctc.features.fbank import Fbank
from wildctc.features.frame_count import FrameRule
from wildctc.features.front_end import make_front_end
from wildctc.features.onnx import OnnxFrontEnd
from wildctc.features.stats import FeatureStats

needs_moonshine = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("moonshine_voice", "moonshine_cpp", "onnxruntime"))),
    reason="the extra `moonshine` is not installed",
)
MOONSHINE_DIMS = {"moonshine-tiny": 288, "moonshine-base": 416}


def noise(samples, seed=0):
    return (np.random.default_rng(seed).normal(size=samples) / 10).astype(np.float32)


def utterance(folder, name="a", seconds=1.0, seed=0):
    soundfile.write(folder / f"{name}.wav", noise(round(seconds * 16000), seed), 16000, subtype="FLOAT")
    return Utterance(name, folder / f"{name}.wav")


# Front ends


@pytest.mark.parametrize("samples", [400, 401, 479, 480, 16000, 23457])
@pytest.mark.parametrize("bins", [40, 80])
def test_filterbank_has_the_numbers_of_lhotse(samples, bins):
    lhotse = pytest.importorskip("lhotse")
    wave = noise(samples)
    expected = lhotse.Fbank(lhotse.FbankConfig(num_filters=bins)).extract(wave, 16000)
    found = Fbank(bins).extract(wave)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_filterbank_of_silence_is_finite_and_of_nothing_is_no_frames():
    assert np.isfinite(Fbank().extract(np.zeros(16000, np.float32))).all()
    assert Fbank().extract(np.zeros(100, np.float32)).shape == (0, 80)


def test_frames_are_counted_without_computing_them():
    for samples in (0, 399, 400, 479, 480, 16000, 23457):
        assert Fbank(20).frames(samples) == len(Fbank(20).extract(noise(samples)))


def test_resampled_filterbank_does_not_depend_on_the_number_of_threads():
    wave, threads, found = noise(160000), torch.get_num_threads(), []
    try:
        for n in (1, 2, 1):
            torch.set_num_threads(n)
            found.append(Fbank().extract(resample(wave, 1.1, 1)))
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_front_end_is_made_by_name_and_a_wrong_one_is_named(tmp_path):
    assert (make_front_end({"name": "fbank", "num_bins": 40}).dim, Fbank().frame_rate) == (40, 100.0)
    for config, message in (
        ({"name": "mfcc"}, "no front end 'mfcc'"),
        ({"name": "fbank", "bins": 3}, "unknown setting 'bins'"),
        ({"name": str(tmp_path / "none.onnx")}, r"cannot read the front end .*none\.onnx: No such file"),
    ):
        with pytest.raises(WildCTCError, match=message):
            make_front_end(config)


def test_a_file_that_is_no_onnx_model_is_one_clear_line(tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "bad.onnx").write_bytes(b"garbage")
    with pytest.raises(WildCTCError, match=r"bad\.onnx is not an ONNX model"):
        OnnxFrontEnd(tmp_path / "bad.onnx")


@needs_moonshine
@pytest.mark.parametrize(("name", "dim"), MOONSHINE_DIMS.items())
def test_moonshine_gives_its_dimensions_at_a_frame_every_384_samples(name, dim):
    front_end = make_front_end({"name": name})
    features = front_end.extract(noise(32000))
    assert (front_end.shape, front_end.frame_rate, front_end.sampling_rate) == ((dim,), 16000 / 384, 16000)
    assert front_end.frames(32000) == len(features)
    assert features.shape == (((32000 - 127) // 64 + 1 - 7) // 3 // 2, dim)
    assert features.dtype == np.float32
    assert front_end.name == f"{name}-{hashlib.sha256(front_end.path.read_bytes()).hexdigest()[:12]}"
    assert front_end.extract(noise(500)).shape == (0, dim)


@pytest.mark.slow
@needs_moonshine
@pytest.mark.parametrize("name", MOONSHINE_DIMS)
def test_moonshine_frames_are_counted_without_running_the_model(name, monkeypatch):
    front_end = OnnxFrontEnd(name)
    drawn = np.random.default_rng(0).integers(1, 20 * 16000, 6)
    sizes = [0, 1, 894, 895, 896, *range(1200, 1700, 7), *map(int, drawn)]
    expected = [len(front_end.extract(np.zeros(samples, np.float32))) for samples in sizes]
    monkeypatch.setattr(front_end, "extract", None)
    assert [front_end.frames(samples) for samples in sizes] == expected


@needs_moonshine
@pytest.mark.parametrize("name", MOONSHINE_DIMS)
def test_moonshine_is_bit_identical_again_in_a_copy_and_in_another_process(name):
    front_end = OnnxFrontEnd(name)
    wave = noise(24000)
    expected = front_end.extract(wave)
    np.testing.assert_array_equal(front_end.extract(wave), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(front_end)).extract(wave), expected)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(front_end.extract, (wave,)), expected)


@pytest.mark.slow
@needs_moonshine
@pytest.mark.parametrize("name", MOONSHINE_DIMS)
def test_moonshine_is_found_without_importing_its_package(name):
    code = f"""
import sys
from wildctc.features.onnx import OnnxFrontEnd
OnnxFrontEnd({name!r})
print([module for module in sys.modules if module.startswith("moonshine")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "package"), [("moonshine-tiny", "moonshine-voice==0.0.48"), ("moonshine-base", "moonshine-cpp==0.1.4")]
)
def test_of_two_packages_the_one_that_is_missing_is_named(name, package, monkeypatch):
    find = importlib.util.find_spec
    module = package.partition("==")[0].replace("-", "_")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name, *rest))
    with pytest.raises(MissingExtra, match=rf"{package} is not installed; .* pip install '\.\[moonshine\]'"):
        make_front_end({"name": name})


@needs_moonshine
def test_the_same_model_by_path_gives_the_same_features():
    named = OnnxFrontEnd("moonshine-tiny")
    by_path = make_front_end({"name": str(named.path), "threads": 2})
    np.testing.assert_allclose(by_path.extract(noise(16000)), named.extract(noise(16000)), atol=1e-4)
    assert by_path.name == f"encoder_model-{named.name.split('-')[-1]}"
    assert by_path._rule == named._rule  # found by trying
    assert by_path.frame_rate == named.frame_rate


def padded(samples):
    """Frames of three convolutions with padding, as (kernel, stride, padding)."""
    for kernel, stride, padding in ((10, 5, 3), (3, 2, 1), (4, 3, 2)):
        samples = max(0, (samples + 2 * padding - kernel) // stride + 1)
    return samples


@pytest.mark.parametrize(
    "count",
    [
        lambda n: max(0, (n - 895) // 384 + 1),
        lambda n: max(0, (n - 400) // 160 + 1),
        lambda n: -(-n // 320) if n >= 400 else 0,  # nothing below a window
        lambda n: n // 640,
        padded,
    ],
)
def test_the_rule_of_an_unknown_model_is_found_by_trying_and_is_exact(count):
    tried = []
    rule = FrameRule.find(lambda samples: (tried.append(samples), count(samples))[1], 16000)
    assert len(tried) < 70
    sizes = [*range(1, 3000), *map(int, np.random.default_rng(0).integers(1, 60 * 16000, 5000))]
    assert [rule.frames(samples) for samples in sizes] == [count(samples) for samples in sizes]


@pytest.mark.parametrize(
    "count",
    [
        lambda n: n * 7 // 2000,
        lambda n: min(100, n // 320),
        lambda n: 50,
        lambda n: 0,
        lambda n: n // 320 + n // 50000,
        lambda n: 2 * (n // 640),
    ],
)
def test_a_model_without_a_rule_is_not_given_a_wrong_one(count):
    assert FrameRule.find(count, 16000) is None


# Cache


class Counting(Fbank):
    def __init__(self):
        super().__init__(num_bins=20)
        self.calls = 0

    def extract(self, wave):
        self.calls += 1
        return super().extract(wave)


def test_the_cache_computes_once_and_returns_the_same_bits(tmp_path):
    front_end, u = Counting(), utterance(tmp_path)
    cache = FeatureCache(tmp_path / "cache", front_end)
    first = cache.get(u)
    assert first.dtype == np.float32
    assert first.shape == (100, 20)
    np.testing.assert_array_equal(cache.get(u), first)
    np.testing.assert_array_equal(FeatureCache(tmp_path / "cache", front_end).get(u), first)
    assert front_end.calls == 1
    np.testing.assert_allclose(first, Fbank(20).extract(noise(16000)), atol=1e-2)  # float16 on disk


def test_without_a_folder_nothing_is_kept_and_the_numbers_are_those_of_the_cache(tmp_path):
    front_end, u = Counting(), utterance(tmp_path)
    none, kept = FeatureCache(None, front_end), FeatureCache(tmp_path / "cache", front_end)
    for speed in (0.9, 1.0):
        np.testing.assert_array_equal(none.get(u, speed), kept.get(u, speed))
        assert none.frames(u, speed) == len(kept.get(u, speed))
    assert front_end.calls == 4
    none.get(u)
    assert front_end.calls == 5
    with pytest.raises(UtteranceError, match="too short: 160 samples give no frame of fbank20"):
        none.frames(utterance(tmp_path, "blip", 0.01))


def test_the_cache_tells_speeds_pieces_and_front_ends_apart(tmp_path):
    front_end, u = Counting(), utterance(tmp_path)
    cache = FeatureCache(tmp_path / "cache", front_end)
    assert [len(cache.get(u, speed)) for speed in (0.9, 1.0, 1.1)] == [111, 100, 91]
    assert len(cache.get(Utterance("a", u.audio, start=0.25, duration=0.5))) == 50
    assert front_end.calls == 4
    assert FeatureCache(tmp_path / "cache", Fbank(30)).get(u).shape == (100, 30)


def test_changed_audio_is_computed_anew(tmp_path):
    cache = FeatureCache(tmp_path / "cache", Counting())
    before = cache.get(utterance(tmp_path, seed=0))
    u = utterance(tmp_path, seed=1)
    os.utime(u.audio, ns=(1, 1))  # a clock too coarse to tell the two apart must not decide this test
    assert not np.array_equal(cache.get(u), before)


def flip(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:50], lambda b: b[:-7], lambda b: b"x" * len(b)])
def test_a_damaged_cache_file_is_computed_anew_and_said(tmp_path, caplog, damage):
    front_end, u = Counting(), utterance(tmp_path)
    cache = FeatureCache(tmp_path / "cache", front_end)
    expected = cache.get(u)
    [path] = (tmp_path / "cache").rglob("*.npy")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    np.testing.assert_array_equal(cache.get(u), expected)
    assert path.read_bytes() == whole
    assert front_end.calls == 2
    said = f"a file of the feature cache was damaged and is computed anew: {path}: its checksum is wrong"
    assert caplog.messages == [said]


def test_no_flipped_bit_of_a_cache_file_goes_unnoticed(tmp_path):
    front_end, u = Counting(), utterance(tmp_path, seconds=0.03)
    cache = FeatureCache(tmp_path / "cache", front_end)
    expected = cache.get(u)
    [path] = (tmp_path / "cache").rglob("*.npy")
    whole = path.read_bytes()
    bits = range(0, 8 * len(whole), 41)
    for bit in bits:
        path.write_bytes(flip(whole, bit))
        np.testing.assert_array_equal(cache.get(u), expected)
    assert front_end.calls == 1 + len(bits)


def test_a_cache_file_of_another_utterance_or_another_shape_is_computed_anew(tmp_path, caplog):
    front_end, a, b = Counting(), utterance(tmp_path, "a"), utterance(tmp_path, "b", 0.5, seed=1)
    cache = FeatureCache(tmp_path / "cache", front_end)
    expected = cache.get(a), cache.get(b)
    one, two = (tmp_path / "cache").rglob("*.npy")
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    for u, features in zip((a, b), expected, strict=True):
        np.testing.assert_array_equal(cache.get(u), features)
    wider = Fbank(30)
    wider.name = front_end.name
    assert FeatureCache(tmp_path / "cache", wider).get(a).shape == (100, 30)
    assert [m.rpartition(": ")[2] for m in caplog.messages] == [
        "its checksum is wrong", "its checksum is wrong", "it holds float16 of shape (100, 20)"
    ]  # fmt: skip


def test_a_moved_or_copied_corpus_is_not_computed_again(tmp_path):
    front_end, u = Counting(), utterance(tmp_path)
    cache = FeatureCache(tmp_path / "cache", front_end)
    expected = cache.get(u)
    for name in ("copy.wav", "other name.wav"):
        (tmp_path / name).write_bytes(u.audio.read_bytes())
        np.testing.assert_array_equal(cache.get(Utterance("other", tmp_path / name)), expected)
    assert front_end.calls == 1


def test_a_moved_corpus_needs_no_room_for_what_is_there_by_its_content(tmp_path, monkeypatch):
    u = replace(utterance(tmp_path), duration=1.0)
    cache = FeatureCache(tmp_path / "cache", Fbank())
    cache.get(u)
    moved = replace(u, audio=u.audio.rename(tmp_path / "moved.wav"))
    monkeypatch.setattr("wildctc.features.cache._free", lambda folder: 0)  # a disk that is full
    cache.check_room([(moved, 1.0)], limit_gb=100)
    with pytest.raises(WildCTCError, match="0 MB are free"):
        cache.check_room([(moved, 0.9)], limit_gb=100)


def test_audio_is_digested_once_for_its_path_size_and_time(tmp_path, monkeypatch):
    u, read = utterance(tmp_path), []
    digest = digests._digest
    monkeypatch.setattr(digests, "_digest", lambda audio: (read.append(audio), digest(audio))[1])
    for _ in range(3):
        FeatureCache(tmp_path / "cache", Fbank()).get(u)
        FeatureCache(tmp_path / "cache", Fbank(40)).get(u, 0.9)
    assert len(read) == 1
    [note] = (path for path in (tmp_path / "cache/audio").rglob("*") if path.is_file())
    note.write_text("damaged")
    FeatureCache(tmp_path / "cache", Fbank()).get(u)
    assert len(read) == 2


def test_features_outlive_their_audio_which_is_said_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(audio, "_warned", mmap.mmap(-1, len(audio._warned)))
    utterances = [utterance(tmp_path, name, seed=i) for i, name in enumerate("ab")]
    cache = FeatureCache(tmp_path / "cache", Fbank())
    expected = [cache.get(u) for u in utterances]
    for u in utterances:
        u.audio.unlink()
    for u, features in zip(utterances, expected, strict=True):
        np.testing.assert_array_equal(cache.get(u), features)
    said = "audio cannot be read (No such file or directory); features that are in the cache are used"
    assert caplog.messages == [f"{said}; the first such file: {tmp_path}/a.wav"]
    with pytest.raises(UtteranceError, match="no such file"):
        cache.get(utterances[0], 0.9)
    for path in (tmp_path / "cache").rglob("*.npy"):
        path.write_bytes(flip(path.read_bytes(), 3000))
    damaged = r"its features in the cache are damaged \(.*\.npy: its checksum is wrong\)"
    with pytest.raises(UtteranceError, match=f"{damaged} and cannot be computed anew: no such file"):
        cache.get(utterances[0])


class Rounded(Fbank):
    """A front end whose last bits depend on the machine, and that is slow: another process is done meanwhile."""

    def __init__(self, offset, meanwhile=lambda: None):
        super().__init__(num_bins=20)
        self.offset, self.meanwhile = np.float32(offset), meanwhile

    def extract(self, wave):
        self.meanwhile()
        return super().extract(wave) + self.offset


def test_of_two_processes_that_compute_the_same_features_both_take_those_of_the_first(tmp_path):
    u = utterance(tmp_path)
    first = FeatureCache(tmp_path / "cache", Rounded(0.5))
    found = []
    second = FeatureCache(tmp_path / "cache", Rounded(0.0, lambda: found.append(first.get(u))))
    found.append(second.get(u))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(second.get(u), found[0])


def test_parts_that_killed_processes_left_in_the_cache_are_removed(tmp_path):
    parts = tmp_path / "cache/parts"
    parts.mkdir(parents=True)
    for name, age in (("old", 4000), ("new", 10)):
        (parts / f".{name}.npy.1.part").write_bytes(b"half")
        os.utime(parts / f".{name}.npy.1.part", (time.time() - age,) * 2)
    FeatureCache(tmp_path / "cache", Fbank()).get(utterance(tmp_path))
    assert [path.name for path in parts.iterdir()] == [".new.npy.1.part"]


@pytest.mark.parametrize("folder", ["cache", None])
def test_features_that_are_not_finite_are_refused_where_they_are_computed(tmp_path, folder):
    wave = noise(16000)
    wave[500] = 1e30
    soundfile.write(tmp_path / "huge.wav", wave, 16000, subtype="FLOAT")
    cache = FeatureCache(folder and tmp_path / folder, Fbank())
    with pytest.raises(UtteranceError, match=r"huge \(.*features that are not finite: its samples reach 1e\+30"):
        cache.get(Utterance("huge", tmp_path / "huge.wav"))
    assert not list(tmp_path.rglob("*.npy"))


def _fill(cache, utterances):
    return [cache.get(u) for u in utterances]


def test_several_processes_can_fill_one_cache(tmp_path):
    cache = FeatureCache(tmp_path / "cache", Fbank(20))
    utterances = [utterance(tmp_path, f"u{i}", 0.3, seed=i) for i in range(8)]
    # One thread, as in a data-loading worker: torch's threads do not survive a fork.
    with multiprocessing.get_context("fork").Pool(3, torch.set_num_threads, (1,)) as pool:
        results = pool.starmap(_fill, [(cache, utterances)] * 3)
    for found in results:
        for a, b in zip(found, results[0], strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(list((tmp_path / "cache").rglob("*.npy"))) == 8
    assert not list((tmp_path / "cache/parts").iterdir())


def test_bad_audio_is_named_and_nothing_is_cached_for_it(tmp_path):
    cache = FeatureCache(tmp_path / "cache", Fbank())
    (tmp_path / "text.wav").write_text("no audio")
    for u, reason in (
        (Utterance("gone", tmp_path / "gone.wav"), "no such file"),
        (Utterance("text", tmp_path / "text.wav"), "not readable as audio"),
        (utterance(tmp_path, "blip", 0.01), "too short: 160 samples give no frame of fbank80-16000"),
    ):
        with pytest.raises(UtteranceError, match=rf"{u.id} \(.*{u.id}\.wav\): {reason}"):
            cache.get(u)
    assert not list(tmp_path.rglob("*.npy"))


def test_a_cache_that_cannot_be_written_is_one_clear_line_and_not_the_utterances_fault(tmp_path):
    u = utterance(tmp_path)
    (tmp_path / "cache").touch()
    with pytest.raises(WildCTCError, match="cannot write to the feature cache") as caught:
        FeatureCache(tmp_path / "cache", Fbank()).get(u)
    assert not isinstance(caught.value, UtteranceError)


def test_a_full_disk_leaves_no_partial_file(tmp_path, monkeypatch):
    u = utterance(tmp_path)

    def full(file, array):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(WildCTCError, match=r"cannot write to the feature cache .*: No space left on device"):
        FeatureCache(tmp_path / "cache", Fbank()).get(u)
    assert not list((tmp_path / "cache").rglob("*.npy"))
    assert not list((tmp_path / "cache/parts").iterdir())


# Statistics


def test_normalised_training_features_have_mean_0_and_variance_1():
    rng = np.random.default_rng(0)
    data = [rng.normal(loc=[5.0, -300.0], scale=[0.01, 40.0], size=(n, 2)).astype(np.float32) for n in (50, 1, 300)]
    stats = FeatureStats.compute(iter(data))
    x = stats.normalize(np.concatenate(data))
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-2)
    np.testing.assert_allclose(x.std(0), 1, atol=1e-2)
    constant = FeatureStats.compute([np.full((9, 1), 7.0, np.float32)])
    np.testing.assert_array_equal(constant.normalize(np.full((2, 1), 7.0, np.float32)), 0)
    with pytest.raises(WildCTCError, match="no features"):
        FeatureStats.compute([])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_statistics_that_are_not_finite_and_positive_are_refused(bad):
    with pytest.raises(WildCTCError, match="mean and deviation of the features are not finite and positive"):
        FeatureStats.compute([np.array([[0.0, bad]], np.float32)])
    with pytest.raises(WildCTCError, match="not finite and positive"):
        FeatureStats(np.zeros(2, np.float32), np.array([1.0, 0.0], np.float32))


# SpecAugment

LENGTHS = torch.tensor([200, 120, 7])


def batch(dims=80, seed=0):
    x = torch.randn(3, 200, dims, generator=torch.Generator().manual_seed(seed)) + 3
    for i, length in enumerate(LENGTHS):
        x[i, length:] = 0
    return x


def augment(x, seed=0, **options):
    return spec_augment(x, LENGTHS, torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("dims", [80, 288])
def test_augmentation_is_decided_by_the_generator_alone(dims):
    x = batch(dims)
    before = x.clone()
    assert torch.equal(augment(x), augment(x))
    assert not torch.equal(augment(x), augment(x, seed=1))
    assert torch.equal(x, before)


def test_the_generator_advances_alike_whatever_the_lengths():
    states = []
    for lengths in (LENGTHS, torch.tensor([1, 2, 3])):
        generator = torch.Generator().manual_seed(0)
        spec_augment(batch(), lengths, generator)
        states.append(generator.get_state())
    assert torch.equal(*states)


def masked(shape, lengths, **options):
    """Where each of many utterances of ones is 0."""
    generator = torch.Generator().manual_seed(0)
    return spec_augment(torch.ones(shape), lengths, generator, time_warp=0, **options) == 0


def test_masks_stay_within_their_widths_and_reach_them():
    bands = masked((2000, 1, 80), torch.ones(2000, dtype=torch.long), freq_masks=1, time_masks=0)
    assert set(bands.sum((1, 2)).tolist()) == set(range(28))
    stretches = masked((2000, 200, 1), torch.full((2000,), 200), freq_masks=0, time_masks=1)
    assert set(stretches.sum((1, 2)).tolist()) == set(range(11))  # 5% of 200 frames
    assert (bands[:, 0].long().diff() == 1).sum(1).max() == 1  # in one piece


def test_masks_fall_anywhere_inside_the_utterance_and_not_behind_it():
    stretches = masked((2000, 200, 1), torch.full((2000,), 120), freq_masks=0, time_masks=1)
    assert stretches[:, :120].any(0).all()
    assert not stretches[:, 120:].any()
    assert masked((2000, 1, 80), torch.ones(2000, dtype=torch.long), time_masks=0).any(0).all()


def test_warping_moves_time_by_at_most_the_window_and_keeps_ends_and_padding():
    ramp = torch.arange(200.0)[None, :, None].repeat(3, 1, 4) + 1
    moved = 0.0
    for seed in range(100):
        y = augment(ramp, seed, freq_masks=0, time_masks=0)
        shift = (y - ramp).abs()[..., 0]
        assert torch.equal(y[2], ramp[2])  # too short to be warped
        assert torch.equal(y[1, 120:], ramp[1, 120:])
        assert (y[1, 1:120] >= y[1, :119]).all()
        assert shift[:, [0]].max() <= 1
        assert shift[1, 119] <= 1
        moved = max(moved, float(shift.max()))
    assert 3 < moved <= 5


def test_nothing_asked_for_is_nothing_done():
    x = batch()
    assert torch.equal(augment(x, time_warp=0, freq_masks=0, time_masks=0), x)
    tiny = spec_augment(torch.ones(1, 1, 3), torch.tensor([1]), torch.Generator().manual_seed(0), freq_masks=0)
    assert torch.equal(tiny, torch.ones(1, 1, 3))


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    u = utterance(tmp_path)
    (tmp_path / "model.onnx").touch()
    for package in ("soundfile", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"soundfile is not installed; .* pip install '\.\[train\]'"):
        FeatureCache(tmp_path / "cache", Fbank()).get(u)
    with pytest.raises(MissingExtra, match=r"onnxruntime is not installed; .* pip install '\.\[moonshine\]'"):
        OnnxFrontEnd(tmp_path / "model.onnx")
