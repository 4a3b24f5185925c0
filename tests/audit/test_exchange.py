"""A probe goes to other tools, and decisions come back."""

import csv
import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from support.probes import SCRIPTS, probed, write
from support.tones import read_rows, write_rows

from wildctc.audit.decisions import Decision, read_decisions
from wildctc.cli import main
from wildctc.probe.issues import issues_of

TEXT = SCRIPTS["english"].text
FIXED = "the quack brown fox jumps over the dog"


@pytest.fixture
def probe(tmp_path):
    utterances = [replace(u, audio="gone.wav") for u in SCRIPTS.values() if u.id != "english"]
    probe = write(tmp_path, [SCRIPTS["english"], *utterances, probed("a/b =", 'x" y', {0: "z"}, audio="gone.wav")])
    write_rows(tmp_path / "d.jsonl", [Decision("english", "fix", TEXT, FIXED, "ann", "2026-11-18T10:00:00Z").row()])
    return probe


def exchange(probe, to, out, decisions=True):
    more = ["--decisions", str(probe.parent / "d.jsonl")] if decisions else []
    assert main(["exchange", str(probe), "--to", to, "-o", str(out), *more]) == 0
    return out


def test_label_studio_gets_predictions_and_gives_decisions_back(probe, tmp_path):
    tasks = json.loads(exchange(probe, "label-studio", tmp_path / "t.json").read_text())
    result = tasks[0]["predictions"][0]["result"]
    assert result[0]["value"]["text"] == [SCRIPTS["english"].heard]
    assert sorted(r["value"]["labels"][0] for r in result[1:]) == ["changed", "extra", "missing"]
    config = ElementTree.parse(tmp_path / "t.xml").getroot()
    names = {element.get("name") for element in config.iter()}
    assert {r["from_name"] for r in result} <= names
    assert read_decisions(tmp_path / "t.json") == read_decisions(tmp_path / "d.jsonl")
    area = tasks[0]["annotations"][0]["result"][0]
    tasks[1]["annotations"] = [
        {
            "completed_by": 7,
            "created_at": "2026-11-18T11:00:00Z",
            "result": [area | {"value": {"text": tasks[1]["data"]["text"]}}],
        }
    ]
    tasks[2]["annotations"] = [{"completed_by": {"id": 7}, "was_cancelled": True, "result": []}]
    (tmp_path / "t.json").write_text(json.dumps(tasks))
    found = read_decisions(tmp_path / "t.json")
    assert [(d.decision, d.reviewer) for d in found] == [("fix", "ann"), ("accept", "7"), ("skip", "7")]


