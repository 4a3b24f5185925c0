"""Verdicts on findings, what is learned from them, rules about recurring findings, and the commands that use them."""

import numpy as np
import pytest
from support.probes import probed, write
from support.tones import read_rows, write_rows

from wildctc.audit.agreement import settle, settle_rules, summarise, variant_groups
from wildctc.audit.calibration import Calibration, calibrate, verdicts
from wildctc.audit.decisions import Decision, parse_decision
from wildctc.cli import main
from wildctc.probe.issues import issues_of
from wildctc.text.variants import read_variants as read_training_variants


def rule(decision, written, heard, at="2026-11-18T10:00:00.000Z", reviewer="ann"):
    return Decision(f"finding\tchanged\t{written}\t{heard}", decision, written, heard, reviewer, at)


def made(decision, fixed="", reason=""):
    return Decision("a", decision, "", fixed, reason=reason)


def test_a_fix_says_which_findings_were_right():
    utterance = probed("a", "the quick brown fox jumps", {1: "quack", 3: ""}, {4: "high"})
    issues = sorted(issues_of(utterance, 0.25), key=lambda issue: issue.kind)
    assert [i.kind for i in issues] == ["changed", "extra", "missing"]

    def right(*words, **more):
        return verdicts(utterance.text, issues, made(*words, **more))

    assert right("accept") == [False] * 3
    assert right("skip") == [None] * 3
    assert right("accept", reason="bulk: below 0.5") == [None] * 3
    assert right("fix", "the quack brown fox jumps") == [True, False, False]
    assert right("fix", "the quick brown high jumps") == [False, True, False]
    assert right("fix", "the quick brown jumps") == [False, True, False]
    assert right("fix", "the quick brown fox high jumps") == [False, False, True]
    assert right("fix", "a quick brown fox jumps") == [False] * 3
    assert right("fix", "the quack brown jumps", reason="all: quick → quack") == [True, None, None]
    assert verdicts(utterance.text, issues, None) == [None] * 3


def test_without_verdicts_the_probability_is_the_score_and_with_many_it_is_their_share():
    none = Calibration.fit([], [], [])
    assert none([0.3, 0.9], ["changed", "missing"]) == pytest.approx([0.3, 0.9])
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.25, 1, 4000)
    kinds = rng.choice(["changed", "missing"], 4000)
    truth = np.where(kinds == "missing", 0.1, 0.5) * scores
    fitted = Calibration.fit(scores, list(kinds), list(rng.random(4000) < truth))
    for kind, share in (("changed", 0.5), ("missing", 0.1)):
        assert fitted([0.6], [kind]) == pytest.approx([share * 0.6], abs=0.04)
    count, spread = fitted.expected(scores, list(kinds))
    assert abs(count - truth.sum()) < 3 * spread
    assert spread < 60


def test_all_verdicts_alike_give_no_certainty():
    fitted = Calibration.fit([0.9] * 20, ["changed"] * 20, [True] * 20)
    assert 0.9 < fitted([0.9], ["changed"])[0] < 1


def test_rules_are_no_decisions_on_utterances_and_the_newest_holds():
    given = [
        rule("variant", "colour", "color"),
        rule("variant", "color", "kolor"),
        rule("hide", "a", "b"),
        rule("variant", "x", "y"),
        rule("hide", "x", "y", at="2026-11-18T11:00:00.000Z", reviewer="ben"),
    ]
    assert settle(given).decisions == {}
    assert [r.decision for r in settle_rules(given)] == ["variant", "variant", "hide", "hide"]
    assert variant_groups(given) == [["color", "colour", "kolor"]]
    assert summarise(given).rules == {"variant": 2, "hide": 2}
    assert summarise(given).reviewers == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": "a"}, "is about a finding"),
        ({"fixed": "other"}, "is about a finding"),
        ({"id": "finding\textra\tgonna\t", "text": "gonna", "fixed": ""}, "one has no words"),
    ],
)
def test_a_wrong_rule_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        parse_decision(rule("variant", "colour", "color").row() | fields)


def test_accepted_variants_are_written_as_a_lexicon_that_corrupt_reads(tmp_path, capsys):
    from wildctc.corruption.corrupt import read_variants
    from wildctc.text.normalisation import Normalizer

    write_rows(tmp_path / "d.jsonl", [rule("variant", "colour", "color").row(), rule("hide", "a", "b").row()])
    assert main(["decisions", "variants", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "v.txt")]) == 0
    assert (tmp_path / "v.txt").read_text() == "color colour\n"
    assert "1 words with 2 spellings" in capsys.readouterr().out
    assert read_variants(str(tmp_path / "v.txt"), Normalizer()) == {"color": ["colour"], "colour": ["color"]}
    assert main(["decisions", "variants", str(tmp_path / "d.jsonl")]) == 2  # no -o


def test_scoring_and_training_read_the_accepted_variants(tmp_path, capsys):
    """Training reads the file by the same function (tests/training/test_alternatives.py)."""
    rules = [rule("variant", "colour", "color"), rule("variant", "gonna", "going to")]
    write_rows(tmp_path / "d.jsonl", [made.row() for made in rules])
    assert main(["decisions", "variants", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "v.txt")]) == 0
    assert read_training_variants(tmp_path / "v.txt").of_phrase(("gonna",)) == (("gonna",), ("going", "to"))
    hypothesis = {"id": "a", "text": "we are going to see the color", "reference": "we are gonna see the colour"}
    write_rows(tmp_path / "h.jsonl", [hypothesis])
    for more, right in ([], False), (["--variants", str(tmp_path / "v.txt")], True):
        capsys.readouterr()
        assert main(["score", str(tmp_path / "h.jsonl"), *more]) == 0
        assert ("0 of them (0.0%) with errors" in capsys.readouterr().out) is right


def test_rules_alone_apply_nothing_and_say_so(tmp_path, capsys):
    write_rows(tmp_path / "d.jsonl", [rule("hide", "a", "b").row()])
    write_rows(tmp_path / "m.jsonl", [{"id": "a", "audio": "a.wav", "text": "a", "duration": 1.0}])
    assert main(["apply-fixes", str(tmp_path / "m.jsonl"), str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "o")]) == 2
    assert "no decisions on utterances" in capsys.readouterr().err


def test_calibrate_prints_how_good_the_scores_were(tmp_path, capsys):
    utterances = [probed(f"u{n}", "ab cd ef", {0: "ac", 2: "eg"}, audio="gone.wav") for n in range(20)]
    probe = write(tmp_path, utterances)
    rows = [Decision(f"u{n}", "fix", "ab cd ef", "ac cd ef").row() for n in range(8)]
    rows += [Decision(f"u{n}", "accept", "ab cd ef").row() for n in range(8, 10)]
    rows += [Decision("u10", "accept", "another text").row()]
    write_rows(tmp_path / "d.jsonl", rows)
    assert main(["audit", str(probe), "--calibrate", str(tmp_path / "d.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "left: 20 findings without a decision" in shown
    [line] = [line.split() for line in shown.splitlines() if line.startswith("0.90")]
    assert line[1:5] == ["40", "20", "8", "0.40"]
    judged = calibrate(probe, [Decision("u0", "accept", "ab cd ef")])
    assert (judged.decided, judged.right.count(False), judged.right.count(None)) == (1, 2, 38)
    rows = [Decision("other", "accept", "x").row()]
    write_rows(tmp_path / "d.jsonl", rows)
    assert read_rows(tmp_path / "d.jsonl") == rows
    assert main(["audit", str(probe), "--calibrate", str(tmp_path / "d.jsonl")]) == 2
