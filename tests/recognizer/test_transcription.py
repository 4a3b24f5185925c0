"""From audio of any length, rate and number of channels to text with times: in Python and on the command line."""

import json
import mmap
import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, make_corpus, read_rows, say, write_rows

import wildctc
from wildctc.audio import sound_files as audio
from wildctc.audio.recordings import open_recording
from wildctc.audio.resampling import resample
from wildctc.audio.segmentation import LONGEST, cut_at_pauses, find_pause
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.errors import WildCTCError
from wildctc.recognizer.batch import decode_utterances
from wildctc.recognizer.subtitles import LINE, LINES, cues, to_srt, to_vtt
from wildctc.recognizer.transcription import Transcript, Word, time_words
from wildctc.terminal import display_width
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import SentencePieceUnits
from wildctc.training.config import load_recipe
from wildctc.training.loop import train

SENTENCES = ["abc de", "fed cab", "bad", "face", "dec abf", "cafe bed"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The tones, and a model that has learned them: CORPUS/run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("transcribing")
    config = load_recipe(str(make_corpus(folder, {"train": 100, "dev": 5, "test": 8})))
    config.data.workers, config.training.epochs = 0, 8
    train(config, folder / "run")
    return folder


@pytest.fixture(scope="module")
def model(corpus):
    return wildctc.load(corpus / "run")


def silence(seconds, rng):
    return (0.005 * rng.standard_normal(int(seconds * RATE))).astype(np.float32)


def talk(seconds, rng):
    """So much speech with pauses between its sentences, and each sentence with the second in which it begins."""
    waves, said, time = [silence(0.5, rng)], [], 0.5
    while time < seconds:
        sentence = SENTENCES[len(said) % len(SENTENCES)]
        said.append((sentence, time))
        waves += [say(sentence, rng), silence(rng.uniform(0.4, 0.9), rng)]
        time = sum(map(len, waves)) / RATE
    return np.concatenate(waves), said


# ------------------------------------------------------------------------------------------------------- the recogniser


def test_a_run_and_its_model_folder_give_the_same_recogniser_and_so_does_a_copy(corpus, model, tmp_path):
    wildctc.load(corpus / "run/model").save(tmp_path / "copy")
    copy = wildctc.load(str(tmp_path / "copy"))
    assert copy.transcribe(corpus / "test0.wav") == model.transcribe(corpus / "test0.wav")


def test_a_recogniser_in_training_transcribes_without_dropout_and_stays_in_training(corpus, model):
    wanted = model.logits(corpus / "test0.wav")
    model.train()
    try:
        assert torch.equal(model.logits(corpus / "test0.wav"), wanted)
        assert model.training
        assert model.encoder.training
    finally:
        model.eval()


def test_a_short_file_is_transcribed_as_decode_does(corpus, model):
    test = load_manifest(corpus / "test.jsonl")
    decoded = decode_utterances(model, test, workers=0)
    for utterance, expected in zip(test, decoded, strict=True):
        found = model.transcribe(utterance.audio)
        assert found.text == expected.text == " ".join(word.text for word in found.words)
        assert found.score == pytest.approx(expected.score, abs=1e-3)
        assert found.duration == pytest.approx(utterance.duration)
    assert sum(d.text == u.text for d, u in zip(decoded, test, strict=True)) >= 6  # the model has learned something


def test_arrays_of_any_kind_are_heard_like_the_file(corpus, model):
    wave, rate = soundfile.read(corpus / "test0.wav", dtype="float32")
    expected = model.transcribe(corpus / "test0.wav")
    stereo = np.stack([wave, wave])
    for array in (wave, wave.astype(np.float64), torch.from_numpy(wave), stereo, stereo.T):
        assert model.transcribe(array, sampling_rate=rate) == expected
    assert model.transcribe((wave * 32768).astype(np.int16), sampling_rate=rate).text == expected.text


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_any_sampling_rate_is_resampled(model, rate):
    wave = resample(say("bad cafe", np.random.default_rng(1)), RATE, rate)
    found = model.transcribe(wave, sampling_rate=rate)
    assert found.text == "bad cafe"
    assert found.words[1].start == pytest.approx(4 * 0.12, abs=0.1)


def test_channels_are_mixed_unless_one_is_chosen(model, tmp_path):
    rng = np.random.default_rng(2)
    left, right = say("abc", rng), say("fed", rng)
    soundfile.write(tmp_path / "two.wav", np.stack([left, right], 1), RATE)
    assert model.transcribe(tmp_path / "two.wav", channel=0).text == "abc"
    assert model.transcribe(tmp_path / "two.wav", channel=1).text == "fed"
    mixed = model.transcribe((left + right) / 2, sampling_rate=RATE)
    assert model.transcribe(tmp_path / "two.wav").text == mixed.text
    with pytest.raises(WildCTCError, match="no channel 2: the file has 2"):
        model.transcribe(tmp_path / "two.wav", channel=2)


def test_every_command_mixes_the_channels_of_a_manifest(corpus, tmp_path, capsys):
    wave = say("bad cafe", np.random.default_rng(2))
    file = tmp_path / "two.wav"
    soundfile.write(file, np.stack([np.zeros_like(wave), wave], 1), RATE, subtype="FLOAT")
    run, manifest, out = str(corpus / "run"), str(tmp_path / "m.jsonl"), tmp_path / "out"
    write_rows(tmp_path / "m.jsonl", [{"id": "two", "audio": "two.wav", "text": "bad cafe"}])
    assert main(["transcribe", run, str(file)]) == 0
    assert capsys.readouterr().out == "bad cafe\n"
    assert main(["decode", run, manifest, "-o", f"{out}.jsonl", "--cache", f"{out}-cache", "--workers", "0"]) == 0
    assert read_rows(tmp_path / "out.jsonl")[0]["text"] == "bad cafe"
    capsys.readouterr()
    assert main(["align", run, manifest, "--format", "ctm", "--workers", "0"]) == 0
    assert [line.split()[4:] for line in capsys.readouterr().out.splitlines()] == [["bad", "1.00"], ["cafe", "1.00"]]
    assert main(["probe", run, manifest, "-o", f"{out}-probe.jsonl", "--workers", "0"]) == 0
    assert read_rows(tmp_path / "out-probe.jsonl")[1]["heard"] == "bad cafe"
    assert main(["audit", f"{out}-probe.jsonl", "-o", f"{out}-report"]) == 0
    clip, _ = soundfile.read(tmp_path / "out-report/audio/000000.flac", dtype="float32")
    np.testing.assert_allclose(clip, wave / 2, atol=1e-4)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_every_command_says_once_that_it_resamples(corpus, tmp_path, capfd, monkeypatch, workers):
    files = [str(tmp_path / f"{name}.wav") for name in "ab"]
    for file in files:
        soundfile.write(file, resample(say("bad cafe", np.random.default_rng(2)), RATE, 8000), 8000)
    write_rows(tmp_path / "m.jsonl", [{"audio": file, "text": "bad cafe"} for file in files])
    run, manifest = str(corpus / "run"), str(tmp_path / "m.jsonl")
    for words in (
        ["transcribe", run, *files],
        ["decode", run, manifest, "-o", str(tmp_path / "out.jsonl"), "--workers", workers],
        ["align", run, manifest, "--workers", workers],
        ["probe", run, manifest, "-o", str(tmp_path / "probe.jsonl"), "--workers", workers],
    ):
        monkeypatch.setattr(audio, "_warned", mmap.mmap(-1, len(audio._warned)))  # as in a new process
        assert main(words) == 0
        assert capfd.readouterr().err.count("audio is resampled to 16000 Hz; the first such file, at 8000 Hz: ") == 1


def test_words_have_the_times_at_which_they_were_said(model):
    text, rng = "cafe bed fad", np.random.default_rng(3)
    found = model.transcribe(np.concatenate([silence(1.0, rng), say(text, rng)]), sampling_rate=RATE)
    assert found.text == text
    for word, begin in zip(found.words, (0, 5, 9), strict=True):
        assert word.start == pytest.approx(1.0 + begin * 0.12, abs=0.1)
        assert word.end == pytest.approx(1.0 + (begin + len(word.text)) * 0.12, abs=0.1)


def test_words_of_pieces_have_times_too():
    units = SentencePieceUnits.train(["he hello world word held"] * 9, Normalizer(), 14)
    ids = units.encode("held world")
    assert len(ids) < len("held world")  # pieces, not letters
    heard = [0, *(frame for label in ids for frame in (label, label, 0))]
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor(heard), len(units)).float()
    words = time_words(logits, ids, units, [frame / 10 for frame in range(len(heard) + 1)])
    pieces = [units.words(ids).count(word) for word in (0, 1)]
    assert [word.text for word in words] == ["held", "world"]
    assert [word.start for word in words] == [0.1, pytest.approx((1 + 3 * pieces[0]) / 10)]
    assert [word.end for word in words] == [pytest.approx(3 * n / 10) for n in (pieces[0], sum(pieces))]


