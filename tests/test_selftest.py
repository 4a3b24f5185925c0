"""`wildctc selftest` tells whether the engine is right on this machine, in a table and by its exit code."""

import re

import pytest
import torch

from wildctc import selftest
from wildctc.cli import main

CPU = torch.device("cpu")


@pytest.mark.slow
def test_on_the_cpu_everything_passes(capsys):
    assert main(["selftest", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"wildctc \S+, backend native on cpu", out)
    assert out.count("equals the reference") == 11
    assert "5 runs give the same bits | yes" in re.sub(" +", " ", out)
    assert out.rstrip().endswith("passed")
    assert "FAILED" not in out
    times = re.findall(r"^\| (torch\S+|native, \w+) .*\| +([\d.]+) +\| +([\d.]+|\?) +\|$", out, re.MULTILINE)
    assert [name for name, _, _ in times] == ["torch.nn.functional.ctc_loss", "native, CTC", "native, T", "native, TW"]
    assert all(float(time) > 0 for _, time, _ in times)
    gradient = 8 * 400 * 100 * 4 / 1e6
    assert all(memory == "?" or float(memory) > 0.9 * gradient for _, _, memory in times)


def test_a_wrong_loss_fails(monkeypatch, capsys):
    right = selftest.wildcard_ctc_loss

    def wrong(*args, backend, **options):
        loss = right(*args, backend=backend, **options)
        return loss if backend == "reference" else loss * 1.001

    monkeypatch.setattr(selftest, "wildcard_ctc_loss", wrong)
    check = selftest.parity("T", torch.float32, "native", CPU, frames=20)
    assert not check.passed
    monkeypatch.setattr(selftest, "selftest", lambda device: selftest.Report("about", [check], [["x", "1", "2"]]))
    with pytest.raises(SystemExit) as exit_:
        main(["selftest", "--device", "cpu"])
    assert exit_.value.code == 1
    assert "| FAILED |" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["gpu", "mps", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_one_line(device, capsys):
    assert main(["selftest", "--device", device]) == 2
    assert f"--device {device}" in capsys.readouterr().err
