import os

import pytest
import torch

# test_triton.py runs these tests once more, in a process where Triton interprets its kernels
BACKENDS = ["triton"] if os.environ.get("TRITON_INTERPRET") == "1" else ["reference", "native"]


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests share the machine; those about threads set their own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param