def test_nothing_said_is_no_words(model):
    for array in (np.zeros(0, np.float32), np.zeros(100, np.float32), silence(1.0, np.random.default_rng(9))):
        found = model.transcribe(array, sampling_rate=RATE)
        assert (found.text, found.words) == ("", [])
        assert found.duration == len(array) / RATE


def test_logits_of_audio_are_those_that_transcribing_uses(corpus, model):
    logits = model.logits(corpus / "test0.wav")
    assert logits.shape == (len(logits), len(model.units.tokens))
    assert len(logits) == pytest.approx(soundfile.info(corpus / "test0.wav").duration * model.frame_rate, abs=4)
    wave, rate = soundfile.read(corpus / "test0.wav", dtype="float32")
    assert torch.equal(model.logits(wave, sampling_rate=rate), logits)


def test_arrays_that_cannot_be_audio_are_refused(model):
    for array, rate, message in (
        (np.zeros(100, np.float32), None, "needs its sampling_rate"),
        (np.zeros((1, 2, 3), np.float32), RATE, "this one has 3"),
        (np.array([0.0, np.nan]), RATE, "NaN or infinite"),
        (np.zeros(100, np.uint8), RATE, "not uint8"),
    ):
        with pytest.raises(WildCTCError, match=message):
            model.transcribe(array, sampling_rate=rate)


