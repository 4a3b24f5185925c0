"""The folder of a report: its data, its sound, and what happens when something is wrong."""

import json
import re
import shutil
from dataclasses import replace
from importlib import resources
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile
import torch
from matplotlib.image import imread
from support.probes import RATE, SCRIPTS, probed, voice, write
from support.tones import make_corpus, read_rows, write_rows

from wildctc.audit.building import DETAILS_PER_FILE, TEXTS_PER_FILE
from wildctc.audit.calibration import LEAST_SCORE
from wildctc.audit.clips import outline, spectrogram
from wildctc.audit.entries import KINDS
from wildctc.audit.report import write_report
from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.probe.issues import issues_of, suspicion

PAGE = {file.name: file.read_text("utf-8") for file in resources.files("wildctc.audit").joinpath("page").iterdir()}


def values(folder, name):
    """What a script of the report passes to the page: the arguments of its one call."""
    content = (folder / "data" / f"{name}.js").read_text("utf-8")
    found = re.fullmatch(r"wildctc\.\w+\((.*)\);\n", content, re.DOTALL)
    assert found
    return json.loads(f"[{found[1]}]")


def rows_of(folder):
    """All that the page shows, by the utterances' ids, as dicts."""
    names = ["id", "number", "speaker", "suspicion", "duration", "checksum", "kinds", "scores"]
    index = [dict(zip(names, row, strict=True)) for row in zip(*values(folder, "index-0000")[1], strict=True)]
    names = ["text", "heard", "issues", "audio", "offset", "shade", "words", "tokens", "sounds", "peaks", "loudest"]
    names += ["picture", "file"]
    files = sorted(path.stem for path in (folder / "data").glob("details-*.js"))
    details = [dict(zip(names, row, strict=True)) for file in files for row in values(folder, file)[1]]
    return {row["id"]: row | detail for row, detail in zip(index, details, strict=True)}


@pytest.fixture
def utterances():
    return [replace(u) for u in SCRIPTS.values()]


def test_the_command_writes_page_data_and_audio_and_reports_their_size(tmp_path, utterances, capsys):
    probe = write(tmp_path, utterances)
    assert main(["audit", str(probe), "-o", str(tmp_path / "report")]) == 0
    folder = tmp_path / "report"
    assert {path.name for path in folder.iterdir()} == {*PAGE, "data", "audio"}
    assert len(list((folder / "audio").iterdir())) == len(utterances)
    megabytes = sum(path.stat().st_size for path in (folder / "audio").iterdir()) / 1e6
    out = capsys.readouterr().out
    assert f"5 utterances, 5 with findings; {megabytes:.1f} MB of audio, 0.0 MB of data" in out


def test_rows_hold_what_the_probe_found(tmp_path, utterances):
    write_report(write(tmp_path, utterances), tmp_path / "report")
    rows = rows_of(tmp_path / "report")
    [info] = values(tmp_path / "report", "report")
    for u in utterances:
        row = rows[u.id]
        assert (row["text"], row["heard"]) == (u.text, u.heard)
        assert info["speakers"][row["speaker"]] == (u.speaker or "")
        assert row["suspicion"] == pytest.approx(suspicion(u), abs=1e-3)
        assert [KINDS[kind] for kind in row["kinds"]] == [issue.kind for issue in issues_of(u, LEAST_SCORE)]
        assert row["scores"] == [pytest.approx(issue.score, abs=1e-3) for issue in issues_of(u, LEAST_SCORE)]
        assert [issue[-1] for issue in row["issues"]] == [issue.heard for issue in issues_of(u, LEAST_SCORE)]


def test_places_are_counted_in_utf16_units_as_in_javascript(tmp_path, utterances):
    write_report(write(tmp_path, utterances), tmp_path / "report")
    row = rows_of(tmp_path / "report")["emoji"]
    units = row["text"].encode("utf-16-le")

    def part(begin, stop):
        return units[2 * begin : 2 * stop].decode("utf-16-le")

    assert [part(*word[:2]) for word in row["words"]] == row["text"].split(" ")
    assert len(row["shade"]) == len(units) // 2
    flag = next(word for word in row["words"] if part(*word[:2]) == "🇲🇾")
    assert row["shade"][flag[0] : flag[1]] == "9999"
    assert {part(*issue[:2]) for issue in row["issues"]} == {"happy", "🇲🇾"}


