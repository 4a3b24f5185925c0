"""Write the files that people look at: metrics.jsonl, curves.svg, TensorBoard events and the model card.

All are written from the list of finished epochs in the last checkpoint. A run that was killed while it
wrote them writes them again when it resumes: no epoch is missing or twice.
"""

from __future__ import annotations

import io
import json
import math
import time
from pathlib import Path
from typing import Any

from wildctc.errors import MissingExtra
from wildctc.files import make_folder, write_atomically, write_text, writing
from wildctc.training.config import to_yaml
from wildctc.training.objective import PARTS
from wildctc.training.run_folder import METRICS, Metrics
from wildctc.training.settings import Config
from wildctc.training.wandb_sink import WeightsAndBiases

WEIGHTS = ("bypass", "self_loop", "word_bypass")


class Reports:
    """Writes a run's metrics, curves and TensorBoard events after each epoch.

    Args:
        run: The run's folder.
        history: The metrics of the finished epochs.
        sink: Gets the metrics of each epoch too.
    """

    def __init__(self, run: Path, history: list[Metrics], sink: WeightsAndBiases | None = None) -> None:
        self.run, self.drawn, self.sink = run, -math.inf, sink
        self.events = _event_writer(run / "tensorboard")
        for metrics in history:
            self._add_events(metrics)
        self.write(history)

    def write(self, history: list[Metrics]) -> None:
        """Write metrics.jsonl and curves.svg. The picture, which takes a second, is written at most twice a minute.

        Args:
            history: The metrics of all finished epochs.
        """
        write_text(self.run / METRICS, "".join(json.dumps(m) + "\n" for m in history))
        if history and time.monotonic() - self.drawn > 30:
            self.draw(history)

    def draw(self, history: list[Metrics]) -> None:
        """Write curves.svg.

        Args:
            history: The metrics of all finished epochs.
        """
        write_atomically(self.run / "curves.svg", draw_curves(history))
        self.drawn = time.monotonic()

    def add(self, history: list[Metrics]) -> None:
        """Report a finished epoch.

        Args:
            history: The metrics of all finished epochs; the last one is new.
        """
        self._add_events(history[-1])
        self.write(history)

    def close(self, history: list[Metrics]) -> None:
        """Write the final picture and close the TensorBoard events.

        Args:
            history: The metrics of all finished epochs.
        """
        self.draw(history)
        self.events.close()
        if self.sink:
            self.sink.close()

    def _add_events(self, metrics: Metrics) -> None:
        with writing(self.run / "tensorboard"):
            for name, value in metrics.items():
                if name != "epoch" and value is not None:
                    self.events.add_scalar(name, value, metrics["epoch"])
            self.events.flush()
        if self.sink:
            self.sink.add(metrics)


def draw_curves(history: list[Metrics]) -> bytes:
    """Draw loss, error rates, weights and entropy by epoch.

    Args:
        history: The metrics of all finished epochs.

    Returns:
        SVG. The same numbers give the same file.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, PercentFormatter
    except ImportError:
        raise MissingExtra("matplotlib", "train") from None
    own_loss = any(m["valid_loss"] != m["valid_ctc_loss"] for m in history)  # plain CTC has one line, not two
    rates = ("valid_wer", "valid_cer", "valid_deletions")
    noise = [name for name in history[-1] if name.endswith("_rate_percent")]
    panels = {
        "loss": ("train_loss", *PARTS, "valid_loss", *(("valid_ctc_loss",) if own_loss else ())),
        "validation error rates (greedy)": rates,
        **({"noise rates, percent": tuple(noise)} if noise else {"wildcard weights": (*WEIGHTS, "star")}),
        "entropy, bypass posterior": ("entropy", "bypass_posterior_train", "bypass_posterior_dev"),
    }
    with rc_context({"svg.hashsalt": "wildctc"}):  # the same curves give the same file
        figure = Figure(figsize=(10, 7))
        figure.subplots_adjust(0.07, 0.07, 0.97, 0.95, hspace=0.3)
        for axes, (title, names) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
            axes.set_title(title)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
            for name in names:
                points = [(m["epoch"], m[name]) for m in history if m.get(name) is not None]  # older runs lack some
                if points:
                    axes.plot(*zip(*points, strict=True), marker=".", label=name.replace("_", " "))
            if names == rates:
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
                axes.set_ylim(bottom=0)
            if axes.lines:
                axes.legend(fontsize="small")
            else:
                axes.set_axis_off()
                axes.text(0.5, 0.5, "none: plain CTC", ha="center", va="center", transform=axes.transAxes)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def model_card(
    config: Config, final: Metrics, history: list[Metrics], epochs: list[int], hours: float, ends: list[int]
) -> str:
    """Describe a trained model in Markdown.

    Args:
        config: The settings of the run.
        final: `wer`, `cer` and `ctc_loss` of the model on held-out speech.
        history: The metrics of all epochs.
        epochs: The epochs whose weights were averaged.
        hours: Hours of training speech.
        ends: The earlier lengths of a run that was extended.

    Returns:
        The Markdown.
    """
    e, units = config.encoder, config.data.units
    last = history[-1]
    weights = ", ".join(f"{n} {last[n]:.3g}" for n in WEIGHTS if last[n] is not None) or "none"
    chosen = ", ".join(map(str, sorted(epochs)))
    speeds, minutes = ", ".join(map(str, config.data.speeds)), sum(m["seconds"] for m in history) / 60
    longer = f"; extended after {', '.join(map(str, ends))}" if ends else ""
    entropy = "none" if last["entropy"] is None else f"{last['entropy']:.4f}"
    return f"""# Speech recogniser trained with WildCTC

- Criterion: `{config.criterion}`{_added(config)}
- Wildcard weights in the last epoch: {weights}; held-out predictive entropy: {entropy}
- Features: `{config.features.name}`; encoder: {e.kind}, {e.blocks} × {e.d_model}; units: {units}
- Trained on {hours:.2f} h of speech (speeds: {speeds}) for {len(history)} epochs ({minutes:.0f} min){longer}
- Weights: the average of epochs {chosen}, the best by validation {config.training.select_by}
- Held-out speech, greedy: WER {final["wer"]:.2%}, CER {final["cer"]:.2%}, CTC loss {final["ctc_loss"]:.3f}

`config.json` says how the model is built, `units.json` what it writes, `model.safetensors` holds the weights and the
statistics of the features. Decode with `wildctc decode THIS_FOLDER MANIFEST -o hyp.jsonl`.

Settings:

```yaml
{to_yaml(config)}```
"""


def _added(config: Config) -> str:
    """What is added to the criterion's loss."""
    layers = config.inter_ctc.layers or []
    added = {
        f"CR-CTC {config.cr_ctc.weight:g}": config.cr_ctc.weight,
        f"InterCTC {config.inter_ctc.weight:g} after block {', '.join(map(str, layers))}": layers,
        f"label smoothing {config.label_smoothing.weight:g}": config.label_smoothing.weight,
    }
    return "".join(f" + {name}" for name, there in added.items() if there)


def _event_writer(folder: Path) -> Any:
    """A TensorBoard writer in an empty folder: what earlier sessions wrote is written again from the checkpoint."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("tensorboard", "train") from None
    make_folder(folder)
    with writing(folder):
        for old in folder.glob("events.*"):
            old.unlink()
        return SummaryWriter(str(folder))
