"""A killed run continues to bit-identical weights; a full disk costs nothing that was saved."""

import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows
from support.training_runs import command, kill_after_checkpoints, kill_group, start

from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.files import Damaged, write_atomically
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.training.checkpoints import Checkpoints, average


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
    assert "resuming" in output
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
    ("text", "message"), [("xyz", "was trained with other units"), ("ab", "the data has changed since the run started")]
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
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.restore(checkpoints.find(), other, other_optimizer, "u") == {"step": 3, "units": "u"}
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


# --------------------------------------------------------------------------------------------------- damaged files


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path):
    write_atomically(tmp_path / "last.safetensors", b"not tensors")
    with pytest.raises(Damaged, match="not a readable safetensors file"):
        load_tensors(tmp_path / "last.safetensors")


def test_no_flipped_bit_of_a_file_goes_unnoticed(tmp_path):
    path = tmp_path / "last.safetensors"
    tensors = {"w": torch.randn(3), "half": torch.randn(2, dtype=torch.bfloat16), "n": torch.tensor(7)}
    save_tensors(path, tensors, {"step": 1})
    whole, noticed = path.read_bytes(), 0
    for bit in range(0, 8 * len(whole), 7):
        flip(path, bit)
        try:
            found, state = load_tensors(path)
        except Damaged:
            noticed += 1
        else:  # in the padding, or in the name of the field that holds the checksum
            assert state["step"] == 1
            assert found.keys() == tensors.keys()
            assert all(torch.equal(found[name], tensors[name]) for name in tensors)
        path.write_bytes(whole)
    assert noticed > 0.9 * 8 / 7 * len(whole)


def die_before(number: int, links: bool) -> None:
    """From now on this process is killed before call `number` of those that touch the disk."""
    calls = iter(range(number))

    def counted(function):
        def call(*arguments):
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return call

    def no_link(*_):
        raise OSError("this disk knows no links")

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)
    os.link, shutil.copyfile = (counted(os.link), None) if links else (no_link, counted(shutil.copyfile))


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("number", range(6))
def test_a_kill_between_the_two_files_leaves_a_checkpoint_to_go_on_from(tmp_path, number, links):
    def save(step: int) -> None:
        save_tensors(checkpoints.last, {"w": torch.full((9,), float(step))}, {"step": step}, checkpoints.previous)

    def steps() -> list[int]:
        return [load_tensors(path)[1]["step"] for path in (checkpoints.last, checkpoints.previous)]

    checkpoints = Checkpoints(tmp_path)
    save(1)
    save(2)
    assert steps() == [2, 1]
    if (child := os.fork()) == 0:
        die_before(number, links)
        save(3)  # calls: fsync, link or copy, replace, replace, fsync of the folder
        os._exit(0)
    assert os.waitpid(child, 0)[1] == (signal.SIGKILL if number < 5 else 0)
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.find() == checkpoints.last
    assert steps() == [[2, 1], [2, 1], [2, 1], [2, 2], [3, 2], [3, 2]][number]
    found = steps()[0]
    save(9)
    assert steps() == [9, found]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.safetensors", "previous.safetensors"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a checkpoint every two steps, and the command that made it."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = make_corpus(folder / "corpus", {"train": 12, "dev": 2})
    more = ["--training.epochs", "2", "--data.workers", "0", "--training.checkpoint_steps", "2"]
    words = ["train", str(recipe), *more, "--criterion", "otc-tw", "--data.batch_seconds", "3", "--out"]
    assert main([*words, str(folder / "run")]) == 0
    return folder / "run", words


@pytest.fixture
def copied(finished, tmp_path, capfd):
    """A copy of the run without its model, as if killed at the end; and its command."""
    shutil.copytree(finished[0], tmp_path / "run")
    shutil.rmtree(tmp_path / "run/model")
    capfd.readouterr()
    return tmp_path / "run", [*finished[1], str(tmp_path / "run")]


