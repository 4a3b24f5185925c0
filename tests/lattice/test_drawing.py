"""`wildctc graph`: the arcs of the picture are those that the criterion has, whatever the text."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

from wildctc import CRITERIA, Criterion, Wildcards, word_ids
from wildctc.cli import main
from wildctc.lattice.drawing import draw_graph, shown
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits, SentencePieceUnits

SVG = "{http://www.w3.org/2000/svg}"
PIECES = ["▁he", "llo", "▁wor", "ld"]


def draw(text: str, criterion: str = "otc-tw") -> ElementTree.Element:
    tokens = list(text)
    words = word_ids(tokens, space=" ")
    return ElementTree.fromstring(draw_graph(tokens, words, Criterion(criterion).weights, criterion))


def arcs(svg: ElementTree.Element, kind: str) -> list[str]:
    return [path.get("d", "") for path in svg.iter(f"{SVG}path") if path.get("class") == kind]


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", CRITERIA)
def test_a_criterion_has_its_arcs_and_no_others(name):
    svg, settings = draw("ab cde f", name), Criterion(name).weights
    loops = {"token": 9, "word": 4, "end": 2}[settings.self_loop_at]
    assert len(arcs(svg, "token")) == 8
    assert len(arcs(svg, "bypass")) == (8 if settings.bypass is not None else 0)
    assert len(arcs(svg, "self-loop")) == (loops if settings.self_loop is not None else 0)
    assert len(arcs(svg, "word-bypass")) == (3 if settings.word_bypass is not None else 0)


def test_weights_are_those_of_the_epoch(tmp_path, capsys):
    output = tmp_path / "graph.svg"
    assert main(["graph", "some text", "--criterion", "otc-tw", "--epoch", "10", "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}: 9 tokens in 2 words, otc-tw, epoch 10\n"
    svg = ElementTree.parse(output).getroot()
    legend = " ".join(texts(svg))
    for weight in ("bypass, weight −2.52:", "self-loop, weight −0.504:", "word bypass, weight −9.42:"):
        assert weight in legend


def test_loops_of_word_criteria_are_at_the_ends_of_words_even_around_separators():
    tokens = list("ab cd")
    words = word_ids(tokens, space=" ", spaces="separator")
    wildcards = Wildcards(self_loop=-1.0, word_bypass=-1.0, self_loop_at="word")
    svg = ElementTree.fromstring(draw_graph(tokens, words, wildcards))
    assert len(arcs(svg, "self-loop")) == 4  # 0, 2, 3 and 5


@pytest.mark.parametrize(
    "text",
    [
        "a <b> & \"c\" 'd' ]]>",
        "नमस्ते दुनिया",
        "مرحبا بالعالم",
        "世界 こんにちは",
        "e\u0301 a\u200db",
        "a\x01b",
        "😀 x",
        "",
    ],
)
def test_any_text_gives_well_formed_svg_with_all_its_tokens(text):
    svg = draw(text)
    assert len(arcs(svg, "token")) == len(text)
    labels = texts(svg)
    assert all(shown(char) in labels for char in text)


def test_a_long_text_goes_over_rows_and_loses_nothing():
    text = "the quick brown fox jumps over the lazy dog and on it goes " * 5 + "x" * 60
    svg = draw(text)
    assert len(arcs(svg, "token")) == len(arcs(svg, "bypass")) == len(text)
    assert len(arcs(svg, "self-loop")) == len(text) + 1
    assert len(arcs(svg, "word-bypass")) == len(text.split())
    assert len(arcs(svg, "word-bypass-continued")) >= 3  # the last word is longer than a row
    assert float(svg.get("width", 0)) <= 1200
    ends = [[float(x) for x in re.findall(r"-?[\d.]+", path)] for path in arcs(svg, "token")]
    assert all(0 < x < float(svg.get("width", 0)) for path in ends for x in (path[0], path[-1]))
    rows = sorted({path[1] for path in ends})
    assert len(rows) > 10
    assert all(b - a > 150 for a, b in pairwise(rows))  # none over another
    states = [text for text in texts(svg) if text.isdigit()]
    assert set(map(int, states)) == set(range(len(text) + 1))


def test_rows_break_between_words():
    svg = draw("abcde " * 20)
    firsts = [c for c in svg.iter(f"{SVG}circle") if c.get("stroke-dasharray")]  # a row's first state, drawn again
    assert firsts
    pale = [int(t.text or 0) for t in svg.iter(f"{SVG}text") if t.get("fill") == "#9ca3af"]
    assert len(pale) == len(firsts)
    assert all(state % 6 == 5 for state in pale)


def test_pieces_and_the_units_of_a_run_can_be_drawn(tmp_path, capsys):
    units = SentencePieceUnits.train(["hello world help hold"] * 5, Normalizer(), 16)
    (tmp_path / "m.model").write_bytes(units.model)
    output = str(tmp_path / "g.svg")
    assert main(["graph", "hello world", "--spm", str(tmp_path / "m.model"), "-o", output]) == 0
    pieces = [units.tokens[i] for i in units.encode("hello world")]
    assert set(pieces) <= set(texts(ElementTree.parse(output).getroot()))
    run = tmp_path / "run"
    CharUnits.train(["hello world"], Normalizer(lower=True)).save(run / "model")
    (run / "model/model.safetensors").touch()
    (run / "config.yaml").write_text("criterion: otc-t\n")
    (run / "metrics.jsonl").write_text('{"epoch": 1, "entropy": 0.5}\n{"epoch": 2, "entropy": 0.4}\n')
    assert main(["graph", "HELLO", "--run", str(run), "-o", output, "--overwrite"]) == 0
    assert "5 tokens in 1 word, otc-t, epoch 2" in capsys.readouterr().out
    assert main(["graph", "hi", "--run", str(run), "-o", output]) == 2
    assert "characters outside the units: i" in capsys.readouterr().err


def test_a_picture_that_is_there_is_not_replaced_unasked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.svg").write_text("precious")
    assert main(["graph", "ab"]) == 2
    assert "graph.svg exists: give another name with -o, or --overwrite" in capsys.readouterr().err
    assert (tmp_path / "graph.svg").read_text() == "precious"
    assert main(["graph", "ab", "-o", "other.svg"]) == main(["graph", "ab", "--overwrite"]) == 0
    assert (tmp_path / "graph.svg").read_text() == (tmp_path / "other.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--criterion", "otc"], "no criterion is called 'otc'; there are ctc, otc-w"),
        (["--criterion", "otc-tw-h", "--epoch", "5"], "name a run that has them, or take epoch 1"),
        (["--epoch", "-1"], "there is no epoch -1"),
        (["--spm", "nowhere.model"], "nowhere.model: not a SentencePiece model"),
        (["--run", "nowhere"], "nowhere"),
        (["--run", "a", "--spm", "b"], "one of them says what the units are"),
        (["-o", "."], "cannot write .: is a directory"),
        (["-o", "g.png"], "g.png: the picture is an SVG: give -o a name that ends in .svg"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["graph", "ab", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", " "])
def test_a_text_without_a_word_is_refused(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["graph", text]) == 2
    assert capsys.readouterr().err == "wildctc: TEXT is empty\n"
    assert not list(tmp_path.iterdir())


def test_the_picture_in_the_documentation_is_drawn_by_this_code():
    title = "“hello world” in four pieces, otc-tw, epoch 1"
    svg = draw_graph(PIECES, word_ids(PIECES), Criterion("otc-tw").wildcards, title)
    assert (Path(__file__).parents[2] / "docs/graph.svg").read_text(encoding="utf-8") == svg


def test_arcs_of_weight_minus_infinity_are_not_drawn():
    absent = Wildcards(bypass=float("-inf"), self_loop=float("-inf"), word_bypass=float("-inf"))
    assert draw_graph(["a", "b"], [0, 0], absent) == draw_graph(["a", "b"], [0, 0], Wildcards())


def test_words_that_the_loss_would_refuse_are_refused():
    with pytest.raises(ValueError, match="words must hold the word of each of the 2 tokens, got 1"):
        draw_graph(["a", "b"], [0], Wildcards())
    with pytest.raises(ValueError, match="words are not contiguous"):
        draw_graph(["a", "b", "c"], [0, 1, 0], Wildcards())


def test_alternatives_are_drawn(tmp_path, capsys):
    output = tmp_path / "graph.svg"
    assert main(["graph", "the {colour|color} {uh|}", "-o", str(output)]) == 0
    assert "19 tokens in 3 places, 2 of them with alternatives" in capsys.readouterr().out
    assert output.read_text(encoding="utf-8").count('class="token"') == 19
    assert main(["graph", "{|}", "-o", str(output), "--overwrite"]) == 2
    assert "TEXT has no word in any of its writings" in capsys.readouterr().err
    assert main(["graph", "the {colour|color", "-o", str(output), "--overwrite"]) == 2
    assert "column 5: { is not closed" in capsys.readouterr().err
