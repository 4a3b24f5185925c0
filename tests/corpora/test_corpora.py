"""Corpora: every layout is read as its publisher ships it; what is wrong is said by id, path and reason."""

import errno
import gzip
import json
import logging
import mmap
import multiprocessing
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from wildctc import files
from wildctc.audio import sound_files as audio
from wildctc.audio.resampling import resample
from wildctc.audio.sound_files import check_audio, load_audio
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.preparation import Rejects, prepare
from wildctc.corpora.subset import Subset
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.text.normalisation import Normalizer

FORMATS = {"wav": {}, "flac": {}, "ogg": {}, "opus": {"format": "OGG", "subtype": "OPUS"}, "mp3": {}}


def tone(seconds=1.0, rate=16000, hertz=440.0):
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write_audio(path, seconds=1.0, rate=16000, wave=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = tone(seconds, rate) if wave is None else wave
    soundfile.write(path, wave, rate, **FORMATS[path.suffix[1:]])
    return path


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def truncate(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


# Manifests


def test_plain_rows_and_nemo_rows_are_read_alike(tmp_path):
    write_audio(tmp_path / "clips" / "a.wav", 2.0)
    common = {"text": "नमस्ते", "duration": 0.5, "speaker": 7}
    rows = [
        {"id": "a", "audio": "clips/a.wav", "start": 0.25, "split": "dev", "language": "hi", **common},
        {"audio_filepath": str(tmp_path / "clips" / "a.wav"), "offset": 0.25, **common},
    ]
    plain, nemo = load_manifest(write_rows(tmp_path / "m.jsonl", rows))
    assert plain == Utterance("a", tmp_path / "clips" / "a.wav", "नमस्ते", "7", 0.5, 0.25, None, "dev", "hi")
    assert (nemo.id, nemo.audio, nemo.start, nemo.duration) == ("a-2", plain.audio, 0.25, 0.5)
    assert len(load_audio(nemo)) == 8000


def test_missing_durations_come_from_the_header_and_missing_files_are_left_to_their_user(tmp_path):
    write_audio(tmp_path / "a.flac", 1.5)
    found, lost = load_manifest(write_rows(tmp_path / "m.jsonl", [{"audio": "a.flac"}, {"audio": "b.flac"}]))
    assert (found.id, found.duration, found.text) == ("a", 1.5, "")
    assert (lost.id, lost.duration) == ("b", 0.0)


def test_a_split_can_be_chosen_and_one_that_is_not_there_is_named(tmp_path):
    rows = [{"audio": f"{s}.wav", "text": "x", "duration": 1, "split": s} for s in ("train", "dev")]
    path = write_rows(tmp_path / "m.jsonl", rows)
    assert [u.id for u in load_manifest(path, split="dev")] == ["dev"]
    with pytest.raises(WildCTCError, match="no utterances of split 'test'; its splits: dev, train"):
        load_manifest(path, split="test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"audio": "a.wav", "text": "x"', r"m\.jsonl:2: not JSON"),
        ("[1]", r"m\.jsonl:2: not a JSON object"),
        ('{"path": "a.wav", "sentence": "x"}', r"m\.jsonl:2: no field 'audio': there are path, sentence"),
        ('{"audio": 3}', r"m\.jsonl:2: field 'audio' is not a string: 3"),
        ('{"audio": "a.wav", "text": ["x"]}', r"m\.jsonl:2: field 'text'"),
        ('{"audio": "a.wav", "duration": -1}', r"m\.jsonl:2: field 'duration' is negative: -1"),
        ('{"audio": "a.wav", "duration": "long"}', r"m\.jsonl:2: field 'duration' is not a finite number: long"),
        ('{"audio": "a.wav", "start": [1]}', r"m\.jsonl:2: field 'start' is not a finite number: \[1\]"),
        ('{"audio": "a.wav", "channel": "left"}', r"m\.jsonl:2: field 'channel' is not a finite number: left"),
        ('{"audio": "a.wav", "channel": Infinity}', r"m\.jsonl:2: field 'channel' is not a finite number: inf"),
        (
            '{"audio": "a.wav", "channel": 1' + "0" * 400 + "}",
            r"m\.jsonl:2: field 'channel' is not a finite number: 10",
        ),
        ('{"audio": "a.wav", "channel": 0.5}', r"m\.jsonl:2: field 'channel' is not a whole number: 0.5"),
        ('{"audio": "a\\u0000.wav"}', r"m\.jsonl:2: field 'audio' is not a path: 'a\\x00.wav'"),
        ("[" * 100_000, r"m\.jsonl:2: not JSON: "),
        ('{"a":' * 100_000, r"m\.jsonl:2: not JSON: "),
        ('{"id": "first", "audio": "a.wav"}', r"m\.jsonl:2: id 'first' occurs twice"),
        ('{"id": "c", "type": "MixedCut", "supervisions": []}', r"m\.jsonl:2: a MixedCut is not supported"),
        ('{"id": "c", "supervisions": []}', r"m\.jsonl:2: a cut without a recording"),
        ('{"id": "c", "recording": {"sources": []}}', r"m\.jsonl:2: field 'recording' has no list of sources"),
        ('{"id": "c", "recording": {"sources": ["x"]}}', r"m\.jsonl:2: field 'recording' has no list of sources"),
        ('{"id": "c", "recording": "x.wav"}', r"m\.jsonl:2: field 'recording' has no list of sources: x.wav"),
        (
            '{"id": "c", "recording": {"sources": [{"type": "file", "source": "x"}]}, "supervisions": ["x"]}',
            r"m\.jsonl:2: field 'supervisions' is not a list of objects: \['x'\]",
        ),
        (
            '{"id": "c", "recording": {"sources": [{"type": "file", "source": "x"}]}, "custom": ["x"]}',
            r"m\.jsonl:2: field 'custom' is not an object: \['x'\]",
        ),
        ('{"id": "c", "recording": null}', r"m\.jsonl:2: a cut without a recording"),
        (
            '{"id": "c", "recording": {"sources": [{"type": "url", "source": "x"}]}}',
            r"m\.jsonl:2: recording of type 'url'",
        ),
        (
            '{"id": "c", "recording": {"sources": [{"type": "file", "source": "x"}]}, "supervisions": [{"text": 1}]}',
            r"m\.jsonl:2: field 'text' is not a string: 1",
        ),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path, content, message):
    (tmp_path / "m.jsonl").write_text('{"id": "first", "audio": "x.wav", "duration": 1}\n' + content + "\n")
    with pytest.raises(WildCTCError, match=message):
        load_manifest(tmp_path / "m.jsonl")


def test_moved_audio_is_found_by_the_longest_path_that_the_new_folder_has_too(tmp_path):
    for name in ("new/a/1.wav", "new/b/1.wav", "new/1.wav"):
        write_audio(tmp_path / name)
    rows = [{"id": i, "audio": f"/old/corpus/{i}/1.wav", "text": "x", "duration": 1} for i in "abc"]
    rows += [{"id": "d", "audio": "/elsewhere/1.wav", "text": "x", "duration": 1}]
    found = load_manifest(write_rows(tmp_path / "m.jsonl", rows), audio_root=tmp_path / "new")
    assert [u.audio for u in found] == [*(tmp_path / f"new/{i}/1.wav" for i in "abc"), Path("/elsewhere/1.wav")]


def test_a_path_that_no_file_can_have_is_a_missing_file(tmp_path):
    cut = {"id": "c", "duration": 1, "recording": {"sources": [{"type": "file", "source": "x" * 300}]}}
    [utterance] = load_manifest(write_rows(tmp_path / "m.jsonl", [cut]))
    with pytest.raises(UtteranceError, match="File name too long"):
        load_audio(utterance)


def test_a_manifest_that_cannot_be_read_is_one_clear_line(tmp_path):
    with pytest.raises(WildCTCError, match=r"cannot read .*No such file"):
        load_manifest(tmp_path / "none.jsonl")
    (tmp_path / "latin.jsonl").write_bytes('{"audio": "é"}'.encode("latin-1"))
    with pytest.raises(WildCTCError, match="not UTF-8"):
        load_manifest(tmp_path / "latin.jsonl")
    (tmp_path / "no.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(WildCTCError, match="cannot read"):
        load_manifest(tmp_path / "no.jsonl.gz")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(os.urandom(3000).hex().encode())[:100])
    with pytest.raises(WildCTCError, match="cannot read"):
        load_manifest(tmp_path / "cut.jsonl.gz")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(WildCTCError, match="no utterances in it"):
        load_manifest(tmp_path / "empty.jsonl")


def test_lhotse_reads_our_cuts_and_we_read_lhotses(tmp_path):
    lhotse = pytest.importorskip("lhotse")
    write_audio(tmp_path / "in" / "long.wav", 3.0)
    row = {"audio": "long.wav", "text": "salâm", "speaker": "s", "language": "fa"}
    write_rows(
        tmp_path / "in" / "manifest.jsonl", [{"id": "a", **row}, {"id": "b", "start": 1, "duration": 1.5, **row}]
    )
    prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())

    cuts = lhotse.CutSet.from_file(tmp_path / "out" / "train.jsonl.gz").to_eager()
    lhotse.validate(cuts)
    ours = load_manifest(tmp_path / "out" / "train.jsonl.gz")
    for cut, utterance in zip(cuts, ours, strict=True):
        assert (cut.id, cut.duration, cut.supervisions[0].text) == (utterance.id, utterance.duration, "salâm")
        assert cut.supervisions[0].language == utterance.language == "fa"
        np.testing.assert_array_equal(cut.load_audio()[0], load_audio(utterance))

    cuts.to_file(tmp_path / "theirs.jsonl.gz")
    assert load_manifest(tmp_path / "theirs.jsonl.gz") == ours


def test_a_cut_with_several_supervisions_gives_an_utterance_for_each(tmp_path):
    lhotse = pytest.importorskip("lhotse")
    recording = lhotse.Recording.from_file(write_audio(tmp_path / "a.wav", 3.0))
    said = [
        lhotse.SupervisionSegment(f"s{i}", recording.id, start, 0.75, text=f"word {i}", speaker="x")
        for i, start in enumerate((0.5, 2.0))
    ]
    cut = lhotse.MonoCut("c", 0.25, 2.75, 0, recording=recording, supervisions=said)
    lhotse.CutSet.from_cuts([cut]).to_file(tmp_path / "c.jsonl")
    first, second = load_manifest(tmp_path / "c.jsonl")
    assert (first.id, first.start, first.duration, first.text) == ("s0", 0.75, 0.75, "word 0")
    assert (second.id, second.start) == ("s1", 2.25)


# Audio


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_as_mono_float32(tmp_path, kind):
    path = write_audio(tmp_path / f"a.{kind}")
    wave = load_audio(Utterance("a", path))
    assert wave.dtype == np.float32
    assert wave.shape == (16000,)
    middle = slice(4000, 12000)  # lossy codecs fade in and out
    assert np.corrcoef(wave[middle], tone()[middle])[0, 1] > 0.99
    np.testing.assert_array_equal(wave, load_audio(Utterance("a", path)))


def test_start_duration_and_channel_choose_the_samples(tmp_path):
    wave = np.stack([np.arange(100), -np.arange(100)], 1).astype(np.float32) / 128
    soundfile.write(tmp_path / "a.wav", wave, 10, subtype="FLOAT")
    found = load_audio(Utterance("a", tmp_path / "a.wav", start=2.0, duration=3.0, channel=1), sampling_rate=10)
    np.testing.assert_array_equal(found, wave[20:50, 1])
    for channel in (2, -1):
        with pytest.raises(UtteranceError, match=f"no channel {channel}: the file has 2"):
            load_audio(Utterance("a", tmp_path / "a.wav", channel=channel))


def stereo(path):
    """A file whose left channel is silent and whose right one is a tone."""
    soundfile.write(path, np.stack([np.zeros(16000), tone()], 1), 16000, subtype="FLOAT")
    return path


def test_channels_are_mixed_unless_a_manifest_names_one(tmp_path):
    stereo(tmp_path / "a.wav")
    rows = [{"id": str(channel), "audio": "a.wav", "channel": channel} for channel in (None, 0, 1)]
    rows += [{"id": "nothing", "audio": "a.wav"}, {"id": "long", "audio": "a.wav", "duration": 1.0}]
    write_rows(tmp_path / "m.jsonl", rows)
    found = {u.id: load_audio(u) for u in load_manifest(tmp_path / "m.jsonl")}
    np.testing.assert_array_equal(found["0"], 0)
    np.testing.assert_array_equal(found["1"], tone())
    for id in ("None", "nothing", "long"):
        np.testing.assert_array_equal(found[id], tone() / 2)


def test_mixed_channels_stay_mixed_in_prepared_manifests_which_lhotse_reads(tmp_path):
    lhotse = pytest.importorskip("lhotse")
    (tmp_path / "in").mkdir()
    stereo(tmp_path / "in/a.wav")
    row = {"audio": "a.wav", "text": "x"}
    write_rows(tmp_path / "in/manifest.jsonl", [{"id": "mixed", **row}, {"id": "right", "channel": 1, **row}])
    files = prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())
    manifest = tmp_path / "out/train.jsonl.gz"
    assert load_manifest(manifest) == files["train"]
    mixed, right = load_manifest(manifest)
    np.testing.assert_array_equal(load_audio(mixed), tone() / 2)
    np.testing.assert_array_equal(load_audio(right), tone())
    cuts = lhotse.CutSet.from_file(manifest).to_eager()
    lhotse.validate(cuts)
    np.testing.assert_array_equal(cuts["mixed"].load_audio().mean(0), tone() / 2)
    np.testing.assert_array_equal(cuts["right"].load_audio()[0], tone())


