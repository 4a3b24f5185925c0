"""Error counts against jiwer, the bootstrap against a plain loop, and every way a file can be wrong."""

import gzip
import json
import math
import sys
import time

import jiwer
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.scoring import (
    Decoded,
    Errors,
    align,
    cer,
    compare,
    compare_files,
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
    with pytest.raises(MissingExtra, match=r"rapidfuzz.*wildctc\[train\]"):
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
        ([Decoded("u", "a")], {"u": ["a"], "v": ["b"]}, "no hypothesis for utterance v"),
    ],
)
def test_nothing_is_left_out_in_silence(items, references, message):
    with pytest.raises(WildCTCError, match=message):
        score(items, references)


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
    (tmp_path / "hyp.jsonl.part").mkdir()  # stands in the way of writing
    with pytest.raises(WildCTCError, match=r"hyp\.jsonl: cannot be written"):
        write_hyps(path, decoded("b"))
    assert read_hyps(path)[0].text == "a"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "u2", "text": "a"', "not JSON"),
        ('["u2", "a"]', "expected an object"),
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
    with pytest.raises(WildCTCError, match=rf"hyp\.jsonl, line 3: .*{message}"):
        read_hyps(path)


def test_missing_empty_and_cut_off_files_are_one_line(tmp_path):
    with pytest.raises(WildCTCError, match=r"none\.jsonl: cannot be read: No such file"):
        read_hyps(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(WildCTCError, match="no utterances"):
        read_hyps(tmp_path / "empty.jsonl")
    whole = gzip.compress(b'{"id": "u", "text": "a"}\n' * 100)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WildCTCError, match=r"cut\.jsonl\.gz: cannot be read"):
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
        ("text", "u1 a\nu1 b\n", "line 2: utterance u1 occurs a second time"),
        ("a.tsv", "u1\ta\nu2 b\n", "line 2: expected the utterance id, a tab"),
        ("a.tsv", "u1\ta\n\tb\n", 'line 2: no utterance "id"'),
        ("a.jsonl", '{"id": "u1"}\n', "line 1: the reference of utterance u1"),
    ],
)
def test_bad_reference_files_are_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(WildCTCError, match=f"{name}, {message}"):
        read_references([tmp_path / name])


# --------------------------------------------------------------------------------------------------------- comparing


def noisy_system(seed, error_rate, utterances=200):
    """Hypotheses with about `error_rate` of their words wrong; the same references for every seed."""
    lengths = np.random.default_rng(99).integers(3, 15, utterances)
    rng = np.random.default_rng(seed)
    items = []
    for i, n in enumerate(lengths):
        reference = [f"w{i}x{j}" for j in range(n)]
        text = ["wrong" if rng.random() < error_rate else word for word in reference]
        items.append(Decoded(f"u{i}", " ".join(text), (" ".join(reference),)))
    return items


def test_change_and_interval_are_those_of_a_plain_bootstrap():
    systems = {"a": noisy_system(1, 0.3), "b": noisy_system(2, 0.25)}
    comparison = compare(systems, resamples=2000, seed=5)
    a, b = (score(items).utterances for items in systems.values())
    rng = np.random.default_rng(12345)
    changes = []
    for _ in range(2000):
        drawn = rng.integers(len(a), size=len(a))
        rates = [sum(s[i].words.total for i in drawn) / sum(s[i].words.reference for i in drawn) for s in (a, b)]
        changes.append(rates[1] / rates[0] - 1)
    change = comparison.systems[1].wer_change
    assert change.relative == pytest.approx(score(systems["b"]).wer / score(systems["a"]).wer - 1)
    low, high = np.quantile(changes, [0.025, 0.975])
    assert (change.low, change.high) == pytest.approx((low, high), abs=0.1 * (high - low))  # resampling noise
    assert change.low < change.relative < change.high


def test_the_draw_is_paired_so_equal_systems_never_differ():
    items = noisy_system(1, 0.3)
    shuffled = items[::-1]  # paired by id, not by place
    change = compare({"a": items, "b": shuffled}, resamples=500).systems[1].wer_change
    assert (change.relative, change.low, change.high) == (0, 0, 0)


