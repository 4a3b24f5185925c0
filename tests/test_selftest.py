"""`wildctc selftest` tells whether the engine is right on this machine, in a table and by its exit code."""

import re
import subprocess
import sys

import pytest
import torch

from wildctc import selftest
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
def test_on_the_cpu_everything_passes_with_nothing_but_the_core():
    done = without_extras("selftest", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    out = done.stdout
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
    check = selftest._check_parity("T", torch.float32, "native", CPU, frames=20)
    assert not check.passed
    monkeypatch.setattr(
        selftest, "selftest", lambda device: selftest.SelftestResult("about", [check], [["x", "1", "2"]])
    )
    with pytest.raises(SystemExit) as exit_:
        main(["selftest", "--device", "cpu"])
    assert exit_.value.code == 1
    assert "| FAILED |" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["gpu", "mps", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_one_line(device, capsys):
    assert main(["selftest", "--device", device]) == 2
    assert f"--device {device}" in capsys.readouterr().err