def test_a_cut_of_all_channels_may_name_one_for_each_supervision(tmp_path):
    lhotse = pytest.importorskip("lhotse")
    cut = lhotse.Recording.from_file(stereo(tmp_path / "a.wav")).to_cut()
    both = lhotse.SupervisionSegment("both", cut.recording.id, 0.0, 1.0, channel=[0, 1], text="x")
    right = lhotse.SupervisionSegment("right", cut.recording.id, 0.0, 1.0, channel=1, text="x")
    cut.supervisions = [both, right]
    lhotse.CutSet.from_cuts([cut]).to_file(tmp_path / "c.jsonl")
    assert {u.id: u.channel for u in load_manifest(tmp_path / "c.jsonl")} == {"both": None, "right": 1}


@pytest.mark.parametrize("missing", [160, 320, 1500])
def test_a_wav_a_little_shorter_than_its_header_says_is_used_with_one_warning(tmp_path, caplog, missing):
    for name in "ab":
        path = write_audio(tmp_path / f"in/{name}.wav")
        path.write_bytes(path.read_bytes()[: -2 * missing])
    rows = [{"id": name, "audio": f"{name[0]}.wav", "text": "x"} for name in ("a", "b", "b again")]
    write_rows(tmp_path / "in/manifest.jsonl", rows)
    said = f"2 audio files end before their header says, by at most {missing / 16000:.3f} s, and are used as they are; "
    said += f"the first: {tmp_path}/in/a.wav"
    used = prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())["train"]
    assert [u.duration for u in used] == [(16000 - missing) / 16000] * 3
    assert len(load_audio(used[0])) == 16000 - missing
    assert load_manifest(tmp_path / "in/manifest.jsonl")[0].duration == used[0].duration
    assert caplog.messages == [said, said]


