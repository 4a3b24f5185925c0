"""Decisions are applied to a manifest, and decisions that cannot be applied are reported."""

import gzip
import json

import pytest
from support.tones import read_rows, write_rows

from wildctc.audit.applying import apply_decisions
from wildctc.audit.decisions import read_decisions
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest

ROWS = [
    {"id": "a", "audio": "clips/a.wav", "text": "selamat pagi ann", "duration": 1.5, "note": {"by": "ben"}},
    {"id": "b", "audio": "clips/b.wav", "text": "apa berita", "duration": 1.0},
    {"id": "c", "audio": "clips/c.wav", "text": "terima kasih", "duration": 1.0},
]


def fix(id, text, fixed):
    return {"id": id, "decision": "fix", "text": text, "fixed": fixed}


def accept(id, text):
    return {"id": id, "decision": "accept", "text": text}


def apply(folder, rows, decisions, out="out.jsonl"):
    write_rows(folder / "manifest.jsonl", rows)
    write_rows(folder / "decisions.jsonl", decisions)
    words = ["apply-fixes", str(folder / "manifest.jsonl"), str(folder / "decisions.jsonl"), "-o", str(folder / out)]
    return main(words)


def test_a_fix_changes_the_text_keeps_the_old_one_and_says_who_and_when(tmp_path, capsys):
    by = {"reviewer": "ann", "at": "2026-11-18T10:00:00.000Z"}
    decisions = [fix("a", "selamat pagi ann", "selamat petang ann") | by, accept("b", "apa berita") | by]
    assert apply(tmp_path, ROWS, decisions) == 0
    kept = {"text_before": "selamat pagi ann", "fixed_by": "ann", "fixed_at": by["at"]}
    changed = [ROWS[0] | {"text": "selamat petang ann"} | kept, ROWS[1], ROWS[2]]
    assert read_rows(tmp_path / "out.jsonl") == changed
    out = capsys.readouterr().out
    assert "a: pagi → petang" in out
    assert "1 fixed, 1 accepted, 0 skipped" in out


def test_the_manifest_is_never_written_over(tmp_path, capsys):
    assert apply(tmp_path, ROWS, [fix("a", "selamat pagi ann", "selamat petang ann")], out="manifest.jsonl") == 2
    assert "it is the input, and would be overwritten" in capsys.readouterr().err
    assert read_rows(tmp_path / "manifest.jsonl") == ROWS


def test_a_decision_about_another_transcript_is_refused_by_name_and_the_rest_applied(tmp_path, capsys):
    decisions = [
        fix("a", "selamat malam ann", "selamat petang ann"),
        accept("b", "apa khabar"),
        fix("c", "terima kasih", "terima kasih ben"),
    ]
    assert apply(tmp_path, ROWS, decisions) == 0
    assert [row["text"] for row in read_rows(tmp_path / "out.jsonl")] == [
        "selamat pagi ann",
        "apa berita",
        "terima kasih ben",
    ]
    printed = capsys.readouterr()
    assert "refused: a: its transcript is now 'selamat pagi ann', and 'selamat malam ann' was judged" in printed.err
    assert "refused: b" in printed.err
    assert "1 fixed, 0 accepted, 0 skipped, 2 refused" in printed.out


def test_unknown_utterances_are_named_and_too_many_counted(tmp_path, capsys):
    decisions = [accept("a", "selamat pagi ann"), *(accept(f"x{i}", "…") for i in range(30))]
    assert apply(tmp_path, ROWS, decisions) == 0
    printed = capsys.readouterr()
    assert "unknown: x0 is not in" in printed.err
    assert "unknown: 20 more" in printed.err
    assert "30 for other utterances" in printed.out


