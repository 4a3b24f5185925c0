"""Estimate how long runs take, from their sizes and a rate: given, measured on existing runs, or a default."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from wildctc.corpora.manifest import read_utterances
from wildctc.errors import WildCTCError
from wildctc.experiments.grid import Run
from wildctc.experiments.workspace import Site
from wildctc.terminal import table
from wildctc.training.config import load_recipe
from wildctc.training.run_folder import has_trunk, read_metrics
from wildctc.training.settings import Config

# Hours of speech trained on in an hour by a recipe; others are scaled by what their encoder has to compute.
# cpu: measured on one core beside other work. cuda: a guess, since nobody has measured the paper's recipes yet.
_DEFAULTS = {"cpu": ("iban-compare", 150.0, "measured"), "cuda": ("librispeech", 1000.0, "a guess")}


@dataclass(frozen=True)
class _RunSize:
    """The size of a run.

    Attributes:
        hours: Hours of training speech.
        copies: How often an epoch sees an utterance: at several speeds, and twice with CR-CTC.
        epochs: Epochs that the run trains itself.
        to_go: How many of these are not done.
        state: How far it has come, in a few words.
    """

    hours: float
    copies: int
    epochs: int
    to_go: int
    state: str

    @property
    def speech(self) -> float:
        return self.hours * self.copies * self.epochs

    @property
    def left(self) -> float:
        return self.hours * self.copies * self.to_go


@dataclass(frozen=True)
class _Rate:
    """A rate of training.

    Attributes:
        value: Hours of speech trained on in an hour.
        why: Where the rate comes from.
    """

    value: float
    why: str


def estimate(site: Site, runs: Sequence[Run], jobs: int, rate: float | None, shards: str | None) -> str:
    """Format the runs as a table, with the time that unfinished ones will take.

    Args:
        site: The experiment's folder.
        runs: The runs.
        jobs: How many runs are trained side by side.
        rate: Hours of speech trained on in an hour; None measures it on existing runs, or takes a default.
        shards: "i/n" adds a line for each of n machines.

    Returns:
        The text.

    Raises:
        WildCTCError: The rate is not positive.
    """
    hours = {run.task.place: _training_hours(site, run) for run in runs}
    count = int(shards.partition("/")[2]) if shards else 1
    parts = {f"shard {i}/{count}": site.experiment.shard(runs, f"{i}/{count}") for i in range(1, count + 1)}
    sizes = {
        run: _size_of(site, run, hours[run.task.place], {site.folder(other) for other in part})
        for part in parts.values()
        for run in part
    }
    found = _find_rate(site, sizes, rate)
    header = ["", "hours", "copies", "epochs", "hours of speech", "time", ""]
    rows = [
        [
            str(run),
            f"{s.hours:.2f}",
            str(s.copies),
            str(s.epochs),
            f"{s.speech:,.1f}",
            _clock(s.left / found.value),
            s.state,
        ]
        for run, s in ((run, sizes[run]) for run in runs)
    ]
    lines = [table(header, rows), "", f"{found.value:,.0f} hours of speech trained on in an hour: {found.why}"]
    for name, part in ({"all": list(runs)} | (parts if shards else {})).items():
        speech = sum(sizes[run].left for run in part)
        side = f", {_clock(speech / found.value / jobs)} with {jobs} side by side" if jobs > 1 else ""
        lines.append(
            f"{name}: {len(part)} runs, {speech:,.1f} hours of speech to go: {_clock(speech / found.value)}{side}"
        )
    return "\n".join([*lines, "Features, decoding and probing are not counted."])


def _training_hours(site: Site, run: Run) -> float:
    """The hours in the manifest; if there is none yet, the hours that the task declares."""
    config = site.config(run)
    path = site.data / run.task.data / config.data.train
    if not path.exists():
        return run.task.hours
    lengths = [u.duration for _, found in read_utterances(path) for u in found]
    return sum(length for length in lengths if length <= config.data.max_duration) / 3600


def _size_of(site: Site, run: Run, hours: float, beside: Collection[Path]) -> _RunSize:
    """beside: the folders of all runs of the same machine, with which this run may share epochs."""
    config, state, trunk = site.config(run), site.state(run), site.trunk(run)
    shared = config.training.ctc_epochs if trunk is not None and (trunk in beside or has_trunk(trunk)) else 0
    done = max(shared, len(read_metrics(site.folder(run))))
    to_go = 0 if state in ("done", "diverged", "trained") else config.training.epochs - done
    copies = len(config.data.speeds) * (2 if config.cr_ctc.weight else 1)
    return _RunSize(hours, copies, config.training.epochs - shared, max(0, to_go), state)


def _find_rate(site: Site, sizes: dict[Run, _RunSize], given: float | None) -> _Rate:
    if given is not None:
        if not given > 0:
            raise WildCTCError(f"--rate must be greater than 0, got {given:g}")
        return _Rate(given, "given")
    speech = seconds = 0.0
    for run, size in sizes.items():
        epochs = read_metrics(site.folder(run))
        speech += size.hours * size.copies * len(epochs)
        seconds += sum(epoch["seconds"] for epoch in epochs)
    if seconds > 0:
        return _Rate(speech / seconds * 3600, f"measured on {seconds / 3600:.1f} h of training in {site.out}")
    return _default_rate(site.config(next(iter(sizes))))


def _default_rate(config: Config) -> _Rate:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe, value, how = _DEFAULTS[device]
    scaled = value * _work(load_recipe(recipe)) / _work(config)
    return _Rate(scaled, f"{how} for {recipe} on {device}, scaled to this encoder; give your own with --rate")


def _work(config: Config) -> float:
    """Estimate what an encoder computes in a frame, up to a factor: feed-forward, attention, convolution.

    Args:
        config: The settings of a run.

    Returns:
        A number that is proportional to the work.
    """
    e = config.encoder
    return e.blocks * e.d_model * (4 * e.ff_dim + 7 * e.d_model)


def _clock(hours: float) -> str:
    """
    >>> _clock(0), _clock(0.51), _clock(30.2)
    ('0:00 h', '0:31 h', '30:12 h')
    """
    minutes = round(60 * hours)
    return f"{minutes // 60}:{minutes % 60:02d} h"
