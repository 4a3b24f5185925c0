"""Transcripts with alternatives: the grammar, files of variants, several transcripts, and their graph."""

import math
import random
from itertools import product

import pytest

from wildctc.errors import WildCTCError
from wildctc.lattice.transcripts import TranscriptGraph
from wildctc.text.alternatives import NOTHING, Writings, escape, every_word, grammar_text, normalise_text, parse_text
from wildctc.text.normalisation import Normalizer
from wildctc.text.reader import Reader
from wildctc.text.segmentation import make_graph
from wildctc.text.units import CharUnits, SentencePieceUnits
from wildctc.text.variants import Variants, read_variants

PLAIN = Normalizer()
STRICT = Normalizer(lower=True, strip_punctuation=True)


def all_texts(found):
    return [" ".join(w for words in path for w in words) for path in product(*(s.alternatives for s in found.slots))]


# ------------------------------------------------------------------------------------------------------------- grammar


@pytest.mark.parametrize(
    ("text", "writings"),
    [
        ("the {colour|color}", ["the colour", "the color"]),
        ("{uh|} yes", ["uh yes", "yes"]),
        ("i am {gonna|going to} go", ["i am gonna go", "i am going to go"]),
        ("colo{u|}r, please", ["colour, please", "color, please"]),
        ("{a|b}{c|d}", ["ac", "ad", "bc", "bd"]),
        ("a | b", ["a | b"]),
        (r"a \{b\} {c\|d|e\}}", ["a {b} c|d", "a {b} e}"]),
        ("{same|same} word", ["same word"]),
        ("  { a |  b  c }\t", ["a", "b c"]),
        (r"C:\dir {x|y}", [r"C:\dir x", r"C:\dir y"]),
        ("", [""]),
    ],
)
def test_a_transcript_has_the_writings_that_its_braces_say(text, writings):
    assert all_texts(parse_text(text)) == writings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the {colour|color is grey", "column 5: { is not closed"),
        ("the colour} is", "column 11: } without {; write"),
        ("a {b {c|d}}", "column 6: { inside the group of column 3"),
        ("a {} b", "column 3: nothing in the braces"),
        ("x{a|b}" + "{c|d}" * 10, "column 1: more than 1,000 writings of one word"),
    ],
)
def test_a_wrong_brace_is_named_with_its_column(text, message):
    with pytest.raises(WildCTCError) as caught:
        parse_text(text)
    assert str(caught.value).startswith(message)


def test_alternatives_are_normalised_one_by_one():
    assert normalise_text("The {Colour|COLOR}, {Uh|}!", STRICT) == "the {colour|color} {uh|}"
    assert normalise_text("{Hello|hello} There", STRICT) == "hello there"
    assert normalise_text("{well-known|famous} man", STRICT) == "{well known|famous} man"
    assert normalise_text("No Braces, here", STRICT) == STRICT("No Braces, here")


def test_what_is_written_is_read_again():
    rng = random.Random(0)
    pieces = ["a", "b c", "", "{", "}", "|", "d"]
    for _ in range(300):
        groups = [
            "{" + "|".join(escape(rng.choice(pieces)).replace("|", r"\|") for _ in range(rng.randint(2, 3))) + "}"
        ]
        text = " ".join([*groups, escape(rng.choice(pieces)), "e"])
        found = parse_text(text)
        assert parse_text(str(found)) == found
    assert Reader(PLAIN)(grammar_text("a {b}")) == "a {b}"


def test_backslashes_survive_what_is_written_and_read_again():
    rng = random.Random(1)
    read = Reader(PLAIN)
    for _ in range(2000):
        texts = ["".join(rng.choices("\\\\{|} ab", k=rng.randint(1, 7))) for _ in range(3)]
        found = read("", [escape(PLAIN(text)) for text in texts])
        assert read(grammar_text(found)) == found, texts
    assert read(grammar_text(read("", ["a\\", "b\\"]))) == parse_text("{a\\ |b\\ }")


# ------------------------------------------------------------------------------------------------------------ variants


def test_a_file_of_variants(tmp_path):
    path = tmp_path / "variants.txt"
    path.write_text("# spelling\ncolour color\n\ngonna = going to  # spoken\nuh =\n", encoding="utf-8")
    read = Reader(STRICT, read_variants(path).normalised(STRICT))
    assert str(read("The COLOR is gonna fade uh")) == "the {color|colour} is {gonna|going to} fade {uh|}"
    assert str(read("I am going to {grey|gray} it")) == "i am {going to|gonna} {grey|gray} it"
    assert str(read("{the colour|it} is")) == "{the colour|the color|it} is"
    assert read("nothing to see") == "nothing to see"
    assert str(read(str(read("The colour")))) == "the {colour|color}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("colour color\ncolor colur\n", ":2: 'color' is in .*:1 too"),
        ("colour\n", ":1: a line needs at least two variants"),
        ("a = b = a\n", ":1: 'a' is there twice"),
        ("=\n", ":1: 'nothing' is there twice"),
        ("a {b|c}\n", ":1: { has no meaning here"),
        ("# only a comment\n", "no variants in it"),
        ("a b\nc d\nb e\n", ":3: 'b' is in .*:1 too"),
    ],
)
def test_a_wrong_line_of_variants_is_named(tmp_path, content, message):
    path = tmp_path / "variants.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WildCTCError, match=message):
        read_variants(path)