def test_decisions_of_another_corpus_write_nothing(tmp_path, capsys):
    assert apply(tmp_path, ROWS, [fix("x", "a", "b")]) == 2
    assert "no decision is about an utterance of" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_applying_twice_changes_nothing_more(tmp_path, capsys):
    decisions = [fix("a", "selamat pagi ann", "selamat petang ann")]
    assert apply(tmp_path, ROWS, decisions) == 0
    once = read_rows(tmp_path / "out.jsonl")
    assert apply(tmp_path, once, decisions, "twice.jsonl") == 0
    assert read_rows(tmp_path / "twice.jsonl") == once
    assert "1 already had their fix" in capsys.readouterr().out


def test_the_text_before_all_fixes_is_kept(tmp_path):
    assert apply(tmp_path, ROWS, [fix("c", "terima kasih", "terima kasih ben")]) == 0
    once = read_rows(tmp_path / "out.jsonl")
    assert apply(tmp_path, once, [fix("c", "terima kasih ben", "kasih ben")], "twice.jsonl") == 0
    assert read_rows(tmp_path / "twice.jsonl")[2] == ROWS[2] | {"text": "kasih ben", "text_before": "terima kasih"}


def test_words_that_are_not_fixed_keep_capitals_and_punctuation(tmp_path):
    rows = [ROWS[0] | {"text": "Selamat  pagi, Ann!"}, ROWS[1] | {"text": "A well-known Place."}]
    decisions = [
        fix("a", "selamat pagi ann", "selamat petang ann dan ben"),
        fix("b", "a well known place", "a well known face"),
    ]
    assert apply(tmp_path, rows, decisions) == 0
    texts = [row["text"] for row in read_rows(tmp_path / "out.jsonl")]
    assert texts == ["Selamat petang Ann! dan ben", "a well known face"]  # of the second, words are not one for one


@pytest.mark.parametrize(("manifest", "page"), [(str.lower, str.upper), (str.upper, str.lower), (str.title, str.upper)])
def test_a_fix_is_written_in_the_case_of_the_manifest(tmp_path, manifest, page):
    rows = [row | {"text": manifest(row["text"])} for row in ROWS]
    decisions = [fix("a", page("selamat pagi ann"), page("selamat petang ann")), accept("b", page("apa berita"))]
    assert apply(tmp_path, rows, decisions) == 0
    fixed = read_rows(tmp_path / "out.jsonl")[0]["text"]
    first, new, last = fixed.split()
    assert (first, last) == (manifest("selamat"), manifest("ann"))
    assert new == ("PETANG" if manifest is str.upper else "petang")
    assert apply(tmp_path, read_rows(tmp_path / "out.jsonl"), decisions, "twice.jsonl") == 0
    assert read_rows(tmp_path / "twice.jsonl") == read_rows(tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("written", "judged", "fixed"),
    [
        ("selamat pagi ann", "selamat pagi ann", "selamat pagi USA"),
        ("USA OK", "USA OK", "USA NO"),
        ("OK", "ok", "okay"),
    ],
)
def test_capitals_of_a_name_or_of_one_utterance_change_no_fix(tmp_path, written, judged, fixed):
    assert apply(tmp_path, [ROWS[0] | {"text": written}, ROWS[1]], [fix("a", judged, fixed)]) == 0
    assert read_rows(tmp_path / "out.jsonl")[0]["text"] == fixed


def test_audio_is_found_from_the_new_manifest(tmp_path):
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips/a.wav").write_bytes(b"RIFF")
    rows = [ROWS[0], {"id": "n", "audio_filepath": str(tmp_path / "clips/a.wav"), "text": "x", "duration": 1.0}]
    assert apply(tmp_path, rows, [accept("a", "selamat pagi ann")], "elsewhere/deep/out.jsonl") == 0
    out = tmp_path / "elsewhere/deep/out.jsonl"
    assert read_rows(out)[0]["audio"] == "../../clips/a.wav"
    assert all(u.audio.is_file() for u in load_manifest(out))


