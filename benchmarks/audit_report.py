"""What `audit.py` found, as a table for the terminal, Markdown, JSON and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wildctc.corruption.detection import FLAGGED, Detection, ScoredUnits, measure_detection, roc
from wildctc.corruption.known_errors import as_list
from wildctc.files import write_text

SETTINGS = {  # setting → (model, what it probes)
    "test": [("all", "test")],
    "self": [("all", "train")],
    "cross": [("a", "train-b"), ("b", "train-a")],
}
TITLES = {"test": "held-out speakers", "self": "training set, its own model", "cross": "training set, cross-trained"}
SCORES = ("probe", "greedy", "forced", "random")


class Case(NamedTuple):
    """One criterion in one setting."""

    criterion: str
    setting: str
    cer: float  # of the greedy transcripts, against the clean ones
    utterances: int
    characters: ScoredUnits
    gaps: ScoredUnits
    kinds: np.ndarray  # of each character: "", "substitution" or "insertion"
    room: np.ndarray  # of each utterance: frames of logits for a character


Row = tuple[str, ...]
Result = tuple[Case, str, ScoredUnits, dict[str, Detection]]


def write_report(out: Path, cases: list[Case], settings: dict[str, Any]) -> None:
    """Print the table, and write OUT/audit.{txt,md,json,svg}."""
    results: list[Result] = []
    for case in cases:
        for what, units in (("characters", case.characters), ("gaps", case.gaps)):
            found = measure_detection(units, resamples=settings["resamples"], seed=settings["seed"])
            results.append((case, what, units, found))
    rows = [row for result in results for row in table_rows(*result)]
    about, parts = describe(settings, cases), part_rows(cases)
    text = f"{about}\n\n{aligned(HEADER, rows, 4)}\n\n{aligned(PARTS_HEADER, parts, 1)}\n"
    print(text)
    write_text(out / "audit.txt", text)
    write_text(out / "audit.md", f"{about}\n\n{markdown(HEADER, rows)}\n\n{markdown(PARTS_HEADER, parts)}\n")
    content = {"settings": settings, "results": [as_json(*result) for result in results]}
    write_text(out / "audit.json", json.dumps(content, indent=1) + "\n")
    draw(cases, out / "audit.svg")


HEADER = ("setting", "criterion", "CER", "wrong", "score", "AUC", "behind the probe", f"precision at {FLAGGED:.0%}")


PARTS_HEADER = (
    "setting", "criterion", "AUC of the probe: substituted", "inserted", "deleted, by frames for a character",
)  # fmt: skip


def table_rows(case: Case, what: str, units: ScoredUnits, found: dict[str, Detection]) -> list[Row]:
    kind = "substituted, inserted" if what == "characters" else "deleted"
    wrong = f"{int(units.wrong.sum()):,} {kind} ({units.wrong.mean():.2%} of {what})"
    first = (TITLES[case.setting], case.criterion, f"{case.cer:.1%}", wrong)
    return [
        (*first, name, str(f.auc), "" if name == "probe" else str(f.behind), str(f.precision))
        for name, f in ((name, found[name]) for name in SCORES)
    ]


def describe(settings: dict[str, Any], cases: list[Case]) -> str:
    counts = ", ".join(f"{n:,} utterances {setting}" for setting, n in {c.setting: c.utterances for c in cases}.items())
    hours = f"{settings['hours']:g} h of training speech, " if settings["hours"] else ""
    return (
        f"{settings['rate']:.0%} of characters corrupted; recipe {settings['recipe']}, {hours}"
        f"{settings['epochs']} epochs, seed {settings['seed']}; {counts}. "
        f"95% intervals by {settings['resamples']:,} resamples of utterances. "
        f"Where fewer than {FLAGGED:.0%} are wrong, no score can have a higher precision than their share of that."
    )


def aligned(header: Row, rows: list[Row], repeating: int) -> str:
    """A table for the terminal; of the first columns, what repeats the row above is left blank."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(header, widths, strict=True)).rstrip()]
    before: Row = ("",) * len(header)
    for row in rows:
        if row[:repeating] != before[:repeating]:
            lines.append("")
        shown = [cell if i >= repeating or row[: i + 1] != before[: i + 1] else "" for i, cell in enumerate(row)]
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True)).rstrip())
        before = row
    return "\n".join(lines)