def test_scripts_contain_nothing_that_could_end_a_script_element(tmp_path):
    text = "a </script><!-- \u2028 \u2029 ? b"
    probe = write(tmp_path, [probed("</script>", text, speaker="<b>")])
    probe.write_text(probe.read_text("utf-8").replace("?", "\\ud800"), "utf-8")  # half a surrogate pair
    write_report(probe, tmp_path / "report")
    for path in (tmp_path / "report/data").glob("*.js"):
        content = path.read_bytes()
        assert not any(mark in content for mark in (b"<", "\u2028".encode(), "\u2029".encode()))
    assert rows_of(tmp_path / "report")["</script>"]["text"] == text.replace("?", "\ud800")


@pytest.mark.parametrize("workers", [0, 2])
def test_many_utterances_are_written_in_pieces_most_suspicious_first(tmp_path, workers):
    count = TEXTS_PER_FILE + 1
    made = [probed(f"u{i}", "ab cd", {0: "ac"} if i % 3 == 0 else {}, audio="gone.wav") for i in range(count)]
    report = write_report(write(tmp_path, made), tmp_path / "report", workers=workers)
    assert report.silent == count
    [info] = values(tmp_path / "report", "report")
    assert info["utterances"] == count
    assert info["files"] == {"index": 1, "texts": 2, "details": -(-count // DETAILS_PER_FILE)}
    assert [row["number"] for row in rows_of(tmp_path / "report").values()] == sorted(
        range(count), key=lambda i: (i % 3 > 0, i)
    )
    number, texts = values(tmp_path / "report", "texts-0001")
    assert (number, len(texts)) == (1, 1)


def test_several_processes_write_the_same_bytes_as_one(tmp_path):
    audio = {i: "" if i % 100 == 7 else "gone.wav" for i in range(420)}
    made = [probed(f"u{i}", "ab cd", {i % 2: "ac"}, speaker=f"s{i % 7}", audio=audio[i]) for i in audio]
    probe = write(tmp_path, made)
    for workers in (1, 2):
        write_report(probe, tmp_path / f"{workers}/report", workers=workers)
    one, two = (sorted((tmp_path / n / "report").rglob("*.*")) for n in "12")
    assert [path.relative_to(tmp_path / "1") for path in one] == [path.relative_to(tmp_path / "2") for path in two]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, two, strict=True))
    lines = probe.read_text().splitlines()
    probe.write_text("\n".join([*lines[:300], "not JSON", *lines[300:]]))
    with pytest.raises(WildCTCError, match=f"{probe}:301: not JSON"):
        write_report(probe, tmp_path / "3", workers=2)


def test_a_spectrogram_shows_a_tone_at_its_height(tmp_path):
    time = np.arange(RATE) / RATE
    low, high = (spectrogram(np.sin(2 * np.pi * f * time).astype(np.float32), RATE) for f in (300, 3000))
    assert low.shape == (64, 80)
    assert low[:, 40].argmax() - high[:, 40].argmax() > 20  # high frequencies are first
    assert low.max() == 255
    assert spectrogram(np.zeros(10, np.float32), 8000).max() == 0
    write_report(write(tmp_path, [probed("a", "ab")]), tmp_path / "report")
    picture = tmp_path / "report" / rows_of(tmp_path / "report")["a"]["picture"]
    assert imread(picture).shape[0] == 64


def test_a_file_that_is_one_utterance_is_copied_as_it_is(tmp_path):
    utterance = probed("a", "abc abc", audio="a.ogg")
    soundfile.write(tmp_path / "a.ogg", voice(utterance), RATE, format="OGG", subtype="OPUS")
    write_report(write(tmp_path, [utterance]), tmp_path / "report")
    row = rows_of(tmp_path / "report")["a"]
    assert row["audio"] == "audio/000000.opus"
    assert (tmp_path / "report" / row["audio"]).read_bytes() == (tmp_path / "a.ogg").read_bytes()


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "ULAW", "FLOAT"])
def test_only_the_utterances_part_and_channel_of_a_longer_file_is_written(tmp_path, subtype):
    utterance = probed("a", "abc abc", audio="long.wav", offset=1.25, channel=1)
    wave = voice(utterance, 8000)
    both = np.random.default_rng(0).uniform(-0.5, 0.5, (len(wave) + 20000, 2)).astype(np.float32)
    both[10000 : 10000 + len(wave), 1] = wave
    soundfile.write(tmp_path / "long.wav", both, 8000, subtype=subtype)
    write_report(write(tmp_path, [utterance]), tmp_path / "report")
    row = rows_of(tmp_path / "report")["a"]
    heard, rate = soundfile.read(tmp_path / "report" / row["audio"], dtype="float32")
    assert (row["audio"], row["offset"], rate) == ("audio/000000.flac", 0, 8000)
    assert heard.shape == wave.shape
    assert np.abs(heard - wave).max() < (0.02 if subtype == "ULAW" else 1e-4)


