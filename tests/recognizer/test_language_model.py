"""A language model, a score for each word and hotwords: against sums over every text, and numbers by hand."""

import itertools
import math

import pytest
import torch
from support.tones import make_corpus, read_rows

from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.recognizer.decoding import Hypothesis, beam_search
from wildctc.recognizer.language_model import LanguageModel, Rescorer
from wildctc.recognizer.tuning import tune
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

# Log10. P(a|<s>) has a bigram; all others back off.
ARPA = """\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
0\t<s>\t-0.3
-0.7\t</s>
-0.5\ta\t-0.2
-0.9\tab\t-0.1

\\2-grams:
-0.1\t<s> a
-0.4\ta ab

\\end\\
"""


class Letters:
    """Label 1 is the space."""

    def decode(self, ids):
        return " ".join("".join("_ ab"[i] for i in ids).split())


@pytest.fixture
def lm(tmp_path):
    (tmp_path / "lm.arpa").write_text(ARPA)
    return LanguageModel(tmp_path / "lm.arpa")


def by_hand(text):
    """ln P of a text by the rule of backing off, from the numbers above."""
    one = {"<unk>": -1.0, "</s>": -0.7, "a": -0.5, "ab": -0.9}
    back, two = {"<s>": -0.3, "a": -0.2, "ab": -0.1}, {("<s>", "a"): -0.1, ("a", "ab"): -0.4}
    words = ["<s>", *(w if w in one else "<unk>" for w in text.split()), "</s>"]
    pairs = itertools.pairwise(words)
    return math.log(10) * sum(two.get((v, w), back.get(v, 0.0) + one[w]) for v, w in pairs)


@pytest.mark.parametrize("text", ["", "a", "a ab", "ab a", "b", "a b ab"])
def test_the_probability_of_a_text_is_that_of_the_arpa_file(lm, text):
    assert lm.score(text) == pytest.approx(by_hand(text), abs=1e-5)


@pytest.mark.parametrize("seed", range(15))
def test_a_wide_beam_finds_the_best_text_of_all_with_language_model_and_hotwords(lm, seed):
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
    log_probs = logits.double().log_softmax(-1).tolist()
    sums = {}
    for path in itertools.product(range(4), repeat=5):
        text = Letters().decode([label for label, _ in itertools.groupby(path) if label])
        sums[text] = sums.get(text, 0.0) + math.exp(sum(f[i] for f, i in zip(log_probs, path, strict=True)))
    expected = {
        text: math.log(p) + 0.7 * by_hand(text) + 1.1 * len(text.split()) + 2.0 * text.split().count("b")
        for text, p in sums.items()
    }
    rescorer = Rescorer(lm, lm_weight=0.7, word_score=1.1, hotwords=("b",), boost=2.0)
    found = rescorer(beam_search(logits, Letters(), beam=5000))
    assert {h.text for h in found} == set(expected)
    assert all(h.score == pytest.approx(expected[h.text], abs=1e-4) for h in found)
    assert found[0].text == max(expected, key=expected.get)


def test_a_hotword_is_a_whole_word_or_phrase():
    rescorer = Rescorer(hotwords=("new york", "york", "c.t"), boost=1.0)
    counts = {"new york": 1, "york new york": 2, "yorkshire new yorker": 0, "cat c.t": 1, "": 0}
    assert {text: rescorer.bonus(text) for text in counts} == counts


def test_hotwords_and_lexicon_are_written_as_the_model_writes(caplog):
    units = CharUnits.train(["new york"], Normalizer(lower=True, strip_punctuation=True))
    given = Rescorer(hotwords=("New  York!", "new york", "Zürich"), boost=1.0, lexicon=frozenset({"New", "York."}))
    found = given.written_by(units)
    assert (found.hotwords, found.lexicon) == (("new york",), {"new", "york"})
    assert (
        "1 of 2 hotwords have no effect: the model cannot write them, such as 'zürich' (characters outside the units: "
        in caplog.text
    )
    assert found.bonus("new york") == 1.0