# An Ogg stream does not say in advance how long it is, so there only the manifest can tell.
@pytest.mark.parametrize(
    ("kind", "claimed"), [*((kind, 3.0) for kind in FORMATS), ("wav", 0.0), ("flac", 0.0), ("mp3", 0.0)]
)
def test_a_truncated_file_is_noticed_by_its_header_or_by_the_manifest(tmp_path, kind, claimed):
    noise = np.random.default_rng(0).normal(size=48000).astype(np.float32) / 10
    path = write_audio(tmp_path / f"a.{kind}", wave=noise)
    assert check_audio(Utterance("a", path, duration=claimed))[0].duration == 3.0
    truncate(path, 0.6)
    utterance = Utterance("utt", path, duration=claimed)
    with pytest.raises(UtteranceError, match=rf"utt \(.*a\.{kind}\): truncated"):
        check_audio(utterance)
    if claimed or kind != "wav":  # decoding goes by the samples that a WAV file has
        with pytest.raises(UtteranceError, match=r"utt .*truncated"):
            load_audio(utterance)


def bad_files(folder):
    (folder / "dir.wav").mkdir()
    (folder / "empty.wav").touch()
    (folder / "text.wav").write_text("this is no audio")
    soundfile.write(folder / "none.wav", np.zeros(0), 16000)
    soundfile.write(folder / "nan.wav", np.array([0.1, np.nan, 0.2]), 16000, subtype="FLOAT")
    soundfile.write(folder / "inf.wav", np.array([0.1, np.inf, 0.2]), 16000, subtype="FLOAT")
    write_audio(folder / "short.wav", 1.0)
    return {
        "missing": "no such file",
        "dir": "a folder, not a file",
        "empty": "empty file",
        "text": "not readable as audio: Format not recognised",
        "none": "no samples in it",
        "nan": "NaN or infinite samples",
        "inf": "NaN or infinite samples",
        "short": "truncated: 1.00 s of 2.00 s",
    }


def test_each_kind_of_bad_audio_has_its_reason(tmp_path):
    for name, reason in bad_files(tmp_path).items():
        path = tmp_path / f"{name}.wav"
        with pytest.raises(UtteranceError) as caught:
            load_audio(Utterance(name, path, duration=2.0 if name == "short" else 0.0))
        error = pickle.loads(pickle.dumps(caught.value))  # as from a data-loading worker
        assert (error.id, error.path) == (name, path)
        assert error.reason.startswith(reason)
        assert str(error) == f"{name} ({path}): {error.reason}"