def test_a_file_that_browsers_cannot_play_is_converted(tmp_path):
    utterance = probed("a", "abc", audio="a.wav")
    soundfile.write(tmp_path / "a.wav", voice(utterance), RATE, subtype="FLOAT")
    write_report(write(tmp_path, [utterance]), tmp_path / "report")
    assert rows_of(tmp_path / "report")["a"]["audio"].endswith(".flac")


def test_audio_that_browsers_can_play_can_be_linked(tmp_path):
    inside, stereo = probed("a", "abc", audio="50% #1 ä.wav", offset=0.5), probed("b", "abc", audio="stereo.wav")
    wave = voice(inside)
    soundfile.write(tmp_path / inside.audio, np.concatenate((np.zeros(RATE // 2, np.float32), wave)), RATE)
    soundfile.write(tmp_path / stereo.audio, np.stack((wave, wave), 1), RATE)
    report = write_report(write(tmp_path, [inside, stereo]), tmp_path / "deep/report", link=True)
    rows = rows_of(tmp_path / "deep/report")
    assert rows["a"]["audio"] == "../../50%25%20%231%20%C3%A4.wav"
    assert (tmp_path / "deep/report" / unquote(rows["a"]["audio"])).is_file()
    assert rows["a"]["offset"] == 0.5
    assert rows["b"]["audio"] == "audio/000001.flac"
    assert [path.name for path in (tmp_path / "deep/report/audio").iterdir()] == ["000001.flac"]
    assert report.audio_bytes == (tmp_path / "deep/report/audio/000001.flac").stat().st_size


def test_the_outline_is_a_value_for_each_hundredth_of_a_second():
    wave = np.concatenate((np.full(1600, 0.1), np.full(1600, -0.4))).astype(np.float32)
    assert outline(wave, 16000).tolist() == [64] * 10 + [255] * 10
    assert outline(np.zeros(5, np.float32), 16000).tolist() == [0]


def test_utterances_without_sound_are_reported_and_still_shown(tmp_path, capsys):
    utterances = [probed(f"u{i}", "ab", {0: "ac"}, audio="gone.wav") for i in range(8)]
    probe = write(tmp_path, utterances)
    assert main(["audit", str(probe), "-o", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr()
    assert "no sound: u0" in printed.err
    assert "no such file" in printed.err
    assert "no sound: 3 more" in printed.err
    assert "without sound: 8" in printed.out
    assert rows_of(tmp_path / "report")["u0"]["audio"] is None


def test_unwritten_sounds_have_their_time(tmp_path):
    utterance = probed("a", "ab cd", missing={1: "ef"})
    write_report(write(tmp_path, [utterance]), tmp_path / "report")
    row = rows_of(tmp_path / "report")["a"]
    assert row["sounds"] == [[pytest.approx(utterance.tokens[2].start, abs=1e-3), 0.9, "ef"]]
    assert [word[-1] for word in row["words"]] == ["ab", "cd"]


def test_what_could_not_be_probed_is_listed(tmp_path, utterances, capsys):
    probe = write(tmp_path, utterances)
    with probe.open("a", encoding="utf-8") as file:
        file.write('{"id": "short", "left_out": "too few frames"}\n')
    assert main(["audit", str(probe), "-o", str(tmp_path / "report")]) == 0
    assert "not in it: 1" in capsys.readouterr().out
    assert values(tmp_path / "report", "report")[0]["leftOut"] == [["short", "too few frames"]]


def test_the_key_of_a_report_depends_only_on_its_transcripts(tmp_path, utterances):
    def key(name):
        write_report(tmp_path / "probe.jsonl", tmp_path / name)
        return values(tmp_path / name, "report")[0]["key"]

    write(tmp_path, utterances)
    first = key("one")
    utterances[0].tokens[0].bypass = 0.5  # another model
    write(tmp_path, utterances)
    assert key("two") == first
    write(tmp_path, [*utterances[:-1], probed("emoji", "another text")])
    assert key("three") != first


def test_a_report_can_be_written_into_the_empty_working_directory(tmp_path, utterances, monkeypatch):
    probe = write(tmp_path / "in", utterances)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["audit", str(probe), "-o", "."]) == 0
    assert (tmp_path / "here/index.html").is_file()


def test_a_new_report_replaces_an_old_one(tmp_path, utterances):
    write_report(write(tmp_path, utterances), tmp_path / "report")
    (tmp_path / "report/decisions.jsonl").write_text("a person's work")
    write_report(write(tmp_path, utterances[:1]), tmp_path / "report")
    assert (tmp_path / "report/decisions.jsonl").read_text() == "a person's work"
    assert len(list((tmp_path / "report/audio").iterdir())) == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("there", [True, False])
def test_decisions_in_a_report_survive_a_command_that_was_killed_while_replacing_it(tmp_path, utterances, there):
    probe, folder, old = write(tmp_path, utterances), tmp_path / "report", tmp_path / ".report.old"
    write_report(probe, folder)
    if there:  # killed after the new report was put in its place, else before
        shutil.copytree(folder, old)
    else:
        folder.rename(old)
    (old / "decisions.jsonl").write_text("a person's work")
    write_report(write(tmp_path, utterances[:1]), folder)
    assert (folder / "decisions.jsonl").read_text() == "a person's work"
    assert len(list((folder / "audio").iterdir())) == 1
    assert not old.exists()


@pytest.mark.parametrize("last", ["not JSON", '{"id": "x"}', '{"id": "x", "tokens": [1], "words": []}'])
def test_a_broken_probe_is_one_line_and_leaves_the_old_report(tmp_path, utterances, capsys, last):
    probe = write(tmp_path, utterances)
    write_report(probe, tmp_path / "report")
    before = {path: path.read_bytes() for path in (tmp_path / "report").rglob("*") if path.is_file()}
    with probe.open("a", encoding="utf-8") as file:
        file.write(last + "\n")
    assert main(["audit", str(probe), "-o", str(tmp_path / "report")]) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if line.startswith("wildctc:")]
    assert len(err) == 1
    assert f"{probe}:7:" in err[0]
    assert {path: path.read_bytes() for path in (tmp_path / "report").rglob("*") if path.is_file()} == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "empty"), ('{"a": 1}\n', "not a probe"), ('{"probe": {"format": 1}}\n', "no utterances in it")],
)
def test_a_file_that_is_no_probe_is_refused(tmp_path, capsys, content, message):
    (tmp_path / "probe.jsonl").write_text(content)
    assert main(["audit", str(tmp_path / "probe.jsonl"), "-o", str(tmp_path / "report")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_folder_with_other_files_is_not_touched(tmp_path, utterances, capsys):
    probe = write(tmp_path / "in", utterances)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("…")
    assert main(["audit", str(probe), "-o", str(tmp_path / "thesis")]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert main(["audit", str(probe), "-o", str(tmp_path / "thesis/chapter.tex")]) == 2
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


@pytest.mark.slow
def test_from_a_trained_model_to_a_page_that_puts_wrong_transcripts_first(tmp_path):
    torch.set_num_threads(1)
    recipe = make_corpus(tmp_path / "speech")
    assert main(["train", str(recipe), "--out", str(tmp_path / "run"), "--data.workers", "0"]) == 0
    rows = read_rows(tmp_path / "speech/test.jsonl")
    wrong = {row["id"] for row in rows[::3]}
    for row in rows[::3]:
        row["text"] = row["text"].translate(str.maketrans("abcdef", "bcdefa"))
    write_rows(tmp_path / "speech/test.jsonl", rows)
    words = ["probe", str(tmp_path / "run"), str(tmp_path / "speech/test.jsonl"), "-o", str(tmp_path / "probe.jsonl")]
    assert main([*words, "--workers", "0"]) == 0
    assert main(["audit", str(tmp_path / "probe.jsonl"), "-o", str(tmp_path / "report")]) == 0
    found = rows_of(tmp_path / "report")
    assert len(found) == len(rows)
    assert set(sorted(found, key=lambda id: -found[id]["suspicion"])[: len(wrong)]) == wrong
    assert all((tmp_path / "report" / row["audio"]).is_file() for row in found.values())


def test_the_page_needs_no_network_and_never_inserts_data_as_markup():
    assert len(PAGE) > 5
    for name, content in PAGE.items():
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|eval\(|import\(", content), name
        assert ("fetch(" in content) == (name in ("server_store.js", "reviewers.js")), name  # only from its own server
        assert content.count("\n") < 350, name


def test_two_utterances_with_one_id_are_refused(tmp_path, capsys):
    probe = write(tmp_path, [probed("a", "ab", audio="gone.wav"), probed("a", "cd", audio="gone.wav")])
    assert main(["audit", str(probe), "-o", str(tmp_path / "report")]) == 2
    assert f"{probe}:3: not a row of a probe (the id 'a' is also in line 2" in capsys.readouterr().err