def markdown(header: Row, rows: list[Row]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ("---",) * len(header), *rows])


def as_json(case: Case, what: str, units: ScoredUnits, found: dict[str, Detection]) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": case.setting, "criterion": case.criterion, "cer": round(case.cer, 5)}
    row |= {"units": what, "count": len(units.wrong), "wrong": int(units.wrong.sum())}
    row["scores"] = {
        name: {"auc": as_list(f.auc), "behind": as_list(f.behind), "precision": as_list(f.precision)}
        for name, f in found.items()
    }
    parts = kinds_apart(case) if what == "characters" else by_room(case)
    return row | {"probe_auc": {name: None if np.isnan(x) else round(x, 5) for name, x in parts.items()}}


def kinds_apart(case: Case) -> dict[str, float]:
    """AUC of the probe for one kind of error against all correct characters."""
    return {
        kind: probe_auc(case.characters, (case.kinds == "") | (case.kinds == kind))
        for kind in ("substitution", "insertion")
    }


def by_room(case: Case) -> dict[str, float]:
    """AUC of the probe for deleted characters, by quarters of the utterances: how many frames a character has.

    Where a text has nearly as many characters as its audio has frames, none is left for a sound that is not written.
    """
    edges = np.quantile(case.room, [0, 0.25, 0.5, 0.75, 1])
    quarter = np.clip(np.searchsorted(edges, case.room, side="right") - 1, 0, 3)[case.gaps.utterance]
    return {f"{edges[i]:.2f}–{edges[i + 1]:.2f}": probe_auc(case.gaps, quarter == i) for i in range(4)}


def probe_auc(units: ScoredUnits, chosen: np.ndarray) -> float:
    part = ScoredUnits(units.wrong[chosen], units.utterance[chosen], {"probe": units.scores["probe"][chosen]})
    return measure_detection(part, resamples=0)["probe"].auc.value


def part_rows(cases: list[Case]) -> list[Row]:
    rows = []
    for case in cases:
        kinds = [f"{value:.3f}" for value in kinds_apart(case).values()]
        rooms = ",  ".join(f"{room}: {value:.3f}" for room, value in by_room(case).items())
        rows.append((TITLES[case.setting], case.criterion, *kinds, rooms))
    return rows


def draw(cases: list[Case], path: Path) -> None:
    """ROC curves: a row for characters and one for gaps, a column for each setting; x is logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams |= {"svg.hashsalt": "wildctc", "font.size": 9}
    criteria = list(dict.fromkeys(case.criterion for case in cases))
    colours = dict(zip(SCORES, ("#0b6e4f", "#d1495b", "#edae49", "#8d99ae"), strict=True))
    styles = dict(zip(criteria, ("-", "--", ":", "-.") * len(criteria), strict=False))
    figure, axes = plt.subplots(2, len(SETTINGS), figsize=(10, 6.4), sharex=True, sharey=True, layout="constrained")
    for case in cases:
        for row, units in enumerate((case.characters, case.gaps)):
            axis = axes[row][list(SETTINGS).index(case.setting)]
            for name in reversed(SCORES[:3]):  # the probe on top
                x, y = roc(units.wrong, units.scores[name])
                label = f"{case.criterion}: {name}"
                axis.plot(x, y, color=colours[name], linestyle=styles[case.criterion], linewidth=1.4, label=label)
            what = "substituted, inserted" if row == 0 else "deleted"
            axis.set_title(f"{TITLES[case.setting]}\n{what} characters", fontsize=9)
    for axis in axes.flat:
        x = np.geomspace(1e-4, 1, 100)
        axis.plot(x, x, color=colours["random"], linewidth=1, label="random")
        axis.set(xscale="log", xlim=(1e-4, 1), ylim=(0, 1.02))
        axis.grid(alpha=0.25)
    for axis in axes[-1]:
        axis.set_xlabel("share of correct ones flagged")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of wrong ones found")
    handles, labels = axes[0][0].get_legend_handles_labels()
    unique = dict(sorted(zip(labels, handles, strict=True)))
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
