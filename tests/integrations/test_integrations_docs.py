"""What docs/integrations.md says of other frameworks, where they are installed; the examples run and are short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.tones import make_corpus

import wildctc

ROOT = Path(__file__).parents[2]


def test_espnets_ctc_module_takes_the_loss_as_the_page_says():
    """Its own loss_fn, with log-probabilities and concatenated targets."""
    espnet = pytest.importorskip("espnet2.asr.ctc", exc_type=ImportError)
    torch.manual_seed(0)
    module = espnet.CTC(odim=9, encoder_output_size=6)
    hidden, frames = torch.randn(3, 20, 6), torch.tensor([20, 17, 11])
    targets, lengths = torch.randint(1, 9, (3, 5)), torch.tensor([5, 3, 2])
    own = module(hidden, frames, targets, lengths)
    wanted = torch.autograd.grad(own, list(module.parameters()))
    module.ctc_loss = wildctc.WildcardCTCLoss(reduction="none", zero_infinity=True, wildcards="ctc")
    found = module(hidden, frames, targets, lengths)
    torch.testing.assert_close(found, own)
    for ours, theirs in zip(torch.autograd.grad(found, list(module.parameters())), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    module.ctc_loss = wildctc.WildcardCTCLoss(reduction="none", zero_infinity=True, wildcards="otc-t")
    module.ctc_loss.criterion.step()
    again = espnet.CTC(odim=9, encoder_output_size=6)
    again.ctc_loss = wildctc.WildcardCTCLoss(reduction="none", zero_infinity=True, wildcards="otc-t")
    again.load_state_dict(module.state_dict())  # what its checkpoints hold
    assert again.ctc_loss.criterion.epoch == 2


def test_speechbrains_loss_and_checkpointer_agree_with_the_page(tmp_path):
    """Lengths are fractions there, and infinite losses count as 0."""
    try:
        from speechbrain.nnet.losses import ctc_loss
        from speechbrain.utils.checkpoints import Checkpointer
    except (ImportError, OSError) as error:  # OSError: torchaudio beside a torch without CUDA
        pytest.skip(f"speechbrain does not load: {error}")
    torch.manual_seed(0)
    p_ctc, tokens = torch.randn(3, 20, 9).log_softmax(-1), torch.randint(1, 9, (3, 5))
    wav_lens, tokens_lens = torch.tensor([1.0, 0.85, 0.1]), torch.tensor([1.0, 0.6, 1.0])
    frames = (wav_lens * p_ctc.shape[1]).round().int()
    labels = (tokens_lens * tokens.shape[1]).round().int()
    ours = wildctc.WildcardCTCLoss(zero_infinity=True, wildcards="ctc")
    found = ours(p_ctc.transpose(0, 1), tokens, frames, labels)
    torch.testing.assert_close(found, ctc_loss(p_ctc, tokens, wav_lens, tokens_lens, 0))
    losses = [wildctc.WildcardCTCLoss(zero_infinity=True, wildcards="otc-t") for _ in range(2)]
    losses[0].criterion.step()
    Checkpointer(tmp_path, {"ctc_loss": losses[0]}).save_checkpoint()
    Checkpointer(tmp_path, {"ctc_loss": losses[1]}).recover_if_possible()
    assert losses[1].criterion.epoch == 2


def test_frameworks_that_are_not_run_are_marked_so():
    page = (ROOT / "docs/integrations.md").read_text(encoding="utf-8")
    for name in ("NeMo", "icefall"):
        assert re.search(rf"^\| {name} \|.*\*\*not run\*\*", page, re.MULTILINE)
        assert f"## {name} (not run)" in page


@pytest.mark.slow
def test_the_hugging_face_example_runs_and_resumes(tmp_path):
    pytest.importorskip("accelerate")
    from support.tiny_hf import make_checkpoint

    make_checkpoint(tmp_path / "model")
    make_corpus(tmp_path / "speech", {"train": 6, "dev": 3})
    files = [str(tmp_path / name) for name in ("model", "speech/train.jsonl", "speech/dev.jsonl", "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for epochs in ("1", "2"):
        command = [sys.executable, str(ROOT / "examples/huggingface_finetune.py"), *files, "otc-tw-h", epochs]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"checkpoint-{epochs}" in {path.name for path in (tmp_path / "out").iterdir()}
        assert done.stdout.count("'wildctc/entropy'") == 1
    assert (tmp_path / "out/model.safetensors").is_file()


@pytest.mark.slow
def test_a_wrong_criterion_is_one_line_of_the_hugging_face_example(tmp_path):
    pytest.importorskip("accelerate")
    command = [
        sys.executable,
        str(ROOT / "examples/huggingface_finetune.py"),
        "model",
        "t.jsonl",
        "d.jsonl",
        "out",
        "otc",
    ]
    done = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, text=True, capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith("huggingface_finetune: no criterion is called 'otc'; there are ctc, ")
    assert done.stderr.count("\n") == 1


def test_the_adapter_adds_few_lines():
    text = (ROOT / "examples/huggingface_finetune.py").read_text(encoding="utf-8")
    ours = [line for line in text.splitlines() if re.search("wildctc|WildcardCTCTrainer|criterion", line)]
    assert len(ours) <= 30
