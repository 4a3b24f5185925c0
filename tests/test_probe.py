"""The probe: its numbers, what it says was heard, its file, and the command that makes it."""

import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tones import make_corpus, read_rows, write_rows

from wildctc import Wildcards, wildcard_posteriors, word_ids
from wildctc.audit.heard import lay
from wildctc.audit.probe import probe_logits, read_probe, write_probe
from wildctc.cli import main
from wildctc.errors import WildCTCError

TOKENS = "_ abcdef"


def batch(seed: int = 0, size: int = 3, frames: int = 30, spread: float = 3.0):
    """Random logits with random transcripts of words, and their lengths."""
    generator = torch.Generator().manual_seed(seed)
    texts = ["ab cd", "fade", "a be cab ed"][:size]
    targets = torch.cat([torch.tensor([TOKENS.index(c) for c in text]) for text in texts])
    logits = spread * torch.randn(frames, size, len(TOKENS), generator=generator)
    return texts, logits, targets, [frames, frames - 5, frames - 2][:size], [len(text) for text in texts]


@pytest.mark.parametrize("self_loop", [0.0, -2.0, None])
def test_tokens_are_probed_on_the_graph_of_tokens_and_words_on_that_of_words(self_loop):
    texts, *given = batch()
    found = probe_logits(*given, tokens=TOKENS, self_loop=self_loop)
    words = torch.tensor([w for text in texts for w in word_ids(text, space=" ")])
    by_token = wildcard_posteriors(*given, wildcards=Wildcards(bypass=0.0, self_loop=self_loop))
    graph = Wildcards(word_bypass=0.0, self_loop=self_loop, self_loop_at="word")
    by_word = wildcard_posteriors(*given, wildcards=graph, words=words)
    for n, (text, utterance) in enumerate(zip(texts, found, strict=True)):
        assert utterance.text == text
        assert [t.bypass for t in utterance.tokens] == pytest.approx(by_token.bypass[n, : len(text)].tolist())
        assert [w.bypass for w in utterance.words] == pytest.approx(
            by_word.word_bypass[n, : len(text.split())].tolist()
        )
        gaps = [0.0] * (len(text) + 1) if self_loop is None else by_token.self_loop[n, : len(text) + 1].tolist()
        assert utterance.gaps == pytest.approx(gaps)


def test_padding_and_neighbours_change_nothing():
    _, logits, targets, frames, lengths = batch()
    together = probe_logits(logits, targets, frames, lengths, tokens=TOKENS)
    for n, part in enumerate(targets.split(lengths)):
        [alone] = probe_logits(logits[: frames[n], n], part, [frames[n]], [lengths[n]], tokens=TOKENS)
        assert vars(alone) | {"id": str(n)} == vars(together[n])
    padded = torch.nn.utils.rnn.pad_sequence(targets.split(lengths), batch_first=True, padding_value=7)
    assert probe_logits(logits, padded, frames, lengths, tokens=TOKENS) == together


@settings(deadline=None, max_examples=60)
@given(
    text=st.text(" abcdef", max_size=12).map(lambda text: " ".join(text.split())),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.5, 3.0, 20.0]),
)
def test_what_is_said_of_an_utterance_hangs_together(text, seed, spread):
    logits = spread * torch.randn(24, len(TOKENS), generator=torch.Generator().manual_seed(seed))
    targets = torch.tensor([TOKENS.index(c) for c in text], dtype=torch.int64)
    [found] = probe_logits(logits, targets, [24], [len(text)], tokens=TOKENS, frame_rate=10.0)
    assert [t.text for t in found.tokens] == list(text)
    assert [w.text for w in found.words] == text.split()
    heard = [part for k, t in enumerate(found.tokens) for part in (found.between[k], t.heard)]
    assert "".join([*heard, found.between[-1]]) == found.heard == " ".join(found.heard.split())
    assert all(0 <= unit.bypass <= 1 for unit in [*found.tokens, *found.words])
    assert len(found.gaps) == len(found.between) == len(text) + 1
    times = [time for t in found.tokens for time in (t.start, t.end)]
    assert times == sorted(times)
    assert all(-1e-9 <= time <= 2.4 + 1e-9 for time in times)
    for word in found.words:
        assert text[word.begin : word.stop] == word.text
        assert found.tokens[word.last].stop == word.stop
        assert found.tokens[word.first].begin == word.begin - (found.tokens[word.first].text == " ")
        assert not word.heard or f" {word.heard} " in f" {found.heard} "


