"""Disagreement of annotators: alignment by brute force and by hand, classes, statistics, files, and the whole crowd."""

import csv
import itertools
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wildctc.cli import main
from wildctc.disagreement.dissent import JOINED, Disagreement, disagreements
from wildctc.disagreement.text_alignment import align_texts
from wildctc.disagreement.transcripts import parse_columns, read_annotated
from wildctc.errors import WildCTCError
from wildctc.probe.records import ProbedToken, ProbedUtterance, ProbedWord, write_probe
from wildctc.text.normalisation import Normalizer

CROWD = os.environ.get("WILDCTC_CROWDSPEECH")
words_of = st.lists(st.text("ab", min_size=1, max_size=3), max_size=3).map(" ".join)


# ------------------------------------------------------------------------------------------------------------ alignment


def all_alignments(reference: str, other: str):
    """Steps from the end: "pair", "deletion" or "insertion", with the pairs that they make."""
    if not reference and not other:
        yield (), {}
    if reference and other and (reference[-1] == " ") == (other[-1] == " "):
        for steps, pairs in all_alignments(reference[:-1], other[:-1]):
            yield (0, *steps), {**pairs, len(reference) - 1: len(other) - 1}
    if reference:
        for steps, pairs in all_alignments(reference[:-1], other):
            yield (1, *steps), pairs
    if other:
        for steps, pairs in all_alignments(reference, other[:-1]):
            yield (2, *steps), pairs


def rank(reference: str, other: str, steps: tuple[int, ...], pairs: dict[int, int]) -> tuple:
    """The stated rule: edits, then pairs that disagree on being first or last of a word, then the steps' order."""

    def ends(text: str, i: int) -> tuple[bool, bool]:
        padded = f" {text} "
        return padded[i] == " ", padded[i + 2] == " "

    edits = sum(step > 0 for step in steps) + sum(reference[i] != other[j] for i, j in pairs.items())
    unlike = sum(
        a != b
        for i, j in pairs.items()
        if reference[i] != " "
        for a, b in zip(ends(reference, i), ends(other, j), strict=True)
    )
    return edits, unlike, steps


def best_alignment(reference: str, other: str) -> list[int]:
    _, pairs = min(all_alignments(reference, other), key=lambda found: rank(reference, other, *found))
    return [pairs.get(i, -1) for i in range(len(reference))]


@settings(deadline=None, max_examples=100)
@given(words_of.filter(lambda t: len(t) < 7), words_of.filter(lambda t: len(t) < 7))
def test_alignment_is_the_best_of_all_by_the_stated_rule(reference, other):
    assert align_texts([(reference, other)])[0].tolist() == best_alignment(reference, other)


def table_alignment(reference: str, other: str) -> list[int]:
    """The same by a plain table of whole costs, for texts that are too long to try everything."""
    space = [f" {text} " for text in (reference, other)]

    def pair(i: int, j: int) -> tuple[int, int]:
        a, b = reference[i], other[j]
        if (a == " ") != (b == " "):
            return 10**6, 0
        unlike = [(space[0][i + k] == " ") != (space[1][j + k] == " ") for k in (0, 2)]
        return int(a != b), sum(unlike) * (a != " ")

    best: dict[tuple[int, int], tuple[tuple[int, int], int]] = {(0, 0): ((0, 0), 0)}
    for i, j in itertools.product(range(len(reference) + 1), range(len(other) + 1)):
        options = [((best[i - 1, j - 1][0], pair(i - 1, j - 1)), 0)] if i and j else []
        options += [((best[i - 1, j][0], (1, 0)), 1)] if i else []
        options += [((best[i, j - 1][0], (1, 0)), 2)] if j else []
        if options:
            best[i, j] = min(((a[0] + b[0], a[1] + b[1]), step) for (a, b), step in options)
    i, j, places = len(reference), len(other), [-1] * len(reference)
    while i:
        step = best[i, j][1]
        i, j = i - (step < 2), j - (step != 1)
        if step == 0:
            places[i] = j
    return places


