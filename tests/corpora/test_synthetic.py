"""Speech from espeak-ng: the same for the same seed, in any of its languages, as a corpus like any other."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from wildctc.cli import main
from wildctc.corpora import synthetic
from wildctc.corpora.manifest import load_manifest
from wildctc.corpora.synthetic import Voice, cast, languages, speak, synthesize
from wildctc.errors import WildCTCError

FLEURS = {  # good morning, in the languages of the paper's FLEURS experiments
    "ar": "صباح الخير", "hy": "բարի լույս", "bn": "সুপ্রভাত", "en": "good morning", "ka": "დილა მშვიდობისა",
    "el": "καλημέρα", "gu": "સુપ્રભાત", "hi": "सुप्रभात", "kn": "ಶುಭೋದಯ", "ml": "സുപ്രഭാതം", "pa": "ਸ਼ੁਭ ਸਵੇਰ",
    "ru": "доброе утро", "ta": "காலை வணக்கம்", "te": "శుభోదయం",
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.flac"))}


def test_an_utterance_sounds_the_same_whatever_was_said_before_it_and_by_which_process():
    some = [Voice("en", name) for name in ("Alicia", "f2", "f3", "f5", "m3", "sandro", "victor", "klatt2")]
    alone = [next(speak([("one grey cat", voice)]))[0] for voice in some]
    together = speak([(text, voice) for voice in some for text in ("something else", "one grey cat")], processes=1)
    for wave, again in zip(alone, list(together)[1::2], strict=True):
        assert np.array_equal(wave, again[0])


def test_a_corpus_has_the_same_bytes_each_time(tmp_path):
    (tmp_path / "sentences.txt").write_text("".join(f"sentence number {n}\n" for n in range(40)))
    for name, processes in (("a", 1), ("b", 3)):
        synthesize(tmp_path / "sentences.txt", tmp_path / name, seed=7, processes=processes)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert (tmp_path / "a/manifest.jsonl").read_text() == (tmp_path / "b/manifest.jsonl").read_text()
    synthesize(tmp_path / "sentences.txt", tmp_path / "c", seed=8)
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


@pytest.mark.parametrize("language", FLEURS)
def test_languages_of_the_paper_are_spoken(language):
    [(wave, rate)] = speak([(FLEURS[language], Voice(language, "f2"))])
    assert 0.3 < len(wave) / rate < 3
    assert np.abs(wave.astype(np.float64)).max() > 3000


def test_voices_differ():
    voices = cast("en", 100)
    assert len(set(voices)) == 100
    waves = [wave for wave, _ in speak([("good morning", voice) for voice in voices[:20]])]
    assert len({wave.tobytes() for wave in waves}) == 20
    assert len(languages()) > 100


def test_prepare_speaks_what_is_spoken_and_writes_what_is_written(tmp_path, capsys):
    rows = [
        {"id": f"u{n}", "text": "Kolour", "spoken": "colour", "split": "dev" if n > 30 else None} for n in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["prepare", "synthetic", str(tmp_path / "rows.jsonl"), str(tmp_path / "out"), "--lower"]) == 0
    assert re.search(r"^train\.jsonl\.gz +25 ", capsys.readouterr().out, re.MULTILINE)
    splits = {name: load_manifest(tmp_path / f"out/{name}.jsonl.gz") for name in ("train", "dev", "test")}
    assert {u.text for u in splits["train"]} == {"kolour"}
    speakers = {name: {u.speaker for u in utterances} for name, utterances in splits.items()}
    assert not speakers["train"] & (speakers["dev"] | speakers["test"])
    utterance = splits["train"][0]
    [voice] = [v for v in cast("en", 40) if v.name == utterance.speaker]
    wave, sampling_rate = next(speak([("colour", voice)]))
    stored, stored_rate = soundfile.read(utterance.audio, dtype="int16")
    assert (stored_rate, utterance.duration) == (sampling_rate, len(wave) / sampling_rate)
    assert np.array_equal(stored, wave)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a\n", ["--language", "xx"], "no language 'xx'; it has: af, am,"),
        ("a\n", ["--voices", "0"], "--voices must be at least 1"),
        ("\n", [], "no sentences"),
        ('{"txt": "a"}\n', [], 'rows.jsonl:1: no "text"'),
        ('{"text": "a", "id": "u"}\n{"text": "b", "id": "u"}\n', [], "rows.jsonl:2: id 'u' occurs twice"),
        ('{"text": "a", "split": "other"}\n', [], "rows.jsonl:1: split 'other' is none of train, dev, test"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, content, options, message):
    source = tmp_path / ("rows.jsonl" if content.startswith("{") else "rows.txt")
    source.write_text(content)
    assert main(["prepare", "synthetic", str(source), str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
    assert not (tmp_path / "out" / "manifest.jsonl").exists()


def test_a_text_that_cannot_be_spoken_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "spoken": " ", "id": "silent"}\n')
    with pytest.raises(WildCTCError, match="nothing to say for silent"):
        synthesize(tmp_path / "rows.jsonl", tmp_path)


def test_a_deep_installation_path_does_not_matter(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100) / ("y" * 100)  # espeak-ng itself takes 160 bytes
    deep.mkdir(parents=True)
    (deep / "espeak-ng-data").symlink_to(synthetic._data())
    monkeypatch.setattr(synthetic, "_data", lambda: deep / "espeak-ng-data")
    [(wave, _)] = speak([("good morning", Voice("en", "m1"))])
    assert len(wave) > 1000