def test_audio_that_the_system_cannot_read_keeps_the_systems_reason(tmp_path):
    (tmp_path / "loop.wav").symlink_to(tmp_path / "loop.wav")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe.wav")
    for name, reason in {
        "loop.wav": "cannot be read: Too many levels of symbolic links",
        "file/a.wav": "cannot be read: Not a directory",
        "a" * 300 + ".wav": "cannot be read: File name too long",
        "pipe.wav": "a device or a pipe, not a file",
        "none.wav": "no such file",
    }.items():
        for read in (load_audio, check_audio):
            with pytest.raises(UtteranceError) as caught:
                read(Utterance("a", tmp_path / name))
            assert caught.value.reason == reason


class FailingDisk:
    """A disk on which a file can be opened only after so many failures."""

    def __init__(self, monkeypatch, path, failures, number):
        self.path, self.failures, self.error, self.waits = path, failures, number, []
        real = Path.stat

        def fails(this, **options):
            if this == self.path and self.failures > 0:
                self.failures -= 1
                raise OSError(self.error, os.strerror(self.error))
            return real(this, **options)

        monkeypatch.setattr(Path, "stat", fails)
        monkeypatch.setattr(files.time, "sleep", self.waits.append)
        monkeypatch.setattr(files, "_failures", 0)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_failure_that_may_pass_is_waited_for(tmp_path, monkeypatch, number):
    path = write_audio(tmp_path / "a.wav")
    disk = FailingDisk(monkeypatch, path, 3, number)
    assert len(load_audio(Utterance("a", path))) == 16000
    assert disk.waits == list(files.WAITS)


def test_waiting_for_a_disk_is_bounded_for_a_file_and_for_all(tmp_path, monkeypatch):
    path = write_audio(tmp_path / "a.wav")
    disk = FailingDisk(monkeypatch, path, 10**9, errno.EIO)
    for _ in range(3 * files.MOST_FAILURES):
        with pytest.raises(UtteranceError, match="cannot be read: Input/output error"):
            load_audio(Utterance("a", path))
    assert disk.waits == list(files.WAITS) * files.MOST_FAILURES


def test_a_failure_that_will_not_pass_is_not_waited_for(tmp_path, monkeypatch):
    path = write_audio(tmp_path / "a.wav")
    disk = FailingDisk(monkeypatch, path, 1, errno.EACCES)
    with pytest.raises(UtteranceError, match="cannot be read: Permission denied"):
        load_audio(Utterance("a", path))
    assert disk.waits == []


def test_a_wav_written_to_a_pipe_is_not_called_truncated(tmp_path):
    content = bytearray(write_audio(tmp_path / "a.wav").read_bytes())
    content[40:44] = b"\xff\xff\xff\xff"  # the size of the data, unknown while it was written
    (tmp_path / "a.wav").write_bytes(content)
    assert check_audio(Utterance("a", tmp_path / "a.wav"))[0].duration == 1.0


def test_another_sampling_rate_is_resampled(tmp_path):
    write_audio(tmp_path / "a.wav", rate=44100)
    wave = load_audio(Utterance("a", tmp_path / "a.wav"))
    assert len(wave) == 16000
    assert np.abs(wave[100:-100] - tone()[100:-100]).max() < 2e-3


def _load_with_one_thread(utterance):
    torch.set_num_threads(1)  # torch's threads do not survive a fork
    load_audio(utterance)


def test_resampling_is_said_once_by_all_processes_together(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(audio, "_warned", mmap.mmap(-1, len(audio._warned)))
    monkeypatch.setattr(audio._log, "handlers", [logging.StreamHandler(sys.__stderr__)])
    monkeypatch.setattr(audio._log, "propagate", False)  # an earlier test may have started the log of a command
    utterances = [Utterance(name, write_audio(tmp_path / f"{name}.wav", rate=8000)) for name in "abc"]
    for u in utterances:
        process = multiprocessing.get_context("fork").Process(target=_load_with_one_thread, args=(u,))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert capfd.readouterr().err.count("audio is resampled to 16000 Hz; the first such file, at 8000 Hz: ") == 1


@pytest.mark.parametrize(("source", "target"), [(44100, 16000), (8000, 16000), (14400, 16000), (17600, 16000)])
def test_resampling_agrees_with_lhotse(source, target):
    lhotse_resample = pytest.importorskip("lhotse.augmentation.resample")
    wave = np.random.default_rng(1).normal(size=source // 2).astype(np.float32)
    expected = lhotse_resample.Resample(source, target)(torch.from_numpy(wave)[None])[0].numpy()
    np.testing.assert_allclose(resample(wave, source, target), expected, atol=5e-5)  # theirs has float32 filters


def test_resampling_with_an_odd_ratio_stays_small_and_nearly_right():
    found = resample(tone(1.0, 15991), 15991, 16000)
    assert len(found) == 16008  # 15991 / 0.999: a ratio without small factors is rounded by less than 0.1%
    expected = tone(hertz=440 * 0.999 * 16000 / 15991, seconds=len(found) / 16000)
    assert np.abs(found - expected)[100:-100].max() < 1e-3


# Preparing


def iban_like(folder, bad=()):
    rows = []
    for i in range(6):
        write_audio(folder / "audio" / f"u{i}.opus", 1.0 + i / 10)
        split = ("train", "train", "train", "dev", "test", "test")[i]
        row = {"id": f"u{i}", "audio": f"audio/u{i}.opus", "speaker": f"s{i % 2}", "split": split, "text": f"Kata {i}."}
        rows.append(row | ({"duration": 1.0 + i / 10} if i % 2 else {}))
    write_rows(folder / "manifest.jsonl", [*rows, *bad])
    return folder


def test_jsonl_corpus_becomes_one_manifest_per_split(tmp_path):
    files = prepare(
        "jsonl", iban_like(tmp_path / "in"), tmp_path / "out", Normalizer(lower=True, strip_punctuation=True)
    )
    assert {name: [u.id for u in us] for name, us in files.items()} == {
        "train": ["u0", "u1", "u2"],
        "dev": ["u3"],
        "test": ["u4", "u5"],
    }
    for name, utterances in files.items():
        assert load_manifest(tmp_path / "out" / f"{name}.jsonl.gz") == utterances
    assert files["train"][2].text == "kata 2"
    assert files["train"][2].duration == pytest.approx(1.2)
    assert files["dev"][0].split == "dev"


def test_preparing_twice_writes_the_same_bytes(tmp_path):
    iban_like(tmp_path / "in")
    for out in ("one", "two"):
        prepare("jsonl", tmp_path / "in", tmp_path / out, Normalizer())
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_manifest_of_an_earlier_corpus_stays_and_is_named(tmp_path, caplog):
    iban_like(tmp_path / "in")
    prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())
    assert caplog.messages == []
    before = (tmp_path / "out/dev.jsonl.gz").read_bytes()
    prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer(lower=True), subsets=["train"])
    stays = "existed before and is kept: this corpus has no such part"
    assert caplog.messages == [f"{tmp_path}/out/{name}.jsonl.gz {stays}" for name in ("dev", "test")]
    assert (tmp_path / "out/dev.jsonl.gz").read_bytes() == before


