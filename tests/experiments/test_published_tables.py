"""The paper's tables as data: what it computed from its own rows comes out of ours."""

import numpy as np
import pytest

from wildctc.experiments.published_tables import UNITS, rows, table2, table3, table4
from wildctc.experiments.wer_matrix import BEST, PAPER_CRITERIA, reduction
from wildctc.experiments.wer_tables import number


def printed(table, name):
    [row] = [row for row in rows(table) if row["task"] == name]
    return row


def test_table_2_has_25_tasks_and_five_daggers():
    rates = table2()
    assert [rates.corpora.count(corpus) for corpus in ("LibriSpeech", "FLEURS", "RESPIN")] == [2, 14, 9]
    daggers = [(task, "otc-w") for task in ("ml_in", "ta_in", "kn", "mr", "te")]
    assert sorted(rates.marks) == sorted(daggers)


@pytest.mark.parametrize("name", ["Lavg", "Favg", "Ravg", "Avg"])
def test_averages_of_table_2_are_unweighted_means_of_its_tasks_as_printed(name):
    part = dict(table2().averages())[name]
    assert [number(x) for x in part.mean()] == [printed("table2", name)[criterion] for criterion in PAPER_CRITERIA]


def test_every_delta_of_table_2_is_as_printed_those_of_averages_from_means_that_are_not_rounded():
    rates = table2()
    means = {name: part.mean() for name, part in rates.averages()}
    for task, wer in [*zip(rates.tasks, rates.wer, strict=True), *means.items()]:
        assert number(reduction(wer)[BEST]) == printed("table2", task)["Δ"], task
    # From the printed averages another Δ would come out:
    wer = np.array([float(printed("table2", "Lavg")[criterion]) for criterion in PAPER_CRITERIA])
    assert number(reduction(wer)[BEST]) == "6.89"
    assert printed("table2", "Lavg")["Δ"] == "6.84"


def test_the_lowest_of_each_row_is_what_the_paper_prints_in_bold():
    for rates, table in ((table2(), "table2"), (table3(), "table3")):
        for task, best in zip(rates.tasks, rates.best, strict=True):
            assert [PAPER_CRITERIA[j] for j in np.flatnonzero(best)] == [printed(table, task)["bold"]], task
    for name, part in table2().averages():
        assert PAPER_CRITERIA[np.argmin(part.mean())] == printed("table2", name)["bold"]


def test_table_3_s_average_and_reduction_are_as_printed_though_two_averages_look_equal():
    [(_, part)] = table3().averages()
    assert [number(x) for x in part.mean()] == [printed("table3", "Avg")[criterion] for criterion in PAPER_CRITERIA]
    deltas = ["", *(number(x, 1) for x in reduction(part.mean())[1:])]
    assert deltas == [printed("table3", "Δ")[criterion] for criterion in PAPER_CRITERIA]
    # TW_e and TW_H are both printed as 9.05, neither in bold; Δ (11.9, 12.0) shows that TW_H is lower.
    assert part.mean()[BEST] == pytest.approx(9.045)
    assert printed("table3", "Avg")["bold"] == ""
    assert printed("table3", "Δ")["bold"] == PAPER_CRITERIA[np.argmin(part.mean())]


def test_what_the_text_says_of_table_2_is_in_it():
    rates = table2()
    assert rates.best.sum(axis=0)[BEST] == 9
    for criterion in ("otc-t", "otc-t-h"):
        assert (rates.wer[:, PAPER_CRITERIA.index(criterion)] < rates.wer[:, 0]).all()
    overall = dict(zip(PAPER_CRITERIA, reduction(rates.mean()), strict=True))
    assert [number(overall[c]) for c in ("otc-tw-h", "otc-t", "otc-t-h")] == ["9.45", "8.46", "7.67"]
    assert number(reduction(dict(rates.averages())["Ravg"].mean())[PAPER_CRITERIA.index("otc-tw")]) == "−0.24"


def test_table_4_has_all_criteria_and_what_it_prints_in_bold_is_the_highest_of_disputed_units():
    found = table4()
    assert tuple(found) == PAPER_CRITERIA
    for unit in ("characters disputed", "words disputed"):
        highest = max(PAPER_CRITERIA, key=lambda criterion: found[criterion][unit])
        assert [row["criterion"] for row in rows("table4") if row["bold"] == unit] == [highest]
    assert found["ctc"]["characters disputed"] / found["ctc"]["characters agreed"] == pytest.approx(11, abs=0.1)
    assert set(UNITS) == set(found["ctc"])