def test_long_texts_are_aligned_as_by_a_whole_table():
    rng = np.random.default_rng(0)
    for edits in (1, 3, 10, 40):
        reference = " ".join("".join(rng.choice(list("abcd"), rng.integers(1, 6))) for _ in range(15))
        other = list(reference)
        for place in rng.choice(len(reference) - 1, edits, replace=False):
            other[place] = rng.choice(["", " ", "a", "b", " c", "dd", " ab "])
        text = " ".join("".join(other).split())
        for pair in ((reference, text), (text, reference), (reference, text[20:]), (text[:9], reference)):
            pair = tuple(" ".join(part.split()) for part in pair)
            assert align_texts([pair])[0].tolist() == table_alignment(*pair)


def test_texts_aligned_together_are_aligned_as_each_alone():
    rng = np.random.default_rng(0)
    texts = [" ".join("".join(rng.choice(list("abc"), rng.integers(1, 5))) for _ in range(n)) for n in range(1, 25)]
    pairs = list(itertools.product(texts, texts))
    together = align_texts(pairs)
    for pair, places in list(zip(pairs, together, strict=True))[::17]:
        assert places.tolist() == align_texts([pair])[0].tolist()


@pytest.mark.parametrize(
    ("reference", "other", "lined_up"),
    [
        ("the cat", "the the cat", "the cat"),  # a word twice: none of both is torn
        ("a cat sat", "a cat cat sat", "a cat sat"),
        ("the cat", "the them cat", "the cat"),
        ("i can not go", "i cannot go", "i can-not go"),
        ("cannot", "can not", "cannot"),
        ("a b", "axb", "a-b"),  # a space is deleted and x inserted, never one for the other
        ("ab", "", "--"),
    ],
)
def test_alignments_that_a_person_would_choose(reference, other, lined_up):
    [places] = align_texts([(reference, other)])
    assert "".join("-" if j < 0 else other[j] for j in places) == lined_up
    kept = [j for j in places.tolist() if j >= 0]
    if "cat cat" in other or "the the" in other or "them" in other:
        runs = np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1)
        assert len(runs) <= 2
        assert all(other[run[0] - 1 : run[0]] in ("", " ") or other[run[0]] == " " for run in runs)


def test_an_empty_reference_has_no_characters():
    assert align_texts([("", "abc"), ("abc", ""), ("", "")])[0].tolist() == []


# -------------------------------------------------------------------------------------------------------------- classes


def one(reference: str, *transcripts: str) -> Disagreement:
    return disagreements([reference], [list(transcripts)])[0]


def test_a_unit_is_agreed_disputed_or_unanimously_corrected():
    found = one("abcd", "abcd", "abxy", "abzy")
    assert found.characters.dissent.tolist() == [0, 0, 2, 2]
    assert found.characters.disputed.tolist() == [False, False, True, True]
    found = one("abcd", "abxy", "abxy")
    assert found.characters.unanimous.tolist() == [False, False, True, True]
    assert not found.characters.disputed.any()
    assert found.words.unanimous.tolist() == [True]
    found = one("abcd", "abxy", "abxz")  # both change d, but not to the same
    assert found.characters.unanimous.tolist() == [False, False, True, False]
    assert found.characters.disputed.tolist() == [False, False, False, True]
    assert found.words.disputed.tolist() == [True]