# ----------------------------------------------------------------------------------------------------------- long audio


def test_long_audio_is_cut_between_words_into_pieces_of_at_most_20_seconds():
    wave, said = talk(90, np.random.default_rng(4))
    stretches = [(start, start + 0.12 * len(sentence)) for sentence, start in said]
    blocks = np.array_split(wave, 7)
    pieces = list(cut_at_pauses(blocks, RATE))
    assert np.array_equal(np.concatenate(pieces), wave)
    assert all(len(piece) <= LONGEST * RATE for piece in pieces)
    assert min(map(len, pieces)) >= RATE
    for cut in np.cumsum([len(piece) for piece in pieces])[:-1] / RATE:
        assert not any(start < cut < end for start, end in stretches)


@pytest.mark.parametrize("seconds", [20.0, 20.01, 20.5, 21.0, 40.0, 41.5])
def test_no_piece_is_too_long_or_a_scrap(seconds):
    wave = np.random.default_rng(5).standard_normal(int(seconds * 1000)).astype(np.float32)
    pieces = [len(piece) / 1000 for piece in cut_at_pauses([wave], 1000)]
    assert sum(pieces) == pytest.approx(seconds)
    assert max(pieces) <= LONGEST
    assert min(pieces) >= 1.0
    assert len(pieces) == 1 or seconds > LONGEST


def test_the_longest_quiet_stretch_is_found_beside_louder_ones():
    rng = np.random.default_rng(6)
    wave = rng.standard_normal(20 * RATE).astype(np.float32)
    wave[int(8.0 * RATE) : int(8.3 * RATE)] *= 0.01
    wave[int(14.0 * RATE) : int(15.0 * RATE)] *= 0.01
    wave[: 4 * RATE] = 0  # too early to cut there
    assert find_pause(wave, RATE) / RATE == pytest.approx(14.5, abs=0.1)


