"""Reports of made-up results: what they say, what they do not hide, and in which files."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from support.made_up import history, outcome, run_of

from wildctc.criteria import CRITERIA
from wildctc.disagreement.by_class import ProbedSystem, find_disputes
from wildctc.disagreement.tables import as_json
from wildctc.disagreement.transcripts import Annotated
from wildctc.experiments import pictures
from wildctc.experiments.catalogue import EXPERIMENTS
from wildctc.experiments.outputs import REPORTS, write_outputs
from wildctc.experiments.published_tables import table2, table4
from wildctc.experiments.results import RunResult, TestSet
from wildctc.experiments.systems import describe
from wildctc.experiments.table_formats import latex
from wildctc.experiments.wer_matrix import PAPER_CRITERIA, measured

FLEURS = table2().of(["FLEURS"])


def with_wer(percent):
    """A test set on which so many percent of 10,000 words are wrong."""
    words = np.array([[round(100 * percent), 0, 0, 10_000]])
    return TestSet(["u"], ["s"], words, words)


def fleurs_as_published():
    return [
        RunResult("table2-fleurs", task, criterion, 0, tests={"test": with_wer(FLEURS.wer[i, j])})
        for i, task in enumerate(FLEURS.tasks)
        for j, criterion in enumerate(PAPER_CRITERIA)
    ]


def iban(seeds=2):
    points = [(criterion, seed) for criterion in ("ctc", "otc-t", "otc-tw") for seed in range(seeds)]
    return [run_of(criterion, seed, metrics=history(criterion, seed)) for criterion, seed in points]


def line_of(text, name, number=0):
    """The cells of a table's row."""
    return re.split(r"\s{2,}", [line for line in text.splitlines() if re.match(rf"{re.escape(name)}\s", line)][number])


# ------------------------------------------------------------------------------------------------------ what they write


@pytest.mark.parametrize("experiment", sorted(REPORTS))
def test_every_experiment_writes_its_tables_and_pictures_and_latex_of_known_characters(experiment, tmp_path):
    results = results_of(experiment)
    text = write_outputs(experiment, results, tmp_path, [])
    assert (tmp_path / f"{experiment}.txt").read_text() in text
    assert (tmp_path / f"{experiment}.md").read_text().count("|--:") > 1
    assert list(csv.DictReader((tmp_path / f"{experiment}.csv").open()))
    tex = (tmp_path / f"{experiment}.tex").read_text()
    assert tex.isascii()
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == tex.count(r"\toprule")
    assert not re.search(r"(?<!\\)[%#]|(?<![\\$])_(?!\{)", tex)
    for row in re.findall(r"\\begin\{tabular\}\{(l r*|lr*)\}(.*?)\\bottomrule", tex, re.S):
        counts = {line.count(" & ") for line in row[1].splitlines() if " & " in line}
        assert counts == {len(row[0]) - 1}
    pictures = [path.read_text() for path in tmp_path.glob("*.svg")]
    assert pictures or experiment == "table4-disagreement"
    assert all(picture.rstrip().endswith("</svg>") for picture in pictures)


def results_of(experiment):
    if experiment in ("table2-librispeech", "table3-conformer"):
        tests = {"test-clean": outcome(0.1), "test-other": outcome(0.2)}
        return [run_of(c, task="librispeech", tests=tests) for c in PAPER_CRITERIA]
    if experiment.startswith("table2"):
        return [run_of(c, task={"table2-respin": "bn"}.get(experiment, "hi_in")) for c in PAPER_CRITERIA]
    if experiment == "table4-disagreement":
        return [run_of("ctc", audit={"disagreement": disagreement("ctc", 0)}, tests={})]
    if experiment == "iban-length":
        return [
            run_of(c, k, setting={"epochs": n}) for c in ("ctc", "otc-tw", "otc-tw-h") for n in (9, 14) for k in (0, 1)
        ]
    if experiment == "iban-corrupted":
        return [replace(run, task=task) for run in iban() for task in ("iban+characters", "iban+words")]
    if experiment == "iban":
        return iban()
    if experiment == "harper-valley-baselines":
        return [run_of(c, k, setting=x) for c in ("ctc", "otc-tw") for x in ({}, {"with": "CR-CTC"}) for k in (0, 1)]
    names = {"figure2-tau": ["τ"], "figure2-kappa": ["κ"], "retune-otc-w": ["word bypass τ", "self-loop"]}[experiment]
    settings = [dict.fromkeys(names, value) for value in (0.7, 0.8, 0.9)]
    return [run_of("ctc"), *(run_of("otc-t", rate=x[names[0]] / 3, setting=x) for x in settings)]