def test_parts_of_files_that_a_killed_prepare_left_are_removed(tmp_path):
    iban_like(tmp_path / "in")
    (tmp_path / "out").mkdir()
    for name, age in (("old", 90), ("new", 1)):
        part = tmp_path / f"out/.{name}.jsonl.gz.1.part"
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())
    assert [path.name for path in (tmp_path / "out").glob(".*")] == [".new.jsonl.gz.1.part"]


def test_one_file_per_split_works_too(tmp_path):
    write_audio(tmp_path / "in" / "a.wav")
    for name in ("train", "validation", "test"):
        write_rows(tmp_path / "in" / f"{name}.jsonl", [{"id": name, "audio": "a.wav", "text": "x"}])
    assert sorted(prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())) == ["dev", "test", "train"]


@pytest.mark.parametrize(
    ("name", "split"), [("speech.jsonl", "train"), ("dev.jsonl", "dev"), ("my.manifest.jsonl", "train")]
)
def test_a_row_without_a_split_belongs_to_the_one_its_file_is_named_after_or_to_train(tmp_path, name, split):
    write_audio(tmp_path / "a.wav")
    write_rows(tmp_path / name, [{"audio": "a.wav", "text": "x"}])
    assert list(prepare("jsonl", tmp_path / name, tmp_path / "out", Normalizer())) == [split]


def test_a_file_beside_those_of_the_splits_is_not_taken_for_training(tmp_path):
    write_audio(tmp_path / "in" / "a.wav")
    for name in ("train", "notes"):
        write_rows(tmp_path / "in" / f"{name}.jsonl", [{"id": name, "audio": "a.wav", "text": "x"}])
    with pytest.raises(WildCTCError, match="split 'notes' is none of train, dev, test"):
        prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())


def test_bad_rows_are_listed_once_each_and_left_out(tmp_path, caplog):
    folder = tmp_path / "in"
    iban_like(folder)
    reasons = {f"audio-{name}": reason for name, reason in bad_files(folder).items() if name not in ("nan", "inf")}
    bad = [{"id": id, "audio": f"{id[6:]}.wav", "text": "x", "duration": 2.0} for id in reasons]
    bad += [
        {"id": "mute", "audio": "audio/u0.opus", "text": " ... "},
        {"id": "u1", "audio": "audio/u1.opus", "text": "x"},
    ]
    bad += [{"id": "unseen", "audio": "audio/u0.opus", "text": "\u200b \u202e"}]
    bad += [{"id": "odd", "audio": "audio/u0.opus", "text": "x", "split": "spare"}]
    bad += [{"id": "half", "audio": "audio/u0.opus", "text": "half an emoji \ud83d"}]
    reasons |= {"unseen": "empty transcript"}
    reasons |= {"half": "half a surrogate pair in its transcript: U+D83D"}
    reasons |= {"mute": "empty transcript", "u1": "its id occurs twice", "odd": "split 'spare' is none of train"}
    iban_like(folder, bad)
    files = prepare("jsonl", folder, tmp_path / "out", Normalizer(strip_punctuation=True), limit=0.75)
    assert sum(map(len, files.values())) == 6
    rejected = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rejected} == reasons.keys()
    assert len(rejected) == len(reasons)
    for row in rejected:
        assert row["reason"].startswith(reasons[row["id"]])
    assert caplog.messages == []  # the summary says it, by kind


MALFORMED = {
    b'{"audio": "audio/u0.opus", "text": "x"': "not JSON",
    b"[" * 100_000: "not JSON",
    b"[1]": "not a JSON object",
    b'{"id": "c", "audio": "audio/u0.opus", "text": "caf\xe9"}': "not UTF-8",
    b'{"id": "n", "audio": "audio/u0.opus", "text": "x", "duration": -1}': "field 'duration' is negative",
    b'{"id": "i", "audio": "a.wav", "text": "x", "channel": Infinity}': "field 'channel' is not a finite number",
    b'{"id": "l", "audio": "audio/u0.opus", "text": ["x"]}': "field 'text' is not a string",
    b'{"id": "z", "audio": "a\\u0000b.wav", "text": "x"}': "field 'audio' is not a path",
    b'{"id": "\\ud83d", "audio": "audio/u0.opus", "text": "x"}': "half a surrogate pair in its id",
    b'{"id": "s", "audio": "audio/u0.opus", "text": "x", "start": Infinity}': "field 'start' is not a finite number",
}


def test_malformed_rows_are_bad_utterances_and_the_rows_after_them_are_read(tmp_path):
    manifest = iban_like(tmp_path / "in") / "manifest.jsonl"
    good = manifest.read_bytes().splitlines()
    manifest.write_bytes(b"\n".join([*good[:2], *MALFORMED, *good[2:]]))
    files = prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer(), limit=0.7)
    assert sum(map(len, files.values())) == 6
    rejected = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert sorted(row["reason"].partition(":")[0] for row in rejected) == sorted(MALFORMED.values())
    by_id = {row["id"]: row for row in rejected}
    assert by_id["line 3"]["audio"] == f"{manifest}:3"
    assert by_id["n"]["audio"] == f"{manifest}:7"
    with pytest.raises(WildCTCError, match="10 of 16 utterances cannot be used"):
        prepare("jsonl", tmp_path / "in", tmp_path / "again", Normalizer(), limit=0.6)


