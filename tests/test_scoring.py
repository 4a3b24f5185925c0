"""Error counts against jiwer, and every way a file can be wrong."""

import gzip
import json
import logging
import os
import sys

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.scoring import (
    Decoded,
    Errors,
    align,
    cer,
    display_width,
    read_hyps,
    read_references,
    score,
    table,
    wer,
    write_hyps,
)
from wildctc.text import Normalizer

sentences = st.lists(st.sampled_from(["a", "b", "ab", "ba", "c"]), max_size=8).map(" ".join)


# ---------------------------------------------------------------------------------------------------------- counting


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=5))
def test_rates_are_those_of_jiwer(pairs):
    references, hypotheses = map(list, zip(*pairs, strict=True))
    words, characters = wer(references, hypotheses), cer(references, hypotheses)
    assert words.rate == pytest.approx(jiwer.wer(references, hypotheses))
    assert characters.rate == pytest.approx(jiwer.cer(references, hypotheses))
    assert words.reference == sum(len(r.split()) for r in references)
    # Whatever the tie-break, insertions less deletions is the difference in length.
    assert words.insertions - words.deletions == sum(len(h.split()) - len(r.split()) for r, h in pairs)


@settings(max_examples=100, deadline=None)
@given(sentences, sentences)
def test_alignment_spells_out_both_sides_and_its_edits_are_those_counted(reference, hypothesis):
    columns = align(reference.split(), hypothesis.split())
    assert [r for _, r, _ in columns if r is not None] == reference.split()
    assert [h for _, _, h in columns if h is not None] == hypothesis.split()
    for kind, r, h in columns:
        assert kind == ("I" if r is None else "D" if h is None else "=" if r == h else "S")
    kinds = [kind for kind, _, _ in columns]
    counted = wer([reference], [hypothesis])
    assert (kinds.count("S"), kinds.count("I"), kinds.count("D")) == (
        counted.substitutions,
        counted.insertions,
        counted.deletions,
    )


def test_an_empty_reference_counts_insertions_and_no_words():
    assert wer([""], [""]).rate == 0.0
    assert wer([""], ["a b"]) == Errors(insertions=2)
    assert wer([""], ["a b"]).rate == 2.0  # no words to divide by: divided by one, as jiwer does
    assert wer(["", "x y z w"], ["a", "x y z w"]).rate == 0.25
    assert cer([""], ["ab"]).rate == 2.0


def test_the_nearest_of_several_references_counts():
    assert wer([["a b c", "a b d", "x"]], ["a b d"]).total == 0
    assert wer(["p q", ["a b c d", "a b"]], ["p q", "a b c"]).reference == 6  # as near as each other: the first
    assert wer([["b b", "a a a"]], ["a a c"]) == Errors(substitutions=1, reference=3)
    assert wer([["xaz", "abz"]], ["abc"]) == Errors(substitutions=1, reference=1)
    assert cer([["xaz", "abz"]], ["abc"]) == Errors(substitutions=1, reference=3)  # same words: fewer characters


def test_texts_are_normalised_before_they_are_compared():
    assert wer(["cafe\u0301  au lait"], [" café au lait"]).total == 0
    assert wer(["Hello, World!"], ["hello world"]).total == 2
    assert wer(["Hello, World!"], ["hello world"], Normalizer(lower=True, strip_punctuation=True)).total == 0


def test_characters_are_code_points_and_the_space_is_one():
    assert cer(["ab cd"], ["abcd"]) == Errors(deletions=1, reference=5)
    assert cer(["हिंदी"], ["हिंद"]) == Errors(deletions=1, reference=5)


def test_missing_rapidfuzz_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(MissingExtra, match=r"rapidfuzz.*extra train"):
        wer(["a"], ["a"])


# ----------------------------------------------------------------------------------------------------------- scoring


def decoded(*texts, reference="a b c d"):
    return [Decoded(f"u{i}", text, (reference,)) for i, text in enumerate(texts)]


def test_score_sums_utterances_and_its_json_says_the_same():
    result = score(decoded("a b c d", "a x c", "a b c d e"))
    assert result.words == Errors(substitutions=1, insertions=1, deletions=1, reference=12)
    assert result.wer == 0.25
    fields = json.loads(result.to_json())
    assert fields["wer"] == 0.25
    assert fields["cer"] == result.cer == result.characters.total / 21
    assert fields["words"]["errors"] == 3
    assert [u["words"]["errors"] for u in fields["utterances"]] == [0, 2, 1]
    assert "25.00%" in str(result)
    assert "3 utterances, 2 of them (66.7%) with errors" in str(result)