def test_rows_without_an_id_are_found_by_the_name_that_loading_gives_them(tmp_path):
    rows = [{"audio": name, "text": "ab", "duration": 1.0} for name in ("one/a.wav", "two/a.wav")]
    write_rows(tmp_path / "manifest.jsonl", rows)
    second = load_manifest(tmp_path / "manifest.jsonl")[1].id
    assert apply(tmp_path, rows, [fix(second, "ab", "cd")]) == 0
    assert [row["text"] for row in read_rows(tmp_path / "out.jsonl")] == ["ab", "cd"]
    assert all("id" not in row for row in read_rows(tmp_path / "out.jsonl"))


def cut(id, supervisions):
    source = {"type": "file", "channels": [0], "source": "/nowhere/a.wav"}
    recording = {"id": id, "sources": [source], "sampling_rate": 16000, "num_samples": 64000, "duration": 4.0}
    return {"id": id, "start": 0.0, "duration": 4.0, "channel": 0, "supervisions": supervisions, "recording": recording}


def test_cuts_are_corrected_in_their_supervisions(tmp_path):
    said = [{"id": f"s{i}", "start": 2.0 * i, "duration": 2.0, "text": f"word {i}"} for i in range(2)]
    rows = [cut("one", [said[0] | {"text": "satu"}]), cut("two", said)]
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / "cuts.jsonl.gz").write_bytes(gzip.compress(raw))
    write_rows(tmp_path / "decisions.jsonl", [fix("one", "satu", "dua"), fix("s1", "word 1", "word one")])
    decisions = {d.id: d for d in read_decisions(tmp_path / "decisions.jsonl")}
    result = apply_decisions(tmp_path / "cuts.jsonl.gz", decisions, tmp_path / "out.jsonl.gz")
    assert len(result.fixed) == 2
    texts = {u.id: u.text for u in load_manifest(tmp_path / "out.jsonl.gz")}
    assert texts == {"one": "dua", "s0": "word 0", "s1": "word one"}
    assert dict(load_manifest(tmp_path / "out.jsonl.gz")[0].fields)["text_before"] == "satu"


def test_a_cut_without_a_transcript_gets_one_that_lhotse_reads(tmp_path):
    from lhotse import CutSet

    row = cut("one", []) | {"type": "MonoCut"}
    row["recording"]["sources"][0]["source"] = "a.wav"
    assert apply(tmp_path, [row], [fix("one", "", "satu dua")], "new/out.jsonl") == 0
    [read] = CutSet.from_jsonl(tmp_path / "new/out.jsonl")
    assert read.supervisions[0].text == "satu dua"
    assert read.recording.sources[0].source == "../a.wav"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "text": "x"}', "no field 'decision'; is it a file of decisions"),
        ('{"id": "a", "decision": "drop", "text": "x"}', "'drop' is none of accept, fix, skip"),
        ('{"id": "a", "decision": "fix", "text": "x", "fixed": " "}', "the fix of 'a' is empty"),
        ('{"id": "a", "decision": "fix", "text": "x"}', "the fix of 'a' is empty"),
        ('{"id": 7, "decision": "accept", "text": "x"}', "not a string"),
        ("not JSON", "not JSON"),
        ("", "no decisions in it"),
    ],
)
def test_a_wrong_file_of_decisions_is_one_line(tmp_path, capsys, line, message):
    write_rows(tmp_path / "manifest.jsonl", ROWS)
    (tmp_path / "decisions.jsonl").write_text(line + "\n")
    words = ["apply-fixes", str(tmp_path / "manifest.jsonl"), str(tmp_path / "decisions.jsonl")]
    assert main([*words, "-o", str(tmp_path / "out.jsonl")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_a_terminal_obeys_no_transcript(tmp_path, capsys):
    assert apply(tmp_path, ROWS, [fix("a", "selamat pagi ann", "selamat \x1b[2J \ud800 ann")]) == 0
    out = capsys.readouterr().out
    assert "\\x1b[2J \\ud800" in out
    assert "\x1b" not in out
