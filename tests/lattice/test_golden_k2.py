"""Loss, gradient and arc posteriors equal those of k2 (its own CTC topology composed with the transcript's graph)."""

import numpy as np
import pytest
import torch
from support.golden_k2 import CASES, GOLDEN

from wildctc import Wildcards, wildcard_ctc_loss, wildcard_posteriors


def arguments(i: int, dtype: torch.dtype) -> dict:
    case = CASES[i]
    words = torch.full((1, case["U"]), -1)
    for word, (start, end) in enumerate(case["words"]):
        words[0, start:end] = word
    weights = case["weights"]
    return {
        "logits": torch.from_numpy(GOLDEN[f"logits_{i}"]).to(dtype).unsqueeze(1).requires_grad_(),
        "targets": torch.tensor([case["targets"]]),
        "input_lengths": [case["T"]],
        "target_lengths": [case["U"]],
        "words": words,
        "wildcards": Wildcards(
            weights["byp"], weights["self"], weights["word"], "word" if case["criterion"] == "W" else "token"
        ),
    }


def test_there_are_cases_of_every_criterion():
    assert len(CASES) == 90
    assert {case["criterion"] for case in CASES} == {"CTC", "W", "T", "TW"}
    assert any(np.isfinite(case["loss"]) for case in CASES)


@pytest.mark.parametrize("i", range(len(CASES)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_k2(i, dtype, backend):
    case = CASES[i]
    given = arguments(i, dtype)
    loss = wildcard_ctc_loss(**given, reduction="sum", backend=backend)
    assert loss.item() == pytest.approx(case["loss"], rel=2e-6, abs=2e-6)
    if not np.isfinite(case["loss"]):
        return
    loss.backward()
    np.testing.assert_allclose(given["logits"].grad[:, 0].numpy(), GOLDEN[f"grad_{i}"], rtol=2e-6, atol=2e-6)
    post = wildcard_posteriors(**given, backend=backend)
    wanted = case["arc_posteriors"]
    if post.bypass is not None:
        np.testing.assert_allclose(post.bypass[0].numpy(), wanted["byp"][1:], rtol=2e-6, atol=2e-6)
    if post.self_loop is not None:
        np.testing.assert_allclose(post.self_loop[0].numpy(), wanted["self"], rtol=2e-6, atol=2e-6)
    if post.word_bypass is not None:
        ends = [end for _, end in case["words"]]
        np.testing.assert_allclose(post.word_bypass[0].numpy(), np.array(wanted["word"])[ends], rtol=2e-6, atol=2e-6)
