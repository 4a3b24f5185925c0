"""Experiments at the size of a test: a corpus of tones, tiny models, and commands that run in this process."""

import contextlib
import json
from pathlib import Path

from support.tones import make_corpus, read_rows
from wildctc.cli import main
from wildctc.errors import Diverged, WildCTCError
from wildctc.experiments.subprocesses import Commands, last_words

WORDS = """--features.name fbank --features.num_bins 40 --encoder.d_model 16 --encoder.heads 2 --encoder.blocks 1
--encoder.ff_dim 32 --encoder.kernel 7 --data.batch_seconds 6 --data.workers 0 --optimizer.warmup_steps 10
--optimizer.lr 1e-2 --training.average 1"""
TINY = WORDS.split()
SHORT = ["--training.epochs", "3", "--training.ctc_epochs", "1"]


def speech(folder: Path) -> Path:
    """A corpus with one manifest for all splits, as Iban has it."""
    sizes = {"train": 30, "dev": 8, "test": 12}
    make_corpus(folder, sizes)
    rows = [row | {"split": split} for split in sizes for row in read_rows(folder / f"{split}.jsonl")]
    for split in sizes:
        (folder / f"{split}.jsonl").unlink()
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def reproduce(*words: object) -> int:
    return main(["reproduce", *map(str, words)])


class InProcess:
    """Takes the place of `Commands.run`: saves the seconds that a process takes to start, and notes the commands.

    before(words): may raise, in place of the command.
    """

    def __init__(self, before=lambda words: None) -> None:
        self.done: list[list[str]] = []
        self.before = before

    def __call__(self, commands: Commands, words, log: Path, environment) -> None:
        words = [str(word) for word in words]
        self.done.append(words)
        self.before(words)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out, contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
            code = main(words)
        if code:
            raise (Diverged if code == 3 else WildCTCError)(last_words(log))

    def of(self, command: str) -> list[list[str]]:
        return [words for words in self.done if words[0] == command]


def install(monkeypatch, before=lambda words: None) -> InProcess:
    runs = InProcess(before)
    monkeypatch.setattr(Commands, "run", lambda self, *given: runs(self, *given))
    return runs
