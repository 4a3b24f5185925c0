"""Units write what they read, and characters that they cannot write are named."""

import json
import pickle
import sys

import pytest

from wildctc.errors import MissingExtra, WildCTCError
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import BLANK, CharUnits, SentencePieceUnits, load_units, name_characters
from wildctc.text.words import word_ids

PLAIN = Normalizer()
STRIP = Normalizer(lower=True, strip_punctuation=True)
SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "don't low lower lowest",
    "मैं हिन्दी बोलता हूँ",
    "أنا أتكلم العربية",
] * 3


def both_units():
    return [CharUnits.train(SENTENCES, STRIP), SentencePieceUnits.train(SENTENCES, STRIP, 70)]


@pytest.mark.parametrize("units", both_units(), ids=lambda u: u.kind)
@pytest.mark.parametrize("text", SENTENCES[:4])
def test_decoding_gives_back_the_normalised_text(units, text):
    ids = units.encode(f"  {text.upper()}! ")
    assert units.decode(ids) == STRIP(text)
    assert 0 not in ids
    assert units.tokens[0] == BLANK
    assert "★" not in "".join(units.tokens)


@pytest.mark.parametrize("units", both_units(), ids=lambda u: u.kind)
def test_every_label_belongs_to_the_word_it_was_written_in(units):
    text = STRIP("don't low lower")
    words = units.words(units.encode(text))
    spelled: dict[int, str] = {}
    for id, word in zip(units.encode(text), words, strict=True):
        spelled[word] = spelled.get(word, "") + units.tokens[id]
    assert [spelled[w].replace("▁", "").strip() for w in sorted(spelled)] == text.split()
    assert units.words([]) == []


@pytest.mark.parametrize("units", both_units(), ids=lambda u: u.kind)
def test_characters_outside_the_units_are_named_not_dropped(units):
    assert units.missing("foж ж\u0950") == ["ж", "\u0950"]
    assert units.missing("FOX!") == []
    with pytest.raises(WildCTCError, match=r"ж \(U\+0436\)"):
        units.encode("foж")


@pytest.mark.parametrize("units", both_units(), ids=lambda u: u.kind)
def test_units_survive_saving_and_pickling(units, tmp_path):
    units.save(tmp_path / "units")
    for again in (load_units(tmp_path / "units"), pickle.loads(pickle.dumps(units))):
        assert again.tokens == units.tokens
        assert again.normalizer == STRIP
        assert again.fingerprint() == units.fingerprint()
        assert again.encode("हिन्दी don't") == units.encode("हिन्दी don't")


def test_training_units_twice_gives_the_same_fingerprint_and_other_units_another():
    first, second = both_units(), both_units()
    assert [u.fingerprint() for u in first] == [u.fingerprint() for u in second]
    others = [
        CharUnits.train(SENTENCES, PLAIN),
        CharUnits.train(["x", *SENTENCES], STRIP),
        CharUnits.train(["ж", *SENTENCES], STRIP),
    ]
    assert len({u.fingerprint() for u in [*first, *others]}) == 4  # "x" adds no character


def test_model_output_with_stray_spaces_and_blanks_decodes_to_clean_text():
    units = CharUnits.train(["ab"], PLAIN)
    assert units.tokens == [BLANK, " ", "a", "b"]
    assert units.decode([1, 2, 0, 1, 1, 3, 1]) == "a b"
    assert units.words([1, 2, 1, 1, 3, 1]) == word_ids(list(" a  b "), space=" ")


def test_sentencepiece_has_exactly_the_requested_number_of_units_or_reports_why_not():
    assert len(SentencePieceUnits.train(SENTENCES, STRIP, 70)) == 70
    with pytest.raises(WildCTCError, match=r"5000 SentencePiece units: .*too high"):
        SentencePieceUnits.train(SENTENCES, STRIP, 5000)
    with pytest.raises(WildCTCError, match=r"5 SentencePiece units: .*smaller"):
        SentencePieceUnits.train(SENTENCES, STRIP, 5)


def test_empty_texts_give_no_units():
    for train in (CharUnits.train, SentencePieceUnits.train):
        with pytest.raises(WildCTCError, match="every transcript is empty"):
            train(["", " ... "], STRIP)


def test_a_damaged_units_folder_or_one_of_other_files_is_reported_in_one_line(tmp_path):
    with pytest.raises(WildCTCError, match="no units in"):
        load_units(tmp_path)
    chars, pieces = both_units()
    pieces.save(tmp_path)
    SentencePieceUnits.train(SENTENCES[:1], STRIP, 35).save(tmp_path / "other")
    (tmp_path / "spm.model").write_bytes((tmp_path / "other" / "spm.model").read_bytes())
    with pytest.raises(WildCTCError, match="do not belong together"):
        load_units(tmp_path)
    (tmp_path / "spm.model").write_bytes(b"garbage")
    with pytest.raises(WildCTCError, match="not a units file"):
        load_units(tmp_path)
    chars.save(tmp_path)
    stored = json.loads((tmp_path / "units.json").read_text(encoding="utf-8"))
    (tmp_path / "units.json").write_text(json.dumps({**stored, "tokens": stored["tokens"][1:]}))
    with pytest.raises(WildCTCError, match="begin with <blank>"):
        load_units(tmp_path)
    (tmp_path / "units.json").write_text("{}")
    with pytest.raises(WildCTCError, match="not a units file"):
        load_units(tmp_path)


def test_invisible_characters_are_named_by_their_code():
    assert name_characters(["a", "\u0301", " ", "\u200b"]) == "a (U+0061), U+0301, U+0020, U+200B"


def test_without_sentencepiece_character_units_still_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    assert CharUnits.train(["ab"], PLAIN).encode("ba") == [3, 2]
    with pytest.raises(MissingExtra, match=r"sentencepiece is not installed; .* pip install '\.\[train\]'"):
        SentencePieceUnits.train(["ab"], PLAIN)