def test_a_lexicon_makes_other_words_improbable_and_none_impossible():
    rescorer = Rescorer(lexicon=frozenset({"new", "york"}), outside=-4.0)
    counts = {"new york": 0, "new yorck": -4, "nu yorck": -8, "": 0}
    assert {text: rescorer.bonus(text) for text in counts} == counts
    heard = [Hypothesis([1], "nu york", -1.0), Hypothesis([2], "new york", -3.0), Hypothesis([3], "nu yorck", -0.5)]
    assert [h.text for h in rescorer(heard)] == ["new york", "nu york", "nu yorck"]
    assert rescorer.settings()["lexicon"] == ["new", "york"]


def test_tuning_finds_the_boost_of_hotwords_with_and_without_a_language_model(lm):
    heard = [Hypothesis([3], "b", -1.0), Hypothesis([2], "zz", -3.5)]
    found = tune([("zz", heard)], None, ("zz",))
    assert (found.lm_weight, found.word_score, found.boost, found.wer) == (0.0, 0.0, 3.0, 0.0)
    assert tune([("zz", heard)], lm, ("zz",)).wer == 0
    assert tune([("b", heard)], lm, ("zz",)).boost == 0


def test_tuning_finds_the_weight_that_makes_no_errors(lm):
    # Sound prefers "b" by half a nat; the language model knows "a" and not "b".
    beams = [("a", [Hypothesis([3], "b", -1.0), Hypothesis([2], "a", -1.5)])]
    found = tune(beams, lm)
    assert (found.without, found.wer, found.oracle) == (1.0, 0.0, 0.0)
    assert found.lm_weight > 0
    assert found.word_score == 0
    with pytest.raises(WildCTCError, match="nothing to tune on"):
        tune([("", beams[0][1])], lm)


@pytest.mark.parametrize(
    ("content", "message"), [("", "not an n-gram"), ("\\data\\\n\\1-grams:\n-1 a\n", "cannot read")]
)
def test_a_file_that_is_no_language_model_is_refused(tmp_path, content, message):
    (tmp_path / "lm.arpa").write_text(content)
    with pytest.raises(WildCTCError, match=message):
        LanguageModel(tmp_path / "lm.arpa")
    with pytest.raises(WildCTCError, match="cannot read the language model"):
        LanguageModel(tmp_path / "none.arpa")


@pytest.mark.slow
def test_decode_and_tune_take_a_language_model_hotwords_and_nbest(tmp_path, capsys):
    torch.set_num_threads(1)
    recipe = make_corpus(tmp_path)
    run, test = str(tmp_path / "run"), str(tmp_path / "test.jsonl")
    assert main(["train", str(recipe), "--out", run, "--training.epochs", "3", "--data.workers", "0"]) == 0
    (tmp_path / "lm.arpa").write_text(ARPA)
    (tmp_path / "hot.txt").write_text("fff  fff\n\n")
    common = ["--lm", str(tmp_path / "lm.arpa"), "--workers", "0"]
    capsys.readouterr()
    assert main(["tune", run, str(tmp_path / "dev.jsonl"), *common, "--beam", "5"]) == 0
    assert "--lm-weight" in capsys.readouterr().out
    hot = ["--hotwords", str(tmp_path / "hot.txt"), "--workers", "0"]
    assert main(["tune", run, str(tmp_path / "dev.jsonl"), *hot, "--beam", "5"]) == 0
    assert f"--hotwords {tmp_path / 'hot.txt'} --boost" in capsys.readouterr().out
    assert main(["tune", run, str(tmp_path / "dev.jsonl")]) == 2
    assert "give --lm or --hotwords" in capsys.readouterr().err
    output = tmp_path / "hyp.jsonl"
    words = ["decode", run, test, "-o", str(output), "--hotwords", str(tmp_path / "hot.txt"), "--nbest", "3", *common]
    assert main(words) == 0
    for row in read_rows(output):
        scores = [h["score"] for h in row["nbest"]]
        assert 1 <= len(scores) <= 3
        assert scores == sorted(scores, reverse=True)
        assert row["nbest"][0] == {"text": row["text"], "score": row["score"]}
    [heard, *_] = read_rows(output)
    capsys.readouterr()
    wave = str(tmp_path / f"{heard['id']}.wav")
    hot = ["--lm", str(tmp_path / "lm.arpa"), "--hotwords", str(tmp_path / "hot.txt")]
    assert main(["transcribe", run, wave, *hot]) == 0
    assert capsys.readouterr().out == heard["text"] + "\n"
    assert main([*words, "--beam", "1"]) == 2
    assert "--beam 1 has one text" in capsys.readouterr().err
