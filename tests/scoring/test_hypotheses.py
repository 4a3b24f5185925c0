"""Files of hypotheses and references: every format, and every way in which a file can be wrong."""

import gzip
import json

import pytest
from support.hyp_files import write_hyps

from wildctc.errors import WildCTCError
from wildctc.scoring.error_rates import score
from wildctc.scoring.hypotheses import Decoded, read_hyps, read_references


def test_hypotheses_survive_the_file(tmp_path):
    items = [
        Decoded("u1", "மொழி \u2028 x", ("a b",), -1.5),
        Decoded("u2", "", ("", "b")),
        Decoded("u3", 'say "hi"', (), 0.0),
    ]
    path = tmp_path / "new" / "hyp.jsonl"
    write_hyps(path, items)
    assert read_hyps(path) == items
    assert json.loads(path.read_text(encoding="utf-8").split("\n")[0])["reference"] == "a b"
    assert [file.name for file in path.parent.iterdir()] == ["hyp.jsonl"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "u2", "text": "a"', "not JSON"),
        ('["u2", "a"]', "not a JSON object"),
        ('{"text": "a"}', 'no utterance "id"'),
        ('{"id": "", "text": "a"}', 'no utterance "id"'),
        ('{"id": 7, "text": "a"}', 'no utterance "id"'),
        ('{"id": "u2"}', 'utterance u2 has no "text"'),
        ('{"id": "u2", "text": null}', 'utterance u2 has no "text"'),
        ('{"id": "u1", "text": "a"}', "utterance u1 occurs a second time"),
        ('{"id": "u2", "text": "a", "reference": 3}', "reference of utterance u2"),
        ('{"id": "u2", "text": "a", "reference": []}', "reference of utterance u2"),
        ('{"id": "u2", "text": "a", "score": "high"}', '"score" of utterance u2'),
        (b'{"id": "u2", "text": "\xff"}', "not UTF-8"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path, line, message):
    path = tmp_path / "hyp.jsonl"
    path.write_bytes(b'{"id": "u1", "text": "a"}\n\n' + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    with pytest.raises(WildCTCError, match=rf"hyp\.jsonl:3: .*{message}"):
        read_hyps(path)


def test_missing_empty_and_cut_off_files_are_one_line(tmp_path):
    with pytest.raises(WildCTCError, match=r"cannot read .*none\.jsonl: No such file"):
        read_hyps(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(WildCTCError, match="no utterances"):
        read_hyps(tmp_path / "empty.jsonl")
    whole = gzip.compress(b'{"id": "u", "text": "a"}\n' * 100)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WildCTCError, match=r"cannot read .*cut\.jsonl\.gz"):
        read_hyps(tmp_path / "cut.jsonl.gz")


def test_references_come_from_kaldi_tsv_jsonl_and_cuts(tmp_path):
    expected = {"u1": ("a b",), "u2": ("",)}
    (tmp_path / "text").write_text("u1 a b\nu2\n")
    (tmp_path / "plain.tsv").write_text("u1\ta b\nu2\t\n")
    (tmp_path / "named.tsv").write_text("speaker\ttext\tid\ns\ta b\tu1\ns\t\tu2\n")
    (tmp_path / "bom.tsv").write_text("u1\ta b\r\nu2\t\r\n", encoding="utf-8-sig", newline="")
    (tmp_path / "a.jsonl").write_text('{"id": "u1", "text": "a b"}\n{"id": "u2", "text": ""}\n')
    (tmp_path / "hyp.jsonl").write_text(
        '{"id": "u1", "text": "x", "reference": "a b"}\n{"id": "u2", "text": "y", "reference": ""}\n'
    )
    cuts = [{"id": id, "supervisions": [{"text": texts[0]}]} for id, texts in expected.items()]
    (tmp_path / "cuts.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, cuts)).encode()))
    (tmp_path / "nemo.jsonl").write_text(
        '{"audio_filepath": "x/u1.wav", "text": "a b"}\n{"audio": "u2.wav", "text": ""}\n'
    )
    both = {"id": "r", "supervisions": [{"id": id, "text": texts[0]} for id, texts in expected.items()]}
    (tmp_path / "recording.jsonl").write_text(json.dumps(both))
    for path in tmp_path.iterdir():
        assert read_references([path]) == expected, path.name


def test_several_files_and_lists_give_several_references(tmp_path):
    (tmp_path / "first").write_text("u1 a\nu2 b\n")
    (tmp_path / "second.jsonl").write_text('{"id": "u1", "text": ["c", "d"]}\n')
    references = read_references([tmp_path / "first", tmp_path / "second.jsonl"])
    assert references == {"u1": ("a", "c", "d"), "u2": ("b",)}
    assert score([Decoded("u1", "d"), Decoded("u2", "b")], references).wer == 0.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text", "u1 a\nu1 b\n", "2: utterance u1 occurs a second time"),
        ("a.tsv", "u1\ta\nu2 b\n", "2: expected the utterance id, a tab"),
        ("a.tsv", "u1\ta\n\tb\n", '2: no utterance "id"'),
        ("a.jsonl", '{"id": "u1"}\n', "1: the reference of utterance u1"),
    ],
)
def test_bad_reference_files_are_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(WildCTCError, match=f"{name}:{message}"):
        read_references([tmp_path / name])
