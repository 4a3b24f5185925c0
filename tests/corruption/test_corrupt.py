"""Errors put into transcripts: exact rates, a recoverable truth, whole characters, audio that is still found."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.corruption.corrupt import CHARACTER_KINDS, WORD_KINDS, clusters, corrupt, read_variants, restore
from wildctc.errors import WildCTCError
from wildctc.text.normalisation import Normalizer

AWKWARD = [
    "a",
    "b",
    "c",
    " ",
    " ",
    "e\u0301",
    "\u0301",
    "क्षि",
    "नि",
    "்",
    "க",
    "👩\u200d👧",
    "🇩🇪",
    "\u200d",
    "각",
    "ᄀ",
    "ᅡ",
]
awkward_texts = st.lists(
    st.one_of(st.text(max_size=20), st.lists(st.sampled_from(AWKWARD), max_size=30).map("".join)).map(Normalizer()),
    max_size=6,
)
TEXTS = [f"sentence number {i} of a corpus with some words in it" for i in range(200)]


def kinds_of(corrupted) -> set[str]:
    return {edit.kind for new in corrupted for edit in new.edits}


@settings(deadline=None, max_examples=300)
@given(awkward_texts, st.floats(0, 0.2), st.floats(0, 0.2), st.integers(0, 5))
def test_the_truth_comes_back_and_the_new_text_stays_normalised(texts, characters, words, seed):
    try:
        corrupted = corrupt(texts, characters=characters, words=words, seed=seed)
    except WildCTCError:  # a small corpus can lack the places
        return
    for text, new in zip(texts, corrupted, strict=True):
        assert restore(new.text, new.edits) == text
        assert Normalizer()(new.text) == new.text
        assert bool(new.text) == bool(text)
        assert all(new.text[e.begin : e.stop] == e.written != e.truth for e in new.edits)
        gaps = zip(new.edits, new.edits[1:], strict=False)
        assert all(left.stop < right.begin for left, right in gaps)


@settings(deadline=None, max_examples=200)
@given(awkward_texts, st.integers(0, 5))
def test_no_character_is_torn_or_gains_a_mark(texts, seed):
    before = {cluster for text in texts for word in text.split() for cluster in clusters(word)}
    try:
        corrupted = corrupt(texts, characters=0.2, words=0.1, seed=seed)
    except WildCTCError:
        return
    assert {cluster for new in corrupted for word in new.text.split() for cluster in clusters(word)} <= before


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.1])
def test_the_rate_is_exact(rate):
    characters = sum(len(text.replace(" ", "")) for text in TEXTS)
    corrupted = corrupt(TEXTS, characters=rate, seed=3)
    assert sum(len(new.edits) for new in corrupted) == round(rate * characters)
    words = sum(len(text.split()) for text in TEXTS)
    corrupted = corrupt(TEXTS, words=rate, characters=rate / 2, seed=3)
    assert sum(len(new.edits) for new in corrupted) == round(rate * words) + round(rate / 2 * characters)


@pytest.mark.parametrize("kind", CHARACTER_KINDS)
def test_a_character_edit_is_of_the_kind_that_was_asked_for(kind):
    corrupted = corrupt(TEXTS, characters=0.05, character_kinds=[kind])
    assert kinds_of(corrupted) == {kind}
    letters = set("".join(TEXTS)) - {" "}
    for text, new in zip(TEXTS, corrupted, strict=True):
        assert len(new.text.split()) == len(text.split())
        for edit in new.edits:
            assert (len(edit.written), len(edit.truth)) == {
                "substitution": (1, 1),
                "insertion": (1, 0),
                "deletion": (0, 1),
            }[kind]
            assert set(edit.written) <= letters
            beside = new.text[max(edit.begin - 1, 0) : edit.begin], new.text[edit.stop : edit.stop + 1]
            if kind == "insertion":
                assert edit.written not in beside
            if kind == "deletion":
                assert edit.truth not in beside


@pytest.mark.parametrize("kind", WORD_KINDS)
def test_a_word_edit_is_of_the_kind_that_was_asked_for(kind):
    corrupted = corrupt(TEXTS, words=0.1, word_kinds=[kind], seed=1)
    assert kinds_of(corrupted) == {kind}
    known = {word for text in TEXTS for word in text.split()}
    more = {"substitution": 0, "insertion": 1, "deletion": -1, "join": -1, "split": 1}[kind]
    for text, new in zip(TEXTS, corrupted, strict=True):
        assert len(new.text.split()) == len(text.split()) + more * len(new.edits)
        if kind not in ("join", "split"):
            assert set(new.text.split()) <= known
        for edit in new.edits:
            assert (edit.written, edit.truth).count("") == (kind != "substitution")
            assert {"join": edit.truth, "split": edit.written}.get(kind, " ") == " "


def test_the_first_word_takes_the_space_after_it():
    for kind, text in (("deletion", "b"), ("insertion", "b a b")):
        for seed in range(50):
            [new] = corrupt(["a b"], words=0.5, word_kinds=[kind], seed=seed)
            if new.edits[0].begin == 0:
                assert new.text == text
                break
        else:
            pytest.fail("never at the start")


def test_all_kinds_come_about_equally_often():
    corrupted = corrupt(TEXTS * 5, characters=0.1)
    counts = [sum(edit.kind == kind for new in corrupted for edit in new.edits) for kind in CHARACTER_KINDS]
    assert max(counts) < 1.2 * min(counts)


def test_the_same_seed_gives_the_same_errors_and_another_one_others():
    first, again, other = (corrupt(TEXTS, characters=0.02, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_replacements_follow_the_corpus():
    corrupted = corrupt(["a" * 9 + "b" * 90 + "c" * 901], characters=0.3, character_kinds=["substitution"])
    written = "".join(edit.written for edit in corrupted[0].edits if edit.truth == "c")
    assert written.count("b") > 3 * written.count("a")


def test_a_rate_that_cannot_be_reached_is_an_error():
    with pytest.raises(WildCTCError, match=r"characters 0\.9: only .* of 9 hits found a place"):
        corrupt(["abcdefghij"], characters=0.9)
    with pytest.raises(WildCTCError, match="words 1: only 0 of 1 hits"):
        corrupt(["alone"], words=1, word_kinds=["deletion", "join"])
    with pytest.raises(WildCTCError, match="characters 1: only 0"):
        corrupt(["aaa"], characters=1)  # nothing else to write
    with pytest.raises(WildCTCError, match="characters must be a share between 0 and 1, got 2"):
        corrupt(["abc"], characters=2)


def test_variants_are_swapped_at_the_share_of_words_that_have_one(tmp_path):
    path = tmp_path / "variants.txt"
    path.write_text("colour color\ngrey gray grei\n")
    variants = read_variants(str(path), Normalizer())
    assert variants["grey"] == ["gray", "grei"]
    corrupted = corrupt(["the grey colour", "a gray color", "none here"] * 10, variants=variants, variant_rate=0.5)
    edits = [edit for new in corrupted for edit in new.edits]
    assert len(edits) == 20
    assert all(edit.kind == "variant" and edit.written in variants[edit.truth] for edit in edits)
    path.write_text("colour color\nalone\n")
    with pytest.raises(WildCTCError, match=r"variants\.txt:2: expected two or more different spellings"):
        read_variants(str(path), Normalizer())


def test_the_command_writes_a_manifest_whose_audio_is_found(tmp_path, capsys):
    make_corpus(tmp_path / "corpus", {"train": 20})
    out = tmp_path / "else" / "where" / "noisy.jsonl"
    manifest = str(tmp_path / "corpus" / "train.jsonl")
    assert main(["corrupt", manifest, "-o", str(out), "--characters", "0.1", "--seed", "4"]) == 0
    assert "20 utterances, " in capsys.readouterr().out
    truths = {row["id"]: row["text"] for row in read_rows(tmp_path / "corpus" / "train.jsonl")}
    rows = read_rows(out)
    assert any(row["edits"] for row in rows)
    for row, utterance in zip(rows, load_manifest(out), strict=True):
        assert row["truth"] == truths[row["id"]]
        assert utterance.audio.is_file()
        assert not row["audio"].startswith("/")
        assert utterance.speaker == "tone"
        assert utterance.duration > 0
    zipped = out.with_suffix(".jsonl.gz")
    assert main(["corrupt", manifest, "-o", str(zipped), "--words", "0.15"]) == 0
    assert len(load_manifest(zipped)) == 20


def test_fields_that_are_not_ours_are_kept(tmp_path):
    row = {"audio_filepath": "a.wav", "offset": 0.5, "duration": 1.0, "text": "some words", "language": "en", "age": 7}
    (tmp_path / "m.jsonl").write_text(json.dumps(row))
    assert main(["corrupt", str(tmp_path / "m.jsonl"), "--words", "0.5", "-o", str(tmp_path / "out.jsonl")]) == 0
    [new] = read_rows(tmp_path / "out.jsonl")
    assert (new["age"], new["language"], new["audio"], new["start"]) == (7, "en", "a.wav", 0.5)
    assert not new.keys() & {"audio_filepath", "offset"}


def test_a_corrupted_manifest_is_not_corrupted_again_since_its_truth_would_be_lost(tmp_path, capsys):
    rows = [{"id": "a", "audio": "a.wav", "text": "some words and more", "duration": 1.0}]
    (tmp_path / "m.jsonl").write_text(json.dumps(rows[0]))
    words = ["--characters", "0.1", "-o"]
    assert main(["corrupt", str(tmp_path / "m.jsonl"), *words, str(tmp_path / "once.jsonl")]) == 0
    assert main(["corrupt", str(tmp_path / "once.jsonl"), *words, str(tmp_path / "twice.jsonl")]) == 2
    assert "once.jsonl has errors on purpose already, and their truth would be lost" in capsys.readouterr().err
    assert not (tmp_path / "twice.jsonl").exists()


def test_what_is_read_is_never_written_over(tmp_path, capsys):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"id": "a", "audio": "a.wav", "text": "some words and more", "duration": 1.0}))
    before = path.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(path)
    for name in ("m.jsonl", "link.jsonl"):
        assert main(["corrupt", str(path), "--words", "0.5", "-o", str(tmp_path / name)]) == 2
        assert "it is the input, and would be overwritten" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_rate_that_comes_to_no_edit_is_said(tmp_path, capsys):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"id": "a", "audio": "a.wav", "text": "some words and more", "duration": 1.0}))
    words = ["corrupt", str(path), "-o", str(tmp_path / "o.jsonl"), "--words", "0.1", "--characters", "0.2"]
    assert main(words) == 0
    assert capsys.readouterr().err == "words 0.1 of 4 is less than half an edit: there will be none\n"


def test_texts_are_normalised_as_asked_before_they_are_corrupted(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"id": "a", "audio": "a.wav", "text": "Cafe\u0301,  Noir!", "duration": 1.0}))
    assert main(["corrupt", str(path), "-o", str(tmp_path / "o.jsonl"), "--words", "0.5", "--lower"]) == 0
    assert read_rows(tmp_path / "o.jsonl")[0]["truth"] == unicodedata.normalize("NFC", "café, noir!")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to corrupt: give --characters, --words or --variants"),
        (["--words", "0.1", "--word-kinds", "typo"], "--word-kinds: unknown kind 'typo'; known: substitution, "),
        (["--words", "0.1", "--variant-rate", "0.1"], "--variant-rate needs --variants"),
        (["--words", "7"], "words must be a share between 0 and 1, got 7"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(tmp_path, capsys, words, message):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"id": "a", "audio": "a.wav", "text": "some words", "duration": 1.0}))
    assert main(["corrupt", str(path), "-o", str(tmp_path / "o.jsonl"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o.jsonl").exists()
