"""What is done about one utterance: which findings become edits, and which weights its words get."""

import json
from collections import Counter

import pytest
import torch
from support.probes import probed
from support.tones import read_rows, write_rows

from wildctc.cleaning.cleaner import clean
from wildctc.cleaning.findings import find_corrections, word_doubts
from wildctc.cleaning.judgement import judge
from wildctc.cleaning.plan import Thresholds, make_plan
from wildctc.corpora.manifest import load_manifest
from wildctc.errors import WildCTCError
from wildctc.probe.graphs import probe_logits
from wildctc.probe.records import write_probe

LETTERS = "_ abcdefghijklmnopqrstuvwxyz"  # "_" is blank
KNOWN = Counter({"the": 10, "quick": 10, "quack": 10, "brown": 10, "fox": 10})


def hear(said: str, written: str, tokens: list[str] | str = LETTERS):
    """The probe of a transcript by a model that is sure of what was said: tokens between blanks."""
    pieces = [*tokens]

    def encode(text):
        if isinstance(tokens, str):
            return [pieces.index(c) for c in text]
        rest, labels = "▁" + text.replace(" ", "▁"), []
        while rest:
            piece = max((p for p in pieces[1:] if rest.startswith(p)), key=len)
            labels.append(pieces.index(piece))
            rest = rest[len(piece) :]
        return labels

    frames = [0, *(label for found in encode(said) for label in (found, found, 0)), *[0] * 40]
    logits = 12.0 * torch.nn.functional.one_hot(torch.tensor(frames), len(pieces)).float()
    labels = torch.tensor(encode(written))
    [found] = probe_logits(logits, labels, [len(frames)], [len(labels)], tokens=tokens)
    return found


def corrected(utterance, **least) -> str:
    least = {"replace": 0.9, "remove": 0.9, "insert": 0.9} | least
    plan = make_plan(utterance, utterance.text, Thresholds(drop=None, known=0, **least), Counter())
    return utterance.text if plan.text is None else plan.text


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("the quick fox", "the quack fox"),
        ("i scream so", "ice cream so"),
        ("we see it", "wese it"),
        ("a long day", "along day"),
        ("the fox ran", "the big fox ran"),
        ("so we all ran", "we ran"),
        ("the the fox", "the fox"),
        ("some one here", "someone hear"),
    ],
)
def test_what_was_heard_takes_the_place_of_what_was_written_word_for_word(said, written):
    utterance = hear(said, written)
    assert corrected(utterance, replace=0.5, remove=0.5, insert=0.5) == said
    covered = [n for finding in find_corrections(utterance) for n in range(finding.first, finding.stop)]
    assert len(covered) == len(set(covered))


@pytest.mark.parametrize("seed", range(60))
def test_any_sure_hearing_is_written_without_repeated_words(seed):
    """Corrections of a made-up transcript never write a word that was not heard, nor a heard one twice."""
    generator = torch.Generator().manual_seed(seed)

    def sentence():
        lengths = torch.randint(1, 5, (int(torch.randint(1, 5, (), generator=generator)),), generator=generator)
        return " ".join(
            "".join(LETTERS[int(i)] for i in torch.randint(2, 6, (int(n),), generator=generator)) for n in lengths
        )

    utterance = hear(sentence(), sentence())
    heard, written = Counter(utterance.heard.split()), Counter(utterance.text.split())
    after = Counter(corrected(utterance, replace=0.0, remove=0.0, insert=0.0).split())
    assert not after - (heard + written)
    new = [word for finding in find_corrections(utterance) for word in finding.heard]
    assert not Counter(new) - heard


def test_pieces_of_words_are_corrected_like_characters():
    pieces = ["<blank>", "▁the", "▁qu", "ick", "ack", "▁fox"]
    assert corrected(hear("the quick fox", "the quack fox", pieces)) == "the quick fox"
    assert corrected(hear("the fox", "the quack fox", pieces)) == "the fox"
    assert corrected(hear("the quick fox", "the fox", pieces)) == "the quick fox"


def test_a_score_below_the_threshold_changes_nothing():
    utterance = probed("a", "the quick brown fox", {1: "quack"})
    [score] = {finding.score for finding in find_corrections(utterance)}
    for least, text in ((score - 0.001, "the quack brown fox"), (score + 0.001, None)):
        assert make_plan(utterance, utterance.text, Thresholds(replace=least), KNOWN).text == text