def test_an_insertion_changes_no_character_and_is_counted_as_its_own_kind():
    found = one("colour", "colour", "coolour!")
    assert found.characters.dissent.sum() == 0
    assert found.words.dissent.tolist() == [1]
    assert found.insertions.dissent.sum() == 2
    assert found.insertions.dissent[-1] == 1
    assert (found.inserted, found.inserted_spaces, found.inserted_words) == (2, 0, 0)
    same = one("ab", "axb", "axb")
    assert same.insertions.unanimous.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("reference", "transcript", "changed"),
    [
        ("can not go", "cannot go", [1, 1, 0]),  # a deleted space changes both neighbours
        ("cannot go", "can not go", [1, 0]),  # an inserted space inside changes the word
        ("we go", "we all go", [0, 0]),  # a wholly inserted word changes neither
        ("we go", "so we go", [0, 0]),
        ("we go", "we go on", [0, 0]),
        ("we go", "well go", [1, 0]),  # what is attached without a space
        ("we go", "we ago", [0, 1]),
        ("we all go", "we go", [0, 1, 0]),  # a deleted word takes its space along and changes no neighbour
        ("we all go", "wego", [1, 1, 1]),
        ("we go", "", [1, 1]),
        ("a b", "axb", [1, 1]),
    ],
)
def test_what_changes_a_word(reference, transcript, changed):
    assert one(reference, transcript, reference).words.dissent.tolist() == changed


def test_joined_words_are_the_same_alternative_whatever_became_of_the_neighbour():
    found = one("can not", "cannot", "cannots")
    assert found.words.unanimous.tolist() == [True, False]  # both: "can" joined to what follows
    assert JOINED not in found.reference


def test_disputed_words_that_differ_in_one_character_or_only_by_an_insertion():
    reference = "colour grey cannot two words gone same"
    found = one(reference, "color gry can not twoo words same", reference)
    assert found.words.dissent.tolist() == [1, 1, 1, 1, 0, 1, 0]
    assert found.one_character.tolist() == [True, True, True, True, False, False, False]
    assert found.only_inserts.tolist() == [False, False, True, True, False, False, False]
    # of several dissenters all must: here the other one changes two characters
    found = one("grey", "gray", "gruy", "grie")
    assert found.one_character.tolist() == [False]


def test_grapheme_clusters_combining_marks_and_emoji_are_code_points():
    found = one("नि", "नी", "नि")  # another vowel sign: its letter is agreed
    assert found.characters.dissent.tolist() == [0, 1]
    normalize = Normalizer()
    found = one(normalize("cafe\u0301"), normalize("café"), normalize("cafe"))  # composed and not: the same after NFC
    assert found.characters.dissent.tolist() == [0, 0, 0, 1]
    found = one("q\u0301", "q", "q\u0301")  # no composed form: the mark is a character of its own
    assert found.characters.dissent.tolist() == [0, 1]
    found = one("ok 👩\u200d👧", "ok 👩", "ok 👩\u200d👧")
    assert found.characters.dissent.tolist() == [0, 0, 0, 0, 1, 1]


def test_an_empty_transcript_deletes_everything():
    found = one("ab c", "ab c", "")
    assert found.characters.dissent.tolist() == [1, 1, 1, 1]
    assert found.words.disputed.tolist() == [True, True]
    found = one("ab c", "", "")
    assert found.characters.unanimous.all()
    assert found.words.unanimous.all()


def test_a_transcript_longer_than_the_reference_adds_insertions_only():
    found = one("go", "go", "let us all go there now")
    assert found.characters.dissent.sum() == found.words.dissent.sum() == 0
    assert found.inserted_words == 5
    empty = one("", "uh", "")
    assert len(empty.characters.dissent) == len(empty.words.dissent) == 0
    assert empty.insertions.dissent.tolist() == [1]
    assert empty.inserted_words == 1


def test_one_transcript_cannot_disagree():
    with pytest.raises(WildCTCError, match="has 1 transcripts: it takes two to disagree"):
        one("a", "b")