def same_model(run: Path, other: Path) -> bool:
    name = "model/model.safetensors"
    return (run / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_run_with_a_damaged_checkpoint_goes_on_from_the_one_before_to_the_same_weights(
    finished, copied, capfd, damage
):
    run, words = copied
    last = run / "checkpoints/last.safetensors"
    step = load_tensors(last)[1]["step"]
    if damage == "flip":
        flip(last, 8 * (last.stat().st_size - 1000))  # among the weights
    elif damage == "truncate":
        last.write_bytes(last.read_bytes()[:-100])
    else:
        last.unlink()
    assert main(words) == 0
    said = capfd.readouterr().err
    assert re.search(r"last\.safetensors: .*; resuming from the checkpoint before it", said)
    [begun] = re.findall(r"resuming from .*last\.safetensors: epoch \d, step (\d+)", said)
    assert 0 < int(begun) < step
    assert same_model(run, finished[0])
    assert (run / "checkpoints/last.damaged").exists() == (damage != "delete")
    assert load_tensors(last)[1]["step"] == step


def test_two_damaged_checkpoints_are_one_line_and_stay_as_they_are(copied, capfd):
    run, words = copied
    files = [run / "checkpoints" / f"{name}.safetensors" for name in ("last", "previous")]
    for file in files:
        flip(file, 8 * (file.stat().st_size - 1000))
    before = [file.read_bytes() for file in files]
    assert main(words) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.count("does not match its checksum") == 2
    assert "another --out" in said
    assert [file.read_bytes() for file in files] == before


@pytest.mark.parametrize("state", [{}, {"units": "u"}])
def test_a_checkpoint_without_state_is_one_line(copied, capfd, state):
    run, words = copied
    last = run / "checkpoints/last.safetensors"
    save_tensors(last, load_tensors(run / "checkpoints/epoch-0002.safetensors")[0], state)
    assert main(words) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("wildctc: ")
    assert said.endswith("not a checkpoint of a run: put the run's own back, or choose another --out")


@pytest.mark.parametrize("damage", ["half", "flip"])
def test_a_damaged_record_of_the_audio_is_made_again(finished, copied, capfd, damage):
    run, words = copied
    record = run / "data/train.json"
    whole = record.read_text()
    if damage == "half":
        record.write_text(whole[: len(whole) // 2])
    else:
        record.write_text(re.sub(r"\[\d", "[9", whole, count=1))
    assert main(words) == 0
    assert "train.json: damaged" in capfd.readouterr().err
    assert record.read_text() == whole
    assert same_model(run, finished[0])


def test_damaged_settings_of_a_run_are_one_line(copied, capfd):
    run, words = copied
    (run / "config.yaml").write_bytes(b"criterion: \xff\n")
    assert main(words) == 2
    said = capfd.readouterr().err.strip()
    assert "config.yaml" in said
    assert len(said.splitlines()) == 1


def test_damaged_weights_of_an_epoch_are_left_out_only_when_the_user_deletes_them(copied, capfd):
    run, words = copied
    epoch = run / "checkpoints/epoch-0002.safetensors"
    flip(epoch, 8 * (epoch.stat().st_size - 1000))
    assert main(words) == 2
    assert "delete it, and the same command averages the other epochs" in capfd.readouterr().err
    assert not (run / "model").exists()
    epoch.unlink()
    assert main(words) == 0
    said = capfd.readouterr().err
    assert "no weights of epochs 2" in said
    assert "model of epochs 1 in" in said


def test_the_trunk_is_written_by_a_run_that_was_killed_just_before(tmp_path, capfd):
    recipe = make_corpus(tmp_path / "corpus", {"train": 6, "dev": 2})
    words = ["train", str(recipe), "--training.epochs", "2", "--training.ctc_epochs", "1", "--data.workers", "0"]
    words += ["--criterion", "otc-t", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    folder = tmp_path / "run/checkpoints"
    trunk = (folder / "trunk.safetensors").read_bytes()
    (folder / "trunk.safetensors").replace(folder / "last.safetensors")  # as it was when the first epoch had ended
    assert main(words) == 0
    assert (folder / "trunk.safetensors").read_bytes() == trunk