def test_only_words_that_the_transcripts_have_are_written():
    utterance = probed("a", "the quick brown fox", {1: "quack"})
    for count, text, unknown in ((3, "the quack brown fox", 0), (2, None, 1)):
        plan = make_plan(utterance, utterance.text, Thresholds(), Counter({"quack": count}))
        assert (plan.text, plan.unknown) == (text, unknown)


def test_what_was_heard_stands_beside_what_is_written_where_neither_is_sure():
    utterance = probed("a", "the quick brown fox", {1: "quack", 3: ""})
    offered = make_plan(utterance, "The quick, brown fox", Thresholds(replace=None, either=0.1), Counter())
    assert offered.text == "The {quick,|quack} brown fox"
    assert [change[1:4] for change in offered.changes] == [("either", "quick,", "quack")]
    assert (offered.weights, offered.unknown) == (None, 0)
    rare = make_plan(utterance, utterance.text, Thresholds(either=0.1), Counter())  # too rare to be written alone
    assert (rare.text, rare.unknown) == ("the {quick|quack} brown fox", 0)
    sure = make_plan(utterance, utterance.text, Thresholds(either=0.1), KNOWN)
    assert sure.text == "the quack brown fox"
    with_braces = make_plan(utterance, "the quick brown\\} fox", Thresholds(replace=None, either=0.1), Counter())
    assert with_braces is None or with_braces.text is None


def test_capitals_and_punctuation_stay_and_new_words_have_the_case_of_the_manifest():
    utterance = probed("a", "THE QUICK BROWN FOX", {1: "QUACK"})
    plan = make_plan(utterance, "The quick,  brown Fox.", Thresholds(), Counter({"QUACK": 5}), str.lower)
    assert plan.text == "The quack brown Fox."
    assert [(c.before, c.after) for c in plan.changes] == [("quick,", "quack")]
    assert len(plan.weights) == 4


def test_a_transcript_of_which_next_to_nothing_was_heard_is_kept_unless_told():
    utterance = probed("a", "quick fox", {0: "", 1: ""})
    kept = make_plan(utterance, utterance.text, Thresholds(remove=0.5), KNOWN)
    assert (kept.text, kept.weights, kept.dropped, kept.changes) == (None, [0.0, 0.0], False, [])
    dropped = make_plan(utterance, utterance.text, Thresholds(drop=None, drop_unheard=True), KNOWN)
    assert dropped.dropped
    assert dropped.changes[0].reason == "the model heard next to nothing of it"


def test_a_transcript_that_would_lose_all_words_is_dropped_or_stays():
    utterance = probed("a", "quick fox", {0: "", 1: ""})
    utterance.heard = "e e e"  # sounds that belong to no word
    kept = make_plan(utterance, utterance.text, Thresholds(drop=None, remove=0.5, insert=None), KNOWN)
    assert (kept.text, kept.dropped, kept.changes) == (None, False, [])
    dropped = make_plan(utterance, utterance.text, Thresholds(drop=9.9, remove=0.5, insert=None), KNOWN)
    assert dropped.dropped
    assert dropped.changes[0].reason == "no word of it was heard"


def test_words_of_which_nothing_was_heard_are_removed_only_when_told():
    utterance = probed("a", "the quick brown fox", {2: ""})
    assert make_plan(utterance, utterance.text, Thresholds(), KNOWN).text is None
    assert make_plan(utterance, utterance.text, Thresholds(remove=0.9), KNOWN).text == "the quick fox"


def test_weights_are_the_log_odds_of_being_wrong():
    utterance = probed("a", "the quick brown fox", {1: "quack"})
    doubts = torch.tensor(word_doubts(utterance), dtype=torch.float64)
    kept = Thresholds(replace=None)
    weights = make_plan(utterance, utterance.text, kept, KNOWN).weights
    assert weights == pytest.approx(torch.logit(doubts).clamp(-5, 5).tolist(), abs=1e-3)
    assert weights[1] > 2 > -2 > weights[0]
    shifted = make_plan(utterance, utterance.text, Thresholds(replace=None, weights=0.1), KNOWN).weights
    expected = (torch.logit(doubts) - torch.logit(torch.tensor(0.1).double())).clamp(-5, 5)
    assert shifted == pytest.approx(expected.tolist(), abs=1e-3)
    replaced = make_plan(utterance, utterance.text, Thresholds(), KNOWN)
    assert replaced.weights == [weights[0], 0.0, *weights[2:]]