@settings(deadline=None, max_examples=100)
@given(words_of, st.lists(words_of, min_size=2, max_size=3))
def test_classes_follow_from_the_alternatives(reference, transcripts):
    found = one(reference, *transcripts)
    alternatives = [best_or_fast(reference, text) for text in transcripts]
    for i, char in enumerate(reference):
        theirs = [alternative[i] for alternative in alternatives]
        assert found.characters.dissent[i] == sum(alternative != char for alternative in theirs)
        assert found.characters.unanimous[i] == (char not in theirs and len(set(theirs)) == 1)
    assert found.inserted == sum(
        len(text) - sum(c != "" for c in alternative)
        for text, alternative in zip(transcripts, alternatives, strict=True)
    )
    for (start, stop), d in zip(found.spans, found.words.dissent, strict=True):
        if found.characters.dissent[start:stop].any():
            assert d > 0


def best_or_fast(reference: str, text: str) -> list[str]:
    return ["" if j < 0 else text[j] for j in align_texts([(reference, text)])[0]]


# ---------------------------------------------------------------------------------------------------------------- files


def write(path: Path, *lines: str | dict) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def transcripts_of(utterances) -> dict[str, list[str]]:
    return {u.id: list(u.transcripts.values()) for u in utterances}


def test_the_same_transcripts_are_read_from_every_kind_of_file(tmp_path):
    reference = write(tmp_path / "text", "u1 a b", "u2 c")
    expected = {"u1": ["a x", "a b"], "u2": ["c", ""]}
    listed = write(
        tmp_path / "list.jsonl",
        {"id": "u1", "transcripts": ["a x", "a b", None]},
        {"id": "u2", "transcripts": ["c", ""]},
    )
    named = write(
        tmp_path / "named.jsonl",
        *(
            {"id": id, "text": text, "annotator": n}
            for id, texts in expected.items()
            for n, text in enumerate(texts, 1)
        ),
    )
    kaldi = [write(tmp_path / "ann", "u1 a x", "u2 c"), write(tmp_path / "ben", "u1 a b", "u2")]
    two_columns = [write(tmp_path / "c.tsv", "u1\ta x", "u2\tc"), write(tmp_path / "d.tsv", "u1\ta b", "u2\t")]
    for files in ([listed], [named], kaldi, two_columns):
        found, left_out = read_annotated(reference, files, Normalizer())
        assert transcripts_of(found) == expected
        assert left_out == {}
    table = write(
        tmp_path / "e.tsv", "who\tx\twhat\tid", "1\t-\ta x\tu1", '2\t-\t"a\r\nb"\tu1', "2\t-\t\tu2", "1\t-\tc\tu2"
    )
    found, _ = read_annotated(
        reference, [table], Normalizer(), columns=parse_columns("annotator,-,text,utterance"), header=True
    )
    assert transcripts_of(found) == {"u1": ["a x", "a b"], "u2": ["", "c"]}


def test_languages_and_splits_come_from_the_reference(tmp_path):
    cut = {"id": "u2", "custom": {"split": "dev"}, "supervisions": [{"id": "s", "text": "c", "language": "ta"}]}
    plain = {"audio": "x/u1.wav", "text": "a b", "language": "hi", "split": "test"}
    reference = write(tmp_path / "manifest.jsonl", plain, cut)
    lists = write(tmp_path / "v.jsonl", *({"id": f"u{i}", "transcripts": ["a", "b"]} for i in (1, 2)))
    found, _ = read_annotated(reference, [lists], Normalizer())
    assert [(u.id, u.reference, u.language, u.split) for u in found] == [
        ("u1", "a b", "hi", "test"),
        ("u2", "c", "ta", "dev"),
    ]


