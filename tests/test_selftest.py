"""`wildctc selftest` tells whether the engine is right on this machine, in a table and by its exit code."""

import json
import re
import subprocess
import sys

import pytest
import torch

from wildctc import selftest, selftest_speed
from wildctc.cli import main

CPU = torch.device("cpu")


# Every package of the extras is as if it were not installed; torch itself may import some.
WITHOUT_EXTRAS = """
import sys, torch
extras = "soundfile sentencepiece flashlight rapidfuzz yaml safetensors tensorboard tqdm matplotlib regex transformers \
accelerate lightning onnx onnxruntime moonshine_voice moonshine_cpp espeakng_loader".split()
for name in [m for m in sys.modules if m.partition(".")[0] in extras]:
    del sys.modules[name]
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in extras else self.finder.find_spec(name, *rest)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from wildctc.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_extras(*words):
    return subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS, *words], capture_output=True, text=True)


@pytest.mark.slow
def test_without_extras_help_works_and_other_commands_name_the_extra(tmp_path):
    assert "selftest" in without_extras("--help").stdout
    done = without_extras("train", "iban", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert done.stderr.startswith("wildctc: ")
    assert "is not installed; the extra train brings it" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_on_the_cpu_everything_passes_with_nothing_but_the_core(tmp_path):
    done = without_extras("selftest", "--device", "cpu", "--json", str(tmp_path / "numbers.json"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    out = done.stdout
    assert re.search(r"wildctc \S+, backend native on cpu", out)
    assert out.count("equals the reference") == 11
    assert "5 runs give the same bits | yes" in re.sub(" +", " ", out)
    assert out.rstrip().endswith("passed")
    assert "FAILED" not in out
    line = r"^\| (torch\S+|native, \w+) .*\| +([\d.]+) +\| +([\d.]+) +\| +([\d.]+|\?) +\|$"
    times = re.findall(line, out, re.MULTILINE)
    names = ["torch.nn.functional.ctc_loss", "native, CTC", "native, T", "native, TW"]
    assert [name for name, *_ in times] == 2 * names
    assert all(float(milliseconds) > 0 for _, milliseconds, _, _ in times)
    assert [ratio for _, _, ratio, _ in times][::4] == ["1.00", "1.00"]
    gradient = 8 * 400 * 100 * 4 / 1e6
    assert all(memory == "?" or float(memory) > 0.9 * gradient for *_, memory in times[4:])
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["passed"]
    assert len(numbers["checks"]) == 13
    assert [(line["name"], f"{line['milliseconds']:.2f}") for line in numbers["speed"]] == [x[:2] for x in times]
    assert numbers["speed"][-1]["shape"] == {"frames": 400, "tokens": 60, "outputs": 100, "utterances": 8}


def test_a_loss_that_cannot_run_is_named_with_the_reason():
    """cuDNN has no part in what a CPU computes, and k2 is not among the extras."""
    shape = selftest_speed.Shape(6, 2, 5, 2)
    logits, targets = torch.zeros(6, 2, 5), torch.ones(2, 2, dtype=torch.int64)
    reason = selftest_speed._cudnn(logits, targets, shape)
    assert reason == "not usable" or str(reason).startswith("unknown: ")
    line = selftest_speed.Speed("the same, cuDNN", shape, note=str(reason))
    assert line.cells() == ["the same, cuDNN", "6", "2", "5", "2", reason, "", ""]


def test_a_wrong_loss_fails(monkeypatch, capsys):
    right = selftest.wildcard_ctc_loss

    def wrong(*args, backend, **options):
        loss = right(*args, backend=backend, **options)
        return loss if backend == "reference" else loss * 1.001

    monkeypatch.setattr(selftest, "wildcard_ctc_loss", wrong)
    check = selftest._check_parity("T", torch.float32, "native", CPU, frames=20)
    assert not check.passed
    monkeypatch.setattr(selftest, "selftest", lambda device: selftest.SelftestResult("about", [check], []))
    with pytest.raises(SystemExit) as exit_:
        main(["selftest", "--device", "cpu"])
    assert exit_.value.code == 1
    assert "| FAILED |" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["gpu", "mps", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_one_line(device, capsys):
    assert main(["selftest", "--device", device]) == 2
    assert f"--device {device}" in capsys.readouterr().err