def test_too_many_bad_rows_stop_with_nothing_written(tmp_path):
    iban_like(tmp_path / "in", [{"id": "gone", "audio": "gone.wav", "text": "x"}])
    with pytest.raises(WildCTCError, match=r"1 of 7 utterances .* limit of 1.00%; the first: gone \(.*: no such file"):
        prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())
    assert not (tmp_path / "out").exists()


def test_a_corpus_of_which_nothing_is_left_is_an_error_whatever_the_limit(tmp_path):
    write_rows(tmp_path / "in/manifest.jsonl", [{"id": "gone", "audio": "gone.wav", "text": "x"}])
    with pytest.raises(WildCTCError, match=r"none of the 1 utterances of .* can be used; the first: gone"):
        prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer(), limit=1.0)
    assert not (tmp_path / "out").exists()


def test_many_bad_utterances_are_counted_by_kind_and_not_named_one_by_one(tmp_path, caplog):
    bad = [{"id": f"gone{i}", "audio": f"gone{i}.wav", "text": "x"} for i in range(50)]
    bad += [{"id": f"empty{i}", "audio": "audio/u0.opus", "text": ""} for i in range(2)]
    iban_like(tmp_path / "in", bad)
    with pytest.raises(WildCTCError, match="52 of 58 utterances cannot be used"):
        prepare("jsonl", tmp_path / "in", tmp_path / "out", Normalizer())
    [said] = caplog.messages
    assert said.splitlines() == [
        "cannot be used:",
        f"  50  no such file, such as gone0 ({tmp_path}/in/gone0.wav)",
        f"   2  empty transcript, such as empty0 ({tmp_path}/in/audio/u0.opus)",
    ]


def test_rejects_name_the_first_of_a_kind_and_say_that_there_are_more(caplog):
    rejects = Rejects(limit=1.0)
    for i in range(30):
        rejects.add(UtteranceError(Utterance(f"u{i}", Path("a.wav")), f"truncated: {i} s of 40 s"))
    rejects.add(UtteranceError(Utterance("v", Path("a.wav")), "empty transcript"))
    assert caplog.messages[:2] == [
        "skipped: u0 (a.wav): truncated: 0 s of 40 s",
        "skipped: u1 (a.wav): truncated: 1 s of 40 s",
    ]
    assert caplog.messages[10:] == [
        "skipped: more utterances for the same reason (truncated), which are not named here",
        "skipped: v (a.wav): empty transcript",
    ]


def test_audio_that_is_damaged_inside_is_found_by_decoding_and_without_it_that_is_said(tmp_path, capsys):
    folder = iban_like(tmp_path / "in")
    path = write_audio(folder / "audio/hurt.flac", wave=np.random.default_rng(0).normal(size=48000) / 10)
    content = bytearray(path.read_bytes())
    content[20_000:40_000] = bytes(20_000)
    path.write_bytes(content)
    row = {"id": "hurt", "audio": "audio/hurt.flac", "text": "x", "split": "train"}
    iban_like(folder, [row])
    with pytest.raises(WildCTCError, match=r"1 of 7 .* hurt \(.*hurt.flac\): truncated or damaged"):
        prepare("jsonl", folder, tmp_path / "out", Normalizer())
    assert main(["prepare", "jsonl", str(folder), str(tmp_path / "out"), "--no-decode"]) == 0
    assert "not decoded (--no-decode)" in capsys.readouterr().out
    assert main(["prepare", "jsonl", str(folder), str(tmp_path / "out"), "--max-bad", "0.2"]) == 0
    assert "all of it can be decoded" in capsys.readouterr().out
    assert "hurt" not in [u.id for u in load_manifest(tmp_path / "out/train.jsonl.gz")]


def test_the_summary_says_how_much_there_is_what_is_shared_and_what_was_left_out(tmp_path, capsys):
    write_audio(tmp_path / "in/a.wav", 60.0)
    write_audio(tmp_path / "in/b.wav", wave=np.zeros((8000 * 30, 2), np.float32), rate=8000)
    rows = [{"id": f"t{i}", "audio": "a.wav", "text": f"kata {'ab'[i % 2]}", "speaker": f"s{i % 5}"} for i in range(20)]
    rows += [{"id": "t20", "audio": "a.wav", "text": "kata ça", "speaker": "s0"}]
    rows += [
        {"id": f"e{i}", "audio": "b.wav", "text": t, "split": "test", "speaker": s} for i, (t, s) in enumerate(TEST)
    ]
    rows += [{"id": f"g{i}", "audio": f"g{i}.wav", "text": "x"} for i in range(12)]
    write_rows(tmp_path / "in/manifest.jsonl", rows)
    assert main(["prepare", "jsonl", str(tmp_path / "in"), str(tmp_path / "out"), "--max-bad", "0.5"]) == 0
    width = len(f"{tmp_path}/out")
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/out  utterances  minutes  speakers  in train  sentences  in train",
        "─" * (width + 62),
        "train.jsonl.gz".ljust(width) + "          21    21.00         5                    3",
        "test.jsonl.gz".ljust(width) + "           3     1.50         2         1          3         1",
        "",
        "audio       16,000 Hz mono (21 utterances), 8,000 Hz stereo (3 utterances)",
        "            all of it can be decoded",
        "characters  6 in train; fewer than 10 times: ç (U+00E7) 1×",
        " " * 12
        + "in test but not in train: ж (U+0436) 2×, 日 (U+65E5) 1×, in 2 utterances; a model cannot learn them",
        "no dev      `wildctc train` needs one, to choose its best epochs by",
        f"skipped     12 of 36 utterances, listed in {tmp_path}/out/rejected.jsonl:",
        f"              12  no such file, such as g0 ({tmp_path}/in/g0.wav)",
    ]


TEST = [("kata a", "s0"), ("kata жж", "t"), ("ж 日", "t")]


def test_a_wrong_column_is_an_error_that_names_those_that_are_there(tmp_path):
    for row, lacking in (({"audio": "a.wav", "sentence": "x"}, "text"), ({"path": "a.wav", "text": "x"}, "audio")):
        write_rows(tmp_path / "manifest.jsonl", [row])
        with pytest.raises(WildCTCError, match=f"no field '{lacking}': there are {', '.join(row)}"):
            prepare("jsonl", tmp_path, tmp_path / "out", Normalizer())