def test_given_references_replace_those_of_the_hypotheses():
    assert score(decoded("a b", "c"), {"u0": ["a b"], "u1": ["x", "c"]}).wer == 0.0


@pytest.mark.parametrize(
    ("items", "references", "message"),
    [
        ([], None, "nothing to score"),
        ([Decoded("u", "a", ("a",)), Decoded("u", "b", ("a",))], None, "utterance u decoded more than once"),
        ([Decoded(f"u{i}", "a") for i in range(5)], None, "no reference for utterances u0, u1, u2 and 2 more"),
        ([Decoded("u", "a", ("a",))], {"v": ["a"]}, "no reference for utterance u"),
    ],
)
def test_what_cannot_be_scored_is_named(items, references, message):
    with pytest.raises(WildCTCError, match=message):
        score(items, references)


def test_references_without_a_hypothesis_are_not_left_out_in_silence(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("wildctc"), "propagate", True)
    assert score([Decoded("u", "a")], {"u": ["a"], "v": ["b"]}).words.reference == 1
    assert "not counted, since there is no hypothesis: utterance v" in caplog.text


def column_starts(line):
    """Terminal columns at which words start."""
    starts, column = [], 0
    for i, char in enumerate(line):
        if char != " " and (i == 0 or line[i - 1] == " "):
            starts.append(column)
        column += display_width(char)
    return starts


@pytest.mark.parametrize(
    ("reference", "hypothesis"),
    [
        ("urang ka datai ari rumah", "orang datai ari rumah panjai nya"),
        ("今日 も 日本語 へ 行った", "今日 は 日本 へ 行く ね"),
        ("मैं हिंदी बोलती हूँ", "मैं हिन्दी बोलता हूँ जी"),
        ("ذهب ولد إلى مدرسة كبيرة", "ذهب الولد إلى المدرسة"),
        ("e\u0301te\u0301 🙂 ok", "ete 🙂🙂 ok"),
        ("", "a b"),
        ("a b", ""),
    ],
)
def test_listing_lines_up_reference_hypothesis_and_marks(reference, hypothesis):
    title, ref, hyp, marks = score([Decoded("u", hypothesis, (reference,))]).listing(width=200).split("\n")
    assert title.startswith("u: ")
    starts = column_starts(ref)
    assert starts == column_starts(hyp)
    assert set(column_starts(marks)) <= set(starts)
    columns = align(Normalizer()(reference).split(), Normalizer()(hypothesis).split())
    assert marks.split() == [kind for kind, _, _ in columns if kind != "="]
    assert len(starts) == 1 + len(columns)


def test_listing_wraps_at_the_width_and_loses_nothing():
    reference = " ".join(f"word{i}" for i in range(40))
    text = score([Decoded("u", reference + " more", (reference,))]).listing(width=60)
    lines = text.split("\n")[1:]
    assert max(map(display_width, lines)) <= 60
    assert [word for line in lines[0::3] for word in line.split()[1:] if "*" not in word] == reference.split()


def test_listing_shows_the_most_errors_first_and_only_errors():
    result = score(decoded("a b c d", "a b c", "x y", "a"))
    assert [line.split(":")[0] for line in result.listing().split("\n") if line.startswith("u")] == ["u2", "u3", "u1"]
    assert result.listing(limit=1).count("\n") == 3
    assert score(decoded("a b c d")).listing() == ""


def test_a_table_lines_up_wide_characters():
    lines = table(["name", "rate"], [["日本語", "1%"], ["x", "100%"]]).split("\n")
    assert {display_width(line) for line in lines} == {12}


# ------------------------------------------------------------------------------------------------------------- files


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


def test_a_failed_write_keeps_the_old_file_and_is_one_line(tmp_path):
    path = tmp_path / "hyp.jsonl"
    write_hyps(path, decoded("a"))
    (tmp_path / f".hyp.jsonl.{os.getpid()}.part").mkdir()  # stands in the way of writing
    with pytest.raises(WildCTCError, match=r"cannot write .*hyp\.jsonl"):
        write_hyps(path, decoded("b"))
    assert read_hyps(path)[0].text == "a"


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