def test_the_same_results_give_the_same_files(tmp_path):
    for folder in ("a", "b"):
        write_outputs("iban", iban(), tmp_path / folder, [])
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_without_results_it_says_so_and_writes_nothing(tmp_path):
    diverged = RunResult("iban", "iban", "otc-w", 0, diverged="the loss is not finite")
    for results in ([], [diverged]):
        assert "no run has a result yet" in write_outputs(
            "iban", results, tmp_path / "out", ["iban ctc seed0: not begun"]
        )
    assert not (tmp_path / "out").exists()


def test_latex_escapes_what_it_must():
    assert latex("50% of a_b & c, W_e' − T_H ± 2") == r"50\% of a\_b \& c, W$_{e}'$ $-$ T$_{H}$ $\pm$ 2"


# --------------------------------------------------------------------------------------------------- the paper's tables


def test_results_equal_to_the_papers_give_its_table_and_no_difference(tmp_path):
    text = write_outputs("table2-fleurs", fleurs_as_published(), tmp_path, [])
    ours, theirs, difference = re.split(r"\n(?=Table 2)", text)
    assert line_of(ours, "Favg") == line_of(theirs, "Favg")
    assert line_of(ours, "Favg")[-1] == "11.27"
    assert "*" in line_of(ours, "Favg")[-2]
    assert set(line_of(difference, "Favg")[1:]) == {"0.00"}
    assert "lowest WER on: TW_H 6, TW_e 4, T_H 3, W_e 1 of 14 tasks" in ours


def test_a_missing_cell_is_shown_and_no_average_counts_its_task(tmp_path):
    lacking = [run for run in fleurs_as_published() if (run.task, run.criterion) != ("hi_in", "otc-t")]
    text = write_outputs("table2-fleurs", lacking, tmp_path, ["hi_in otc-t seed0: not begun"])
    assert text.startswith("Not complete: 1 of 98 runs are missing (hi_in otc-t seed0: not begun).")
    assert "–" in line_of(text, "hi_in")
    assert not any("*" in cell for cell in line_of(text, "hi_in"))
    average = line_of(text, "Favg, 13 of 14 tasks")
    rest = [i for i, task in enumerate(FLEURS.tasks) if task != "hi_in"]
    assert float(average[1]) == pytest.approx(FLEURS.wer[rest, 0].mean(), abs=0.006)
    assert "of 13 tasks" in text
    assert set(line_of(text, "Favg, 13 of 14 tasks", 1)[1:]) == {"0.00"}  # published: of the same tasks


def test_a_criterion_that_was_not_run_leaves_the_averages_of_the_others(tmp_path):
    results = [run for run in fleurs_as_published() if run.criterion != "otc-w"]
    text = write_outputs("table2-fleurs", results, tmp_path, [])
    assert line_of(text, "Favg")[:3] == ["Favg", "38.82", "–"]
    assert "not run: W_e" in text


