"""A killed run continues to bit-identical weights; a full disk costs nothing that was saved."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tones import make_corpus, read_rows, write_rows

from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.files import load_tensors, save_tensors, write_atomically
from wildctc.training.checkpoints import Checkpoints, average

THREADS = {"OMP_NUM_THREADS": "1"}


def command(recipe: Path, run: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "wildctc", "train", str(recipe), "--out", str(run), *more]


def start(arguments: list[str], **options) -> subprocess.Popen:
    return subprocess.Popen(
        arguments, env=os.environ | THREADS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, **options,
    )  # fmt: skip


def kill_group(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def kill_after_checkpoints(process: subprocess.Popen, path: Path, number: int, delay: float) -> bool:
    """Kill the process and its workers `delay` seconds after `path` was replaced `number` times.

    False: it ended before.
    """
    seen, last = 0, path.stat().st_ino if path.exists() else 0
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        now = path.stat().st_ino if path.exists() else 0
        seen, last = seen + (now != last), now
        if seen >= number:
            time.sleep(delay)
            kill_group(process)
            return True
        time.sleep(0.005)
    return False


@pytest.mark.slow
def test_run_killed_at_random_steps_ends_with_identical_weights(tmp_path):
    recipe = make_corpus(tmp_path / "corpus")
    options = ("--criterion", "otc-tw-h", "--data.workers", "2", "--optimizer.accumulate", "2")
    whole = start(command(recipe, tmp_path / "whole", *options))
    assert "model" in whole.communicate()[0]
    chance = random.Random(0)
    run, kills = tmp_path / "killed", 0
    for _ in range(4):
        process = start(command(recipe, run, *options, "--training.checkpoint_steps", "2"))
        checkpoint = run / "checkpoints" / "last.safetensors"
        kills += kill_after_checkpoints(process, checkpoint, chance.randint(1, 3), chance.uniform(0, 0.5))
    assert kills == 4
    rest = start(command(recipe, run, *options, "--training.checkpoint_steps", "2"))
    output = rest.communicate()[0]
    assert rest.returncode == 0, output
    assert "continuing" in output
    same = (tmp_path / "whole/model/model.safetensors").read_bytes() == (run / "model/model.safetensors").read_bytes()
    assert same
    first, second = (load_tensors(tmp_path / name / "checkpoints/last.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(first[0][key], second[0][key]) for key in first[0])
    assert str(first[1]["criterion"]) == str(second[1]["criterion"])
    assert metrics_but_time(run) == metrics_but_time(tmp_path / "whole")
    assert event_epochs(run / "tensorboard") == [1, 2, 3, 4, 5]


def metrics_but_time(run: Path) -> list[dict]:
    return [{k: v for k, v in m.items() if k != "seconds"} for m in read_rows(run / "metrics.jsonl")]


def event_epochs(folder: Path) -> list[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [e.step for e in events.Scalars("train_loss")]


@pytest.mark.slow
def test_second_process_for_the_same_run_is_refused(tmp_path):
    recipe = make_corpus(tmp_path / "corpus")
    run = tmp_path / "run"
    first = start(command(recipe, run, "--training.epochs", "100"))
    while first.poll() is None and not (run / "checkpoints/last.safetensors").exists():
        time.sleep(0.05)
    second = start(command(recipe, run, "--training.epochs", "100"))
    output = second.communicate()[0]
    kill_group(first)
    assert second.returncode == 2
    assert "another process is training there" in output


@pytest.mark.slow
def test_killed_data_loading_process_is_one_line(tmp_path):
    recipe = make_corpus(tmp_path / "corpus")
    run = tmp_path / "run"
    process = start(command(recipe, run, "--training.epochs", "1000"))
    while process.poll() is None and not (run / "checkpoints/last.safetensors").exists():
        time.sleep(0.05)
    for _ in range(20):  # one that was about to end anyway is not missed
        for worker in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
            break
    output = process.communicate()[0]
    assert process.returncode == 2, output
    assert "Traceback" not in output
    assert "a data-loading process was killed" in output.splitlines()[-1]


def test_file_that_does_not_fit_leaves_the_old_one_and_no_rest(tmp_path):
    path = tmp_path / "last.safetensors"
    save_tensors(path, {"w": torch.ones(3)}, {"step": 1})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))  # writing more fails, as on a full disk
    try:
        with pytest.raises(WildCTCError, match=r"cannot write .*last.safetensors: .*; what was saved before is intact"):
            save_tensors(path, {"w": torch.zeros(1000)}, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    tensors, state = load_tensors(path)
    assert torch.equal(tensors["w"], torch.ones(3))
    assert state == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_full_disk_during_training_is_one_line_and_the_checkpoint_stays_good(tmp_path):
    recipe = make_corpus(tmp_path / "corpus")
    run = tmp_path / "run"
    process = start(command(recipe, run))
    assert kill_after_checkpoints(process, run / "checkpoints/last.safetensors", 1, 0)
    before = (run / "checkpoints/last.safetensors").read_bytes()
    size = len(before) // 2
    full = start(
        command(recipe, run),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)),
    )
    output = full.communicate()[0]
    assert full.returncode == 2, output
    assert "Traceback" not in output
    assert "cannot write" in output.splitlines()[-1]
    assert (run / "checkpoints/last.safetensors").read_bytes() == before


def test_run_folder_that_cannot_be_written_is_one_line(tmp_path, capfd):
    recipe = make_corpus(tmp_path / "corpus", {"train": 2, "dev": 1})
    (tmp_path / "file").write_text("")
    assert main(["train", str(recipe), "--out", str(tmp_path / "file" / "run")]) == 2
    error = capfd.readouterr().err.strip()
    assert "cannot write" in error
    assert len(error.splitlines()) == 1


def test_other_settings_for_the_same_run_are_refused_by_name(tmp_path, capfd):
    recipe = make_corpus(tmp_path / "corpus", {"train": 6, "dev": 2})
    short = ["train", str(recipe), "--out", str(tmp_path / "run"), "--training.epochs", "1", "--data.workers", "0"]
    assert main(short) == 0
    capfd.readouterr()
    assert main([*short, "--optimizer.lr", "0.1"]) == 2
    assert "optimizer.lr: 0.01 there, 0.1 here" in capfd.readouterr().err
    assert main([*short, "--data.max_bad", "0.5"]) == 0  # does not touch the weights
    assert "the run is finished" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"), [("xyz", "was trained with other units"), ("ab", "the data has changed since the run began")]
)
def test_other_transcripts_for_the_same_run_are_refused(tmp_path, capfd, text, message):
    recipe = make_corpus(tmp_path / "corpus", {"train": 6, "dev": 2})
    arguments = ["train", str(recipe), "--out", str(tmp_path / "run"), "--training.epochs", "1", "--data.workers", "0"]
    assert main(arguments) == 0
    rows = read_rows(tmp_path / "corpus/train.jsonl")
    write_rows(tmp_path / "corpus/train.jsonl", [*rows[:-1], rows[-1] | {"text": text}])
    capfd.readouterr()
    assert main(arguments) == 2
    assert message in capfd.readouterr().err


def test_optimizer_and_weights_come_back_with_the_same_bits(tmp_path):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def steps(model, optimizer, number):
        for i in range(number):
            optimizer.zero_grad()
            model(torch.full((2, 4), float(i))).square().sum().backward()
            optimizer.step()

    model, optimizer = make()
    steps(model, optimizer, 3)
    Checkpoints(tmp_path).save(model, optimizer, {"step": 3, "units": "u"})
    other, other_optimizer = make()
    assert Checkpoints(tmp_path).restore(other, other_optimizer, "u") == {"step": 3, "units": "u"}
    steps(model, optimizer, 2)
    steps(other, other_optimizer, 2)
    assert torch.equal(model.weight, other.weight)


def test_average_is_the_mean_of_the_weights(tmp_path):
    for i in (1, 2, 6):
        save_tensors(tmp_path / f"{i}", {"w": torch.full((2,), float(i)), "n": torch.tensor(i)}, {})
    mean = average([tmp_path / "1", tmp_path / "2", tmp_path / "6"])
    assert mean["w"].tolist() == [3.0, 3.0]
    assert mean["n"].item() == 1


def test_parts_of_a_killed_run_are_removed(tmp_path):
    part = tmp_path / ".last.safetensors.123.part"
    part.write_bytes(b"half")
    Checkpoints(tmp_path)
    assert not part.exists()


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path):
    write_atomically(tmp_path / "last.safetensors", b"not tensors")
    with pytest.raises(WildCTCError, match="not a readable safetensors file"):
        load_tensors(tmp_path / "last.safetensors")