def test_long_audio_keeps_all_words_in_order_with_their_times(model, tmp_path):
    wave, said = talk(65, np.random.default_rng(7))
    soundfile.write(tmp_path / "long.flac", wave, RATE)
    found = model.transcribe(tmp_path / "long.flac")
    expected = [(word, start + 0.12 * sentence.index(word)) for sentence, start in said for word in sentence.split()]
    assert found.duration == pytest.approx(len(wave) / RATE)
    times = [time for word in found.words for time in (word.start, word.end)]
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] >= 0
    assert times[-1] <= found.duration
    assert len(found.words) == pytest.approx(len(expected), rel=0.1)
    near = [any(abs(w.start - start) < 0.15 and w.text == text for w in found.words) for text, start in expected]
    assert sum(near) >= 0.8 * len(near)


PEAK = """
import re, sys, wildctc
model = wildctc.load(sys.argv[1])
model.transcribe(sys.argv[2])
# not getrusage: its peak is that of the process which was forked, if that was larger
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length_of_a_file(corpus, tmp_path):
    peaks = []
    for minutes in (1, 6):  # as float32 samples of both channels: 21 and 127 MB
        path = tmp_path / f"{minutes}.flac"
        with soundfile.SoundFile(path, "w", 44100, 2) as file:
            for _ in range(minutes):
                file.write(0.01 * np.random.default_rng(0).standard_normal((60 * 44100, 2)))
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(corpus / "run"), str(path)], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 40
    assert peaks[1] < 1000


# ------------------------------------------------------------------------------------------------------------ subtitles


def test_subtitles_are_short_readable_and_one_after_the_other():
    rng = np.random.default_rng(8)
    words, time = [], 0.0
    for _ in range(400):
        time += rng.choice([0.05, 0.1, 0.3, 3.0], p=[0.5, 0.3, 0.15, 0.05])
        text = "".join(rng.choice(list("abcdefghij"), rng.integers(1, 12)))
        words.append(Word(text, time, time + 0.07 * len(text)))
        time = words[-1].end
    shown = cues(Transcript(" ".join(w.text for w in words), words, 0.0, time + 0.1))
    assert " ".join(line for cue in shown for line in cue.lines).split() == [w.text for w in words]
    assert all(a.end <= b.start for a, b in pairwise(shown))
    assert all(0 < cue.end - cue.start <= 7.5 for cue in shown)
    assert all(1 <= len(cue.lines) <= LINES and max(map(len, cue.lines)) <= LINE for cue in shown)
    assert np.mean([cue.end - cue.start for cue in shown]) > 2
    assert shown[-1].end <= time + 0.1


def test_scripts_without_spaces_are_broken_but_no_mark_leaves_its_letter():
    text = "กำลังทดสอบคำบรรยายใต้ภาพที่ยาวมาก" * 8
    shown = cues(Transcript(text, [Word(text, 1.0, 20.0)], 0.0, 21.0))
    lines = [line for cue in shown for line in cue.lines]
    assert "".join(lines) == text
    assert max(map(display_width, lines)) <= LINE
    assert min(display_width(line[0]) for line in lines) == 1
    assert all(a.start < b.start for a, b in pairwise(shown))


def test_srt_and_vtt_are_what_players_read():
    found = Transcript("a & b", [Word("a", 0.0, 0.2), Word("&", 3.0, 3.1), Word("b", 3661.5, 3661.9)], 0.0, 4000.0)
    srt, vtt = to_srt(found), to_vtt(found)
    assert re.findall(r"^\d+$", srt, re.MULTILINE) == ["1", "2", "3"]
    assert "3\n01:01:01,500 --> 01:01:02,500\nb\n" in srt
    assert vtt.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na\n\n")
    assert "&amp;" in vtt
    assert to_srt(Transcript()) == ""
    assert to_vtt(Transcript()) == "WEBVTT\n"


# ---------------------------------------------------------------------------------------------------------- the command


def test_transcribe_prints_text_json_and_subtitles(corpus, capsys):
    run, file = str(corpus / "run"), str(corpus / "test0.wav")
    text = wildctc.load(run).transcribe(file).text
    assert main(["transcribe", run, file]) == 0
    assert capsys.readouterr().out == text + "\n"
    assert main(["transcribe", run, file, "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert list(row) == ["audio", "text", "duration", "score", "words"]
    assert (row["audio"], row["text"]) == (file, text)
    assert [word["text"] for word in row["words"]] == text.split()
    assert main(["transcribe", run, file, "--format", "srt", "--beam", "1"]) == 0
    assert re.match(r"1\n00:00:00,\d{3} --> ", capsys.readouterr().out)


def test_bad_files_are_named_and_the_others_done(corpus, tmp_path, capsys):
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("no audio here")
    (tmp_path / "short.wav").write_bytes((corpus / "test1.wav").read_bytes()[:5000])
    flac = tmp_path / "short.flac"
    soundfile.write(flac, np.random.default_rng(0).standard_normal(60 * RATE) / 10, RATE)
    flac.write_bytes(flac.read_bytes()[:-9000])
    soundfile.write(tmp_path / "nan.wav", np.full(RATE, np.nan, np.float32), RATE, subtype="FLOAT")
    bad = ["gone.wav", "empty.wav", "text.wav", "short.wav", "short.flac", "nan.wav"]
    files = [str(corpus / "test0.wav"), *(str(tmp_path / name) for name in bad), str(corpus / "test2.wav")]
    assert main(["transcribe", str(corpus / "run"), *files]) == 2
    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()] == [files[0], files[-1]]
    *lines, last = captured.err.splitlines()
    assert [line.split(": ")[0] for line in lines] == files[1:-1]
    assert last == "wildctc: 6 of 8 files could not be transcribed"
    assert main(["transcribe", str(corpus / "run"), files[1]]) == 2
    assert capsys.readouterr().err == f"wildctc: {files[1]}: no such file\n"


def test_several_files_get_a_file_each(corpus, tmp_path, capsys):
    run, files = str(corpus / "run"), [str(corpus / f"test{i}.wav") for i in range(3)]
    assert main(["transcribe", run, *files, "--format", "vtt", "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test0.vtt", "test1.vtt", "test2.vtt"]
    assert capsys.readouterr().out == f"{tmp_path}/out: test0.vtt, test1.vtt, test2.vtt\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.wav", "b.wav", "--format", "srt"], "several files as srt need -o DIR"),
        (["x/a.wav", "y/a.wav", "-o", "out"], "y/a.wav: another file's transcript would be out/a.txt too"),
        (["a.wav", "-o", "run"], "cannot write"),
        (["a.wav", "--beam", "0"], "--beam must be at least 1"),
        (["a.wav", "--format", "docx"], "invalid choice: 'docx'"),
    ],
)
def test_mistakes_are_said_before_the_work(corpus, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").touch()
    assert main(["transcribe", str(corpus / "run"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_loss_imports_neither_the_recogniser_nor_an_extra():
    use = "import wildctc; wildctc.WildcardCTCLoss"
    code = f"import sys, torch; before = set(sys.modules); {use}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "wildctc.loss" in loaded
    assert "wildctc.recognizer.model" not in loaded
    assert not loaded & {"soundfile", "sentencepiece", "safetensors", "yaml", "tqdm", "flashlight", "transformers"}


def test_a_sound_says_its_length_before_it_is_read(corpus):
    sound = open_recording(corpus / "test0.wav")
    assert sound.duration == soundfile.info(corpus / "test0.wav").duration
    assert read_rows(corpus / "test.jsonl")[0]["audio"] == "test0.wav"
    with pytest.raises(WildCTCError, match="is at 16000 Hz, not 8000"):
        open_recording(corpus / "test0.wav", sampling_rate=8000)