def test_daggers_and_divergence_are_marked(tmp_path):
    results = fleurs_as_published()
    for i, run in enumerate(results):
        if run.criterion == "otc-w" and run.task == "ml_in":
            results[i] = replace(run, dagger=-25.0)
        if run.criterion == "otc-w" and run.task == "ta_in":
            results[i] = replace(run, tests={}, diverged="the loss is not finite")
    text = write_outputs("table2-fleurs", results, tmp_path, [])
    assert "35.71†" in line_of(text, "ml_in")
    assert "diverged" in line_of(text, "ta_in")
    assert "Favg, 13 of 14 tasks" in text


def test_several_seeds_are_a_mean_and_a_spread():
    results = [RunResult("", "hi_in", "ctc", k, tests={"test": with_wer(30 + k)}) for k in range(3)]
    found = measured(results, FLEURS)
    place = FLEURS.tasks.index("hi_in")
    assert (found.wer[place, 0], found.spread[place, 0], found.seeds[place, 0]) == pytest.approx((31, 1, 3))


def test_librispeech_has_a_row_for_each_test_set(tmp_path):
    run = RunResult("", "librispeech", "ctc", 0, tests={"test-clean": with_wer(5), "test-other": with_wer(13)})
    text = write_outputs("table2-librispeech", [run], tmp_path, [])
    assert [line_of(text, name)[1] for name in ("test-clean", "test-other", "Lavg")] == ["5.00", "13.00", "9.00"]


def test_table_3_has_its_reduction_as_a_row(tmp_path):
    text = write_outputs("table3-conformer", results_of("table3-conformer"), tmp_path, [])
    ours, theirs, apart = (line_of(text, "Δ", i)[1:] for i in range(3))
    assert theirs == ["–", "1.5", "8.3", "9.6", "10.2", "11.9", "12.0*"]
    for one, other, between in zip(ours[1:], theirs[1:], apart[1:], strict=True):
        difference = float(one.strip("*").replace("−", "-")) - float(other.strip("*"))
        assert float(between.replace("−", "-")) == pytest.approx(difference, abs=0.11)


# ---------------------------------------------------------------------------------------------------------- against CTC


def test_iban_reports_errors_intervals_training_and_audit(tmp_path):
    text = write_outputs("iban", iban(), tmp_path, [])
    row = line_of(text, "otc-t")
    assert re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", row[2])
    assert re.fullmatch(r"[+−]\d+\.\d\d … [+−]\d+\.\d\d", row[4])
    assert line_of(text, "otc-t", 1)[-1] == "0.970"
    records = list(csv.DictReader((tmp_path / "iban.csv").open()))
    assert len(records) == 6
    assert float(records[2]["wer_delta_low"]) <= float(records[2]["wer_delta_mean"])


def test_what_each_level_adds_is_the_difference_of_two_criteria(tmp_path):
    rates = {"ctc": 0.5, "otc-w-tuned": 0.4, "otc-t": 0.5, "otc-tw": 0.3}
    results = [run_of(c, k, tests={"test": outcome(rate, k)}) for c, rate in rates.items() for k in (0, 1)]
    text = write_outputs("iban", results, tmp_path, [])
    wers = {c: np.mean([100 * r.errors().rate for r in results if r.criterion == c]) for c in rates}
    row = line_of(text, "token arcs beside word arcs")
    assert row[1:3] == ["otc-tw − otc-w-tuned", "2"]
    assert float(row[3].strip("*").replace("−", "-")) == pytest.approx(wers["otc-tw"] - wers["otc-w-tuned"], abs=0.006)
    assert "What each level" not in write_outputs("iban", [r for r in results if r.criterion != "otc-tw"], tmp_path, [])