def test_pieces_are_spelled_with_spaces_and_without_the_first():
    pieces = ["<blank>", "▁he", "llo", "▁wor", "ld"]
    logits = 9.0 * torch.nn.functional.one_hot(torch.tensor([1, 2, 0, 3, 4]), 5).float()
    [found] = probe_logits(logits, torch.tensor([1, 2, 3, 4]), [5], [4], tokens=pieces)
    assert [(t.text, t.begin, t.stop) for t in found.tokens] == [
        ("he", 0, 2), ("llo", 2, 5), (" wor", 5, 9), ("ld", 9, 11),
    ]  # fmt: skip
    assert [(w.text, w.begin, w.stop, w.first, w.last, w.heard) for w in found.words] == [
        ("hello", 0, 5, 0, 1, "hello"), ("world", 6, 11, 2, 3, "world"),
    ]  # fmt: skip


def test_a_token_is_heard_as_what_stands_in_its_place_and_what_is_attached_to_it():
    def heard(said, written):
        frames = torch.tensor([TOKENS.index(c) for c in said])
        logits = 12.0 * torch.nn.functional.one_hot(frames, len(TOKENS)).float()
        targets = torch.tensor([TOKENS.index(c) for c in written])
        [found] = probe_logits(logits, targets, [len(said)], [len(written)], tokens=TOKENS)
        return [t.heard for t in found.tokens], found.between

    assert heard("f_a_d_e_", "fade") == (list("fade"), [""] * 5)
    assert heard("f_e_d_e_", "fade") == (list("fede"), [""] * 5)
    assert heard("f_c_e_d_e_", "fade") == (["f", "ce", "d", "e"], [""] * 5)
    assert heard("f_a_b_d_e_", "fade") == (list("fade"), ["", "", "b", "", ""])
    assert heard("f_a_e_ _b", "fade b")[0] == ["f", "a", "", "e", " ", "b"]


@pytest.mark.parametrize(
    ("written", "heard", "written_at", "heard_at", "partner"),
    [
        ("aa", "a", [0, 9], [8], [-1, 0]),  # of equal edits the nearest in time
        ("aa", "a", [0, 9], [1], [0, -1]),
        ("a b", "ab", [0, 1, 2], [0, 2], [0, -1, 1]),  # a space never stands for a letter
        ("a", " ", [0], [0], [-1]),
        ("", "ab", [], [0, 1], []),
        ("ab", "", [0, 1], [], [-1, -1]),
    ],
)
def test_heard_text_is_laid_beside_the_written_one(written, heard, written_at, heard_at, partner):
    assert lay(written, heard, written_at, heard_at).partner == partner


def test_an_utterance_without_a_path_gives_none():
    _, logits, targets, frames, lengths = batch()
    found = probe_logits(logits, targets, [frames[0], 3, frames[2]], lengths, tokens=TOKENS)
    assert [utterance is None for utterance in found] == [False, True, False]


