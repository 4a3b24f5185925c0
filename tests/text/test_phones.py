"""Phones of a lexicon as units: encoding, words again, and a run from the command line."""

import json

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows

import wildctc
from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.recognizer.choices import choose_labels, choose_writings
from wildctc.text.alternatives import parse_text
from wildctc.text.lexicon import read_lexicon
from wildctc.text.normalisation import Normalizer
from wildctc.text.segmentation import make_graph
from wildctc.text.units import PhoneUnits, load_units

LEXICON = """;;; a comment
HELLO  HH AH0 L OW1
HELLO(2)  HH EH0 L OW1
to\tT UW
TWO T UW
a AH
"""


@pytest.fixture
def units(tmp_path):
    (tmp_path / "lexicon.txt").write_text(LEXICON)
    normalizer = Normalizer(lower=True)
    return PhoneUnits.train(["two two to"], normalizer, read_lexicon(tmp_path / "lexicon.txt", normalizer))


def test_a_text_is_the_first_pronunciation_of_each_word_and_becomes_the_text_again(units):
    ids = units.encode("Hello two")
    assert [units.tokens[i] for i in ids] == ["▁HH", "AH0", "L", "OW1", "▁T", "UW"]
    assert units.words(ids) == [0, 0, 0, 0, 1, 1]
    assert units.decode(ids) == "hello two"
    second = [units.tokens.index(p) for p in ("▁HH", "EH0", "L", "OW1")]
    assert units.decode(second) == "hello"


def test_of_words_that_sound_alike_the_most_frequent_is_written(units):
    assert units.decode(units.encode("to")) == "two"


def test_phones_of_no_word_are_shown_as_phones(units):
    assert units.decode([units.tokens.index("L"), units.tokens.index("▁T")]) == "L T"
    assert units.decode([]) == ""


def test_all_pronunciations_are_there_for_graphs_of_transcripts(units):
    hello, to = units.alternatives("hello to")
    assert [[units.tokens[i] for i in ids] for ids in hello] == [["▁HH", "AH0", "L", "OW1"], ["▁HH", "EH0", "L", "OW1"]]
    assert [*hello[0], *to[0]] == units.encode("hello to")


def test_words_without_a_pronunciation_are_named(units):
    assert units.missing("hello dear two") == ["dear"]
    with pytest.raises(WildCTCError, match="words without a pronunciation: 'dear'"):
        units.encode("dear")


def test_saved_units_are_the_same_when_loaded(units, tmp_path):
    units.save(tmp_path)
    loaded = load_units(tmp_path)
    assert loaded.fingerprint() == units.fingerprint()
    assert loaded.encode("hello two") == units.encode("hello two")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("word", "has no phones"),
        ("word 0.5 A B", "lexiconp"),
        ("word ▁A", "cannot be the name"),
        (";;; x", "no pronunc"),
    ],
)
def test_a_wrong_lexicon_is_refused(tmp_path, line, message):
    (tmp_path / "lexicon.txt").write_text(line + "\n")
    with pytest.raises(WildCTCError, match=message):
        read_lexicon(tmp_path / "lexicon.txt", Normalizer())


@pytest.mark.slow
def test_a_model_of_phones_trains_decodes_and_writes_words(tmp_path, capsys, one_thread):
    recipe = make_corpus(tmp_path)
    rows = [row for split in ("train", "dev", "test") for row in read_rows(tmp_path / f"{split}.jsonl")]
    words = {word for row in rows for word in row["text"].split()}
    lexicon = "".join(f"{word} {' '.join(letter.upper() for letter in word)}\n" for word in sorted(words))
    (tmp_path / "lexicon.txt").write_text(lexicon)
    run, phones = str(tmp_path / "run"), ["--data.units", "phones"]
    train = ["train", str(recipe), "--out", run, *phones, "--data.workers", "0", "--training.epochs", "7"]
    assert main(train) == 2
    assert "belong together" in capsys.readouterr().err
    assert main([*train, "--data.lexicon", str(tmp_path / "lexicon.txt"), "--criterion", "otc-w"]) == 0
    assert wildctc.load(run).units.kind == "phones"
    assert main(["decode", run, str(tmp_path / "test.jsonl"), "--workers", "0", "-o", str(tmp_path / "h.jsonl")]) == 0
    heard = {word for row in read_rows(tmp_path / "h.jsonl") for word in row["text"].split()}
    assert heard & words
    assert main(["align", run, str(tmp_path / "test.jsonl"), "--workers", "0"]) == 0
    assert main(["probe", run, str(tmp_path / "test.jsonl"), "-o", str(tmp_path / "p.jsonl")]) == 2
    assert "writes phones" in capsys.readouterr().err
    write_rows(tmp_path / "train.jsonl", [row | {"text": row["text"] + " zorg"} for row in rows[:5]])
    assert main([*train[:3], run + "2", *train[4:], "--data.lexicon", str(tmp_path / "lexicon.txt")]) == 2
    assert "words without a pronunciation: 'zorg'" in capsys.readouterr().err


def test_all_pronunciations_of_all_alternatives_are_paths_and_their_probabilities_add_up(units):
    graph = make_graph(parse_text("{hello two|a}"), units)
    assert [len(slot) for slot in graph.slots] == [3]  # two pronunciations of the phrase, one of the word
    heard = graph.slots[0][1]
    logits = torch.zeros(2 * len(heard), len(units.tokens))
    logits[torch.arange(0, len(logits), 2), list(heard)] = 9.0
    logits[1::2, 0] = 9.0
    [chosen] = choose_writings(units, [parse_text("{a|hello two}")], [logits])
    assert chosen.text == "hello two"
    assert sum(chosen.choices[0].probabilities) == pytest.approx(1.0, abs=1e-5)
    assert choose_labels(units, "hello two", logits) == list(heard) != units.encode("hello two")


@pytest.mark.slow
def test_every_pronunciation_of_a_word_is_trained_and_the_one_that_was_said_is_aligned(tmp_path, capsys, one_thread):
    recipe = make_corpus(tmp_path, {"train": 60, "dev": 10})
    rows = {split: read_rows(tmp_path / f"{split}.jsonl") for split in ("train", "dev")}
    words = {word for found in rows.values() for row in found for word in row["text"].split()}
    # The first pronunciation of each word is wrong; the second is what is heard.
    wrong = {word: [f"X{letter}" for letter in reversed(word)] for word in words}
    lines = [f"{word} {' '.join(wrong[word])}\n{word} {' '.join(word)}\n" for word in sorted(words)]
    (tmp_path / "lexicon.txt").write_text("".join(lines))
    run = tmp_path / "run"
    options = ["--data.units", "phones", "--data.lexicon", str(tmp_path / "lexicon.txt"), "--training.epochs", "8"]
    assert main(["train", str(recipe), "--out", str(run), "--data.workers", "0", "--criterion", "otc-w", *options]) == 0
    assert "transcripts with alternatives: 60 for training, 10 for validation" in (run / "log.txt").read_text()
    capsys.readouterr()
    assert main(["align", str(run), str(tmp_path / "dev.jsonl"), "--workers", "0", "--format", "json"]) == 0
    aligned = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in aligned] == [row["text"] for row in rows["dev"]]
    found = [word for row in aligned for word in row["words"]]
    said = [[token["text"].strip() for token in word["tokens"]] == list(word["text"]) for word in found]
    assert sum(said) > 0.8 * len(said)