def test_utterances_with_fewer_than_two_transcripts_are_left_out_and_said(tmp_path):
    reference = write(tmp_path / "text", "u1 a", "u2 b", "u3 c")
    files = [write(tmp_path / "ann", "u1 a", "u2 b"), write(tmp_path / "ben", "u1 x")]
    found, left_out = read_annotated(reference, files, Normalizer())
    assert [u.id for u in found] == ["u1"]
    assert left_out == {"u2": "only one transcript", "u3": "no transcript"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"ann": ["u1 a"]}, r"only one annotator \(.*ann\) in the validators' files: it takes two to disagree"),
        ({"ann": ["u1 a"], "ben": ["u1 a"], "cleo": [""]}, "cleo: no transcripts in it"),
        ({"a.jsonl": ['{"id": "u1", "transcription": "a"}']}, r"a\.jsonl: no transcripts in it"),
        ({"ann": ["u1 a"], "ben": ["u2 b"]}, "no utterance has two transcripts, and it takes two to disagree: "),
        ({"ann": ["u1 a", "u1 b"], "ben": ["u1 a"]}, "ann:2: annotator .* has transcribed utterance u1 before"),
        ({"ann": ["u1 a"], "ben": ["u9 a"]}, "ben:1: utterance 'u9' is not in the reference"),
        ({"a.jsonl": ['{"id": "u1"}', '{"id": "u1", "text": 3}']}, 'a.jsonl:2: expected an "id", and a "text"'),
        ({"a.tsv": ["u1\ta\tx\ty"]}, "a.tsv:1: 4 columns: name them in their order, as in --columns utt"),
        ({"a.tsv": ["u1\ta\tx", "u1\ta"]}, "a.tsv:2: 2 columns where --columns names 3"),
        ({"a.tsv": ['u1\t"so" he said\tx']}, "a.tsv:1: .*; a cell that begins with a quote must be quoted whole"),
        ({"a.tsv": ['u1\t"never closed\tx', "u1\ta\ty"]}, "a.tsv:.*; a cell that begins with a quote"),
    ],
)
def test_files_that_cannot_be_right_are_one_clear_error(tmp_path, lines, message):
    reference = write(tmp_path / "text", "u1 a", "u2 b")
    files = [write(tmp_path / name, *content) for name, content in lines.items()]
    with pytest.raises(WildCTCError, match=message):
        read_annotated(reference, files, Normalizer())


def test_an_id_twice_in_the_reference_is_an_error(tmp_path):
    validators = [write(tmp_path / name, "u1 a") for name in ("ann", "ben")]
    for reference in (
        write(tmp_path / "text", "u1 a", "u1 b"),
        write(tmp_path / "m.jsonl", {"id": "u1", "text": "a"}, {"id": "u1", "text": "a"}),
    ):
        with pytest.raises(WildCTCError, match="utterance u1 occurs"):
            read_annotated(reference, validators, Normalizer())


def test_columns_are_checked():
    for value, message in (("utterance,txt", "unknown 'txt'"), ("text", "are needed"), ("utterance,text,text", "once")):
        with pytest.raises(WildCTCError, match=message):
            parse_columns(value)


# -------------------------------------------------------------------------------------------------------------- command


def probed(id: str, text: str, bypass: list[float], words: list[float]) -> ProbedUtterance:
    tokens = [ProbedToken(text[i], i, i + 1, 0.1 * i, 0.1 * i + 0.1, b, text[i]) for i, b in enumerate(bypass)]
    spans = one(text, text, text).spans
    parts = [ProbedWord(text[a:b], a, b, a, b - 1, 0.0, 1.0, w, "") for (a, b), w in zip(spans, words, strict=True)]
    return ProbedUtterance(id, "a.wav", 0.0, 1.0, 0, None, text, text, tokens, parts, [0.5] * (len(text) + 1))


@pytest.fixture
def study(tmp_path):
    """Two languages, two annotators, two systems; what each mean must be can be seen."""
    texts = {"u1": ("ab", "hi", ["ab", "xb"]), "u2": ("cd e", "ta", ["cd e", "cd e"]), "u3": ("fg", "ta", ["fx", "fy"])}
    reference = write(tmp_path / "ref.jsonl", *({"id": i, "text": t[0], "language": t[1]} for i, t in texts.items()))
    validators = write(tmp_path / "val.jsonl", *({"id": i, "transcripts": t[2]} for i, t in texts.items()))
    for name, factor in (("ctc", 1), ("otc", 2)):
        (tmp_path / name).mkdir()
        rows = [
            probed("u1", "ab", [0.2 * factor, 0.1], [0.3 * factor]),
            probed("u2", "cd e", [0.1, 0.1, 0.1, 0.1], [0.1, 0.1]),
            probed("u3", "fg", [0.1, 0.4 * factor], [0.3 * factor]),
        ]
        write_probe(tmp_path / name / "probe.jsonl", {"self_loop": 0.0}, rows)
    return tmp_path, ["disagree", "--reference", reference, "--validators", validators]


