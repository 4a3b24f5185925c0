import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests share the machine; those about threads set their own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["reference", "native"])
def backend(request):
    return request.param
