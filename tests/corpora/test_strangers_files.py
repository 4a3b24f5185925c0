"""Files that somebody else made: probes, recipes, metrics, audio, rows. What is wrong in them is one line."""

import gzip
import json
import random
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.probes import probed, write

from wildctc.audio.recordings import read_whole
from wildctc.audio.sound_files import load_audio
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.utterance import Utterance, UtteranceError
from wildctc.errors import WildCTCError
from wildctc.features.cache import FeatureCache
from wildctc.features.fbank import Fbank
from wildctc.probe.records import read_probe
from wildctc.training.config import load_recipe, parse_yaml
from wildctc.training.criterion_at import criterion_at

VALUES = [None, True, -1, 0, 10**30, 1e300, float("nan"), float("inf"), 0.5, "", "x", "a\0b", "\ud800", [], [1], {}]


def mutated(rows, rng):
    """The rows with a value, somewhere in them, replaced or taken away."""
    rows = json.loads(json.dumps(rows))
    place, value = None, rows
    while isinstance(value, dict | list) and value and (place is None or rng.random() < 0.8):
        place, key = value, rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        value = place[key]
    if rng.random() < 0.15:
        del place[key]
    else:
        place[key] = rng.choice(VALUES)
    return rows


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    write(folder, [probed("a", "the quick fox", {1: "quack"}), probed("b", "lazy dog", {}, {1: "right"})])
    texts = {"a": "the quick fox", "b": "lazy dog"}
    rows = [{"id": id, "audio": f"{n}.wav", "text": text} for n, (id, text) in enumerate(texts.items())]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = [{"id": id, "utterance": id, "text": f"{text} x", "annotator": "ann"} for id, text in texts.items()]
    (folder / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said))
    return folder


def test_a_probe_of_any_content_is_read_or_refused_in_one_line(corpus, tmp_path, capsys):
    rows, rng = [json.loads(line) for line in (corpus / "probe.jsonl").read_text().splitlines()], random.Random(0)
    words = ["disagree", "--reference", str(corpus / "manifest.jsonl"), "--validators", str(corpus / "said.jsonl")]
    codes = []
    for number in range(40):
        path = corpus / "mutated.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in mutated(rows, rng)))
        for command in (["audit", str(path), "-o", str(tmp_path / str(number))], [*words, "--probe", str(path)]):
            codes.append(main(command))
            found = capsys.readouterr().err
            refusals = [line for line in found.splitlines() if line.startswith("wildctc: ")]
            assert len(refusals) == (codes[-1] == 2), found
        shutil.rmtree(tmp_path / str(number), ignore_errors=True)
    assert {0, 2} == set(codes)


def test_a_probe_whose_words_point_past_its_tokens_is_refused(corpus):
    rows = [json.loads(line) for line in (corpus / "probe.jsonl").read_text().splitlines()]
    for change in ({"last": 99}, {"first": -1}, {"stop": 99}, {"bypass": 7.0}, {"start": float("nan")}):
        changed = json.loads(json.dumps(rows))
        changed[1]["words"][0] |= change
        (corpus / "past.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
        with pytest.raises(WildCTCError, match=r"past\.jsonl:2: not a row of a probe .* make it with `wildctc probe`"):
            read_probe(corpus / "past.jsonl")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        f"data: {{speeds: {'[' * 40_000}",
        "{a: " * 10_000,
        "- " * 20_000,
        BOMB + "data: {speeds: *i}",
        "data: &a {x: *a}",
        "seed: &a [*a]",
        "seed: 2001-99-99",
        "seed: " + "1" * 10_000,
        "!!python/object/apply:os.system [ls]",
        "a: \0",
    ],
    ids=range(10),
)
def test_settings_that_would_take_all_memory_or_time_are_one_line(text):
    start = time.process_time()
    with pytest.raises(WildCTCError) as caught:
        parse_yaml(text, "config.yaml")
    assert time.process_time() - start < 10
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_recipe_of_any_size_is_not_read(tmp_path):
    (tmp_path / "config.yaml").write_text("#" * 60_000)
    with pytest.raises(WildCTCError, match=r"config\.yaml: cannot be read \(more than 50,000 bytes\)"):
        load_recipe(str(tmp_path / "config.yaml"))


@pytest.mark.parametrize("entropy", ["x", [1], {}, True, -1.0])
def test_an_entropy_that_is_none_is_one_line(tmp_path, entropy):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"entropy": entropy}) + "\n")
    with pytest.raises(WildCTCError, match=r"metrics\.jsonl: an entropy is not a number"):
        criterion_at("otc-t-h", 2, tmp_path)


# ---------------------------------------------------------------------------------------------------------------- audio


def refused(path):
    with pytest.raises(WildCTCError) as caught:
        load_audio(Utterance("a", path))
    with pytest.raises(WildCTCError):
        read_whole(str(path), 16000)
    return str(caught.value)


@pytest.mark.parametrize("rate", [1, 7, 999, 800_000, 2**31 - 1])
def test_a_sampling_rate_that_no_speech_has_is_refused(tmp_path, rate):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(2000), 16000)
    content = bytearray(path.read_bytes())
    content[24:28] = struct.pack("<I", rate)
    path.write_bytes(content)
    assert f"not a sampling rate of speech: {rate} Hz" in refused(path)


def test_a_header_that_promises_a_month_of_speech_takes_no_memory(tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.zeros(16000), 16000)
    content = bytearray(path.read_bytes())
    content[21] |= 0x0F  # the number of samples in STREAMINFO: 36 bits
    content[22:26] = b"\xff" * 4
    path.write_bytes(content)
    assert "truncated: less than the 4294967.30 s that its header promises" in refused(path)


def test_a_device_in_a_manifest_is_not_read_to_its_end(tmp_path):
    """/dev/zero has none. With a cache files are found by what they hold."""
    for cache in (FeatureCache(None, Fbank()), FeatureCache(tmp_path, Fbank())):
        with pytest.raises(UtteranceError, match="not a file"):
            cache.get(Utterance("a", Path("/dev/zero"), duration=1.0))


# ----------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("name", ["a\0.wav", "\ud800.wav"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"audio": name, "text": "a"}))
    with pytest.raises(WildCTCError, match=r"rows\.jsonl:1: field 'audio' is not a path"):
        load_manifest(tmp_path / "rows.jsonl")
    with pytest.raises(UtteranceError, match="not a path"):
        load_audio(Utterance("a", tmp_path / name))


def test_a_line_that_gzip_makes_small_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("wildctc.json_lines.LONGEST_LINE", 1000)
    path = tmp_path / "rows.jsonl.gz"
    row = json.dumps({"audio": "a.wav", "text": "x" * 800, "duration": 1})
    path.write_bytes(gzip.compress(f"{row}\n".encode()))
    assert len(load_manifest(path)) == 1
    path.write_bytes(gzip.compress(f"{row}\n".encode() + b" " * 5000))
    with pytest.raises(WildCTCError, match=r"rows\.jsonl\.gz:2: a line of more than 1,000 bytes"):
        load_manifest(path)


def test_names_in_messages_do_not_steer_the_terminal(tmp_path, capsys):
    name = "a\x1b]0;owned\x07\x9b31m\nwildctc: fine"
    assert main(["score", str(tmp_path / Path(name).name)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "a\\x1b]0;owned\\x07\\x9b31m\\nwildctc: fine" in line