def test_the_report_has_what_can_be_worked_out_by_hand(study, capsys):
    folder, words = study
    probes = [x for name in ("ctc", "otc") for x in ("--probe", str(folder / name / "probe.jsonl"))]
    outputs = ["--json", str(folder / "o.json"), "--csv", str(folder / "o.csv"), "--svg", str(folder / "o.svg")]
    assert main([*words, *probes, *outputs]) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 utterances, 2 annotators, 2 to an utterance\n")
    assert text.endswith(f"\nwritten: {folder}/o.json, {folder}/o.csv, {folder}/o.svg\n")
    result = json.loads((folder / "o.json").read_text())
    pooled, hi, ta = result["groups"]
    assert (hi["language"], ta["language"]) == ("hi", "ta")
    assert pooled["characters"]["units"] == {"agreed": 6, "disputed": 2, "unanimous": 0, "d=1": 1, "d=2": 1}
    assert pooled["words"]["units"] == {"agreed": 2, "disputed": 2, "unanimous": 0, "d=1": 1, "d=2": 1}
    ctc, otc = (pooled["characters"]["systems"][name] for name in ("ctc", "otc"))
    assert ctc["agreed"]["mean"]["value"] == pytest.approx(0.1)
    assert [ctc[name]["mean"]["value"] for name in ("disputed", "d=1", "d=2")] == pytest.approx([0.3, 0.2, 0.4])
    assert otc["disputed"]["relative"]["value"] == pytest.approx(1.0)
    assert otc["agreed"]["p"] == 1.0
    assert otc["ratio"]["value"] == pytest.approx(6.0)
    assert ctc["unanimous"]["mean"]["value"] is None
    assert ta["characters"]["systems"]["ctc"]["d=2"]["mean"]["value"] == pytest.approx(0.4)
    assert pooled["disputed_words"]["one_character"] == 2
    rows = list(csv.DictReader((folder / "o.csv").open()))
    assert len(rows) == 3 * 3 * 5 * 2
    [row] = [
        r for r in rows if (r["language"], r["units"], r["class"], r["system"]) == ("", "words", "disputed", "otc")
    ]
    assert (row["count"], row["mean"], row["relative"]) == ("2", "0.6", "1")
    assert ET.parse(folder / "o.svg").getroot().tag.endswith("svg")
    assert "Mean bypass probability of characters" in text
    assert "Change against ctc, words" in text
    assert "self-loop weight of the probes: 0" in text


def test_columns_of_the_tables_line_up(study, capsys):
    folder, words = study
    assert main([*words, "--probe", str(folder / "ctc/probe.jsonl"), "--probe", str(folder / "otc/probe.jsonl")]) == 0
    for part in capsys.readouterr().out.split("\n\n"):
        lines = part.split("\n")
        if len(lines) > 2 and set(lines[1]) == {"─"}:
            rows = [line for line in lines[2:] if len(line.split()) > 1 and not line.startswith("insertions:")]
            assert rows
            assert {len(row) for row in rows} == {len(lines[1])}


def test_without_probes_there_are_counts_only_and_no_picture(study, capsys):
    folder, words = study
    assert main(words) == 0
    assert "bypass" not in capsys.readouterr().out
    assert main([*words, "--svg", str(folder / "o.svg")]) == 2
    assert "--svg draws the means of systems: give --probe files too" in capsys.readouterr().err
    assert not (folder / "o.svg").exists()


