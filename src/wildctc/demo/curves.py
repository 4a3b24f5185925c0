"""Draw the learning curves of several runs in one picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wildctc.errors import MissingExtra
from wildctc.files import write_atomically
from wildctc.training.run_folder import read_metrics


def draw_runs(runs: Mapping[str, Path], output: Path) -> None:
    """Draw validation WER, wildcard weights and bypass posteriors by epoch.

    Args:
        runs: The name of each run → its folder.
        output: The SVG file to write. The same runs give the same file.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, PercentFormatter
    except ImportError:
        raise MissingExtra("matplotlib", "train") from None
    with rc_context({"svg.hashsalt": "wildctc"}):  # the same runs give the same file
        figure = Figure(figsize=(12, 3.6))
        figure.subplots_adjust(0.055, 0.13, 0.985, 0.9, wspace=0.2)
        errors, weights, doubts = figure.subplots(1, 3)
        for number, (name, run) in enumerate(runs.items()):
            history = read_metrics(run)
            epochs = [m["epoch"] for m in history]
            style: dict[str, Any] = {"marker": ".", "color": f"C{number}"}
            errors.plot(epochs, [m["valid_wer"] for m in history], label=name, **style)
            doubts.plot(epochs, [m["bypass_posterior_train"] for m in history], label=name, **style)
            for line, arc in zip("-:", ("bypass", "word_bypass"), strict=True):
                if history[-1].get(arc) is not None:
                    label = f"{name}: {arc.replace('_', ' ')}"
                    weights.plot(epochs, [m[arc] for m in history], linestyle=line, label=label, **style)
        errors.set_title("word errors on held-out speech (greedy)")
        errors.yaxis.set_major_formatter(PercentFormatter(1.0))
        weights.set_title("price of a wildcard (log-weight)")
        doubts.set_title("letters bypassed in training transcripts")
        doubts.yaxis.set_major_formatter(PercentFormatter(1.0))
        for axes in (errors, weights, doubts):
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")
        for axes in (errors, doubts):
            axes.set_ylim(bottom=0)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    write_atomically(output, buffer.getvalue())
