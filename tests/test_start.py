"""What needs no model starts at once: torch, which takes seconds to import, stays out."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from support.hyp_files import decoded, write_hyps
from support.probes import RATE, SCRIPTS, probed, voice
from support.probes import write as write_probe

import wildctc
from wildctc.commands import COMMANDS

# What takes long to import, or is not always installed.
HEAVY = {"torch", "transformers", "lhotse", "onnxruntime", "scipy", "sklearn", "pandas", "matplotlib", "tensorboard"}
RUN = f"""
import resource, sys
from wildctc.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print("imported:", *sorted({HEAVY} & set(sys.modules)), file=sys.stderr)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, file=sys.stderr)
sys.exit(code)
"""


def run(words, folder):
    """The heavy modules that a command imports, and the seconds of processor time that it takes."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *_, imported, seconds = done.stderr.splitlines()
    return imported.removeprefix("imported:").split(), float(seconds)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Hypotheses, a manifest with its sound, its probe, and the transcripts of two annotators."""
    folder = tmp_path_factory.mktemp("start")
    for name in ("a", "b"):
        write_hyps(folder / f"{name}.jsonl", decoded("a b c x", "a b c d", "a d"))
    utterance = probed("u0", "the quick brown fox", {1: "quack"}, audio="u0.wav")
    soundfile.write(folder / "u0.wav", voice(utterance), RATE)
    row = {"id": "u0", "audio": "u0.wav", "text": utterance.text, "duration": utterance.duration, "split": "train"}
    (folder / "manifest.jsonl").write_text(json.dumps(row) + "\n")
    write_probe(folder, [utterance, SCRIPTS["hindi"]])
    decision = {"id": "u0", "decision": "fix", "text": utterance.text, "fixed": "the quack brown fox"}
    (folder / "decisions.jsonl").write_text(json.dumps(decision) + "\n")
    (folder / "ann.tsv").write_text("u0\tthe quick brown fox\tann\nu0\tthe quack brown fox\tbob\n")
    (folder / "speech").mkdir()
    soundfile.write(folder / "speech/u0.wav", voice(utterance), RATE)
    rows = [row | {"id": split, "split": split} for split in ("train", "dev", "test")]
    (folder / "speech/manifest.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "score a.jsonl",
        "compare a.jsonl b.jsonl",
        "disagree --reference manifest.jsonl --validators ann.tsv",
        "clean probe.jsonl -o clean.jsonl --manifest manifest.jsonl",
        "corrupt manifest.jsonl -o corrupted.jsonl --words 0.5",
        "audit probe.jsonl -o report",
        "apply-fixes manifest.jsonl decisions.jsonl -o fixed.jsonl",
        "prepare jsonl speech data",
    ],
)
def test_a_command_without_a_model_does_not_import_torch(files, words):
    assert run(words, files)[0] == []


@pytest.mark.parametrize("words", ["--help", "--version", "score a.jsonl"])
def test_the_command_line_starts_in_a_third_of_a_second(files, words):
    imported, seconds = run(words, files)
    assert imported == []
    assert seconds < 0.3


def test_the_help_of_a_command_does_not_import_torch(tmp_path):
    """Except that of `train`, which lists the criteria and their settings."""
    names = [command.__name__.rsplit(".", 1)[1].replace("_", "-") for command in COMMANDS]
    every = "import sys\nfrom wildctc.cli import main\nfor name in sys.argv[1:]:\n"
    every += "    try: main([name, '--help'])\n    except SystemExit as end: assert end.code == 0, name\n"
    every += "    assert 'torch' not in sys.modules, name\n"
    subprocess.run([sys.executable, "-c", every, *(n for n in names if n != "train")], check=True, capture_output=True)


def test_a_public_name_is_imported_when_it_is_used_and_not_before():
    script = "import sys, wildctc; assert 'torch' not in sys.modules; wildctc.Wildcards; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_each_public_name_is_there_and_completion_offers_it():
    assert set(wildctc.__all__) <= set(dir(wildctc))
    for name in wildctc.__all__:
        assert getattr(wildctc, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        wildctc.nothing  # noqa: B018


def test_type_checkers_see_the_names_that_python_sees():
    """They read the imports under TYPE_CHECKING, Python reads a table."""
    tree = ast.parse(Path(wildctc.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {f"{i.module}.{name.name}" for i in block.body if isinstance(i, ast.ImportFrom) for name in i.names}
    table = {f"wildctc.{home}.{name}" for home, names in wildctc._HOMES.items() for name in names}
    assert seen - {"wildctc.recognizer.model.Recognizer"} == table
    assert {name.rsplit(".", 1)[1] for name in table} | {"__version__", "load"} == set(wildctc.__all__)