def test_variants_are_normalised_as_transcripts_are(tmp_path):
    path = tmp_path / "variants.txt"
    path.write_text("Colour color COLOR\nA a\n", encoding="utf-8")
    assert read_variants(path).normalised(STRICT).groups == ((("colour",), ("color",)),)
    path.write_text("A b\na c\n", encoding="utf-8")
    with pytest.raises(WildCTCError, match=r":2: 'a' is in .*:1 too"):
        read_variants(path).normalised(STRICT)


# ------------------------------------------------------------------------------------------------- several transcripts


def test_several_transcripts_are_aligned_word_by_word():
    read = Reader(PLAIN)
    texts = ["the cat sat", "the hat sat", "cat sat down"]
    found = read("not used", texts)
    assert str(found) == "{the|} {cat|hat} sat {|down}"
    assert found.first == texts[0]
    assert set(texts) <= set(all_texts(found))


def test_the_first_writing_is_the_first_transcript_and_every_transcript_is_a_writing():
    rng = random.Random(1)
    read = Reader(PLAIN, Variants.of(["a", "b b"], ["c", "d"]))
    for _ in range(300):
        texts = [" ".join(rng.choices("abcde", k=rng.randint(1, 5))) for _ in range(rng.randint(2, 4))]
        found = read("", texts)
        if isinstance(found, str):
            assert set(texts) == {found}
        else:
            assert found.first == texts[0]
            assert set(texts) <= set(all_texts(found))


def test_shares_are_weights():
    found = Reader(PLAIN, shares=True)("", ["a b", "a b", "a c", "a"])
    weights = dict(zip(found.slots[1].alternatives, found.slots[1].weights, strict=True))
    assert weights == {("b",): math.log(2 / 4), ("c",): math.log(1 / 4), NOTHING: math.log(1 / 4)}
    assert found.slots[0].weights == (0.0,)
    assert all(w == 0 for slot in Reader(PLAIN)("", ["a b", "a c"]).slots for w in slot.weights)


def test_a_phrase_with_variants_counts_as_one_word_when_transcripts_are_aligned():
    found = Reader(PLAIN, Variants.of(["gonna", "going to"]))("", ["i am going to go", "i am gonna go"])
    assert str(found) == "i am {going to|gonna} go"


def test_alternatives_inside_one_of_several_transcripts_are_refused():
    with pytest.raises(WildCTCError, match="transcript 2 of 2 has alternatives in braces"):
        Reader(PLAIN)("", ["a b", "a {b|c}"])


# --------------------------------------------------------------------------------------------------------------- units


def labels_of_paths(graph: TranscriptGraph):
    def go(state):
        if graph.final[state] > -math.inf:
            yield ()
        for arc in graph.arcs:
            if arc.source == state:
                yield from ((arc.label, *rest) for rest in go(arc.target))

    return sorted(set(go(0)))


WORDS = ["lorem", "ipsum", "dolor", "sit", "amet", "going", "to", "gonna", "uh", "um", "hello"]
SENTENCES = [" ".join(random.Random(i).choices(WORDS, k=6)) for i in range(200)]


@pytest.fixture(scope="module", params=["characters", "pieces"])
def units(request):
    if request.param == "characters":
        return CharUnits.train(SENTENCES, PLAIN)
    return SentencePieceUnits.train(SENTENCES, PLAIN, 60)


@pytest.mark.parametrize(
    "text",
    [
        "{uh|} hello", "{uh|} {um|} hello {um|}", "hello {going to|gonna} sit", "{uh um|um|} {lorem|ipsum dolor}",
        "hello", "{hello|uh hello}", "lorem {|uh} ipsum",
    ],
)  # fmt: skip
def test_every_path_has_the_labels_that_its_text_has_alone(units, text):
    found = parse_text(text)
    expected = sorted({tuple(units.encode(one)) for one in all_texts(found)})
    assert labels_of_paths(make_graph(found, units)) == expected


def test_a_transcript_without_alternatives_is_the_chain_of_its_labels(units):
    labels = units.encode("lorem ipsum dolor")
    graph = make_graph(parse_text("lorem ipsum dolor"), units)
    chain = TranscriptGraph.from_labels(labels, units.words(labels))
    assert graph.is_chain
    assert [(a.source, a.target, a.label, a.word) for a in graph.arcs] == [
        (a.source, a.target, a.label, a.word) for a in chain.arcs
    ]
    assert [(w.source, w.target) for w in graph.words] == [(w.source, w.target) for w in chain.words]


def test_a_transcript_that_can_be_left_out_whole_is_refused(units):
    with pytest.raises(WildCTCError, match="all words can be left out"):
        make_graph(parse_text("{uh|} {um|}"), units)


def test_units_must_write_every_alternative():
    found = parse_text("the {colour|color} {uh|}")
    assert isinstance(found, Writings)
    assert every_word(found) == "the colour uh color"