@pytest.mark.parametrize("content", ['[{"id": 1}]', "[1]", "[{", "[]"])
def test_other_json_is_one_line(tmp_path, capsys, content):
    (tmp_path / "t.json").write_text(content)
    assert main(["decisions", "report", str(tmp_path / "t.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_nemo_gets_what_was_heard_and_what_was_decided(probe, tmp_path):
    row = read_rows(exchange(probe, "nemo", tmp_path / "n.jsonl"))[0]
    assert (row["text"], row["pred_text"], row["fixed"]) == (TEXT, SCRIPTS["english"].heard, FIXED)
    assert (row["reviewer"], row["audio_filepath"], row["offset"]) == ("ann", "0.wav", 0.0)


def test_argilla_gets_a_record_for_each_utterance(probe, tmp_path):
    rows = read_rows(exchange(probe, "argilla", tmp_path / "a.jsonl"))
    assert [row["id"] for row in rows] == [*SCRIPTS, "a/b ="]
    assert rows[0]["suggestions"][0]["value"] == SCRIPTS["english"].heard
    assert rows[0]["metadata"]["fixed"] == FIXED


def test_a_spreadsheet_gets_findings_with_their_verdicts_and_computes_nothing(probe, tmp_path):
    with exchange(probe, "csv", tmp_path / "c.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    english = {row["written"] or row["heard"]: row["right"] for row in rows if row["id"] == "english"}
    assert english == {"quick": "yes", "lazy": "yes", "right": "no"}
    write(tmp_path / "bad", [probed("=1+1", "-a b", {0: "=cmd"}, audio="gone.wav")])
    out = exchange(tmp_path / "bad/probe.jsonl", "csv", tmp_path / "bad.csv", decisions=False).read_text("utf-8-sig")
    assert "'=1+1" in out
    assert "'=cmd" in out
    assert "'-a" in out


def test_praat_reads_textgrids_with_all_words_findings_and_their_times(probe, tmp_path):
    parselmouth = pytest.importorskip("parselmouth", reason="no Praat: pip install '.[dev]'")
    out = exchange(probe, "textgrid", tmp_path / "grids")
    assert {path.name for path in out.iterdir()} == {f"{id}.TextGrid" for id in [*SCRIPTS, "a%2Fb %3D"]}

    def tiers(name):
        grid = parselmouth.read(str(out / f"{name}.TextGrid"))
        ask = lambda *what: parselmouth.praat.call(grid, *what)  # noqa: E731
        found = {}
        for tier in range(1, ask("Get number of tiers") + 1):
            intervals = range(1, ask("Get number of intervals", tier) + 1)
            parts = ("Get start time of interval", "Get end time of interval", "Get label of interval")
            found[ask("Get tier name", tier)] = [tuple(ask(part, tier, k) for part in parts) for k in intervals]
        return found

    for id, utterance in SCRIPTS.items():
        found = tiers(id)
        written = [(word.start, word.end, word.text) for word in utterance.words]
        assert [mark for mark in found["words"] if mark[2]] == [pytest.approx(mark) for mark in written]
        assert len([mark for mark in found["findings"] if mark[2]]) == len(issues_of(utterance))
        for marks in found.values():  # without gaps
            edges = [0.0, *(end for _, end, _ in marks)]
            assert [start for start, _, _ in marks] == edges[:-1]
            assert edges[-1] == utterance.duration
    assert tiers("english")["transcript"][0][2] == FIXED
    assert [text for _, _, text in tiers("a%2Fb %3D")["transcript"]] == ['x" y']


def test_an_elan_library_reads_annotations_with_their_times(probe, tmp_path):
    pympi = pytest.importorskip("pympi", reason="no reader of ELAN's files: pip install '.[dev]'")
    out = exchange(probe, "elan", tmp_path / "elan")
    for id, utterance in SCRIPTS.items():
        found = pympi.Elan.Eaf(str(out / f"{id}.eaf"))
        written = [(round(1000 * w.start), round(1000 * w.end), w.text) for w in utterance.words]
        assert sorted(found.get_annotation_data_for_tier("words")) == written
        assert len(found.get_annotation_data_for_tier("findings")) == len(issues_of(utterance))
    english = pympi.Elan.Eaf(str(out / "english.eaf"))
    assert english.get_annotation_data_for_tier("transcript") == [(0, 5130, FIXED)]
    assert english.media_descriptors[0]["MEDIA_URL"] == "0.wav"


def test_findings_at_one_place_share_an_interval(tmp_path):
    utterance = probed("u", "one and two", {0: "won", 2: "three"}, audio="gone.wav")
    both = replace(utterance, words=[replace(word, start=1.0, end=2.0) for word in utterance.words])
    write(tmp_path, [both])
    out = exchange(tmp_path / "probe.jsonl", "elan", tmp_path / "elan", decisions=False)
    root = ElementTree.parse(out / "u.eaf").getroot()
    findings = next(tier for tier in root.iter("TIER") if tier.get("TIER_ID") == "findings")
    texts = [value.text for value in findings.iter("ANNOTATION_VALUE")]
    assert len(texts) == 1
    assert "one → won" in texts[0]
    assert "two → three" in texts[0]


def test_the_probe_is_never_written_over(probe, capsys):
    before = probe.read_bytes()
    assert main(["exchange", str(probe), "--to", "nemo", "-o", str(probe)]) == 2
    assert probe.read_bytes() == before


@pytest.mark.parametrize("form", ["textgrid", "elan"])
def test_every_id_gets_a_file_of_its_own(tmp_path, form):
    ids = ["half \ud800", "the end\x1b[2J", *("कखग" * 20 + end for end in "कख")]
    write(tmp_path, [probed(id, "ab cd", {0: "ac"}, audio="gone\ud800.wav") for id in ids])
    out = exchange(tmp_path / "probe.jsonl", form, tmp_path / "out", decisions=False)
    names = [path.name for path in out.iterdir()]
    assert len(names) == 4
    assert all(name.isascii() and name.isprintable() and len(name) < 255 for name in names)