def test_the_same_seed_gives_the_same_interval_and_another_one_another():
    systems = {"a": noisy_system(1, 0.3), "b": noisy_system(2, 0.25)}
    first, again, other = (compare(systems, resamples=500, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_ten_thousand_resamples_take_well_under_a_second():
    systems = {"a": noisy_system(1, 0.3, 500), "b": noisy_system(2, 0.25, 500)}
    start = time.process_time()
    compare(systems)
    assert time.process_time() - start < 1.0  # about 0.15 s; the rest is for a busy machine


def test_a_clear_difference_is_starred_and_no_difference_is_not():
    systems = {"ctc": noisy_system(1, 0.3), "better": noisy_system(2, 0.1), "same": noisy_system(3, 0.3)}
    text = str(compare(systems, test_set="dev"))
    rows = {line.split()[0]: line for line in text.split("\n") if line}
    assert text.startswith("dev: 200 utterances, ")
    assert rows["better"].count("*") == 2
    assert "*" not in rows["same"]
    assert "*" not in rows["ctc"]


def test_a_first_system_without_errors_gives_an_infinite_change_and_valid_json():
    comparison = compare({"a": decoded("a b c d", "a b c d"), "b": decoded("a b c d", "a b c x")}, resamples=100)
    change = comparison.systems[1].wer_change
    assert math.isinf(change.relative)
    assert (change.low, change.high) == (0.0, math.inf)
    fields = json.loads(comparison.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert fields["systems"][1]["wer_change"] == {"relative": None, "low": 0.0, "high": None}
    assert "+∞" in str(comparison)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (decoded("a", "b"), "b lacks utterance u2, which a has"),
        (decoded("a", "b", "c", "d"), "a lacks utterance u3, which b has"),
        (decoded("a", "b", "c", reference="other"), "different references for utterance u0"),
    ],
)
def test_systems_on_different_test_sets_are_not_compared(other, message):
    with pytest.raises(WildCTCError, match=message):
        compare({"a": decoded("a", "b", "c"), "b": other})


def test_references_that_differ_are_compared_when_a_common_one_is_given():
    systems = {"a": decoded("a"), "b": decoded("a", reference="A")}
    assert compare(systems, {"u0": ["a"]}, resamples=10).systems[1].words.rate == 0.0


def test_hypothesis_files_are_named_by_what_tells_them_apart(tmp_path):
    for run in ("ctc", "otc-t"):
        write_hyps(tmp_path / run / "dev.jsonl", noisy_system(1, 0.2, 20))
    (comparison,) = compare_files([tmp_path / "ctc" / "dev.jsonl", tmp_path / "otc-t" / "dev.jsonl"])
    assert [system.name for system in comparison.systems] == ["ctc", "otc-t"]
    assert comparison.test_set == "dev"
    write_hyps(tmp_path / "ctc" / "epoch9.jsonl", noisy_system(1, 0.2, 20))
    (comparison,) = compare_files([tmp_path / "ctc" / "dev.jsonl", tmp_path / "ctc" / "epoch9.jsonl"])
    assert [system.name for system in comparison.systems] == ["dev", "epoch9"]
    (alone,) = compare_files([tmp_path / "ctc" / "dev.jsonl"])
    assert [system.name for system in alone.systems] == ["dev"]


def test_runs_give_a_table_for_each_test_set(tmp_path):
    for run, rate in (("ctc", 0.3), ("otc", 0.2)):
        for name, n in (("dev", 20), ("test", 30)):
            write_hyps(tmp_path / run / "hyp" / f"{name}.jsonl", noisy_system(1, rate, n))
    comparisons = compare_files([tmp_path / "ctc", tmp_path / "otc"])
    assert [(c.test_set, c.utterances) for c in comparisons] == [("dev", 20), ("test", 30)]
    assert [s.name for s in comparisons[0].systems] == ["ctc", "otc"]
    references = {item.id: ("wrong",) for item in noisy_system(1, 0.1, 30)}
    assert all(c.systems[0].words.rate > 1 for c in compare_files([tmp_path / "ctc"], references))


def test_runs_that_cannot_be_compared_are_named(tmp_path):
    write_hyps(tmp_path / "ctc" / "hyp" / "dev.jsonl", decoded("a"))
    write_hyps(tmp_path / "otc" / "hyp" / "test.jsonl", decoded("a"))
    (tmp_path / "new").mkdir()
    for others, message in (
        (["otc"], "otc did not decode dev"),
        (["new"], "new: nothing decoded yet"),
        (["none"], "none: not a run directory"),
        (["ctc"], "ctc: given twice"),
        (["otc/hyp/test.jsonl"], r"test\.jsonl: not a run directory"),
    ):
        with pytest.raises(WildCTCError, match=message):
            compare_files([tmp_path / "ctc", *(tmp_path / other for other in others)])
