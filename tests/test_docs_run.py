"""Every command on a page of documentation really runs, in the order of the page.

A page's `sh` blocks run one after the other in a new folder that holds `speech/` (a manifest with the splits train,
dev and test, and its audio: `tones.py`) and what `PAGES_RUN` adds for that page. A shipped recipe is shadowed by a file
of its name, which the command finds first: the same settings for a model that trains in seconds. Python blocks that
need what the commands made run between them (`PYTHON_NEEDS_FOLDER`); `test_readme.py` runs the others.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support import miniatures
from support.pages import PAGES, PYTHON_NEEDS_FOLDER, blocks, compiled
from support.tiny_hf import make_checkpoint
from support.tones import RATE, RECIPE, make_corpus, read_rows, say, write_rows

from wildctc.audio.resampling import resample
from wildctc.training.config import apply_arguments, load_recipe, shipped_recipes, to_yaml
from wildctc.training.loop import train

# Lines that cannot run in a test: they install, need a GPU, or start something that a test of its own covers.
NOT_RUN = (
    "pip install ",
    "make ",
    "wildctc selftest --device cuda",
    "wildctc reproduce ",
    "python benchmarks/",
    "lmplz ",
    "wildctc export ",  # tests/recognizer/test_onnx_export.py
)

SMALL = """--encoder.d_model 32 --encoder.heads 2 --encoder.blocks 1 --encoder.ff_dim 64 --encoder.kernel 7
--optimizer.lr 1e-2 --optimizer.warmup_steps 20 --optimizer.decay cosine --data.batch_seconds 8 --data.workers 0
--data.speeds 1.0 --training.epochs 3 --training.ctc_epochs 1 --training.average 1 --training.precision float32
--spec_augment.freq_masks 1 --spec_augment.freq_width 4 --spec_augment.time_masks 1"""


def references(folder: Path) -> None:
    """first.tsv and second.tsv: what two people heard in the test set."""
    rows = [row for row in read_rows(folder / "speech/manifest.jsonl") if row["split"] == "test"]
    for name in ("first.tsv", "second.tsv"):
        (folder / name).write_text("".join(f"{row['id']}\t{row['text']}\n" for row in rows))


def kaldi(folder: Path) -> None:
    """The same speech in data/kaldi/{train,dev,test}, as Kaldi has it."""
    for row in read_rows(folder / "speech/manifest.jsonl"):
        directory = folder / "data/kaldi" / row["split"]
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in (("wav.scp", folder / "speech" / row["audio"]), ("text", row["text"])):
            with (directory / name).open("a") as file:
                file.write(f"{row['id']} {value}\n")


def annotators(folder: Path) -> None:
    """ann.txt, ben.txt and cleo.txt, and the same in crowd.tsv: what three people heard in the test set."""
    rows = [row for row in read_rows(folder / "speech/manifest.jsonl") if row["split"] == "test"]
    crowd = "utterance\ttext\tannotator\n"
    for i, name in enumerate(("ann", "ben", "cleo")):
        texts = {row["id"]: row["text"].replace("abc"[i], "abd"[i]) for row in rows}
        (folder / f"{name}.txt").write_text("".join(f"{id} {text}\n" for id, text in texts.items()))
        crowd += "".join(f"{id}\t{text}\t{name}\n" for id, text in texts.items())
    (folder / "crowd.tsv").write_text(crowd)
    (folder / "variants.txt").write_text(
        "".join(f"{row['text'].split()[0]} {row['text'].split()[0]}x\n" for row in rows)
    )


def alternatives(folder: Path) -> None:
    """variants.txt, which changes few utterances, and second.jsonl: what somebody else wrote for some of them."""
    rows = read_rows(folder / "speech/manifest.jsonl")
    words = [row["text"].split()[0] for row in rows]
    (folder / "variants.txt").write_text(f"{words[0]} bad\n" if words[0] != "bad" else "bad cafe\n")
    write_rows(folder / "second.jsonl", [{"id": row["id"], "text": "bad"} for row in rows[:2]])


def librispeech(folder: Path) -> None:
    """The same speech as one chapter of each subset in LibriSpeech/."""
    for row in read_rows(folder / "speech/manifest.jsonl"):
        subset = {"train": "train-clean-100", "dev": "dev-clean", "test": "test-clean"}[row["split"]]
        chapter = folder / "LibriSpeech" / subset / "1" / "2"
        chapter.mkdir(parents=True, exist_ok=True)
        wave, rate = soundfile.read(folder / "speech" / row["audio"])
        soundfile.write(chapter / f"1-2-{row['id']}.flac", wave, rate)
        with (chapter / "1-2.trans.txt").open("a") as file:
            file.write(f"1-2-{row['id']} {row['text'].upper()}\n")


def checkpoint(folder: Path) -> None:
    """A tiny Hugging Face checkpoint."""
    make_checkpoint(folder / "checkpoint")


def fleurs(folder: Path) -> None:
    """A few Hindi sentences in FLEURS/hi_in/, and another language beside it."""
    for language, texts in (("hi_in", ["फल और कंद", "नमक का दाम"]), ("ta_in", ["நீர்"])):
        miniatures.fleurs(folder / "FLEURS" / language, texts, readers=2)


def respin(folder: Path) -> None:
    """Questions and answers in RESPIN/, each by two speakers."""
    for name in ("train_hi_small", "dev_hi", "test_hi"):
        miniatures.respin(folder / "RESPIN", ["दाम क्या है ?", "फल खाओ"], name, readers=2)


def sentences(folder: Path) -> None:
    """sentences.txt: what espeak-ng is to say."""
    (folder / "sentences.txt").write_text("".join(f"{text}\n" for text in ("फल और कंद", "नमक का दाम") * 5))


def frozen(folder: Path) -> None:
    """A tiny model in the place of a downloaded one."""
    miniatures.tiny_model(folder / "models/wav2vec2-base")


def trained(folder: Path) -> None:
    """runs/ctc: a run that has learned the tones."""
    (folder / "tones.yaml").write_text(RECIPE.format(folder=folder / "speech"))
    config = load_recipe(str(folder / "tones.yaml"))
    config.data.train = config.data.dev = "manifest.jsonl"
    config.data.workers, config.training.epochs = 0, 10
    train(config, folder / "runs/ctc")


def recordings(folder: Path) -> None:
    """talk.flac; interview.wav, which is long and has two channels; and claimed.jsonl: what somebody wrote down."""
    rng = np.random.default_rng(1)
    for name, text in (("talk", "bad cafe"), ("more", "bad cab face")):
        soundfile.write(folder / f"{name}.flac", np.pad(say(text, rng), RATE // 4), RATE)
    interview = resample(say(" bad cafe fed face deaf cab dead bee" * 12, rng), RATE, 44100)
    soundfile.write(folder / "interview.wav", np.stack([interview, interview], 1), 44100)
    claimed = [("talk", "bad cafe"), ("talk", "bad cdfe"), ("more", "bad face")]
    rows = [{"id": f"utt-{i}", "audio": f"{name}.flac", "text": text} for i, (name, text) in enumerate(claimed, 1)]
    write_rows(folder / "claimed.jsonl", rows)


def talk(folder: Path) -> None:
    """talk.wav, its text as talk.txt and talk.srt, and table.tsv."""
    rng = np.random.default_rng(1)
    lines = ["bad cafe fed", "face deaf cab", "dead bee"] * 3
    wave = np.concatenate([part for line in lines for part in (say("    ", rng), say(line, rng))])
    soundfile.write(folder / "talk.wav", wave, RATE)
    (folder / "talk.txt").write_text("\n".join(lines))
    cues = [f"{k}\n00:00:0{k},000 --> 00:00:0{k},900\n{line}\n" for k, line in enumerate(lines, 1)]
    (folder / "talk.srt").write_text("\n".join(cues))
    soundfile.write(folder / "talk2.wav", wave, RATE)
    (folder / "table.tsv").write_text("talk.wav\ttalk.txt\ntalk2.wav\ttalk.srt\n")


def language_model(folder: Path) -> None:
    """lm.arpa, as lmplz writes it, and hotwords.txt."""
    words = "-1\t<unk>\n0\t<s>\t0\n-1\t</s>\n-1\tbad\t0\n-1\tcafe\t0\n"
    bigrams = "\\2-grams:\n-0.1\tbad cafe\n"
    (folder / "lm.arpa").write_text(f"\\data\\\nngram 1=5\nngram 2=1\n\n\\1-grams:\n{words}\n{bigrams}\n\\end\\\n")
    (folder / "hotwords.txt").write_text("bad cafe\n")


def decided(folder: Path) -> None:
    """data/mine, prepared, and what two people said about its transcripts: report- and ann-decisions.jsonl."""
    assert shell("wildctc prepare jsonl speech/ data/mine", folder).returncode == 0
    first, second, *_ = read_rows(folder / "speech/manifest.jsonl")
    fix = {"id": first["id"], "decision": "fix", "text": first["text"], "fixed": "bad cafe"}
    rule = {"id": "finding\tchanged\tcafe\tcaffe", "decision": "variant", "text": "cafe", "fixed": "caffe"}
    write_rows(folder / "report-decisions.jsonl", [fix, {**second, "decision": "accept"}, rule])
    write_rows(folder / "ann-decisions.jsonl", [fix | {"reviewer": "ann"}])


# The pages that are run, and what each needs in its folder besides speech/.
PAGES_RUN: dict[str, list[Callable[[Path], None]]] = {
    "README.md": [],
    "training.md": [kaldi, librispeech, references],
    "choosing.md": [],
    "baselines.md": [],
    "using-the-model.md": [trained, recordings, language_model],
    "long-audio.md": [trained, talk, checkpoint],
    "audit.md": [trained, decided],
    "cleaning.md": [trained, decided],
    "noise-rates.md": [],
    "alternatives.md": [alternatives],
    "several-gpus.md": [],
    "scale.md": [],
    "disagreement.md": [annotators],
    "probe.md": [checkpoint],
    "data.md": [kaldi, librispeech, fleurs, respin, sentences],
    "units-and-front-ends.md": [frozen],
}


def has_commands(page: Path) -> bool:
    return any(block.kind == "sh" and runnable(block.content).strip() for block in blocks(page))


def make_folder(folder: Path) -> None:
    """speech/, and the small recipes."""
    make_corpus(folder / "speech").unlink()
    for path in (folder / "speech").glob("*.wav"):  # a front end with few frames a second needs more than two letters
        wave, rate = soundfile.read(path)
        soundfile.write(path, np.pad(wave, rate // 4), rate)
    rows = []
    for split in ("train", "dev", "test"):
        rows += [row | {"split": split} for row in read_rows(folder / f"speech/{split}.jsonl")]
        (folder / f"speech/{split}.jsonl").unlink()
    write_rows(folder / "speech/manifest.jsonl", rows)
    for name in shipped_recipes():
        config = load_recipe(name)
        if "/" in config.features.name:  # a model to download
            config.features.name, config.features.num_bins = "fbank", 40
        apply_arguments(config, SMALL.split())
        (folder / name).write_text(to_yaml(config))


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block as a shell would, but stop at the first command that fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def runnable(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.startswith(NOT_RUN))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p.name in PAGES_RUN], ids=lambda page: page.name)
def test_every_command_of_the_page_runs(page, tmp_path, monkeypatch, one_thread):
    make_folder(tmp_path)
    for set_up in PAGES_RUN[page.name]:
        set_up(tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(page):
        if block.kind == "sh" and runnable(block.content).strip():
            done = shell(runnable(block.content), tmp_path)
            assert done.returncode == 0, f"{page.name}:{block.line}:\n{block.content}\n{done.stdout}"
            assert "Traceback" not in done.stdout
        elif block.kind == "python" and page.name in PYTHON_NEEDS_FOLDER:
            exec(compiled(page, block), namespace)


def test_no_page_with_commands_is_forgotten():
    assert {page.name for page in PAGES if has_commands(page)} == set(PAGES_RUN)


@pytest.mark.slow
def test_a_command_that_fails_is_noticed(tmp_path):
    make_folder(tmp_path)
    assert shell("wildctc prepare jsonl speech/ data/x", tmp_path).returncode == 0
    assert shell("wildctc prepare jsonl nowhere data/x\necho done", tmp_path).returncode == 2
    assert shell("wildctc train iban --out run --data.dir nowhere | cat", tmp_path).returncode == 2
    assert json.loads((tmp_path / "speech/manifest.jsonl").read_text().splitlines()[-1])["split"] == "test"