def test_a_written_probe_is_read_again(tmp_path):
    _, *given = batch()
    probed = probe_logits(*given, tokens=TOKENS, frame_rate=20.0)
    write_probe(tmp_path / "p.jsonl", {"self_loop": 0.0}, probed)
    header, again = read_probe(tmp_path / "p.jsonl")
    assert header == {"format": 1, "self_loop": 0.0, "left_out": {}}
    assert [u.heard for u in again] == [u.heard for u in probed]
    for a, b in zip(again, probed, strict=True):
        assert [t.bypass for t in a.tokens] == pytest.approx([t.bypass for t in b.tokens], rel=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty; make it with `wildctc probe`"),
        ('{"id": "a"}\n', "not a probe"),
        ('{"probe": {"format": 99}}\n', "format 99 of a probe, this version reads 1"),
        ('{"probe": {"format": 1}}\n{"id": "a"}\n', "p.jsonl:2: not a row of a probe"),
    ],
)
def test_a_file_that_is_no_probe_is_refused_in_one_line(content, message, tmp_path):
    (tmp_path / "p.jsonl").write_text(content)
    with pytest.raises(WildCTCError, match=message):
        read_probe(tmp_path / "p.jsonl")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained run, and a test manifest in which one letter is wrong and one word was not said."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("probe")
    recipe = make_corpus(folder)
    words = ["train", str(recipe), "--out", str(folder / "run"), "--training.epochs", "7", "--data.workers", "0"]
    assert main(words) == 0
    rows = read_rows(folder / "test.jsonl")
    first = rows[1]["text"]
    rows[1] |= {"text": ("b" if first[0] == "a" else "a") + first[1:], "truth": first}
    rows[2] |= {"text": f"{rows[2]['text']} cab", "truth": rows[2]["text"]}
    write_rows(folder / "wrong.jsonl", rows)
    return folder


def probe(folder, *options, manifest="wrong.jsonl", output="p.jsonl"):
    words = ["probe", str(folder / "run"), str(folder / manifest), "-o", str(folder / output), "--workers", "0"]
    return main([*words, *map(str, options)])


def test_the_command_finds_the_wrong_letter_and_the_word_that_was_not_said(trained, capsys):
    assert probe(trained) == 0
    assert capsys.readouterr().out.endswith("p.jsonl: 10 utterances\n")
    header, found = read_probe(trained / "p.jsonl")
    assert [u.id for u in found] == [row["id"] for row in read_rows(trained / "wrong.jsonl")]
    assert header["self_loop"] == 0.0
    assert header["model"] == str(trained / "run")
    letters = [(t.bypass, u.id, t.begin) for u in found for t in u.tokens]
    assert max(x for x in letters if x[1] != "test2")[1:] == ("test1", 0)
    assert found[2].words[-1].bypass > 0.9
    assert found[2].words[-1].heard == ""
    assert found[1].heard == read_rows(trained / "wrong.jsonl")[1]["truth"]
    assert (found[1].audio, found[1].speaker) == (str(trained / "test1.wav"), "tone")
    assert found[1].duration == pytest.approx(0.12 * len(found[1].text), abs=0.01)
    # a letter is 0.12 s, and the model marks it somewhere within
    assert all(abs((t.start + t.end) / 2 - 0.12 * (t.begin + 0.5)) < 0.08 for u in found[3:] for t in u.tokens)
    assert all(0 <= t.start < t.end <= u.duration for u in found for t in u.tokens)


def test_a_finished_probe_is_not_made_again(trained, capsys):
    probe(trained)
    before = (trained / "p.jsonl").stat().st_mtime_ns
    assert probe(trained) == 0
    assert "complete already" in capsys.readouterr().out
    assert (trained / "p.jsonl").stat().st_mtime_ns == before