def test_what_wildcards_and_cr_ctc_add_is_the_difference_of_the_declared_systems(tmp_path):
    rates = {("ctc", None): 0.5, ("otc-tw", None): 0.45, ("ctc", "CR-CTC"): 0.4, ("otc-tw", "CR-CTC"): 0.3}
    results = [
        run_of(c, k, setting={"with": x} if x else {}, tests={"test": outcome(rate, k)})
        for (c, x), rate in rates.items()
        for k in (0, 1)
    ]
    results += [run_of("ctc", k, setting={"epochs": 28}, tests={"test": outcome(0.42, k)}) for k in (0, 1)]
    text = write_outputs("harper-valley-baselines", results, tmp_path, [])
    found = [(r.criterion, r.setting.get("with"), 100 * r.errors().rate) for r in results if "epochs" not in r.setting]
    wers = {key: np.mean([wer for c, x, wer in found if (c, x) == key]) for key in rates}
    for name, one, other in (
        ("both", ("otc-tw", "CR-CTC"), ("ctc", None)),
        ("wildcards beside CR-CTC", ("otc-tw", "CR-CTC"), ("ctc", "CR-CTC")),
        ("CR-CTC beside wildcards", ("otc-tw", "CR-CTC"), ("otc-tw", None)),
    ):
        value = float(line_of(text, name)[3].strip("*").replace("−", "-"))
        assert value == pytest.approx(wers[one] - wers[other], abs=0.006)
    assert line_of(text, "CR-CTC at the same cost")[1] == "ctc (with CR-CTC) − ctc (epochs 28)"
    declared = {describe(run.setting.shown) for run in EXPERIMENTS["harper-valley-baselines"].runs}
    assert declared == {"", "with CR-CTC", "epochs 28"}


def test_where_seeds_differ_it_is_said_that_only_differences_compare(tmp_path):
    text = write_outputs("iban", [*(run_of("ctc", k) for k in (0, 1)), run_of("otc-t", 1)], tmp_path, [])
    assert "not all have the same seeds: compare them by Δ, not by WER" in text
    same = write_outputs("iban", [run_of(c, k) for c in ("ctc", "otc-t") for k in (0, 1)], tmp_path, [])
    assert "not all have the same seeds" not in same


def test_one_seed_and_one_speaker_are_said(tmp_path):
    tests = {"test": outcome(0.3, speakers=(20,))}
    text = write_outputs("iban", [run_of("ctc", tests=tests), run_of("otc-t", tests=tests)], tmp_path, [])
    assert "of one seed, the interval leaves out" in text
    assert "one speaker: the interval leaves out" in text


def test_a_setting_is_compared_with_ctc_of_its_own_length_or_else_with_plain_ctc(tmp_path):
    fair, other = {"test": outcome(0.3, 1)}, {"test": outcome(0.6, 2)}
    results = [run_of("ctc", tests=other), run_of("ctc", setting={"epochs": 14}, tests=fair)]
    results += [run_of("otc-t", setting={"epochs": 14}, tests=fair)]
    results += [run_of("otc-tw", setting={"schedule": "published"}, tests=other)]
    text = write_outputs("iban", results, tmp_path, [])
    for name in ("otc-t (epochs 14)", "otc-tw (schedule published)"):
        assert line_of(text, name)[3:5] == ["+0.00", "+0.00 … +0.00"]


def test_a_run_that_diverged_is_named_and_its_system_reported_from_the_others(tmp_path):
    results = [*iban(), run_of("otc-w", 0, dagger=-25.0)]
    results.append(RunResult("iban", "iban", "otc-w", 1, diverged="the loss is not finite"))
    text = write_outputs("iban", results, tmp_path, [])
    assert line_of(text, "otc-w")[1] == "1†‡"
    assert "† otc-w: diverged, and was run again with word bypass −25" in text
    assert "‡ otc-w, seed 1: no model: the loss is not finite" in text


def test_without_ctc_there_are_no_differences_and_it_is_said(tmp_path):
    text = write_outputs("iban", [run_of("otc-t")], tmp_path, [])
    assert "no differences: they need ctc" in text
    assert not (tmp_path / "iban.svg").exists()


