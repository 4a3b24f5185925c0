"""The bootstrap against a plain loop, and which systems can be compared."""

import math
import time

import numpy as np
import pytest
from support.hyp_files import decoded, write_hyps

from wildctc.errors import WildCTCError
from wildctc.scoring.comparison import compare, compare_files
from wildctc.scoring.error_rates import score
from wildctc.scoring.hypotheses import Decoded


def noisy_system(seed, error_rate, utterances=200):
    """Hypotheses with about `error_rate` of their words wrong; the same references for every seed."""
    lengths = np.random.default_rng(99).integers(3, 15, utterances)
    rng = np.random.default_rng(seed)
    items = []
    for i, n in enumerate(lengths):
        reference = [f"w{i}x{j}" for j in range(n)]
        text = ["wrong" if rng.random() < error_rate else word for word in reference]
        items.append(Decoded(f"u{i}", " ".join(text), (" ".join(reference),)))
    return items


def test_change_and_interval_are_those_of_a_plain_bootstrap():
    systems = {"a": noisy_system(1, 0.3), "b": noisy_system(2, 0.25)}
    comparison = compare(systems, resamples=2000, seed=5)
    a, b = (score(items).utterances for items in systems.values())
    rng = np.random.default_rng(12345)
    changes = []
    for _ in range(2000):
        drawn = rng.integers(len(a), size=len(a))
        rates = [sum(s[i].words.total for i in drawn) / sum(s[i].words.reference for i in drawn) for s in (a, b)]
        changes.append(rates[1] / rates[0] - 1)
    change = comparison.systems[1].wer_change
    assert change.relative == pytest.approx(score(systems["b"]).wer / score(systems["a"]).wer - 1)
    low, high = np.quantile(changes, [0.025, 0.975])
    assert (change.low, change.high) == pytest.approx((low, high), abs=0.1 * (high - low))  # resampling noise
    assert change.low < change.relative < change.high


def test_the_draw_is_paired_so_equal_systems_never_differ():
    items = noisy_system(1, 0.3)
    shuffled = items[::-1]  # paired by id, not by place
    change = compare({"a": items, "b": shuffled}, resamples=500).systems[1].wer_change
    assert (change.relative, change.low, change.high) == (0, 0, 0)


def test_the_same_seed_gives_the_same_interval_and_another_one_another():
    systems = {"a": noisy_system(1, 0.3), "b": noisy_system(2, 0.25)}
    first, again, other = (compare(systems, resamples=500, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_ten_thousand_resamples_take_well_under_a_second():
    systems = {"a": noisy_system(1, 0.3, 500), "b": noisy_system(2, 0.25, 500)}
    start = time.process_time()
    compare(systems)
    assert time.process_time() - start < 1.0  # about 0.15 s; the rest is for a busy machine


def test_a_clear_difference_is_starred_and_no_difference_is_not():
    systems = {"ctc": noisy_system(1, 0.3), "better": noisy_system(2, 0.1), "same": noisy_system(3, 0.3)}
    text = str(compare(systems, test_set="dev"))
    rows = {line.split()[0]: line for line in text.split("\n") if line}
    assert text.startswith("dev: 200 utterances, ")
    assert rows["better"].count("*") == 2
    assert "*" not in rows["same"]
    assert "*" not in rows["ctc"]


def test_a_first_system_without_errors_gives_an_infinite_change():
    comparison = compare({"a": decoded("a b c d", "a b c d"), "b": decoded("a b c d", "a b c x")}, resamples=100)
    change = comparison.systems[1].wer_change
    assert math.isinf(change.relative)
    assert (change.low, change.high) == (0.0, math.inf)
    assert "+∞" in str(comparison)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (decoded("a", "b"), "b lacks utterance u2, which a has"),
        (decoded("a", "b", "c", "d"), "a lacks utterance u3, which b has"),
        (decoded("a", "b", "c", reference="other"), "different references for utterance u0"),
    ],
)
def test_systems_on_different_test_sets_are_not_compared(other, message):
    with pytest.raises(WildCTCError, match=message):
        compare({"a": decoded("a", "b", "c"), "b": other})


def test_references_that_differ_are_compared_when_a_common_one_is_given():
    systems = {"a": decoded("a"), "b": decoded("a", reference="A")}
    assert compare(systems, {"u0": ["a"]}, resamples=10).systems[1].words.rate == 0.0


def test_hypothesis_files_are_named_by_what_tells_them_apart(tmp_path):
    for run in ("ctc", "otc-t"):
        write_hyps(tmp_path / run / "dev.jsonl", noisy_system(1, 0.2, 20))
    (comparison,) = compare_files([tmp_path / "ctc" / "dev.jsonl", tmp_path / "otc-t" / "dev.jsonl"])
    assert [system.name for system in comparison.systems] == ["ctc", "otc-t"]
    assert comparison.test_set == "dev"
    write_hyps(tmp_path / "ctc" / "epoch9.jsonl", noisy_system(1, 0.2, 20))
    (comparison,) = compare_files([tmp_path / "ctc" / "dev.jsonl", tmp_path / "ctc" / "epoch9.jsonl"])
    assert [system.name for system in comparison.systems] == ["dev", "epoch9"]
    (alone,) = compare_files([tmp_path / "ctc" / "dev.jsonl"])
    assert [system.name for system in alone.systems] == ["dev"]


def test_runs_give_a_table_for_each_test_set(tmp_path):
    for run, rate in (("ctc", 0.3), ("otc", 0.2)):
        for name, n in (("dev", 20), ("test", 30)):
            write_hyps(tmp_path / run / "hyp" / f"{name}.jsonl", noisy_system(1, rate, n))
    comparisons = compare_files([tmp_path / "ctc", tmp_path / "otc"])
    assert [(c.test_set, c.utterances) for c in comparisons] == [("dev", 20), ("test", 30)]
    assert [s.name for s in comparisons[0].systems] == ["ctc", "otc"]
    references = {item.id: ("wrong",) for item in noisy_system(1, 0.1, 30)}
    assert all(c.systems[0].words.rate > 1 for c in compare_files([tmp_path / "ctc"], references))


def test_runs_that_cannot_be_compared_are_named(tmp_path):
    write_hyps(tmp_path / "ctc" / "hyp" / "dev.jsonl", decoded("a"))
    write_hyps(tmp_path / "otc" / "hyp" / "test.jsonl", decoded("a"))
    (tmp_path / "new").mkdir()
    for others, message in (
        (["otc"], "otc did not decode dev"),
        (["new"], "new: nothing decoded yet"),
        (["none"], "none: not a run directory"),
        (["ctc"], "ctc: given twice"),
        (["otc/hyp/test.jsonl"], r"test\.jsonl: not a run directory"),
    ):
        with pytest.raises(WildCTCError, match=message):
            compare_files([tmp_path / "ctc", *(tmp_path / other for other in others)])