def test_doubts_are_probabilities_and_highest_where_something_else_was_heard():
    for utterance in (
        probed("a", "the quick brown fox", {1: "quack", 3: ""}, {2: "so"}),
        hear("i scream", "ice cream"),
    ):
        doubts = word_doubts(utterance)
        assert len(doubts) == len(utterance.words)
        assert all(0 <= doubt <= 1 for doubt in doubts)
    doubts = word_doubts(probed("a", "the quick brown fox", {1: "quack", 3: ""}))
    assert min(doubts[1], doubts[3]) > 0.9 > 0.1 > max(doubts[0], doubts[2])


def test_a_cut_with_several_supervisions_loses_the_dropped_and_keeps_the_others(tmp_path):
    source = {"type": "file", "channels": [0], "source": "a.wav"}
    recording = {"id": "r", "sources": [source], "sampling_rate": 16000, "num_samples": 64000, "duration": 4.0}
    said = [
        {"id": id, "recording_id": "r", "start": float(n), "duration": 1.0, "channel": 0, "text": text}
        for n, (id, text) in enumerate([("one", "the quick fox"), ("two", "so so"), ("three", "a fox")])
    ]
    cut = {"id": "c", "start": 0.0, "duration": 4.0, "channel": 0, "supervisions": said, "recording": recording}
    write_rows(tmp_path / "cuts.jsonl", [cut | {"type": "MonoCut"}])
    utterances = [probed("one", "the quick fox", {1: "quack"}), probed("two", "so so", {0: "ak", 1: "ik"})]
    utterances.append(probed("three", "a fox"))
    write_probe(tmp_path / "probe.jsonl", {"manifest": "cuts.jsonl", "self_loop": 0.0}, utterances)
    cleaned = clean(tmp_path / "probe.jsonl", tmp_path / "out.jsonl", Thresholds(known=0))
    assert cleaned.kept == 2
    before = {u.id: u for u in load_manifest(tmp_path / "cuts.jsonl")}
    after = {u.id: u for u in load_manifest(tmp_path / "out.jsonl")}
    assert {id: u.text for id, u in after.items()} == {"one": "the quack fox", "three": "a fox"}
    assert all((u.start, u.duration, u.audio) == (before[id].start, before[id].duration, before[id].audio)
               for id, u in after.items())  # fmt: skip
    assert [len(u.weights) for u in after.values()] == [3, 2]
    assert json.loads((tmp_path / "out.jsonl").read_text())["supervisions"][0]["custom"]["weights"][1] == 0.0


def test_a_probe_that_doubts_everything_is_refused(tmp_path):
    write_rows(tmp_path / "train.jsonl", [{"id": "a", "audio": "a.wav", "text": "so so", "duration": 1.0}])
    write_probe(tmp_path / "probe.jsonl", {"manifest": "train.jsonl"}, [probed("a", "so so", {0: "a", 1: "b"})])
    with pytest.raises(WildCTCError, match="every utterance would be dropped"):
        clean(tmp_path / "probe.jsonl", tmp_path / "out.jsonl")
    assert read_rows(tmp_path / "train.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_change_that_helps_one_that_harms_and_one_that_does_neither_are_told_apart():
    before = {"a": "the cat sad down", "b": "noise", "c": "we want home"}
    after = {"a": "the cat sat", "c": "we wend home"}
    truth = {"a": "the cat sat down", "b": "good day", "c": "we went home"}
    found = judge(before, after, truth)
    assert (found.right, found.wrong, found.neither) == ({"replaced": 1}, {"removed": 1}, {"replaced": 1})
    assert (found.kept.total, found.after.total, found.dropped.total) == (2, 2, 2)
    assert found.precision == pytest.approx(1 / 3)
    with pytest.raises(WildCTCError, match="no true transcript of 'b'"):
        judge(before, after, {"a": "x", "c": "y"})
