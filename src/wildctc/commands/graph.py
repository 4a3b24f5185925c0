"""`wildctc graph`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError

if TYPE_CHECKING:
    from wildctc.lattice.arcs import Wildcards
    from wildctc.text.units import Units


def register(add: Add) -> None:
    p = add("graph", run, "Draw the transcript graph that a criterion sums over, as in the paper's Figure 1.")
    p.add_argument("text", metavar="TEXT", help="a transcript, which may have alternatives: 'the {colour|color}'")
    p.add_argument("--criterion", metavar="NAME", help="default: otc-tw, or with --run the run's own")
    p.add_argument("--epoch", type=int, metavar="E", help="whose weights to show (default: 1, or the run's last)")
    p.add_argument("--run", metavar="RUN", dest="run_folder", help="a run, whose units and entropies to take")
    p.add_argument("--spm", metavar="MODEL", help="a SentencePiece model, whose pieces to take (default: characters)")
    p.add_argument("-o", "--output", metavar="FILE", default="graph.svg", help="default graph.svg")
    p.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


def run(options: argparse.Namespace) -> None:
    from wildctc.files import check_writable, write_text
    from wildctc.training.criterion_at import criterion_at

    if options.run_folder and options.spm:
        raise WildCTCError("--run and --spm: one of them says what the units are")
    if not options.text.strip():
        raise WildCTCError("TEXT is empty")
    if Path(options.output).suffix.lower() not in ("", ".svg"):
        raise WildCTCError(f"{options.output}: the picture is an SVG: give -o a name that ends in .svg")
    name = options.criterion or (None if options.run_folder else "otc-tw")
    criterion = criterion_at(name, options.epoch, options.run_folder)
    title = f"{criterion.name}, epoch {criterion.epoch}" if criterion.settings.schedule != "none" else criterion.name
    svg, size = _draw(options, criterion.weights, title)
    check_writable(Path(options.output))
    if Path(options.output).exists() and not options.overwrite:
        raise WildCTCError(f"{options.output} exists: give another name with -o, or --overwrite to replace it")
    write_text(Path(options.output), svg)
    print(f"{options.output}: {size}, {title}")


def _draw(options: argparse.Namespace, wildcards: Wildcards, title: str) -> tuple[str, str]:
    """The picture, and how large the graph is."""
    from wildctc.lattice.drawing import draw_graph
    from wildctc.lattice.graph_drawing import draw_transcript_graph
    from wildctc.text.alternatives import every_word, parse_text
    from wildctc.text.normalisation import Normalizer
    from wildctc.text.segmentation import make_graph
    from wildctc.text.units import name_characters

    plain = parse_text(options.text, Normalizer())
    if not every_word(plain).strip():
        raise WildCTCError("TEXT has no word in any of its writings")
    units = _units(options, every_word(plain))
    found = parse_text(options.text, units.normalizer)
    if found.plain:
        labels = units.encode(found.first)
        words = units.words(labels)
        count = len({word for word in words if word >= 0})
        svg = draw_graph([units.tokens[label] for label in labels], words, wildcards, title)
        return svg, f"{len(labels)} tokens in {count} word{'s' * (count != 1)}"
    if outside := units.missing(every_word(found)):
        raise WildCTCError(f"{units.outside}: {name_characters(outside)}")
    graph = make_graph(found, units)
    several = sum(len(slot.alternatives) > 1 for slot in found.slots)
    size = f"{len(graph.arcs)} tokens in {len(found.slots)} places, {several} of them with alternatives"
    return draw_transcript_graph(graph, units.tokens, wildcards, title), size


def _units(options: argparse.Namespace, text: str) -> Units:
    from wildctc.recognizer.model import find_model
    from wildctc.text.normalisation import Normalizer
    from wildctc.text.units import CharUnits, SentencePieceUnits, load_units

    if options.run_folder:
        return load_units(find_model(Path(options.run_folder)))
    if not options.spm:
        return CharUnits.train([text], Normalizer())
    try:
        return SentencePieceUnits(Path(options.spm).read_bytes(), Normalizer())
    except (OSError, RuntimeError) as error:
        raise WildCTCError(f"{options.spm}: not a SentencePiece model ({error})") from None
