"""Every transcript graph can be drawn: all its arcs are there, inside the picture."""

import xml.etree.ElementTree as ET

import numpy as np
from support.graph_enumeration import draw_graph

from wildctc import TranscriptGraph, Wildcards
from wildctc.lattice.graph_drawing import draw_transcript_graph

SVG = "{http://www.w3.org/2000/svg}"


def classes(svg: str) -> list[str]:
    return [path.get("class", "") for path in ET.fromstring(svg).iter(f"{SVG}path")]


def test_each_arc_is_drawn_once():
    rng = np.random.default_rng(1)
    for _ in range(100):
        graph = draw_graph(rng, 5)
        drawn = classes(draw_transcript_graph(graph, "-<&\"'", Wildcards(-5.0, -1.0, -9.0), "a & b"))
        assert drawn.count("token") == drawn.count("bypass") == len(graph.arcs)
        assert drawn.count("word-bypass") == len(graph.words)


def test_a_long_graph_is_drawn_in_rows_of_bounded_width():
    graph = TranscriptGraph.from_slots([[[1, 2], [3]], [[2, 2, 1]]] * 20)
    svg = draw_transcript_graph(graph, "-abc", Wildcards(bypass=-5.0))
    assert classes(svg).count("token") == len(graph.arcs)
    root = ET.fromstring(svg)
    assert float(root.get("width", 0)) <= 1200 < float(root.get("height", 0))
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx", 0)) < float(root.get("width", 0))
        assert 0 < float(circle.get("cy", 0)) < float(root.get("height", 0))


def test_a_chain_and_an_empty_transcript():
    for graph in (TranscriptGraph.from_labels([1, 2], [0, 0]), TranscriptGraph.from_labels([])):
        assert classes(draw_transcript_graph(graph, "-ab")).count("token") == len(graph.arcs)
