"""References with alternatives: errors are those of the nearest of all writings, which brute force lists one by one."""

import json
import random
import time
from itertools import product

import pytest

from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.scoring.comparison import compare
from wildctc.scoring.error_rates import cer, levenshtein, score, wer
from wildctc.scoring.hypotheses import Decoded
from wildctc.scoring.nearest import nearest_writing
from wildctc.text.alternatives import parse_text
from wildctc.text.variants import Variants


def draw_slot(rng: random.Random) -> str:
    words = ["a", "b", "ab", "b a", "", "a b b", "abc"]
    if rng.random() < 0.5:
        return rng.choice("abc")
    return "{" + "|".join(rng.sample(words, rng.randint(2, 4))) + "}"


def every_text(found):
    return [[w for words in path for w in words] for path in product(*(slot.alternatives for slot in found.slots))]


def test_the_nearest_path_has_as_few_errors_as_the_nearest_of_all_writings():
    rng, distance = random.Random(0), levenshtein().distance
    for _ in range(2000):
        found = parse_text(" ".join(draw_slot(rng) for _ in range(rng.randint(0, 5))))
        hypothesis = rng.choices(["a", "b", "c", "ab"], k=rng.randint(0, 6))
        least = min(distance(words, hypothesis) for words in every_text(found))
        chosen = nearest_writing(found, hypothesis, distance)
        assert distance(found.choose(chosen).split(), hypothesis) == least
        errors = wer([found], [" ".join(hypothesis)])
        assert errors.total == least
        assert errors.reference == len(found.first.split())


def test_a_variant_in_every_place_can_be_chosen_and_not_only_a_whole_reference():
    text = "the {colour|color} is {grey|gray} {uh|} {going to|gonna} fade"
    assert wer([parse_text(text)], ["the color is grey gonna fade"]).total == 0
    assert cer([parse_text(text)], ["the color is grey gonna fade"]).total == 0
    assert wer([parse_text(text)], ["the color is green gonna fade"]).substitutions == 1


def test_of_equally_near_writings_the_one_with_similar_letters_counts():
    [found] = score([Decoded("u", "colr", ("{colour|color}",))]).utterances
    assert (found.reference, found.words.total, found.characters.total) == ("color", 1, 1)
    [found] = score([Decoded("u", "xyz", ("{abc|def}",))]).utterances
    assert found.reference == "abc"


def test_the_words_of_the_first_writing_are_the_denominator_for_every_system():
    references = {"u": ["{gonna|going to} go"]}
    for text in ("gonna go", "going to go", "x"):
        assert score([Decoded("u", text)], references).words.reference == 2


def test_variants_count_for_references_only_as_words_and_phrases():
    variants = Variants.of(["colour", "color"], ["gonna", "going to"])
    items = [Decoded("u", "color gonna", ("colour going to",)), Decoded("v", "sky", ("sky",))]
    assert score(items).words.total == 3
    found = score(items, variants=variants)
    assert (found.words.total, found.with_alternatives, found.variant_chosen) == (0, 1, 1)
    assert (
        "with alternatives: 1 of 2 references; another writing than the first was nearest in 1 of them (100.0%)"
        in str(found)
    )
    assert json.loads(found.to_json())["variant_chosen"] == 1
    assert "with alternatives" not in str(score([items[1]]))


def test_several_references_and_alternatives_go_together():
    assert score([Decoded("u", "a c", ("a b", "{a|x} {c|d}"))]).words.total == 0


def test_systems_are_compared_against_the_same_alternatives():
    one, two = ([Decoded("u", text, ("the {colour|color}",))] for text in ("the color", "the colr"))
    found = compare({"one": one, "two": two}, resamples=10)
    assert [s.words.total for s in found.systems] == [0, 1]
    assert "another writing than the first: one 100.0%, two 100.0%" in str(found)


def test_score_and_compare_take_variants(tmp_path, capsys):
    (tmp_path / "v.txt").write_text("colour color\n")
    rows = [{"id": "u", "text": "the color", "reference": "the colour"}]
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--variants", str(tmp_path / "v.txt")]
    assert main(["score", str(tmp_path / "a.jsonl"), *words]) == 0
    assert "0.00%" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), *words]) == 0
    assert "with alternatives: 1 of 1 references" in capsys.readouterr().out


def test_a_wrong_reference_is_named_with_file_line_utterance_and_column(tmp_path, capsys):
    (tmp_path / "hyp.jsonl").write_text(json.dumps({"id": "u", "text": "a", "reference": "a {b|c"}) + "\n")
    assert main(["score", str(tmp_path / "hyp.jsonl")]) == 2
    assert "hyp.jsonl:1: the reference of utterance u, column 3: { is not closed" in capsys.readouterr().err
    with pytest.raises(WildCTCError, match="the reference of utterance u, column 3"):
        score([Decoded("u", "a", ("a }",))])


@pytest.mark.slow
def test_a_million_words_are_scored_in_a_minute():
    """Timed on 1,000 of 50,000 utterances of 20 words; a fifth of the words has a variant, a tenth is wrong."""
    rng = random.Random(0)
    vocabulary = [f"word{i}" for i in range(500)]
    variants = Variants.of(*((f"word{i}", f"variant{i}") for i in range(100)))
    said = [rng.choices(vocabulary, k=20) for _ in range(1000)]
    items = [
        Decoded(
            str(i), " ".join(rng.choice(vocabulary) if rng.random() < 0.1 else w for w in words), (" ".join(words),)
        )
        for i, words in enumerate(said)
    ]
    began = time.process_time()
    plain = score(items)
    middle = time.process_time()
    found = score(items, variants=variants)
    spent = time.process_time() - middle
    print(f"plain {50 * (middle - began):.1f} s, with variants {50 * spent:.1f} s for a million words")
    assert found.words.total <= plain.words.total
    assert 50 * spent < 60