def test_lengths_are_columns_and_schedules_are_compared_at_each(tmp_path):
    text = write_outputs("iban-length", results_of("iban-length"), tmp_path, [])
    assert "WER, 9 epochs" in text
    assert len(line_of(text, "otc-tw-h − otc-tw")) == 5


def test_a_sweep_names_the_best_setting_beside_the_papers(tmp_path):
    text = write_outputs("figure2-tau", results_of("figure2-tau"), tmp_path, [])
    assert "lowest WER: τ 0.7\n" in text
    assert "the paper's choice: τ 0.775; the numbers of what else it tried are not in its source" in text


# -------------------------------------------------------------------------------------------------------------- Table 4


def disagreement(criterion, more, count=10):
    """As `wildctc disagree --json` writes it, with the paper's means and `more`."""
    group = {"language": None, "split": None}
    for kind in ("characters", "words"):
        means = {unit.split()[1]: x + more for unit, x in table4()[criterion].items() if unit.startswith(kind)}
        numbers = {of: {"mean": {"value": mean}} for of, mean in means.items()}
        group[kind] = {"units": dict.fromkeys(means, count), "systems": {"probe": numbers}}
    return {"groups": [group]}


def test_table_4_pools_units_over_the_tasks_that_all_criteria_have(tmp_path):
    def run(criterion, task, more, count):
        return RunResult("", task, criterion, 0, audit={"disagreement": disagreement(criterion, more, count)})

    results = [run(c, "bh", 0.01, 10) for c in PAPER_CRITERIA] + [run(c, "bn", 0.05, 30) for c in PAPER_CRITERIA]
    text = write_outputs("table4-disagreement", [*results, run("ctc", "te", 0.9, 99)], tmp_path, [])
    assert line_of(text, "T_H")[1:3] == ["0.062", "0.342*"]  # 0.022 and 0.302, and 0.04 = (10 · 0.01 + 30 · 0.05) / 40
    assert set(line_of(text, "T_H", 2)[1:]) == {"+0.040"}
    assert "pooled over 2 tasks: bh, bn" in text
    assert "left out, since not every criterion has them: te" in text


def test_table_4_reads_what_disagree_writes_and_says_where_disputed_characters_are_bypassed_more(tmp_path):
    said = [
        Annotated(f"u{i}", "ab cd", "bh", split, {"x": "ab cd", "y": "ab ce"})
        for i, split in enumerate(["test", "dev"])
    ]

    def system(name, disputed):
        values = {"characters": np.array([0.1] * 4 + [disputed]), "words": np.array([0.1, 0.2]), "insertions": None}
        return ProbedSystem(name, 0.0, {one.id: values for one in said})

    found = find_disputes(said, [system("ctc", 0.4), system("otc-t", 0.5)], resamples=2000)
    content = json.loads(as_json(found, {}))
    runs = [RunResult("", "bh", criterion, 0, audit={"disagreement": content}) for criterion in ("ctc", "otc-t")]
    text = write_outputs("table4-disagreement", [*runs, RunResult("", "bh", "otc-w", 0)], tmp_path, [])
    assert line_of(text, "T_e")[1:] == ["0.100", "0.500*", "0.500", "–", "–", "0.100", "0.200*"]
    assert line_of(text, "T_e", 3)[1:] == ["+25.0", "0.0", "1", "1", "1"]
    unlike = [replace(run, audit={"disagreement": content | {"baseline": "otc-w"}}) for run in runs]
    assert "Change against CTC" in text
    assert "Change against CTC" not in write_outputs("table4-disagreement", unlike, tmp_path, [])
    assert "of all sets together" not in text
    assert "characters disputed 1," in text  # of the test set alone


def test_every_criterion_has_a_colour_and_a_marker_of_its_own():
    assert set(pictures._COLOURS) == set(pictures._MARKERS) == set(CRITERIA)
    assert len(set(pictures._COLOURS.values())) == len(set(pictures._MARKERS.values())) == len(CRITERIA)
