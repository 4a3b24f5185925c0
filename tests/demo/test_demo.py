"""The demo: annotators with habits and slips, stages that are done once, a story whose words follow its numbers."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from support import tones

from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.demo.findings import ErrorRates, Suspect
from wildctc.demo.processes import together
from wildctc.demo.sentences import VARIANTS, sentences
from wildctc.demo.simulated_annotators import Annotator, garble, slip, spoil
from wildctc.demo.spoken_corpus import VALIDATORS, WRONG, CorpusSize, make_corpus, read_truth, spellings, text
from wildctc.demo.stages import Stage, run_stages
from wildctc.demo.story import chance, hits, tell_errors, tell_suspects
from wildctc.errors import WildCTCError
from wildctc.files import make_folder, only_one
from wildctc.scoring.comparison import compare
from wildctc.scoring.hypotheses import Decoded

TINY = CorpusSize(train=60, dev=8, test=10, voices=12)

# ----------------------------------------------------------------------------------------------------------- annotation


def test_each_spelling_variant_occurs_and_belongs_to_one_word():
    said = Counter(word for sentence in sentences(3000, seed=0) for word in sentence.split())
    assert all(said[word] > 5 for word in VARIANTS)
    others = [other for alternatives in VARIANTS.values() for other in alternatives]
    assert len(set(others)) == len(others)
    assert not set(others) & set(said)  # so what an annotator wrote says which word he heard


def test_annotators_keep_to_habits_of_their_own():
    rng = random.Random(0)
    said = " ".join(VARIANTS)
    ann, ben = Annotator("ann", 1), Annotator("ben", 1)
    first, second = ([word.written for word in ann.write(said, rng)] for _ in range(2))
    other = [word.written for word in ben.write(said, rng)]
    same = sum(a == b for a, b in zip(first, second, strict=True)) / len(VARIANTS)
    assert same > 0.75
    assert sum(a == b for a, b in zip(first, other, strict=True)) / len(VARIANTS) < same


def test_slips_and_wrong_words_are_never_what_was_said():
    rng = random.Random(0)
    ann = Annotator("ann", 1)
    transcripts = [ann.write(sentence, rng) for sentence in sentences(500, seed=0)]
    spoiled = spoil(transcripts, 0.1, rng)
    words = [word for transcript in spoiled for word in transcript]
    assert Counter(word.kind for word in words)["wrong"] == round(0.1 * len(words))
    for word in words:
        accepted = word.written in (word.spoken, *VARIANTS.get(word.spoken, ()))
        assert accepted == (word.kind in ("right", "variant")), word
        assert (word.written == word.spoken) == (word.kind == "right"), word
    for word in VARIANTS:
        assert len(word) - 3 <= len(slip(word, rng)) <= len(word) + 1
        assert garble(word, rng).isalpha()


def test_the_corpus_is_what_its_truth_says_and_the_same_each_time(tmp_path):
    for name in ("a", "b"):
        make_corpus(tmp_path / name, TINY, seed=5)
    files = [{p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file() and p.suffix != ".gz"}
             for f in (tmp_path / "a", tmp_path / "b")]  # fmt: skip
    assert files[0] == files[1]  # but for the manifests, which hold the folder's path
    truth = read_truth(tmp_path / "a")
    splits = {name: load_manifest(tmp_path / f"a/{name}.jsonl.gz") for name in ("train", "dev", "test")}
    assert [len(utterances) for utterances in splits.values()] == [TINY.train, TINY.dev, TINY.test]
    for name, utterances in splits.items():
        kinds = Counter(word.kind for u in utterances for word in truth[u.id])
        assert kinds["wrong"] == (round(WRONG * kinds.total()) if name == "train" else 0)
        assert all(u.text == text(truth[u.id]) for u in utterances)
    written = {}
    for name in VALIDATORS:
        rows = [json.loads(line) for line in (tmp_path / f"a/validators/{name}.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == [u.id for u in splits["test"]]
        written[name] = [row["text"] for row in rows]
    assert len({tuple(texts) for texts in written.values()}) == len(VALIDATORS)


def test_accepted_spellings_are_all_combinations():
    found = spellings("a grey yoghurt")
    assert len(found) == 6
    assert found[0] == "a grey yoghurt"
    assert "a gray yoghourt" in found


# --------------------------------------------------------------------------------------------------------------- stages


def test_a_stage_that_is_done_is_not_repeated_and_one_that_failed_is(tmp_path):
    calls, said = [], []

    def second():
        calls.append("second")
        if len(calls) < 3:
            raise WildCTCError("no")
        return "fine"

    stages = [Stage("one", lambda: str(calls.append("first") or "good")), Stage("two", second)]
    with pytest.raises(WildCTCError, match="no"):
        run_stages(tmp_path / "demo", "s", stages, said.append)
    run_stages(tmp_path / "demo", "s", stages, said.append)
    run_stages(tmp_path / "demo", "s", stages, said.append)
    assert calls == ["first", "second", "second"]
    assert ["done before" in line for line in said] == [False, True, False, True, True]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(WildCTCError, match="not the folder of a demo"):
        run_stages(tmp_path, "s", [])
    run_stages(tmp_path / "demo", "s", [])
    with pytest.raises(WildCTCError, match="other settings"):
        run_stages(tmp_path / "demo", "t", [])
    (tmp_path / "demo" / "stages.json").write_text("{")
    with pytest.raises(WildCTCError, match=r"stages\.json: cannot be read"):
        run_stages(tmp_path / "demo", "s", [])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["demo", "thesis.tex"]


def test_a_command_that_fails_stops_the_others_and_has_the_last_word(tmp_path):
    corpus = tones.make_corpus(tmp_path / "tones")
    long = ["train", str(corpus), "--out", str(tmp_path / "long"), "--training.epochs", "100000"]
    bad = ["train", str(corpus), "--out", str(tmp_path / "bad"), "--data.dir", str(tmp_path / "nowhere")]
    with pytest.raises(WildCTCError, match=r"^no manifest .*nowhere/train\.jsonl.*\(whole log: .*logs/bad\.txt\)$"):
        together({"long": long, "bad": bad}, tmp_path / "logs")
    with only_one(make_folder(tmp_path / "long") / ".lock"):  # nobody trains there any more
        pass


# ---------------------------------------------------------------------------------------------------------------- story


def suspects_of(kinds: str) -> list[Suspect]:
    names = {"w": "wrong", "s": "slip", "v": "variant", ".": "right"}
    return [Suspect("u", "written", "heard", "said", names[k], 1 - n / 1000) for n, k in enumerate(kinds)]


def test_suspects_are_counted_against_chance():
    ranked = suspects_of("w" * 30 + "s" * 15 + "." * 455 + "w" * 10)
    assert (hits(ranked), chance(ranked)) == (30, 50 * 40 / 510)
    told = tell_suspects({"ctc": ranked[::-1], "otc": ranked})
    assert "40 of 510 words" in told
    assert "Of the 50 words that otc finds most suspicious, 30 are among them (chance: 3.9)" in told
    assert "15 slips of annotators, 5 written as they were said" in told
    rows = [line.split() for line in told.splitlines()[-3:]]
    assert rows == [["ctc", "10", "10"], ["otc", "30", "30"], ["chance", "3.9", "3.1"]]


def rates_of(wrong: dict[str, int]) -> ErrorRates:
    """Systems that get so many of 100 one-word utterances wrong."""
    systems = {name: [Decoded(str(i), "b" if i < n else "a", ("a",)) for i in range(100)] for name, n in wrong.items()}
    found = compare(systems, resamples=200)
    return ErrorRates(found, found)


def test_the_words_follow_the_numbers():
    assert "otc makes 75% fewer errors than ctc" in tell_errors(rates_of({"ctc": 40, "otc": 10}))
    assert "otc makes 300% more errors than ctc" in tell_errors(rates_of({"ctc": 10, "otc": 40}))
    assert "otc and ctc do not differ reliably" in tell_errors(rates_of({"ctc": 10, "otc": 10}))


# ---------------------------------------------------------------------------------------------------------- end to end


@pytest.mark.slow
@pytest.mark.timeout(3600)  # two minutes on two free cores
def test_the_small_demo_finds_the_wrong_words_and_does_nothing_twice(tmp_path, capsys):
    folder = str(tmp_path / "demo")
    assert main(["demo", "--size", "small", "--out", folder]) == 0  # at five times chance, or else 2
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    for part in ("deliberately mis-transcribed", "true text", "curves.svg", "audit/index.html", "All in"):
        assert part in told.out
    assert (tmp_path / "demo/story.txt").read_text() == told.out
    assert (tmp_path / "demo/audit/index.html").exists()
    before = {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.name != "story.txt"}
    assert main(["demo", "--size", "small", "--out", folder]) == 0
    again = capsys.readouterr().out
    assert again.count("done before") == 6  # stages
    assert {path: path.stat().st_mtime_ns for path in before} == before
