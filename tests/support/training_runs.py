"""Training runs in processes of their own: several at a time, and killed ones."""

import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from support.tones import read_rows
from wildctc.tensor_files import load_tensors
from wildctc.training.config import apply, load_recipe
from wildctc.training.settings import Config

FORK = multiprocessing.get_context("fork")
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


def in_processes(function, *arguments, size=2, killed=(), absent=()):
    """Call function(*arguments) in `size` processes; what each returned, raised or exited with, by rank.

    killed: ranks that are not expected to come to an end of their own. absent: ranks that are not started.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results, found = FORK.Queue(), dict.fromkeys([*killed, *absent])
    given = (size, port, results, function, arguments)
    ranks = [rank for rank in range(size) if rank not in absent]
    children = {rank: FORK.Process(target=_child, args=(rank, *given)) for rank in ranks}
    for child in children.values():
        child.start()
    deadline = time.monotonic() + 90
    try:
        while len(found) < size:
            exited = {rank: child.exitcode for rank, child in children.items() if child.exitcode is not None}
            try:
                rank, result = results.get(timeout=0.5)
                found[rank] = result
            except queue.Empty:
                found = {rank: SystemExit(code) for rank, code in exited.items()} | found
                if time.monotonic() > deadline:
                    pytest.fail(f"no end but of {found}")
    finally:
        for child in children.values():
            child.kill()
            child.join()
    return [found[rank] for rank in range(size)]


def _child(rank, size, port, results, function, arguments):
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in names.items()}}
    try:
        results.put((rank, function(*arguments)))
    except BaseException as error:  # the test is to see whatever it was
        results.put((rank, error))


def messages(results):
    """What the processes had to say; those that exit in silence say nothing."""
    return [str(r) for r in results if isinstance(r, BaseException) and not isinstance(r, SystemExit)]


def load(recipe: Path, **fields) -> Config:
    """The tones recipe without data-loading processes, with `section__name=value` changed."""
    config = load_recipe(str(recipe))
    config.data.workers = 0
    for key, value in fields.items():
        apply(config, key.replace("__", "."), value, "test")
    return config


def plain(recipe: Path, **fields) -> Config:
    """Settings under which one process and several compute the same: nothing random, no batch norm."""
    config = load(recipe, **{"encoder__kind": "e_branchformer", "encoder__dropout": 0.0} | fields)
    for name in asdict(config.spec_augment):
        setattr(config.spec_augment, name, 0)
    return config


def last(run: Path):
    return load_tensors(run / "checkpoints/last.safetensors")


def numbers(metrics: dict) -> dict:
    return {name: value for name, value in metrics.items() if name != "seconds" and value is not None}


def assert_same_run(one: Path, other: Path, tolerance: float = 1e-4) -> None:
    """Metrics and schedule agree, and so do the sums of gradients that Adam keeps."""
    for a, b in zip(read_rows(one / "metrics.jsonl"), read_rows(other / "metrics.jsonl"), strict=True):
        assert numbers(a) == pytest.approx(numbers(b), rel=tolerance, abs=tolerance)
    (tensors, state), (others, other_state) = last(one), last(other)
    rates, other_rates = (s["criterion"].pop("rates", {"last": []}) for s in (state, other_state))
    for a, b in zip(rates["last"], other_rates["last"], strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=100 * tolerance, atol=100 * tolerance)
    assert state["criterion"] == pytest.approx(other_state["criterion"], rel=tolerance, nan_ok=True)
    assert (state["step"], state["data"]) == (other_state["step"], other_state["data"])
    gradients = [name for name in tensors if name.endswith("exp_avg")]
    assert len(gradients) > 20
    for name in gradients:
        scale = tensors[name].abs().max() + 1e-6
        assert (tensors[name] - others[name]).abs().max() < 10 * tolerance * scale, name
