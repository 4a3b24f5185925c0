"""`wildctc graph`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add
from wildctc.errors import WildCTCError


def register(add: Add) -> None:
    p = add("graph", run, "Draw the transcript graph that a criterion sums over, as in the paper's Figure 1.")
    p.add_argument("text", metavar="TEXT")
    p.add_argument("--criterion", metavar="NAME", help="default: otc-tw, or with --run the run's own")
    p.add_argument("--epoch", type=int, metavar="E", help="whose weights to show (default: 1, or the run's last)")
    p.add_argument("--run", metavar="RUN", dest="run_folder", help="a run, whose units and entropies to take")
    p.add_argument("--spm", metavar="MODEL", help="a SentencePiece model, whose pieces to take (default: characters)")
    p.add_argument("-o", "--output", metavar="FILE", default="graph.svg", help="default graph.svg")
    p.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


def run(options: argparse.Namespace) -> None:
    from wildctc.files import check_writable, write_text
    from wildctc.lattice.drawing import draw_graph
    from wildctc.training.criterion_at import criterion_at

    if options.run_folder and options.spm:
        raise WildCTCError("--run and --spm: one of them says what the units are")
    if not options.text.strip():
        raise WildCTCError("TEXT is empty")
    if Path(options.output).suffix.lower() not in ("", ".svg"):
        raise WildCTCError(f"{options.output}: the picture is an SVG: give -o a name that ends in .svg")
    name = options.criterion or (None if options.run_folder else "otc-tw")
    criterion = criterion_at(name, options.epoch, options.run_folder)
    tokens, words = _tokens(options)
    title = f"{criterion.name}, epoch {criterion.epoch}" if criterion.settings.schedule != "none" else criterion.name
    check_writable(Path(options.output))
    if Path(options.output).exists() and not options.overwrite:
        raise WildCTCError(f"{options.output} exists: give another name with -o, or --overwrite to replace it")
    write_text(Path(options.output), draw_graph(tokens, words, criterion.weights, title))
    count = len({word for word in words if word >= 0})
    print(f"{options.output}: {len(tokens)} tokens in {count} word{'s' * (count != 1)}, {title}")


def _tokens(options: argparse.Namespace) -> tuple[list[str], list[int]]:
    """The tokens of the text, and the word of each."""
    from wildctc.recognizer.model import find_model
    from wildctc.text.normalisation import Normalizer
    from wildctc.text.units import CharUnits, SentencePieceUnits, load_units

    if options.run_folder:
        units = load_units(find_model(Path(options.run_folder)))
    elif options.spm:
        try:
            units = SentencePieceUnits(Path(options.spm).read_bytes(), Normalizer())
        except (OSError, RuntimeError) as error:
            raise WildCTCError(f"{options.spm}: not a SentencePiece model ({error})") from None
    else:
        units = CharUnits.train([options.text], Normalizer())
    labels = units.encode(options.text)
    return [units.tokens[label] for label in labels], units.words(labels)