def test_an_interrupted_probe_goes_on_where_it_stopped(trained, capsys):
    probe(trained)
    whole = (trained / "p.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    # as a killed process leaves it: some rows, the last one cut off; and another process's part
    (trained / "q.jsonl.0.partial").write_bytes(b"".join([lines[0], lines[4], lines[2], lines[3][:50]]))
    marked = lines[7].replace(b'"speaker": "tone"', b'"speaker": "kept"')
    (trained / "q.jsonl.1.partial").write_bytes(lines[0] + marked)
    assert probe(trained, output="q.jsonl") == 0
    again = (trained / "q.jsonl").read_bytes()
    assert again == whole.replace(lines[7], marked)  # what was done is not done again
    assert not list(trained.glob("q.jsonl.*"))


def test_two_commands_do_not_write_the_same_probe(trained, capsys):
    holder = """
import fcntl, sys, time
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""
    part = trained / "both.jsonl.0.partial"
    with subprocess.Popen([sys.executable, "-c", holder, str(part)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        assert probe(trained, output="both.jsonl") == 2
        process.kill()
    assert "both.jsonl.0.partial: another process is writing it" in capsys.readouterr().err
    assert probe(trained, output="both.jsonl") == 0


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        (["--self-loop", "none"], None, "made with another self-loop weight"),
        ([], "text", "made with another manifest"),
        ([], "model", "made with another model"),
    ],
)
def test_a_probe_of_something_else_is_refused_and_kept(trained, capsys, options, change, message):
    probe(trained)
    before = (trained / "p.jsonl").read_bytes()
    manifest = "wrong.jsonl"
    if change == "text":
        manifest = "test.jsonl"
    if change == "model":
        changed = before.replace(json.loads(before.split(b"\n")[0])["probe"]["weights"].encode(), b"other")
        (trained / "p.jsonl").write_bytes(changed)
    assert probe(trained, *options, manifest=manifest) == 2
    assert message in capsys.readouterr().err
    (trained / "p.jsonl").write_bytes(before)


def test_without_self_loops_there_is_no_extra_audio(trained):
    assert probe(trained, "--self-loop", "none", output="none.jsonl") == 0
    header, found = read_probe(trained / "none.jsonl")
    assert header["self_loop"] is None
    assert not any(gap for u in found for gap in u.gaps)


def test_utterances_that_cannot_be_probed_are_reported_and_the_rest_is_there(trained, capsys):
    rows = read_rows(trained / "test.jsonl")
    rows[0] |= {"text": "a" * 200}
    rows[1] |= {"text": "zebra"}
    rows[2] |= {"audio": "gone.wav"}
    rows[3] |= {"text": ""}  # can be probed: all of it is unwritten
    write_rows(trained / "bad.jsonl", rows)
    assert probe(trained, manifest="bad.jsonl", output="bad-p.jsonl") == 2
    assert "3 of 10 utterances cannot be used" in capsys.readouterr().err
    assert probe(trained, "--max-bad", "0.5", manifest="bad.jsonl", output="bad-p.jsonl") == 0
    said = capsys.readouterr()
    assert "7 utterances, 3 left out (complete already" in said.out
    for reason in (
        "transcript too long for its audio: needs 399",
        "outside the units: z (U+007A), r (U+0072)",
        "no such",
    ):
        assert reason in said.err
    header, found = read_probe(trained / "bad-p.jsonl")
    assert set(header["left_out"]) == {"test0", "test1", "test2"}
    assert [u.id for u in found] == [f"test{i}" for i in range(3, 10)]
    assert found[0].gaps[0] > 1
    assert found[0].between == [found[0].heard]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--self-loop", "inf"], "must be a number or none"),
        (["--self-loop", "much"], "invalid"),
        (["--workers", "-1"], "--workers must be at least 0"),
        (["--hf", "--cache", "c"], "--cache is for the features of a RUN"),
    ],
)
def test_wrong_options_are_one_line(trained, capsys, options, message):
    assert probe(trained, *options, output="never.jsonl") == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not (trained / "never.jsonl").exists()


@pytest.mark.slow
def test_two_processes_make_the_same_file_as_one(trained):
    probe(trained)
    words = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29631", "-m", "wildctc", "probe"]
    words += [str(trained / "run"), str(trained / "wrong.jsonl"), "-o", str(trained / "two.jsonl"), "--workers", "0"]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("two.jsonl: 10 utterances") == 1
    _, one = read_probe(trained / "p.jsonl")
    _, two = read_probe(trained / "two.jsonl")
    assert [u.heard for u in two] == [u.heard for u in one]
    for a, b in zip(one, two, strict=True):  # batches differ, and with them the last bits
        assert [t.bypass for t in a.tokens] == pytest.approx([t.bypass for t in b.tokens], rel=1e-3, abs=1e-6)
