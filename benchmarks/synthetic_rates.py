"""Are estimated noise rates those of the transcripts? Synthetic speech, whose errors are known.

    python benchmarks/synthetic_rates.py --out DIR

Voices of espeak-ng read the demo's sentences. Each annotator has a share of the training sentences, and a known rate of
one kind of error in them. Nothing else is wrong; dev is as it was read. One model is trained for each case:

  tokens wrong    characters replaced by others; five corpora, each with one rate (otc-t-em)
  words inserted  five annotators in one corpus (otc-tw-em)
  words missing   the same: what was said is not written
  words wrong     three annotators in one corpus

A true rate is the number of errors, divided by the number of tokens, words or positions that the run counted. What is
done is not done again; `--cases` runs some cases only. Results: DIR/rates.{json,md,svg}.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from audit import wildctc

from wildctc.corpora.synthetic import synthesize
from wildctc.corruption.corrupt import corrupt
from wildctc.demo.sentences import sentences
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, write_text
from wildctc.json_lines import read_rows
from wildctc.terminal import table
from wildctc.training.noise_report import CORPUS, read_rates
from wildctc.training.run_folder import read_metrics

RATES = (0.0, 0.02, 0.05, 0.1, 0.2)
SIZES = {"train": 1200, "dev": 100}
VOICES = 60
PLAIN, EPOCHS = 5, 12  # epochs of plain CTC, and of all
FACTOR = 1.5  # the aim: within this factor


@dataclass(frozen=True)
class Case:
    """A corpus: the annotators' rates of one kind of error.

    Attributes:
        criterion: What the model is trained with.
        family: The noise rate that should show these errors.
        unit: "characters" or "words".
        kind: Of `wildctc.corruption`.
        rates: One for each annotator.
    """

    criterion: str
    family: str
    unit: str
    kind: str
    rates: tuple[float, ...]


CASES = {
    **{f"tokens-{rate:.0%}": Case("otc-t-em", "token", "characters", "substitution", (rate,)) for rate in RATES},
    "words-inserted": Case("otc-tw-em", "word", "words", "insertion", RATES),
    "words-missing": Case("otc-tw-em", "unwritten", "words", "deletion", RATES),
    "words-wrong": Case("otc-tw-em", "word", "words", "substitution", (0.02, 0.05, 0.1)),
}


@dataclass(frozen=True)
class Estimate:
    """One point of the picture.

    Attributes:
        case: Of `CASES`.
        annotator: The annotator, who is named after the rate of errors.
        family: token, word or unwritten.
        true: The true rate.
        found: The estimated one.
        low: The lower end of its interval.
        high: The upper end.
        dev_cer: The character error rate of the model's last epoch on dev.
    """

    case: str
    annotator: str
    family: str
    true: float
    found: float
    low: float
    high: float
    dev_cer: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="default: all of them")
    options = parser.parse_args()
    try:
        speech = read_aloud(options.out)
        for name in options.cases:
            train(options.out, name, write_down(options.out, name, speech))
        found = [
            e for name in CASES if (options.out / "runs" / name / "model").exists() for e in read(options.out, name)
        ]
    except WildCTCError as error:
        raise SystemExit(f"synthetic_rates: {error}") from None
    write_text(options.out / "rates.json", json.dumps([asdict(e) for e in found], indent=1) + "\n")
    write_text(options.out / "rates.md", markdown(found))
    draw(found, options.out / "rates.svg")
    print(plain(found))


def read_aloud(out: Path) -> list[dict[str, str]]:
    """The rows of a manifest with what was said as text; the audio is made once."""
    folder = make_folder(out / "speech")
    splits = [split for split, size in SIZES.items() for _ in range(size)]
    said = sentences(len(splits), seed=0)
    rows = [
        {"id": f"{split}-{i:04d}", "split": split, "spoken": text, "text": text}
        for i, (split, text) in enumerate(zip(splits, said, strict=True))
    ]
    write_text(folder / "sentences.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    manifest = synthesize(folder / "sentences.jsonl", folder, voices=VOICES, seed=0, processes=2)
    return [row | {"audio": str((folder / row["audio"]).resolve())} for _, row in read_rows(manifest)]


def write_down(out: Path, name: str, speech: Sequence[dict[str, str]]) -> dict[str, int]:
    """Prepare the corpus of a case; returns how many errors each annotator has made."""
    case, errors, rows = CASES[name], {}, [row for row in speech if row["split"] != "train"]
    training = [row for row in speech if row["split"] == "train"]
    for number, rate in enumerate(case.rates):
        mine, annotator = training[number :: len(case.rates)], f"{rate:.0%}"
        kinds = {"characters": rate, "character_kinds": [case.kind]}
        if case.unit == "words":
            kinds = {"words": rate, "word_kinds": [case.kind]}
        written = corrupt([row["text"] for row in mine], **kinds, seed=number)  # type: ignore[arg-type]
        errors[annotator] = sum(len(text.edits) for text in written)
        rows += [row | {"text": w.text, "annotator": annotator} for row, w in zip(mine, written, strict=True)]
    folder = make_folder(out / "corpora" / name)
    rows = [{key: value for key, value in row.items() if key != "spoken"} for row in rows]
    write_text(folder / "manifest.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    if not (out / "data" / name / "train.jsonl.gz").exists():
        wildctc("prepare", "jsonl", folder, out / "data" / name, "--no-decode")
    write_text(out / "data" / name / "errors.json", json.dumps(errors) + "\n")
    return errors


def train(out: Path, name: str, errors: dict[str, int]) -> None:
    run, case = out / "runs" / name, CASES[name]
    if (run / "model").exists():
        return
    words = ("--criterion", case.criterion, "--data.dir", out / "data" / name, "--data.cache", out / "features")
    by = ("--rates.by", "annotator") if len(errors) > 1 else ()
    wildctc("train", "small", "--out", run, *words, *by, "--training.ctc_epochs", PLAIN, "--training.epochs", EPOCHS)


def read(out: Path, name: str) -> list[Estimate]:
    errors = json.loads((out / "data" / name / "errors.json").read_text())
    family, cer = CASES[name].family, float(read_metrics(out / "runs" / name)[-1]["valid_cer"])
    found = []
    for group in read_rates(out / "runs" / name):
        if group.name == CORPUS and len(errors) > 1:
            continue
        [annotator] = errors if group.name == CORPUS else [group.name]
        rate = group.rates[family]
        true = errors[annotator] / rate.chances
        found.append(Estimate(name, annotator, family, true, rate.rate, rate.low, rate.high, cer))
    return sorted(found, key=lambda e: e.true)


# --------------------------------------------------------------------------------------------------------------- report

HEADER = ("case", "rate", "true", "estimated", "95% interval", "ratio", "dev CER")


def cells(found: Sequence[Estimate]) -> list[list[str]]:
    return [
        [
            e.case, e.family, f"{e.true:.2%}", f"{e.found:.2%}", f"[{e.low:.2%}, {e.high:.2%}]",
            f"{e.found / e.true:.2f}" if e.true else "–", f"{e.dev_cer:.1%}",
        ]
        for e in found
    ]  # fmt: skip


def plain(found: Sequence[Estimate]) -> str:
    return table(HEADER, cells(found))


def markdown(found: Sequence[Estimate]) -> str:
    lines = [HEADER, ["---"] * len(HEADER), *cells(found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def draw(found: Sequence[Estimate], path: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    groups = {
        "tokens wrong": [e for e in found if e.family == "token"],
        "words wrong or inserted": [e for e in found if e.family == "word"],
        "unwritten speech, per position": [e for e in found if e.family == "unwritten"],
    }
    with rc_context({"svg.hashsalt": "wildctc"}):
        figure = Figure(figsize=(11, 3.8), layout="constrained")
        for axes, (title, estimates) in zip(figure.subplots(1, 3), groups.items(), strict=True):
            most = 1.15 * max([0.01, *(max(e.true, e.high) for e in estimates)])
            axes.fill_between(
                [0, most], [0, most / FACTOR], [0, most * FACTOR], color="#dddddd", label=f"factor {FACTOR}"
            )
            axes.plot([0, most], [0, most], color="#888888", linewidth=1)
            for number, case in enumerate(
                dict.fromkeys(e.case.split("-", 1)[1] if e.family != "token" else "wrong" for e in estimates)
            ):
                mine = [e for e in estimates if e.family == "token" or e.case.endswith(case)]
                ranges = [[e.found - e.low for e in mine], [e.high - e.found for e in mine]]
                x, y = [e.true for e in mine], [e.found for e in mine]
                axes.errorbar(x, y, yerr=ranges, fmt="o", markersize=5, capsize=3, color=f"C{number}", label=case)
            axes.set(xlim=(-0.03 * most, most), ylim=(-0.03 * most, most), title=title, xlabel="true rate")
            axes.xaxis.set_major_formatter(PercentFormatter(1))
            axes.yaxis.set_major_formatter(PercentFormatter(1))
            axes.legend(loc="upper left", frameon=False)
        figure.axes[0].set_ylabel("estimated rate")
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
