"""Tables of criteria on corpora that the paper does not have: each against plain CTC, and how it trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wildctc.experiments.differences import Difference, Paired, Spread, paired_differences
from wildctc.experiments.results import RunResult
from wildctc.experiments.systems import CONTROL, System, control_of, describe
from wildctc.experiments.table_formats import NONE, Cell, Table
from wildctc.scoring.bootstrap import RESAMPLES
from wildctc.training.reports import WEIGHTS


@dataclass(frozen=True)
class AgainstControl:
    """A system and its difference to plain CTC.

    Attributes:
        system: The system.
        paired: The difference; None for plain CTC itself, or if there is no plain CTC with the same seeds.
    """

    system: System
    paired: Paired | None


def compare_systems(systems: Sequence[System], resamples: int = RESAMPLES) -> list[AgainstControl]:
    """Compare each system with its control. Systems with the same control use the same resamples.

    Args:
        systems: The systems, plain CTC included.
        resamples: Bootstrap resamples.

    Returns:
        A comparison for each system, in the same order.
    """
    controls = [control_of(system, systems) for system in systems]
    found: dict[int, Paired] = {}
    for control in systems:
        own = {i: s.tests for i, s in enumerate(systems) if controls[i] is control and s is not control}
        found |= paired_differences(own, control.tests, resamples=resamples)
    return [AgainstControl(system, found.get(i)) for i, system in enumerate(systems)]


# --------------------------------------------------------------------------------------------------------------- tables


def error_table(compared: Sequence[AgainstControl], title: str) -> Table:
    """Make the table of test WER and CER, and of their differences to plain CTC.

    Args:
        compared: The systems.
        title: The table's title.

    Returns:
        The table. If there are several tasks, each is a part of it.
    """
    header = ["", "seeds", "WER", "Δ WER", "95% interval", "CER", "Δ CER", "95% interval"]
    return Table(
        title, header, _by_task(compared, _error_row, title), [*_interval_notes(compared), *_run_notes(compared)]
    )


def _error_row(one: AgainstControl) -> list[Cell]:
    system = one.system
    wers, cers = ([run.errors(of).rate for run in system.finished.values()] for of in ("words", "characters"))
    wer, cer = one.paired or (None, None)
    return [
        Cell(system.name),
        Cell(str(len(system.finished)), "†" * bool(system.daggers) + "‡" * bool(system.diverged)),
        *(Cell(_percent(Spread.of(wers))), *_difference_cells(wer)),
        *(Cell(_percent(Spread.of(cers))), *_difference_cells(cer)),
    ]


def _difference_cells(difference: Difference | None) -> list[Cell]:
    if difference is None:
        return [Cell(""), Cell("")]
    value, low, high = (
        f"{100 * x:+.2f}".replace("-", "−") for x in (difference.value, difference.low, difference.high)
    )
    return [Cell(value, bold=difference.certain), Cell(f"{low} … {high}")]


def training_table(compared: Sequence[AgainstControl], title: str) -> Table:
    """Make the table of the kinds of errors, the weights in the last epoch, and the model's certainty.

    Args:
        compared: The systems.
        title: The table's title.

    Returns:
        The table.
    """
    header = ["", "sub", "ins", "del", "dev WER", "entropy", "bypass", "self-loop", "word", "train %", "dev %", "AUC"]
    notes = ["means over seeds; sub, ins, del: errors in 100 words of the test"]
    notes += [
        "dev WER: greedy, of the best epoch; entropy: of held-out speech after the last epoch, as all that follows"
    ]
    notes += ["bypass, self-loop, word: log-weights of these arcs and of the word bypass"]
    notes += ["train %, dev %: mean posterior of the bypass arc in transcripts, probed with weight 0"]
    notes += ["AUC: how well the probe finds errors that were put into transcripts on purpose"]
    return Table(title, header, _by_task(compared, _training_row, title), notes)


def _training_row(one: AgainstControl) -> list[Cell]:
    runs = list(one.system.finished.values())
    kinds = [
        Spread.of([100 * getattr(e, kind) / max(e.reference, 1) for e in (run.errors() for run in runs)])
        for kind in ("substitutions", "insertions", "deletions")
    ]
    histories = [run.metrics for run in runs if run.metrics]
    best = Spread.of([min(m["valid_wer"] for m in history) for history in histories])
    last = {name: Spread.of([_number(history[-1].get(name)) for history in histories]) for name in _LAST}
    auc = Spread.of([_auc(run) for run in runs])
    return [
        Cell(one.system.name),
        *(Cell(_plain(kind.mean, ".2f")) for kind in kinds),
        Cell(_plain(100 * best.mean, ".2f")),
        Cell(_plain(last["entropy"].mean, ".3f")),
        *(Cell(_plain(last[name].mean, ".3f" if abs(last[name].mean) < 1 else ".2f")) for name in WEIGHTS),
        *(Cell(_plain(100 * last[name].mean, ".2f")) for name in _POSTERIORS),
        Cell(_plain(auc.mean, ".3f")),
    ]


_POSTERIORS = ("bypass_posterior_train", "bypass_posterior_dev")
_LAST = ("entropy", *WEIGHTS, *_POSTERIORS)


def length_tables(compared: Sequence[AgainstControl], resamples: int = RESAMPLES) -> list[Table]:
    """Compare criteria by the number of epochs.

    Args:
        compared: The systems; their setting "epochs" is the length.
        resamples: Bootstrap resamples.

    Returns:
        WER by criterion and length with the difference to plain CTC of that length; then, if both were run, the
        difference between entropy-indexed and epoch-indexed criteria.
    """
    lengths = sorted({float(one.system.setting[_LENGTH]) for one in compared if _LENGTH in one.system.setting})
    found = {(one.system.criterion, float(one.system.setting.get(_LENGTH, 0))): one for one in compared}
    criteria = list(dict.fromkeys(one.system.criterion for one in compared))
    rows: list[list[Cell] | str] = []
    for criterion in criteria:
        of = [found.get((criterion, length)) for length in lengths]
        pairs = [_error_row(one)[2:5] if one else [Cell(NONE), Cell(""), Cell("")] for one in of]
        rows.append([Cell(criterion), *(cell for cells in pairs for cell in cells)])
    header = ["", *(x for n in lengths for x in (f"WER, {n:g} epochs", "Δ WER", "95% interval"))]
    tables = [Table("By length: WER (%)", header, rows, _interval_notes(compared))]
    rows = []
    for epoch, entropy in (("otc-t", "otc-t-h"), ("otc-tw", "otc-tw-h")):
        both = [(found.get((entropy, n)), found.get((epoch, n))) for n in lengths]
        direct = [_direct(h, e, resamples) for h, e in both]
        cells = [cell for pair in direct for cell in _difference_cells(pair.wer if pair else None)]
        rows += [[Cell(f"{entropy} − {epoch}"), *cells]] if any(h and e for h, e in both) else []
    header = ["", *(x for n in lengths for x in (f"Δ WER, {n:g} epochs", "95% interval"))]
    return [*tables, Table("By length: entropy- minus epoch-indexed, WER in points", header, rows)] if rows else tables


_LEVELS = {
    "token arcs alone": ("otc-t", CONTROL),
    "token arcs beside word arcs": ("otc-tw", "otc-w-tuned"),
    "word arcs alone": ("otc-w-tuned", CONTROL),
    "word arcs beside token arcs": ("otc-tw", "otc-t"),
}


def level_tables(compared: Sequence[AgainstControl], resamples: int = RESAMPLES) -> list[Table]:
    """Compare what each level of wildcards does, without the other level and beside it.

    Args:
        compared: The systems.
        resamples: Bootstrap resamples.

    Returns:
        One table with a part for each task; none if no such pair of criteria was run.
    """
    notes = ["the self-loops of these criteria differ too"]
    return _pair_tables(compared, "What each level of wildcards adds", _LEVELS, notes, resamples)


_WITH_CR = "(with CR-CTC)"
_ADDED = {
    "wildcards alone": ("otc-tw", CONTROL),
    "wildcards beside CR-CTC": (f"otc-tw {_WITH_CR}", f"ctc {_WITH_CR}"),
    "CR-CTC alone": (f"ctc {_WITH_CR}", CONTROL),
    "CR-CTC beside wildcards": (f"otc-tw {_WITH_CR}", "otc-tw"),
    "both": (f"otc-tw {_WITH_CR}", CONTROL),
    "CR-CTC at the same cost": (f"ctc {_WITH_CR}", "ctc (epochs 28)"),
}


def addition_tables(compared: Sequence[AgainstControl], resamples: int = RESAMPLES) -> list[Table]:
    """Compare what wildcards and CR-CTC do alone, and beside each other.

    Args:
        compared: The systems.
        resamples: Bootstrap resamples.

    Returns:
        One table with a part for each task; none if no such pair of systems was run.
    """
    return _pair_tables(compared, "Do wildcards and CR-CTC add up?", _ADDED, [], resamples)


def _pair_tables(
    compared: Sequence[AgainstControl], title: str, levels: Mapping[str, tuple[str, str]], notes: list[str], draws: int
) -> list[Table]:
    """Compare named pairs of systems; a task needs a pair without plain CTC."""
    rows: list[list[Cell] | str] = []
    for task in dict.fromkeys(one.system.task for one in compared):
        found = {one.system.name: one for one in compared if one.system.task == task}
        pairs = {name: _direct(found.get(a), found.get(b), draws) for name, (a, b) in levels.items()}
        if any(pair is not None and levels[name][1] != CONTROL for name, pair in pairs.items()):
            rows += [task] if len({one.system.task for one in compared}) > 1 else []
            rows += [_level_row(name, *levels[name], pair) for name, pair in pairs.items() if pair is not None]
    header = ["", "", "seeds", "Δ WER", "95% interval", "Δ CER", "95% interval"]
    notes = ["; ".join(["in points, paired over the seeds that both have", *notes])]
    return [Table(title, header, rows, notes)] if rows else []


def _level_row(name: str, criterion: str, other: str, pair: Paired) -> list[Cell]:
    differences = [*_difference_cells(pair.wer), *_difference_cells(pair.cer)]
    return [Cell(name), Cell(f"{criterion} − {other}"), Cell(str(len(pair.wer.by_seed))), *differences]


def _direct(one: AgainstControl | None, other: AgainstControl | None, resamples: int) -> Paired | None:
    if one is None or other is None or not (one.system.tests and other.system.tests):
        return None
    return paired_differences({"": one.system.tests}, other.system.tests, resamples=resamples).get("")


_LENGTH = "epochs"  # the setting of `iban-length`


def _by_task(compared: Sequence[AgainstControl], row: Any, title: str) -> list[list[Cell] | str]:
    """Put a heading before each task, unless there is only one task and the title names it."""
    tasks = dict.fromkeys(one.system.task for one in compared)
    rows: list[list[Cell] | str] = []
    for task in tasks:
        rows += [task] * (len(tasks) > 1 or not title.startswith(f"{task}:"))
        rows += [row(one) for one in compared if one.system.task == task]
    return rows


# ---------------------------------------------------------------------------------------------------------------- notes


def _interval_notes(compared: Sequence[AgainstControl]) -> list[str]:
    found = [one.paired.wer for one in compared if one.paired]
    notes = ["±: standard deviation over seeds"] * any(len(one.system.finished) > 1 for one in compared)
    if not found:
        return [*notes, f"no differences: they need {CONTROL} and another criterion with a seed in common"]
    notes.append(f"Δ: minus {CONTROL} with the same seeds, in points; bold or *: the interval leaves out 0")
    speakers = max(difference.speakers for difference in found)
    drawn = f"{RESAMPLES:,} draws of seeds, of the test's speakers ({speakers:,}) and of the utterances of each"
    notes.append(f"interval: paired bootstrap, {drawn}")
    if len({(one.system.task, *one.system.finished) for one in compared}) > len({one.system.task for one in compared}):
        notes.append("not all have the same seeds: compare them by Δ, not by WER")
    if any(len(difference.by_seed) == 1 for difference in found):
        notes.append("of one seed, the interval leaves out how much results vary from seed to seed")
    if any(difference.speakers == 1 for difference in found):
        notes.append("one speaker: the interval leaves out how much results vary from speaker to speaker")
    return notes


def _run_notes(compared: Sequence[AgainstControl]) -> list[str]:
    daggers = [(one.system.name, weight) for one in compared for weight in one.system.daggers]
    notes = [
        f"† {name}: diverged, and was run again with {describe({'word bypass': weight})}" for name, weight in daggers
    ]
    for one in compared:
        for seed, run in one.system.runs.items():
            if run.diverged is not None:
                notes.append(f"‡ {one.system.name}, seed {seed}: no model: {run.diverged}")
    return notes


# ------------------------------------------------------------------------------------------------------------- numbers


def _percent(spread: Spread) -> str:
    """
    >>> _percent(Spread.of([0.41, 0.42, 0.43])), _percent(Spread.of([0.41])), _percent(Spread.of([]))
    ('42.00 ± 1.00', '41.00', '–')
    """
    if not spread.seeds:
        return NONE
    return f"{100 * spread.mean:.2f}" + (f" ± {100 * spread.deviation:.2f}" if spread.seeds > 1 else "")


def _plain(value: float, form: str) -> str:
    return NONE if math.isnan(value) else format(value, form).replace("-", "−")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _auc(run: RunResult) -> float:
    """The AUC of the probe on known errors; NaN if it was not measured."""
    return _number(run.audit.get("auc", [None])[0])


def records(compared: Sequence[AgainstControl]) -> list[dict[str, Any]]:
    """Convert the comparison to records for CSV.

    Args:
        compared: The systems.

    Returns:
        A record for each run, with the differences of its system.
    """
    lines = []
    for one in compared:
        for seed, run in one.system.runs.items():
            line: dict[str, Any] = {"task": run.task, "criterion": run.criterion, "setting": _setting_of(one.system)}
            line |= {"seed": seed, "diverged": run.diverged, "dagger": run.dagger}
            for name, of in (("wer", "words"), ("cer", "characters")):
                errors = run.errors(of)
                line |= {name: errors.rate if run.tests else None}
                kinds = ("substitutions", "insertions", "deletions", "reference")
                line |= {f"{name}_{kind}": getattr(errors, kind) if run.tests else None for kind in kinds}
                line |= _difference_record(name, getattr(one.paired, name) if one.paired else None, seed)
            line |= {name: run.metrics[-1].get(name) if run.metrics else None for name in _LAST}
            lines.append(line | {"audit_auc": _auc(run)})
    return lines


def _difference_record(name: str, difference: Difference | None, seed: int) -> dict[str, Any]:
    if difference is None:
        return {f"{name}_delta{end}": None for end in ("", "_mean", "_low", "_high")}
    ends = {"_mean": difference.value, "_low": difference.low, "_high": difference.high}
    return {f"{name}_delta": difference.by_seed.get(seed)} | {f"{name}_delta{end}": x for end, x in ends.items()}


def _setting_of(system: System) -> str:
    return "; ".join(f"{name}={value}" for name, value in system.setting.items())
