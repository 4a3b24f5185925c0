"""`wildctc align-long` and `wildctc segment` on tones, from a trained model to every format."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import soundfile
import torch
from support.tones import RATE, make_corpus, read_rows, say, sentence

from wildctc.audio.resampling import resample
from wildctc.audio.sound_files import read_samples
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.packing import Packing, pack
from wildctc.corpora.shards import load_shards
from wildctc.longform import alignment, recording
from wildctc.longform.formats import to_text
from wildctc.longform.recording import align_recording
from wildctc.recognizer.model import Recognizer
from wildctc.training.config import load_recipe
from wildctc.training.loop import train

pytestmark = pytest.mark.slow  # trains a model

UNREAD, UNWRITTEN = 7, 12  # the number of a sentence that is only in the text, and of one that is only in the audio
SECONDS = 60.0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, and a minute of tones: rec.wav, text.txt, truth {sentence: (start, end)}."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("long")
    config = load_recipe(str(make_corpus(folder, {"train": 150, "dev": 5})))
    config.data.workers, config.training.epochs = 0, 10
    train(config, folder / "run")
    rng = np.random.default_rng(3)
    waves, truth, lines, at = [], {}, [], 0.0
    number = 0
    while at < SECONDS:
        text = " ".join(sentence(rng) for _ in range(2))
        if number != UNREAD:
            waves += [say(" " * int(rng.integers(4, 9)), rng), say(text, rng)]
            truth[number] = (at + len(waves[-2]) / RATE, at + (len(waves[-2]) + len(waves[-1])) / RATE)
            at = truth[number][1]
        if number != UNWRITTEN:
            lines.append(text.capitalize() + ".")
        number += 1
    soundfile.write(folder / "rec.wav", np.concatenate(waves), RATE)
    (folder / "text.txt").write_text("\n".join(lines))
    made = {"folder": folder, "truth": truth, "lines": lines}
    model = Recognizer.load(folder / "run")
    return made | {"model": model, "found": align_recording(model, folder / "rec.wav", folder / "text.txt").alignment}


def sentences(found):
    groups, group = [], []
    for word in found.words:
        group.append(word)
        if word.ends_sentence:
            groups.append(group)
            group = []
    return groups


def test_every_sentence_is_found_where_it_was_said(made):
    numbers = [n for n in range(len(made["lines"]) + 1) if n != UNWRITTEN]
    for number, words in zip(numbers, sentences(made["found"]), strict=True):
        if number == UNREAD:
            assert sum(word.read for word in words) <= 1  # a word of two letters can be heard anywhere
            continue
        start, end = made["truth"][number]
        assert words[0].start == pytest.approx(start, abs=0.25)
        assert words[-1].end == pytest.approx(end, abs=0.25)
        assert sum(word.read for word in words) >= 0.8 * len(words)


def test_a_recording_too_long_for_the_exact_path_gets_a_band_and_says_so(made, monkeypatch):
    monkeypatch.setattr(alignment, "_MOST_CELLS", 0)
    monkeypatch.setattr(alignment, "_BAND", 20)  # of some hundred letters
    folder = made["folder"]
    found = align_recording(made["model"], folder / "rec.wav", folder / "text.txt").alignment
    assert made["found"].band is None
    assert found.band is not None
    assert found.band >= alignment._BAND
    assert [(w.text, w.read, w.start) for w in found.words] == [(w.text, w.read, w.start) for w in made["found"].words]
    assert f"a band of {found.band:,} letters" in to_text(found)


def test_differences_name_the_unread_and_the_unwritten_sentence(made):
    found = made["found"]
    first = sum(len(line.split()) for line in made["lines"][:UNREAD])
    unread = {number for d in found.differences for number in range(d.first, d.stop)}
    sentence = range(first, first + len(made["lines"][UNREAD].split()))
    assert len(unread & set(sentence)) >= len(sentence) - 1
    assert len(unread - set(sentence)) <= 2
    start, end = made["truth"][UNWRITTEN]
    assert any(d.start < start + 0.3 and d.end > end - 0.3 and len(d.heard) > 5 for d in found.differences)
    assert found.found > 0.8


def test_words_keep_their_writing_and_order(made):
    found = made["found"]
    assert [w.text for w in found.words] == " ".join(made["lines"]).split()
    starts = [w.start for w in found.words]
    assert starts == sorted(starts)
    assert all(w.confidence is not None and 0 <= w.confidence <= 1 for w in found.words)


def test_every_format_is_written(made, capsys):
    folder = made["folder"]
    outputs = [folder / f"out{ending}" for ending in (".srt", ".vtt", ".TextGrid", ".ctm", ".json", ".txt", ".jsonl")]
    words = [word for output in outputs for word in ("-o", str(output))]
    arguments = ["align-long", str(folder / "run"), str(folder / "rec.wav"), str(folder / "text.txt"), *words]
    assert main([*arguments, "--audit", str(folder / "page")]) == 0
    assert "words were read" in capsys.readouterr().out
    srt, vtt, grid, ctm, told, labels, cuts = (output.read_text() for output in outputs)
    assert srt.startswith("1\n00:00:00,")
    assert vtt.startswith("WEBVTT")
    assert 'name = "differences"' in grid
    read = [w for w in made["found"].words if w.read]
    assert len(ctm.splitlines()) == len(read)
    assert [w["text"] for w in json.loads(told)["words"]] == [w.text for w in made["found"].words]
    assert all(len(line.split("\t")) == 3 for line in labels.splitlines())
    aligned = [word for line in cuts.splitlines() for word in json.loads(line)["alignment"]["word"]]
    assert [word[0] for word in aligned] == [w.text for w in read]
    assert (folder / "page" / "index.html").is_file()
    lhotse = pytest.importorskip("lhotse")
    supervisions = lhotse.SupervisionSet.from_jsonl(folder / "out.jsonl")
    assert next(iter(supervisions)).alignment["word"][0].symbol == aligned[0][0]


def test_old_times_of_subtitles_are_replaced(made):
    folder = made["folder"]
    cues = [f"{k + 1}\n09:00:00,000 --> 09:00:01,000\n{line}\n" for k, line in enumerate(made["lines"])]
    (folder / "old.srt").write_text("\n".join(cues))
    arguments = ["align-long", str(folder / "run"), str(folder / "rec.wav"), str(folder / "old.srt")]
    assert main([*arguments, "-o", str(folder / "new.srt")]) == 0
    texts = [block.split("\n", 2)[2].strip() for block in (folder / "new.srt").read_text().strip().split("\n\n")]
    assert made["lines"][UNREAD] not in texts
    assert set(made["lines"]) - set(texts) == {made["lines"][UNREAD]}
    assert "09:00" not in (folder / "new.srt").read_text()


def test_a_subtitle_that_begins_with_what_the_model_cannot_write_begins_with_its_words(made):
    folder = made["folder"]
    cues = [f"00:00:{k:02}.000 --> 00:00:{k:02}.500\n– 1984 {line}\n" for k, line in enumerate(made["lines"][:20])]
    (folder / "dash.vtt").write_text("WEBVTT\n\n" + "\n".join(cues))
    words = [str(folder / "run"), str(folder / "rec.wav"), str(folder / "dash.vtt"), "-o", str(folder / "dash.json")]
    assert main(["align-long", *words]) == 0
    found = json.loads((folder / "dash.json").read_text())["words"]
    assert [w["text"] for w in found[:2]] == ["–", "1984"]
    for before, word, after in zip(found, found[1:], found[2:], strict=False):
        if before["text"] == "–":
            assert before["start"] == word["start"] == after["start"]


def test_segments_are_what_was_said(made, capsys):
    folder = made["folder"]
    arguments = ["segment", str(folder / "run"), str(folder / "rec.wav"), str(folder / "text.txt")]
    assert main([*arguments, "-o", str(folder / "cut")]) == 0
    assert "not in text" in capsys.readouterr().out
    found = load_manifest(str(folder / "cut" / "manifest.jsonl"), None, None)
    assert len(found) > 10
    assert all(1.0 <= u.duration <= 20.0 for u in found)
    start, end = made["truth"][UNWRITTEN]
    assert not any(u.start < end - 0.3 and u.start + u.duration > start + 0.3 for u in found)
    assert sum(u.duration for u in found) > 0.5 * SECONDS
    said = []
    for utterance in found:
        wave, _ = soundfile.read(
            utterance.audio, start=int(utterance.start * RATE), frames=int(utterance.duration * RATE), dtype="float32"
        )
        heard = made["model"].transcribe(wave, sampling_rate=RATE, beam=1).text
        said.append(heard == utterance.text.lower().replace(".", ""))
    assert sum(said) >= 0.8 * len(said)


def test_a_changed_word_stays_inside_its_segment_as_an_alternative_that_training_reads(made):
    folder = made["folder"]
    lines = [line.lower().strip(".").split() for line in made["lines"]]
    said = lines[3][2]
    lines[3][2] = "afafafaf"
    (folder / "changed.txt").write_text("\n".join(" ".join(line) for line in lines))
    arguments = ["segment", str(folder / "run"), str(folder / "rec.wav"), str(folder / "changed.txt"), "--bridge", "1"]
    assert main([*arguments, "-o", str(folder / "bridged")]) == 0
    [text] = [row["text"] for row in read_rows(folder / "bridged" / "manifest.jsonl") if "afafafaf" in row["text"]]
    assert f" {{afafafaf|{said}}} " in text
    words = ["--data.dir", str(folder / "bridged"), "--data.train", "manifest.jsonl", "--data.dev", "manifest.jsonl"]
    epochs = ["--training.epochs", "1", "--training.ctc_epochs", "0"]
    assert main(["train", str(folder / "run" / "config.yaml"), *words, *epochs, "--out", str(folder / "again")]) == 0


def test_inputs_are_never_overwritten_and_folders_are_looked_at_first(made, capsys):
    folder = made["folder"]
    (folder / "full").mkdir()
    (folder / "full" / "thesis.tex").touch()
    arguments = ["align-long", "nowhere", str(folder / "rec.wav"), str(folder / "text.txt")]
    for more, said in (
        (["-o", str(folder / "text.txt")], "it is the input"),
        (["--audit", str(folder / "full")], "holds other files"),
        (["--language", "tam"], "is of --romanize"),
    ):
        assert main([*arguments, *more]) == 2
        assert said in capsys.readouterr().err


def test_one_bad_file_does_not_stop_the_rest_and_a_second_call_does_nothing_again(made, capsys):
    folder = made["folder"]
    (folder / "broken.wav").write_bytes(b"no sound")
    (folder / "table.tsv").write_text("broken.wav\ttext.txt\nrec.wav\ttext.txt\n")
    arguments = ["segment", str(folder / "run"), "--table", str(folder / "table.tsv"), "-o", str(folder / "many")]
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "left out:" in shown.out
    assert "broken.wav" in shown.out
    assert "1 of 2 recordings" in shown.err
    rows = read_rows(folder / "many" / "manifest.jsonl")
    assert rows == read_rows(folder / "cut" / "manifest.jsonl")
    (folder / "rec.wav").rename(folder / "away.wav")  # what is done is not read again
    assert main(arguments) == 2
    (folder / "away.wav").rename(folder / "rec.wav")
    assert read_rows(folder / "many" / "manifest.jsonl") == rows
    assert main([*arguments, "--confidence", "0.9"]) == 2
    assert "other lengths" in capsys.readouterr().err


def test_a_killed_call_goes_on_with_the_next_file_to_the_same_segments(made):
    folder = made["folder"]
    for name in "abc":
        (folder / f"{name}.wav").hardlink_to(folder / "rec.wav")
    (folder / "three.tsv").write_text("".join(f"{name}.wav\ttext.txt\n" for name in "abc"))
    arguments = ["segment", str(folder / "run"), "--table", str(folder / "three.tsv"), "-o"]
    assert main([*arguments, str(folder / "whole")]) == 0
    process = subprocess.Popen([sys.executable, "-m", "wildctc", *arguments, str(folder / "killed")])
    partial = folder / "killed" / "files.jsonl.0.partial"
    while process.poll() is None and (not partial.exists() or partial.read_bytes().count(b"\n\n") < 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "killed" / "manifest.jsonl").exists()
    (folder / "a.wav").unlink()  # it is done, and not read again
    assert main([*arguments, str(folder / "killed")]) == 0
    assert not partial.exists()
    assert read_rows(folder / "killed" / "manifest.jsonl") == read_rows(folder / "whole" / "manifest.jsonl")


def test_a_stereo_mp3_of_a_telephone_is_aligned_by_channel(made):
    folder = made["folder"]
    wave, _ = soundfile.read(folder / "rec.wav", dtype="float32")
    half = resample(wave, RATE, 8000)
    soundfile.write(folder / "call.mp3", np.stack([np.zeros_like(half), half], 1), 8000)
    for channel, status in ((None, 0), (1, 0), (0, 2), (2, 2)):
        words = ["align-long", str(folder / "run"), str(folder / "call.mp3"), str(folder / "text.txt")]
        words += [] if channel is None else ["--channel", str(channel)]
        assert main([*words, "-o", str(folder / "call.json")]) == status
    told = json.loads((folder / "call.json").read_text())
    assert told["channel"] == 1
    for found, expected in zip(told["words"], made["found"].words, strict=True):
        if expected.read and (expected.confidence or 0) > 0.9:
            assert found["start"] == pytest.approx(expected.start, abs=0.15)


def test_audio_and_text_are_looked_at_before_the_model(made, capsys):
    folder = made["folder"]
    for command, output in (("align-long", []), ("segment", ["-o", str(folder / "none")])):
        for audio, text, wrong in (("rec.wav", "away.txt", "away.txt"), ("away.wav", "text.txt", "away.wav")):
            assert main([command, "nowhere", str(folder / audio), str(folder / text), *output]) == 2
            assert wrong in capsys.readouterr().err
        assert main([command, "nowhere", str(folder / "text.txt"), str(folder / "rec.wav"), *output]) == 2
        assert "the audio comes first" in capsys.readouterr().err
    assert not (folder / "none").exists()


def refuse(made, capsys, audio, text):
    assert main(["align-long", str(made["folder"] / "run"), str(audio), str(text)]) == 2
    return capsys.readouterr().err


def test_text_of_another_recording_is_said_so(made, capsys):
    folder = made["folder"]
    rng = np.random.default_rng(9)
    (folder / "other.txt").write_text("\n".join(" ".join(sentence(rng) for _ in range(4)) for _ in range(20)))
    soundfile.write(folder / "quiet.wav", say("ab cd ef" + " " * 60 + "fa", rng), RATE)
    told = refuse(made, capsys, folder / "quiet.wav", folder / "other.txt")
    assert "of the text was found in the audio: is" in told
    least = told.split("--least ")[1].split()[0]
    arguments = [str(folder / "run"), str(folder / "quiet.wav"), str(folder / "other.txt"), "--least", least]
    assert main(["align-long", *arguments]) == 0


def test_a_text_ten_times_too_long_is_refused_before_anything_is_computed(made, capsys, monkeypatch):
    folder = made["folder"]
    rng = np.random.default_rng(9)
    other = "\n".join(" ".join(sentence(rng) for _ in range(4)) for _ in range(25 * len(made["lines"])))
    (folder / "ten.txt").write_text(other + "\n" + "\n".join(made["lines"]) + "\n" + other)
    monkeypatch.setattr(recording, "long_logits", None)
    assert "can have been read; give the part of the text" in refuse(
        made, capsys, folder / "rec.wav", folder / "ten.txt"
    )


def test_a_text_nine_times_too_long_is_refused_for_what_was_found(made, capsys):
    folder = made["folder"]
    rng = np.random.default_rng(9)
    other = "\n".join(" ".join(sentence(rng) for _ in range(4)) for _ in range(2 * len(made["lines"])))
    (folder / "nine.txt").write_text(other + "\n" + "\n".join(made["lines"]) + "\n" + other)
    assert "of the text was found in the audio" in refuse(made, capsys, folder / "rec.wav", folder / "nine.txt")


def test_silence_noise_and_damaged_files_get_a_clear_answer(made, capsys):
    folder, text = made["folder"], made["folder"] / "text.txt"
    soundfile.write(folder / "silence.wav", np.zeros(6 * RATE, np.float32), RATE)
    assert "found in the audio" in (said := refuse(made, capsys, folder / "silence.wav", text)) or "no speech" in said
    noise = 0.3 * np.random.default_rng(0).standard_normal(5 * RATE).astype(np.float32)
    soundfile.write(folder / "noise.wav", noise, RATE)
    assert "found in the audio" in (said := refuse(made, capsys, folder / "noise.wav", text)) or "no speech" in said
    whole = (folder / "rec.wav").read_bytes()
    (folder / "short.wav").write_bytes(whole[: len(whole) // 2])
    assert "truncated" in refuse(made, capsys, folder / "short.wav", text)
    assert "no format ends so" in refuse_output(made, capsys)


def refuse_output(made, capsys):
    folder = made["folder"]
    words = [str(folder / "run"), str(folder / "rec.wav"), str(folder / "text.txt"), "-o", str(folder / "out.docx")]
    assert main(["align-long", *words]) == 2
    return capsys.readouterr().err


def test_recordings_in_shards_become_shards_of_their_segments(made, tmp_path, capsys):
    """Also of a recording that is a part of a file, and of one that is silent."""
    wave, rate = soundfile.read(made["folder"] / "rec.wav")
    text = "\n".join(made["lines"])
    soundfile.write(tmp_path / "part.flac", np.concatenate([np.zeros(2 * rate), wave]), rate)
    rows = [
        {"id": "whole", "audio": str(made["folder"] / "rec.wav"), "text": text, "speaker": "ann", "split": "train"},
        {"id": "part", "audio": "part.flac", "start": 2.0, "duration": len(wave) / rate, "text": text},
        {"id": "silent", "audio": "part.flac", "duration": 1.9, "text": "dead beef"},
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, packing in (("packed", Packing(size=2)), ("linked", Packing(size=3, link=True))):
        pack(tmp_path / "m.jsonl", tmp_path / name, packing)
        words = ["segment", str(made["folder"] / "run"), str(tmp_path / name), "-o", str(tmp_path / f"{name}-cut")]
        assert main(words) == 2
        output = capsys.readouterr()
        assert "1 of 3 recordings are left out" in output.err
        assert "shards: " not in output.err
        assert {row["id"]: "left_out" in row for row in read_rows(tmp_path / f"{name}-cut/files.jsonl")} == {
            "whole": False, "part": False, "silent": True,
        }  # fmt: skip
        found = {u.id: u for u in load_shards(tmp_path / f"{name}-cut")}
        main(["segment", str(made["folder"] / "run"), rows[0]["audio"], str(made["folder"] / "text.txt"),
              "-o", str(tmp_path / "direct")])  # fmt: skip
        for row in read_rows(tmp_path / "direct/manifest.jsonl"):
            for id in ("whole", "part"):
                segment = found[row["id"].replace("rec", id)]
                assert segment.text == row["text"]
                begin = round(row["start"] * rate)
                given = wave[begin : begin + round(row["duration"] * rate)]
                own, _ = read_samples(segment)
                assert len(own) == pytest.approx(len(given), abs=0.1 * rate)  # the last one goes to the end
                least = min(len(own), len(given))
                assert np.abs(own[:least, 0] - given[:least]).max() < 1e-4
        assert {u.speaker for id, u in found.items() if id.startswith("whole")} == {"ann"}
        assert main(words) == 2  # finished: it says the same
        assert capsys.readouterr().out.endswith(output.out)
        assert main([*words, "--confidence", "0.5"]) == 2
        assert "of other shards, another model or other options" in capsys.readouterr().err