def test_exactly_the_limit_is_still_allowed():
    rejects = Rejects(limit=0.01)
    for _ in range(2):
        rejects.add(UtteranceError(Utterance("a", Path("a.wav")), "empty transcript"))
    rejects.check(100)
    with pytest.raises(WildCTCError, match="1 of 99"):
        rejects.check(99)


def test_too_many_bad_rows_name_the_option_that_allows_more():
    for option, reason in (("--max-bad", "empty transcript"), ("--data.max_bad", "System error.")):
        rejects = Rejects(limit=0.01, option=option)
        rejects.add(UtteranceError(Utterance("a", Path("a.wav")), reason))
        with pytest.raises(WildCTCError, match=rf"[a-z]\. Repair them, or allow more with {option}$"):
            rejects.check(1)


def kaldi_dir(folder, segments=False):
    write_audio(folder.parent.parent / "wavs" / "r1.wav", 2.0)
    write_audio(folder.parent.parent / "wavs" / "with space.flac", 1.0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wav.scp").write_text("r1 wavs/r1.wav\nr2\twavs/with space.flac\n")
    if segments:
        (folder / "segments").write_text("r1-a r1 0.25 0.75\nr1-b r1 1.0 -1\nr2-a r2 0 1.0\n")
        (folder / "text").write_text("r1-a اول\nr1-b دوم سوم\nr2-a  x  y\n", encoding="utf-8")
        (folder / "utt2spk").write_text("r1-a ann\nr1-b bob\nr2-a ann\n")
    else:
        (folder / "text").write_text("r1 one two\nr2 three\n")
    return folder


def test_kaldi_directory_with_segments(tmp_path):
    kaldi_dir(tmp_path / "data" / "train", segments=True)
    kaldi_dir(tmp_path / "data" / "dev")
    kaldi_dir(tmp_path / "data" / "eval92")
    kaldi_dir(tmp_path / "data" / "eval93")
    (tmp_path / "data" / "lang").mkdir()
    # Ids are unique within a corpus, so the other sets get their own.
    for name in ("dev", "eval92", "eval93"):
        for table in ("wav.scp", "text"):
            path = tmp_path / "data" / name / table
            path.write_text("".join(f"{name}-{line}\n" for line in path.read_text().splitlines()))
    files = prepare("kaldi", tmp_path / "data", tmp_path / "out", Normalizer())
    assert {name: len(us) for name, us in files.items()} == {"train": 3, "dev": 2, "test": 4, "eval92": 2, "eval93": 2}
    a, b, c = files["train"]
    assert (a.id, a.text, a.speaker, a.start, a.duration) == ("r1-a", "اول", "ann", 0.25, 0.5)
    assert (b.id, b.text, b.speaker, b.start, b.duration) == ("r1-b", "دوم سوم", "bob", 1.0, 1.0)
    assert (c.text, c.audio.name) == ("x y", "with space.flac")
    assert len(load_audio(a)) == 8000


def test_one_kaldi_directory_alone_is_train_unless_its_name_says_otherwise(tmp_path):
    kaldi_dir(tmp_path / "data" / "corpus")
    kaldi_dir(tmp_path / "data" / "dev_other")
    assert list(prepare("kaldi", tmp_path / "data" / "corpus", tmp_path / "1", Normalizer())) == ["train"]
    assert list(prepare("kaldi", tmp_path / "data" / "dev_other", tmp_path / "2", Normalizer())) == ["dev"]


def test_kaldi_pipes_are_refused_and_never_run(tmp_path):
    folder = kaldi_dir(tmp_path / "data" / "train")
    (folder / "wav.scp").write_text(f"r1 touch {tmp_path}/ran; cat wavs/r1.wav |\n")
    with pytest.raises(
        WildCTCError, match=r"wav\.scp: 'touch .* is a command, and commands are not run; write its output"
    ):
        prepare("kaldi", folder, tmp_path / "out", Normalizer())
    assert not (tmp_path / "ran").exists()


def test_kaldi_tables_that_disagree_are_reported_by_utterance(tmp_path):
    folder = kaldi_dir(tmp_path / "data" / "train")
    with open(folder / "wav.scp", "a") as table:
        table.write("good wavs/r1.wav\n")
    (folder / "text").write_text("r1 one\nr9 nine\ngood two\n")
    (folder / "utt2dur").write_text("r1 5.0\n")
    prepare("kaldi", folder, tmp_path / "out", Normalizer(), limit=1.0)
    rejected = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert [(row["id"], row["reason"]) for row in rejected] == [
        ("r1", "truncated: 2.00 s of 5.00 s"),
        ("r2", "empty transcript"),
        ("r9", "no such file"),
    ]
    assert "not in wav.scp" in rejected[2]["audio"]


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("segments", b"r1 r1 2.0 1.0\nr2 r2 0 1", r"r1 \(.*/segments\): expected .*: r1 2.0 1.0"),
        ("segments", b"r1 r1 2.0\nr2 r2 0 1", r"r1 \(.*/segments\): expected .*: r1 2.0"),
        ("segments", b"r1 r1 0 inf\nr2 r2 0 1", r"r1 \(.*/segments\): expected .*: r1 0 inf"),
        ("utt2dur", b"r1 long", r"r1 \(.*/utt2dur\): no duration: long"),
        ("utt2dur", b"r1 -1", r"r1 \(.*/utt2dur\): no duration: -1"),
        ("text", b"r1 a\nr1 b\nr2 c", r"r1 \(.*/text\): occurs twice in text: line 2"),
        ("text", b"r1 caf\xe9\nr2 c", r"r1 \(.*/text\): not UTF-8: byte 0xe9"),
    ],
)
def test_a_broken_line_of_a_kaldi_table_is_one_bad_utterance(tmp_path, table, content, message):
    folder = kaldi_dir(tmp_path / "data" / "train")
    (folder / table).write_bytes(content)
    with pytest.raises(WildCTCError, match=f"1 of 2 utterances .*{message}"):
        prepare("kaldi", folder, tmp_path / "out", Normalizer())
    files = prepare("kaldi", folder, tmp_path / "out", Normalizer(), limit=0.5)
    assert [u.id for u in files["train"]] == ["r2"]


