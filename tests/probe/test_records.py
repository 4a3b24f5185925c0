"""Probe files: what is written is read again, and other files are refused."""

import copy
import json

import pytest
from support.probes import SCRIPTS, SETTINGS

from wildctc.errors import WildCTCError
from wildctc.probe.records import NotProbed, read_probe, stream_probe, write_probe


def test_a_written_probe_is_read_again(tmp_path):
    probed = list(SCRIPTS.values())
    write_probe(tmp_path / "p.jsonl", SETTINGS, probed)
    settings, again = read_probe(tmp_path / "p.jsonl")
    assert settings == {"format": 1, **SETTINGS, "left_out": {}}
    for a, b in zip(again, probed, strict=True):
        assert (a.id, a.speaker, a.text, a.heard, a.between) == (b.id, b.speaker, b.text, b.heard, b.between)
        assert [t.bypass for t in a.tokens] == pytest.approx([t.bypass for t in b.tokens], rel=1e-5)
        assert [w.start for w in a.words] == pytest.approx([w.start for w in b.words], abs=0.001)


def test_a_probe_can_be_read_one_utterance_at_a_time(tmp_path):
    write_probe(tmp_path / "p.jsonl", SETTINGS, [SCRIPTS["english"]])
    with (tmp_path / "p.jsonl").open("a") as file:
        file.write(json.dumps({"id": "b", "left_out": "no such file"}) + "\n" + "not JSON\n")
    settings, entries = stream_probe(tmp_path / "p.jsonl")
    assert settings == {"format": 1, **SETTINGS}
    assert next(entries).text == SCRIPTS["english"].text
    assert next(entries) == NotProbed("b", "no such file")
    with pytest.raises(WildCTCError, match=r"p\.jsonl:4: not JSON"):  # the line after those that were read
        next(entries)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty; make it with `wildctc probe`"),
        ('{"id": "a"}\n', "not a probe"),
        ('{"probe": {"format": 99}}\n', "format 99 of a probe, this version reads 1"),
        ('{"probe": {"format": 1}}\n{"id": "a"}\n', "p.jsonl:2: not a row of a probe"),
    ],
)
def test_a_file_that_is_no_probe_is_refused_in_one_line(content, message, tmp_path):
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(WildCTCError, match=message):
        read_probe(tmp_path / "p.jsonl")


def test_misfits_are_kept_and_files_without_them_are_read(tmp_path):
    utterance = copy.deepcopy(SCRIPTS["english"])
    utterance.tokens[0].misfit = 0.25
    write_probe(tmp_path / "p.jsonl", SETTINGS, [utterance])
    [again] = read_probe(tmp_path / "p.jsonl")[1]
    assert [token.misfit for token in again.tokens[:2]] == [0.25, None]
    header, row = map(json.loads, (tmp_path / "p.jsonl").read_text().splitlines())
    for token in row["tokens"]:
        del token["misfit"]
    (tmp_path / "old.jsonl").write_text(json.dumps(header) + "\n" + json.dumps(row) + "\n")
    [old] = read_probe(tmp_path / "old.jsonl")[1]
    assert all(token.misfit is None for token in old.tokens)
