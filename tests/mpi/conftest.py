"""What the tests under the launcher share."""

import numpy as np
import pytest
from mpi4py import MPI
from witness import modules_with

import allreduce
from allreduce.execute import mpi_abi


@pytest.fixture
def python_loop(monkeypatch):
    """Communicators made from now on run the Python interpreter of the table."""
    for module in modules_with("library", mpi_abi.library):
        monkeypatch.setattr(module, "library", lambda: None)


@pytest.fixture
def comm():
    """A Communicator of one test's own."""
    with allreduce.Communicator(MPI.COMM_WORLD) as comm:
        yield comm


@pytest.fixture(scope="module")
def gloo():
    """PyTorch's default group is ours; yields one of gloo's."""
    import torch
    import torch.distributed as dist

    import allreduce.torch_backend  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("allreduce")
    yield dist.new_group(backend="gloo")
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def together(request):
    """Start and end every test on all ranks at once, so that a report names the test that hangs."""
    MPI.COMM_WORLD.Barrier()
    np.seterr(all="ignore")
    yield