def test_probes_that_do_not_fit_are_one_clear_error(study, capsys):
    folder, words = study
    rows = [probed("u1", "ab", [0.1, 0.1], [0.1])]
    ctc = str(folder / "ctc/probe.jsonl")
    for settings_, content, message in (
        ({"self_loop": -1.0}, rows, "were probed with different self-loop weights (0.0 and -1.0)"),
        (
            {"self_loop": 0.0},
            [probed("u1", "aB", [0.1, 0.1], [0.1])],
            "the reference is 'ab'…: give the same transcript",
        ),
        ({"self_loop": 0.0}, [probed("u7", "ab", [0.1, 0.1], [0.1])], "none of its utterances is in the reference"),
    ):
        write_probe(folder / "bad.jsonl", settings_, content)
        assert (
            main([*words, "--probe", ctc, "--probe", str(folder / "bad.jsonl"), "--json", str(folder / "o.json")]) == 2
        )
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not (folder / "o.json").exists()


def test_an_utterance_that_a_system_did_not_probe_is_left_out_for_all_and_said(study, capsys):
    folder, words = study
    write_probe(folder / "part.jsonl", {"self_loop": 0.0}, [probed("u1", "ab", [0.1, 0.1], [0.1])])
    probes = ["--probe", str(folder / "ctc/probe.jsonl"), "--probe", str(folder / "part.jsonl")]
    assert main([*words, *probes]) == 0
    shown = capsys.readouterr()
    assert "1 utterance, 2 annotators, 2 to an utterance; 2 utterances skipped" in shown.out
    assert "skipped, not probed by part: utterances u2, u3" in shown.err


def test_a_character_of_a_longer_token_has_the_tokens_probability(study, capsys):
    folder, words = study
    pieces = probed("u2", "cd e", [0.1] * 4, [0.1, 0.1])
    pieces.tokens = [ProbedToken("cd", 0, 2, 0.0, 0.1, 0.3, "cd"), ProbedToken(" e", 2, 4, 0.1, 0.2, 0.5, " e")]
    pieces.gaps, pieces.between = [0.1] * 3, []
    for number, word in enumerate(pieces.words):
        word.first = word.last = number
    write_probe(folder / "bpe.jsonl", {"self_loop": None}, [pieces])
    assert main([*words, "--probe", str(folder / "bpe.jsonl"), "--json", str(folder / "o.json")]) == 0
    [group] = json.loads((folder / "o.json").read_text())["groups"]
    assert group["characters"]["systems"]["bpe"]["agreed"]["mean"]["value"] == pytest.approx(0.4)
    assert group["insertions"]["systems"] == {}  # places inside a piece have no value
    assert "self-loop weight of the probes: none" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not CROWD, reason="WILDCTC_CROWDSPEECH does not name the folder of CrowdSpeech")
@pytest.mark.parametrize(
    ("options", "characters", "words"),
    [
        ([], (288_456, 96_523, 570), (54_402, 32_340, 312)),
        (["--lower", "--strip-punctuation"], (288_455, 91_547, 302), (54_402, 26_613, 153)),
    ],
)
def test_the_whole_crowd_goes_through(tmp_path, options, characters, words):
    files = ["--reference", f"{CROWD}/dev-clean-gt.txt", "--validators", f"{CROWD}/dev-clean-crowd.tsv"]
    columns = ["--columns", "utterance,text,annotator", "--header"]
    assert main(["disagree", *files, *columns, *options, "--json", str(tmp_path / "o.json")]) == 0
    result = json.loads((tmp_path / "o.json").read_text())
    assert (result["annotators"], result["left_out"]) == (748, {})
    [group] = result["groups"]
    assert group["utterances"] == 2703
    for kind, expected in (("characters", characters), ("words", words)):
        units = group[kind]["units"]
        total = units["agreed"] + units["disputed"] + units["unanimous"]
        assert (total, units["disputed"], units["unanimous"]) == expected