def librispeech(root, subset, speaker="84", chapter="121"):
    folder = root / subset / speaker / chapter
    stem = f"{speaker}-{chapter}"
    for i in range(2):
        write_audio(folder / f"{stem}-000{i}.flac", 1.0)
    (folder / f"{stem}.trans.txt").write_text(f"{stem}-0000 GO DO YOU HEAR\n{stem}-0001 IT'S A START\n")
    return folder


def test_librispeech_subsets_become_splits(tmp_path):
    for i, subset in enumerate(("train-clean-100", "dev-clean", "test-clean", "test-other")):
        librispeech(tmp_path / "LibriSpeech", subset, speaker=str(i))
    files = prepare("librispeech", tmp_path, tmp_path / "out", Normalizer(lower=True))
    sizes = {"train": 2, "dev": 2, "test": 4, "test-clean": 2, "test-other": 2}
    assert {name: len(us) for name, us in files.items()} == sizes
    first = files["train"][0]
    assert (first.id, first.speaker, first.text, first.split) == ("0-121-0000", "0", "go do you hear", "train")
    assert files["train"][1].text == "it's a start"
    assert prepare("librispeech", tmp_path / "LibriSpeech", tmp_path / "out2", Normalizer(lower=True)) == files


def test_librispeech_without_transcript_or_audio_is_reported(tmp_path):
    folder = librispeech(tmp_path, "train-clean-100")
    write_audio(folder / "84-121-0002.flac")
    (folder / "84-121-0001.flac").unlink()
    prepare("librispeech", tmp_path, tmp_path / "out", Normalizer(), limit=0.7)
    rejected = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert [(r["id"][-4:], r["reason"]) for r in rejected] == [("0001", "no such file"), ("0002", "empty transcript")]


def test_a_librispeech_line_that_is_not_utf8_is_one_bad_utterance(tmp_path):
    folder = librispeech(tmp_path, "train-clean-100")
    (folder / "84-121.trans.txt").write_bytes(b"84-121-0000 CAF\xc9\n84-121-0001 A START\n")
    files = prepare("librispeech", tmp_path, tmp_path / "out", Normalizer(), limit=0.5)
    assert [u.id for u in files["train"]] == ["84-121-0001"]
    [rejected] = map(json.loads, (tmp_path / "out" / "rejected.jsonl").read_text().splitlines())
    assert (rejected["id"], rejected["reason"]) == ("84-121-0000", "not UTF-8: byte 0xc9")


def test_what_is_no_corpus_is_one_clear_line(tmp_path):
    (tmp_path / "in").mkdir()
    for source, message in (
        ("jsonl", r"no manifest\.jsonl, manifest\.csv or manifest\.tsv in"),
        ("kaldi", r"no wav\.scp in"),
        ("librispeech", "no subset such as train-clean-100"),
        ("timit", "unknown source 'timit'; known: jsonl, csv, kaldi, librispeech"),
    ):
        with pytest.raises(WildCTCError, match=message):
            prepare(source, tmp_path / "in", tmp_path / "out", Normalizer())
    with pytest.raises(WildCTCError, match="no such file or directory"):
        prepare("jsonl", tmp_path / "none", tmp_path / "out", Normalizer())
    iban_like(tmp_path / "ok")
    (tmp_path / "file").touch()
    with pytest.raises(WildCTCError, match="cannot write"):
        prepare("jsonl", tmp_path / "ok", tmp_path / "file", Normalizer())


def test_the_iban_corpus_is_prepared_whole(tmp_path, caplog):
    if "WILDCTC_IBAN" not in os.environ:
        pytest.skip("WILDCTC_IBAN names no directory with the Iban speech")
    with caplog.at_level(logging.WARNING):
        files = prepare("jsonl", os.environ["WILDCTC_IBAN"], tmp_path, Normalizer(), decode=False)  # a minute more
    assert {name: len(us) for name, us in files.items()} == {"train": 2428, "dev": 157, "test": 434}
    assert caplog.messages == []
    assert {u.speaker for u in files["train"]}.isdisjoint(u.speaker for u in files["dev"] + files["test"])


def test_another_field_can_be_the_transcript(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(16000), 16000)
    rows = [{"id": name, "audio": "a.wav", "text": "said", "machine": f"heard {name}"} for name in ("a", "b")]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    main(["prepare", "jsonl", str(tmp_path), str(tmp_path / "out"), "--text-field", "machine"])
    assert [u.text for u in load_manifest(tmp_path / "out" / "train.jsonl.gz")] == ["heard a", "heard b"]
    with pytest.raises(WildCTCError, match="no field 'machin': there are id, audio, text, machine"):
        prepare("jsonl", tmp_path, tmp_path / "out", Normalizer(), text_field="machin")
    with pytest.raises(WildCTCError, match="--text-field is for jsonl, csv and huggingface, not for kaldi"):
        prepare("kaldi", tmp_path, tmp_path / "out", Normalizer(), text_field="machine")


def test_harper_valley_has_the_transcripts_of_people_and_of_a_machine(tmp_path):
    if "WILDCTC_HARPER_VALLEY" not in os.environ:
        pytest.skip("WILDCTC_HARPER_VALLEY names no directory with the Harper Valley speech")
    settings = {"take": Subset(hours=3), "decode": False}
    people, machine = (
        prepare("jsonl", os.environ["WILDCTC_HARPER_VALLEY"], tmp_path, Normalizer(), text_field=field, **settings)
        for field in ("text", "machine")
    )
    assert [u.id for u in people["train"]] == [u.id for u in machine["train"]]  # the same three hours
    differ = sum(a.text != b.text for a, b in zip(people["train"], machine["train"], strict=True))
    assert 0.2 < differ / len(people["train"]) < 0.3
    assert {u.speaker for u in people["train"]}.isdisjoint(u.speaker for u in people["dev"] + people["test"])
